"""Over-complete latents: regret against the latent dimension D, beside the linear theory's (docs/theory.md, T12)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from figures import style
from figures.catalog import OVERCOMPLETE, Figure, require_columns
from figures.summary import curve, seeds_and_means
from theory.claims import TOY_CONDITION, TOY_STATE_COV
from theory.metric import anisotropic_metric
from theory.regret import mean_line_regret
from theory.target import optimal_target, relative_noise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

LINEAR = "linear theory"
#: The planner's two costs: column of the rows, label, colour, marker, shift beside the tick.
COSTS = (
    ("regret_pred", "predicted latent", style.TASK, "o", -0.14),
    ("regret_enc", "encoded outcome", style.LATENT, "s", 0.14),
)


def data(rows: pd.DataFrame) -> pd.DataFrame:
    """For each κ (a panel): seeds and means with 95 % t intervals by both costs, and the linear theory, over D."""
    costs = [column for column, *_ in COSTS]
    require_columns(rows, ["kappa", "latent_dim", "sigma", "seed", "origin", *costs], OVERCOMPLETE.path)
    parts = []
    for kappa in sorted(rows["kappa"].unique().tolist()):
        group, panel = rows[rows["kappa"] == kappa], f"κ = {kappa:g}"
        dims = sorted(int(dim) for dim in group["latent_dim"].unique())
        parts.append(curve([float(dim) for dim in dims], [_linear_regret(kappa, dim) for dim in dims], panel, LINEAR))
        parts += [seeds_and_means(group, "latent_dim", column, panel, label) for column, label, *_ in COSTS]
    return pd.concat(parts, ignore_index=True)


def _linear_regret(kappa: float, latent_dim: int) -> float:
    """Mean regret of the linear optimum as σ → 0: 9/56 for κ = 1, and for any κ once there is a spare coordinate."""
    target = optimal_target(relative_noise(TOY_STATE_COV, np.eye(2)), kappa, latent_dim)
    return mean_line_regret(anisotropic_metric(TOY_STATE_COV, target.matrix))


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """Points for the trained networks, bars for the linear theory; one panel for each κ."""
    with style.sheet():
        panels = frame["panel"].unique().tolist()
        figure = style.new_figure(style.COLUMN_WIDTH if len(panels) == 1 else style.PAGE_WIDTH, 2.6)
        every = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        dims = sorted(frame["x"].unique())
        place = {dim: index for index, dim in enumerate(dims)}
        top = float(max(frame["y"].max(), frame["high"].max()))
        for axes, panel in zip(every, panels, strict=True):
            part = frame[frame["panel"] == panel].assign(place=lambda points: points["x"].map(place))
            _draw_panel(axes, part)
            axes.set_title(f"{panel} = c" if panel == f"κ = {TOY_CONDITION:g}" else panel)
            axes.set_xticks(range(len(dims)), [f"{dim:g}" for dim in dims])
            axes.set_xlim(-0.5, len(dims) - 0.5)
            axes.set_ylim(-0.05 * top, 1.08 * top)
            axes.set_xlabel("latent dimension $D$ (state dimension 2)")
        every[0].set_ylabel("mean planning regret\n(relative to the task optimum)")
        every[0].legend(loc="upper left", borderaxespad=0.1, labelspacing=0.3, handlelength=1.6)
        style.stamp(figure, frame["origin"].dropna())
        return figure


def _draw_panel(axes: Axes, part: pd.DataFrame) -> None:
    linear = part[part["series"] == LINEAR]
    axes.hlines(
        linear["y"], linear["place"] - 0.36, linear["place"] + 0.36, color=style.THEORY, lw=1.2, zorder=2, label=LINEAR
    )
    for _, label, color, marker, shift in COSTS:
        points = part[part["series"] == label]
        seeds, means = points[points["kind"] == "seed"], points[points["kind"] == "mean"]
        axes.plot(seeds["place"] + shift - 0.08, seeds["y"], marker, ms=2.6, mew=0, color=color, alpha=0.4, zorder=3)
        axes.errorbar(
            means["place"] + shift,
            means["y"],
            [means["y"] - means["low"], means["high"] - means["y"]],
            fmt=marker,
            ms=4.2,
            mec="white",
            mew=0.6,
            elinewidth=1.0,
            color=color,
            zorder=4,
            label=label,
        )


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the rows under ``results``."""
    return data(OVERCOMPLETE.rows(results))


FIGURE = Figure(
    name="fig_overcomplete",
    caption="More latent coordinates than state dimensions: planning regret by the predicted latent (what the planner "
    "uses) and by the encoded outcome. At κ = c two dimensions have no regret; with a spare coordinate the linear "
    "theory has that of Σ⁻¹ again, and the trained networks are neither there nor at zero.",
    needs=(OVERCOMPLETE,),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
