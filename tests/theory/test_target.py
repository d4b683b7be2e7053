"""The constraint set and what prediction chooses in it (docs/theory.md, T3, T4 and T12).

1. `relative_noise` is N = Σ^{-1/2}Σ_wΣ^{-1/2}: tr(NL) is the latent noise of every encoder that matches L; N turns with
   the state, and Σ_w may be singular.
2. `TargetSet`: membership, bounds that no member passes and that are attained, convexity.
3. `project` returns the nearest member: optimality over the whole set, idempotence, agreement with cvxpy.
4. `optimal_target` is feasible, and no two-level assignment, member of the set or semidefinite program does better.
5. Ties, and what is none: N ∝ I gives L = I and is not unique; ν = (1, 2, 4) at κ = 2 is not; κ = 1 always is.
6. Over-complete latents: the padded problem, by brute force over Λ and V, by semidefinite programs, and known cases.
7. Large variance on small relative noise: L commutes with N and is antitone; nothing depends on the scale of N.
8. Input that has no answer is refused in one sentence.
"""

from __future__ import annotations

import itertools

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from strategies import Array, conditions, dims, random_rotation, random_spd, seeds, spd_matrices, tolerance

from theory.metric import anisotropic_metric, matching_encoder
from theory.spd import condition_number
from theory.target import OptimalTarget, TargetSet, optimal_target, relative_noise

KAPPA = 3.0625


def random_member(rng: np.random.Generator, dim: int, kappa: float) -> Array:
    """A member of T_{n,κ} by the paper's parametrisation: logits in [−½ ln κ, ½ ln κ], any rotation."""
    logits = rng.uniform(-0.5, 0.5, dim) * np.log(kappa)
    rotation = random_rotation(rng, dim)
    target = (rotation * (dim * np.exp(logits) / np.exp(logits).sum())) @ rotation.T
    return (target + target.T) / 2


def random_noise(rng: np.random.Generator, dim: int) -> tuple[Array, Array]:
    """Ascending relative-noise spectrum with zeros, repeats and decades of spread, and a matrix N that has it."""
    spectrum = np.exp(rng.normal(0.0, rng.choice([0.1, 1.0, 4.0]), dim))
    if rng.random() < 0.3:
        spectrum[rng.integers(dim)] = 0.0
    if rng.random() < 0.3:
        spectrum[rng.integers(dim)] = spectrum[rng.integers(dim)]
    rotation = random_rotation(rng, dim)
    noise = (rotation * spectrum) @ rotation.T
    return np.sort(spectrum), (noise + noise.T) / 2


def best_linear(cost: Array, kappa: float) -> float:
    """Minimum of ⟨C, X⟩ over T_{n,κ} for any symmetric C, by trying every number of high eigenvalues."""
    levels, dim = np.linalg.eigvalsh(cost), cost.shape[0]
    values = [dim / (k * kappa + dim - k) * (kappa * levels[:k].sum() + levels[k:].sum()) for k in range(dim)]
    return float(min(values))


# -- 1. relative noise -------------------------------------------------------------------------------------------------


@given(seed=seeds(), dim=dims(1, 32), rank=st.integers(0, 32), condition=conditions(1e6), scale=st.floats(0.01, 100.0))
def test_relative_noise_is_the_latent_noise_of_a_matching_encoder(
    seed: int, dim: int, rank: int, condition: float, scale: float
) -> None:
    """Claim 1: tr(WΣ_wWᵀ) = q tr(NL) for every rotation R, with Σ_w of any rank.

    Mutation: whiten with Σ_w⁻¹'s roots, or return ``factor @ factor.T``.
    """
    rng = np.random.default_rng(seed)
    state_cov, target = random_spd(rng, dim, condition), random_spd(rng, dim, 10.0)
    factor = rng.standard_normal((dim, rank))
    noise_cov = factor @ factor.T
    noise = relative_noise(state_cov, noise_cov)
    weight = matching_encoder(state_cov, target, random_rotation(rng, dim + 2)[:, :dim], scale)
    expected = np.trace(weight @ noise_cov @ weight.T)
    assert scale * np.trace(noise @ target) == pytest.approx(expected, rel=tolerance(condition, dim), abs=1e-300)
    assert np.linalg.eigvalsh(noise)[0] >= -tolerance(1.0, dim) * np.linalg.norm(noise)


@given(seed=seeds(), dim=dims(), condition=conditions(1e6))
def test_relative_noise_turns_with_the_state(seed: int, dim: int, condition: float) -> None:
    """Claim 1: x → Ox takes N to ONOᵀ, and noise ∝ Σ is isotropic.

    Mutation: use Cholesky factors in place of symmetric roots.
    """
    rng = np.random.default_rng(seed)
    state_cov, noise_cov, turn = random_spd(rng, dim, condition), random_spd(rng, dim, 1e3), random_rotation(rng, dim)
    noise = relative_noise(state_cov, noise_cov)
    turned = relative_noise(turn @ state_cov @ turn.T, turn @ noise_cov @ turn.T)
    allowed = tolerance(condition, dim)
    assert np.linalg.norm(turned - turn @ noise @ turn.T) <= allowed * np.linalg.norm(noise)
    assert_allclose(relative_noise(state_cov, 0.25 * state_cov), 0.25 * np.eye(dim), atol=allowed)


def test_noiseless_directions_survive_ill_conditioned_states() -> None:
    """Claim 1: the null space of Σ_w stays null in N, so that N passes `optimal_target`'s door.

    Mutation: return the product ``whitener @ noise_cov @ whitener``, which rounding makes indefinite.
    """
    rng = np.random.default_rng(3)
    for _ in range(50):
        state_cov = random_spd(rng, 8, 1e8)
        variances, vectors = np.linalg.eigh(state_cov)
        noise_cov = (vectors[:, -3:] * variances[-3:]) @ vectors[:, -3:].T
        best = optimal_target(relative_noise(state_cov, noise_cov), 4.0)
        assert best.num_high == 5
        assert best.value == pytest.approx(8 / (5 * 4 + 3) * 3, rel=1e-6)


# -- 2. the set --------------------------------------------------------------------------------------------------------


@given(seed=seeds(), dim=dims(1, 32), kappa=conditions(1e6))
def test_members_respect_the_bounds_and_the_bounds_are_attained(seed: int, dim: int, kappa: float) -> None:
    """Claim 2.

    Mutation: exchange κ and 1/κ in one of the two bounds, or use n for n − 1.
    """
    rng = np.random.default_rng(seed)
    members = TargetSet(dim, kappa)
    least, greatest = members.variance_bounds
    target = random_member(rng, dim, kappa)
    assert members.contains(target)
    eigenvalues = np.linalg.eigvalsh(target)
    assert least * (1 - 1e-9) <= eigenvalues[0] + 1e-12
    assert eigenvalues[-1] <= greatest * (1 + 1e-9)
    if dim > 1:
        for extreme, other in ((least, least * kappa), (greatest, greatest / kappa)):
            corner = np.diag([extreme] + [other] * (dim - 1))
            assert members.contains(corner)
            if kappa > 1.01:
                outwards = extreme * 1.001 if extreme > other else extreme / 1.001
                rest = (dim - outwards) / (dim - 1)
                assert not members.contains(np.diag([outwards] + [rest] * (dim - 1)))


@given(seed=seeds(), dim=dims(1, 16), kappa=conditions(1e4), mix=st.floats(0.0, 1.0))
def test_the_set_is_convex_and_invariant(seed: int, dim: int, kappa: float, mix: float) -> None:
    """Claim 2: mixtures and rotations of members are members; multiples are not.

    Mutation: test the trace with ``<=`` n only (drop ``abs``).
    """
    rng = np.random.default_rng(seed)
    members = TargetSet(dim, kappa)
    first, second, turn = random_member(rng, dim, kappa), random_member(rng, dim, kappa), random_rotation(rng, dim)
    assert members.contains(mix * first + (1 - mix) * second)
    assert members.contains(turn @ first @ turn.T)
    assert not members.contains(1.01 * first)
    assert not members.contains(0.99 * first)


def test_membership_by_hand() -> None:
    """Claim 2: the tolerance moves eigenvalues by a fraction of the largest; singular and indefinite are outside."""
    members = TargetSet(2, 3.0)
    assert members.contains(np.diag([1.5, 0.5]))
    assert members.contains([[1.0, 0.5], [0.5, 1.0]])
    assert not members.contains([[1.0, 0.6], [0.6, 1.0]])
    assert not members.contains(np.diag([1.5 + 1e-6, 0.5 - 1e-6]))
    assert members.contains(np.diag([1.5 + 1e-6, 0.5 - 1e-6]), tol=1e-5)
    assert members.contains(np.eye(2), tol=0)
    assert not members.contains(np.diag([2.0, 0.0]), tol=1.0)
    assert not members.contains(np.diag([3.0, -1.0]), tol=1.0)
    assert not TargetSet(2, 1.0).contains(np.diag([1.0 + 1e-6, 1.0 - 1e-6]))
    assert TargetSet(1, 5.0).variance_bounds == (1.0, 1.0)
    assert TargetSet(2, 3.0).variance_bounds == pytest.approx((0.5, 1.5))


# -- 3. projection -----------------------------------------------------------------------------------------------------


@given(
    seed=seeds(),
    dim=dims(),
    kappa=conditions(1e6),
    spread=st.sampled_from([1e-3, 0.1, 1.0, 10.0, 1e6]),
    shift=st.sampled_from([-1e3, 0.0, 1.0, 1e3]),
)
def test_the_projection_is_nearest(seed: int, dim: int, kappa: float, spread: float, shift: float) -> None:
    """Claim 3: ⟨A − P, X − P⟩ ≤ 0 for *every* member X, which characterises the nearest point of a convex set.

    The largest ⟨A − P, X⟩ over the set is a linear problem that `best_linear` solves without the code under test.

    Mutation: balance the clips without κ (drop ``/ kappa`` from ``below``).
    """
    rng = np.random.default_rng(seed)
    rotation = random_rotation(rng, dim)
    eigenvalues = shift + spread * rng.standard_normal(dim)
    if rng.random() < 0.3:
        eigenvalues = np.round(eigenvalues / spread) * spread
    matrix = (rotation * eigenvalues) @ rotation.T
    matrix = (matrix + matrix.T) / 2
    members = TargetSet(dim, kappa)
    nearest = members.project(matrix)
    assert members.contains(nearest)
    pull = matrix - nearest
    gain = -best_linear(-pull, kappa) - np.sum(pull * nearest)
    assert gain <= tolerance(1.0, dim) * (1 + np.linalg.norm(pull)) * np.linalg.norm(nearest)


@given(seed=seeds(), dim=dims(1, 16), kappa=conditions(1e4))
def test_the_projection_keeps_members_and_shrinks_distances(seed: int, dim: int, kappa: float) -> None:
    """Claim 3: P(X) = X on the set, P(P(A)) = P(A), ‖P(A) − P(B)‖ ≤ ‖A − B‖, P(OAOᵀ) = O P(A) Oᵀ, P(A + sI) = P(A).

    Mutation: return L = I (a member, but not the nearest) whenever A is outside.
    """
    rng = np.random.default_rng(seed)
    members, turn = TargetSet(dim, kappa), random_rotation(rng, dim)
    member = random_member(rng, dim, kappa)
    assert_allclose(members.project(member), member, atol=1e-12 * dim)
    first, second = (random_spd(rng, dim, 1e3) / 100 for _ in range(2))
    near, far = members.project(first), members.project(second)
    assert_allclose(members.project(near), near, atol=1e-12 * dim)
    assert np.linalg.norm(near - far) <= np.linalg.norm(first - second) + 1e-12 * dim
    assert_allclose(members.project(turn @ first @ turn.T), turn @ near @ turn.T, atol=1e-11 * dim)
    assert_allclose(members.project(first + 7 * np.eye(dim)), near, atol=1e-11 * dim)
    # Between A and P(A) every point has the same nearest member: fails for any constant map that ignores A.
    halfway = members.project((first + near) / 2)
    assert_allclose(halfway, near, atol=1e-11 * dim)


@pytest.mark.parametrize(("dim", "kappa"), [(2, 2.0), (3, 1.2), (4, 3.0), (5, 50.0)])
def test_the_projection_agrees_with_a_semidefinite_program(dim: int, kappa: float) -> None:
    """Claim 3, against cvxpy with the set written as matrix inequalities."""
    rng = np.random.default_rng(dim)
    for scale in (0.3, 3.0):
        matrix = scale * rng.standard_normal((dim, dim))
        matrix = matrix + matrix.T
        variable, floor = cp.Variable((dim, dim), symmetric=True), cp.Variable()
        identity = np.eye(dim)
        problem = cp.Problem(
            cp.Minimize(cp.sum_squares(variable - matrix)),
            [variable >> floor * identity, variable << kappa * floor * identity, cp.trace(variable) == dim],
        )
        problem.solve(solver=cp.CLARABEL)
        assert_allclose(TargetSet(dim, kappa).project(matrix), variable.value, atol=1e-5)


@pytest.mark.parametrize("kappa", [1.0, 1.0 + 1e-15, 1.0 + 1e-9, 1e12, 1e300])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12, 1e150])
def test_the_projection_is_robust(kappa: float, scale: float) -> None:
    """Claim 3: extreme κ and extreme input leave a member, and κ = 1 leaves the identity."""
    rng = np.random.default_rng(0)
    for dim in (1, 2, 7):
        matrix = scale * rng.standard_normal((dim, dim))
        members = TargetSet(dim, kappa)
        nearest = members.project(matrix + matrix.T)
        assert members.contains(nearest, tol=1e-12) or kappa >= 1e12
        assert np.trace(nearest) == pytest.approx(dim, rel=1e-12)
        assert np.linalg.eigvalsh(nearest)[0] >= -1e-12
        if kappa == 1.0:
            assert_allclose(nearest, np.eye(dim), atol=1e-14)


# -- 4. optimal targets ------------------------------------------------------------------------------------------------


@given(seed=seeds(), dim=dims(), kappa=conditions(1e6))
def test_the_optimum_is_feasible_and_no_member_does_better(seed: int, dim: int, kappa: float) -> None:
    """Claim 4: the value is tr(NL), the two-level bound, and a lower bound for members and for nudged optima.

    Mutation: pair large variance with large noise (reverse ``variances``).
    """
    rng = np.random.default_rng(seed)
    spectrum, noise = random_noise(rng, dim)
    best = optimal_target(noise, kappa)
    members = TargetSet(dim, kappa)
    assert members.contains(best.matrix)
    scale = tolerance(1.0, dim) * spectrum[-1] * dim
    assert best.value == pytest.approx(np.sum(noise * best.matrix), rel=1e-9, abs=scale)
    assert best.value == pytest.approx(best_linear(noise, kappa), rel=1e-8, abs=scale)
    for _ in range(5):
        member = random_member(rng, dim, kappa)
        assert np.sum(noise * member) >= best.value * (1 - 1e-8) - scale
        nudged = 0.9 * best.matrix + 0.1 * member
        assert np.sum(noise * nudged) >= best.value * (1 - 1e-8) - scale


@given(seed=seeds(), dim=st.integers(1, 8), spare=st.integers(0, 3), kappa=conditions(1e4))
def test_no_two_level_assignment_does_better(seed: int, dim: int, spare: int, kappa: float) -> None:
    """Claims 4, 5 and 6: brute force over all 2^D assignments gives the value, the number high, and uniqueness.

    Mutation: use ``threshold = best`` (forget the division by D).
    """
    rng = np.random.default_rng(seed)
    spectrum, noise = random_noise(rng, dim)
    total = dim + spare
    levels = np.concatenate([np.zeros(spare), spectrum])
    masks = np.array(list(itertools.product([0, 1], repeat=total)), dtype=bool)
    variances = np.where(masks, kappa, 1.0)
    variances *= total / variances.sum(axis=1, keepdims=True)
    values = variances @ levels
    best = optimal_target(noise, kappa, total)
    assert best.value == pytest.approx(values.min(), rel=1e-8, abs=1e-13 * spectrum[-1])
    assert len(best.variances) == total
    assert best.variances.sum() == pytest.approx(total)
    assert best.variances @ levels == pytest.approx(best.value, rel=1e-8, abs=1e-13 * spectrum[-1])
    # Only a clear-cut case can be counted by values in floating point.
    targets = variances[:, spare:]
    winners = np.flatnonzero(values <= values.min() * (1 + 1e-12))
    losers = values > values.min() * (1 + 1e-6)
    assume(winners.size + losers.sum() == len(values) and kappa > 1 + 1e-3)
    distinct = np.ptp(targets[winners], axis=0).max()
    repeats = any(levels[i] == levels[j] for i, j in itertools.combinations(range(spare, total), 2))
    if not repeats:
        assert best.unique == (distinct <= 1e-9)
    high = best.variances > 1 + 1e-9
    assert best.num_high == high.sum()
    if best.unique and total > 1:
        assert best.num_high in masks[winners].sum(axis=1)


@pytest.mark.parametrize(("dim", "kappa"), [(2, 2.0), (3, 5.0), (6, 3.0), (10, 10.0)])
def test_the_optimum_agrees_with_a_semidefinite_program(dim: int, kappa: float) -> None:
    """Claim 4, against cvxpy: the same value, and the same matrix where it is unique."""
    rng = np.random.default_rng(dim)
    noise = random_spd(rng, dim, 20.0) / 20
    variable, value = solve_allocation(noise, kappa)
    best = optimal_target(noise, kappa)
    assert best.unique
    assert best.value == pytest.approx(value, rel=1e-6)
    assert_allclose(best.matrix, variable, atol=1e-4 * kappa)


def solve_allocation(noise: Array, kappa: float) -> tuple[Array, float]:
    """Minimise tr(NL) over T_{n,κ} by a semidefinite program."""
    dim = noise.shape[0]
    variable, floor = cp.Variable((dim, dim), symmetric=True), cp.Variable()
    problem = cp.Problem(
        cp.Minimize(cp.trace(noise @ variable)),
        [variable >> floor * np.eye(dim), variable << kappa * floor * np.eye(dim), cp.trace(variable) == dim],
    )
    problem.solve(solver=cp.CLARABEL)
    return variable.value, float(problem.value)


# -- 5. ties -----------------------------------------------------------------------------------------------------------


@given(seed=seeds(), dim=dims(), kappa=conditions(1e6), scale=st.floats(1e-6, 1e6))
def test_isotropic_relative_noise_selects_nothing(seed: int, dim: int, kappa: float, scale: float) -> None:
    """Claim 5: N ∝ I, exactly or up to rounding, gives L = I, k = 0, and says that it is one optimum of many.

    Mutation: compare with the threshold exactly (set ``TIE_TOLERANCE`` to 0).
    """
    rotation = random_rotation(np.random.default_rng(seed), dim)
    for noise in (scale * np.eye(dim), scale * (rotation @ rotation.T)):
        best = optimal_target((noise + noise.T) / 2, kappa)
        assert best.num_high == 0
        assert_allclose(best.matrix, np.eye(dim), atol=1e-12)
        assert best.value == pytest.approx(scale * dim)
        assert best.unique == (dim == 1 or kappa == 1)


@given(seed=seeds(), dim=st.integers(2, 8), exponent=st.floats(0.0, 300.0))
def test_a_large_kappa_is_no_tie(seed: int, dim: int, exponent: float) -> None:
    """Claim 5: at any κ the value is the least over the two-level assignments, though V*/D comes close to min ν.

    Mutation: count ν_i as tied, hence low, if it lies within ``TIE_TOLERANCE`` of V*/D.
    """
    rng = np.random.default_rng(seed)
    kappa = 10.0**exponent
    spectrum = np.sort(rng.choice([1.0, 1.0, 2.0, 5.0, rng.uniform(1.0, 5.0)], dim))
    assignments = [np.where(np.arange(dim) < k, 1.0, 1 / kappa) for k in range(dim)]
    least = min(dim * (spectrum @ weights) / weights.sum() for weights in assignments)
    best = optimal_target(np.diag(spectrum), kappa)
    assert best.value == pytest.approx(least, rel=1e-8)
    assert best.num_high == 0 or spectrum[best.num_high - 1] < spectrum[best.num_high]


@given(noise=spd_matrices(1, 32), spare=st.integers(0, 4))
def test_kappa_one_leaves_only_the_identity(noise: Array, spare: int) -> None:
    """Claim 5: κ = 1 ⇒ L = I, unique, at any noise and latent dimension.

    Mutation: report uniqueness from ties alone, or count directions below the threshold at κ = 1.
    """
    dim = noise.shape[0]
    for matrix in (noise, np.eye(dim)):
        best = optimal_target(matrix, 1.0, dim + spare)
        assert_allclose(best.matrix, np.eye(dim), atol=1e-12)
        assert_allclose(best.variances, 1.0)
        assert (best.num_high, best.unique) == (0, True)
        assert best.value == pytest.approx(np.trace(matrix))


@given(seed=seeds(), dim=dims(2, 32), spare=st.integers(0, 3), kappa=conditions(1e4))
def test_a_direction_at_the_mean_loss_is_a_tie(seed: int, dim: int, spare: int, kappa: float) -> None:
    """Claim 5: adding a direction whose noise is V*/D leaves V*/D as it is, and its own variance free.

    Mutation: drop ``not tied.any()`` from ``unique``, or count tied directions as high.
    """
    assume(kappa > 1.01)
    rng = np.random.default_rng(seed)
    spectrum = rng.uniform(1.0, 3.0, dim)
    total = dim + spare
    base = optimal_target(np.diag(spectrum), kappa, total)
    mean = base.value / total
    rotation = random_rotation(rng, dim + 1)
    best = optimal_target(rotation @ np.diag([*spectrum, mean]) @ rotation.T, kappa, total + 1)
    assert not best.unique
    assert best.num_high == base.num_high
    assert best.value == pytest.approx((total + 1) * mean, rel=1e-9)
    noisier = optimal_target(np.diag([*spectrum, mean * 1.0001]), kappa, total + 1)
    quieter = optimal_target(np.diag([*spectrum, mean / 1.0001]), kappa, total + 1)
    assert noisier.matrix[-1, -1] == pytest.approx(noisier.variances.min())
    assert quieter.matrix[-1, -1] == pytest.approx(quieter.variances.max())


def test_a_tie_at_the_threshold_is_reported() -> None:
    """Claim 5: ν = (1, 2, 4), κ = 2: one or two high, and all between, cost the same."""
    best = optimal_target(np.diag([4.0, 1.0, 2.0]), 2.0)
    assert (best.num_high, best.unique) == (1, False)
    assert best.value == pytest.approx(6.0)
    assert_allclose(best.matrix, np.diag([0.75, 1.5, 0.75]))
    for tied in np.linspace(0.0, 1.0, 5):
        between = (1 - tied) * np.diag([0.75, 1.5, 0.75]) + tied * np.diag([0.6, 1.2, 1.2])
        assert TargetSet(3, 2.0).contains(between)
        assert np.sum(np.diag([4.0, 1.0, 2.0]) * between) == pytest.approx(6.0)
    assert optimal_target(np.diag([4.0, 1.0, 2.0 + 1e-6]), 2.0).unique
    assert optimal_target(np.diag([4.0, 1.0, 2.0 - 1e-6]), 2.0).num_high == 2
    assert not optimal_target(np.diag([4.0, 1.0, 2.0 + 1e-12]), 2.0).unique


def test_no_noise_selects_nothing() -> None:
    """Claim 5: N = 0 makes every target free of loss."""
    for latent_dim in (2, 3):
        best = optimal_target(np.zeros((2, 2)), 4.0, latent_dim)
        assert (best.num_high, best.value, best.unique) == (0, 0.0, False)
        assert_allclose(best.matrix, np.eye(2))


# -- 6. over-complete latents ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spectrum", "kappa", "latent_dim", "diagonal", "value"),
    [
        ((1.0, KAPPA), KAPPA, 2, (2 * KAPPA / (KAPPA + 1), 2 / (KAPPA + 1)), 4 * KAPPA / (KAPPA + 1)),
        ((1.0, KAPPA), KAPPA, 3, (3 / (KAPPA + 2),) * 2, 3 * (1 + KAPPA) / (KAPPA + 2)),
        ((1.0, KAPPA), KAPPA, 4, (2 / (KAPPA + 1),) * 2, 2.0),
        ((1.0, 20.0), 4.0, 3, (4 / 3, 1 / 3), 8.0),
        ((1.0, 2.0, 5.0), 2.0, 5, (5 / 4, 5 / 8, 5 / 8), 5.625),
    ],
)
def test_known_over_complete_cases(
    spectrum: tuple[float, ...], kappa: float, latent_dim: int, diagonal: tuple[float, ...], value: float
) -> None:
    """Claim 6: spare coordinates take the high variance first; the padded semidefinite program agrees."""
    best = optimal_target(np.diag(spectrum), kappa, latent_dim)
    assert_allclose(best.matrix, np.diag(diagonal), rtol=1e-12)
    assert best.value == pytest.approx(value, rel=1e-12)
    assert best.unique
    padded = np.diag([*spectrum, *[0.0] * (latent_dim - len(spectrum))])
    full, program_value = solve_allocation(padded, kappa)
    assert program_value == pytest.approx(value, rel=1e-6)
    block = full[: len(spectrum), : len(spectrum)]
    assert_allclose(best.matrix, block, atol=1e-4)
    assert_allclose(best.variances, np.linalg.eigvalsh(full)[::-1], atol=1e-4)


def test_one_spare_dimension_undoes_the_correction() -> None:
    """Claim 6: at κ = c the metric is the identity for D = n = 2, and Σ⁻¹ up to scale for D = 3 and 4."""
    state_cov = np.diag([KAPPA, 1.0])
    noise = relative_noise(state_cov, 0.25 * np.eye(2))
    ratios = [
        condition_number(anisotropic_metric(state_cov, optimal_target(noise, KAPPA, latent_dim).matrix))
        for latent_dim in (2, 3, 4)
    ]
    assert ratios == pytest.approx([1.0, KAPPA, KAPPA])


@given(seed=seeds(), dim=st.integers(1, 6), spare=st.integers(1, 6), kappa=conditions(1e3))
def test_the_padded_rule_bounds_every_embedding(seed: int, dim: int, spare: int, kappa: float) -> None:
    """Claim 6, by definition: L = VᵀΛV, VᵀV = I, Λ diagonal in T_{D,κ}. No such pair beats the value; one attains it.

    Mutation: pad with ones, or take ``variances[:dim]`` for the state.
    """
    rng = np.random.default_rng(seed)
    spectrum, noise = random_noise(rng, dim)
    total = dim + spare
    best = optimal_target(noise, kappa, total)
    allowed = 1e-8 * best.value + 1e-12 * spectrum[-1]
    eigenvectors = np.linalg.eigh(noise)[1]
    embedding = np.vstack([np.zeros((spare, dim)), eigenvectors.T])
    attained = embedding.T @ np.diag(best.variances) @ embedding
    assert_allclose(attained, best.matrix, atol=1e-10 * total)
    assert TargetSet(total, kappa).contains(np.diag(best.variances))
    for k in range(total):
        variances = np.array([kappa] * k + [1.0] * (total - k))
        variances *= total / variances.sum()
        # On the state's own directions, and on a frame turned a little or a lot away from them.
        for angle in (0.0, 0.1, 3.0):
            skew = angle * rng.standard_normal((total, total))
            frame = np.linalg.qr(np.eye(total) + skew - skew.T)[0] @ embedding
            assert np.sum(noise * (frame.T @ np.diag(variances) @ frame)) >= best.value - allowed
    assert np.trace(best.matrix) <= dim * (1 + 1e-12)


# -- 7. shape of the optimum -------------------------------------------------------------------------------------------


@given(seed=seeds(), dim=dims(2, 32), spare=st.integers(0, 4), kappa=conditions(1e3), factor=st.floats(1e-3, 1e3))
def test_large_variance_goes_to_small_relative_noise(
    seed: int, dim: int, spare: int, kappa: float, factor: float
) -> None:
    """Claim 7: LN = NL with opposite order, two levels a factor κ apart; L turns with N and ignores its scale.

    Mutation: build the matrix from ``eigenvectors[:, ::-1]``.
    """
    rng = np.random.default_rng(seed)
    spectrum = np.sort(rng.uniform(0.1, 10.0, dim))
    rotation, turn = random_rotation(rng, dim), random_rotation(rng, dim)
    noise = (rotation * spectrum) @ rotation.T
    noise = (noise + noise.T) / 2
    best = optimal_target(noise, kappa, dim + spare)
    assume(best.unique)
    along = np.einsum("ij,ik,kj->j", rotation, best.matrix, rotation)
    assert np.all(np.diff(along) <= 1e-9 * dim)
    assert_allclose(best.matrix @ noise, noise @ best.matrix, atol=1e-10 * dim)
    levels = best.variances / best.variances.min()
    assert np.all(np.isclose(levels, 1.0) | np.isclose(levels, kappa))
    assert np.all(np.diff(best.variances) <= 0)
    assert_allclose(optimal_target(factor * noise, kappa, dim + spare).matrix, best.matrix, atol=1e-8 * dim)
    turned = optimal_target(turn @ noise @ turn.T, kappa, dim + spare).matrix
    gaps = np.diff(np.append(np.zeros(spare), spectrum))
    assume(best.num_high == 0 or gaps[best.num_high - 1 : best.num_high].min(initial=1.0) > 1e-4)
    assert_allclose(turned, turn @ best.matrix @ turn.T, atol=1e-7 * dim)


def test_the_result_is_frozen() -> None:
    """Results are values: nobody changes one in passing."""
    best = optimal_target(np.diag([1.0, 2.0]), 2.0)
    assert isinstance(best, OptimalTarget)
    with pytest.raises(AttributeError):
        best.value = 0.0  # type: ignore[misc]


# -- 8. bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: relative_noise(np.diag([1.0, 0.0]), np.eye(2)), r"state_cov .* singular along the direction \(0, 1\)"),
        (lambda: relative_noise(np.eye(2), np.diag([1.0, -1.0])), "noise_cov must be positive semidefinite"),
        (lambda: relative_noise(np.eye(2), np.eye(3)), r"noise_cov must have shape \(2, 2\)"),
        (lambda: relative_noise(np.eye(2), [[0.0, 1.0], [0.0, 0.0]]), "noise_cov must be symmetric"),
        (lambda: TargetSet(0, 2.0), "dim must be at least 1"),
        (lambda: TargetSet(2.5, 2.0), "dim must be a whole number"),  # type: ignore[arg-type]
        (lambda: TargetSet(2, 0.5), "kappa must be at least 1"),
        (lambda: TargetSet(2, np.inf), "kappa must be finite"),
        (lambda: TargetSet(2, 2.0).contains(np.eye(3)), r"target must have shape \(2, 2\)"),
        (lambda: TargetSet(2, 2.0).contains([[1.0, 0.2], [0.0, 1.0]]), "target must be symmetric"),
        (lambda: TargetSet(2, 2.0).contains(np.eye(2), tol=-1.0), "tol must be positive"),
        (lambda: TargetSet(2, 2.0).project([[np.nan, 0.0], [0.0, 1.0]]), "target must be finite"),
        (lambda: TargetSet(2, 2.0).project(np.ones(2)), "target must have 2 dimensions"),
        (lambda: optimal_target(np.diag([1.0, -1.0]), 2.0), "noise must be positive semidefinite"),
        (lambda: optimal_target(np.zeros((0, 0)), 2.0), "noise must not be empty"),
        (lambda: optimal_target(np.eye(2), 0.99), "kappa must be at least 1"),
        (lambda: optimal_target(np.eye(2), np.nan), "kappa must be finite"),
        (lambda: optimal_target(np.eye(2), 2.0, 1), "latent_dim must be at least the state dimension 2, but it is 1"),
        (lambda: optimal_target(np.eye(2), 2.0, 3.0), "latent_dim must be a whole number"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_one_sentence(call, message: str) -> None:
    """Claim 8."""
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


@given(seed=seeds(), kappa=st.sampled_from([1.25, 2.0, 4.0, 16.0]), dim=st.integers(2, 8))
def test_latents_of_192_dimensions_leave_the_state_one_variance(seed: int, kappa: float, dim: int) -> None:
    """T12 at D = 192: L ∝ I, so M ∝ Σ⁻¹ whatever κ, unless ν₁ < S/((D − n)κ + n), with S = Σν.

    Mutation: pad with ones instead of zeros, or leave ``latent_dim`` out of the threshold.
    """
    rng = np.random.default_rng(seed)
    # Log-uniform over four decades, so that both sides of the threshold (about S/380 at κ = 2) are met.
    levels = np.sort(10.0 ** rng.uniform(-4, 0, dim))
    rotation = random_rotation(rng, dim)
    found = optimal_target((rotation * levels) @ rotation.T, kappa, latent_dim=192)
    eigenvalues = np.linalg.eigvalsh(found.matrix)
    isotropic = bool(eigenvalues[-1] <= eigenvalues[0] * (1 + 1e-9))
    assert isotropic == bool(levels[0] >= levels.sum() / ((192 - dim) * kappa + dim))
