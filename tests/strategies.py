"""Generators of matrices with controlled conditioning, for property tests, and the one table of tolerances.

A strategy draws a seed, a dimension and a condition number; the matrix follows from them, so a failing example is three
numbers long.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Relative error allowed after an operation, as a multiple of eps · condition number · dimension.
TOLERANCE_FACTOR = 64.0


def tolerance(condition: float, dim: int = 1) -> float:
    """Relative tolerance for a backward-stable operation on a matrix of this condition number and dimension."""
    return TOLERANCE_FACTOR * float(np.finfo(np.float64).eps) * condition * dim


def random_rotation(rng: np.random.Generator, dim: int) -> Array:
    """Orthogonal matrix (dim, dim), Haar-distributed."""
    q, r = np.linalg.qr(rng.standard_normal((dim, dim)))
    return q * np.where(np.diag(r) < 0, -1.0, 1.0)


def random_spd(rng: np.random.Generator, dim: int, condition: float, scale: float = 1.0) -> Array:
    """SPD matrix of exactly this condition number, eigenvalues log-uniform between its ends, Haar eigenvectors."""
    eigenvalues = np.exp(rng.uniform(0.0, np.log(condition), dim)) if condition > 1 else np.ones(dim)
    if dim > 1:
        eigenvalues[:2] = 1.0, condition
    rotation = random_rotation(rng, dim)
    matrix = scale * (rotation * eigenvalues) @ rotation.T
    return (matrix + matrix.T) / 2


def seeds() -> st.SearchStrategy[int]:
    return st.integers(0, 2**32 - 1)


def conditions(maximum: float = 1e8) -> st.SearchStrategy[float]:
    """Condition numbers, log-uniform in [1, maximum], the ends included."""
    return st.floats(0.0, float(np.log10(maximum))).map(lambda exponent: float(10.0**exponent))


def dims(minimum: int = 1, maximum: int = 64) -> st.SearchStrategy[int]:
    """Dimensions, small ones and the largest favoured."""
    small = st.integers(minimum, min(maximum, 6))
    return st.one_of(small, st.integers(minimum, maximum), st.just(maximum))


@st.composite
def spd_matrices(draw: st.DrawFn, minimum: int = 1, maximum: int = 64, condition: float = 1e8) -> Array:
    """One SPD matrix: dimension, condition number, and a scale between 1e-3 and 1e3."""
    rng = np.random.default_rng(draw(seeds()))
    dim = draw(dims(minimum, maximum))
    scale = float(10.0 ** draw(st.integers(-3, 3)))
    return random_spd(rng, dim, draw(conditions(condition)), scale)


@st.composite
def spd_pairs(draw: st.DrawFn, minimum: int = 1, maximum: int = 64, condition: float = 1e8) -> tuple[Array, Array]:
    """Two independent SPD matrices of one dimension, such as a metric and a task metric."""
    rng = np.random.default_rng(draw(seeds()))
    dim = draw(dims(minimum, maximum))
    return random_spd(rng, dim, draw(conditions(condition))), random_spd(rng, dim, draw(conditions(condition)))
