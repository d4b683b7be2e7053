"""The learned target's condition number over training, against its bound (paper, Figure 9)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from figures import published, style, visual_panels, visual_rows
from figures.catalog import Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

TASK = "tworoom"
#: A target is at its bound from this share of it on: the clipped logits end there up to rounding.
AT_BOUND = 0.999
BOUND, RUN = "bound", "run"


def data(rows: pd.DataFrame) -> pd.DataFrame:
    """Condition number by step of every TwoRoom run with κ > 1, and the bounds of the published sweep.

    ``reached`` marks the first logged step of a run at its bound.

    Parameters
    ----------
    rows
        Log rows of training: ``task, kappa, seed, step, target_condition``.
    """
    sweep = published.read("table6_kappa")
    bounds = sweep[sweep["task"] == TASK][["kappa", "source"]].drop_duplicates()
    parts = [bounds.assign(kind=BOUND, origin="published")]
    rows = rows[(rows["task"] == TASK) & (rows["kappa"] > 1)].sort_values(["kappa", "seed", "step"])
    for _, run in rows.groupby(["kappa", "seed"]):
        at_bound = run["target_condition"] >= AT_BOUND * run["kappa"]
        part = run[["kappa", "seed", "step", "target_condition", "preset", "origin"]]
        parts.append(part.assign(kind=RUN, reached=at_bound & (at_bound.cumsum() == 1)))
    columns = ["kind", "kappa", "seed", "step", "target_condition", "reached", "preset", "origin", "source"]
    return pd.concat(parts, ignore_index=True).reindex(columns=columns)


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """One panel at column width."""
    with style.sheet():
        figure = style.new_figure(style.COLUMN_WIDTH, 2.7)
        axes = figure.add_subplot()
        runs = frame[frame["kind"] == RUN]
        bounds = sorted(frame["kappa"].unique())
        end = float(runs["step"].max()) if len(runs) else 1.0
        for kappa in bounds:
            color = visual_panels.kappa_color(kappa)
            axes.axhline(kappa, color=color, lw=0.9, ls=(0, (1, 2)), zorder=1)
            part = runs[runs["kappa"] == kappa]
            for _, run in part.groupby("seed"):
                axes.plot(run["step"], run["target_condition"], color=color, lw=1.2)
                first = run[run["reached"].astype(bool)]
                axes.plot(
                    first["step"], first["target_condition"], "o", ms=4.5, mec="white", mew=0.6, color=color, zorder=3
                )
            text = f"$κ = {kappa:g}$" + ("" if len(part) else f", {visual_rows.NOT_RUN}")
            axes.annotate(text, (end, kappa), (-2, 2), textcoords="offset points", ha="right", fontsize=7, color=color)
        axes.set_yscale("log")
        axes.set_ylim(0.95, 1.35 * bounds[-1])
        ticks = [1, 2, 4, 8, 16]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_yticks([], minor=True)
        axes.set_xlim(0, end)
        axes.set_xlabel("training step")
        axes.set_ylabel("condition number of the target\n(ratio of variances)")
        axes.set_title(f"TwoRoom,\n{visual_rows.describe(runs)}")
        if runs.empty:
            axes.set_xticks([])
        style.stamp(figure, frame["origin"].dropna())
        return figure


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the runs under ``results``."""
    return data(visual_rows.one_setting(visual_rows.VisualRuns("train", TASK).rows(results)))


FIGURE = Figure(
    name="fig09_condition_number",
    caption="Condition number of the learned target during TwoRoom runs, one curve per run. Dotted: the ratio each "
    "bound permits; a filled mark shows where a run first reaches it. Bounds of the published sweep without a "
    "run here say so.",
    needs=(visual_rows.TRAIN,),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
