"""More latent-cost neighbourhoods (paper, Figure 8): the goals of each task after the one of Figure 3."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from figures import style, visual_rows
from figures.catalog import Figure
from figures.fig03_neighborhoods import CELL, draw_neighborhood, finish, read_goals

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

#: Goals, counted in the order of their pairs.
GOALS = slice(1, 4)


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """One column per task, one row per goal."""
    with style.sheet():
        goals = range(GOALS.start, GOALS.stop)
        figure = style.new_figure(style.PAGE_WIDTH, 2.05 * len(goals))
        panels = figure.subplots(len(goals), len(visual_rows.TASKS))
        for column, task in enumerate(visual_rows.TASKS):
            part = frame[frame["task"] == task]
            for line, goal in enumerate(goals):
                axes = panels[line, column]
                draw_neighborhood(axes, part, goal)
                cells = part[(part["kind"] == CELL) & (part["goal"] == goal)]
                name = f"{visual_rows.TITLES[task]}, pair {cells['pair'].iloc[0]:.0f}" if len(cells) else ""
                axes.set_title(f"{name or visual_rows.TITLES[task]}\n{axes.get_title(loc='left')}", fontsize=7.5)
                if line < len(goals) - 1:
                    axes.set_xlabel("")
        finish(figure, frame)
        return figure


def read(results: Path) -> pd.DataFrame:
    """Cells of the further goals under ``results``."""
    return read_goals(results, GOALS)


FIGURE = Figure(
    name="fig08_more_neighborhoods",
    caption="Further goals of each task, drawn as in Figure 3; they are the next pairs that are not solved at the "
    "start.",
    needs=(visual_rows.DIAGNOSE,),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
