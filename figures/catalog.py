"""What can be drawn, from which rows, and the command that makes them.

A figure is a module of this package whose name starts with ``fig`` and that holds ``FIGURE``; a table is called
``table`` and its number in the paper, and holds ``TABLE``. Rows are looked for in ``results/`` first and in
``figures/measured/`` (published, committed) second, under one relative path in both.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from theory.runs import finished_run, read_rows

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.figure import Figure as MatplotlibFigure

#: Published runs, committed.
MEASURED = Path(__file__).with_name("measured")
RESULTS = Path("results")
_DRAWABLE = re.compile(r"fig\d|fig_|table\d")


@contextlib.contextmanager
def only_results() -> Iterator[None]:
    """Within the block, published runs are left out: what is drawn is what lies under ``results``."""
    global MEASURED
    before, MEASURED = MEASURED, MEASURED / "nothing"
    try:
        yield
    finally:
        MEASURED = before


class Need(Protocol):
    """Rows that a figure draws: one run (:class:`Source`) or all of a stage (``figures.visual_rows.VisualRuns``)."""

    @property
    def path(self) -> str:
        """Folder, or pattern of the folders, relative to ``results/``."""
        ...

    @property
    def command(self) -> str:
        """What computes it."""
        ...

    def require(self, results: Path) -> object:
        """``ValueError`` if the figure cannot be drawn."""
        ...


@dataclass(frozen=True)
class Source:
    """A run that figures draw from.

    Attributes
    ----------
    path
        Its folder relative to ``results/``.
    command
        The command that computes it.
    private
        Files of the run that are not published.
    """

    path: str
    command: str
    private: tuple[str, ...] = ()

    def folder(self, results: Path) -> Path | None:
        """The finished run's folder under ``results`` or among the published runs, or ``None``.

        Raises
        ------
        ValueError
            If a run lies there but is damaged.
        """
        for root in (results, MEASURED):
            if finished_run(root / self.path) is not None:
                return root / self.path
        return None

    def require(self, results: Path) -> Path:
        """The finished run's folder; ``ValueError`` that names the command if there is none."""
        folder = self.folder(results)
        if folder is None:
            raise ValueError(f"{results / self.path} holds no finished run; make it with `{self.command}`.")
        return folder

    def rows(self, results: Path) -> pd.DataFrame:
        """Its rows."""
        return read_rows(self.require(results))

    def arrays(self, results: Path, name: str) -> dict[str, np.ndarray]:
        """The arrays of one of its ``.npz`` files."""
        import numpy as np

        path = self.require(results) / name
        try:
            with np.load(path, allow_pickle=False) as archive:
                return {key: archive[key] for key in archive.files}
        except (OSError, ValueError, zipfile.BadZipFile):
            raise ValueError(f"{path} cannot be read; make it again with `{self.command} --force`.") from None


NOISE_SWEEP = Source("toy2d/noise-sweep", "python -m toy2d noise-sweep")
KAPPA_SWEEP = Source("toy2d/kappa-sweep", "python -m toy2d kappa-sweep")
OVERCOMPLETE = Source("toy2d/overcomplete", "python -m toy2d overcomplete")
DIAGONAL = Source("toy2d/diagonal", "python -m toy2d diagonal")
#: No figure draws it: it repeats the ends of the sweeps with seeds that chose nothing.
FRESH_SEEDS = Source("toy2d/fresh-seeds", "python -m toy2d fresh-seeds")


@dataclass(frozen=True)
class Figure:
    """One figure.

    Attributes
    ----------
    name
        The stem of its script and of its files.
    caption
        What it shows, in a sentence or two.
    needs
        The runs it draws from.
    read
        Folder of results → the tidy table behind the picture.
    draw
        That table → the picture.
    film
        Folder of results → moving pictures, by name of file; written beside the others if there are any.
    """

    name: str
    caption: str
    needs: tuple[Need, ...]
    read: Callable[[Path], pd.DataFrame] = field(repr=False)
    draw: Callable[[pd.DataFrame], MatplotlibFigure] = field(repr=False)
    film: Callable[[Path], dict[str, bytes]] | None = field(default=None, repr=False)

    def render(self, results: Path = RESULTS, folder: Path | None = None) -> list[Path]:
        """Draw into ``folder`` (``results/figures/`` unless given); return the files written."""
        from figures import style

        frame = self.read(results)
        folder = folder or results / "figures"
        paths = style.save(self.draw(frame), frame, self.name, folder)
        return paths + (style.write(self.film(results), folder) if self.film is not None else [])


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes
    ----------
    name, caption, needs, read
        As for a :class:`Figure`.
    layout
        The tidy table → the printed one: cells of text under column heads.
    """

    name: str
    caption: str
    needs: tuple[Need, ...]
    read: Callable[[Path], pd.DataFrame] = field(repr=False)
    layout: Callable[[pd.DataFrame], pd.DataFrame] = field(repr=False)

    def render(self, results: Path = RESULTS, folder: Path | None = None) -> list[Path]:
        """Write NAME.md, NAME.tex and NAME.csv into ``folder`` (``results/figures/`` unless given)."""
        from figures import tables

        frame = self.read(results)
        return tables.save(self.layout(frame), frame, self.name, self.caption, folder or results / "figures")


def names() -> list[str]:
    """Names of all figures and tables, sorted."""
    import figures

    return sorted(module.name for module in pkgutil.iter_modules(figures.__path__) if _DRAWABLE.match(module.name))


def get(name: str) -> Figure | Table:
    """The figure or table of this name.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name not in names():
        raise ValueError(f"There is no figure {name!r}; the figures are {', '.join(names())}.")
    module: Any = importlib.import_module(f"figures.{name}")
    kind: type[Figure | Table] = Table if name.startswith("table") else Figure
    item = getattr(module, kind.__name__.upper(), None)
    if not isinstance(item, kind):
        raise TypeError(f"figures.{name}.{kind.__name__.upper()} must be a {kind.__name__}.")
    return item


def runs(results: Path) -> dict[str, Source]:
    """Every run that may be published, by path: those that figures draw from, and every folder of a visual stage.

    None is read here, so that a damaged one keeps no other from being published.
    """
    from figures.visual_rows import STAGES, VisualRuns

    found = {need.path: need for name in names() for need in get(name).needs if isinstance(need, Source)}
    found[FRESH_SEEDS.path] = FRESH_SEEDS
    stages = [VisualRuns(stage, variants=variants) for stage in STAGES for variants in (False, True)]
    return found | {source.path: source for stage in stages for source in stage.all_sources(results)}


def require_columns(rows: pd.DataFrame, columns: list[str], source: str) -> None:
    """Refuse rows that are empty, lack a column, or hold a number that is not finite.

    Raises
    ------
    ValueError
        With one sentence that names the rows and the column.
    """
    import numpy as np

    missing = [column for column in columns if column not in rows.columns]
    if missing:
        raise ValueError(f"The rows of {source} lack the column{'s' * (len(missing) > 1)} {', '.join(missing)}.")
    if rows.empty:
        raise ValueError(f"The rows of {source} are empty.")
    for column in rows[columns].select_dtypes("number"):
        if not np.isfinite(rows[column]).all():
            raise ValueError(f"The rows of {source} must be finite, but {column} is not.")
