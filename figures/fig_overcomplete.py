"""Over-complete latents: regret against the latent dimension D, beside the linear theory's (docs/theory.md, T12)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from figures import style
from figures.catalog import OVERCOMPLETE, RESULTS, Figure, require_columns
from figures.summary import curve, seeds_and_means
from theory.claims import TOY_STATE_COV
from theory.metric import anisotropic_metric
from theory.regret import mean_line_regret
from theory.target import optimal_target, relative_noise

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

_LOOKS = ((style.LATENT, "s", -0.09), (style.TASK, "o", 0.09), (style.SECOND, "D", 0.0))


def data(rows: pd.DataFrame) -> pd.DataFrame:
    """For each κ: seeds, means with 95 % t intervals, and the linear theory's regret, over D."""
    require_columns(
        rows, ["kappa", "latent_dim", "sigma", "seed", "regret_enc", "regret_pred", "origin"], OVERCOMPLETE.path
    )
    parts = []
    for kappa, group in rows.groupby("kappa"):
        series = f"κ = {kappa:g}"
        dims = sorted(int(dim) for dim in group["latent_dim"].unique())
        linear = [_linear_regret(float(kappa), dim) for dim in dims]  # type: ignore[arg-type]
        parts += [
            curve([float(dim) for dim in dims], linear, "a", series),
            seeds_and_means(group, "latent_dim", "regret_pred", "a", series),
        ]
    return pd.concat(parts, ignore_index=True)


def _linear_regret(kappa: float, latent_dim: int) -> float:
    """Mean regret of the linear optimum as σ → 0: 9/56 for κ = 1, and for any κ once there is a spare coordinate."""
    target = optimal_target(relative_noise(TOY_STATE_COV, np.eye(2)), kappa, latent_dim)
    return mean_line_regret(anisotropic_metric(TOY_STATE_COV, target.matrix))


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """Points for the trained networks, short bars for the linear theory."""
    with style.sheet():
        figure = style.new_figure(style.COLUMN_WIDTH, 2.6)
        axes = figure.add_subplot()
        dims = sorted(frame["x"].unique())
        place = {dim: index for index, dim in enumerate(dims)}
        for (series, part), (color, marker, shift) in zip(frame.groupby("series", sort=False), _LOOKS, strict=False):
            part = part.assign(place=part["x"].map(place) + 2.2 * shift)
            line, seeds, means = (part[part["kind"] == kind] for kind in ("line", "seed", "mean"))
            axes.hlines(line["y"], line["place"] - 0.13, line["place"] + 0.13, color=color, lw=1.6, zorder=2)
            axes.plot(seeds["place"] - 0.07, seeds["y"], marker, ms=2.6, mew=0, color=color, alpha=0.4, zorder=3)
            axes.errorbar(
                means["place"],
                means["y"],
                [means["y"] - means["low"], means["high"] - means["y"]],
                fmt=marker,
                ms=4.2,
                mec="white",
                mew=0.6,
                color=color,
                zorder=4,
                label=f"{series}",
            )
        axes.plot([], [], color=style.THEORY, lw=1.6, label="linear theory")
        axes.set_xticks(range(len(dims)), [f"{dim:g}" for dim in dims])
        axes.set_xlabel("latent dimension $D$ (state dimension 2)")
        axes.set_ylabel("mean planning regret\n(relative to the task optimum)")
        top = float(max(frame["y"].max(), frame["high"].max()))
        axes.set_ylim(-0.05 * top, 1.28 * top)
        axes.legend(loc="upper left", ncols=3, borderaxespad=0.1, columnspacing=1.0, handlelength=1.4)
        style.stamp(figure, frame["origin"].dropna())
        return figure


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the rows under ``results``."""
    return data(OVERCOMPLETE.rows(results))


FIGURE = Figure(
    name="fig_overcomplete",
    caption="More latent coordinates than state dimensions. The linear theory loses ΛReg's correction with the first "
    "spare coordinate; the trained networks lose it too, and nonlinear features in the spare coordinates add regret of "
    "their own.",
    needs=(OVERCOMPLETE,),
    read=read,
    draw=draw,
)


def main(results: Path = RESULTS, folder: Path | None = None) -> list[Path]:
    """Draw the figure from rows on disk."""
    return FIGURE.render(results, folder)


if __name__ == "__main__":
    main()
