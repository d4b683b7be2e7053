"""Reproduction: compute everything, judge it, draw it, and write the report. Stored rows are never replayed.

:func:`reproduce` trains the three sweeps of the toy, whatever lies in the folder, and judges what it has just trained.
:func:`report_rows` judges and draws rows that lie on disk, and says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from figures import catalog
from figures.report import Picture, Report, format_number, write_report
from theory.claims import Claim, exact_claims, measured_claims
from theory.runs import (
    RunRecord,
    command_line,
    ensure_writable,
    finished_run,
    git_commit,
    machine,
    package_versions,
    read_rows,
    read_run,
)
from toy2d.sweeps import Sweep, kappa_plan, noise_plan, overcomplete_plan, write_sweep

_SOURCES = (catalog.NOISE_SWEEP, catalog.KAPPA_SWEEP, catalog.OVERCOMPLETE)
#: The figure that says most comes first; the others follow by name.
_FIRST = "fig_regret_vs_kappa"
#: Seeds, steps and lines of a quick toy, which is drawn and not judged.
QUICK_SEEDS, QUICK_STEPS, QUICK_LINES = 2, 200, 100


@dataclass(frozen=True)
class Plan:
    """What is trained and how it is judged.

    Attributes
    ----------
    noise, kappa, overcomplete
        The sweeps; ``overcomplete`` may be left out.
    min_seeds
        Fewest seeds a mean may rest on; ``None`` draws the rows without judging them.
    """

    noise: Sweep
    kappa: Sweep
    overcomplete: Sweep | None
    min_seeds: int | None

    @property
    def sweeps(self) -> dict[catalog.Source, Sweep]:
        """The sweeps by the place of their rows."""
        sweeps = zip(_SOURCES, (self.noise, self.kappa, self.overcomplete), strict=True)
        return {source: sweep for source, sweep in sweeps if sweep is not None}


def full_plan() -> Plan:
    """Ten seeds for both sweeps, five for the over-complete latents."""
    return Plan(noise_plan(), kappa_plan(), overcomplete_plan(), min_seeds=5)


def quick_plan() -> Plan:
    """Two seeds and few steps: enough for every figure, not enough for any claim."""
    size: dict[str, Any] = {"seeds": QUICK_SEEDS, "steps": QUICK_STEPS, "lines": QUICK_LINES}
    return Plan(noise_plan(**size), kappa_plan(**size), overcomplete_plan(**size), min_seeds=None)


def reproduce(out: Path, quick: bool = False, plan: Plan | None = None, console: Console | None = None) -> int:
    """Compute all claims and sweeps into ``out`` (``out/quick`` if quick), draw and report; return the exit status.

    Parameters
    ----------
    plan
        What to train, by default :func:`full_plan` or :func:`quick_plan`.
    console
        Where progress is shown, by default standard error.

    Returns
    -------
    int
        0 if every claim that was judged holds, otherwise 1.

    Raises
    ------
    ValueError
        If a folder cannot be written. That is found out before anything is computed, and earlier runs stay whole.
    """
    folder = out / "quick" if quick else out
    plan = plan or (quick_plan() if quick else full_plan())
    for path in (folder, folder / "figures", *(folder / source.path for source in plan.sweeps)):
        ensure_writable(path)
    started, clock = datetime.now(UTC), time.perf_counter()
    with _progress(console) as bar:
        claims = _exact(bar)
        for source, sweep in plan.sweeps.items():
            task = bar.add_task(sweep.name, total=sweep.total_steps)

            def advance(done: int, total: int, task: Any = task) -> None:
                bar.update(task, completed=done, total=total)

            write_sweep(sweep, folder / source.path, progress=advance, force=True)
        if plan.min_seeds is not None:
            claims += _measured(folder, tuple(plan.sweeps), plan.min_seeds)
        pictures = _pictures(folder, tuple(plan.sweeps), bar)
    remarks = [] if plan.min_seeds is not None else [_quick_remark(plan)]
    runs = [read_run(folder / source.path) for source in plan.sweeps]
    return _finish(folder, claims, pictures, runs, remarks, started, time.perf_counter() - clock)


def report_rows(results: Path, console: Console | None = None) -> int:
    """Judge and draw the rows under ``results`` without training; return the exit status, as :func:`reproduce` does.

    Raises
    ------
    ValueError
        If a sweep is missing, half-written or damaged, or its rows cannot carry the claims.
    """
    for source in _SOURCES:
        if finished_run(results / source.path) is None:
            raise ValueError(f"{results / source.path} holds no finished run; make it with `{source.command}`.")
    ensure_writable(results / "figures")
    started, clock = datetime.now(UTC), time.perf_counter()
    measured = _measured(results, _SOURCES, min_seeds=5)
    with _progress(console) as bar:
        claims = _exact(bar) + measured
        pictures = _pictures(results, _SOURCES, bar)
    remark = "The toy's rows were read from disk, not trained for this report; their runs, below, say when they were."
    runs = [read_run(results / source.path) for source in _SOURCES]
    return _finish(results, claims, pictures, runs, [remark], started, time.perf_counter() - clock)


@contextmanager
def _progress(console: Console | None) -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console or Console(stderr=True)) as bar:
        yield bar


def _exact(bar: Progress) -> list[Claim]:
    task = bar.add_task("exact claims", total=1)
    claims = exact_claims()
    bar.update(task, completed=1)
    return claims


def _measured(folder: Path, sources: Sequence[catalog.Source], min_seeds: int) -> list[Claim]:
    """Judge the sweeps, with the regulariser's weight and sample count that the networks were trained with."""
    noise, kappa = (read_rows(folder / source.path) for source in (catalog.NOISE_SWEEP, catalog.KAPPA_SWEEP))
    overcomplete = read_rows(folder / catalog.OVERCOMPLETE.path) if catalog.OVERCOMPLETE in sources else None
    runs = [read_run(folder / source.path) for source in sources]
    trained = {(settings["weight"], 2 * settings["batch_size"]) for run in runs for settings in _training(run)}
    if len(trained) != 1:
        raise ValueError(f"The sweeps in {folder} must share one regulariser weight and one batch size.")
    ((weight, samples),) = trained
    return measured_claims(noise, kappa, overcomplete, weight=weight, batch_size=samples, min_seeds=min_seeds)


def _training(run: RunRecord) -> list[dict[str, Any]]:
    try:
        return [
            {name: stack["training"][name] for name in ("weight", "batch_size")} for stack in run.settings["stacks"]
        ]
    except (KeyError, TypeError):
        raise ValueError(f"The settings in {run.folder} are not those of a sweep of toy2d.") from None


def _pictures(folder: Path, sources: Sequence[catalog.Source], bar: Progress) -> list[Picture]:
    """Draw the figures that need nothing but these sweeps."""
    figures = [figure for figure in map(catalog.get, catalog.names()) if figure.needs and {*figure.needs} <= {*sources}]
    figures.sort(key=lambda figure: (figure.name != _FIRST, figure.name))
    task = bar.add_task("figures", total=len(figures))
    pictures = []
    for figure in figures:
        paths = figure.render(folder)
        png = next(path for path in paths if path.suffix == ".png")
        pictures.append(Picture(figure.name, figure.caption, png))
        bar.advance(task)
    return pictures


def _quick_remark(plan: Plan) -> str:
    steps = max(settings.steps for sweep in plan.sweeps.values() for settings, _ in sweep.stacks)
    seeds = len({case.seed for sweep in plan.sweeps.values() for _, cases in sweep.stacks for case in cases})
    return (
        f"Quick report: only the exact claims are judged. The toy, {seeds} seeds and at most {steps} steps, was "
        "trained and drawn to show that everything runs, not what it shows when trained."
    )


def _finish(
    folder: Path,
    claims: list[Claim],
    pictures: list[Picture],
    runs: list[RunRecord],
    remarks: list[str],
    started: datetime,
    seconds: float,
) -> int:
    """Write the report, say what missed, and return the exit status."""
    host = machine()
    seeds = "; ".join(
        f"{run.folder.name} {', '.join(map(str, run.settings.get('seeds', ['unknown'])))}" for run in runs
    )
    facts = {
        "command": command_line(),
        "git commit": git_commit() or "not in a git checkout",
        "started": started.isoformat(timespec="seconds"),
        "run time": f"{seconds:.0f} s",
        "machine": f"{host['system']} on {host['processor']}, {host['cores']} cores",
        "seeds": f"{seeds}; exact claims use fixed seeds of their own",
    }
    report = Report(claims, pictures, runs, facts, package_versions(), remarks)
    paths = write_report(report, folder)
    console = Console()
    if report.missed:
        table = Table("claim", "expected", "measured", "tolerance", box=None, pad_edge=False)
        for claim in report.missed:
            relation = "" if claim.relation == "=" else f"{claim.relation} "
            numbers = map(format_number, (claim.measured, claim.tolerance))
            table.add_row(claim.label, f"{relation}{format_number(claim.expected)}", *numbers)
        console.print(table)
    for line in (*remarks, report.verdict, *map(str, paths)):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    return 1 if report.missed else 0
