"""Claims about candidate sequences.

1. Same seed, same rows: a pair's sequences depend on the seed and the pair, not on how many pairs there are, and an
   execution does not depend on what was executed before.
2. The stored state is the one that executing the stored actions leads to, in every task; its outcome and its frame
   belong to it.
3. The recorded sequence is the recording's; random ones have the recorded actions' mean and spread; the cross-entropy
   method starts at the mean and descends the outcome, or a model's cost.
4. A finished run is read, another one in its folder is an error; bad budgets are one sentence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from visual_models import tiny_preset

from theory.runs import open_run, read_rows, read_run
from visual.candidates import (
    Budget,
    Candidates,
    Execution,
    action_block,
    candidates_folder,
    load_candidates,
    make_candidates,
    without_frames,
)
from visual.checkpoint import WorldModel, describe_model
from visual.data import open_recording
from visual.environments import open_world, quiet, read_columns, render, set_state
from visual.evaluation import action_scaling
from visual.manifest import Manifest
from visual.model import build_model
from visual.tasks import Task

Recorded = Callable[[str], tuple[Task, Manifest]]
SMALL = Budget(random=3, samples=8, elites=2, task_samples={}, task_elites={}, after=(1, 3), kept=3, goals=0, grid=3)
FEW = Budget(random=1, samples=2, elites=2, task_samples={}, task_elites={}, after=(1,), kept=1, goals=0, grid=3)


def make(manifest: Manifest, task: Task, folder: Path, budget: Budget = SMALL, **changes: Any) -> Candidates:
    return make_candidates(folder, task, open_recording(manifest), "quick", budget=budget, **changes)


def model_of(manifest: Manifest, **changes: Any) -> WorldModel:
    preset = tiny_preset(**{"image_size": 64, "encoder_patch": 32, **changes})
    return describe_model(build_model(preset, 2, seed=0).eval().requires_grad_(False))


def test_same_seed_same_rows(short_recording: Recorded, tmp_path: Path) -> None:
    """Claims 1 and 4. Mutation: draw random sequences of all pairs from one stream, or drop the reset."""
    task, manifest = short_recording("tworoom")
    two = make(manifest, task, tmp_path / "two", cases=2)
    one = make(manifest, task, tmp_path / "one", cases=1)
    other = make(manifest, task, tmp_path / "other", cases=1, seed=1)
    assert two.actions.shape == (2, 10, task.horizon, 2)
    assert two.sources == ("recorded", *["random"] * 3, *["cem-1"] * 3, *["cem-3"] * 3)
    for name in ("actions", "frames", "outcomes"):
        np.testing.assert_array_equal(getattr(two, name)[:1], getattr(one, name))
    assert not np.array_equal(two.actions[0], two.actions[1])
    np.testing.assert_array_equal(other.actions[0, 0], one.actions[0, 0])
    assert (other.actions[0, 1:4] != one.actions[0, 1:4]).all()
    rows = read_rows(tmp_path / "two")
    assert list(rows["sequence"]) == [*range(10), *range(10)]
    assert set(rows["origin"]) == {"measured"}
    assert list(rows.groupby("pair")["already_solved"].first()) == list(manifest.pairs.already_solved[:2])

    started = read_run(tmp_path / "one").started
    again = make(manifest, task, tmp_path / "one", cases=1)
    assert read_run(tmp_path / "one").started == started
    assert again.sha256 == one.sha256
    np.testing.assert_array_equal(again.states["state"], one.states["state"])
    with pytest.raises(ValueError, match="holds a run with cases = 1, not 2"):
        make(manifest, task, tmp_path / "one", cases=2)
    with pytest.raises(ValueError, match=r"cases must lie in 1\.\."):
        make(manifest, task, tmp_path / "none", cases=10_000)


@pytest.mark.parametrize("name", ["tworoom", "reacher", "pusht", "cube"])
def test_stored_ends_are_where_the_actions_lead(name: str, short_recording: Recorded, tmp_path: Path) -> None:
    """Claim 2. Mutation: store the state before the last action, or score against the start."""
    task, manifest = short_recording(name)
    recording = open_recording(manifest)
    found = make(manifest, task, tmp_path, FEW, cases=1)
    starts, goals = recording.rows_of(manifest.pairs)
    states = recording.read_state(task, np.array([starts[0], goals[0]]))
    start, goal = ({key: values[index] for key, values in states.items()} for index in (0, 1))
    np.testing.assert_array_equal(found.outcomes, task.outcome(found.states, goal))
    with quiet(), open_world(task, pixels=False) as world:
        for sequence in reversed(range(len(found.sources))):
            world.reset(seed=0)
            set_state(world, task, start)
            for action in found.actions[0, sequence]:
                _, _, _, _, world.infos = world.envs.step(action[None])
            reached = read_columns(task, world.infos)
            for column in task.columns:
                np.testing.assert_allclose(found.states[column][0, sequence], reached[column], atol=1e-6)
    # The frame is that of the reached state, drawn as the recording draws.
    recorded = recording.read("pixels", slice(starts[0] + task.horizon, starts[0] + task.horizon + 1))[0]
    assert np.abs(found.frames[0, 0].astype(float) - recorded).mean() < 3.0
    others = [np.abs(frame.astype(float) - recorded).mean() for frame in found.frames[0, 1:]]
    assert np.abs(found.frames[0, 0].astype(float) - recorded).mean() < min(others)


def test_executions_do_not_depend_on_each_other(short_recording: Recorded) -> None:
    """Claim 1. Mutation: leave the goal or the contacts of an earlier execution."""
    task, manifest = short_recording("pusht")
    recording = open_recording(manifest)
    starts, goals = recording.rows_of(manifest.pairs)
    states = recording.read_state(task, np.array([starts[0], goals[0]]))
    start, goal = ({key: values[index] for key, values in states.items()} for index in (0, 1))
    plans = np.random.default_rng(0).uniform(-1, 1, (2, task.horizon, 2)).astype(np.float32)
    with quiet(), open_world(task) as world:
        execution = Execution(task, world)
        first, _, third = (execution.run(0, start, goal, plans[index], draw=index == 0) for index in (0, 1, 0))
        np.testing.assert_array_equal(first.state["state"], third.state["state"])
        assert first.frame is not None
        np.testing.assert_array_equal(first.frame, third.frame)
        with without_frames(world):
            world.reset(seed=0)
            assert not world.infos["pixels"].any()
        assert render(world).any()


def test_where_sequences_come_from(short_recording: Recorded, tmp_path: Path) -> None:
    """Claim 3. Mutation: keep the best candidates instead of the first, or forget to scale actions back."""
    task, manifest = short_recording("tworoom")
    recording = open_recording(manifest)
    scaling = action_scaling(None, recording)
    budget = Budget(random=40, samples=8, elites=2, task_samples={}, task_elites={}, after=(1, 4), kept=8, goals=0)
    found = make(manifest, task, tmp_path / "outcome", budget, cases=1)
    starts, _ = recording.rows_of(manifest.pairs)
    np.testing.assert_array_equal(found.actions[0, 0], recording.read("action", slice(starts[0], starts[0] + 20)))
    random = scaling.transform(found.actions[0, 1:41])
    assert abs(random.mean()) < 0.1
    assert random.std() == pytest.approx(1.0, abs=0.05)
    np.testing.assert_allclose(found.actions[0, 41], np.broadcast_to(scaling.mean, (20, 2)), atol=1e-6)
    assert found.outcomes[0, 49:].mean() < found.outcomes[0, 41:49].mean()
    kept = make(manifest, task, tmp_path / "kept", SMALL, cases=1)
    np.testing.assert_array_equal(kept.actions[0, 4:7], found.actions[0, 41:44])

    model = model_of(manifest)
    theirs = make(manifest, task, tmp_path / "model", SMALL, cases=1, model=model, model_sha256="abc")
    np.testing.assert_array_equal(theirs.actions[0, :4], kept.actions[0, :4])
    assert (theirs.actions[0, 7:] != kept.actions[0, 7:]).any()
    assert str(candidates_folder("o", "tworoom", "laptop", "x")) == "o/tworoom/candidates-laptop-x"
    with pytest.raises(ValueError, match="candidates_from"):
        make(manifest, task, tmp_path / "model", SMALL, cases=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"random": 0}, "candidates.random must be a positive integer"),
        ({"elites": 1}, "elites ≥ 2"),
        ({"kept": 33}, "33 kept must lie within 32 samples"),
        ({"task_samples": {"cube": 4}}, "8 kept must lie within 4 samples"),
        ({"after": (2, 1)}, "ascending iterations"),
        ({"after": 5}, "candidates.after must be a list of iterations, but it is 5"),
        ({"after": None}, "candidates.after must be a list"),
        ({"task_samples": 3}, "candidates.task_samples must give numbers by task, but it is 3"),
        ({"grid": 4}, "must be odd"),
        ({"goals": -1}, "candidates.goals"),
    ],
)
def test_bad_budgets(changes: dict[str, Any], message: str) -> None:
    """Claim 4. Mutation: check the defaults only."""
    with pytest.raises(ValueError, match=message):
        Budget(**changes)
    with pytest.raises(ValueError, match="no setting speed"):
        Budget.from_mapping({"speed": 1})


def test_models_must_fit(short_recording: Recorded) -> None:
    """Claim 4. Mutation: let a plan end in the middle of a block."""
    task, manifest = short_recording("tworoom")
    recording = open_recording(manifest)
    assert action_block(task, model_of(manifest), recording) == 5
    with pytest.raises(ValueError, match="takes 16 px"):
        action_block(task, model_of(manifest, image_size=16, encoder_patch=8), recording)
    with pytest.raises(ValueError, match="no multiple of the model's blocks of 3"):
        action_block(task, model_of(manifest, frameskip=3), recording)
    stranger = dataclasses.replace(model_of(manifest), card={"task": "reacher"})
    with pytest.raises(ValueError, match="was trained on the task 'reacher', not on 'tworoom'"):
        action_block(task, stranger, recording)


def test_published_rows_are_no_candidates(tmp_path: Path) -> None:
    """Their actions and frames stayed behind. Mutation: open the archive whatever the record says."""
    with open_run(tmp_path, {}) as run:
        run.write_rows(pd.DataFrame({"pair": [0], "sequence": [0]}))
    with pytest.raises(ValueError, match="without their actions and frames; execute them again with force_candidates"):
        load_candidates(tmp_path)
