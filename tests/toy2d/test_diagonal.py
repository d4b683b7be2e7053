"""Turned noise, full targets, and the sweeps that use them (docs/theory.md, T2 to T4).

Claims:
1. Turned noise has the axes, the ratio and the determinant it says, and leaves the state covariance stationary.
2. Training data have that noise; a planner's action still reaches the outcome it was asked for.
3. The sweep trains the same cases with both targets, on seeds that no setting was chosen on, and says which is which.
4. A setting that an earlier run did not have is named in its record only where it says something.
"""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from theory.regularizer import FullTarget
from toy2d import training
from toy2d.sweeps import diagonal_plan, fresh_plan, kappa_plan, run_sweep
from toy2d.system import STATE_CONDITION, ToySystem
from toy2d.training import Case, TrainSettings, train, training_batches

TURNED = ToySystem(0.5, noise_ratio=4.0, noise_angle=45.0)


@given(st.floats(0.01, 0.3), st.floats(1.0, 9.0), st.floats(-180, 180))
def test_turned_noise(sigma: float, ratio: float, angle: float) -> None:
    """Claim 1. Mutation: turn the other way, or leave the noise out of B."""
    system = ToySystem(sigma, noise_ratio=ratio, noise_angle=angle)
    along = np.array([math.cos(math.radians(angle)), math.sin(math.radians(angle))])
    np.testing.assert_allclose(system.noise_cov @ along, sigma**2 * math.sqrt(ratio) * along, atol=1e-12)
    assert np.linalg.det(system.noise_cov) == pytest.approx(sigma**4)
    following = 0.36 * system.state_cov + system.action_matrix @ system.action_matrix.T + system.noise_cov
    np.testing.assert_allclose(following, system.state_cov, atol=1e-12)


def test_noise_without_a_gain_is_refused() -> None:
    """Claim 1: just above the limit, where an eigenvalue of (1 − d²)Σ − Σ_w vanishes."""
    shape = ToySystem(0.1, noise_ratio=4.0, noise_angle=45.0).noise_cov / 0.01
    limit = math.sqrt(0.64 / np.linalg.eigvals(np.linalg.solve(TURNED.state_cov, shape)).real.max())
    ToySystem(0.999 * limit, noise_ratio=4.0, noise_angle=45.0)
    with pytest.raises(ValueError, match="noise_std must be below"):
        ToySystem(1.001 * limit, noise_ratio=4.0, noise_angle=45.0)
    with pytest.raises(ValueError, match=r"noise_ratio must be at least 1, but it is 0\.5"):
        ToySystem(0.1, noise_ratio=0.5)


def test_data_and_actions_of_turned_noise() -> None:
    """Claim 2. Mutation: transpose a factor in ``training_batches``, or drop ``below`` in ``solve_gain``."""
    batches = training_batches([Case(0, 0.5, noise_ratio=4.0, noise_angle=45.0)], 4096)
    noise, states = [], []
    for observed, action in islice(batches, 20):
        state, following = observed[0].split(4096)
        noise.append(following - TURNED.conditional_mean(state, action[0]))
        states.append(following)
    np.testing.assert_allclose(torch.cov(torch.cat(noise).T), TURNED.noise_cov, atol=0.006)
    np.testing.assert_allclose(torch.cov(torch.cat(states).T), TURNED.state_cov, atol=0.06)
    state, wanted = torch.randn(2, 20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(TURNED.conditional_mean(state, TURNED.action_for(state, wanted)), wanted)


def test_full_targets_are_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim 3: by the setting, and turned away from the axes. Mutation: ignore ``full_target``."""
    made: list[FullTarget] = []

    class Recorded(FullTarget):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr(training, "FullTarget", Recorded)
    cases = [Case(seed, 0.5, 3.0, noise_ratio=4.0, noise_angle=45.0) for seed in (10, 11)]
    train(cases, TrainSettings(steps=2, hidden=4))
    assert made == []
    train(cases, TrainSettings(steps=30, hidden=4, full_target=True))
    (target,) = made
    covariance = target.covariance().detach()
    assert (covariance[:, 0, 1].abs() > 1e-4).all()
    torch.testing.assert_close(covariance.diagonal(dim1=1, dim2=2).sum(1), torch.full((2,), 2.0))


def test_plans_and_rows() -> None:
    """Claim 3. Mutation: other cases for the full target, or seeds from 0."""
    (diagonal, cases), (full, same) = diagonal_plan().stacks
    assert cases == same
    assert (diagonal.full_target, full.full_target) == (False, True)
    assert {(case.kappa, case.noise_ratio) for case in cases} == {
        (STATE_CONDITION, 1.0),
        (2.0, 4.0),
        (STATE_CONDITION, 4.0),
    }
    assert {case.seed for case in cases} == set(range(10, 15))
    (settings, ends), (short, plateau) = fresh_plan().stacks
    assert (settings, short) == (kappa_plan().stacks[0][0], TrainSettings(steps=2000))
    assert {(case.sigma, case.kappa) for case in ends + plateau} == {(0.5, 1.0), (0.5, STATE_CONDITION), (0.01, 1.0)}
    rows = run_sweep(diagonal_plan(1, 2, hidden=4, lines=4), threads=1).rows
    assert rows["target"].tolist() == ["diagonal"] * 3 + ["full"] * 3
    assert rows["noise_ratio"].tolist() == [1.0, 4.0, 4.0] * 2
    assert rows["noise_angle"].tolist() == [0.0, 45.0, 45.0] * 2
    with pytest.raises(ValueError, match="kappas must not be empty"):
        diagonal_plan(kappas=())


def test_earlier_records_stay_equal() -> None:
    """Claim 4. Mutation: name every field."""
    stack = kappa_plan(1).settings()["stacks"][0]
    assert set(stack["cases"][0]) == {"seed", "sigma", "kappa", "observation"}
    assert "full_target" not in stack["training"]
    diagonal, full = diagonal_plan(1).settings()["stacks"]
    assert full["training"] == diagonal["training"] | {"full_target": True}
    assert diagonal["cases"][-1]["noise_angle"] == 45.0
