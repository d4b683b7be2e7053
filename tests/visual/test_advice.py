"""The forecast from logged states: against a linear system with known covariances, and the tasks' scaled states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from theory.regret import best_kappa, regret_curve
from theory.runs import read_rows
from visual.advice import KAPPAS, advise, describe, run
from visual.data import open_recording
from visual.tasks import TASKS, TWOROOM

DYNAMICS, NOISE = np.array([0.85, 0.3]), np.array([0.02, 0.3])
#: Of x' = DYNAMICS x + w.
STATIONARY = NOISE / (1 - DYNAMICS**2)


@pytest.fixture
def linear(write_file: Callable[..., Path]) -> Path:
    """x' = DYNAMICS x + w every row, in pixels (16 to a unit), 60 episodes of 60 rows and one of 3."""
    generator = np.random.default_rng(4)
    states = []
    lengths = (*[60] * 60, 3)
    for length in lengths:
        state = np.sqrt(STATIONARY) * generator.normal(size=2)
        for _ in range(length):
            states.append(state)
            state = DYNAMICS * state + np.sqrt(NOISE) * generator.normal(size=2)
    return write_file(lengths, columns={"state": 16 * np.array(states)})


def test_the_forecast_is_that_of_the_true_covariances(linear: Path) -> None:
    rows = advise(TWOROOM, open_recording(linear), frameskip=1, draws=100)
    truth = regret_curve(np.diag(STATIONARY), np.diag(NOISE), KAPPAS)
    assert rows["kappa"].tolist() == list(KAPPAS)
    np.testing.assert_allclose(rows["mean_regret"], truth["mean_regret"], rtol=0.25, atol=0.02)
    assert ((rows["low"] <= rows["mean_regret"]) & (rows["mean_regret"] <= rows["high"])).all()
    assert rows["best_low"].iloc[0] <= rows["best_kappa"].iloc[0] <= rows["best_high"].iloc[0]


def test_a_noisy_wide_coordinate_asks_for_a_wide_target(write_file: Callable[..., Path]) -> None:
    """The wide coordinate is also the noisy one: T7 has its minimum where κ undoes the ratio of variances."""
    generator = np.random.default_rng(0)
    states = []
    for length in [80] * 40:
        state = np.zeros(2)
        for _ in range(length):
            states.append(state)
            # Variances 1 and 9; relative noise 0.19 and 0.75: the low one is predicted better.
            state = np.array([0.9, 0.5]) * state + np.sqrt([0.19, 9 * 0.75]) * generator.normal(size=2)
    recording = open_recording(write_file([80] * 40, columns={"state": 16 * np.array(states)}))
    rows = advise(TWOROOM, recording, frameskip=1, draws=50)
    truth = best_kappa(np.diag([1.0, 9.0]), np.diag([0.19, 6.75]))
    assert rows["best_kappa"].iloc[0] == pytest.approx(truth.kappa, rel=0.2)
    assert "the best κ is" in describe(rows)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_outcome_is_a_norm_of_the_scaled_difference(name: str, short_recording: Any) -> None:
    """Between |d|_∞ and |d|_2 in units of the threshold, whatever norm the task takes.

    Mutation: another threshold in ``scaled_state`` than in ``outcome``.
    """
    task, manifest = short_recording(name)
    states = open_recording(manifest).read_state(task)
    first, second = (
        {column: values[rows] for column, values in states.items()} for rows in (slice(0, 20), slice(25, 45))
    )
    difference = task.scaled_state(first) - task.scaled_state(second)
    for coordinate, period in task.scaled_periods.items():
        difference[:, coordinate] = (difference[:, coordinate] + period / 2) % period - period / 2
    outcome = task.outcome(first, second)
    assert (outcome >= np.abs(difference).max(axis=-1) - 1e-9).all()
    assert (outcome <= np.linalg.norm(difference, axis=-1) + 1e-9).all()


def test_angles_are_unwrapped_within_an_episode(write_file: Callable[..., Path]) -> None:
    """The same turning block, recorded as it is and wrapped to one turn, gives the same forecast."""
    generator = np.random.default_rng(2)
    lengths = (40,) * 12
    walk = np.cumsum(generator.normal(size=(sum(lengths), 7)) * np.array([3, 3, 2, 2, 0.3, 1, 1]), axis=0)
    walk[:, :4] = 250 + 60 * np.sin(walk[:, :4] / 25)
    for start in range(0, len(walk), 40):
        walk[start : start + 40, 4] += -walk[start, 4]
    wrapped = walk.copy()
    wrapped[:, 4] %= 2 * np.pi
    # One turn more or less in a whole episode is no difference either.
    files = [write_file(lengths, columns={"state": states}, name=f"{i}.h5") for i, states in enumerate((walk, wrapped))]
    rows = [advise("pusht", open_recording(file), draws=50) for file in files]
    np.testing.assert_allclose(rows[0]["mean_regret"], rows[1]["mean_regret"], rtol=1e-9)


def test_the_run_lies_beside_the_models_and_is_not_computed_twice(
    linear: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run("tworoom", data=linear, out=tmp_path)
    assert folder == tmp_path / "tworoom/advice-laptop"
    rows = read_rows(folder)
    assert set(rows["origin"]) == {"measured"}
    first = capsys.readouterr().out
    run("tworoom", data=linear, out=tmp_path)
    second = capsys.readouterr().out
    assert "nothing to do" in second
    assert second.splitlines()[-1] == first.splitlines()[-1]


def test_bad_input_gets_one_sentence(write_file: Callable[..., Path]) -> None:
    recording = open_recording(write_file())
    with pytest.raises(ValueError, match="frameskip must be at least 1"):
        advise("tworoom", recording, frameskip=0)
    with pytest.raises(ValueError, match="no training episode of more than 99 rows"):
        advise("tworoom", recording, frameskip=99)
    with pytest.raises(ValueError, match="no column 'qpos'"):
        advise("reacher", recording)
