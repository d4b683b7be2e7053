"""Rollouts in PushT and Cube (paper, Figure 13), drawn as in Figure 12."""

from __future__ import annotations

from figures.fig12_rollouts import rollouts

FIGURE = rollouts("fig13_rollouts", ("pusht", "cube"))

if __name__ == "__main__":
    FIGURE.render()
