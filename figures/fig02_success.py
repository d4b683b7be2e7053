"""Planning success by task (paper, Figure 2): published bars, ours with intervals, the random floor and the ceiling."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from figures import published, style, visual_panels, visual_rows
from figures.catalog import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

ANISOWM, LEWM, CEILING, RANDOM, SOLVED = "AnisoWM", "LeWM", "true cost", "Random", "solved at start"
#: From the top; what stands here is drawn for every task.
ROWS = (ANISOWM, LEWM, CEILING, RANDOM, SOLVED, "PLDM", "DINO-WM", "GCBC", "GCIQL", "GCIVL")
LABELS = {
    ANISOWM: "AnisoWM, $κ = 2$",
    LEWM: "LeWM, $κ = 1$",
    CEILING: "planner on the true cost",
    RANDOM: "random actions",
    SOLVED: "solved at the start",
}
#: Rows that could be measured here.
OURS = ROWS[:5]


def data(episodes: pd.DataFrame, ceiling: pd.DataFrame) -> pd.DataFrame:
    """Success in percent by task and method, published and measured, with Wilson's intervals.

    Parameters
    ----------
    episodes
        Rows of :func:`figures.visual_rows.planned`. The floor and the share solved at the start are taken from them.
    ceiling
        Rows of the planner on the true cost.
    """
    parts = [published.read("fig02_success").assign(have="published", origin="published")]
    drawn = episodes[episodes["kappa"].isin((1.0, 2.0))]
    have = visual_rows.describe(episodes if drawn.empty else drawn)
    rates = visual_rows.success_rates(episodes)
    for kappa, method in ((2.0, ANISOWM), (1.0, LEWM)):
        parts.append(rates[rates["kappa"] == kappa].assign(method=method))
    # Floor and start are properties of the pairs: one run of each task holds them.
    first = episodes.sort_values(["kappa", "training_seed"]).drop_duplicates(["task", "pair"])
    for column, method in (("random_success", RANDOM), ("already_solved", SOLVED)):
        parts.append(
            visual_rows.success_rates(first.assign(kappa=0.0), column).assign(method=method, kappa=float("nan"))
        )
    if not ceiling.empty:
        top = visual_rows.success_rates(ceiling.assign(kappa=0.0, training_seed=0))
        own = visual_rows.describe(ceiling.drop(columns=["training_seed"], errors="ignore"))
        parts.append(top.assign(method=CEILING, kappa=float("nan"), seeds=float("nan"), have=own))
    measured = [part.assign(have=part.get("have", have)) for part in parts[1:] if not part.empty]
    measured = [part.assign(source=part["have"]) for part in measured]
    columns = [
        "task",
        "method",
        "kappa",
        "success_percent",
        "low",
        "high",
        "pairs",
        "seeds",
        "have",
        "origin",
        "source",
    ]
    return pd.concat([parts[0], *measured], ignore_index=True).reindex(columns=columns)


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """One panel per task: open bars published, filled ones measured here."""
    with style.sheet():
        figure = style.new_figure(style.PAGE_WIDTH, 3.6)
        panels = figure.subplots(1, len(visual_rows.TASKS), sharey=True)
        for axes, task in zip(panels, visual_rows.TASKS, strict=True):
            _draw_task(axes, frame[frame["task"] == task])
            axes.set_title(visual_rows.TITLES[task])
            axes.set_xlabel("success (%)")
        panels[0].set_yticks(range(len(ROWS)), [LABELS.get(name, name) for name in ROWS])
        panels[0].set_ylim(len(ROWS) - 0.4, -0.6)
        _legend(figure, panels[0], frame)
        style.stamp(figure, frame["origin"].dropna())
        return figure


def _draw_task(axes: Axes, frame: pd.DataFrame) -> None:
    axes.set_xlim(0, 118)
    axes.set_xticks([0, 25, 50, 75, 100])
    ours = frame[frame["origin"] != "published"]
    for place, name in enumerate(ROWS):
        color = {ANISOWM: visual_panels.ANISOWM, LEWM: visual_panels.LEWM}.get(name, style.FAINT)
        for row in frame[(frame["method"] == name) & (frame["origin"] == "published")].to_dict("records"):
            shift = -0.2 if name in OURS else 0.0
            axes.barh(place + shift, row["success_percent"], 0.34, fc="white", ec=color, lw=0.9)
            axes.text(
                row["success_percent"] + 2, place + shift, f"{row['success_percent']:g}", va="center", fontsize=6.5
            )
        for row in frame[frame["method"] == "Random, measured by others"].to_dict("records") if name == RANDOM else ():
            axes.plot(row["success_percent"], place - 0.2, "|", ms=7, mew=1.2, color=style.THEORY)
        if name not in OURS:
            continue
        here = ours[ours["method"] == name].to_dict("records")
        shift = 0.2 if name in (ANISOWM, LEWM, RANDOM) else 0.0
        if not here:
            axes.text(1.5, place + 1.25 * shift, visual_rows.NOT_RUN, va="center", fontsize=6.5, color=style.FAINT)
        for row in here:
            rate = row["success_percent"]
            axes.barh(place + shift, rate, 0.34, color=color)
            spread = [[max(0.0, rate - row["low"])], [max(0.0, row["high"] - rate)]]
            axes.errorbar(rate, place + shift, xerr=spread, fmt="none", ecolor="black", elinewidth=0.9, capsize=1.5)
            if name == CEILING:
                # Its own number: it is slow, and mostly has fewer pairs than the models.
                axes.text(row["high"] + 2, place, f"n = {row['pairs']:.0f}", va="center", fontsize=6.5)


def _legend(figure: MatplotlibFigure, axes: Axes, frame: pd.DataFrame) -> None:
    ours = frame.loc[frame["origin"] != "published"]
    have = ours["have"].iloc[0] if len(ours) else visual_rows.describe(ours)
    open_bar: dict[str, Any] = {"fc": "white", "lw": 0.9}
    handles = [
        axes.barh(0, 0, ec=style.THEORY, label="published (n = 50, mean of 3 seeds)", **open_bar),
        axes.barh(0, 0, ec=style.FAINT, label="published for LeWM, quoted second-hand", **open_bar),
        axes.plot([], [], "|", ms=7, mew=1.2, color=style.THEORY, label="random, as others measured it")[0],
        axes.barh(0, 0, color=style.THEORY, label=f"{have}, 95 % Wilson interval" if len(ours) else have),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, columnspacing=1.5)


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the runs under ``results``."""
    episodes, ceiling = visual_rows.planned(results), visual_rows.CEILING.rows(results)
    ceiling = ceiling[ceiling["solver"] == "cem"]
    for name in ("preset", "protocol"):
        if len(episodes):
            ceiling = ceiling[ceiling[name] == episodes[name].iloc[0]]
    return data(episodes, ceiling)


FIGURE = Figure(
    name="fig02_success",
    caption="Planning success by task. Open bars are published: AnisoWM and LeWM by the paper, the others quoted from "
    "LeWorldModel's. Filled bars were measured here on held-out pairs; random actions and the planner on the "
    "true cost bound what a model can add.",
    needs=(visual_rows.PLAN, visual_rows.CEILING),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
