"""Maps of the regret over condition numbers: mean and worst, by dimension, and where ΛReg moves a system (T5 to T7)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from figures import style
from figures.catalog import Figure
from figures.summary import curve
from theory.claims import TOY_CONDITION
from theory.metric import anisotropic_metric
from theory.regret import best_kappa, mean_line_regret, mean_subspace_regret, worst_regret
from theory.target import optimal_target, relative_noise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

#: Dimensions of panel a, and the state and action dimensions of panel c.
DIMENSIONS = (2, 3, 4, 8)
STATE_DIM, LARGEST = 8, 100.0
#: Largest neighbouring ratio in panel b.
LARGEST_RATIO = 12.0
#: Panel b's system: state variances 16 : 3 : 1 and isotropic noise, so that N = diag(1/16, 1/3, 1). Two directions are
#: high up to κ₂ = (1 − 1/3)/(1/3 − 1/16), and one from there on (docs/theory.md, T7).
EXAMPLE_COV = np.diag([16.0, 3.0, 1.0])
EXAMPLE_JUMP = (1 - 1 / 3) / (1 / 3 - 1 / 16)
EXAMPLE_KAPPAS = np.unique(np.concatenate([np.geomspace(1.0, 16.0, 49), [EXAMPLE_JUMP * (1 - 1e-6), EXAMPLE_JUMP]]))
#: κ of the arrow in panel a.
ARROW_KAPPA = 2.0
WORST = "worst"
LEVELS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


def spread_spectrum(condition: float, dim: int) -> np.ndarray:
    """Eigenvalues from 1 to ρ in equal ratios, (n,), which stand for a dimension and a condition number."""
    return np.geomspace(1.0, condition, dim)


def data() -> pd.DataFrame:
    """Panel a: mean (by dimension) and worst regret over ρ. Panels b and c: grids; b also ΛReg's path.

    A grid has the regret in ``value``. On the path of panel b ``value`` is the regret and ``kappa`` the bound;
    ``series`` says whether κ lies before or after the jump.
    """
    parts = []
    conditions = np.geomspace(1.0, LARGEST, 61)[1:]
    for dim in DIMENSIONS:
        means = [mean_line_regret(np.diag(spread_spectrum(condition, dim))) for condition in conditions]
        parts.append(curve(conditions.tolist(), means, "a", f"n = {dim}"))
    worst = [worst_regret(np.diag([1.0, condition])) for condition in conditions]
    parts.append(curve(conditions.tolist(), worst, "a", WORST))
    moved = [TOY_CONDITION, TOY_CONDITION / ARROW_KAPPA]
    parts.append(curve(moved, [mean_line_regret(np.diag([1.0, c])) for c in moved], "a", "ΛReg", "point"))
    ratios = np.geomspace(1.0, LARGEST_RATIO, 41)
    low, high = (grid.ravel() for grid in np.meshgrid(ratios, ratios))
    values = [mean_line_regret(np.diag([1.0, a, a * b])) for a, b in zip(low, high, strict=True)]
    parts.append(curve(low.tolist(), high.tolist(), "b", "mean", "grid").assign(value=values))
    parts.append(_path())
    rows = np.arange(1, STATE_DIM)
    coarse = np.geomspace(1.0, LARGEST, 13)[1:]
    grid = [(condition, float(k)) for k in rows for condition in coarse]
    regrets = [
        mean_subspace_regret(np.diag(spread_spectrum(rho, STATE_DIM)), int(k), tolerance=0.01) for rho, k in grid
    ]
    x, y = (list(column) for column in zip(*grid, strict=True))
    parts.append(curve(x, y, "c", "mean", "grid").assign(value=regrets))
    return pd.concat(parts, ignore_index=True)


def _path() -> pd.DataFrame:
    """Ratios of neighbouring eigenvalues of M(κ) for the example of panel b, and the κ of least regret."""
    noise = relative_noise(EXAMPLE_COV, np.eye(3))
    best = best_kappa(EXAMPLE_COV, np.eye(3))
    points = []
    for kind, kappas in (("path", EXAMPLE_KAPPAS.tolist()), ("best", [best.kappa])):
        for kappa in kappas:
            target = optimal_target(noise, kappa)
            metric = anisotropic_metric(EXAMPLE_COV, target.matrix)
            spectrum = np.linalg.eigvalsh(metric)
            points.append(
                {
                    "panel": "b",
                    "series": "before" if kappa < EXAMPLE_JUMP else "after",
                    "kind": kind,
                    "x": spectrum[1] / spectrum[0],
                    "y": spectrum[2] / spectrum[1],
                    "value": mean_line_regret(metric),
                    "kappa": kappa,
                }
            )
    return pd.DataFrame(points)


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """Curves over the condition number, and two maps with one colour scale."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm

    with style.sheet():
        figure = style.new_figure(style.PAGE_WIDTH, 2.9)
        panels = figure.subplots(1, 3, width_ratios=(1.0, 1.0, 1.0))
        norm = LogNorm(LEVELS[0], LEVELS[-1])
        _draw_curves(panels[0], frame[frame["panel"] == "a"])
        _draw_ratios(panels[1], frame[frame["panel"] == "b"], norm)
        _draw_subspaces(panels[2], frame[frame["panel"] == "c"], norm)
        for axes, letter in zip(panels, "abc", strict=True):
            style.panel_letter(axes, letter)
        bar = figure.colorbar(ScalarMappable(norm, "cividis"), ax=panels[1:].tolist(), fraction=0.05, pad=0.02)
        bar.set_label("mean regret (relative to optimum)")
        bar.set_ticks([0.001, 0.01, 0.1, 1.0], labels=["0.001", "0.01", "0.1", "1"])
        return figure


def _draw_curves(axes: Axes, part: pd.DataFrame) -> None:
    shades = ("#003C5E", style.TASK, "#3E93C8", "#74B3DC")
    names = (WORST, *(f"n = {dim}" for dim in DIMENSIONS))
    labels = ("worst,\nany $n$", *(f"$n = {dim}$" for dim in DIMENSIONS))
    shifts = (0, 1, 3.5, -3.5, -1)
    for name, label, color, shift in zip(names, labels, (style.LATENT, *shades), shifts, strict=True):
        points = part[part["series"] == name]
        axes.plot(points["x"], points["y"], color=color, ls=(0, (4, 2)) if name == WORST else "solid")
        end = (float(points["x"].iloc[-1]), float(points["y"].iloc[-1]))
        axes.annotate(label, end, (3, shift), textcoords="offset points", va="center", color=color, fontsize=7)
    moved = part[part["kind"] == "point"]
    (x, y), (to_x, to_y) = moved[["x", "y"]].to_numpy().tolist()
    arrow = {"arrowstyle": "-|>", "lw": 1.0, "color": "black", "shrinkA": 0, "shrinkB": 1}
    axes.annotate("", (to_x, to_y), (x, y), arrowprops=arrow)
    axes.plot(moved["x"], moved["y"], "o", ms=4, mec="white", mew=0.6, color="black", zorder=4)
    for label, spot, below in (("$c$", (x, y), (4, -7)), ("$c/κ$", (to_x, to_y), (4, -9))):
        axes.annotate(label, spot, below, textcoords="offset points", path_effects=style.halo())
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(1.0, LARGEST)
    axes.set_ylim(1e-3, 40)
    axes.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
    axes.set_yticks([0.001, 0.01, 0.1, 1, 10], ["0.001", "0.01", "0.1", "1", "10"])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks([], minor=True)
    axes.set_title("worst and mean over lines")
    axes.set_xlabel("condition number $ρ$ of $M$")
    axes.set_ylabel("planning regret\n(relative to the task optimum)")


def _draw_ratios(axes: Axes, part: pd.DataFrame, norm: Any) -> None:
    grid = part[part["kind"] == "grid"].pivot(index="y", columns="x", values="value")
    x, y = grid.columns.to_numpy(), grid.index.to_numpy()
    axes.pcolormesh(x, y, np.maximum(grid, LEVELS[0]), norm=norm, cmap="cividis", shading="gouraud", rasterized=True)
    lines = axes.contour(x, y, grid, levels=LEVELS[3:], colors="white", linewidths=0.6)
    axes.clabel(lines, fmt=lambda level: f"{level:g}", fontsize=6.5, inline_spacing=2)
    path = part[part["kind"] == "path"]
    look: dict[str, Any] = {"color": "black", "path_effects": style.halo(2.4)}
    before, after = (path.loc[path["series"] == name, ["x", "y"]].to_numpy() for name in ("before", "after"))
    for piece in (before, after):
        axes.plot(*piece.T, lw=1.2, clip_on=False, **look)
    axes.plot(*np.stack([before[-1], after[0]]).T, lw=1.1, ls=(0, (1, 1.5)), **look)
    axes.plot(*before[0], "o", ms=4, mec="white", mew=0.6, color="black", zorder=4)
    (best,) = part[part["kind"] == "best"].to_dict("records")
    axes.plot(best["x"], best["y"], "*", ms=9, mec="white", mew=0.7, color="black", zorder=5)
    axes.text(0.04, 0.97, f"★ least regret: $κ = {best['kappa']:.1f}$", transform=axes.transAxes, va="top", fontsize=7)
    for label, spot, shift in (("$κ = 1$", before[0], (4, 3)), (f"$κ = {EXAMPLE_KAPPAS[-1]:g}$", after[-1], (4, 4))):
        axes.annotate(
            label, spot, shift, textcoords="offset points", fontsize=7, path_effects=style.halo(2.2), zorder=6
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(1.0, LARGEST_RATIO)
    axes.set_ylim(1.0, LARGEST_RATIO)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks([1, 2, 3, 5, 10], ["1", "2", "3", "5", "10"])
        axis.set_ticks([], minor=True)
    axes.set_title("$n = 3$, lines")
    axes.set_xlabel("ratio $μ_2/μ_1$ of eigenvalues of $M$")
    axes.set_ylabel("ratio $μ_3/μ_2$", labelpad=1)


def _draw_subspaces(axes: Axes, part: pd.DataFrame, norm: Any) -> None:
    grid = part.pivot(index="y", columns="x", values="value")
    steps = np.sqrt(grid.columns.to_numpy()[1:] / grid.columns.to_numpy()[:-1])
    edges = np.concatenate([[grid.columns[0] / steps[0]], grid.columns[:-1] * steps, [grid.columns[-1] * steps[-1]]])
    rows = np.append(grid.index - 0.5, grid.index[-1] + 0.5)
    axes.pcolormesh(edges, rows, np.maximum(grid, LEVELS[0]), norm=norm, cmap="cividis", rasterized=True)
    axes.set_xscale("log")
    axes.set_xticks([3, 10, 30, 100], ["3", "10", "30", "100"])
    axes.set_xticks([], minor=True)
    axes.set_yticks(grid.index)
    axes.set_title(f"$n = {STATE_DIM}$, $k$-dimensional sets")
    axes.set_xlabel("condition number $ρ$ of $M$")
    axes.set_ylabel("dimension $k$ of the reachable set", labelpad=1)


def read(results: Path) -> pd.DataFrame:
    """:func:`data`; nothing is measured here."""
    return data()


FIGURE = Figure(
    name="fig_regret_maps",
    caption="Planning regret of a metric M over its condition number, task metric Q = I. (a) The worst case over "
    "lines, the same in every dimension, and the mean; eigenvalues in equal ratios. The arrow is ΛReg at κ = 2 on "
    "the toy: from c = 49/16 to c/κ. (b) Three dimensions: both free ratios, and ΛReg's path for state variances 16 "
    ": 3 : 1 as κ grows from 1 to 16; it jumps (dots) where the number of high directions changes, and never "
    "reaches the corner without regret. (c) Reachable sets of more dimensions, in eight.",
    needs=(),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
