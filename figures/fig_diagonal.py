"""Is a diagonal target enough? Diagonal against full targets in trained networks (docs/theory.md, T2 to T4 and T9).

In the linear model a diagonal Λ reaches every L, because the encoder may rotate. The toy's noise is turned, so that
the axes that prediction wants are nobody's coordinates: a full target could turn itself, a diagonal one waits for the
encoder.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from figures import style
from figures.catalog import DIAGONAL, Figure, require_columns
from figures.summary import seeds_and_means
from theory.claims import TOY_CONDITION, TOY_STATE_COV
from theory.metric import anisotropic_metric
from theory.regret import mean_line_regret
from theory.sketch import joint_optimum
from theory.target import optimal_target, relative_noise
from toy2d.system import ToySystem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

WEIGHT, BATCH_SIZE = 0.09, 512
#: Series by the rows' target: label, colour, marker, shift beside the tick.
TARGETS = (
    ("diagonal", "diagonal target", style.TASK, "o", -0.14),
    ("full", "full target", style.LATENT, "s", 0.14),
)
LIMIT, FINITE = "closed form", "theory at finite weight"


def data(rows: pd.DataFrame) -> pd.DataFrame:
    """Panel a: regret of seeds and means over cases, and both theories. Panel b: distance from the second's metric.

    ``x`` is the number of the case, in the order of its ``noise_ratio`` and ``kappa``. The distance is
    ‖M/tr M − M*/tr M*‖_F / ‖M*/tr M*‖_F, with M the learned mean Jacobian metric and M* the joint optimum's.
    """
    metric = ["metric_11", "metric_12", "metric_22"]
    columns = ["target", "sigma", "kappa", "noise_ratio", "noise_angle", "seed", "regret_pred", "origin", *metric]
    require_columns(rows, columns, DIAGONAL.path)
    names = ["noise_ratio", "noise_angle", "sigma", "kappa"]
    cases = rows[names].drop_duplicates().sort_values(names).reset_index(drop=True)
    rows = rows.merge(cases.assign(case=np.arange(len(cases), dtype=float)), on=names)
    goals = [_theory(*case) for case in cases.itertuples(index=False)]
    learned = rows[["metric_11", "metric_12", "metric_12", "metric_22"]].to_numpy(dtype=float).reshape(-1, 2, 2)
    wanted = np.stack([goals[int(case)][1] for case in rows["case"]])
    learned, wanted = (m / np.trace(m, axis1=1, axis2=2)[:, None, None] for m in (learned, wanted))
    rows["distance"] = np.linalg.norm(learned - wanted, axis=(1, 2)) / np.linalg.norm(wanted, axis=(1, 2))
    parts = []
    for panel, column in (("a", "regret_pred"), ("b", "distance")):
        for target, *_ in TARGETS:
            parts.append(seeds_and_means(rows[rows["target"] == target], "case", column, panel, target))
    for series, index in ((LIMIT, 0), (FINITE, 1)):
        regrets = [mean_line_regret(goal[index]) for goal in goals]
        table = pd.DataFrame(
            {"panel": "a", "series": series, "kind": "line", "x": cases.index.astype(float), "y": regrets}
        )
        parts.append(table)
    frame = pd.concat(parts, ignore_index=True)
    return frame.merge(cases.assign(x=cases.index.astype(float)), on="x")


@functools.cache
def _theory(ratio: float, angle: float, sigma: float, kappa: float) -> tuple[np.ndarray, np.ndarray]:
    """The metric of T4's limit and of the joint optimum at finite weight."""
    noise_cov = ToySystem(sigma, noise_ratio=ratio, noise_angle=angle).noise_cov
    target = optimal_target(relative_noise(TOY_STATE_COV, noise_cov), kappa)
    finite = joint_optimum(TOY_STATE_COV, noise_cov, WEIGHT, BATCH_SIZE, kappa)
    return np.asarray(anisotropic_metric(TOY_STATE_COV, target.matrix)), np.asarray(finite.metric)


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """Regret by case, and how far the learned metric is from the theory's."""
    with style.sheet():
        figure = style.new_figure(style.PAGE_WIDTH, 2.8)
        left, right = figure.subplots(1, 2)
        cases = frame.drop_duplicates("x").sort_values("x")
        for axes, panel in ((left, "a"), (right, "b")):
            part = frame[frame["panel"] == panel]
            _draw_targets(axes, part)
            axes.set_xlabel("bound $κ$ and the toy's process noise")
            axes.set_xticks(cases["x"], [_label(case) for case in cases.to_dict("records")])
            axes.set_xlim(cases["x"].min() - 0.5, cases["x"].max() + 0.5)
            style.panel_letter(axes, panel)
        lines = frame[frame["kind"] == "line"]
        for series, color, dashes in ((LIMIT, style.THEORY, "solid"), (FINITE, style.SECOND, (0, (3, 1.5)))):
            part = lines[lines["series"] == series]
            left.hlines(part["y"], part["x"] - 0.36, part["x"] + 0.36, color=color, ls=dashes, lw=1.2, label=series)
        top = float(frame.loc[frame["panel"] == "a", "y"].max())
        left.set_ylim(-0.04 * top, 1.55 * top)
        left.set_ylabel("mean planning regret\n(relative to the task optimum)")
        left.legend(loc="upper left", borderaxespad=0.1, labelspacing=0.25)
        right.set_ylim(0, 1.15 * float(frame.loc[frame["panel"] == "b", "y"].max()))
        right.set_ylabel("distance of the learned metric\nfrom the theory's (relative)")
        style.stamp(figure, frame["origin"].dropna())
        return figure


def _label(case: Mapping[Hashable, Any]) -> str:
    kappa = "c" if case["kappa"] == TOY_CONDITION else f"{case['kappa']:g}"
    turned = f"noise {case['noise_ratio']:g} : 1\nturned {case['noise_angle']:g}°"
    return f"$κ = {kappa}$\n" + ("isotropic\nnoise" if case["noise_ratio"] == 1 else turned)


def _draw_targets(axes: Axes, part: pd.DataFrame) -> None:
    for target, label, color, marker, shift in TARGETS:
        points = part[part["series"] == target]
        seeds, means = points[points["kind"] == "seed"], points[points["kind"] == "mean"]
        axes.plot(seeds["x"] + shift - 0.07, seeds["y"], marker, ms=2.6, mew=0, color=color, alpha=0.4, zorder=3)
        axes.errorbar(
            means["x"] + shift,
            means["y"],
            [means["y"] - means["low"], means["high"] - means["y"]],
            fmt=marker,
            ms=4.2,
            mec="white",
            mew=0.6,
            elinewidth=1.0,
            color=color,
            zorder=4,
            label=f"{label}, {int(means['count'].max())} seeds",
        )


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the rows under ``results``."""
    return data(DIAGONAL.rows(results))


FIGURE = Figure(
    name="fig_diagonal",
    caption="Diagonal against full targets in the trained toy, on the same seeds and data. (a) Planning regret; "
    "bars are the closed form and the optimum at finite weight, which are the same for both targets. (b) Relative "
    "distance of the learned metric, scaled to trace 1, from that optimum's.",
    needs=(DIAGONAL,),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
