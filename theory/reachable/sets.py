"""The interface of a reachable set, and the two sets that need no solver: affine subspaces and finite sets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from theory.spd import Array, check_array, check_spd, check_vector

#: Two costs of a finite set that differ by less than this multiple of n·ε (relative) are a tie in exact arithmetic, or
#: cannot be told from one.
TIE_TOLERANCE = 16.0


@runtime_checkable
class ReachableSet(Protocol):
    """A nonempty closed set R ⊂ Rⁿ of outcomes.

    Attributes
    ----------
    dim
        n.
    magnitude
        Euclidean length of the largest point that defines R; rounding errors of points of R are relative to it.
    convex
        Whether R is convex, so that the bound of :func:`theory.regret.worst_regret` holds.
    """

    convex: ClassVar[bool]

    @property
    def dim(self) -> int: ...  # noqa: D102

    @property
    def magnitude(self) -> float: ...  # noqa: D102

    def nearest(self, goal: ArrayLike, metric: ArrayLike) -> Array:
        """The point x ∈ R of least (x − g)ᵀM(x − g), a vector (n,)."""
        ...


def freeze(owner: object, **arrays: Array) -> None:
    """Store read-only arrays on a frozen dataclass."""
    for name, array in arrays.items():
        array.setflags(write=False)
        object.__setattr__(owner, name, array)


def lengths(vectors: Array, axis: int = -1) -> Array:
    """Euclidean lengths along ``axis``, free of overflow and underflow in the squares."""
    scale = np.abs(vectors).max(axis=axis, keepdims=True, initial=0.0)
    scale[scale == 0] = 1.0
    norms: Array = np.linalg.norm(vectors / scale, axis=axis) * scale.squeeze(axis)
    return norms


def metric_root(metric: ArrayLike, dim: int, name: str = "metric") -> Array:
    """Upper-triangular T (n, n) with M = TᵀT, so that (x − g)ᵀM(x − g) = ‖T(x − g)‖²."""
    return np.asarray(np.linalg.cholesky(check_spd(metric, name, dim)).T, dtype=np.float64)


@dataclass(frozen=True, eq=False, init=False)
class AffineSet:
    """The affine subspace R = {p + Va : a ∈ R^k}: what k free action coordinates reach through linear dynamics.

    Parameters
    ----------
    point
        p, shape (n,).
    directions
        V, shape (n, k), 0 ≤ k ≤ n, linearly independent columns.

    Attributes
    ----------
    basis
        Orthonormal basis of the columns of V, shape (n, k).

    Raises
    ------
    ValueError
        If the columns of V are dependent to working precision, or shapes do not match.
    """

    point: Array
    directions: Array
    basis: Array = field(init=False, repr=False)

    convex: ClassVar[bool] = True

    def __init__(self, point: ArrayLike, directions: ArrayLike) -> None:
        point = check_vector(point, "point")
        directions = check_array(directions, "directions", shape=(point.size, None))
        freeze(self, point=point, directions=directions, basis=_orthonormal_basis(directions))

    @property
    def dim(self) -> int:
        """n, the dimension of the state."""
        return self.point.size

    @property
    def magnitude(self) -> float:
        """‖p‖."""
        return float(lengths(self.point))

    def nearest(self, goal: ArrayLike, metric: ArrayLike) -> Array:
        """The point x = p + V(VᵀMV)⁻¹VᵀM(g − p), shape (n,), for goal g (n,) and metric M (n, n).

        Solved as the least-squares problem min ‖T(p + Ua − g)‖ with M = TᵀT and an orthonormal basis U of the columns
        of V: the condition number is √cond(M), where that of VᵀMV can be cond(M)·cond(V)².

        References
        ----------
        docs/theory.md, T5.
        """
        goal = check_vector(goal, "goal", self.dim)
        root = metric_root(metric, self.dim)
        if self.basis.shape[1] == 0:
            return self.point.copy()
        q, r = np.linalg.qr(root @ self.basis)
        return self.point + self.basis @ np.linalg.solve(r, q.T @ (root @ (goal - self.point)))


@dataclass(frozen=True, eq=False, init=False)
class FiniteSet:
    """The finite set R = {x₁, …, x_m}: what a sampling planner such as CEM really ranks.

    Parameters
    ----------
    points
        Rows x_i, shape (m, n), m ≥ 1.

    Raises
    ------
    ValueError
        If there is no point or the shape is wrong.
    """

    points: Array

    convex: ClassVar[bool] = False

    def __init__(self, points: ArrayLike) -> None:
        freeze(self, points=check_points(points, "points"))

    @property
    def dim(self) -> int:
        """n, the dimension of the state."""
        return self.points.shape[1]

    @property
    def magnitude(self) -> float:
        """Largest ‖x_i‖."""
        return float(lengths(self.points).max())

    def nearest(self, goal: ArrayLike, metric: ArrayLike) -> Array:
        """x_i with least (x_i − g)ᵀM(x_i − g), shape (n,); of points that tie to rounding the lowest index wins.

        References
        ----------
        docs/theory.md, T5.
        """
        goal = check_vector(goal, "goal", self.dim)
        gaps, root = self.points - goal, metric_root(metric, self.dim)
        scale = float(np.abs(gaps).max())
        residuals = gaps / (scale if scale > 0 else 1.0) @ root.T
        costs = np.einsum("ij,ij->i", residuals, residuals)
        tie = costs <= costs.min() * (1 + TIE_TOLERANCE * self.dim * np.finfo(np.float64).eps)
        return self.points[int(np.argmax(tie))].copy()


def check_points(value: ArrayLike, name: str) -> Array:
    """Return ``value`` as a finite float64 array (m, n) of m ≥ 1 points in n ≥ 1 dimensions."""
    points = check_array(value, name, ndim=2)
    if points.size == 0:
        raise ValueError(f"{name} must hold at least one point, but its shape is {points.shape}.")
    return points


def _orthonormal_basis(directions: Array) -> Array:
    dim, count = directions.shape
    if count > dim:
        raise ValueError(f"directions must be linearly independent, but {count} columns lie in {dim} dimensions.")
    sizes = np.abs(directions).max(axis=0)
    if count and sizes.min() == 0:
        raise ValueError(f"directions must be linearly independent, but column {int(np.argmin(sizes))} is zero.")
    directions = directions / sizes
    # Columns of unit length: independence is no matter of their units.
    left, singular_values, _ = np.linalg.svd(directions / np.linalg.norm(directions, axis=0), full_matrices=False)
    if count and singular_values[-1] <= dim * np.finfo(np.float64).eps * singular_values[0]:
        raise ValueError("directions must be linearly independent, but they have dependent columns.")
    return left
