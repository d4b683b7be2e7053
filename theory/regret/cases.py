"""Regret of single planning cases: any reachable set one at a time, or affine sets many at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from theory.reachable import AffineSet, ReachableSet
from theory.reachable.sets import lengths, metric_root
from theory.spd import Array, check_array, check_spd, check_vector

#: A goal is reachable if its distance from the set is below this multiple of n·ε·(sizes of goal, outcome and set): what
#: rounding leaves when the goal is computed as a point of the set.
REACHABLE_TOLERANCE = 32.0 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class PlanningRegret:
    """What one planning case costs.

    Attributes
    ----------
    chosen
        x_M, the outcome that the metric M prefers, shape (n,).
    optimal
        x*, the outcome that the task metric Q prefers, shape (n,).
    excess
        J(x_M) − J(x*) ≥ 0 in units of the task cost; 0 if the goal is reachable. At lengths whose squares leave float64
        it becomes 0 or infinite, and ``normalized`` stays right.
    normalized
        excess / J(x*); nan if the goal is reachable, where J(x*) = 0.
    """

    chosen: Array
    optimal: Array
    excess: float
    normalized: float


def planning_regret(
    reachable: ReachableSet, goal: ArrayLike, metric: ArrayLike, task_metric: ArrayLike | None = None
) -> PlanningRegret:
    """Regret J(x_M) − J(x*) with J(x) = (x − g)ᵀQ(x − g), x_M and x* the points of R nearest to g in M and in Q.

    Parameters
    ----------
    reachable
        R, any set of :mod:`theory.reachable`: the outcomes (conditional means) among which the planner chooses.
    goal
        g, shape (n,).
    metric
        M ≻ 0, shape (n, n), by which the planner ranks, for example :func:`theory.metric.isotropic_metric`.
    task_metric
        Q ≻ 0, shape (n, n), by which the task judges; ``None`` is Q = I.

    Returns
    -------
    PlanningRegret
        ``chosen``, ``optimal``, ``excess``, ``normalized``. A goal counts as reachable when ‖x* − g‖_Q is no more than
        what rounding leaves (:data:`REACHABLE_TOLERANCE`).

    Raises
    ------
    ValueError
        If a metric is not SPD or shapes do not match.

    References
    ----------
    AnisoWM (arXiv 2609.37441), normalised planning regret; docs/theory.md, T5.
    """
    goal = check_vector(goal, "goal", reachable.dim)
    metric = check_spd(metric, "metric", reachable.dim)
    task = np.eye(goal.size) if task_metric is None else check_spd(task_metric, "task_metric", reachable.dim)
    chosen, optimal = reachable.nearest(goal, metric), reachable.nearest(goal, task)

    miss, step = optimal - goal, chosen - optimal
    # In units of the larger of both and of Q's largest entry, so that no square overflows or vanishes.
    unit = max(float(np.abs(miss).max()), float(np.abs(step).max())) or 1.0
    task_unit = float(np.abs(task).max())
    miss, step, task = miss / unit, step / unit, task / task_unit
    cost = float(miss @ task @ miss)
    size = float(lengths(goal) + lengths(optimal)) + reachable.magnitude
    floor = REACHABLE_TOLERANCE * goal.size * math.sqrt(float(np.linalg.norm(task, 2)))
    if math.sqrt(max(cost, 0.0)) <= floor * (size / unit):
        return PlanningRegret(chosen, optimal, 0.0, math.nan)
    # J(x_M) − J(x*) expanded, so that a small regret is no difference of large costs. In an affine set the second term
    # is zero, since x* − g is Q-orthogonal to it; in a convex set it is positive; a negative sum is rounding.
    cross = 0.0 if isinstance(reachable, AffineSet) else 2 * float(step @ task @ miss)
    excess = max(float(step @ task @ step) + cross, 0.0)
    return PlanningRegret(chosen, optimal, excess * unit * unit * task_unit, excess / cost)


@dataclass(frozen=True, eq=False)
class AffineRegrets:
    """What many planning cases cost, with one row for each.

    Attributes
    ----------
    chosen, optimal
        x_M and x*, shape (m, n).
    excess, normalized
        As in :class:`PlanningRegret`, shape (m,): 0 and nan where the goal is reachable.
    num_reachable
        How many goals are reachable; :attr:`mean` leaves them out.
    """

    chosen: Array
    optimal: Array
    excess: Array
    normalized: Array
    num_reachable: int

    @property
    def mean(self) -> float:
        """Mean normalised regret over the cases whose goal is not reachable; nan if there is none."""
        left = self.normalized[~np.isnan(self.normalized)]
        return float(left.mean()) if left.size else math.nan


def affine_regrets(
    points: ArrayLike,
    directions: ArrayLike,
    goals: ArrayLike,
    metric: ArrayLike,
    task_metric: ArrayLike | None = None,
) -> AffineRegrets:
    """:func:`planning_regret` of m affine sets {p_i + V_i a} and goals g_i at once, without a Python loop over cases.

    Parameters
    ----------
    points
        Rows p_i, shape (m, n), m ≥ 1.
    directions
        V_i, shape (m, n, k), 1 ≤ k ≤ n, linearly independent columns.
    goals
        Rows g_i, shape (m, n).
    metric, task_metric
        M and Q, SPD (n, n); ``None`` is Q = I.

    Returns
    -------
    AffineRegrets
        ``chosen``, ``optimal``, ``excess``, ``normalized``, ``num_reachable``, and ``.mean``.

    Raises
    ------
    ValueError
        If there is no case, a metric is not SPD, columns are dependent or shapes do not match.

    References
    ----------
    docs/theory.md, T5.
    """
    points = check_array(points, "points", ndim=2)
    if points.size == 0:
        raise ValueError(f"points must hold at least one case, but its shape is {points.shape}.")
    count, dim = points.shape
    directions = check_array(directions, "directions", shape=(count, dim, None))
    if not 1 <= directions.shape[2] <= dim:
        raise ValueError(f"directions must have 1 to {dim} columns a case, but its shape is {directions.shape}.")
    goals = check_array(goals, "goals", shape=(count, dim))
    root = metric_root(metric, dim)
    task_root = np.eye(dim) if task_metric is None else metric_root(task_metric, dim, "task_metric")

    # Cases on the last axis: every operation below runs over contiguous cases.
    point, goal = np.ascontiguousarray(points.T), np.ascontiguousarray(goals.T)
    columns = np.ascontiguousarray(directions.transpose(2, 1, 0))
    columns = columns / _powers_of_two(columns)
    offset = goal - point
    # A power of two for each case, so that no square overflows or vanishes, and no bit is lost.
    unit = _powers_of_two(offset)[0]
    root_unit, task_unit = float(_powers_of_two(root.ravel())[0]), float(_powers_of_two(task_root.ravel())[0])
    root, task_root, offset = root / root_unit, task_root / task_unit, offset / unit
    coefficients, residual = _least_squares(columns, offset, task_root)
    foot = _combine(columns, coefficients)
    # The planner's choice relative to x*, not to p: then a small regret keeps its relative accuracy.
    step = _combine(columns, _least_squares(columns, offset - foot, root)[0])

    optimal = point + unit * foot
    miss, excess = _lengths(residual), _lengths(task_root @ step) ** 2
    size = lengths(goal, axis=0) + lengths(optimal, axis=0) + lengths(point, axis=0)
    reachable = miss <= REACHABLE_TOLERANCE * dim * (size / unit) * float(np.linalg.norm(task_root, 2))
    excess[reachable] = 0.0
    normalized = np.full(count, math.nan)
    np.divide(excess, miss**2, out=normalized, where=~reachable)
    with np.errstate(over="ignore", under="ignore"):
        excess = excess * (unit * task_unit) ** 2
    return AffineRegrets((optimal + unit * step).T, optimal.T, excess, normalized, int(reachable.sum()))


def _powers_of_two(values: Array) -> Array:
    """The power of two at or below the largest of |values| along the last axis but one (the last of a vector)."""
    largest = np.abs(values).max(axis=-2 if values.ndim > 1 else -1, keepdims=True)
    return np.where(largest > 0, np.ldexp(1.0, np.frexp(largest)[1] - 1), 1.0)


def _least_squares(columns: Array, target: Array, root: Array) -> tuple[Array, Array]:
    """Coefficients a (k, m) of least ‖T(Va − b)‖ and the residual T(b − Va), by modified Gram–Schmidt.

    V (k, n, m), b (n, m) and T (n, n), for m cases at once.

    The right-hand side is one more column to be orthogonalised, which makes the method backward stable (Björck, 1967).
    """
    vectors, residual = [root @ column for column in columns], root @ target
    count, dim = len(vectors), len(residual)
    upper: dict[tuple[int, int], Array] = {}
    coefficients = np.empty((count, target.shape[1]))
    for i in range(count):
        before, upper[i, i] = _lengths(root @ columns[i]), _lengths(vectors[i])
        dependent = upper[i, i] <= 8 * dim * np.finfo(np.float64).eps * before
        if dependent.any():
            raise ValueError(
                f"directions must be linearly independent, but those of case {np.argmax(dependent)} are not."
            )
        unit = vectors[i] / upper[i, i]
        for j in range(i + 1, count):
            upper[i, j] = np.einsum("ni,ni->i", unit, vectors[j])
            vectors[j] = vectors[j] - upper[i, j] * unit
        coefficients[i] = np.einsum("ni,ni->i", unit, residual)
        residual = residual - coefficients[i] * unit
    for i in reversed(range(count)):
        for j in range(i + 1, count):
            coefficients[i] -= upper[i, j] * coefficients[j]
        coefficients[i] /= upper[i, i]
    return coefficients, residual


def _combine(columns: Array, coefficients: Array) -> Array:
    return np.einsum("kni,ki->ni", columns, coefficients)


def _lengths(vectors: Array) -> Array:
    return np.sqrt(np.einsum("ni,ni->i", vectors, vectors))
