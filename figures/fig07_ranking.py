"""Ranking accuracy pair by pair: κ = 2 against κ = 1 on the same sequences (paper, Figure 7)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from figures import published, style, visual_panels, visual_rows
from figures.catalog import Figure
from figures.table1_ordering import COSTS, matched

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

PAIR, MEAN = "pair", "mean"
#: The seed of Table 1 is drawn; where there is none, the smallest.
SEED = 3072


def data(pairs: pd.DataFrame) -> pd.DataFrame:
    """Agreement of both models by task, cost and pair, of one seed; their means; the published means.

    Parameters
    ----------
    pairs
        Rows of ``diagnose``: ``task, kappa, training_seed, pair, agreement_enc, agreement_pred``.
    """
    parts = [published.read("table1_ordering").drop(columns="gap").assign(kind=MEAN, origin="published")]
    both = matched(pairs)
    for task, group in both.groupby("task"):
        seeds = set(group["training_seed"])
        group = group[group["training_seed"] == (SEED if SEED in seeds else min(seeds))]
        for cost in COSTS:
            values = {model: group[f"agreement_{cost}_{model}"] for model in ("lewm", "anisowm")}
            names = ["training_seed", "pair", "preset", "origin"]
            each = group[names].assign(task=task, cost=cost, kind=PAIR, **values)
            means = {model: [column.mean()] for model, column in values.items()}
            first = group.iloc[:1][["training_seed", "preset", "origin"]].reset_index(drop=True)
            parts += [each, first.assign(task=task, cost=cost, kind=MEAN, **means)]
    columns = ["task", "cost", "kind", "pair", "lewm", "anisowm", "training_seed", "preset", "origin", "source"]
    return pd.concat(parts, ignore_index=True).reindex(columns=columns)


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """Costs from top to bottom, tasks from left to right; the panels of a task share their limits."""
    with style.sheet():
        figure = style.new_figure(style.PAGE_WIDTH, 3.8)
        panels = figure.subplots(len(COSTS), len(visual_rows.TASKS))
        for column, task in enumerate(visual_rows.TASKS):
            part = frame[frame["task"] == task]
            low = min(0.45, float(part[["lewm", "anisowm"]].min().min()) - 0.03)
            high = max(0.75, float(part[["lewm", "anisowm"]].max().max()) + 0.03)
            for line, (cost, title) in enumerate(COSTS.items()):
                axes = panels[line, column]
                _draw_panel(axes, part[part["cost"] == cost], low, high)
                if line == 0:
                    axes.set_title(visual_rows.TITLES[task])
                    axes.tick_params(labelbottom=False)
                else:
                    axes.set_xlabel("agreement, $κ = 1$")
                if column == 0:
                    axes.set_ylabel(f"${title.replace('_', '_{')}}}$: agreement,\n$κ = 2$")
        ours = frame[frame["origin"] != "published"]
        points = ours[ours["kind"] == PAIR]
        counted = points[points["cost"] == "enc"].assign(run=points["task"], kappa=2.0)
        have = visual_rows.describe(counted, noun="pairs")
        axes = panels[0, 0]
        handles = [
            axes.plot([], [], "X", ms=6, label="published mean (one seed)", **visual_panels.PUBLISHED)[0],
            axes.plot([], [], "o", ms=3.4, mew=0, color=visual_panels.ANISOWM, alpha=0.6, label=f"one pair, {have}")[0],
            axes.plot([], [], "P", ms=7, mec="white", mew=0.8, color="black", ls="none", label="mean of these")[0],
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=3, columnspacing=1.2, handletextpad=0.4)
        style.stamp(figure, frame["origin"].dropna())
        return figure


def _draw_panel(axes: Axes, frame: pd.DataFrame, low: float, high: float) -> None:
    axes.fill_between([low, high], [low, high], [high, high], color=style.FAINT, alpha=0.12, lw=0)
    axes.plot([low, high], [low, high], color=style.FAINT, lw=0.7)
    printed, ours = frame[frame["origin"] == "published"], frame[frame["origin"] != "published"]
    points, means = ours[ours["kind"] == PAIR], ours[ours["kind"] == MEAN]
    axes.plot(points["lewm"], points["anisowm"], "o", ms=3.4, mew=0, color=visual_panels.ANISOWM, alpha=0.6)
    axes.plot(means["lewm"], means["anisowm"], "P", ms=7, mec="white", mew=0.8, color="black", zorder=4)
    axes.plot(printed["lewm"], printed["anisowm"], "X", ms=6, zorder=5, **visual_panels.PUBLISHED)
    if ours.empty:
        axes.text(0.95, 0.05, "here: not run", transform=axes.transAxes, ha="right", fontsize=7, color=style.FAINT)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    axes.locator_params(nbins=4)


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the runs under ``results``."""
    return data(visual_rows.one_setting(visual_rows.DIAGNOSE.rows(results)))


FIGURE = Figure(
    name="fig07_ranking",
    caption="Share of sequence pairs ordered as their outcomes are, pair by pair: κ = 1 (LeWM) across, κ = 2 (AnisoWM)"
    " up, on the same sequences. Above the diagonal κ = 2 orders that pair better. Top: encoded outcomes. "
    "Bottom: the planner's cost. Open crosses: the published means.",
    needs=(visual_rows.DIAGNOSE,),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
