"""The joint optimum at finite weight and batch (docs/theory.md, T9).

Claims:

1. The toy's table: ratio of the metric and mean regret against σ, κ, N and λ, to the digits printed.
2. No encoder and allowed target found by a search over all of W and the logits of Λ does better, and no rotation of the
   optimum improves it to second order.
3. The optimum is stationary, feasible, and its parts agree: M = WᵀW, the loss and the statistic of that W.
4. Large weight and small noise are one limit: M → q_N Σ^{−1/2}L*Σ^{−1/2} with T4's L*.
5. Only N/λ and Σ-whitened coordinates enter: the optimum moves with a change of units or basis of the state.
6. Collapse: partial, total and of a single sample, each where the gradient at the boundary says so, and reported.
7. Ties of T4 are broken towards two levels, since the minimum over W is concave in v.
8. The gradient is the objective's derivative; pooled pairs hardly matter; bad input is refused.
"""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from strategies import Array, conditions, dims, random_rotation, random_spd, seeds

from theory._slices import SlicedStatistic
from theory.joint import JointOptimum, _allocate, _Candidate, _Problem
from theory.sketch import expected_statistic, isotropic_scale, joint_optimum
from theory.spd import condition_number, inv_sqrt_spd, sqrt_spd
from theory.target import TargetSet, optimal_target, relative_noise

TOY = np.diag([3.0625, 1.0])
REGRET = 9 / 56


def toy(sigma: float, kappa: float = 1.0, weight: float = 0.09, batch_size: int = 512) -> JointOptimum:
    return joint_optimum(TOY, sigma**2 * np.eye(2), weight, batch_size, kappa)


def lowest_of(problem: _Problem) -> _Candidate:
    return min(problem.search_basis(), key=lambda candidate: candidate.value)


def objective(optimum: JointOptimum, weight: float) -> float:
    return optimum.prediction_loss + weight * optimum.statistic


# --- 1. the toy's table ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sigma", "ratio", "regret"),
    [
        (0.5, 0.336337, 0.152122),
        (0.3, 0.330076, 0.157549),
        (0.1, 0.326925, 0.160358),
        (0.03, 0.326566, 0.160682),
        (0.01, 0.326535, 0.160711),
    ],
)
def test_noise_sweep_of_the_toy(sigma: float, ratio: float, regret: float) -> None:
    optimum = toy(sigma)
    assert optimum.metric[0, 0] / optimum.metric[1, 1] == pytest.approx(ratio, abs=5.1e-7)
    assert optimum.mean_regret == pytest.approx(regret, abs=5.1e-7)
    assert abs(optimum.metric[0, 1]) < 1e-12


@pytest.mark.parametrize(
    ("kappa", "regret"), [(1.75, 0.037480), (3.0625, 0.0), (5.36, 0.037953), (9.37890625, 0.155569)]
)
def test_kappa_sweep_of_the_toy(kappa: float, regret: float) -> None:
    assert toy(0.5, kappa).mean_regret == pytest.approx(regret, abs=5.1e-7)


@pytest.mark.parametrize(("sigma", "regret"), [(0.5, 0.144148), (0.3, 0.154477)])
def test_smaller_batch_of_the_toy(sigma: float, regret: float) -> None:
    assert toy(sigma, batch_size=256).mean_regret == pytest.approx(regret, abs=5.1e-7)


def test_small_weights_reverse_the_order_and_then_collapse() -> None:
    """λ = 0.01: ratio 0.411; 0.001: 1.349; 3e-4: the axis with more relative noise is given up; 1e-5: both."""
    for weight, ratio in ((0.01, 0.411), (0.001, 1.349)):
        optimum = toy(0.5, weight=weight)
        assert optimum.metric[0, 0] / optimum.metric[1, 1] == pytest.approx(ratio, abs=5e-4)
        assert not optimum.collapsed
        assert optimum.rank == 2
    partial, total = toy(0.5, weight=3e-4), toy(0.5, weight=1e-5)
    assert partial.collapsed
    assert partial.rank == 1
    assert partial.metric[0, 0] > 0.1
    assert partial.metric[1, 1] == 0.0
    assert math.isnan(partial.mean_regret)
    assert total.collapsed
    assert total.rank == 0
    assert not total.encoder.any()
    assert math.isnan(total.mean_regret)
    assert total.prediction_loss == 0.0


# --- 2. nothing better -----------------------------------------------------------------------------------------------


def brute_force(state_cov: Array, noise_cov: Array, weight: float, batch_size: int, kappa: float, seed: int) -> float:
    """Least objective over all W and clipped logits of Λ, quasi-Newton on numerical gradients from random starts."""
    dim = state_cov.shape[0]
    rng = np.random.default_rng(seed)

    def value(flat: Array) -> float:
        encoder = flat[: dim**2].reshape(dim, dim)
        logits = 0.5 * math.log(kappa) * np.sin(flat[dim**2 :])
        variances = dim * np.exp(logits) / np.exp(logits).sum()
        whitened = encoder / np.sqrt(variances)[:, None]
        feature_cov = whitened @ state_cov @ whitened.T
        statistic = expected_statistic((feature_cov + feature_cov.T) / 2, batch_size)
        return float(np.trace(encoder @ noise_cov @ encoder.T)) / dim + weight * statistic

    root = inv_sqrt_spd(state_cov)
    found = []
    for _ in range(4):
        encoder = rng.standard_normal((dim, dim)) * math.exp(rng.uniform(-1.5, 0.5)) @ root
        start = np.concatenate([encoder.ravel(), rng.uniform(-1.5, 1.5, dim)])
        found.append(float(minimize(value, start, method="BFGS").fun))
    return min(found)


@settings(max_examples=8)
@given(
    seed=seeds(),
    dim=st.integers(2, 3),
    kappa=st.floats(1, 12),
    weight=st.floats(-3, 0),
    batch_size=st.sampled_from([4, 64, 512]),
)
def test_a_search_over_all_encoders_finds_nothing_better(
    seed: int, dim: int, kappa: float, weight: float, batch_size: int
) -> None:
    """Independent coordinates (W itself, sines of logits), numerical gradients, random starts.

    Mutation: leave the 1/n out of the prices in ``_descend_basis``.
    """
    rng = np.random.default_rng(seed)
    state_cov = random_spd(rng, dim, 20.0, 0.5)
    noise_cov = random_spd(rng, dim, 8.0, 0.05)
    optimum = joint_optimum(state_cov, noise_cov, 10**weight, batch_size, kappa, starts=0)
    best = brute_force(state_cov, noise_cov, 10**weight, batch_size, kappa, seed)
    assert objective(optimum, 10**weight) <= best + 1e-9 * (1 + abs(best))


@settings(max_examples=15)
@given(seed=seeds(), dim=st.integers(2, 4), kappa=st.floats(1.01, 20), weight=st.floats(-4, 0))
def test_descents_over_all_factors_end_no_lower_than_the_noise_basis(
    seed: int, dim: int, kappa: float, weight: float
) -> None:
    """Eight random G each: the basis search is never beaten, small weights included.

    Mutation: leave v as the start has it in ``_descend_basis``.
    """
    rng = np.random.default_rng(seed)
    noise = random_spd(rng, dim, 30.0, 0.02)
    problem = _Problem(noise, 10**weight, kappa, SlicedStatistic(int(rng.choice([4, 64, 512]))))
    best = lowest_of(problem)
    lowest = min(candidate.value for candidate in problem.search_all(8, rng))
    assert lowest >= best.value - 1e-10 * problem.statistic.offset


@pytest.mark.parametrize("seed", range(4))
def test_every_level_pattern_from_every_side_ends_no_lower(seed: int) -> None:
    """All orders of two levels, random spectra: small weights, where directions are given up and patterns compete.

    The first problem needs the start whose given-up direction takes the high variance.
    """
    rng = np.random.default_rng(seed)
    levels, kappa, weight, batch_size = np.sort(np.exp(rng.uniform(-5, 0.5, 3))), 4.0, 10 ** rng.uniform(-3.5, -2), 64
    if seed == 0:
        levels, kappa, weight = np.array([0.00848, 0.02102, 0.11024, 0.35041]), 15.94, 0.004039
    dim = levels.size
    problem = _Problem(np.diag(levels), weight, kappa, SlicedStatistic(batch_size))
    best = lowest_of(problem)
    for high in range(1, dim):
        for pattern in set(permutations([kappa] * high + [1.0] * (dim - high))):
            spectrum = np.exp(rng.uniform(-4, 0, dim))
            start = dim * np.array(pattern) / sum(pattern)
            spectrum, variances = problem._descend_basis(levels, spectrum, start)
            other = problem.candidate(np.diag(np.sqrt(spectrum)), variances)
            assert other.value >= best.value - 1e-9 * problem.statistic.offset


@settings(max_examples=20)
@given(seed=seeds(), dim=st.integers(2, 8), kappa=st.floats(1, 20), step=st.floats(-4, -1))
def test_rotating_the_optimum_loses(seed: int, dim: int, kappa: float, step: float) -> None:
    """G → G e^X with X skew moves the target against the noise and leaves the statistic: the loss only grows.

    Mutation: ``basis.T`` → ``basis`` in the candidates' factor.
    """
    rng = np.random.default_rng(seed)
    noise = random_spd(rng, dim, 50.0, 0.02)
    problem = _Problem(noise, 0.09, kappa, SlicedStatistic(512))
    best = lowest_of(problem)
    skew = rng.standard_normal((dim, dim)) * 10**step
    rotation = np.linalg.solve(np.eye(dim) + (skew - skew.T) / 4, np.eye(dim) - (skew - skew.T) / 4)
    turned = problem.candidate(best.factor @ rotation, best.variances)
    assert turned.prediction_loss >= best.prediction_loss * (1 - 1e-12)


@pytest.mark.parametrize("batch_size", [2, 3, 8, 512, 100_000])
def test_least_statistic_at_fixed_product_is_concave_where_it_is_uneven(batch_size: int) -> None:
    """Why no rotated local minimum exists for n = 2: x = √(p₁p₂) small, best ratio ≠ 1, curvature in x negative."""
    statistic = SlicedStatistic(batch_size)
    products = np.linspace(0.01, 0.6, 60)
    least, uneven = np.empty((2, products.size))
    for index, product in enumerate(products):

        def value(half: float, product: float = product) -> float:
            return statistic.at_spectrum(product * np.exp([half, -half]))[0]

        coarse = np.linspace(0.0, 6.0, 61)
        near = coarse[int(np.argmin([value(half) for half in coarse]))]
        found = minimize_scalar(
            value, bounds=(max(near - 0.1, 0.0), near + 0.1), method="bounded", options={"xatol": 1e-9}
        )
        least[index], uneven[index] = min(found.fun, value(0.0)), found.x
    curvature = np.diff(least, 2) / (products[1] - products[0]) ** 2 / batch_size
    branch = uneven[2:] > 1e-3
    assert branch.sum() > 5
    assert curvature[branch].max() < -0.1


# --- 3. stationary, feasible, consistent -----------------------------------------------------------------------------


@settings(max_examples=20)
@given(
    seed=seeds(),
    dim=dims(1, 12),
    kappa=st.floats(1, 50),
    weight=st.floats(-3, 1),
    batch_size=st.integers(2, 1000),
    condition=conditions(1e4),
)
def test_parts_agree_and_the_gradient_vanishes(
    seed: int, dim: int, kappa: float, weight: float, batch_size: int, condition: float
) -> None:
    """M = WᵀW; Λ and L feasible; loss and statistic are those of W; d/dε of the objective at W(I + εX) is 0.

    Mutation: ``np.sqrt(best.variances)`` → ``best.variances`` in the encoder.
    """
    rng = np.random.default_rng(seed)
    state_cov = random_spd(rng, dim, condition)
    noise_cov = random_spd(rng, dim, 10.0, 0.02)
    weight = 10**weight
    optimum = joint_optimum(state_cov, noise_cov, weight, batch_size, kappa, starts=0)
    feasible = TargetSet(dim, kappa)
    assert feasible.contains(np.diag(optimum.variances), 1e-12)
    assert feasible.contains(optimum.target, 1e-9)
    np.testing.assert_allclose(optimum.metric, optimum.encoder.T @ optimum.encoder, atol=1e-12)

    def evaluate(encoder: Array) -> tuple[float, float, Array]:
        whitened = encoder / np.sqrt(optimum.variances)[:, None]
        feature_cov = whitened @ state_cov @ whitened.T
        feature_cov = (feature_cov + feature_cov.T) / 2
        loss = float(np.trace(encoder @ noise_cov @ encoder.T)) / dim
        return loss, expected_statistic(feature_cov, batch_size), np.linalg.eigvalsh(feature_cov)[::-1]

    loss, statistic, spectrum = evaluate(optimum.encoder)
    assert optimum.prediction_loss == pytest.approx(loss, rel=1e-8)
    assert optimum.statistic == pytest.approx(statistic, rel=1e-8)
    np.testing.assert_allclose(optimum.spectrum, spectrum, atol=1e-9)
    assert optimum.rank == (optimum.spectrum > 0).sum()
    assert optimum.collapsed == (optimum.rank < dim)
    # W = Λ^{1/2} R S Σ^{−1/2} with SNS commuting with L: what M is made of.
    if not optimum.collapsed:
        whitening = sqrt_spd(state_cov)
        product = whitening @ optimum.metric @ whitening
        np.testing.assert_allclose(np.trace(product), optimum.variances @ np.diag(
            (optimum.encoder @ state_cov @ optimum.encoder.T) / optimum.variances[:, None]
        ), rtol=1e-7)  # fmt: skip

    direction, step = rng.standard_normal((dim, dim)), 1e-5
    values = []
    for sign in (1, -1):
        loss, statistic, _ = evaluate(optimum.encoder @ (np.eye(dim) + sign * step * direction))
        values.append(loss + weight * statistic)
    slope = (values[0] - values[1]) / (2 * step)
    scale = weight * batch_size + optimum.prediction_loss
    assert abs(slope) <= 1e-5 * scale * np.linalg.norm(direction) * math.sqrt(condition)


# --- 4. the limit ----------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(seed=seeds(), dim=dims(2, 8), kappa=st.floats(1, 20), by_weight=st.booleans(), condition=conditions(1e3))
def test_large_weight_and_small_noise_give_the_limit(
    seed: int, dim: int, kappa: float, by_weight: bool, condition: float
) -> None:
    """M/q_N → Σ^{−1/2}L*Σ^{−1/2}, at the rate of N/λ.

    Mutation: leave v as the start has it in ``_descend_basis`` (values alone cannot tell the patterns apart).
    """
    rng = np.random.default_rng(seed)
    state_cov, noise_cov = random_spd(rng, dim, condition), random_spd(rng, dim, 10.0)
    noise = relative_noise(state_cov, noise_cov)
    target = optimal_target(noise, kappa)
    root, scale = inv_sqrt_spd(state_cov), isotropic_scale(512)
    for small in (1e-4, 1e-12):
        factor, weight = (1.0, 0.09 / small) if by_weight else (small, 0.09)
        optimum = joint_optimum(state_cov, factor * noise_cov, weight, 512, kappa, starts=0)
        expected = scale * root @ target.matrix @ root
        gap = np.abs(root @ (optimum.metric - expected) @ root).max() / np.abs(root @ expected @ root).max()
        assert optimum.prediction_loss == pytest.approx(
            factor * scale * target.value / dim, rel=0.05 if small > 1e-6 else 1e-6
        )
        if small < 1e-6 and target.unique:
            assert gap < 1e-5
            assert optimum.variances.max() == pytest.approx(target.variances.max())
            np.testing.assert_allclose(optimum.spectrum, scale, rtol=1e-6)


def test_the_limit_of_the_toy_is_the_plateau_and_the_closed_form() -> None:
    """σ → 0: (√ρ − 1)²/(2√ρ) with ρ = max(κ, c)/min(κ, c); λ → ∞ the same; the gap closes like σ²."""
    gaps = [REGRET - toy(sigma).mean_regret for sigma in (0.04, 0.02, 0.01)]
    assert gaps[0] / gaps[1] == pytest.approx(4, rel=0.02)
    assert gaps[1] / gaps[2] == pytest.approx(4, rel=0.02)
    for kappa in (1.0, 1.75, 3.0625, 5.36, 9.37890625):
        closed = math.cosh(0.5 * math.log(kappa / 3.0625)) - 1
        assert toy(1e-5, kappa).mean_regret == pytest.approx(closed, abs=1e-9)
        assert toy(0.5, kappa, weight=1e9).mean_regret == pytest.approx(closed, abs=1e-9)


# --- 5. what enters --------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(seed=seeds(), dim=st.integers(1, 6), kappa=st.floats(1, 20), scale=st.floats(-4, 4))
def test_only_noise_over_weight_and_whitened_coordinates_enter(seed: int, dim: int, kappa: float, scale: float) -> None:
    """(sΣ_w, sλ) has the same optimum; x → Ax has the metric A^{−T}MA^{−1}, the same spectrum and Λ.

    Mutation: use Σ_w in place of Σ^{−1/2}Σ_wΣ^{−1/2}.
    """
    rng = np.random.default_rng(seed)
    state_cov, noise_cov = random_spd(rng, dim, 9.0), random_spd(rng, dim, 9.0, 0.05)
    optimum = joint_optimum(state_cov, noise_cov, 0.09, 512, kappa, starts=0)
    scaled = joint_optimum(state_cov, 10**scale * noise_cov, 10**scale * 0.09, 512, kappa, starts=0)
    np.testing.assert_allclose(scaled.metric, optimum.metric, rtol=1e-6, atol=1e-8)
    change = random_spd(rng, dim, 5.0) @ random_rotation(rng, dim)
    moved_state, moved_noise = change @ state_cov @ change.T, change @ noise_cov @ change.T
    moved = joint_optimum(
        (moved_state + moved_state.T) / 2, (moved_noise + moved_noise.T) / 2, 0.09, 512, kappa, starts=0
    )
    np.testing.assert_allclose(change.T @ moved.metric @ change, optimum.metric, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(moved.spectrum, optimum.spectrum, rtol=1e-7)
    np.testing.assert_allclose(np.sort(moved.variances), np.sort(optimum.variances), rtol=1e-9)


def test_same_seed_same_optimum_and_general_starts_change_nothing() -> None:
    noise_cov = np.array([[0.3, 0.1], [0.1, 0.2]])
    first, second = (joint_optimum(TOY, noise_cov, 0.02, 64, 2.5, starts=8, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.encoder, second.encoder)
    np.testing.assert_array_equal(first.metric, joint_optimum(TOY, noise_cov, 0.02, 64, 2.5, starts=0).metric)


# --- 6. collapse -----------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(seed=seeds(), dim=st.integers(1, 6), kappa=st.floats(1, 10), weight=st.floats(-6, 0))
def test_collapse_is_reported_exactly_where_the_boundary_holds(
    seed: int, dim: int, kappa: float, weight: float
) -> None:
    """Where a direction has vanished, a little variance there costs more than it gives; elsewhere there is some.

    Mutation: ``small`` below 0.3 instead of 1e-3 of the largest, and nothing revived.
    """
    rng = np.random.default_rng(seed)
    noise = np.diag(np.sort(np.exp(rng.uniform(-3, 1, dim))))
    weight, batch_size = 10**weight, int(rng.choice([2, 16, 512]))
    optimum = joint_optimum(np.eye(dim), noise, weight, batch_size, kappa, starts=0)
    if optimum.rank == dim:
        assert not optimum.collapsed
        assert optimum.spectrum.min() > 1e-8
        assert condition_number(optimum.metric) < math.inf
    else:
        assert optimum.collapsed
        assert math.isnan(optimum.mean_regret)
        whitened = optimum.encoder / np.sqrt(optimum.variances)[:, None]
        blind = [row for row in range(dim) if not whitened[row].any()]
        assert len(blind) == dim - optimum.rank
    # Whatever it is, it is no worse than giving everything up.
    nothing = weight * expected_statistic(np.zeros((dim, dim)), batch_size)
    assert objective(optimum, weight) <= nothing * (1 + 1e-12)
    # One-sided derivative along every coordinate of the whitened encoder.
    basis = np.linalg.svd(optimum.encoder / np.sqrt(optimum.variances)[:, None])
    for index in range(dim):
        values = []
        for grow in (0.0, 1e-3):
            spectrum = basis.S**2 * 1.0
            spectrum[index] += grow
            factor = (basis.U * np.sqrt(spectrum)) @ basis.Vh
            costs = np.diag(factor @ noise @ factor.T)
            values.append(
                float(optimum.variances @ costs) / dim + weight * SlicedStatistic(batch_size).at_spectrum(spectrum)[0]
            )
        assert values[1] >= values[0] - 1e-12 * abs(values[0])


def test_one_sample_collapses_whatever_the_weight() -> None:
    optimum = joint_optimum(TOY, 1e-6 * np.eye(2), 100.0, 1, 2.0)
    assert optimum.rank == 0
    assert optimum.statistic == pytest.approx(expected_statistic(np.zeros((2, 2)), 1))


# --- 7. ties ---------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(seed=seeds(), dim=st.integers(2, 5), kappa=st.floats(1.2, 10), sigma=st.floats(0.1, 0.5))
def test_finite_weight_breaks_the_tie_of_isotropic_noise(seed: int, dim: int, kappa: float, sigma: float) -> None:
    """N ∝ I: T4 leaves all of the set optimal; at finite weight L = I is the worst choice, two levels are taken.

    Mutation: take κ = 1 wherever ``optimal_target(...).unique`` is false, as T4 does.
    """
    state_cov = random_spd(np.random.default_rng(seed), dim, 4.0)
    noise_cov = sigma**2 * state_cov
    assert not optimal_target(relative_noise(state_cov, noise_cov), kappa).unique
    optimum = joint_optimum(state_cov, noise_cov, 0.09, 512, kappa, starts=0)
    assert optimum.variances.max() / optimum.variances.min() == pytest.approx(kappa, rel=1e-9)
    isotropic = joint_optimum(state_cov, noise_cov, 0.09, 512, 1.0)
    assert objective(optimum, 0.09) < objective(isotropic, 0.09)


@given(seed=seeds(), dim=st.integers(1, 7), kappa=st.floats(1, 1e6))
def test_allocation_is_the_best_vertex(seed: int, dim: int, kappa: float) -> None:
    """Σ v_i d_i is least at a vertex of the polytope, and all vertices are two-level, so enumerate them.

    Mutation: ``np.argsort(costs)`` → ``np.argsort(-costs)``.
    """
    costs = np.random.default_rng(seed).exponential(size=dim)
    variances = _allocate(costs, kappa)
    assert TargetSet(dim, kappa).contains(np.diag(variances), 1e-12)
    vertices = set()
    for high in range(dim):
        levels = [kappa] * high + [1.0] * (dim - high)
        vertices.update(permutations(levels) if dim <= 5 else [tuple(np.array(levels)[np.argsort(np.argsort(costs))])])
    best = min(dim * float(np.dot(levels, costs)) / sum(levels) for levels in vertices)
    assert variances @ costs == pytest.approx(best, rel=1e-12)


def test_noiseless_directions_take_the_high_variance() -> None:
    """Σ_w singular is allowed: its null direction keeps q and the high level; with no noise at all L = I."""
    optimum = joint_optimum(TOY, np.diag([0.0, 0.25]), 0.09, 512, 2.0)
    direction = np.array([1.0, 0.0])
    assert direction @ optimum.target @ direction == pytest.approx(4 / 3)
    assert not optimum.collapsed
    silent = joint_optimum(TOY, np.zeros((2, 2)), 0.09, 512, 2.0)
    np.testing.assert_allclose(silent.target, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(silent.metric, isotropic_scale(512) * np.diag([1 / 3.0625, 1.0]), rtol=1e-9)


# --- 8. gradient, pairs, bad input -----------------------------------------------------------------------------------


@given(seed=seeds(), dim=st.integers(1, 8), kappa=st.floats(1, 20), size=st.floats(-1, 0.5))
def test_gradient_over_all_factors(seed: int, dim: int, kappa: float, size: float) -> None:
    """The gradient of the minimum over v is the gradient at the best v.

    Mutation: drop the factor 2 of the statistic's part.
    """
    rng = np.random.default_rng(seed)
    problem = _Problem(random_spd(rng, dim, 10.0), 0.3, kappa, SlicedStatistic(16))
    point, direction = rng.standard_normal((2, dim**2))
    point, step = point * 10**size, 1e-6
    value, gradient = problem._objective(point)
    difference = problem._objective(point + step * direction)[0] - problem._objective(point - step * direction)[0]
    assert difference / (2 * step) == pytest.approx(float(gradient @ direction), rel=1e-4, abs=1e-4 * abs(value))


def test_pooled_pairs_hardly_move_the_optimum() -> None:
    """Correlation 0.6 between pooled current and next features changes the toy's mean regret by less than 3e-5."""
    for batch_size, kappa in ((512, 1.0), (256, 1.0), (256, 9.37890625)):
        apart = joint_optimum(TOY, 0.25 * np.eye(2), 0.09, batch_size, kappa)
        pooled = joint_optimum(TOY, 0.25 * np.eye(2), 0.09, batch_size, kappa, pair_correlation=0.6)
        assert 0 < abs(apart.mean_regret - pooled.mean_regret) < 3e-5


def test_one_dimension_has_no_lines() -> None:
    optimum = joint_optimum([[2.0]], [[0.1]], 0.09, 64, 3.0)
    assert math.isnan(optimum.mean_regret)
    assert not optimum.collapsed
    np.testing.assert_array_equal(optimum.variances, [1.0])


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"state_cov": np.diag([1.0, 0.0])}, "state_cov"),
        ({"noise_cov": np.diag([1.0, -1.0])}, "noise_cov"),
        ({"noise_cov": np.eye(3)}, "noise_cov"),
        ({"weight": 0.0}, "weight"),
        ({"weight": math.inf}, "weight"),
        ({"weight": 1e-300}, "weight"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": None}, "batch_size"),
        ({"kappa": 0.5}, "kappa"),
        ({"kappa": math.inf}, "kappa"),
        ({"kappa": 1e300}, "kappa"),
        ({"starts": -1}, "starts"),
        ({"seed": -1}, "seed"),
        ({"seed": "2"}, "seed"),
        ({"pair_correlation": 2.0}, "pair_correlation"),
    ],
)
def test_bad_input_is_one_sentence_that_names_the_argument(changes: dict[str, object], name: str) -> None:
    arguments: dict[str, object] = {"state_cov": TOY, "noise_cov": np.eye(2), "weight": 0.09, "batch_size": 64}
    with pytest.raises(ValueError, match=rf"\b{name}\b") as caught:
        joint_optimum(**{**arguments, **changes})  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
