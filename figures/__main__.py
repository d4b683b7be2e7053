"""``python -m figures``: list, draw, report, publish and reproduce."""

from __future__ import annotations

import os

# Before NumPy loads: on matrices as small as ours, threads inside a product only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from theory.commands import run_app

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Names(TyperGroup):
    """A first word that is no command is the name of a figure."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            args = ["draw", *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Names,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Draw figures from rows on disk, or compute everything: `python -m figures NAME…` draws those figures.",
)
Results = Annotated[Path, typer.Option(help="Folder of the runs.")]
Out = Annotated[Path | None, typer.Option(help="Folder for the figures (default: RESULTS/figures).")]


@app.command("list")
def list_figures(results: Results = Path("results")) -> None:
    """Name every figure and table, what it needs, and whether its rows exist."""
    from rich.console import Console
    from rich.table import Table

    from figures import catalog

    table = Table("figure", "needs", "rows", box=None, pad_edge=False)
    for name in catalog.names():
        if not catalog.get(name).needs:
            table.add_row(name, "", "[green]none needed[/green]: closed forms")
        for index, source in enumerate(catalog.get(name).needs):
            table.add_row(name if index == 0 else "", source.path, _state(source, results))
    Console().print(table)


def _state(source: Any, results: Path) -> str:
    """Where a run's rows lie and of which commit, or the command that makes them."""
    from rich.markup import escape

    from figures.catalog import MEASURED
    from figures.visual_rows import VisualRuns
    from theory.runs import read_run

    if isinstance(source, VisualRuns):
        return _states(source, results)
    try:
        folder = source.folder(results)
    except ValueError:
        return f"[red]damaged[/red]: {escape(source.command)} --force"
    if folder is None:
        return f"[yellow]missing[/yellow]: {escape(source.command)}"
    record = read_run(folder)
    kind = "published" if folder.is_relative_to(MEASURED) else "computed"
    return f"[green]{kind}[/green] {record.started[:10]}" + (f", commit {record.commit[:10]}" if record.commit else "")


def _states(source: Any, results: Path) -> str:
    """How many runs of a stage there are, or the command that makes one."""
    from rich.markup import escape

    from figures.catalog import MEASURED

    try:
        folders = source.folders(results)
    except ValueError as error:
        return f"[red]damaged[/red]: {escape(str(error))}"
    if not folders:
        return f"[yellow]not run[/yellow]: {escape(source.command)}"
    published = sum(folder.is_relative_to(MEASURED) for folder in folders)
    counts = {"computed": len(folders) - published, "published": published}
    return ", ".join(f"[green]{kind}[/green] {count}" for kind, count in counts.items() if count)


@app.command(hidden=True)
def draw(names: list[str], results: Results = Path("results"), out: Out = None) -> None:
    """Draw the named figures (PDF, PNG and the table behind them) and tables (Markdown, LaTeX, CSV)."""
    _draw(names, results, out)


@app.command("all")
def draw_all(results: Results = Path("results"), out: Out = None) -> None:
    """Draw every figure and table."""
    from figures import catalog

    _draw(catalog.names(), results, out)


def _draw(names: Sequence[str], results: Path, out: Path | None) -> None:
    from figures import catalog

    chosen = [catalog.get(name) for name in names]
    # All rows are looked for before the first figure is drawn.
    for source in {source: None for figure in chosen for source in figure.needs}:
        source.require(results)
    for figure in chosen:
        for path in figure.render(results, out):
            print(path)


@app.command()
def report(results: Results = Path("results")) -> None:
    """Judge the rows on disk and write report.md and report.html; nothing is trained."""
    from figures.reproduce import report_rows

    raise typer.Exit(report_rows(results))


@app.command()
def publish(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Such as toy2d/kappa-sweep (default: all that are there).")
    ] = None,
    results: Results = Path("results"),
    to: Annotated[Path | None, typer.Option(help="Folder to publish in (default: figures/measured).")] = None,
) -> None:
    """Copy finished, measured runs to figures/measured/, which is committed; without names, all that are sound."""
    from figures import catalog
    from figures.publish import publish as copy
    from theory.runs import finished_run

    known = catalog.runs(results)
    unknown = [run for run in runs or [] if run not in known]
    if unknown:
        raise ValueError(f"There is no run {unknown[0]!r} to publish; the runs are {', '.join(sorted(known))}.")
    chosen, damaged = list(runs or []), []
    for path in sorted(known) if not runs else []:
        try:
            if finished_run(results / path) is not None:
                chosen.append(path)
        except ValueError as error:
            damaged.append(error)
    if not chosen and not damaged:
        raise ValueError(f"{results} holds no finished run to publish; make one with `make reproduce`.")
    for run in chosen:
        print(copy(known[run], results, to or catalog.MEASURED))
    if damaged:
        raise damaged[0]


@app.command()
def visual(
    task: str,
    results: Results = Path("results"),
    out: Annotated[Path | None, typer.Option(help="Folder for the report (default: RESULTS/visual/TASK).")] = None,
) -> None:
    """Write the report of one visual task: tables, words and pictures of its finished runs; nothing is trained."""
    from figures.visual_report import write

    for path in write(task, results, out):
        print(path)


@app.command()
def comparison(
    results: Results = Path("figures/measured"),
    page: Annotated[Path | None, typer.Option(help="The page (default: docs/comparison.md).")] = None,
) -> None:
    """Write the tables of the four-task comparison into its page, from published runs."""
    from figures.comparison import PAGE, write_page

    write_page(results, page or PAGE)
    print(page or PAGE)


@app.command()
def docs(folder: Annotated[Path, typer.Option(help="Folder of the documentation.")] = Path("docs")) -> None:
    """Write the documentation's page of figures and its pictures, from published rows."""
    from figures.gallery import write_docs

    for path in write_docs(folder):
        print(path)


@app.command()
def reproduce(
    quick: Annotated[bool, typer.Option("--quick", help="A small toy, exact claims only, under a minute.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for everything written.")] = Path("results"),
) -> None:
    """Compute every claim, train the toy's sweeps, draw the figures and write the report."""
    from figures.reproduce import reproduce as compute

    raise typer.Exit(compute(out, quick))


if __name__ == "__main__":
    run_app(app)
