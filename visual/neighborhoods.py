"""Does latent distance grow with distance from the goal? Grids of states around goals, and the latent cost over them.

Around a goal two physical coordinates vary over a grid (``Task.neighborhood``) and the rest of the state stands still
as it was at the goal. Each cell is set in the simulator, drawn, and later encoded by each model; Spearman's ρ compares
its latent cost ‖enc(cell) − enc(goal)‖² with its outcome. A cell is valid if the simulator keeps it: after one null
action both coordinates are where they were put, up to a quarter of a cell. Walls and other bodies push out the rest.

Goals are chosen by rule: the first pairs, in the order of evaluation, that are not solved at the start, come from
different episodes, and have at least half of their cells valid.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from theory.ordering import rank_correlation
from visual.environments import read_columns, render, set_state
from visual.manifest import Pairs
from visual.reading import Recording
from visual.tasks import Columns, Task

if TYPE_CHECKING:
    from stable_worldmodel import World

GRIDS_FILE = "grids.npz"
VALID_SHARE = 0.5
_KEPT = 0.25


@dataclass(frozen=True)
class Grids:
    """Grids of G goals, n × n cells each; the goal is the middle cell. Rows vary ``second``, columns ``first``.

    Attributes
    ----------
    pairs
        Planning pair of each goal, (G,).
    first, second
        Physical coordinates of each cell, (G, n, n).
    task_costs
        ``Task.outcome`` of each cell against the goal, (G, n, n).
    valid
        Whether the simulator keeps the cell, (G, n, n).
    frames
        (G, n, n, H, H, 3) uint8.
    """

    pairs: NDArray[np.int64]
    first: NDArray[np.float64]
    second: NDArray[np.float64]
    task_costs: NDArray[np.float64]
    valid: NDArray[np.bool_]
    frames: NDArray[np.uint8]

    def write(self, path: Path) -> None:
        """Store as ``.npz``."""
        np.savez_compressed(path, **vars(self))

    @classmethod
    def read(cls, path: Path) -> Grids:
        """Read what :meth:`write` stored."""
        with np.load(path) as stored:
            return cls(**{name: stored[name] for name in stored.files})


def grid_states(task: Task, goal: Columns, size: int) -> dict[str, NDArray[Any]]:
    """States (n, n, …) by column on a grid around ``goal`` (one row of each state column).

    Raises
    ------
    ValueError
        If the task names no neighbourhood.
    """
    neighborhood = task.neighborhood
    if neighborhood is None:
        raise ValueError(f"{task.title} does not say which coordinates span a neighbourhood.")
    columns = {name: np.broadcast_to(goal[name], (size, size, *np.shape(goal[name]))).copy() for name in task.columns}
    for name, entries in neighborhood.still.items():
        columns[name][..., entries] = 0.0
    steps = np.linspace(-1.0, 1.0, size)
    for axis, offsets in ((neighborhood.first, steps[None, :]), (neighborhood.second, steps[:, None])):
        for name, index in axis.parts:
            columns[name][..., index] += axis.half_width * offsets
    return columns


def draw_grids(
    world: World,
    task: Task,
    recording: Recording,
    pairs: Pairs,
    goals: int,
    size: int,
    silently: Callable[[World], contextlib.AbstractContextManager[None]],
) -> Grids | None:
    """Draw the grids of the first ``goals`` goals that the rule admits; ``None`` if there is none.

    Parameters
    ----------
    world
        A simulator of the task that draws frames as the recording does.
    task, recording, pairs
        The task, its recording and planning pairs.
    goals, size
        Number of goals; cells per side.
    silently
        Within ``silently(world)``, resets and steps draw nothing.
    """
    if task.neighborhood is None or goals < 1:
        return None
    rows = recording.rows_of(pairs)[1]
    found: list[tuple[Any, ...]] = []
    episodes: set[int] = set()
    for pair in range(len(pairs)):
        if len(found) == goals:
            break
        if pairs.already_solved[pair] or pairs.episode[pair] in episodes:
            continue
        goal = {name: values[0] for name, values in recording.read_state(task, rows[pair : pair + 1]).items()}
        states = grid_states(task, goal, size)
        valid, frames = _draw(world, task, pair, states, silently)
        if valid.mean() < VALID_SHARE:
            continue
        episodes.add(pairs.episode[pair])
        name, index = task.neighborhood.first.parts[0]
        other, place = task.neighborhood.second.parts[0]
        found.append(
            (pair, states[name][..., index], states[other][..., place], task.outcome(states, goal), valid, frames)
        )
    if not found:
        return None
    columns = [np.stack(values) for values in zip(*found, strict=True)]
    return Grids(
        pairs=columns[0].astype(np.int64),
        first=columns[1].astype(np.float64),
        second=columns[2].astype(np.float64),
        task_costs=columns[3].astype(np.float64),
        valid=columns[4],
        frames=columns[5],
    )


def _draw(
    world: World,
    task: Task,
    pair: int,
    states: Columns,
    silently: Callable[[World], contextlib.AbstractContextManager[None]],
) -> tuple[NDArray[np.bool_], NDArray[np.uint8]]:
    neighborhood = task.neighborhood
    assert neighborhood is not None
    size = len(next(iter(states.values())))
    still = np.zeros((1, *world.envs.single_action_space.shape), dtype=np.float32)
    valid = np.empty((size, size), dtype=bool)
    frames = []
    for cell in np.ndindex(size, size):
        state = {name: values[cell] for name, values in states.items()}
        with silently(world):
            world.reset(seed=pair)
        set_state(world, task, state)
        frames.append(render(world))
        with silently(world):
            _, _, _, _, world.infos = world.envs.step(still)
        after = read_columns(task, world.infos)
        valid[cell] = all(
            abs(float(after[name][index]) - float(state[name][index])) <= _KEPT * 2 * axis.half_width / (size - 1)
            for axis in (neighborhood.first, neighborhood.second)
            for name, index in axis.parts[:1]
        )
    return valid, np.stack(frames).reshape(size, size, *frames[0].shape)


def neighborhood_rows(grids: Grids, latents: ArrayLike, goals: ArrayLike) -> tuple[pd.DataFrame, list[float]]:
    """One row per cell, and Spearman's ρ of latent and task cost over the valid cells of each goal.

    Parameters
    ----------
    grids
        The grids.
    latents
        Features of the cells, (G, n, n, D).
    goals
        Features of the goals, (G, D).

    Returns
    -------
    rows
        ``pair``, ``row``, ``column``, ``first``, ``second``, ``task_cost``, ``latent_cost``, ``valid``.
    rho
        ρ of each goal, nan where no two valid cells differ.
    """
    difference = np.asarray(latents, dtype=np.float64) - np.asarray(goals, dtype=np.float64)[:, None, None, :]
    costs = np.square(difference).sum(axis=-1)
    goal, row, column = (index.reshape(-1) for index in np.indices(costs.shape))
    rows = pd.DataFrame(
        {
            "pair": grids.pairs[goal],
            "row": row,
            "column": column,
            "first": grids.first.reshape(-1),
            "second": grids.second.reshape(-1),
            "task_cost": grids.task_costs.reshape(-1),
            "latent_cost": costs.reshape(-1),
            "valid": grids.valid.reshape(-1),
        }
    )
    rho = [
        rank_correlation(cost[valid], outcome[valid])
        for cost, outcome, valid in zip(costs, grids.task_costs, grids.valid, strict=True)
    ]
    return rows, rho
