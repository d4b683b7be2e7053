"""Rollouts in TwoRoom and Reacher (paper, Figure 12): film strips of both models on the same pairs, and a GIF."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from figures import film_frames, style, visual_rows
from figures.catalog import Figure
from figures.film_frames import Rollout

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

TASKS = ("tworoom", "reacher")
#: Environment steps of the columns.
STEPS = (0, 10, 20, 30, 40, 50)
KAPPAS = (2.0, 1.0)
PAIRS = 2
SEED = 3072
#: Outline of a frame at or after which the environment counted the goal as attained.
RED = "#CC2936"
_NAMES = {1.0: "LeWM\n$κ = 1$", 2.0: "AnisoWM\n$κ = 2$"}


def data(rows: pd.DataFrame, tasks: Sequence[str]) -> pd.DataFrame:
    """Rows of the drawn pairs: both models on the same pairs and seed, at most two pairs of each task.

    Parameters
    ----------
    rows
        Rows of the films.
    tasks
        Which tasks.
    """
    parts = []
    for task in tasks:
        group = rows[(rows["task"] == task) & rows["kappa"].isin(KAPPAS)]
        cases = [
            set(map(tuple, group.loc[group["kappa"] == kappa, ["training_seed", "pair"]].to_numpy()))
            for kappa in KAPPAS
        ]
        shared = set.intersection(*cases)
        seeds = {seed for seed, _ in shared}
        if not shared:
            continue
        seed = SEED if SEED in seeds else min(seeds)
        pairs = sorted(pair for other, pair in shared if other == seed)[:PAIRS]
        parts.append(group[(group["training_seed"] == seed) & group["pair"].isin(pairs)])
    names = ["task", "kappa", "training_seed", "pair", "step", "outcome", "reached", "preset", "origin", "run"]
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=names)
    return frame.reindex(columns=names).sort_values(["task", "pair", "kappa", "step"]).reset_index(drop=True)


def drawer(tasks: Sequence[str]) -> Callable[[pd.DataFrame], MatplotlibFigure]:
    """What draws the strips of these tasks."""

    def draw(frame: pd.DataFrame) -> MatplotlibFigure:
        """One strip per task, pair and model."""
        return _draw(frame, tasks)

    return draw


def _draw(frame: pd.DataFrame, tasks: Sequence[str]) -> MatplotlibFigure:
    rollouts: list[Rollout] = frame.attrs.get("rollouts", [])
    strips: list[tuple[str, Rollout | None]] = []
    for task in tasks:
        mine = [rollout for rollout in rollouts if rollout.task == task]
        pairs = sorted({rollout.pair for rollout in mine})
        strips += [(task, r) for pair in pairs for kappa in KAPPAS for r in mine if (r.pair, r.kappa) == (pair, kappa)]
        if not mine:
            strips.append((task, None))
    with style.sheet():
        figure = style.new_figure(style.PAGE_WIDTH, 0.92 * len(strips) + 0.35)
        panels = figure.subplots(len(strips), len(STEPS) + 1, squeeze=False)
        for line, (task, rollout) in enumerate(strips):
            for column, axes in enumerate(panels[line]):
                axes.set_xticks([])
                axes.set_yticks([])
                axes.spines[:].set_visible(False)
                if line == 0:
                    axes.set_title("goal" if column == len(STEPS) else f"step {STEPS[column]}", loc="center")
                if rollout is not None:
                    _draw_frame(axes, rollout, column)
            title = visual_rows.TITLES[task]
            name = f"{title}: {visual_rows.NOT_RUN}"
            if rollout is not None:
                name = f"{title}\npair {rollout.pair}\n{_NAMES[rollout.kappa]}"
            panels[line, 0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=7)
        style.stamp(figure, frame["origin"].dropna())
    return figure


def _draw_frame(axes: Axes, rollout: Rollout, column: int) -> None:
    if column == len(STEPS):
        axes.imshow(rollout.goal, interpolation="nearest")
        return
    index = rollout.at(STEPS[column])
    axes.imshow(rollout.frames[index], interpolation="nearest")
    if rollout.reached[index]:
        axes.spines[:].set_visible(True)
        axes.spines[:].set_color(RED)
        axes.spines[:].set_linewidth(2.0)
    # An episode that ended before keeps its last frame.
    if STEPS[column] > rollout.steps[-1]:
        text = axes.text(0.04, 0.04, f"step {rollout.steps[-1]}", transform=axes.transAxes, fontsize=6.5)
        text.set_path_effects(style.halo())


def reader(tasks: Sequence[str]) -> Callable[[Path], pd.DataFrame]:
    """What reads the films of these tasks; the frames lie in ``attrs``."""

    def read(results: Path) -> pd.DataFrame:
        """Rows and frames of the films under ``results``."""
        frame = data(film_frames.films(results), tasks)
        frame.attrs["rollouts"] = film_frames.rollouts(results, frame)
        return frame

    return read


def filmer(tasks: Sequence[str], name: str) -> Callable[[Path], dict[str, bytes]]:
    """What makes a GIF of these tasks."""

    def film(results: Path) -> dict[str, bytes]:
        """One GIF, if there are films."""
        rollouts: list[Rollout] = reader(tasks)(results).attrs["rollouts"]
        return {f"{name}.gif": moving(rollouts)} if rollouts else {}

    return film


def moving(rollouts: Sequence[Rollout], size: int = 128, pause: int = 15) -> bytes:
    """A GIF: a column per task and pair, from top to bottom both models and the goal, outlined once it is attained.

    Parameters
    ----------
    rollouts
        Filmed pairs.
    size
        Height and width of a frame in pixels.
    pause
        Frames for which the last one stands still.
    """
    from PIL import Image

    cases = sorted({(visual_rows.TASKS.index(r.task), r.pair) for r in rollouts})
    last = max(int(rollout.steps[-1]) for rollout in rollouts)
    pictures = []
    for step in [*range(last + 1), *[last] * pause]:
        columns = []
        for task, pair in cases:
            mine = {r.kappa: r for r in rollouts if (visual_rows.TASKS.index(r.task), r.pair) == (task, pair)}
            tiles = [_tile(mine[kappa], mine[kappa].at(step), size) for kappa in KAPPAS if kappa in mine]
            tiles.append(_enlarge(next(iter(mine.values())).goal, size))
            columns.append(np.concatenate(tiles, axis=0))
        picture = Image.fromarray(np.concatenate(columns, axis=1))
        pictures.append(picture.quantize(128, dither=Image.Dither.NONE))
    buffer = io.BytesIO()
    pictures[0].save(buffer, "GIF", save_all=True, append_images=pictures[1:], duration=100, loop=0)
    return buffer.getvalue()


def _tile(rollout: Rollout, index: int, size: int) -> NDArray[np.uint8]:
    tile = _enlarge(rollout.frames[index], size)
    if rollout.reached[index]:
        tile = tile.copy()
        color = np.array([int(RED[place : place + 2], 16) for place in (1, 3, 5)], dtype=np.uint8)
        for edge in (np.s_[:4], np.s_[-4:], np.s_[:, :4], np.s_[:, -4:]):
            tile[edge] = color
    return tile


def _enlarge(frame: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    from PIL import Image

    return np.asarray(Image.fromarray(frame).resize((size, size), Image.Resampling.NEAREST))


def rollouts(name: str, tasks: tuple[str, ...]) -> Figure:
    """The figure of some tasks' rollouts."""
    titles = " and ".join(visual_rows.TITLES[task] for task in tasks)
    return Figure(
        name=name,
        caption=f"Rollouts in {titles}: κ = 2 and κ = 1 from the same start, with the same planner and seed, on the "
        "first two planning pairs that are not solved at the start. A red outline says that the goal was attained at "
        "that step or before. The GIF shows every stored step: κ = 2, κ = 1, goal from top to bottom.",
        needs=(visual_rows.FILM,),
        read=reader(tasks),
        draw=drawer(tasks),
        film=filmer(tasks, name),
    )


FIGURE = rollouts("fig12_rollouts", TASKS)

if __name__ == "__main__":
    FIGURE.render()
