"""Bounded convex reachable sets. Each nearest point is a small least-squares problem for an established solver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from theory.reachable.sets import check_points, freeze, lengths, metric_root
from theory.spd import Array, check_array, check_psd, check_result, check_vector

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False, init=False)
class Polytope:
    """The convex hull R = {Σ μ_i v_i : μ ≥ 0, Σ μ_i = 1} of m points.

    Parameters
    ----------
    vertices
        Rows v_i, shape (m, n), m ≥ 1; they need be neither extreme nor distinct.

    Raises
    ------
    ValueError
        If there is no vertex or the shape is wrong.
    """

    vertices: Array

    convex: ClassVar[bool] = True

    def __init__(self, vertices: ArrayLike) -> None:
        freeze(self, vertices=check_points(vertices, "vertices"))

    @property
    def dim(self) -> int:
        """n, the dimension of the state."""
        return self.vertices.shape[1]

    @property
    def magnitude(self) -> float:
        """Largest ‖v_i‖."""
        return float(lengths(self.vertices).max())

    def nearest(self, goal: ArrayLike, metric: ArrayLike) -> Array:
        """The point x ∈ R of least (x − g)ᵀM(x − g), shape (n,).

        With P the columns T(v_i − g)/s, M = TᵀT, the non-negative least-squares problem

            min over λ ≥ 0 of ‖Pλ‖² + (Σ λ_i − 1)²

        has the same answer: for λ = cμ with μ in the simplex the best c leaves ‖Pμ‖²/(1 + ‖Pμ‖²), which rises with
        ‖Pμ‖. So μ = λ/Σλ is exact, without a penalty weight, and an active-set solver ends after finitely many steps.

        References
        ----------
        Lawson and Hanson, Solving Least Squares Problems, chapter 23 (least distance programming); the form used here
        is derived above.
        """
        from scipy.optimize import nnls

        goal = check_vector(goal, "goal", self.dim)
        root, gaps = metric_root(metric, self.dim), (self.vertices - goal).T
        size = float(np.abs(gaps).max())
        if size == 0.0:
            return goal
        columns = root @ (gaps / size)
        system = np.vstack([columns / np.linalg.norm(columns, axis=0).max(), np.ones(columns.shape[1])])
        weights, _ = nnls(system, np.eye(self.dim + 1)[-1], maxiter=100 * (self.dim + columns.shape[1]))
        return goal + gaps @ (weights / weights.sum())


@dataclass(frozen=True, eq=False, init=False)
class Zonotope:
    """The zonotope R = {c + Gλ : |λ_i| ≤ 1}: what box-bounded actions reach through linear dynamics.

    Parameters
    ----------
    center
        c, shape (n,).
    generators
        G, shape (n, k), k ≥ 0; any rank.

    Raises
    ------
    ValueError
        If shapes do not match.
    """

    center: Array
    generators: Array

    convex: ClassVar[bool] = True

    def __init__(self, center: ArrayLike, generators: ArrayLike) -> None:
        center = check_vector(center, "center")
        freeze(self, center=center, generators=check_array(generators, "generators", shape=(center.size, None)))

    @property
    def dim(self) -> int:
        """n, the dimension of the state."""
        return self.center.size

    @property
    def magnitude(self) -> float:
        """‖c‖ + Σ‖g_i‖, which no point of R exceeds."""
        return float(lengths(self.center) + lengths(self.generators, axis=0).sum())

    def nearest(self, goal: ArrayLike, metric: ArrayLike) -> Array:
        """The point x ∈ R of least (x − g)ᵀM(x − g), shape (n,): least squares with bounds, by an active-set solver.

        References
        ----------
        Stark and Parker, Bounded-variable least squares (1995), as in ``scipy.optimize.lsq_linear``.
        """
        from scipy.optimize import lsq_linear

        goal = check_vector(goal, "goal", self.dim)
        root = metric_root(metric, self.dim)
        system = root @ self.generators
        scale = float(np.abs(system).max(initial=0.0))
        if scale == 0.0:
            return self.center.copy()
        solution = lsq_linear(
            system / scale,
            root @ (goal - self.center) / scale,
            bounds=(-1.0, 1.0),
            method="bvls",
            tol=_EPS,
            max_iter=100 + 20 * system.shape[1],
        )
        return self.center + self.generators @ solution.x


@dataclass(frozen=True, eq=False, init=False)
class Ellipsoid:
    """The ellipsoid R = {c + S^{1/2}u : ‖u‖ ≤ 1}: what energy-bounded actions reach through linear dynamics.

    Parameters
    ----------
    center
        c, shape (n,).
    shape
        S ⪰ 0, shape (n, n); its null directions are left flat. An eigenvalue below n·ε·λmax counts as zero, since S
        holds the squares of the half-axes: half-axes below about 1e-8 of the largest need :meth:`from_root`.

    Attributes
    ----------
    root
        F, shape (n, r), with FFᵀ = S, so that R = {c + Fu : ‖u‖ ≤ 1}.

    Raises
    ------
    ValueError
        If S is not positive semidefinite or shapes do not match.
    """

    center: Array
    shape: Array
    root: Array = field(init=False, repr=False)

    convex: ClassVar[bool] = True

    def __init__(self, center: ArrayLike, shape: ArrayLike) -> None:
        center = check_vector(center, "center")
        shape = check_psd(shape, "shape", center.size)
        eigenvalues, eigenvectors = np.linalg.eigh(shape)
        kept = eigenvalues > center.size * _EPS * np.abs(eigenvalues).max()
        freeze(self, center=center, shape=shape, root=eigenvectors[:, kept] * np.sqrt(eigenvalues[kept]))

    @classmethod
    def from_root(cls, center: ArrayLike, root: ArrayLike) -> Ellipsoid:
        """The ellipsoid {c + Fu : ‖u‖ ≤ 1} of a factor F (n, r), which keeps thin half-axes that FFᵀ would lose."""
        ellipsoid = cls.__new__(cls)
        center = check_vector(center, "center")
        root = check_array(root, "root", shape=(center.size, None))
        with np.errstate(over="ignore", invalid="ignore"):
            shape = check_result(root @ root.T, "root")
        freeze(ellipsoid, center=center, shape=shape, root=root)
        return ellipsoid

    @property
    def dim(self) -> int:
        """n, the dimension of the state."""
        return self.center.size

    @property
    def magnitude(self) -> float:
        """‖c‖ + the largest half-axis, which no point of R exceeds."""
        axis = np.linalg.norm(self.root, 2) if self.root.size else 0.0
        return float(lengths(self.center) + axis)

    def nearest(self, goal: ArrayLike, metric: ArrayLike) -> Array:
        """The point x ∈ R of least (x − g)ᵀM(x − g), shape (n,).

        With M = TᵀT, TF = U diag(s) Wᵀ and β = UᵀT(g − c), the point is c + FWu with

            u_i = s_i β_i/(s_i² + t),

        where t = 0 if that has ‖u‖ ≤ 1, and otherwise t > 0 solves the secular equation Σ (s_i β_i/(s_i² + t))² = 1.

        References
        ----------
        Moré and Sorensen, Computing a trust region step (1983), section 3: the root is sought of 1/‖u(t)‖ − 1, which is
        nearly linear in t.
        """
        goal = check_vector(goal, "goal", self.dim)
        left, sizes, right = np.linalg.svd(metric_root(metric, self.dim) @ self.root, full_matrices=False)
        if sizes.size == 0 or sizes[0] == 0.0:
            return self.center.copy()
        beta = left.T @ (metric_root(metric, self.dim) @ (goal - self.center))
        kept = sizes > max(self.root.shape) * _EPS * sizes[0]
        sizes, beta, right = sizes[kept], beta[kept], right[kept]
        coordinates = beta / sizes
        if np.linalg.norm(coordinates) > 1:
            coordinates = _secular(sizes, beta)
        return self.center + self.root @ (right.T @ coordinates)


def _secular(sizes: Array, beta: Array) -> Array:
    """Coordinates u_i = s_i β_i/(s_i² + t) on the unit sphere, t > 0, where t = 0 gives ‖u‖ > 1."""
    from scipy.optimize import brentq

    # Divided by s₁², so that t is of order 1 or below.
    products, squares = sizes / sizes[0] * (beta / sizes[0]), (sizes / sizes[0]) ** 2

    def gap(t: float) -> float:
        return 1 / float(np.linalg.norm(products / (squares + t))) - 1

    # Each term alone is at most 1, and all together at most ‖sβ‖/t: the root lies between.
    low = max(0.0, float((np.abs(products) - squares).max()))
    high = float(np.linalg.norm(products))
    t = brentq(gap, low, high, xtol=np.finfo(np.float64).tiny, rtol=4 * _EPS, maxiter=500) if gap(low) < 0 else low
    return products / (squares + t)
