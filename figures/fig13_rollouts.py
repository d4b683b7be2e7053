"""Rollouts in PushT and Cube (paper, Figure 13), drawn as in Figure 12."""

from __future__ import annotations

from figures import visual_rows
from figures.catalog import Figure
from figures.fig12_rollouts import drawer, filmer, reader

TASKS = ("pusht", "cube")
NAME = "fig13_rollouts"

FIGURE = Figure(
    name=NAME,
    caption="Rollouts in PushT and Cube: κ = 2 and κ = 1 from the same start, with the same planner and seed, on the "
    "first two planning pairs that are not solved at the start. A red outline says that the goal was attained "
    "at that step or before. The GIF shows every stored step: κ = 2, κ = 1, goal from top to bottom.",
    needs=(visual_rows.FILM,),
    read=reader(TASKS),
    draw=drawer(TASKS),
    film=filmer(TASKS, NAME),
)

if __name__ == "__main__":
    FIGURE.render()
