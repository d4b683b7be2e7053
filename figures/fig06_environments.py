"""The environments (paper, Figure 6): one frame of each, as its simulator draws it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from figures import film_frames, style, visual_panels, visual_rows
from figures.catalog import Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

#: From left to right, as in the paper.
ORDER = ("tworoom", "pusht", "reacher", "cube")


def data(rows: pd.DataFrame) -> pd.DataFrame:
    """One line per task: whose film the frame is from, or "not run".

    Parameters
    ----------
    rows
        Rows of the films.
    """
    lines = []
    for task in ORDER:
        group = rows[rows["task"] == task]
        line: dict[str, object] = {"task": task, "title": visual_rows.TITLES[task], "have": visual_rows.NOT_RUN}
        if not group.empty:
            first = group.sort_values(["kappa", "pair"]).iloc[0]
            line |= {"have": "frame of a film", "pair": first["pair"], "origin": first["origin"]}
        lines.append(line)
    return pd.DataFrame(lines).reindex(columns=["task", "title", "have", "pair", "origin"])


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """Four frames in a row."""
    with style.sheet():
        figure = style.new_figure(style.PAGE_WIDTH, 2.0)
        panels = figure.subplots(1, len(ORDER))
        for axes, row in zip(panels, frame.to_dict("records"), strict=True):
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(True)
            axes.set_title(row["title"])
            scene = frame.attrs.get("scenes", {}).get(row["task"])
            if scene is None:
                axes.set_aspect("equal")
                visual_panels.say_not_run(axes, "not filmed")
            else:
                axes.imshow(scene, interpolation="nearest")
        style.stamp(figure, frame["origin"].dropna())
        return figure


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the films under ``results``, with the frames in ``attrs``."""
    frame = data(visual_rows.FILM.rows(results))
    frame.attrs["scenes"] = film_frames.scenes(results)
    return frame


FIGURE = Figure(
    name="fig06_environments",
    caption="The environments at the start of the first planning pair that is not solved there, drawn by their own "
    "simulators. All have continuous actions and are seen by the models as images alone.",
    needs=(visual_rows.FILM,),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
