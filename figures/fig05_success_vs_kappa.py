"""Planning success against the anisotropy bound (paper, Figure 5), ours beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from figures import style, table6_kappa, visual_panels, visual_rows
from figures.catalog import Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

data = table6_kappa.data


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """One panel per task: open marks published, filled ones measured here."""
    with style.sheet():
        figure = style.new_figure(style.PAGE_WIDTH, 2.35)
        panels = figure.subplots(1, len(visual_rows.TASKS), sharey=True)
        known = frame["origin"] == "published"
        for axes, task in zip(panels, visual_rows.TASKS, strict=True):
            printed, ours = frame[(frame["task"] == task) & known], frame[(frame["task"] == task) & ~known]
            here, others = ours[ours["swept"]], ours[~ours["swept"]]
            axes.plot(others["kappa"] * 1.2, others["success_percent"], **_others())
            sweep, lewm = printed[printed["kappa"] > 1], printed[printed["kappa"] == 1]
            axes.plot(sweep["kappa"], sweep["success_percent"], color=style.FAINT, lw=0.9, zorder=1)
            axes.plot(sweep["kappa"], sweep["success_percent"], "o", ms=4.5, **visual_panels.PUBLISHED)
            axes.plot(lewm["kappa"], lewm["success_percent"], "s", ms=4.5, **visual_panels.PUBLISHED)
            if here.empty:
                axes.text(0.04, 0.05, "here: not run", transform=axes.transAxes, fontsize=7, color=style.FAINT)
            else:
                rate = here["success_percent"]
                spread = [(rate - here["low"]).clip(lower=0), (here["high"] - rate).clip(lower=0)]
                axes.errorbar(here["kappa"] * 1.05, rate, spread, **_ours())
            visual_panels.kappa_axis(axes, frame["kappa"])
            axes.set_title(visual_rows.TITLES[task])
            axes.set_xlabel("bound $κ$ (ratio)")
        lowest = min(frame["success_percent"].min(), frame["low"].min())
        panels[0].set_ylim(max(0.0, lowest - 8), 101.5)
        panels[0].set_ylabel("planning success (%)")
        ours = frame[~known & frame["swept"]]
        have = ours["have"].iloc[0] if len(ours) else visual_rows.describe(ours)
        handles = [
            panels[0].plot([], [], "o", ms=4.5, label=table6_kappa.PUBLISHED, **visual_panels.PUBLISHED)[0],
            panels[0].plot([], [], "s", ms=4.5, label="published LeWM (3 seeds)", **visual_panels.PUBLISHED)[0],
            panels[0].errorbar([], [], [], label=f"{have}, 95 % interval" if len(ours) else have, **_ours()),
        ]
        if not frame["swept"].all():
            handles += panels[0].plot([], [], label="other training seeds here", **_others())
        figure.legend(handles=handles, loc="outside upper center", ncols=2, columnspacing=1.2, handletextpad=0.5)
        style.stamp(figure, frame["origin"].dropna())
        return figure


def _ours() -> dict[str, Any]:
    return {"fmt": "-o", "ms": 4.2, "mec": "white", "mew": 0.6, "lw": 1.0, "color": visual_panels.ANISOWM}


def _others() -> dict[str, Any]:
    return {"marker": "_", "ls": "none", "ms": 5.0, "mew": 1.2, "color": visual_panels.ANISOWM, "alpha": 0.75}


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the runs under ``results``."""
    return data(visual_rows.planned(results))


FIGURE = Figure(
    name="fig05_success_vs_kappa",
    caption="Planning success against the anisotropy bound κ. Published points with κ > 1 are one training run each on"
    " the same 50 pairs; the square is the published mean of LeWM. Marks of what was measured here stand a "
    "little to the right: points of one training seed with 95 % Wilson intervals, and dashes beside them, the other "
    "seeds.",
    needs=(visual_rows.PLAN,),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
