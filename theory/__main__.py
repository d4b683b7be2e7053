"""``python -m theory``: the claims table, and the κ advisor for logged states."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from theory.commands import run_app

if TYPE_CHECKING:
    from theory._advice import Advice

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="The mathematics, from the command line.",
)


@app.command()
def claims() -> None:
    """Evaluate every exact claim here and now and print the table; exit status 1 if one misses its tolerance."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from theory.claims import exact_claims

    found = exact_claims()
    table = Table("claim", box=None, pad_edge=False, padding=(0, 2, 1, 0))
    for name in ("expected", "measured", "tolerance"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for claim in found:
        words = f"[bold]{escape(claim.label)}[/bold] ({claim.status})\n{escape(claim.statement)}"
        expected = f"{'' if claim.relation == '=' else claim.relation + ' '}{claim.expected:.6g}"
        numbers = expected, f"{claim.measured:.6g}", f"{claim.tolerance:.1e}"
        table.add_row(words, *numbers, "[green]pass[/green]" if claim.passed else "[red]FAIL[/red]")
    failed = [claim.label for claim in found if not claim.passed]
    console = Console()
    console.print(table)
    console.print(f"{len(found) - len(failed)} of {len(found)} claims hold.")
    if failed:
        console.print(f"Missed: {', '.join(failed)}.")
        raise typer.Exit(1)


@app.command()
def kappa(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Logged transitions: .parquet, .csv or .npz.")],
    task_weights: Annotated[
        str | None, typer.Option(help="Diagonal of the task metric, comma-separated, such as 1,1,0.25 (default: 1).")
    ] = None,
    at: Annotated[list[float] | None, typer.Option(help="Show this κ too; may be repeated.")] = None,
    level: Annotated[float, typer.Option(help="Coverage of the intervals.")] = 0.95,
    draws: Annotated[int, typer.Option(help="Bootstrap draws for the intervals of κ and regret; 0 for none.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
) -> None:
    """Advise on κ from logged transitions: covariances, relative noise, best κ, regret, and where ΛReg hurts.

    A table has columns `state_*`, `next_state_*` with the same endings, `action_*` and, optionally, `episode` (rows of
    one episode are correlated). Without `next_state_*`, successive rows of an `episode` are transitions, in the order
    of `step` if it exists. An `.npz` file holds `states`, `next_states` and, optionally, `actions` and `episodes`.
    """
    from theory._advice import advise
    from theory._logs import read_log

    log = read_log(file)
    weights = None if task_weights is None else _numbers(task_weights)
    try:
        advice = advise(log, weights, tuple(at or ()), level, draws, seed)
    except ValueError as error:
        raise ValueError(
            f"{file}: {error} (States: {', '.join(log.names[:12])}{', …' * (len(log.names) > 12)}.)"
        ) from None
    _print_advice(advice, log.names)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"task_weights must be numbers separated by commas, but it is {text!r}.") from None


def _print_advice(advice: Advice, names: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    console, estimate = Console(), advice.estimate
    percent = f"{100 * estimate.level:g} %"
    console.print(
        f"{estimate.num_transitions:,} transitions, {len(names)} state dimensions, "
        f"{estimate.action_gain.shape[1]} action dimensions. Intervals: {percent}, bootstrap.\n"
    )
    if len(names) <= 8:
        for title, matrix in (("Σ, state covariance", estimate.state_cov), ("Σ_w, process noise", estimate.noise_cov)):
            table = Table("", *names, title=title, title_justify="left", box=None, pad_edge=False)
            for name, row in zip(names, matrix, strict=True):
                table.add_row(name, *(f"{entry:.4g}" for entry in row))
            console.print(table)
            console.print()
    table = Table("quantity", "estimate", percent, box=None, pad_edge=False)
    lower, upper = estimate.interval["relative_noise"]
    shown = range(len(names)) if len(names) <= 8 else (0, len(names) - 1)
    for index in shown:
        name = f"relative noise {index + 1}" + (" (least)" if index == 0 else "")
        table.add_row(name, f"{advice.relative_levels[index]:.4g}", f"{lower[index]:.4g} to {upper[index]:.4g}")
    for name, value, interval in (
        ("best κ", advice.kappa, advice.kappa_interval),
        ("mean regret at best κ", advice.regret, advice.regret_interval),
        ("mean regret at κ = 1", advice.regret_at_one, advice.regret_at_one_interval),
    ):
        table.add_row(name, f"{value:.4g}", "" if interval is None else f"{interval[0]:.4g} to {interval[1]:.4g}")
    console.print(table)
    console.print()
    table = Table("κ", "mean regret", "worst regret", "condition number", box=None, pad_edge=False)
    for row in advice.curve.itertuples():
        table.add_row(
            *(_short(getattr(row, name)) for name in ("kappa", "mean_regret", "worst_regret", "condition_number"))
        )
    console.print(table)
    console.print()
    for sentence in advice.sentences:
        console.print(sentence)
    console.print(
        "This is the linear theory for a latent of the state's dimension; with spare latent dimensions it promises "
        "nothing (docs/theory.md, T12)."
    )


def _short(value: Any) -> str:
    return f"{float(value):.4g}"


if __name__ == "__main__":
    run_app(app)
