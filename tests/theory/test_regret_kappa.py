"""Regret against κ and the best κ (docs/theory.md, T7).

1. In two dimensions with isotropic noise the curve is cosh(½ ln(κ/c)) − 1: T7's table, zero at κ = c.
2. In two dimensions and in general the curve is that of the target a dense search over rotations finds.
3. Each row's columns are those of its own metric, and scale or units change none of them.
4. The best κ is no worse than a dense grid, reproduces as a row of the curve, and its κ is where the curve says.
5. It is c for the two-dimensional case, c q₁/q₂ for a diagonal task metric, and 1 where ΛReg hurts.
6. Where the curve jumps, the best κ can lie at the end of a piece; it is found there.
7. Wrong input is refused in one sentence.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import conditions, random_rotation, random_spd, seeds

from theory.metric import anisotropic_metric
from theory.regret import best_kappa, mean_line_regret, regret_curve, worst_regret
from theory.spd import condition_number, inv_sqrt_spd, sqrt_spd
from theory.target import optimal_target, relative_noise

Array = NDArray[np.float64]

TABLE = {1.0: 0.160714, 1.75: 0.039402, 2.0: 0.022779, 3.0625: 0.0, 5.36: 0.039419, 9.37890625: 0.160714}


def test_table_of_the_toy() -> None:
    """Claim 1: Σ = diag(3.0625, 1), Σ_w ∝ I.

    Mutation: exchange high and low variance, or report the worst regret as the mean.
    """
    curve = regret_curve(np.diag([3.0625, 1.0]), 0.25 * np.eye(2), list(TABLE))
    np.testing.assert_allclose(curve.mean_regret, list(TABLE.values()), atol=6e-7)
    assert curve.mean_regret[0] == pytest.approx(9 / 56, rel=1e-14)
    assert curve.mean_regret[5] == pytest.approx(9 / 56, rel=1e-14)
    assert curve.mean_regret[3] < 1e-30
    assert curve.num_high.tolist() == [0, 1, 1, 1, 1, 1]
    assert list(curve.columns) == ["kappa", "mean_regret", "worst_regret", "condition_number", "num_high"]
    assert isinstance(curve, pd.DataFrame)


@given(seeds(), conditions(1e4), st.lists(conditions(1e4), min_size=1, max_size=5))
def test_formula_in_two_dimensions(seed: int, condition: float, kappas: list[float]) -> None:
    """Claim 1 for any c, κ and rotation: cosh(½ ln(κ/c)) − 1, and sinh²(½ ln(κ/c)) for the worst case.

    Mutation: build M from L without whitening by Σ.
    """
    rng = np.random.default_rng(seed)
    curve = regret_curve(random_spd(rng, 2, condition), np.eye(2), kappas)
    ratio = np.log(np.array(kappas) / condition) / 2
    # At c = 1 every target is optimal and L = I is reported; so is it for c within rounding of 1.
    if condition > 1 + 1e-6:
        np.testing.assert_allclose(curve.mean_regret, np.cosh(ratio) - 1, rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(curve.worst_regret, np.sinh(ratio) ** 2, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_curve_agrees_with_a_search_over_targets(seed: int) -> None:
    """Claim 2, n = 2, Σ, Σ_w, Q unrelated: least tr(NL) over 20,000 angles, then the mean over 20,000 lines.

    Mutation: give the task metric to the curve's target, or pass Σ_w instead of N to ``optimal_target``.
    """
    rng = np.random.default_rng(seed)
    state_cov, noise_cov, task = (random_spd(rng, 2, condition) for condition in (6.0, 10.0, 4.0))
    values, vectors = np.linalg.eigh(state_cov)
    whitener = vectors @ np.diag(values**-0.5) @ vectors.T
    angle = np.pi * np.arange(20_000) / 20_000
    axis, normal = np.stack([np.cos(angle), np.sin(angle)]), np.stack([-np.sin(angle), np.cos(angle)])
    for kappa in (1.0, 1.7, 4.0, 30.0):
        low = 2 / (1 + kappa)
        image = whitener @ axis
        loss = (kappa - 1) * low * np.einsum("ia,ij,ja->a", image, noise_cov, image)
        best = axis[:, np.argmin(loss)]
        metric = whitener @ (low * np.eye(2) + (kappa - 1) * low * np.outer(best, best)) @ whitener
        half = np.linalg.inv(np.linalg.cholesky(task))
        white = half @ metric @ half.T
        regrets = np.einsum("ia,ij,ja->a", axis, white, normal) / np.einsum("ia,ij,ja->a", axis, white, axis)
        row = regret_curve(state_cov, noise_cov, kappa, task).iloc[0]
        assert row.mean_regret == pytest.approx((regrets**2).mean(), rel=2e-3)
        assert row.condition_number == pytest.approx(np.linalg.cond(white), rel=2e-3)


@given(seeds(), st.integers(2, 8), st.booleans())
def test_rows_describe_their_own_metric(seed: int, dim: int, with_task: bool) -> None:
    """Claim 3: rows equal the functions of M(κ); noise scale and a change of state coordinates do not matter.

    Mutation: sort the κ, or leave the task metric out of any column.
    """
    rng = np.random.default_rng(seed)
    state_cov, noise_cov = random_spd(rng, dim, 1e2), random_spd(rng, dim, 1e2)
    task = random_spd(rng, dim, 1e1) if with_task else None
    kappas = [8.0, 1.0, 2.5]
    curve = regret_curve(state_cov, noise_cov, kappas, task)
    assert curve.kappa.tolist() == kappas
    for row in curve.itertuples():
        target = optimal_target(relative_noise(state_cov, noise_cov), row.kappa)
        metric = anisotropic_metric(state_cov, target.matrix)
        assert row.mean_regret == mean_line_regret(metric, task)
        assert row.worst_regret == worst_regret(metric, task)
        assert row.condition_number == pytest.approx(condition_number(metric, task), rel=1e-12)
        assert row.num_high == target.num_high
    change = random_rotation(rng, dim) @ random_spd(rng, dim, 5.0)
    inverse = np.linalg.inv(change)
    moved_task = inverse.T @ (np.eye(dim) if task is None else task) @ inverse
    moved = regret_curve(change @ state_cov @ change.T, 0.01 * change @ noise_cov @ change.T, kappas, moved_task)
    np.testing.assert_allclose(moved.mean_regret, curve.mean_regret, rtol=1e-7)
    np.testing.assert_array_equal(moved.num_high, curve.num_high)


@settings(max_examples=30)
@given(seeds(), st.integers(2, 6), st.sampled_from(["isotropic", "any", "task"]))
def test_no_grid_point_beats_the_best_kappa(seed: int, dim: int, kind: str) -> None:
    """Claim 4: 150 κ up to 30 cond(Σ^{1/2}QΣ^{1/2}), and the row at the best κ is the best's own number.

    Mutation: search only the last piece, only κ up to 2, or stop at the sampled points.
    """
    rng = np.random.default_rng(seed)
    state_cov = random_spd(rng, dim, 10.0 ** rng.uniform(0, 3))
    noise_cov = np.eye(dim) if kind == "isotropic" else random_spd(rng, dim, 10.0 ** rng.uniform(0, 3))
    task = random_spd(rng, dim, 10.0 ** rng.uniform(0, 2)) if kind == "task" else None
    best = best_kappa(state_cov, noise_cov, task)
    assert best.kappa >= 1
    top = condition_number(np.eye(dim) if task is None else task, np.linalg.inv(state_cov))
    # Points just around the best as well: a minimum that is not refined shows there.
    around = np.maximum(best.kappa * np.exp([-1e-2, -1e-3, 1e-3, 1e-2]), 1.0)
    grid = np.concatenate([np.geomspace(1, 30 * top, 150), around])
    curve = regret_curve(state_cov, noise_cov, grid, task)
    assert best.mean_regret <= curve.mean_regret.min() * (1 + 1e-9) + 1e-15
    assert regret_curve(state_cov, noise_cov, best.kappa, task).mean_regret[0] == best.mean_regret


@given(seeds(), conditions(1e3), conditions(1e3))
def test_best_kappa_of_diagonal_tasks(seed: int, condition: float, stakes: float) -> None:
    """Claim 5: κ = c q₁/q₂ if that is at least 1, otherwise 1; in any rotated frame.

    Mutation: ignore the task metric; search below κ = 1.
    """
    rng = np.random.default_rng(seed)
    rotation = random_rotation(rng, 2)
    state_cov = rotation @ np.diag([condition, 1.0]) @ rotation.T
    for weights in ([1.0, stakes], [stakes, 1.0]):
        task = rotation @ np.diag(weights) @ rotation.T
        best = best_kappa(state_cov, np.eye(2), task)
        expected = condition * weights[0] / weights[1]
        if condition > 1 + 1e-6:
            assert best.kappa == pytest.approx(max(expected, 1.0), rel=1e-5)
            if expected >= 1:
                assert best.mean_regret < 1e-12


@given(seeds(), conditions(1e4), conditions(1e4), conditions(1e4))
def test_regret_left_at_the_best_kappa_in_two_dimensions(seed: int, state: float, noise: float, stakes: float) -> None:
    """Claim 5: 1/sin∠(b₁, b₂) − 1, b_i = Q^{-1/2}Σ^{-1/2}u_i; nearly equal noise levels are no exception.

    Mutation: exchange u₁ and u₂.
    """
    rng = np.random.default_rng(seed)
    state_cov, task = random_spd(rng, 2, state), random_spd(rng, 2, stakes)
    root, inverse_root = sqrt_spd(state_cov), inv_sqrt_spd(state_cov)
    turn = random_rotation(rng, 2)
    noise_cov = root @ turn @ np.diag([1.0, 1 + 1e-6 + (noise - 1)]) @ turn.T @ root
    first, second = (inv_sqrt_spd(task) @ inverse_root @ turn).T
    best = best_kappa(state_cov, noise_cov, task)
    expected = second @ second / (first @ first)
    if expected > 1 + 1e-6:
        assert best.kappa == pytest.approx(expected, rel=1e-3)
        sine = abs(np.linalg.det([first, second])) / np.sqrt((first @ first) * (second @ second))
        assert best.mean_regret == pytest.approx(1 / sine - 1, rel=1e-4, abs=1e-9)
    elif expected < 1 - 1e-6:
        assert best.kappa == 1.0


def test_best_kappa_is_one_where_the_regulariser_hurts() -> None:
    """Claim 5: noise anisotropic beyond c flips L*, and regret rises from κ = 1 on; N ∝ I leaves nothing to choose.

    Mutation: let the search start from a κ above 1; treat ties as gaps.
    """
    state_cov = np.diag([3.0625, 1.0])
    reversed_noise = np.diag([4.0, 1.0])
    curve = regret_curve(state_cov, reversed_noise, np.geomspace(1, 20, 30))
    assert (np.diff(curve.mean_regret) > 0).all()
    best = best_kappa(state_cov, reversed_noise)
    assert best.kappa == 1.0
    assert best.mean_regret == pytest.approx(9 / 56, rel=1e-14)
    tied = best_kappa(state_cov, state_cov)
    assert tied.kappa == 1.0
    assert tied.mean_regret == pytest.approx(9 / 56, rel=1e-14)
    assert best_kappa(state_cov, np.zeros((2, 2))).kappa == 1.0


@given(seeds(), st.integers(2, 6), conditions(1e4))
def test_best_kappa_is_exactly_one_where_the_states_fit_the_task(seed: int, dim: int, condition: float) -> None:
    """Q ∝ Σ⁻¹: M = Σ⁻¹ is the task's metric already, and the answer does not hang on which way a ratio of 1 rounds.

    Up to a condition number of 1e4: rounding moves the ratio by about the condition number times 1e-16. Mutation: drop
    the tolerance in two dimensions.
    """
    rng = np.random.default_rng(seed)
    state_cov = random_spd(rng, dim, condition)
    noise_cov = random_spd(rng, dim, 10.0 ** rng.uniform(0, 3))
    best = best_kappa(state_cov, noise_cov, rng.uniform(0.1, 10) * np.linalg.inv(state_cov))
    assert best.kappa == 1.0
    assert best.mean_regret < 1e-9


def test_a_minimum_of_rounding_is_no_minimum() -> None:
    """Three dimensions and Q ∝ Σ⁻¹, as above: cases in which the search ends a rounding error above 1.

    Mutation: drop the tolerance in more than two dimensions.
    """
    for seed in (124, 302, 465, 1201, 1324, 1452, 1749):
        rng = np.random.default_rng(seed)
        state_cov, noise_cov = random_spd(rng, 3, 9.2e3), random_spd(rng, 3, 10.0 ** rng.uniform(0, 3))
        assert best_kappa(state_cov, noise_cov, np.linalg.inv(state_cov)).kappa == 1.0


def test_best_kappa_at_the_end_of_a_piece() -> None:
    """Claim 6: Σ = diag(8, 3, 1), Σ_w ∝ I: two high directions up to κ₂ = (1 − 1/3)/(1/3 − 1/8) = 3.2, then one.

    The curve falls up to the jump; κ = 3.2 itself is a tie, at which one direction is high. The best lies just before.

    Mutation: search a single piece over all κ (a bounded minimiser then stops elsewhere); include the tie itself.
    """
    state_cov = np.diag([8.0, 3.0, 1.0])
    best = best_kappa(state_cov, np.eye(3))
    assert 3.2 * (1 - 1e-6) < best.kappa < 3.2
    curve = regret_curve(state_cov, np.eye(3), [3.0, best.kappa, 3.2, 3.2 * (1 + 1e-6)])
    assert curve.num_high.tolist() == [2, 2, 1, 1]
    assert curve.mean_regret[0] > curve.mean_regret[1]
    assert curve.mean_regret[2] > curve.mean_regret[1] + 1e-3
    assert not optimal_target(relative_noise(state_cov, np.eye(3)), 3.2).unique


@given(seeds(), st.integers(3, 8))
def test_number_of_high_directions_changes_where_the_formula_says(seed: int, dim: int) -> None:
    """κ_k = Σ_{j>k}(ν_j − ν_k)/Σ_{j<k}(ν_k − ν_j): k directions are high just below it, k − 1 just above.

    Mutation: sum over j ≥ k − 1 in the numerator (off by one).
    """
    rng = np.random.default_rng(seed)
    levels = np.sort(rng.uniform(0.1, 3, dim))
    rotation = random_rotation(rng, dim)
    noise_cov = (rotation * levels) @ rotation.T
    for k in range(2, dim):
        edge = (levels[k:] - levels[k - 1]).sum() / (levels[k - 1] - levels[: k - 1]).sum()
        if edge > 1 + 1e-4:
            curve = regret_curve(np.eye(dim), noise_cov, [edge * (1 - 1e-5), edge * (1 + 1e-5)])
            assert curve.num_high.tolist() == [k, k - 1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: regret_curve(np.diag([2.0, 1.0]), np.diag([1.0, 5.0]), [2.0, 1e300]), "kappas must leave a metric"),
        (lambda: regret_curve([[1.0]], [[1.0]], [2.0]), "state_cov must be at least 2 × 2"),
        (lambda: regret_curve(np.eye(2), np.eye(2), []), "kappas must be a vector of at least one"),
        (lambda: regret_curve(np.eye(2), np.eye(2), [[1.0, 2.0]]), "kappas must be a vector"),
        (lambda: regret_curve(np.eye(2), np.eye(2), [2.0, 0.5]), "kappas must be at least 1"),
        (lambda: regret_curve(np.eye(2), np.eye(2), [2.0, math.inf]), "kappas must be finite"),
        (lambda: regret_curve([[2.0]], [[1.0]], [1.0]), "must be at least 2 × 2"),
        (lambda: regret_curve(np.ones((2, 2)), np.eye(2), [1.0]), "state_cov must be positive definite"),
        (lambda: best_kappa([[2.0]], [[1.0]]), "state_cov must be at least 2 × 2"),
        (lambda: best_kappa(np.eye(2), -np.eye(2)), "noise_cov must be positive semidefinite"),
        (lambda: best_kappa(np.eye(2), np.eye(2), np.eye(3)), "task_metric must have shape"),
    ],
)
def test_refuses(call: object, message: str) -> None:
    """Claim 7.

    Mutation: drop any check.
    """
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call()
