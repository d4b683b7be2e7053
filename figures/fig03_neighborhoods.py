"""Latent-cost neighbourhoods around goals (paper, Figure 3): the arena, and where each model's cost is lowest.

Goals follow from a rule, not from looking: the first of each task for which ``diagnose`` drew a grid, which are the
first planning pairs that are not solved at the start, from different episodes, with at least half of the grid valid.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from figures import film_frames, published, style, visual_panels, visual_rows
from figures.catalog import Figure
from theory.ordering import rank_correlation
from visual.tasks import TASKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

#: The share of states that counts as a neighbourhood.
LOWEST = 0.1
#: The models compared, on the seed of :data:`SEED`, or the smallest that both have.
MODELS = {1.0: ("LeWM", visual_panels.LEWM), 2.0: ("AnisoWM", visual_panels.ANISOWM)}
SEED = 3072
CELL, RHO = "cell", "rho"


def data(cells: pd.DataFrame, goals: slice = slice(0, 1)) -> pd.DataFrame:
    """Cells of the chosen goals' grids under both models, with Spearman's ρ; and the published ρ.

    Parameters
    ----------
    cells
        Rows of ``neighborhoods.parquet``.
    goals
        Which goals of each task, counted in the order of their pairs.

    Returns
    -------
    pandas.DataFrame
        Rows of ``kind`` "cell" (``task, goal, pair, kappa, first, second, task_cost, latent_cost, valid``, and
        ``latent_low`` and ``task_low``: among the lowest tenth of the valid cells) and "rho" (``rho``).
    """
    printed = published.read("fig03_correlation").rename(columns={"correlation": "rho"})
    parts = [printed.assign(kind=RHO, origin="published", goal=-1)]
    cells = cells[cells["kappa"].isin(list(MODELS))]
    for _, group in cells.groupby("task", sort=False):
        shared = set.intersection(*(set(group.loc[group["kappa"] == kappa, "training_seed"]) for kappa in MODELS))
        if not shared:
            continue
        group = group[group["training_seed"] == (SEED if SEED in shared else min(shared))]
        pairs = sorted(group["pair"].unique())
        for goal in range(len(pairs))[goals]:
            for _, grid in group[group["pair"] == pairs[goal]].groupby("kappa"):
                parts += _grid(grid, goal)
    names = ["kind", "task", "goal", "pair", "kappa", "row", "column", "first", "second", "task_cost", "latent_cost"]
    names += ["valid", "latent_low", "task_low", "rho", "training_seed", "preset", "origin", "source"]
    return pd.concat(parts, ignore_index=True).reindex(columns=names)


def _grid(grid: pd.DataFrame, goal: int) -> list[pd.DataFrame]:
    valid = grid["valid"].astype(bool)
    shown = grid[valid]
    low = {
        f"{name}_low": valid & (grid[f"{name}_cost"] <= shown[f"{name}_cost"].quantile(LOWEST))
        for name in ("latent", "task")
    }
    rho = rank_correlation(shown["latent_cost"].to_numpy(), shown["task_cost"].to_numpy())
    names = ["task", "pair", "kappa", "training_seed", "preset", "origin"]
    return [
        grid.assign(kind=CELL, goal=goal, **low),
        grid.iloc[:1][names].assign(kind=RHO, goal=goal, rho=rho),
    ]


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """One column per task: the arena with the corners of the grid above the neighbourhoods."""
    with style.sheet():
        figure = style.new_figure(style.PAGE_WIDTH, 4.3)
        panels = figure.subplots(2, len(visual_rows.TASKS))
        for column, task in enumerate(visual_rows.TASKS):
            part = frame[(frame["task"] == task) & (frame["kind"] == CELL)]
            draw_arena(panels[0, column], frame.attrs.get("arenas", {}).get(task, {}), part)
            panels[0, column].set_title(visual_rows.TITLES[task])
            draw_neighborhood(panels[1, column], frame[frame["task"] == task], 0)
        finish(figure, frame)
        return figure


def draw_arena(axes: Axes, arenas: dict[int, NDArray[np.uint8]], cells: pd.DataFrame) -> None:
    """The goal's frame, with what moves drawn faintly at the corners of the evaluated region."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    pair = int(cells["pair"].iloc[0]) if len(cells) else -1
    if pair not in arenas:
        axes.set_aspect("equal")
        visual_panels.say_not_run(axes, "not filmed" if len(cells) else visual_rows.NOT_RUN)
        return
    axes.imshow(blend(arenas[pair]), interpolation="nearest")


def blend(frames: NDArray[np.uint8], weight: float = 0.5) -> NDArray[np.uint8]:
    """The first frame (H, W, 3), and of the others (k, H, W, 3) what differs from it, mixed in with ``weight``."""
    goal, corners = frames[0].astype(np.float64), frames[1:].astype(np.float64)
    change = np.abs(corners - goal).sum(axis=-1)
    most = np.take_along_axis(corners, change.argmax(axis=0)[None, :, :, None], axis=0)[0]
    return np.asarray(np.rint((1 - weight) * goal + weight * most), dtype=np.uint8)


def draw_neighborhood(axes: Axes, frame: pd.DataFrame, goal: int) -> None:
    """Contours around the lowest tenth of the latent cost of each model, and of the task cost, dashed."""
    cells = frame[(frame["kind"] == CELL) & (frame["goal"] == goal)]
    rho = frame[frame["kind"] == RHO]
    task = frame["task"].iloc[0] if len(frame) else None
    printed = rho[rho["origin"] == "published"].set_index("kappa")["rho"]
    if cells.empty:
        text = visual_rows.NOT_RUN
        if len(printed) and goal == 0:
            text = f"here: {text}\npublished ρ:\n{printed[1.0]:.2f} → {printed[2.0]:.2f}"
        visual_panels.say_not_run(axes, text)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    for kappa, (_, color) in MODELS.items():
        grid = cells[cells["kappa"] == kappa]
        x, y = (np.sort(grid[name].unique()) for name in ("first", "second"))
        cost, truth, valid = (
            grid.pivot(index="row", columns="column", values=name).to_numpy(dtype=float)
            for name in ("latent_cost", "task_cost", "valid")
        )
        x, y = (
            grid.pivot(index="row", columns="column", values=name).to_numpy(dtype=float) for name in ("first", "second")
        )
        shown = np.where(valid > 0, cost, np.nan)
        level = float(np.nanquantile(shown, LOWEST))
        masked = np.ma.masked_invalid(shown)
        axes.contourf(x, y, masked, [float(np.nanmin(shown)) - 1.0, level], colors=[color], alpha=0.18)
        axes.contour(x, y, masked, [level], colors=[color], linewidths=1.3)
        if kappa == 1.0:
            axes.contour(x, y, truth, [float(np.nanquantile(np.where(valid > 0, truth, np.nan), LOWEST))], **_dashed())
            middle = grid.sort_values("task_cost", kind="stable").iloc[0]
            axes.plot(middle["first"], middle["second"], "*", ms=8, color="black", mec="white", mew=0.6, zorder=5)
            axes.plot(x[valid == 0], y[valid == 0], "x", ms=2.5, mew=0.5, color=style.FAINT, ls="none")
    here = rho[(rho["origin"] != "published") & (rho["goal"] == goal)].set_index("kappa")["rho"]
    title = f"ρ: {here[1.0]:.2f} → {here[2.0]:.2f}"
    if len(printed) and goal == 0:
        title += f"\npublished: {printed[1.0]:.2f} → {printed[2.0]:.2f}"
    axes.set_title(title, fontsize=7.5)
    axes.set_aspect("equal")
    neighborhood = TASKS[str(task)].neighborhood
    if neighborhood is not None:
        axes.set_xlabel(f"{neighborhood.first.label} ({neighborhood.first.unit})")
        axes.set_ylabel(f"{neighborhood.second.label} ({neighborhood.second.unit})", labelpad=1)
    axes.locator_params(nbins=3)


def _dashed() -> dict[str, Any]:
    return {"colors": ["black"], "linewidths": 1.0, "linestyles": [(0, (3, 1.6))]}


def finish(figure: MatplotlibFigure, frame: pd.DataFrame) -> None:
    """Legend above the panels, and the stamp."""
    axes = figure.get_axes()[0]
    cells = frame[frame["kind"] == CELL]
    have = visual_rows.describe(cells, count="")
    names = [
        *((f"{name}, $κ = {kappa:g}$", color, "solid") for kappa, (name, color) in MODELS.items()),
        ("task cost", "black", (0, (3, 1.6))),
    ]
    handles = [axes.plot([], [], color=color, ls=dashes, lw=1.3, label=name)[0] for name, color, dashes in names]
    title = f"lowest {100 * LOWEST:.0f} % of the cost around the goal (star); {have}; ρ: κ = 1 → κ = 2"
    figure.legend(handles=handles, loc="outside upper center", ncols=3, title=title)
    figure.legends[0].get_title().set_fontsize(7.5)
    style.stamp(figure, frame["origin"].dropna())


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the runs under ``results``, with the arenas of films in ``attrs``."""
    return read_goals(results, slice(0, 1))


def read_goals(results: Path, goals: slice) -> pd.DataFrame:
    """:func:`data` for some of the goals."""
    cells = visual_rows.one_setting(visual_rows.DIAGNOSE.rows(results, "neighborhoods.parquet"))
    frame = data(cells, goals)
    frame.attrs["arenas"] = film_frames.arenas(results)
    return frame


FIGURE = Figure(
    name="fig03_neighborhoods",
    caption="Where the latent cost around a goal is lowest. Top: the goal's frame, with what moves drawn faintly at "
    "the corners of the evaluated region. Bottom: the lowest tenth of the latent cost under κ = 1 (blue) and κ"
    " = 2 (red), and of the task cost (dashed); crosses are states the simulator does not keep. ρ is "
    "Spearman's correlation of latent and task cost. Goals by rule: the first pair of each task that is not "
    "solved at the start. The published goals were chosen by the authors.",
    needs=(visual_rows.DIAGNOSE, visual_rows.FILM),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
