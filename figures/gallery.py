"""The documentation's page of figures and tables, and its pictures, drawn from published rows alone.

``python -m figures docs`` writes ``docs/figures.md`` and one PNG for each figure into ``docs/images/``. Every picture
carries a summary of the table it was drawn from, by which a test finds pictures that are older than their rows.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from figures import catalog, style, tables
from theory.runs import ensure_writable, write_atomic

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as MatplotlibFigure

PAGE, IMAGES = "figures.md", "images"
#: Dots per inch, and colours: these pictures are line drawings, which a palette makes four times smaller.
DPI, COLORS = 220, 128
#: A palette is not used where more than this share of pixels would change by more than so many of 255 steps.
SHARE_CHANGED, MOST_CHANGE = 2e-4, 32
#: Name of the PNG's text that holds the summary.
SUMMARY = "anisowm-data"
_HEAD = """# Figures and tables

Every figure and table of the project: what it shows, what it is drawn from, and the command that draws it. The
pictures here are drawn from the rows in `figures/measured/`, which are committed; a command without rows says which
other command makes them, and `python -m figures list` names them all. Each figure is written as PDF, PNG and the CSV
behind it, each table as Markdown, LaTeX and CSV. This page is written by `python -m figures docs`.
"""


def write_docs(docs: Path) -> list[Path]:
    """Write the page and all pictures into the folder ``docs``; return their paths.

    Raises
    ------
    ValueError
        If rows are missing or damaged, or the folder cannot be written.
    """
    # Drawing takes a minute.
    ensure_writable(docs / IMAGES)
    frames = {name: catalog.get(name).read(catalog.MEASURED) for name in catalog.names()}
    pictures = {}
    for name, frame in frames.items():
        item = catalog.get(name)
        if isinstance(item, catalog.Figure):
            pictures[f"{name}.png"] = picture(item.draw(frame), frame)
    write_atomic(docs / PAGE, page(frames))
    return [docs / PAGE, *style.write(pictures, docs / IMAGES)]


def page(frames: dict[str, pd.DataFrame] | None = None) -> str:
    """The page in Markdown. ``frames`` saves reading the tables' rows again."""
    ours = [name for name in catalog.names() if name.startswith("fig_")]
    paper = [name for name in catalog.names() if name not in ours]
    parts = [_HEAD]
    for title, names in (("Of this project", ours), ("Of the paper, with what was measured here", paper)):
        parts.append(f"## {title}\n")
        parts += [_section(name, (frames or {}).get(name)) for name in names]
    return "\n".join(parts)


def _section(name: str, frame: pd.DataFrame | None) -> str:
    item = catalog.get(name)
    lines = [f"### `{name}` {{#{name}}}", ""]
    if isinstance(item, catalog.Table):
        frame = item.read(catalog.MEASURED) if frame is None else frame
        lines += [tables.markdown(item.layout(frame)), item.caption]
    else:
        alt = item.caption.split(". ")[0].strip(".").replace("[", "(").replace("]", ")")
        lines += [f"![{alt}]({IMAGES}/{name}.png)", "", item.caption]
    rows = "; ".join(dict.fromkeys(map(_state, item.needs)))
    lines += [
        "",
        f"Draw it: `python -m figures {name}`. Rows: {rows or 'none needed'}.",
        "",
    ]
    return "\n".join(lines)


def _state(need: Any) -> str:
    """A run's command, and whether its rows are published."""
    if isinstance(need, catalog.Source):
        published = need.folder(catalog.MEASURED) is not None
    else:
        published = bool(need.folders(catalog.MEASURED))
    return f"`{need.command}` ({'published' if published else 'none published'})"


def picture(figure: MatplotlibFigure, frame: pd.DataFrame) -> bytes:
    """A figure as a PNG with a palette, and in it the summary of its table; equal input gives equal bytes."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    plain, small = io.BytesIO(), io.BytesIO()
    with style.sheet():
        figure.savefig(plain, format="png", dpi=DPI, metadata={"Software": None})
    texts = PngInfo()
    texts.add_text(SUMMARY, json.dumps(summary(frame), ensure_ascii=True))
    image = Image.open(plain).convert("RGB")
    few = image.quantize(COLORS, dither=Image.Dither.NONE)
    # Maps and photographs have more colours than a palette holds: thin lines would take the map's.
    before, after = (np.asarray(each.convert("RGB"), dtype=int) for each in (image, few))
    changed = (np.abs(before - after) > MOST_CHANGE).any(axis=2)
    (image if changed.mean() > SHARE_CHANGED else few).save(small, "PNG", optimize=True, pnginfo=texts)
    return small.getvalue()


def summary(frame: pd.DataFrame) -> dict[str, Any]:
    """Number of rows, and for each column of numbers how many there are, their sum and their sum of squares."""
    numbers = frame.select_dtypes("number").astype(float)
    sums = {name: [int(column.count()), column.sum(), (column**2).sum()] for name, column in numbers.items()}
    return {"rows": len(frame), "columns": {str(name): values for name, values in sums.items()}}


def stored_summary(path: Path) -> dict[str, Any]:
    """The summary in a picture of the documentation.

    Raises
    ------
    ValueError
        If the picture holds none.
    """
    from PIL import Image

    with Image.open(path) as image:
        text = getattr(image, "text", {}).get(SUMMARY)
    if text is None:
        raise ValueError(f"{path} says nothing of its rows; draw it with `python -m figures docs`.")
    return dict(json.loads(text))
