"""Planning regret: single cases, the mean over lines, and the worst case (docs/theory.md, T5 and T6).

1. On a line, the regret is what a dense grid of the two costs gives.
2. A reachable goal has excess 0 and normalised regret nan, at every scale; a goal just outside does not.
3. Regret is zero for every line iff M ∝ Q.
4. Regret is unchanged by a change of coordinates, rotations included, and by the scale of M.
5. The worst case is attained, and no affine set of any dimension exceeds it.
6. No convex polygon exceeds it either, and thin ones approach it.
7. Finite sets exceed it, stay below ρ − 1, and two points approach ρ − 1.
8. The mean over lines is that of an average over angles (n = 2), of Monte Carlo, and of the integral in 30 digits.
9. Its relative error is below 1e-9 for condition numbers up to 1e6 and n = 192, and for regrets that all but vanish.
10. Many affine cases at once equal the same cases one by one.
11. Importing the module loads neither pandas nor scipy.optimize; wrong input is refused in one sentence.
"""

from __future__ import annotations

import math
import subprocess
import sys

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import conditions, dims, random_rotation, random_spd, seeds, spd_matrices, spd_pairs, tolerance

from theory.reachable import AffineSet, Ellipsoid, FiniteSet, LinearSystem, Polytope, Zonotope
from theory.regret import affine_regrets, mean_line_regret, planning_regret, regret_bound, worst_case, worst_regret
from theory.spd import condition_number

Array = NDArray[np.float64]


def kantorovich(ratio: float) -> float:
    return math.sinh(math.log(ratio) / 2) ** 2


SETS = {
    "affine": lambda size: AffineSet(size * np.array([1.0, 2.0]), size * np.array([[1.0], [0.2]])),
    "polytope": lambda size: Polytope(size * np.array([[1.0, 1.0], [2.0, 0.0], [3.0, 3.0]])),
    "zonotope": lambda size: Zonotope(size * np.array([3.0, 1.0]), size * np.array([[1.0, 0.5], [0.0, 1.0]])),
    "ellipsoid": lambda size: Ellipsoid(size * np.array([3.0, 1.0]), size**2 * np.array([[1.0, 0.5], [0.5, 1.0]])),
    "points": lambda size: FiniteSet(size * np.array([[1.0, 0.0], [0.0, 1.1], [3.0, 3.0]])),
}


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("exponent", [-300, -160, 160, 300])
@pytest.mark.filterwarnings("error")
def test_lengths_whose_squares_leave_float64(kind: str, exponent: int) -> None:
    """Claim 4: the unit of length does not change a normalised regret, at 1e±300 either; no warning, no false goal.

    Mutation: in ``planning_regret`` or a set's ``nearest`` leave out the unit that coordinates are divided by.
    """
    size = 10.0**exponent
    if kind == "ellipsoid":
        # Its shape is a square itself.
        size = 10.0 ** (exponent / 2)
    metric = np.diag([2.0, 1.0])
    expected = planning_regret(SETS[kind](1.0), [0.0, 0.0], metric)
    result = planning_regret(SETS[kind](size), [0.0, 0.0], metric)
    assert expected.normalized > 1e-3 or kind in ("polytope", "zonotope")
    assert result.normalized == pytest.approx(expected.normalized, rel=1e-10, abs=1e-14)
    np.testing.assert_allclose(result.chosen / size, expected.chosen, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 1e300])
@pytest.mark.filterwarnings("error")
def test_batch_at_lengths_whose_squares_leave_float64(size: float) -> None:
    """Claim 10: neither the unit of the state, of the directions nor of a metric changes a normalised regret.

    Mutation: leave out any of the units in ``affine_regrets``.
    """
    rng = np.random.default_rng(0)
    points, goals, directions = rng.standard_normal((20, 4)), rng.standard_normal((20, 4)), rng.normal(size=(20, 4, 2))
    metric, task = np.diag([1.0, 2.0, 5.0, 9.0]), np.diag([1.0, 1.0, 2.0, 1.0])
    expected = affine_regrets(points, directions, goals, metric, task).normalized
    for case in (
        (size * points, directions, size * goals, metric, task),
        (points, size * directions, goals, metric, task),
        (points, directions, goals, size * metric, task),
        (points, directions, goals, metric, size * task),
    ):
        np.testing.assert_allclose(affine_regrets(*case).normalized, expected, rtol=1e-10)


@given(spd_pairs(2, 6, 1e3), seeds())
def test_line_agrees_with_a_dense_grid(pair: tuple[Array, Array], seed: int) -> None:
    """Claim 1: the cheapest point of 20,001 in M, judged by Q against the cheapest in Q.

    Mutation: swap the metrics, or divide by the chosen outcome's cost instead of the optimal one's.
    """
    metric, task = pair
    rng = np.random.default_rng(seed)
    point, direction, goal = rng.standard_normal((3, metric.shape[0]))
    result = planning_regret(AffineSet(point, direction[:, None]), goal, metric, task)

    def costs(weight: Array, grid: Array) -> Array:
        offsets = point - goal + grid[:, None] * direction
        return np.einsum("gi,ij,gj->g", offsets, weight, offsets)

    grids = {}
    for name, weight in (("M", metric), ("Q", task)):
        grid = np.linspace(-1e4, 1e4, 20001)
        # Each zoom keeps the cheapest point's neighbours.
        for _ in range(3):
            centre, step = grid[np.argmin(costs(weight, grid))], grid[1] - grid[0]
            grid = np.linspace(centre - step, centre + step, 20001)
        grids[name] = grid[[np.argmin(costs(weight, grid))]]
    chosen, optimal = costs(task, grids["M"])[0], costs(task, grids["Q"])[0]
    assert result.excess == pytest.approx(chosen - optimal, rel=1e-4, abs=1e-5 * optimal)
    assert result.normalized == pytest.approx(chosen / optimal - 1, rel=1e-4, abs=1e-5)
    np.testing.assert_allclose(result.chosen, point + grids["M"][0] * direction, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(result.optimal, point + grids["Q"][0] * direction, rtol=1e-4, atol=1e-4)


@given(spd_pairs(1, 64, 1e8), seeds(), st.integers(-8, 8), st.integers(-4, 4))
def test_reachable_goal_has_no_regret(pair: tuple[Array, Array], seed: int, exponent: int, far: int) -> None:
    """Claim 2: g = p + Va, computed in floating point, at any scale and distance from the origin.

    Mutation: compare the cost with 0 instead of rounding, or leave the size of p out of the tolerance.
    """
    metric, task = pair
    dim = metric.shape[0]
    rng = np.random.default_rng(seed)
    scale = 10.0**exponent
    point, directions = (
        scale * 10.0**far * rng.standard_normal(dim),
        rng.standard_normal((dim, rng.integers(0, dim + 1))),
    )
    if far > 0:
        # Far out along the set itself, so that g is a small difference of large numbers.
        point = directions @ (scale * 10.0**far * rng.standard_normal(directions.shape[1]))
        goal = point - directions @ np.linalg.lstsq(directions, point, rcond=None)[0]
    else:
        goal = point + directions @ (scale * rng.standard_normal(directions.shape[1]))
    result = planning_regret(AffineSet(point, directions), goal, metric, task)
    assert result.excess == 0.0
    assert math.isnan(result.normalized)


@given(spd_pairs(2, 16, 1e4), seeds(), st.integers(-6, 0))
def test_goal_just_outside_has_regret(pair: tuple[Array, Array], seed: int, exponent: int) -> None:
    """A goal at a relative distance down to 1e-6 is not mistaken for a reachable one: the regret is that of distance 1.

    Mutation: widen the tolerance to 1e-6.
    """
    metric, task = pair
    case = worst_case(metric, task)
    point = np.random.default_rng(seed).standard_normal(metric.shape[0])
    goal = point + 10.0**exponent * case.offset / np.linalg.norm(case.offset)
    near = planning_regret(AffineSet(point, case.direction[:, None]), goal, metric, task)
    assert near.normalized == pytest.approx(case.regret, rel=1e-3)


@pytest.mark.parametrize("kind", ["polytope", "zonotope", "ellipsoid", "finite", "system"])
def test_reachable_goal_of_bounded_sets(kind: str) -> None:
    """Goals inside, on the border and at a corner have excess 0 and normalised regret nan.

    Mutation: tighten the tolerance to 1e-18.
    """
    rng = np.random.default_rng(1)
    for dim in (2, 3, 8):
        metric, task, center = random_spd(rng, dim, 1e3), random_spd(rng, dim, 1e3), rng.standard_normal(dim)
        extent = rng.standard_normal((dim, dim + 2))
        if kind == "polytope":
            reachable, goals = (
                Polytope((center[:, None] + extent).T),
                [center + extent[:, 0], center + extent.mean(axis=1)],
            )
        elif kind == "zonotope":
            reachable, goals = Zonotope(center, extent), [center, center + extent.sum(axis=1)]
        elif kind == "ellipsoid":
            axis = extent[:, :dim]
            reachable, goals = Ellipsoid(center, axis @ axis.T), [center, center + 0.9 * axis[:, 0]]
        elif kind == "finite":
            reachable, goals = FiniteSet(extent.T), list(extent.T)
        else:
            system = LinearSystem(extent[:, :dim] / 4, extent[:, dim:], np.eye(dim))
            reachable = system.reachable_set(center, 3, 1.0, "box")
            goals = [system.predict(center, rng.uniform(-1, 1, (3, 2)))[-1]]
        for goal in goals:
            result = planning_regret(reachable, goal, metric, task)
            assert result.excess == 0.0
            assert math.isnan(result.normalized)


@given(spd_matrices(2, 64, 1e8), seeds(), st.integers(-6, 6))
def test_no_line_has_regret_if_metrics_are_proportional(task: Array, seed: int, exponent: int) -> None:
    """Claim 3, one direction: M = cQ.

    Mutation: use Q = I whatever is passed.
    """
    rng = np.random.default_rng(seed)
    point, direction = rng.standard_normal((2, task.shape[0]))
    metric = 10.0**exponent * task
    result = planning_regret(AffineSet(point, direction[:, None]), np.zeros(point.size), metric, task)
    assert result.normalized < 1e-14
    assert mean_line_regret(metric, task) < 1e-15
    assert worst_regret(metric, task) < 1e-13


@given(spd_pairs(2, 64, 1e4))
def test_some_line_has_regret_if_metrics_are_not_proportional(pair: tuple[Array, Array]) -> None:
    """Claim 3, the other direction: unless ρ = 1 the returned line has regret, and the mean is positive.

    Mutation: return the direction of the extreme eigenvector itself, on which regret is zero.
    """
    metric, task = pair
    assume(condition_number(metric, task) > 1 + 1e-6)
    case = worst_case(metric, task)
    line = AffineSet(case.offset, case.direction[:, None])
    assert planning_regret(line, np.zeros(case.offset.size), metric, task).normalized > 1e-14
    assert mean_line_regret(metric, task) > 1e-15


@given(spd_pairs(2, 16, 1e3), seeds(), conditions(1e3), st.integers(-6, 6))
def test_change_of_coordinates_and_scale_of_metric(
    pair: tuple[Array, Array], seed: int, condition: float, exponent: int
) -> None:
    """Claim 4: x → Tx, M → cT⁻ᵀMT⁻¹, Q → T⁻ᵀQT⁻¹ leaves every regret as it was; with Q = I, T a rotation.

    Mutation: draw mean or worst case in x instead of Q^{1/2}x coordinates (use M's own eigenvalues).
    """
    metric, task = pair
    rng = np.random.default_rng(seed)
    dim = metric.shape[0]
    point, goal = rng.standard_normal((2, dim))
    directions = rng.standard_normal((dim, rng.integers(1, dim)))
    stretch = random_spd(rng, dim, condition) @ random_rotation(rng, dim)
    for given_task, change in ((task, stretch), (None, random_rotation(rng, dim))):
        inverse = np.linalg.inv(change)
        moved = 10.0**exponent * inverse.T @ metric @ inverse
        moved_task = None if given_task is None else inverse.T @ given_task @ inverse
        before = planning_regret(AffineSet(point, directions), goal, metric, given_task)
        after = planning_regret(AffineSet(change @ point, change @ directions), change @ goal, moved, moved_task)
        assert after.normalized == pytest.approx(before.normalized, rel=1e-5, abs=1e-8)
        assert mean_line_regret(moved, moved_task) == pytest.approx(mean_line_regret(metric, given_task), rel=1e-6)
        assert worst_regret(moved, moved_task) == pytest.approx(worst_regret(metric, given_task), rel=1e-6)


@given(spd_pairs(2, 64, 1e4))
def test_worst_case_is_attained(pair: tuple[Array, Array]) -> None:
    """Claim 5: the returned line has that regret, which is sinh²(½ ln ρ); direction and offset are Q-orthonormal.

    Mutation: swap sine and cosine in ``worst_case``; drop the half of (σ² − 1)/(2σ) in ``_worst``.
    """
    metric, task = pair
    case = worst_case(metric, task)
    rel = tolerance(1e8, metric.shape[0])
    line = AffineSet(case.offset, case.direction[:, None])
    attained = planning_regret(line, np.zeros(case.offset.size), metric, task)
    assert attained.normalized == pytest.approx(case.regret, rel=rel, abs=1e-12)
    assert case.regret == pytest.approx(kantorovich(condition_number(metric, task)), rel=rel, abs=1e-12)
    assert case.regret == worst_regret(metric, task)
    frame = np.stack([case.direction, case.offset])
    np.testing.assert_allclose(frame @ task @ frame.T, np.eye(2), atol=rel)


@given(spd_pairs(2, 12, 1e4), seeds())
def test_no_affine_set_exceeds_the_worst_case(pair: tuple[Array, Array], seed: int) -> None:
    """Claim 5: random affine sets, and the worst line slightly turned, of every dimension below n.

    Mutation: replace (ρ − 1)²/(4ρ) by (√ρ − 1)²/(2√ρ), the mean.
    """
    metric, task = pair
    rng = np.random.default_rng(seed)
    dim = metric.shape[0]
    case = worst_case(metric, task)
    bound = regret_bound(AffineSet(np.zeros(dim), np.zeros((dim, 0))), metric, task)
    assert bound == case.regret
    for k in range(1, dim):
        columns = rng.standard_normal((dim, k))
        columns[:, 0] = case.direction + 0.1 * rng.standard_normal(dim) * np.linalg.norm(case.direction)
        point = case.offset + 0.1 * rng.standard_normal(dim) * np.linalg.norm(case.offset)
        result = planning_regret(AffineSet(point, columns), np.zeros(dim), metric, task)
        assert result.normalized <= bound * (1 + 1e-6) + 1e-12


def polygon_regret(vertices: Array, metric: Array) -> float:
    """Regret of a convex polygon (corners in order) for the goal 0 outside it, Q = I, edge by edge: exact geometry."""
    ends = np.roll(vertices, -1, axis=0)
    best = {}
    for name, weight in (("M", metric), ("Q", np.eye(2))):
        edges = ends - vertices
        share = -np.einsum("ei,ij,ej->e", edges, weight, vertices) / np.einsum("ei,ij,ej->e", edges, weight, edges)
        feet = vertices + np.clip(share, 0, 1)[:, None] * edges
        best[name] = feet[np.argmin(np.einsum("ei,ij,ej->e", feet, weight, feet))]
    return float(best["M"] @ best["M"] / (best["Q"] @ best["Q"]) - 1)


@given(seeds(), conditions(1e4), st.integers(3, 9))
def test_no_polygon_exceeds_the_worst_case(seed: int, condition: float, corners: int) -> None:
    """Claim 6: 40 polygons a case, goal outside; ``planning_regret`` agrees with the geometry.

    Mutation: return ρ/4 − ½ (which forgets 1/(4ρ)) as the bound.
    """
    rng = np.random.default_rng(seed)
    metric = np.diag([condition, 1.0])
    bound = worst_regret(metric) if condition > 1 else 0.0
    for trial in range(40):
        angles = np.sort(rng.uniform(0, 2 * np.pi, corners))
        shape = np.stack([np.cos(angles), np.sin(angles)], axis=1) * [1.0, 10.0 ** rng.uniform(-2, 2)]
        turn = random_rotation(rng, 2)
        vertices = shape @ turn.T
        # Beyond the support line of a random direction the goal, here 0, is outside.
        outward = rng.standard_normal(2)
        vertices = vertices + outward / np.linalg.norm(outward) * 10.0 ** rng.uniform(-2, 1)
        vertices = vertices - (min((vertices @ outward).min(), 0.0) / (outward @ outward) - 1e-3) * outward
        regret = polygon_regret(vertices, metric)
        assert regret <= bound * (1 + 1e-9) + 1e-9
        if trial < 3:
            ours = planning_regret(Polytope(vertices), [0.0, 0.0], metric)
            assert ours.normalized == pytest.approx(regret, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("ratio", [1.5, 3.0625, 100.0])
def test_polygons_approach_the_worst_case(ratio: float) -> None:
    """Claim 6: a triangle whose long edge lies along the worst line reaches the bound; ``regret_bound`` names it.

    Mutation: take the finite-set bound ρ − 1 for convex sets.
    """
    metric = np.diag([ratio, 1.0])
    case = worst_case(metric)
    triangle = np.array([case.offset + 50 * case.direction, case.offset - 50 * case.direction, 3 * case.offset])
    bound = regret_bound(Polytope(triangle), metric)
    assert polygon_regret(triangle, metric) == pytest.approx(bound, rel=1e-9)
    assert planning_regret(Polytope(triangle), [0.0, 0.0], metric).normalized == pytest.approx(bound, rel=1e-9)
    assert bound == pytest.approx(kantorovich(ratio), rel=1e-12)
    short = np.array([case.offset + 1e-3 * case.direction, case.offset - 1e-3 * case.direction, 3 * case.offset])
    assert polygon_regret(short, metric) < bound / 2


@given(spd_pairs(2, 16, 1e4), seeds(), st.integers(2, 30))
def test_finite_sets_stay_below_rho_minus_one(pair: tuple[Array, Array], seed: int, count: int) -> None:
    """Claim 7: random candidates, and pairs along the extreme eigenvectors at random ratios.

    Mutation: give finite sets the convex bound.
    """
    metric, task = pair
    rng = np.random.default_rng(seed)
    dim = metric.shape[0]
    case = worst_case(metric, task)
    extreme = np.stack([case.direction, case.offset])
    points = np.vstack([rng.standard_normal((count, dim)), rng.standard_normal((4, 2)) @ extreme])
    result = planning_regret(FiniteSet(points), np.zeros(dim), metric, task)
    assert result.normalized <= regret_bound(FiniteSet(points), metric, task) * (1 + 1e-6)
    assert regret_bound(FiniteSet(points), metric, task) == pytest.approx(
        condition_number(metric, task) - 1, rel=tolerance(1e8, dim), abs=1e-10
    )


@pytest.mark.parametrize("ratio", [1.5, 3.0625, 100.0])
def test_two_points_approach_rho_minus_one_and_exceed_sinh_squared(ratio: float) -> None:
    """Claim 7: candidates (1, 0) and (0, √ρ(1 − δ)) under M = diag(ρ, 1): regret ρ(1 − δ)² − 1.

    Mutation: let ties or the Euclidean order decide in ``FiniteSet.nearest``.
    """
    metric = np.diag([ratio, 1.0])
    for margin in (1e-2, 1e-4, 1e-8):
        candidates = FiniteSet([[1.0, 0.0], [0.0, math.sqrt(ratio) * (1 - margin)]])
        regret = planning_regret(candidates, [0.0, 0.0], metric).normalized
        assert regret == pytest.approx(ratio * (1 - margin) ** 2 - 1, rel=1e-9)
        assert worst_regret(metric) < regret < regret_bound(candidates, metric)
    # At δ = 0 the two tie, and the first listed is the task's choice as well.
    tied = FiniteSet([[1.0, 0.0], [0.0, math.sqrt(ratio)]])
    assert planning_regret(tied, [0.0, 0.0], metric).normalized == 0.0


@given(spd_pairs(2, 2, 1e6))
def test_mean_in_two_dimensions_is_an_average_over_angles(pair: tuple[Array, Array]) -> None:
    """Claim 8: in Q^{1/2}x coordinates, over 2^16 equally spaced angles (periodic and analytic: exponential accuracy).

    Mutation: return (√ρ − 1)²/√ρ, or use ρ where √ρ belongs.
    """
    metric, task = pair
    root = np.linalg.cholesky(task)
    white = np.linalg.solve(root, np.linalg.solve(root, metric).T)
    ratio = condition_number(metric, task)
    mean = mean_line_regret(metric, task)
    assert mean == pytest.approx(math.cosh(math.log(ratio) / 2) - 1, rel=tolerance(1e12, 2), abs=1e-13)
    if ratio < 1e5:
        angle = np.pi * np.arange(2**16) / 2**16
        line = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        normal = np.stack([-np.sin(angle), np.cos(angle)], axis=1)
        regrets = (np.einsum("ai,ij,aj->a", line, white, normal) / np.einsum("ai,ij,aj->a", line, white, line)) ** 2
        assert mean == pytest.approx(regrets.mean(), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(("dim", "condition"), [(2, 3.0625), (3, 5.0), (5, 20.0), (12, 100.0)])
def test_mean_agrees_with_monte_carlo(dim: int, condition: float) -> None:
    """Claim 8: 200,000 random lines, each planned, in x coordinates with their own task metric; five standard errors.

    Mutation: divide by n instead of n − 1.
    """
    rng = np.random.default_rng(dim)
    metric, task = random_spd(rng, dim, condition), random_spd(rng, dim, 10.0)
    inverse_root = np.linalg.inv(np.linalg.cholesky(task).T)
    line = rng.standard_normal((200_000, dim))
    line /= np.linalg.norm(line, axis=1, keepdims=True)
    offset = rng.standard_normal(line.shape)
    offset -= np.einsum("mi,mi->m", offset, line)[:, None] * line
    batch = affine_regrets(
        offset @ inverse_root.T, (line @ inverse_root.T)[:, :, None], np.zeros_like(line), metric, task
    )
    error = batch.normalized.std(ddof=1) / math.sqrt(len(line))
    assert batch.num_reachable == 0
    assert abs(batch.mean - mean_line_regret(metric, task)) < 5 * error


def mean_in_thirty_digits(spectrum: list[float]) -> mp.mpf:
    """T6's integral as it stands, ∫ s ∏a^{−1/2}[(Σ1/a)(Σμ²/a) + 2Σμ²/a²] ds − 1 over n − 1, by mpmath."""
    with mp.workdps(40):
        scale = mp.exp(mp.fsum(mp.log(mp.mpf(value)) for value in spectrum) / len(spectrum))
        mu = [mp.mpf(value) / scale for value in spectrum]

        def integrand(u: mp.mpf) -> mp.mpf:
            s = mp.exp(u)
            a = [1 + 2 * s * value for value in mu]
            ratios = [value / x for value, x in zip(mu, a, strict=True)]
            first = mp.fsum(1 / x for x in a) * mp.fdot(mu, ratios)
            second = 2 * mp.fdot(ratios, ratios)
            return s**2 * (first + second) / mp.sqrt(mp.fprod(a))

        low, high = -mp.log(mp.fsum(mu)) - 45, mp.log(mp.fsum(1 / value for value in mu)) + 180 / mp.mpf(len(mu))
        step = mp.mpf("0.15")
        # The trapezoidal rule for an analytic integrand that decays at both ends: error exp(−π²/0.15) = 3e-29.
        total = step * mp.fsum(integrand(low + step * i) for i in range(int((high - low) / step) + 1))
        return (total - 1) / (len(mu) - 1)


SPECTRA = [
    [1.0, 2.0, 5.0],
    [0.1, 1.0, 2.0, 30.0],
    [1.0, 1.0, 1e6],
    [1.0, 1e6, 1e6],
    [1e-3, 1.0, 1e3, 1e3, 1e3],
    [1.0, 1.0 + 1e-5, 1.0 + 3e-5],
    [1.0, 1.0 + 2.0**-40, 1.0 + 2.0**-39, 1.0],
    np.geomspace(1, 1e6, 9).tolist(),
]


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_mean_agrees_with_thirty_digits(spectrum: list[float]) -> None:
    """Claims 8 and 9: relative error 1e-12, and for regrets down to 1e-25 what rounding of the spectrum leaves.

    Mutation: evaluate the integral as it stands in float64 (then small regrets are lost), or LINE_STEP = 1.5.
    """
    expected = float(mean_in_thirty_digits(spectrum))
    # Differences of eigenvalues are known to ε relative to the eigenvalues.
    rel = 1e-12 + 4 * np.finfo(float).eps / (max(spectrum) / min(spectrum) - 1)
    assert mean_line_regret(np.diag(spectrum)) == pytest.approx(expected, rel=rel, abs=0)


def test_mean_known_values() -> None:
    """Numbers derived twice elsewhere, and the one that is consistent with the paper's plateau of 0.1607.

    Mutation: any change of the formula.
    """
    assert mean_line_regret(np.diag([16 / 49, 1.0])) == pytest.approx(9 / 56, rel=1e-15)
    assert mean_line_regret(np.diag([1.0, 2.0, 5.0])) == pytest.approx(0.13968397, abs=5e-9)
    assert worst_regret(np.diag([1.0, 2.0, 5.0])) == pytest.approx(0.8, rel=1e-14)
    assert mean_line_regret(np.diag([0.1, 1.0, 2.0, 30.0])) == pytest.approx(1.28954, abs=5e-6)


@pytest.mark.parametrize("condition", [1.01, 1e6])
def test_mean_at_192_dimensions(condition: float) -> None:
    """Claim 9 at n = 192: the spectrum in 30 digits, and the same spectrum rotated, with and without a task metric.

    Mutation: normalise by the largest eigenvalue instead of the geometric mean, or LINE_STEP = 1.5.
    """
    rng = np.random.default_rng(192)
    spectrum = np.exp(rng.uniform(0, np.log(condition), 192))
    spectrum[:2] = 1.0, condition
    expected = float(mean_in_thirty_digits(spectrum.tolist()))
    rotation = random_rotation(rng, 192)
    metric = (rotation * spectrum) @ rotation.T
    assert mean_line_regret(np.diag(spectrum)) == pytest.approx(expected, rel=1e-11, abs=0)
    assert mean_line_regret(metric) == pytest.approx(expected, rel=1e-9, abs=0)
    factor = random_spd(rng, 192, 10.0)
    assert mean_line_regret(factor @ metric @ factor, factor @ factor) == pytest.approx(expected, rel=1e-9, abs=0)


@given(spd_pairs(2, 10, 1e3), seeds(), st.integers(1, 4))
def test_batch_equals_single_cases(pair: tuple[Array, Array], seed: int, k: int) -> None:
    """Claim 10, with some goals made reachable.

    Mutation: take the planner's step from p instead of from x*; forget the back substitution; skip ``num_reachable``.
    """
    metric, task = pair
    rng = np.random.default_rng(seed)
    dim = metric.shape[0]
    k = min(k, dim)
    points, goals = rng.standard_normal((2, 12, dim))
    directions = rng.standard_normal((12, dim, k))
    goals[:3] = points[:3] + np.einsum("mnk,mk->mn", directions[:3], rng.standard_normal((3, k)))
    given_task = task if seed % 2 else None
    batch = affine_regrets(points, directions, goals, metric, given_task)
    singles = [
        planning_regret(AffineSet(points[i], directions[i]), goals[i], metric, given_task) for i in range(len(points))
    ]
    np.testing.assert_allclose(batch.normalized, [one.normalized for one in singles], rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(batch.excess, [one.excess for one in singles], rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(batch.chosen, [one.chosen for one in singles], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(batch.optimal, [one.optimal for one in singles], rtol=1e-6, atol=1e-7)
    assert batch.num_reachable == np.isnan(batch.normalized).sum() == (len(points) if k == dim else 3)
    assert math.isnan(batch.mean) if k == dim else batch.mean == pytest.approx(np.nanmean(batch.normalized))


def test_import_is_light() -> None:
    """Claim 11, in a fresh interpreter.

    Mutation: import pandas or scipy.optimize at the top of any of the modules.
    """
    code = (
        "import sys, theory.regret, theory.reachable\n"
        "heavy = {'pandas', 'scipy.optimize', 'scipy.stats', 'torch', 'sympy'} & set(sys.modules)\n"
        "sys.exit(f'loaded {sorted(heavy)}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_line_regret([[2.0]]), "metric must be at least 2 × 2"),
        (lambda: worst_regret([[2.0]]), "metric must be at least 2 × 2"),
        (lambda: worst_case([[2.0]], [[1.0]]), "metric must be at least 2 × 2"),
        (lambda: mean_line_regret(np.ones((2, 2))), "metric must be positive definite"),
        (lambda: mean_line_regret(np.eye(2), np.eye(3)), "task_metric must have shape"),
        (lambda: worst_regret(np.eye(2), np.diag([1.0, -1.0])), "task_metric must be positive definite"),
        (lambda: regret_bound(FiniteSet([[1.0, 2.0]]), np.eye(3)), "metric must have shape"),
        (lambda: planning_regret(FiniteSet([[1.0, 2.0]]), [1.0], np.eye(2)), "goal must have shape"),
        (lambda: planning_regret(FiniteSet([[1.0, 2.0]]), [1.0, 2.0], np.eye(3)), "metric must have shape"),
        (
            lambda: affine_regrets(np.zeros((0, 2)), np.zeros((0, 2, 1)), np.zeros((0, 2)), np.eye(2)),
            "points must hold",
        ),
        (lambda: affine_regrets(np.zeros((1, 2)), np.zeros((1, 2, 0)), np.zeros((1, 2)), np.eye(2)), "directions must"),
        (lambda: affine_regrets(np.zeros((2, 2)), np.zeros((1, 2, 1)), np.zeros((2, 2)), np.eye(2)), "directions must"),
        (lambda: affine_regrets(np.zeros((1, 2)), np.ones((1, 2, 2)), np.ones((1, 2)), np.eye(2)), "those of case 0"),
        (lambda: affine_regrets(np.zeros((1, 2)), np.zeros((1, 2, 1)), np.ones((1, 2)), np.eye(2)), "those of case 0"),
        (lambda: affine_regrets(np.zeros((1, 2)), np.ones((1, 2, 1)), np.ones((1, 3)), np.eye(2)), "goals must have"),
    ],
)
def test_refuses(call: object, message: str) -> None:
    """Claim 11.

    Mutation: drop any check.
    """
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call()


@given(dims(2, 64), seeds())
def test_dimension_does_not_matter_to_the_worst_case(dim: int, seed: int) -> None:
    """Only the extreme eigenvalues count: inner ones can be anything between.

    Mutation: use the second-largest eigenvalue, or the trace, in ``_worst``.
    """
    rng = np.random.default_rng(seed)
    spectrum = np.concatenate([[1.0, 9.0], rng.uniform(1, 9, dim - 2)])
    rotation = random_rotation(rng, dim)
    assert worst_regret((rotation * spectrum) @ rotation.T) == pytest.approx(16 / 9, rel=1e-12)
