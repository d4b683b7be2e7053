"""Linear systems: stationary covariance, prediction and reachable sets.

1. The stationary covariance solves its equation and is the limit of the covariance run forward; unstable A is refused.
2. Multi-step prediction is the recursion's conditional mean, also for stacked states.
3. Each reachable set holds what its actions reach, and no more: its support function is the best that actions can do.
4. The affine set has the dimension of the controllable subspace, however many actions there are.
5. With a horizon shorter than the state dimension, exact prediction has positive regret, and the best κ removes it.
6. Wrong input is refused in one sentence.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import dims, random_spd, seeds

from theory.metric import anisotropic_metric
from theory.reachable import AffineSet, Ellipsoid, LinearSystem, Zonotope
from theory.regret import finite_horizon_example, planning_regret, worst_regret
from theory.target import optimal_target, relative_noise

Array = NDArray[np.float64]


@st.composite
def systems(draw: st.DrawFn, maximum: int = 12) -> tuple[np.random.Generator, LinearSystem]:
    """A stable system of spectral radius 0.1 to 0.99, with one to three actions."""
    rng = np.random.default_rng(draw(seeds()))
    dim, actions = draw(dims(1, maximum)), draw(st.integers(1, 3))
    dynamics = rng.standard_normal((dim, dim))
    dynamics *= draw(st.floats(0.1, 0.99)) / np.abs(np.linalg.eigvals(dynamics)).max()
    return rng, LinearSystem(dynamics, rng.standard_normal((dim, actions)), random_spd(rng, dim, 1e3))


@given(systems(), st.booleans())
def test_stationary_covariance_is_a_fixed_point(pair: tuple[np.random.Generator, LinearSystem], idle: bool) -> None:
    """Σ = AΣAᵀ + BΣ_aBᵀ + Σ_w, and 4,000 steps of covariance from zero end there.

    Mutation: pass Aᵀ to the Lyapunov solver, or leave out the actions' covariance.
    """
    rng, system = pair
    action_cov = np.zeros((system.action_dim,) * 2) if idle else random_spd(rng, system.action_dim, 1e2)
    covariance = system.stationary_covariance(action_cov)
    forcing = system.B @ action_cov @ system.B.T + system.noise_cov
    size = np.linalg.norm(covariance)
    assert np.linalg.norm(system.A @ covariance @ system.A.T + forcing - covariance) <= 1e-10 * size
    # Smith's doubling: after j rounds it is the covariance after 2^j steps.
    power, running = system.A, forcing
    for _ in range(12):
        running, power = running + power @ running @ power.T, power @ power
    assert np.linalg.norm(running - covariance) <= 1e-8 * size
    assert np.linalg.eigvalsh(covariance)[0] > 0


def test_stationary_covariance_of_simulated_states() -> None:
    """Sample covariance of 200,000 simulated steps, within five standard errors.

    Mutation: use Σ_w twice.
    """
    rng = np.random.default_rng(0)
    system = LinearSystem([[0.5, 0.2], [-0.1, 0.3]], [[1.0], [0.5]], [[0.4, 0.1], [0.1, 0.2]])
    noise = rng.multivariate_normal([0, 0], system.noise_cov, size=(400, 520))
    actions = 1.5 * rng.standard_normal((400, 520, 1))
    state, samples = np.zeros((400, 2)), []
    for step in range(520):
        state = system.predict(state, actions[:, step : step + 1])[:, 0] + noise[:, step]
        if step >= 20:
            samples.append(state)
    products = np.einsum("sni,snj->nij", np.array(samples), np.array(samples)) / len(samples)
    error = products.std(axis=0, ddof=1) / np.sqrt(len(products))
    assert (np.abs(products.mean(axis=0) - system.stationary_covariance([[2.25]])) < 5 * error).all()


@given(systems(), st.integers(1, 6))
def test_prediction_is_the_recursion(pair: tuple[np.random.Generator, LinearSystem], horizon: int) -> None:
    """Claim 2: predict = A^h x₀ + [A^{h−1}B, …, B](a_0, …, a_{h−1}) at every step, one state or a stack.

    Mutation: order the controllability blocks from B to A^{H−1}B, or apply Aᵀ.
    """
    rng, system = pair
    states = rng.standard_normal((5, system.dim))
    actions = rng.standard_normal((5, horizon, system.action_dim))
    means = system.predict(states, actions)
    assert means.shape == (5, horizon, system.dim)
    for index in range(5):
        np.testing.assert_allclose(system.predict(states[index], actions[index]), means[index], rtol=1e-12, atol=1e-12)
        for step in range(1, horizon + 1):
            direct = np.linalg.matrix_power(system.A, step) @ states[index]
            direct = direct + system.controllability(step) @ actions[index, :step].ravel()
            np.testing.assert_allclose(means[index, step - 1], direct, rtol=1e-9, atol=1e-9)


@given(systems(maximum=6), st.integers(1, 4), st.data())
def test_reachable_sets_hold_what_actions_reach(
    pair: tuple[np.random.Generator, LinearSystem], horizon: int, data: st.DataObject
) -> None:
    """Admissible actions end in the set: the predicted mean is its own nearest point, so that the goal is reachable.

    Mutation: scale the energy ellipsoid by E instead of √E (seen for E < 1), or forget A^H x₀.
    """
    rng, system = pair
    state = rng.standard_normal(system.dim)
    actions = rng.standard_normal((horizon, system.action_dim))
    bound = data.draw(st.sampled_from([0.04, 1.0, 9.0]))
    kind = data.draw(st.sampled_from(["affine", "energy", "box"]))
    if kind == "energy":
        actions *= np.sqrt(bound) / np.linalg.norm(actions)
    elif kind == "box":
        actions = np.clip(actions * bound, -bound, bound)
    goal = system.predict(state, actions)[-1]
    reachable = system.reachable_set(state, horizon, None if kind == "affine" else bound, kind)
    nearest = reachable.nearest(goal, random_spd(rng, system.dim, 1e2))
    assert np.abs(nearest - goal).max() <= 1e-8 * (1 + np.abs(goal).max() + reachable.magnitude)


@given(systems(maximum=5), st.integers(1, 3), st.floats(0.1, 10.0))
def test_bounded_sets_hold_no_more(pair: tuple[np.random.Generator, LinearSystem], horizon: int, bound: float) -> None:
    """The farthest point along q is what the best admissible actions reach: a corner of the box, or along Cᵀq.

    Mutation: scale generators or root by 1.01, or bound each step's energy instead of their sum.
    """
    rng, system = pair
    state, direction = rng.standard_normal(system.dim), rng.standard_normal(system.dim)
    limits = bound * rng.uniform(0.5, 2, system.action_dim)
    box = system.reachable_set(state, horizon, limits, "box")
    assert isinstance(box, Zonotope)
    corners = itertools.product(*[(-limit, limit) for limit in np.tile(limits, horizon)])
    reached = [system.predict(state, np.reshape(corner, (horizon, -1)))[-1] @ direction for corner in corners]
    support = box.center @ direction + np.abs(box.generators.T @ direction).sum()
    np.testing.assert_allclose(support, max(reached), rtol=1e-10, atol=1e-10)

    ball = system.reachable_set(state, horizon, bound, "energy")
    assert isinstance(ball, Ellipsoid)
    best = system.controllability(horizon).T @ direction
    best *= np.sqrt(bound) / np.linalg.norm(best)
    reached_by_energy = system.predict(state, best.reshape(horizon, -1))[-1] @ direction
    np.testing.assert_allclose(
        ball.center @ direction + np.sqrt(direction @ ball.shape @ direction), reached_by_energy, rtol=1e-10, atol=1e-10
    )


def test_affine_set_has_the_controllable_dimension() -> None:
    """Three modes of which two are driven, twice over: a plane, although four columns span it; nothing driven: a point.

    Mutation: pass the controllability matrix itself as directions.
    """
    system = LinearSystem(np.diag([0.9, 0.5, 0.2]), [[1.0, 2.0], [1.0, 2.0], [0.0, 0.0]], np.eye(3))
    for horizon, rank in ((1, 1), (2, 2), (4, 2)):
        reachable = system.reachable_set([1.0, 1.0, 1.0], horizon)
        assert isinstance(reachable, AffineSet)
        assert reachable.directions.shape == (3, rank)
        assert np.abs(reachable.directions[2]).max() < 1e-15
    still = LinearSystem(np.eye(2), np.zeros((2, 1)), np.eye(2)).reachable_set([1.0, 2.0], 3)
    np.testing.assert_array_equal(still.nearest([0.0, 0.0], np.eye(2)), [1.0, 2.0])


def test_short_horizon_has_regret_that_the_best_kappa_removes() -> None:
    """Claim 5: scalar action, n = 2, no prediction error, regret > 1; zero at κ = cond(Σ), and zero with two steps.

    Mutation: rank the corrected case by Σ⁻¹, or take κ = 1.
    """
    example = finite_horizon_example()
    condition = np.linalg.cond(example.state_cov)
    assert example.reachable.directions.shape == (2, 1)
    assert 1.0 < example.isotropic.normalized <= worst_regret(np.linalg.inv(example.state_cov))
    assert example.kappa == pytest.approx(condition, rel=1e-6)
    assert example.corrected.normalized < 1e-12
    # The chosen outcome is really reached: prediction has no part in the regret.
    action = np.linalg.lstsq(example.system.B, example.isotropic.chosen, rcond=None)[0]
    np.testing.assert_allclose(example.system.predict([0.0, 0.0], [action])[0], example.isotropic.chosen, atol=1e-14)
    # κ between 1 and the best lowers it, twice the best raises it again.
    noise = relative_noise(example.state_cov, example.system.noise_cov)
    regrets = [
        planning_regret(
            example.reachable,
            example.goal,
            anisotropic_metric(example.state_cov, optimal_target(noise, kappa).matrix),
        ).normalized
        for kappa in (1.0, np.sqrt(condition), condition, condition**1.5)
    ]
    assert regrets[0] > regrets[1] > regrets[2] < regrets[3]
    # A horizon as long as the state dimension reaches the goal.
    two_steps = example.system.reachable_set(np.zeros(2), 2)
    assert np.isnan(planning_regret(two_steps, example.goal, np.linalg.inv(example.state_cov)).normalized)


STABLE = LinearSystem(0.5 * np.eye(2), np.eye(2), np.eye(2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LinearSystem(np.eye(2)[:1], np.eye(2), np.eye(2)), "A must be square"),
        (lambda: LinearSystem(np.eye(2), np.eye(3), np.eye(2)), "B must have shape"),
        (lambda: LinearSystem(np.eye(2), np.zeros((2, 0)), np.eye(2)), "B must have at least one column"),
        (lambda: LinearSystem(np.eye(2), np.eye(2), -np.eye(2)), "noise_cov must be positive semidefinite"),
        (
            lambda: LinearSystem(np.eye(2), np.eye(2), np.eye(2)).stationary_covariance(np.eye(2)),
            "A must be stable, but its spectral radius is 1",
        ),
        (lambda: STABLE.stationary_covariance(np.eye(3)), "action_cov must have shape"),
        (lambda: STABLE.predict([1.0], [[1.0, 1.0]]), "state must have shape"),
        (lambda: STABLE.predict([1.0, 1.0], [1.0, 1.0]), "actions must have shape"),
        (lambda: STABLE.predict(np.ones((3, 2)), np.ones((2, 1, 2))), "actions must have shape"),
        (lambda: STABLE.reachable_set([1.0, 1.0], 0), "horizon must be at least 1"),
        (lambda: STABLE.reachable_set([1.0, 1.0], 1.5), "horizon must be a whole number"),
        (lambda: STABLE.reachable_set([1.0, 1.0], 1, 2.0), "bound must be None"),
        (lambda: STABLE.reachable_set([1.0, 1.0], 1, kind="box"), "bound must be given"),
        (lambda: STABLE.reachable_set([1.0, 1.0], 1, -1.0, "energy"), "bound must not be negative"),
        (lambda: STABLE.reachable_set([1.0, 1.0], 1, [1.0, 1.0], "energy"), "bound must be a number"),
        (lambda: STABLE.reachable_set([1.0, 1.0], 1, [1.0, 1.0, 1.0], "box"), "bound must be a number or a vector"),
        (lambda: STABLE.reachable_set([1.0, 1.0], 1, 1.0, "ball"), "kind must be"),
    ],
)
def test_refuses(call: object, message: str) -> None:
    """Claim 6.

    Mutation: drop any check.
    """
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call()
