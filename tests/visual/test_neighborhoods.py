"""Claims about grids of states around goals.

1. A grid is the goal's state with two coordinates moved, at rest; its middle cell is the goal, looks like it, and has
   outcome 0.
2. A cell is valid exactly if the simulator keeps it: not behind TwoRoom's border.
3. Goals are the first unsolved pairs of different episodes.
4. ρ is 1 for latents that are the physical coordinates, whatever stands in cells that are not valid, and −1 for costs
   that fall with distance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from visual.candidates import without_frames
from visual.data import open_recording
from visual.environments import open_world, quiet
from visual.manifest import Manifest
from visual.neighborhoods import Grids, draw_grids, grid_states, neighborhood_rows
from visual.tasks import CUBE, TASKS, Axis, Neighborhood, Task

Recorded = Callable[[str], tuple[Task, Manifest]]


def planted(size: int = 5, goals: int = 2) -> Grids:
    steps = np.linspace(-2.0, 2.0, size)
    first = np.broadcast_to(steps[None, None, :], (goals, size, size)) + 10.0
    second = np.broadcast_to(steps[None, :, None], (goals, size, size)) - 3.0
    valid = np.ones((goals, size, size), dtype=bool)
    valid[:, 0, :] = False
    return Grids(
        pairs=np.arange(goals) + 7,
        first=first,
        second=second,
        task_costs=np.hypot(first - 10.0, second + 3.0),
        valid=valid,
        frames=np.zeros((goals, size, size, 2, 2, 3), dtype=np.uint8),
    )


@pytest.mark.parametrize("name", sorted(TASKS))
def test_grids_move_two_coordinates(name: str) -> None:
    """Claim 1. Mutation: swap the axes, or leave velocities."""
    task = TASKS[name]
    neighborhood = task.neighborhood
    assert neighborhood is not None
    lengths = {"state": 7 if name == "pusht" else 2, "qpos": 21 if name == "cube" else 2, "qvel": 20}
    generator = np.random.default_rng(0)
    goal = {column: generator.normal(size=lengths.get(column, 3)) for column in task.columns}
    states = grid_states(task, goal, 5)
    parts = {(axis, part) for axis in (0, 1) for part in (neighborhood.first, neighborhood.second)[axis].parts}
    for column, values in goal.items():
        still = np.zeros(len(values), dtype=bool)
        if column in neighborhood.still:
            still[neighborhood.still[column]] = True
        for index, value in enumerate(values):
            moved = [axis for axis, part in parts if part == (column, index)]
            centre = states[column][2, 2, index]
            assert centre == (0.0 if still[index] else value)
            if not moved:
                assert (states[column][..., index] == centre).all()
            else:
                axis = (neighborhood.first, neighborhood.second)[moved[0]]
                line = states[column][2, :, index] if moved[0] == 0 else states[column][:, 2, index]
                np.testing.assert_allclose(line, value + np.linspace(-1, 1, 5) * axis.half_width)
    assert task.outcome(states, goal)[2, 2] == 0.0
    assert (np.delete(task.outcome(states, goal).ravel(), 12) > 0).all()
    with pytest.raises(ValueError, match="does not say which coordinates"):
        grid_states(dataclasses.replace(task, neighborhood=None), goal, 5)


@pytest.mark.parametrize("name", ["tworoom", "reacher", "pusht", "cube"])
def test_the_goal_cell_looks_like_the_goal(name: str, short_recording: Recorded) -> None:
    """Claims 1 and 3. Mutation: draw after the null action, or set the state of the start."""
    task, manifest = short_recording(name)
    recording = open_recording(manifest)
    with quiet(), open_world(task, fast_rendering=manifest.settings["fast_rendering"]) as world:
        grids = draw_grids(world, task, recording, manifest.pairs, 2, 3, without_frames)
    assert grids is not None
    pairs = manifest.pairs
    expected: list[int] = []
    for pair in range(len(pairs)):
        if not pairs.already_solved[pair] and pairs.episode[pair] not in [pairs.episode[other] for other in expected]:
            expected.append(pair)
    assert list(grids.pairs) == expected[:2]
    goal = recording.read("pixels", recording.rows_of(pairs)[1][grids.pairs[:1]])[0].astype(float)
    distances = np.abs(grids.frames[0] - goal).mean(axis=(2, 3, 4))
    assert distances[1, 1] < 1.0
    assert np.argmin(distances) == 4
    np.testing.assert_allclose(grids.task_costs[0, 1, 1], 0.0, atol=1e-9)


def test_cells_that_the_simulator_does_not_keep(short_recording: Recorded, tmp_path: Path) -> None:
    """Claim 2. Mutation: take every cell as valid, or compare with the goal instead of the cell."""
    task, manifest = short_recording("tworoom")
    wide = Neighborhood(Axis("x", "px", (("state", 0),), 120.0), Axis("y", "px", (("state", 1),), 30.0))
    task = dataclasses.replace(task, neighborhood=wide)
    with quiet(), open_world(task) as world:
        grids = draw_grids(world, task, open_recording(manifest), manifest.pairs, 1, 9, without_frames)
    assert grids is not None
    # The border ends 14 px from the edge of 224 px, the agent has a radius of 7 px; a step of the grid is 30 px wide.
    outside = (grids.first < 14) | (grids.first > 210) | (grids.second < 14) | (grids.second > 210)
    assert outside.any()
    assert not grids.valid[outside].any()
    free = (np.abs(grids.first - 112) > 20) & (grids.first > 21) & (grids.first < 203)
    free &= (grids.second > 21) & (grids.second < 203)
    assert grids.valid[free].all()
    grids.write(tmp_path / "grids.npz")
    stored = Grids.read(tmp_path / "grids.npz")
    for name, values in vars(grids).items():
        np.testing.assert_array_equal(getattr(stored, name), values)


def test_rank_correlation_of_planted_latents() -> None:
    """Claim 4. Mutation: correlate over all cells, or take the distance from the middle of the latents."""
    grids = planted()
    latents = np.stack([grids.first, grids.second, np.zeros_like(grids.first)], axis=-1)
    goals = np.array([[10.0, -3.0, 0.0]] * 2)
    garbled = latents.copy()
    garbled[~grids.valid] = np.random.default_rng(0).normal(size=(10, 3))
    rows, rho = neighborhood_rows(grids, garbled, goals)
    assert rho == [pytest.approx(1.0)] * 2
    assert neighborhood_rows(grids, 1 / (latents - goals[:, None, None] + 0.1), [[0.0] * 3] * 2)[1] != rho
    far = np.stack([np.exp(-grids.task_costs)], axis=-1)
    assert neighborhood_rows(grids, far, [[0.0]] * 2)[1] == [pytest.approx(-1.0)] * 2
    assert list(rows["pair"].unique()) == [7, 8]
    cell = rows[(rows["pair"] == 8) & (rows["row"] == 3) & (rows["column"] == 1)].iloc[0]
    assert (cell["first"], cell["second"]) == (9.0, -2.0)
    assert cell["latent_cost"] == pytest.approx(2.0)
    assert rows.groupby("row")["valid"].all().tolist() == [False, True, True, True, True]
    assert np.isnan(neighborhood_rows(grids, np.zeros((2, 5, 5, 3)), goals * 0)[1]).all()


def test_cube_moves_the_block_and_its_reported_place() -> None:
    """Claim 1. Mutation: move qpos alone, so that the outcome stays 0."""
    assert CUBE.neighborhood is not None
    for axis, index in ((CUBE.neighborhood.first, 0), (CUBE.neighborhood.second, 1)):
        assert axis.parts == (("qpos", 14 + index), ("privileged_block_0_pos", index))
