"""The separation (paper, Figure 1): prediction improves, planning does not (docs/theory.md, T1, T5 and T6).

(a) One reachable line: the task's choice and the latent planner's, each where a contour of its cost touches the line,
and the learned metric beside Σ⁻¹. (b) The noise sweep: the prediction error falls, the regret stays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.interpolate import interpn

from figures import style
from figures.catalog import NOISE_SWEEP, Figure, require_columns
from figures.summary import curve, seeds_and_means
from theory.claims import INVERSE_COVARIANCE_REGRET
from theory.spd import check_array, check_spd, check_vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

EXAMPLE_FILE = "example.npz"
#: Levels of the contours as multiples of the distance at the choice, whose own contour is drawn bold.
RINGS = (0.5, 1.0, 1.5, 2.0, 2.5)
#: Points a side to which the grid of the latent cost is thinned: enough for smooth contours, small as a table.
GRID_POINTS = 81


def data(rows: pd.DataFrame, example: Mapping[str, NDArray[np.float64]]) -> pd.DataFrame:
    """Panel a: points, line, ellipses, latent-cost grid. Panel b: seeds and means of regret and prediction error.

    Raises
    ------
    ValueError
        If rows or arrays are missing, empty or not finite.
    """
    columns = ["observation", "sigma", "seed", "regret_pred", "prediction_error", "origin"]
    require_columns(rows, columns, NOISE_SWEEP.path)
    plain = rows[rows["observation"] == "identity"]
    if plain.empty:
        raise ValueError(f"The rows of {NOISE_SWEEP.path} hold none with observation 'identity'.")
    sweeps = [
        seeds_and_means(plain, "sigma", column, "b", series)
        for column, series in (("regret_pred", "regret"), ("prediction_error", "prediction error"))
    ]
    return pd.concat([_example_frame(example), *sweeps], ignore_index=True)


def _example_frame(example: Mapping[str, NDArray[np.float64]]) -> pd.DataFrame:
    names = [
        "state_cov",
        "metric",
        "point",
        "direction",
        "goal",
        "chosen",
        "optimal",
        "grid_x",
        "grid_y",
        "latent_cost",
    ]
    missing = [name for name in [*names, "regret"] if name not in example]
    if missing:
        raise ValueError(f"{EXAMPLE_FILE} lacks {', '.join(missing)}.")
    vectors = {
        name: check_vector(example[name], name, 2) for name in ("point", "direction", "goal", "chosen", "optimal")
    }
    grid_x, grid_y = check_vector(example["grid_x"], "grid_x"), check_vector(example["grid_y"], "grid_y")
    cost = check_array(example["latent_cost"], "latent_cost", shape=(grid_y.size, grid_x.size))
    keep_y, keep_x = _thin(grid_y.size), _thin(grid_x.size)
    x, y = np.meshgrid(grid_x[keep_x], grid_y[keep_y])
    ends = [vectors["point"] + step * vectors["direction"] for step in (-20.0, 20.0)]
    parts = [
        curve([vectors[name][0]], [vectors[name][1]], "a", name, "point") for name in ("goal", "chosen", "optimal")
    ]
    parts.append(curve([end[0] for end in ends], [end[1] for end in ends], "a", "reachable line"))
    for series, matrix in (
        ("learned metric", check_spd(example["metric"], "metric", 2)),
        ("Σ⁻¹", np.asarray(np.linalg.inv(check_spd(example["state_cov"], "state_cov", 2)), dtype=np.float64)),
    ):
        ellipse = _unit_ellipse(matrix)
        parts.append(curve(ellipse[:, 0].tolist(), ellipse[:, 1].tolist(), "a", series))
    parts.append(
        curve(x.ravel().tolist(), y.ravel().tolist(), "a", "latent cost", "grid").assign(
            value=cost[np.ix_(keep_y, keep_x)].ravel()
        )
    )
    regret = check_array(example["regret"], "regret", ndim=0).item()
    parts.append(pd.DataFrame({"panel": ["a"], "series": ["regret"], "kind": ["number"], "value": [regret]}))
    return pd.concat(parts, ignore_index=True)


def _thin(size: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, size - 1, min(size, GRID_POINTS)).round().astype(np.int64))


def _unit_ellipse(matrix: NDArray[np.float64], count: int = 181) -> NDArray[np.float64]:
    """Closed level set (count, 2) of xᵀMx with the area of the unit disc: a metric's shape without its scale."""
    normal = matrix / np.sqrt(np.linalg.det(matrix))
    angle = np.linspace(0, 2 * np.pi, count)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    return np.asarray(np.linalg.solve(np.linalg.cholesky(normal).T, circle).T)


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """Two panels at page width."""
    with style.sheet():
        figure = style.new_figure(style.PAGE_WIDTH, 3.3)
        grid = figure.add_gridspec(2, 2, width_ratios=(1.1, 1))
        left = figure.add_subplot(grid[:, 0])
        top = figure.add_subplot(grid[0, 1])
        bottom = figure.add_subplot(grid[1, 1], sharex=top)
        _draw_line(left, frame[frame["panel"] == "a"])
        _draw_sweep(top, bottom, frame[frame["panel"] == "b"])
        style.panel_letter(left, "a")
        style.panel_letter(top, "b")
        style.stamp(figure, frame["origin"].dropna())
        return figure


def _draw_line(axes: Axes, frame: pd.DataFrame) -> None:
    parts = {str(series): part for series, part in frame.groupby("series")}
    goal, chosen, optimal = (parts[name][["x", "y"]].to_numpy()[0] for name in ("goal", "chosen", "optimal"))
    cells = parts["latent cost"].pivot(index="y", columns="x", values="value")
    grid_x, grid_y = cells.columns.to_numpy(dtype=float), cells.index.to_numpy(dtype=float)
    x, y = np.meshgrid(grid_x, grid_y)
    latent, task = np.sqrt(cells.to_numpy()), np.hypot(x - goal[0], y - goal[1])
    axes.plot(
        parts["reachable line"]["x"], parts["reachable line"]["y"], color="black", zorder=3, label="reachable line"
    )
    taken = [np.array([goal, chosen, optimal])]
    for values, point, color, dashes, label in (
        (task, optimal, style.TASK, (0, (3, 1.6)), "task cost and its choice"),
        (latent, chosen, style.LATENT, "solid", "latent cost and its choice"),
    ):
        level = float(interpn((grid_y, grid_x), values, point[::-1]).item())
        for ring in RINGS:
            bold = ring == 1.0
            contour = axes.contour(
                x,
                y,
                values,
                [ring * level],
                colors=color,
                linestyles=[dashes],
                linewidths=1.4 if bold else 0.6,
                alpha=1.0 if bold else 0.45,
            )
            taken += contour.allsegs[0] if bold else []
        marker: dict[str, Any] = {"marker": "o", "ms": 6, "color": color, "mec": "white", "mew": 0.8}
        axes.plot(*point, ls="none", zorder=5, **marker)
        axes.plot([], [], ls=dashes, lw=1.4, label=label, **marker)
    axes.plot(*goal, "*", ms=11, color="black", mec="white", mew=0.8, zorder=5, label="goal")
    axes.set_xlim(grid_x[0], grid_x[-1])
    axes.set_ylim(grid_y[0], grid_y[-1])
    axes.set_aspect("equal", adjustable="box")
    axes.set_xlabel("state $x_1$ (in standard deviations of $x_2$)")
    axes.set_ylabel("state $x_2$ (same unit)")
    handles, labels = axes.get_legend_handles_labels()
    order = [labels.index(name) for name in ("task cost and its choice", "latent cost and its choice")]
    order += [index for index in range(len(labels)) if index not in order]
    axes.legend(
        [handles[index] for index in order],
        [labels[index] for index in order],
        loc="lower left",
        bbox_to_anchor=(0.02, 1.0),
        ncols=2,
        borderaxespad=0.2,
        columnspacing=1.2,
        labelspacing=0.3,
        handlelength=2.6,
    )
    _draw_metrics(axes, parts, np.vstack(taken))


def _draw_metrics(axes: Axes, parts: dict[str, pd.DataFrame], occupied: NDArray[np.float64]) -> None:
    """Unit ellipses of the learned metric and of Σ⁻¹, in the corner farthest from the line and what lies on it."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    ends = parts["reachable line"][["x", "y"]].to_numpy()
    line = ends[0] + np.linspace(0, 1, 801)[:, None] * (ends[1] - ends[0])
    inside = line[(line[:, 0] > left) & (line[:, 0] < right) & (line[:, 1] > low) & (line[:, 1] < high)]
    taken = (np.vstack([inside, occupied]) - (left, low)) / (right - left, high - low)
    width, height = 0.3, 0.27
    corners = [(x, y) for x in (0.015, 0.985 - width) for y in (0.015, 0.985 - height)]
    centers = np.array(corners) + np.array([width, height]) / 2
    gaps = np.abs(taken[None] - centers[:, None]).max(axis=2).min(axis=1)
    inset = axes.inset_axes((*corners[int(gaps.argmax())], width, height), zorder=7)
    for series, color, dashes in (("learned metric", style.LATENT, "solid"), ("Σ⁻¹", "black", (0, (2, 1.6)))):
        label = "learned" if series == "learned metric" else series
        inset.plot(parts[series]["x"], parts[series]["y"], color=color, ls=dashes, label=label)
    # Limits in the proportions of the box: the scale is then equal on both axes, as in the panel around it.
    half = 1.5
    inset.set_xlim(-half, half)
    inset.set_ylim(*(half * (height * (high - low)) / (width * (right - left)) * np.array([-1, 1])))
    inset.set_xticks([])
    inset.set_yticks([])
    inset.spines[["top", "right"]].set_visible(True)
    inset.annotate("unit ellipses of", (0.5, 0.97), xycoords="axes fraction", ha="center", va="top", fontsize=6.5)
    inset.legend(loc="center", labelspacing=0.2, fontsize=6.5, handlelength=1.2, handletextpad=0.5, borderaxespad=0)


def _draw_sweep(top: Axes, bottom: Axes, frame: pd.DataFrame) -> None:
    errors = frame[frame["series"] == "prediction error"]
    exponent = math.floor(math.log10(max(float(errors["y"].max()), 1e-300)))
    for axes, series, color in ((top, "regret", style.LATENT), (bottom, "prediction error", style.SECOND)):
        part = frame[frame["series"] == series]
        seeds, means = part[part["kind"] == "seed"], part[part["kind"] == "mean"]
        scale = 1.0 if axes is top else 10.0**-exponent
        # Seeds stand a little to the left of their mean, so that neither hides the other.
        axes.plot(1.07 * seeds["x"], scale * seeds["y"], "o", ms=2.4, mew=0, color=color, alpha=0.35)
        spread = [scale * (means["y"] - means["low"]), scale * (means["high"] - means["y"])]
        axes.errorbar(
            means["x"], scale * means["y"], spread, fmt="-o", ms=4.2, mec="white", mew=0.6, lw=1.0, color=color
        )
        largest = scale * float(max(part["y"].max(), part["high"].max()))
        axes.set_ylim(0, max(0.24, 1.12 * largest) if axes is top else 1.12 * largest)
    top.axhline(INVERSE_COVARIANCE_REGRET, color="black", lw=0.9, ls=(0, (4, 2)), zorder=1, label="Σ⁻¹ reference 9/56")
    top.legend(loc="upper right", borderaxespad=0)
    count = int(frame["count"].max())
    bottom.plot([], [], "o", ms=2.4, mew=0, color=style.SECOND, alpha=0.5, label="one seed")
    bottom.errorbar(
        [],
        [],
        [],
        fmt="-o",
        ms=4.2,
        mec="white",
        mew=0.6,
        lw=1.0,
        color=style.SECOND,
        label=f"mean of {count}, 95 % interval",
    )
    bottom.legend(loc="upper right", borderaxespad=0, labelspacing=0.3)
    top.set_ylabel("planning regret\n(relative to optimum)")
    top.tick_params(labelbottom=False)
    bottom.set_xscale("log")
    sigmas = sorted(frame["x"].unique())
    bottom.set_xticks(sigmas, [f"{sigma:.2g}" for sigma in sigmas])
    bottom.set_xticks([], minor=True)
    bottom.set_xlim(sigmas[-1] * 1.25, sigmas[0] / 1.15)
    bottom.set_ylabel(f"prediction error\n(mean square, $×10^{{{exponent}}}$)")
    bottom.set_xlabel("process noise $σ$ (in standard deviations of $x_2$)")


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the rows and the example under ``results``."""
    return data(NOISE_SWEEP.rows(results), NOISE_SWEEP.arrays(results, EXAMPLE_FILE))


FIGURE = Figure(
    name="fig01_separation",
    caption="Prediction and planning come apart. (a) On one reachable line, the task cost and the latent cost of a "
    "trained model choose different points; the learned metric has the shape of Σ⁻¹. (b) As the process noise falls, "
    "so does the prediction error, while the planning regret stays at the Σ⁻¹ reference.",
    needs=(NOISE_SWEEP,),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
