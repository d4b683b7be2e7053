"""Who gets the large variance? Target variances against relative noise: T4's threshold, finite weight, TwoRoom.

(a) Closed forms in six dimensions (docs/theory.md, T4 and T9). (b) What trained world models did with their
coordinates, from the rows of ``python -m visual diagnose``; without rows the panel says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from figures import style, visual_rows
from figures.catalog import Figure, require_columns
from figures.summary import curve
from theory.sketch import joint_optimum
from theory.target import optimal_target

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

#: Relative noises of panel a, each twice the one before; bounds; the toy's λ and N.
NOISE = 0.02 * 2.0 ** np.arange(6)
KAPPAS = (2.0, 8.0)
WEIGHT, BATCH_SIZE = 0.09, 512
LIMIT, FINITE, THRESHOLD = "target, weight → ∞", "features, finite weight", "threshold"
LEARNED, PREDICTED = "learned target", "T4 on the measured residuals"
#: The task and bound of panel b.
TASK, KAPPA = "tworoom", 2.0
COORDINATES = visual_rows.VisualRuns("diagnose", TASK)


def data(coordinates: pd.DataFrame) -> pd.DataFrame:
    """Panel a: variances over relative noise, for each κ. Panel b: variances of each coordinate of each model.

    Parameters
    ----------
    coordinates
        Rows of ``coordinates.parquet`` of any number of runs, with their ``run``; only κ = 2 is drawn.
    """
    parts = []
    for kappa in KAPPAS:
        target = optimal_target(np.diag(NOISE), kappa)
        parts.append(curve(NOISE.tolist(), np.diag(target.matrix).tolist(), "a", LIMIT, "point").assign(kappa=kappa))
        joint = joint_optimum(np.eye(NOISE.size), np.diag(NOISE), WEIGHT, BATCH_SIZE, kappa, starts=0)
        features = np.diag(joint.metric)
        parts.append(curve(NOISE.tolist(), features.tolist(), "a", FINITE, "point").assign(kappa=kappa))
        # V*/n: directions below it are high.
        threshold = target.value / NOISE.size
        parts.append(curve([threshold], [1.0], "a", THRESHOLD, "mark").assign(kappa=kappa))
    chosen = coordinates[coordinates["kappa"] == KAPPA]
    if len(chosen):
        chosen = visual_rows.one_setting(chosen)
        require_columns(chosen, ["relative_residual", "target_variance", "predicted_variance"], COORDINATES.path)
        for series, column in ((LEARNED, "target_variance"), (PREDICTED, "predicted_variance")):
            part = curve(chosen["relative_residual"].tolist(), chosen[column].tolist(), "b", series, "point")
            extra = chosen[["kappa", "coordinate", "training_seed", "preset", "origin"]].reset_index(drop=True)
            parts.append(pd.concat([part, extra.rename(columns={"training_seed": "seed"})], axis=1))
    columns = ["panel", "series", "kind", "x", "y", "kappa", "coordinate", "seed", "preset", "origin"]
    return pd.concat(parts, ignore_index=True).reindex(columns=columns)


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """Two levels on two sides of a threshold; and the measured coordinates."""
    with style.sheet():
        figure = style.new_figure(style.PAGE_WIDTH, 2.7)
        left, right = figure.subplots(1, 2)
        for axes, letter in ((left, "a"), (right, "b")):
            axes.set_xscale("log")
            axes.set_ylabel("variance of the coordinate\n(mean of the target = 1)")
            style.panel_letter(axes, letter)
        _draw_closed_forms(left, frame[frame["panel"] == "a"])
        _draw_measured(right, frame[frame["panel"] == "b"])
        style.stamp(figure, frame["origin"].dropna())
        return figure


def _draw_closed_forms(axes: Axes, part: pd.DataFrame) -> None:
    for kappa, color in zip(KAPPAS, (style.TASK, style.LATENT), strict=True):
        group = part[part["kappa"] == kappa]
        limit, finite = (group[group["series"] == series] for series in (LIMIT, FINITE))
        (threshold,) = group.loc[group["series"] == THRESHOLD, "x"]
        high, low = float(limit["y"].max()), float(limit["y"].min())
        edges = NOISE[0] / 1.4, NOISE[-1] * 1.4
        axes.plot([edges[0], threshold, threshold, edges[1]], [high, high, low, low], color=color, lw=1.2)
        axes.plot(limit["x"], limit["y"], "o", color=color, ms=4.5, mec="white", mew=0.6, label=f"$κ = {kappa:g}$, T4")
        axes.plot(
            finite["x"], finite["y"], "D", color=color, mfc="white", ms=4, label=f"$κ = {kappa:g}$, finite weight"
        )
        axes.annotate(
            "$V^*\\!/n$",
            (threshold, high),
            (3, -1),
            textcoords="offset points",
            va="top",
            color=color,
        )
    axes.set_ylim(0, 1.22 * float(part["y"].max()))
    axes.set_xticks([0.02, 0.05, 0.1, 0.2, 0.5], ["0.02", "0.05", "0.1", "0.2", "0.5"])
    axes.set_xticks([], minor=True)
    axes.set_title("closed forms, six dimensions")
    axes.set_xlabel("relative noise $ν$ of the direction\n(noise variance / state variance)")
    axes.legend(loc="upper right", ncols=1, borderaxespad=0.1, labelspacing=0.25)


def _draw_measured(axes: Axes, part: pd.DataFrame) -> None:
    axes.set_title(f"TwoRoom, $κ = {KAPPA:g}$")
    axes.set_xlabel("relative residual of the coordinate\n(residual variance / feature variance)")
    if part.empty:
        axes.text(0.5, 0.5, f"measured here: {visual_rows.NOT_RUN}", transform=axes.transAxes, ha="center", va="center")
        axes.set_xlim(0.01, 1)
        axes.set_ylim(0, 2)
        return
    learned, predicted = (part[part["series"] == series] for series in (LEARNED, PREDICTED))
    seeds, preset = learned["seed"].nunique(), learned["preset"].iloc[0]
    label = f"learned, {preset} preset, {seeds} seed{'s' * (seeds != 1)}"
    axes.plot(learned["x"], learned["y"], "o", ms=3, mew=0, alpha=0.6, color=style.TASK, label=label)
    ordered = predicted.sort_values("x")
    axes.plot(ordered["x"], ordered["y"], "_", ms=4, mew=0.8, color=style.THEORY, label=PREDICTED)
    axes.set_ylim(0, 1.3 * float(part["y"].max()))
    axes.legend(loc="upper right", borderaxespad=0.1, labelspacing=0.25)


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the diagnoses under ``results``."""
    return data(COORDINATES.rows(results, "coordinates.parquet"))


FIGURE = Figure(
    name="fig_allocation",
    caption="Target variances against relative noise. (a) The target that prediction chooses has two levels, high "
    "below the threshold V*/n and low above it (T4); at the toy's finite weight and batch the target keeps its "
    "levels and the features shrink along noisy directions (T9). (b) The same in trained world models: the learned "
    "target of each latent coordinate against its own relative residual, and what T4 asks for given these "
    "residuals.",
    needs=(COORDINATES,),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
