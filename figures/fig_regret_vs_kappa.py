"""Regret against κ: the closed form, the optimum at finite weight, and trained seeds (docs/theory.md, T7 and T9)."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from figures import style
from figures.catalog import KAPPA_SWEEP, Figure, require_columns
from figures.summary import curve, seeds_and_means
from theory.claims import TOY_CONDITION, TOY_STATE_COV
from theory.sketch import joint_optimum

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

#: λ and N of the toy, which the finite-weight theory needs.
WEIGHT, BATCH_SIZE = 0.09, 512
CLOSED, FINITE, TRAINED = "closed form", "finite-weight theory", "trained seeds"


def data(rows: pd.DataFrame) -> pd.DataFrame:
    """Seeds, means with 95 % t intervals, and both theories, over κ from 1 to a little above the largest trained."""
    require_columns(rows, ["kappa", "sigma", "seed", "regret_pred", "origin"], KAPPA_SWEEP.path)
    if rows["sigma"].nunique() != 1:
        raise ValueError(f"The rows of {KAPPA_SWEEP.path} must share one sigma.")
    top = max(float(rows["kappa"].max()), TOY_CONDITION**2)
    kappas = np.geomspace(1.0, top * 1.2, 161)
    closed = np.cosh(0.5 * np.log(kappas / TOY_CONDITION)) - 1
    sigma = float(rows["sigma"].iloc[0])
    coarse = np.unique(np.append(np.geomspace(1.0, top * 1.2, 25), TOY_CONDITION)).tolist()
    finite = [_finite_weight_regret(sigma, kappa) for kappa in coarse]
    parts = [curve(kappas.tolist(), closed.tolist(), "a", CLOSED), curve(coarse, finite, "a", FINITE)]
    parts.append(seeds_and_means(rows, "kappa", "regret_pred", "a", TRAINED))
    return pd.concat(parts, ignore_index=True)


@functools.cache
def _finite_weight_regret(sigma: float, kappa: float) -> float:
    return float(joint_optimum(TOY_STATE_COV, sigma**2 * np.eye(2), WEIGHT, BATCH_SIZE, kappa).mean_regret)


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """The U: trained regret falls from 9/56 to about 0 at κ = c and is back at κ = c²."""
    with style.sheet():
        figure = style.new_figure(style.COLUMN_WIDTH, 2.6)
        axes = figure.add_subplot()
        lines = frame[frame["kind"] == "line"]
        looks: dict[str, dict[str, Any]] = {
            CLOSED: {"color": style.THEORY, "lw": 1.3, "label": "closed form, cosh(½ ln(κ/c)) − 1"},
            FINITE: {"color": style.SECOND, "lw": 1.3, "ls": (0, (4, 2)), "label": "theory at finite weight"},
        }
        for series, look in looks.items():
            points = lines[lines["series"] == series]
            axes.plot(points["x"], points["y"], zorder=2, **look)
        seeds, means = frame[frame["kind"] == "seed"], frame[frame["kind"] == "mean"]
        # Seeds stand a little to the left of their mean, so that neither hides the other.
        axes.plot(0.965 * seeds["x"], seeds["y"], "o", ms=2.4, mew=0, color=style.TASK, alpha=0.35, zorder=3)
        count = int(means["count"].max())
        axes.errorbar(
            means["x"],
            means["y"],
            [means["y"] - means["low"], means["high"] - means["y"]],
            fmt="o",
            ms=4.2,
            mec="white",
            mew=0.6,
            color=style.TASK,
            elinewidth=1.0,
            zorder=4,
            label=f"trained, mean of {count} seeds, 95 % interval",
        )
        axes.set_xscale("log")
        axes.set_xlim(0.91, float(lines["x"].max()))
        ticks = [1, 1.5, 2, 3, 5, 9]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        top = max(float(frame["y"].max()), float(frame["high"].max()), 0.2)
        axes.set_ylim(-0.06 * top, 1.42 * top)
        for mark, label in ((TOY_CONDITION, "$κ = c$"), (TOY_CONDITION**2, "$κ = c^2$")):
            axes.plot([mark, mark], [-0.06 * top, 1.02 * top], color=style.FAINT, lw=0.7, ls=(0, (1, 2)), zorder=1)
            axes.annotate(
                label, (mark, 1.02 * top), (0, 2), textcoords="offset points", ha="center", color=style.THEORY
            )
        axes.set_xlabel("anisotropy bound $κ$ (ratio of variances)")
        axes.set_ylabel("mean planning regret\n(relative to the task optimum)")
        axes.legend(loc="upper left", borderaxespad=0.1, labelspacing=0.3)
        style.stamp(figure, frame["origin"].dropna())
        return figure


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the rows under ``results``."""
    return data(KAPPA_SWEEP.rows(results))


FIGURE = Figure(
    name="fig_regret_vs_kappa",
    caption="Planning regret against the anisotropy bound κ. With κ equal to c = 49/16, the condition number of the "
    "state covariance, ΛReg makes the learned metric the task's; κ = c² overshoots as far as κ = 1 falls short.",
    needs=(KAPPA_SWEEP,),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
