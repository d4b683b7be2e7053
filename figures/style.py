"""One look for every figure: the style sheet, colours by role, and a way of saving that repeats byte for byte."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from theory.runs import ensure_writable, write_atomic

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHEET = Path(__file__).with_name("anisowm.mplstyle")

#: Widths in inches of one column and of a page.
COLUMN_WIDTH, PAGE_WIDTH = 3.5, 7.0

# Okabe and Ito's colours, told apart with every common form of colour vision.
TASK = "#0072B2"
LATENT = "#D55E00"
SECOND = "#009E73"
THEORY = "#404040"
FAINT = "#8C8C8C"

#: File types a figure is written as, beside its table.
SUFFIXES = (".pdf", ".png", ".csv")


@contextlib.contextmanager
def sheet() -> Iterator[None]:
    """Apply the style sheet inside a ``with`` block, whatever the user's own settings are."""
    import matplotlib.style

    with matplotlib.style.context(["default", SHEET]):
        yield


def new_figure(width: float, height: float) -> Figure:
    """Empty figure of this size in inches, without a window or a global registry."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, frame: pd.DataFrame, name: str, folder: Path) -> list[Path]:
    """Write NAME.pdf, NAME.png and NAME.csv (the table behind the picture); equal input gives equal bytes.

    Raises
    ------
    ValueError
        If the folder cannot be written.
    """
    ensure_writable(folder)
    contents: dict[str, bytes] = {}
    with sheet():
        # Dates, and the versions of what wrote the file, would make equal pictures differ.
        fixed: dict[str, dict[str, Any]] = {
            ".pdf": {"Creator": None, "Producer": None, "CreationDate": None},
            ".png": {"Software": None},
        }
        for suffix, metadata in fixed.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix[1:], metadata=metadata)
            contents[suffix] = buffer.getvalue()
    contents[".csv"] = csv_bytes(frame)
    return write({f"{name}{suffix}": contents[suffix] for suffix in SUFFIXES}, folder)


def csv_bytes(frame: pd.DataFrame) -> bytes:
    """A tidy table as CSV: nine digits, one kind of line end."""
    return frame.to_csv(index=False, float_format="%.9g", lineterminator="\n").encode()


def write(contents: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Write files by name into ``folder``, each under a temporary name first; return their paths.

    Raises
    ------
    ValueError
        If the folder cannot be written.
    """
    paths = []
    for name, content in contents.items():
        write_atomic(folder / name, content)
        paths.append(folder / name)
    return paths


def stamp(figure: Figure, origins: Iterable[str]) -> None:
    """Write "synthetic" across a figure that was drawn from rows made for tests."""
    if "synthetic" in set(origins):
        figure.text(
            0.5,
            0.5,
            "synthetic",
            fontsize=30,
            color="#CC79A7",
            alpha=0.35,
            rotation=24,
            ha="center",
            va="center",
            zorder=9,
        )


def panel_letter(axes: Axes, letter: str) -> None:
    """Write a bold panel letter above the left end of the axes."""
    axes.annotate(
        letter, (0, 1), (-4, 4), xycoords="axes fraction", textcoords="offset points", fontweight="bold", ha="right"
    )


def halo(width: float = 2.0) -> list[Any]:
    """Path effect: a white rim, which keeps text legible over lines."""
    from matplotlib import patheffects

    return [patheffects.withStroke(linewidth=width, foreground="white")]
