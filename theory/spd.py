"""Symmetric positive-definite (SPD) helpers, and the checks every NumPy function makes at its door.

Checks return a float64 array or raise ``ValueError`` with one sentence that names the argument. Nothing is repaired:
a matrix that is asymmetric beyond rounding, singular to working precision or not finite is refused. (A symmetric
matrix is returned as (A + Aᵀ)/2, which changes it by no more than the rounding that was accepted.)
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

#: Largest asymmetry accepted, relative to the largest entry: what a product of float64 matrices leaves behind.
SYMMETRY_TOLERANCE = 1e-10

#: An eigenvalue below this multiple of n·λmax cannot be told from zero in float64.
RANK_TOLERANCE = float(np.finfo(np.float64).eps)

#: float() takes these, and none of them is a number.
_NOT_NUMBERS = (bool, np.bool_, str, bytes, np.timedelta64, np.datetime64)


def check_array(
    value: ArrayLike, name: str, *, ndim: int | None = None, shape: tuple[int | None, ...] | None = None
) -> Array:
    """Return ``value`` as a finite, real float64 array of the given rank or shape (``None`` matches any length).

    Raises
    ------
    ValueError
        For ragged, non-numeric, complex, masked or non-finite input, and for another rank or shape.
    """
    if np.ma.is_masked(value):
        raise ValueError(f"{name} must have no masked entries.")
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must be a rectangular array of numbers.") from None
    except (TypeError, RuntimeError) as error:
        # Tensors that track gradients, live on a device or have no NumPy dtype say themselves what to do.
        raise ValueError(f"{name} must convert to a NumPy array, but it does not: {error}") from None
    if np.iscomplexobj(array):
        raise ValueError(f"{name} must be real, but it has complex entries.")
    # Kinds: integers, unsigned, floats, objects. A time difference is an integer to NumPy's type hierarchy.
    if array.dtype.kind not in "iufO":
        raise ValueError(f"{name} must hold numbers, but its dtype is {array.dtype}.")
    if array.dtype == object:
        strangers = [entry for entry in array.ravel() if isinstance(entry, _NOT_NUMBERS)]
        if strangers:
            raise ValueError(f"{name} must hold numbers, but it holds {strangers[0]!r}.")
    try:
        with np.errstate(over="ignore"):
            array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a rectangular array of numbers.") from None
    except OverflowError:
        raise ValueError(f"{name} must be finite, but it has a number too large for float64.") from None
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension{'s' * (ndim != 1)}, but its shape is {array.shape}.")
    if shape is not None and (
        array.ndim != len(shape)
        or any(want is not None and want != have for want, have in zip(shape, array.shape, strict=True))
    ):
        wanted = (
            "("
            + ", ".join("any" if want is None else str(want) for want in shape)
            + ("," if len(shape) == 1 else "")
            + ")"
        )
        raise ValueError(f"{name} must have shape {wanted}, but its shape is {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, but it has nan or infinite entries.")
    return array


def check_vector(value: ArrayLike, name: str, dim: int | None = None) -> Array:
    """Return ``value`` as a finite float64 vector (n,), n ≥ 1, of length ``dim`` if that is given."""
    vector = check_array(value, name, ndim=1) if dim is None else check_array(value, name, shape=(dim,))
    if vector.size == 0:
        raise ValueError(f"{name} must not be empty.")
    return vector


def check_symmetric(value: ArrayLike, name: str, dim: int | None = None) -> Array:
    """Return ``value`` as a symmetric float64 matrix (n, n), n ≥ 1.

    Raises
    ------
    ValueError
        If it is not square, or asymmetric beyond :data:`SYMMETRY_TOLERANCE` of its largest entry.
    """
    matrix = check_array(value, name, ndim=2)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must be square, but its shape is {matrix.shape}.")
    if matrix.shape[0] == 0:
        raise ValueError(f"{name} must not be empty.")
    if dim is not None and matrix.shape[0] != dim:
        raise ValueError(f"{name} must have shape ({dim}, {dim}), but its shape is {matrix.shape}.")
    scale = float(np.abs(matrix).max())
    # Sums of n² entries, such as those in an eigenvalue or a trace, must not overflow.
    if scale > float(np.finfo(np.float64).max) / (4 * matrix.size):
        raise ValueError(f"{name} must be smaller: its largest entry, {scale:.3g}, is near the end of float64.")
    gap = float(np.abs(matrix / scale - matrix.T / scale).max()) if scale > 0 else 0.0
    if gap > SYMMETRY_TOLERANCE:
        raise ValueError(
            f"{name} must be symmetric, but entries differ from their mirror images by up to {gap * scale:.3g}."
        )
    return matrix / 2 + matrix.T / 2


def check_spd(value: ArrayLike, name: str, dim: int | None = None) -> Array:
    """Return ``value`` as a symmetric positive-definite float64 matrix (n, n).

    Raises
    ------
    ValueError
        If it is not symmetric, has a negative eigenvalue, or is singular to working precision (λmin ≤ n·ε·λmax). A
        singular matrix is reported with its null direction: logged sin/cos pairs and duplicated columns end here.
    """
    matrix = check_symmetric(value, name, dim)
    eigenvalues, eigenvectors = np.linalg.eigh(matrix)
    smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    threshold = matrix.shape[0] * RANK_TOLERANCE * max(abs(smallest), abs(largest))
    if smallest < -threshold:
        raise ValueError(f"{name} must be positive definite, but its smallest eigenvalue is {smallest:.3g}.")
    if smallest <= threshold:
        direction = format_direction(eigenvectors[:, 0])
        raise ValueError(f"{name} must be positive definite, but it is singular along the direction {direction}.")
    return matrix


def check_psd(value: ArrayLike, name: str, dim: int | None = None) -> Array:
    """Return ``value`` as a symmetric positive-semidefinite float64 matrix (n, n); singular is allowed."""
    matrix = check_symmetric(value, name, dim)
    eigenvalues = np.linalg.eigvalsh(matrix)
    if eigenvalues[0] < -matrix.shape[0] * RANK_TOLERANCE * float(np.abs(eigenvalues).max()) * 8:
        raise ValueError(f"{name} must be positive semidefinite, but its smallest eigenvalue is {eigenvalues[0]:.3g}.")
    return matrix


def check_scale(value: Any, name: str = "scale") -> float:
    """Return ``value`` as a finite positive float."""
    number = check_array(value, name, ndim=0).item()
    if number <= 0:
        raise ValueError(f"{name} must be positive, but it is {number:.6g}.")
    return number


def check_kappa(value: Any, name: str = "kappa") -> float:
    """Return ``value`` as a finite condition-number bound κ ≥ 1."""
    number = check_array(value, name, ndim=0).item()
    if number < 1:
        raise ValueError(f"{name} must be at least 1, but it is {number:.6g}.")
    return number


def check_count(value: Any, name: str, minimum: int = 1) -> int:
    """Return ``value`` as an integer ≥ ``minimum``; floats and booleans are refused."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number, but it is {value!r}.")
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, but it is {number}.")
    return number


def check_generator(value: Any, name: str) -> np.random.Generator:
    """Return ``value``, a Generator, or a new one from a seed, a whole number ≥ 0."""
    return value if isinstance(value, np.random.Generator) else np.random.default_rng(check_count(value, name, 0))


def check_result(result: Array, name: str) -> Array:
    """Return ``result``, or blame the argument ``name`` if it overflowed."""
    if not np.isfinite(result).all():
        raise ValueError(f"{name} has a size for which the result is beyond the range of float64.")
    return result


def format_direction(vector: Array, limit: int = 6) -> str:
    """Write a unit vector for a message: its entries, or for a long one its largest entries with their indices."""
    vector = vector * (1.0 if vector[np.argmax(np.abs(vector))] >= 0 else -1.0)
    if vector.size <= limit:
        return "(" + ", ".join(f"{entry:.3g}" for entry in vector + 0.0) + ")"
    order = np.argsort(-np.abs(vector))[:limit]
    return "with largest entries " + ", ".join(f"[{index}] {vector[index]:.3g}" for index in order)


def sqrt_spd(matrix: Array) -> Array:
    """Symmetric square root A^{1/2} of an SPD (or semidefinite) matrix A (n, n), from its eigendecomposition."""
    eigenvalues, eigenvectors = np.linalg.eigh(matrix)
    return (eigenvectors * np.sqrt(np.clip(eigenvalues, 0.0, None))) @ eigenvectors.T


def inv_sqrt_spd(matrix: Array) -> Array:
    """Symmetric inverse square root A^{-1/2} of an SPD matrix A (n, n), from its eigendecomposition."""
    eigenvalues, eigenvectors = np.linalg.eigh(matrix)
    return (eigenvectors / np.sqrt(eigenvalues)) @ eigenvectors.T


def symmetrize(matrix: Array) -> Array:
    """(A + Aᵀ)/2, to remove the rounding of a product that is symmetric in exact arithmetic."""
    return (matrix + matrix.swapaxes(-1, -2)) / 2


def relative_eigh(metric: Array, task_metric: Array | None = None) -> tuple[Array, Array]:
    """Generalised eigenvalues μ (ascending) of M relative to Q, and vectors E with EᵀQE = I, EᵀME = diag(μ).

    They are the eigenvalues of Q^{-1/2} M Q^{-1/2}, whose eigenvectors are Q^{1/2}E. ``task_metric=None`` is Q = I.
    """
    if task_metric is None:
        eigenvalues, vectors = np.linalg.eigh(metric)
        return eigenvalues, vectors
    from scipy.linalg import eigh

    # Q^{-1/2} M Q^{-1/2} loses digits twice when Q is ill-conditioned; the Cholesky reduction in LAPACK once.
    eigenvalues, vectors = eigh(metric, task_metric)
    return np.asarray(eigenvalues), np.asarray(vectors)


def condition_number(metric: ArrayLike, task_metric: ArrayLike | None = None) -> float:
    """Generalised condition number ρ(M, Q) = λmax/λmin of Q^{-1/2} M Q^{-1/2}; Q = I if ``task_metric`` is ``None``.

    Parameters
    ----------
    metric, task_metric
        SPD matrices M, Q of shape (n, n).

    Raises
    ------
    ValueError
        If a matrix is not SPD or the shapes differ.
    """
    metric = check_spd(metric, "metric")
    if task_metric is not None:
        task_metric = check_spd(task_metric, "task_metric", metric.shape[0])
    eigenvalues, _ = relative_eigh(metric, task_metric)
    return float(eigenvalues[-1] / eigenvalues[0]) if eigenvalues[0] > 0 else math.inf
