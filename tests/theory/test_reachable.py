"""Reachable sets and their nearest points.

1. The nearest point of an affine set lies in it and leaves a residual that is M-orthogonal to it.
2. The nearest point of a finite set is the one an exhaustive search finds; ties go to the lowest index.
3. Polytopes agree with an enumeration of all faces, redundant and repeated vertices included.
4. Zonotopes agree with an enumeration of all sign patterns, and with the polytope of their corners.
5. Ellipsoids, flat ones included, agree with a bisection in 50 digits; thin ones keep their thin axes.
6. In every convex set no direction of descent is left: the support function certifies the nearest point.
7. All of them agree with a conic solver.
8. A point of a convex set is its own nearest point.
9. Wrong input is refused in one sentence.
"""

from __future__ import annotations

import itertools

import cvxpy as cp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import conditions, dims, random_spd, seeds, tolerance

from theory.reachable import AffineSet, Ellipsoid, FiniteSet, Polytope, ReachableSet, Zonotope

Array = NDArray[np.float64]

#: What the brute-force comparisons allow, relative to the size of the set.
EXACT = 1e-8


@st.composite
def problems(draw: st.DrawFn, maximum: int = 64, condition: float = 1e8) -> tuple[np.random.Generator, Array, Array]:
    """A generator, a goal (near, at or far from the origin) and a metric."""
    rng = np.random.default_rng(draw(seeds()))
    dim = draw(dims(1, maximum))
    goal = rng.standard_normal(dim) * 10.0 ** draw(st.integers(-2, 3))
    return rng, goal, random_spd(rng, dim, draw(conditions(condition)))


def root_of(metric: Array) -> Array:
    return np.linalg.cholesky(metric).T


def cost(x: Array, goal: Array, metric: Array) -> float:
    return float((x - goal) @ metric @ (x - goal))


@given(problems(), st.data())
def test_affine_residual_is_orthogonal(problem: tuple[np.random.Generator, Array, Array], data: st.DataObject) -> None:
    """Claim 1: x ∈ p + range V and VᵀM(x − g) = 0.

    Mutation: transpose the metric's root (project with T instead of Tᵀ), or use q instead of q.T.
    """
    rng, goal, metric = problem
    dim = goal.size
    count = data.draw(st.integers(0, dim))
    point, directions = rng.standard_normal(dim), rng.standard_normal((dim, count))
    x = AffineSet(point, directions).nearest(goal, metric)
    size = np.linalg.norm(goal) + np.linalg.norm(point)
    basis = np.linalg.qr(directions)[0]
    assert np.linalg.norm((x - point) - basis @ (basis.T @ (x - point))) <= tolerance(1e2, dim) * size
    root = root_of(metric)
    residual, image = root @ (x - goal), root @ basis
    bound = tolerance(np.sqrt(np.linalg.cond(metric)), dim) * size * np.linalg.norm(root, 2)
    assert np.linalg.norm(np.linalg.qr(image)[0].T @ residual) <= bound if count else np.array_equal(x, point)


@given(problems(maximum=8), st.integers(1, 40))
def test_finite_set_is_exhaustive_search(problem: tuple[np.random.Generator, Array, Array], count: int) -> None:
    """The chosen point is one of the set's, and none is cheaper.

    Mutation: drop the metric (rank by Euclidean distance), or take argmax of the costs.
    """
    rng, goal, metric = problem
    points = goal + rng.standard_normal((count, goal.size))
    x = FiniteSet(points).nearest(goal, metric)
    assert any(np.array_equal(x, point) for point in points)
    best = min(cost(point, goal, metric) for point in points)
    assert cost(x, goal, metric) <= best * (1 + tolerance(np.linalg.cond(metric), goal.size))


@given(seeds(), dims(2, 16), conditions(1e6), st.integers(0, 3))
def test_finite_set_ties_go_to_the_lowest_index(seed: int, dim: int, condition: float, after: int) -> None:
    """With M = aI + b11ᵀ all unit vectors, and all their negatives, are equally far from 0: the first listed wins.

    Mutation: take the plain argmin of the computed costs (rounding of the Cholesky factor then decides), or the last.
    """
    rng = np.random.default_rng(seed)
    metric = rng.uniform(0.5, 2) * (np.eye(dim) + (condition - 1) / dim * np.ones((dim, dim)))
    tied = rng.choice([-1.0, 1.0], (dim, 1)) * np.eye(dim)[rng.permutation(dim)]
    points = np.vstack([10 * tied[:after], tied])
    np.testing.assert_array_equal(FiniteSet(points).nearest(np.zeros(dim), metric), tied[0])


def brute_polytope(vertices: Array, goal: Array, metric: Array) -> Array:
    """Nearest point over all simplices of at most n + 1 vertices: Carathéodory, then one linear system each."""
    root = root_of(metric)
    best, answer = np.inf, vertices[0]
    for count in range(1, min(len(vertices), goal.size + 1) + 1):
        for subset in itertools.combinations(range(len(vertices)), count):
            corners = vertices[list(subset)]
            edges = root @ (corners[1:] - corners[0]).T
            weights, _, rank, _ = np.linalg.lstsq(edges, root @ (goal - corners[0]), rcond=None)
            full = np.concatenate([[1 - weights.sum()], weights])
            if rank == count - 1 and full.min() >= -1e-12 and cost(full @ corners, goal, metric) < best:
                best, answer = cost(full @ corners, goal, metric), full @ corners
    return answer


@given(problems(maximum=4, condition=1e6), st.integers(1, 7), st.booleans())
def test_polytope_agrees_with_faces(
    problem: tuple[np.random.Generator, Array, Array], count: int, redundant: bool
) -> None:
    """Claim 3, to 1e-8 of the polytope's size.

    Mutation: drop the row of ones (λ is then not tied to the simplex), or do not divide the weights by their sum.
    """
    rng, goal, metric = problem
    vertices = rng.standard_normal((count, goal.size))
    if redundant and count > 2:
        vertices[-1], vertices[-2] = vertices[0], (vertices[0] + vertices[1]) / 2
    x = Polytope(vertices).nearest(goal, metric)
    assert np.abs(x - brute_polytope(vertices, goal, metric)).max() <= EXACT * np.abs(vertices).max()


def brute_zonotope(center: Array, generators: Array, goal: Array, metric: Array) -> Array:
    """Nearest point over all patterns of coordinates at −1, at +1 or free."""
    root = root_of(metric)
    best, answer = np.inf, center
    for pattern in itertools.product((-1.0, 0.0, 1.0), repeat=generators.shape[1]):
        weights = np.array(pattern)
        free = weights == 0
        rest = root @ (goal - center - generators @ weights)
        weights[free] = np.linalg.lstsq(root @ generators[:, free], rest, rcond=None)[0] if free.any() else 0.0
        x = center + generators @ weights
        if np.abs(weights).max(initial=0.0) <= 1 + 1e-12 and cost(x, goal, metric) < best:
            best, answer = cost(x, goal, metric), x
    return answer


@given(problems(maximum=3, condition=1e6), st.integers(0, 5), st.booleans())
def test_zonotope_agrees_with_sign_patterns(
    problem: tuple[np.random.Generator, Array, Array], count: int, redundant: bool
) -> None:
    """Claim 4, to 1e-8 of the zonotope's size.

    Mutation: bounds (0, 1) instead of (−1, 1), or forget to subtract the centre from the goal.
    """
    rng, goal, metric = problem
    center, generators = rng.standard_normal(goal.size), rng.standard_normal((goal.size, count))
    if redundant and count > 2:
        generators[:, -1], generators[:, -2] = generators[:, 0], 0.0
    x = Zonotope(center, generators).nearest(goal, metric)
    scale = np.abs(center).max() + np.abs(generators).sum()
    assert np.abs(x - brute_zonotope(center, generators, goal, metric)).max() <= EXACT * scale
    corners = (
        center + np.array(list(itertools.product((-1.0, 1.0), repeat=count))).reshape(2**count, count) @ generators.T
    )
    assert np.abs(x - Polytope(corners).nearest(goal, metric)).max() <= EXACT * scale


def brute_ellipsoid(center: Array, root: Array, goal: Array, metric: Array) -> Array:
    """Nearest point from (FᵀMF + tI)u = FᵀM(g − c), t ≥ 0 by bisection of ‖u(t)‖ = 1, in 50 digits."""
    with mp.workdps(50):
        factor, weight = mp.matrix(root.tolist()), mp.matrix(metric.tolist())
        offset = mp.matrix((goal - center).tolist())
        gram, right = factor.T * weight * factor, factor.T * weight * offset

        def coordinates(t: mp.mpf) -> mp.matrix:
            return mp.lu_solve(gram + t * mp.eye(gram.rows), right)

        low, high = mp.mpf(0), mp.norm(right)
        u = coordinates(mp.mpf(10) ** -40)
        if mp.norm(u) > 1:
            for _ in range(160):
                middle = (low + high) / 2
                low, high = (middle, high) if mp.norm(coordinates(middle)) > 1 else (low, middle)
            u = coordinates(high)
        return center + np.array([float(entry) for entry in factor * u])


@pytest.mark.parametrize("seed", range(40))
def test_ellipsoid_agrees_with_bisection(seed: int) -> None:
    """Claim 5, for full and flat ellipsoids, near and far goals.

    Mutation: ‖u‖ = 1 is sought for s β/(s + t) instead of s β/(s² + t), or t = 0 is always kept.
    """
    rng = np.random.default_rng(seed)
    dim = 1 + seed % 4
    rank = dim - (seed // 4) % 2 * (dim > 1)
    root, center = rng.standard_normal((dim, rank)), rng.standard_normal(dim)
    goal = center + rng.standard_normal(dim) * 10.0 ** rng.integers(-2, 3)
    metric = random_spd(rng, dim, 10.0 ** rng.uniform(0, 6))
    expected = brute_ellipsoid(center, root, goal, metric)
    for ellipsoid in (Ellipsoid(center, root @ root.T), Ellipsoid.from_root(center, root)):
        assert np.abs(ellipsoid.nearest(goal, metric) - expected).max() <= EXACT * np.linalg.norm(root, 2)


def test_ball_has_a_closed_form() -> None:
    """The unit ball's nearest point in the Euclidean metric is g/‖g‖.

    Mutation: return the unconstrained coordinates when ‖u‖ > 1.
    """
    goal = np.array([3.0, -4.0, 12.0])
    np.testing.assert_allclose(Ellipsoid(np.zeros(3), np.eye(3)).nearest(goal, np.eye(3)), goal / 13, rtol=1e-14)


def test_root_keeps_thin_axes() -> None:
    """An axis of 1e-10 is kept by a root, where the shape matrix cannot hold its square beside 1.

    Mutation: build the ellipsoid of ``from_root`` from FFᵀ.
    """
    root = np.diag([1.0, 1e-10])
    goal = np.array([0.0, 1.0])
    np.testing.assert_allclose(Ellipsoid.from_root([0.0, 0.0], root).nearest(goal, np.eye(2)), [0.0, 1e-10], rtol=1e-12)
    np.testing.assert_array_equal(Ellipsoid([0.0, 0.0], root @ root.T).nearest(goal, np.eye(2)), [0.0, 0.0])


def random_convex_set(rng: np.random.Generator, dim: int, kind: int) -> ReachableSet:
    center = rng.standard_normal(dim)
    if kind == 0:
        return Polytope(center + rng.standard_normal((2 * dim + 1, dim)))
    if kind == 1:
        return Zonotope(center, rng.standard_normal((dim, dim + 2)))
    return Ellipsoid(center, random_spd(rng, dim, 1e3))


def support(convex: ReachableSet, direction: Array) -> float:
    """Largest directionᵀy over the set."""
    if isinstance(convex, Polytope):
        return float((convex.vertices @ direction).max())
    if isinstance(convex, Zonotope):
        return float(convex.center @ direction + np.abs(convex.generators.T @ direction).sum())
    assert isinstance(convex, Ellipsoid)
    return float(convex.center @ direction + np.sqrt(direction @ convex.shape @ direction))


@given(problems(), st.integers(0, 2))
def test_support_function_certifies_the_nearest_point(
    problem: tuple[np.random.Generator, Array, Array], kind: int
) -> None:
    """(y − x)ᵀM(x − g) ≥ 0 for every y in a convex set: the support function bounds how far x can be from optimal.

    Mutation: solve any of the three sets in the Euclidean metric instead of M.
    """
    rng, goal, metric = problem
    convex = random_convex_set(rng, goal.size, kind)
    x = convex.nearest(goal, metric)
    slope = metric @ (goal - x)
    spread = support(convex, slope) + support(convex, -slope)
    # The gap bounds ‖x − x*‖_M², and rounding of the residual enters it times the set's width along the slope.
    size = np.linalg.norm(root_of(metric), 2) * (convex.magnitude + np.linalg.norm(goal))
    assert support(convex, slope) - slope @ x <= 1e-9 * spread + tolerance(np.linalg.cond(metric), goal.size) * size**2


@pytest.mark.parametrize("kind", range(3))
def test_conic_solver_agrees(kind: int) -> None:
    """Clarabel reaches the same cost, and never a lower one by more than its own tolerance.

    Mutation: stop ``nnls`` or ``lsq_linear`` after one iteration, or halve t in the secular equation.
    """
    rng = np.random.default_rng(kind)
    for dim in (2, 5, 12):
        convex, goal, metric = (
            random_convex_set(rng, dim, kind),
            3 * rng.standard_normal(dim),
            random_spd(rng, dim, 1e2),
        )
        x = cp.Variable(dim)
        if isinstance(convex, Polytope):
            weights = cp.Variable(len(convex.vertices), nonneg=True)
            constraints = [x == convex.vertices.T @ weights, cp.sum(weights) == 1]
        elif isinstance(convex, Zonotope):
            weights = cp.Variable(convex.generators.shape[1])
            constraints = [x == convex.center + convex.generators @ weights, cp.norm_inf(weights) <= 1]
        else:
            assert isinstance(convex, Ellipsoid)
            weights = cp.Variable(dim)
            constraints = [x == convex.center + convex.root @ weights, cp.norm2(weights) <= 1]
        problem = cp.Problem(cp.Minimize(cp.norm2(root_of(metric) @ (x - goal))), constraints)
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
        ours = np.sqrt(cost(convex.nearest(goal, metric), goal, metric))
        assert abs(ours - problem.value) <= EXACT * (1 + problem.value)


@given(problems(maximum=16, condition=1e6), st.integers(0, 2))
def test_points_of_the_set_are_their_own_nearest(problem: tuple[np.random.Generator, Array, Array], kind: int) -> None:
    """A convex combination of points of R is reached exactly.

    Mutation: in ``Ellipsoid.nearest`` always put u on the unit sphere; in ``Zonotope`` tighten the bounds to ±0.9.
    """
    rng, goal, metric = problem
    convex = random_convex_set(rng, goal.size, kind)
    if isinstance(convex, Polytope):
        inside = rng.dirichlet(np.ones(len(convex.vertices))) @ convex.vertices
    elif isinstance(convex, Zonotope):
        inside = convex.center + convex.generators @ rng.uniform(-1, 1, convex.generators.shape[1])
    else:
        assert isinstance(convex, Ellipsoid)
        direction = rng.standard_normal(goal.size)
        inside = convex.center + convex.root @ (rng.uniform(0, 1) * direction / np.linalg.norm(direction))
    assert np.abs(convex.nearest(inside, metric) - inside).max() <= EXACT * convex.magnitude


def test_degenerate_sets_are_points() -> None:
    """No direction, no generator, a zero shape, one vertex: the set is its point, whatever the metric.

    Mutation: return the goal when a set has no extent.
    """
    goal, metric = np.array([5.0, 6.0]), np.diag([1.0, 3.0])
    point = np.array([1.0, -2.0])
    for single in (
        AffineSet(point, np.zeros((2, 0))),
        Polytope([point, point]),
        Zonotope(point, np.zeros((2, 0))),
        Zonotope(point, np.zeros((2, 3))),
        Ellipsoid(point, np.zeros((2, 2))),
        Ellipsoid.from_root(point, np.zeros((2, 0))),
        FiniteSet([point]),
    ):
        np.testing.assert_array_equal(single.nearest(goal, metric), point)
        assert single.dim == 2


def test_sets_do_not_follow_later_changes() -> None:
    """A set copies its input and cannot be written to.

    Mutation: store the argument itself.
    """
    points = np.ones((1, 2))
    finite = FiniteSet(points)
    points[:] = 7.0
    assert finite.points[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        finite.points[0, 0] = 2.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Ellipsoid.from_root([0.0, 0.0], 1e200 * np.eye(2)), "root has a size"),
        (lambda: AffineSet([1.0, 2.0], [1.0, 2.0]), "directions must have shape"),
        (lambda: AffineSet([1.0, 2.0], [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), "directions must be linearly independent"),
        (lambda: AffineSet([1.0, 2.0], [[1.0, 2.0], [3.0, 6.0]]), "directions must be linearly independent"),
        (lambda: AffineSet([1.0, 2.0], [[0.0], [0.0]]), "column 0 is zero"),
        (lambda: AffineSet([1.0, np.nan], [[1.0], [0.0]]), "point must be finite"),
        (lambda: AffineSet([], np.zeros((0, 0))), "point must not be empty"),
        (lambda: FiniteSet(np.zeros((0, 2))), "points must hold at least one point"),
        (lambda: FiniteSet([1.0, 2.0]), "points must have 2 dimensions"),
        (lambda: Polytope(np.zeros((0, 2))), "vertices must hold at least one point"),
        (lambda: Zonotope([0.0, 0.0], [[1.0, 2.0]]), "generators must have shape"),
        (lambda: Ellipsoid([0.0, 0.0], [[1.0, 0.0], [0.0, -1.0]]), "shape must be positive semidefinite"),
        (lambda: Ellipsoid([0.0, 0.0], np.eye(3)), "shape must have shape"),
        (lambda: FiniteSet([[1.0, 2.0]]).nearest([1.0], np.eye(2)), "goal must have shape"),
        (lambda: FiniteSet([[1.0, 2.0]]).nearest([1.0, 1.0], np.diag([1.0, 0.0])), "metric must be positive definite"),
        (lambda: Polytope([[1.0 + 1j, 2.0]]), "vertices must be real"),
    ],
)
def test_refuses(build: object, message: str) -> None:
    """Claim 9.

    Mutation: drop any check.
    """
    assert callable(build)
    with pytest.raises(ValueError, match=message):
        build()
