"""Commands: ``python -m toy2d noise-sweep | kappa-sweep | overcomplete | diagonal | fresh-seeds``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from theory.commands import run_app

if TYPE_CHECKING:
    from toy2d.sweeps import Sweep

app = typer.Typer(
    help="The 2-D toy: train encoders and predictors as one stack, and plan with them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Seeds = Annotated[int | None, typer.Option(help="Number of seeds (default: ten; five for the last three commands).")]
Steps = Annotated[int | None, typer.Option(help="Training steps.")]
Out = Annotated[
    Path | None, typer.Option(help="Folder of the run (default: results/toy2d/NAME, with --quick results/quick/…).")
]
Threads = Annotated[int | None, typer.Option(help="Networks are dealt to this many workers (default: the cores).")]
Quick = Annotated[bool, typer.Option("--quick", help="Two seeds, few steps and lines: to see that it runs.")]
Force = Annotated[bool, typer.Option("--force", help="Compute a finished run again.")]

#: Seeds, steps and lines of a quick run.
QUICK_SEEDS, QUICK_STEPS, QUICK_LINES = 2, 300, 200


#: What each command trains: its plan in :mod:`toy2d.sweeps`, imported when it runs, and what it is for.
SWEEPS = {
    "noise-sweep": ("noise_plan", "Regret and prediction error at κ = 1 while the process noise falls 30-fold."),
    "kappa-sweep": ("kappa_plan", "Regret against ΛReg's bound κ, from 1 to c²."),
    "overcomplete": ("overcomplete_plan", "Regret at κ = c with more latent dimensions than the state has."),
    "diagonal": (
        "diagonal_plan",
        "Diagonal against full targets, with noise along the state's axes and turned against them; seeds from 10 on.",
    ),
    "fresh-seeds": (
        "fresh_plan",
        "The ends of the noise and κ sweeps with other seeds than those the settings were chosen on, from 10 on.",
    ),
}


def _add_command(name: str, text: str) -> None:
    @app.command(name, help=text)
    def command(
        seeds: Seeds = None,
        steps: Steps = None,
        out: Out = None,
        threads: Threads = None,
        quick: Quick = False,
        force: Force = False,
    ) -> None:
        _run(name, seeds, steps, out, threads, quick, force)


for _name, (_, _text) in SWEEPS.items():
    _add_command(_name, _text)


def plan(name: str, seeds: int | None = None, steps: int | None = None, *, quick: bool = False) -> Sweep:
    """The sweep of this name; what is not given is the full run's, or the quick one's."""
    from toy2d import sweeps

    make: Callable[..., Sweep] = getattr(sweeps, SWEEPS[name][0])
    options = {"seeds": QUICK_SEEDS, "steps": QUICK_STEPS, "lines": QUICK_LINES} if quick else {}
    given = {"seeds": seeds, "steps": steps}
    return make(**(options | {key: value for key, value in given.items() if value is not None}))


def _run(
    name: str, seeds: int | None, steps: int | None, out: Path | None, threads: int | None, quick: bool, force: bool
) -> None:
    from theory.runs import describe_finished, ensure_writable, finished_run
    from theory.spd import check_count
    from toy2d.sweeps import default_threads, write_sweep

    sweep = plan(name, seeds, steps, quick=quick)
    threads = default_threads() if threads is None else check_count(threads, "threads")
    folder = out or Path("results", "quick" if quick else "", "toy2d", name)
    ensure_writable(folder)
    if not force and (record := finished_run(folder, sweep.settings())) is not None:
        print(describe_finished(record))
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("of about"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=sweep.total_steps)
        record = write_sweep(
            sweep,
            folder,
            threads=threads,
            force=force,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    print(f"{folder}: {', '.join(sorted(record.files))}, {record.seconds:.0f} s.")


if __name__ == "__main__":
    run_app(app)
