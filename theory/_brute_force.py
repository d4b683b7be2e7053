"""Independent ways to the numbers of the closed forms: costs evaluated on points, grids, quadrature, linear programs.

Nothing here uses a formula that the claims check. A planner is imitated by what defines it, the cost of the points it
may choose; an allocation by a linear program over target variances and by random members of the constraint set.
"""

from __future__ import annotations

import numpy as np

from theory.spd import Array, symmetrize


def quadratic_cost(points: Array, goal: Array, metric: Array) -> Array:
    """(x − g)ᵀ M (x − g) for points (..., n)."""
    gap = points - goal
    return np.einsum("...i,ij,...j->...", gap, metric, gap)


def line_minimiser(point: Array, direction: Array, goal: Array, metric: Array) -> Array:
    """Minimiser of the cost on a line, from three values of the cost: a parabola is known by them.

    Broadcasts over leading axes of ``point`` and ``direction`` (..., n).
    """
    left, middle, right = (quadratic_cost(point + step * direction, goal, metric) for step in (-1.0, 0.0, 1.0))
    step = (left - right) / (2 * (left - 2 * middle + right))
    return point + step[..., None] * direction


def line_regret(point: Array, direction: Array, goal: Array, metric: Array, task_metric: Array) -> Array:
    """Normalised regret J(x_M)/J(x*) − 1 on lines, both choices found by :func:`line_minimiser`."""
    chosen = quadratic_cost(line_minimiser(point, direction, goal, metric), goal, task_metric)
    optimal = quadratic_cost(line_minimiser(point, direction, goal, task_metric), goal, task_metric)
    return chosen / optimal - 1


def mean_line_regret_2d(metric: Array, task_metric: Array | None = None, angles: int = 4096) -> float:
    """Mean of :func:`line_regret` over evenly spaced lines in Q^{1/2}x coordinates, n = 2 (periodic trapezoid rule)."""
    regrets = _regrets_by_angle(metric, task_metric, angles)
    return float(regrets.mean())


def worst_line_regret_2d(metric: Array, task_metric: Array | None = None, angles: int = 20_001) -> float:
    """Largest of :func:`line_regret` over a dense grid of angles, n = 2."""
    regrets = _regrets_by_angle(metric, task_metric, angles)
    return float(regrets.max())


def _regrets_by_angle(metric: Array, task_metric: Array | None, angles: int) -> Array:
    task = np.eye(2) if task_metric is None else task_metric
    angle = np.arange(angles) * (np.pi / angles)
    # A factor Q = CCᵀ maps x to Cᵀx, in which the task cost is Euclidean; any such factor serves, not only Q^{1/2}.
    back = np.linalg.inv(np.linalg.cholesky(task)).T
    direction = np.stack([np.cos(angle), np.sin(angle)], axis=-1) @ back.T
    point = np.stack([-np.sin(angle), np.cos(angle)], axis=-1) @ back.T
    return line_regret(point, direction, np.zeros(2), metric, task)


def mean_line_regret_3d(metric: Array, nodes: int = 64) -> float:
    """Mean of :func:`line_regret` for Q = I, n = 3: Gauss–Legendre in the height, trapezoid in both angles."""
    height, weight = np.polynomial.legendre.leggauss(nodes)
    angle = np.arange(2 * nodes) * (np.pi / nodes)
    offset_angle = np.arange(8) * (np.pi / 4)
    z, a, b = np.meshgrid(height, angle, offset_angle, indexing="ij")
    r = np.sqrt(1 - z**2)
    direction = np.stack([r * np.cos(a), r * np.sin(a), z], axis=-1)
    first = np.stack([-np.sin(a), np.cos(a), np.zeros_like(a)], axis=-1)
    second = np.cross(direction, first)
    point = np.cos(b)[..., None] * first + np.sin(b)[..., None] * second
    regret = line_regret(point, direction, np.zeros(3), metric, np.eye(3))
    return float((regret.mean(axis=(1, 2)) * weight).sum() / 2)


def cheapest_variances(noise_variances: Array, kappa: float) -> tuple[float, Array]:
    """Least Σᵢ νᵢvᵢ over Σᵢ vᵢ = n, max v ≤ κ min v, v ≥ 0, as a linear program in (v, t) with t ≤ vᵢ ≤ κt."""
    from scipy.optimize import linprog

    n = len(noise_variances)
    low = np.hstack([-np.eye(n), np.ones((n, 1))])
    high = np.hstack([np.eye(n), -kappa * np.ones((n, 1))])
    solution = linprog(
        np.append(noise_variances, 0.0),
        A_ub=np.vstack([low, high]),
        b_ub=np.zeros(2 * n),
        A_eq=np.append(np.ones(n), 0.0)[None],
        b_eq=[n],
        bounds=(0, None),
        method="highs",
    )
    if solution.fun is None or solution.x is None:
        raise RuntimeError(f"The linear program of the allocation was not solved: {solution.message}")
    return float(solution.fun), np.asarray(solution.x[:n])


def random_orthonormal(rng: np.random.Generator, rows: int, columns: int, count: int) -> Array:
    """``count`` random matrices (rows, columns) with orthonormal columns."""
    q, r = np.linalg.qr(rng.standard_normal((count, rows, columns)))
    return np.asarray(q * np.sign(np.einsum("kii->ki", r))[:, None, :])


def random_spd(rng: np.random.Generator, dim: int, condition: float = 100.0) -> Array:
    """Random SPD matrix with eigenvalues log-uniform in [1, condition] and random axes."""
    axes = random_orthonormal(rng, dim, dim, 1)[0]
    return symmetrize((axes * condition ** rng.uniform(0, 1, dim)) @ axes.T)


def random_variances(rng: np.random.Generator, dim: int, kappa: float, count: int) -> Array:
    """``count`` random feasible targets (count, dim): sum ``dim``, ratio at most κ, every second one two-level."""
    log_ratio = np.log(kappa) * rng.uniform(0, 1, (count, dim))
    log_ratio[::2] = np.log(kappa) * rng.integers(0, 2, (len(log_ratio[::2]), dim))
    variances = np.exp(log_ratio)
    return np.asarray(dim * variances / variances.sum(axis=1, keepdims=True))


def nearest_in_polygon(vertices: Array, goal: Array, metric: Array) -> Array:
    """Point of a convex polygon (m, 2), in order, nearest to a goal outside it: the best point of its edges."""
    start, edge = vertices, np.roll(vertices, -1, axis=0) - vertices
    step = -np.einsum("ki,ij,kj->k", edge, metric, start - goal) / np.einsum("ki,ij,kj->k", edge, metric, edge)
    candidates = start + np.clip(step, 0, 1)[:, None] * edge
    return np.asarray(candidates[np.argmin(quadratic_cost(candidates, goal, metric))])
