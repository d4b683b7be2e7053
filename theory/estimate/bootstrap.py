"""Bootstrap of moments: blocks of rows keep together what is correlated, random weights stand for resampling."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.spd import Array, check_array, check_count, check_generator, format_direction

Interval = tuple[Array, Array]

#: Most blocks that rows are bundled into; more do not make an interval better.
MAX_BLOCKS = 1000
#: A regressor whose variance, given the others and relative to its own, is below this is a linear function of them.
#: It lies above the rounding of logs in single precision, (6e-8)², and below anything that is measured.
COLLINEARITY = 1e-12


def check_rows(value: ArrayLike, name: str, rows: int | None = None, columns: int | None = None) -> Array:
    """Return ``value`` as a finite float64 array of rows (T, d), d ≥ 1 unless ``columns`` says otherwise."""
    array = check_array(value, name, ndim=2)
    if rows is not None and array.shape[0] != rows:
        raise ValueError(f"{name} must have as many rows as states ({rows}), but it has {array.shape[0]}.")
    if columns is not None and array.shape[1] != columns:
        raise ValueError(f"{name} must have as many columns as states ({columns}), but it has {array.shape[1]}.")
    return array


def check_level(level: float) -> float:
    """Return ``level`` as a float strictly between 0 and 1."""
    number = check_array(level, "level", ndim=0).item()
    if not 0 < number < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, but it is {number:.6g}.")
    return number


def standardize(rows: Array, name: str) -> tuple[Array, Array, Array]:
    """(x − x̄)/s column by column, with x̄ (d,) and s (d,).

    Raises
    ------
    ValueError
        If a column is constant, or columns are linearly dependent: the message names the direction without variance.
    """
    largest = np.abs(rows).max(axis=0, initial=0.0)
    if largest.size and (largest.max() > 1e150 or 0 < largest.max() < 1e-150):
        raise ValueError(f"{name} must have squares within float64, but their largest entry is {largest.max():.3g}.")
    center = rows.mean(axis=0)
    centered = rows - center
    scale = np.sqrt((centered**2).mean(axis=0))
    constant = scale <= 1e-12 * largest
    if constant.any():
        direction = format_direction(np.eye(rows.shape[1])[int(np.argmax(constant))])
        raise ValueError(f"{name} must vary in every direction, but they are constant along {direction}.")
    standardized = centered / scale
    check_independent(standardized, scale, f"{name} must vary in every direction, but they are constant along")
    return standardized, center, scale


def check_independent(standardized: Array, scale: Array, sentence: str) -> None:
    """Raise ``ValueError`` with ``sentence`` and a direction in the data's units if columns are linearly dependent."""
    if standardized.shape[1] == 0:
        return
    eigenvalues, vectors = np.linalg.eigh(standardized.T @ standardized / standardized.shape[0])
    if eigenvalues[0] < COLLINEARITY:
        direction = vectors[:, 0] / scale
        # Entries of pure rounding would read as coefficients once they are divided by a small scale.
        direction[np.abs(vectors[:, 0]) < 1e-6] = 0.0
        raise ValueError(f"{sentence} {format_direction(direction / np.linalg.norm(direction))}.")


def row_blocks(count: int, columns: int, episodes: ArrayLike | None) -> NDArray[np.intp]:
    """Block index of each row (T,): its episode, or consecutive rows bundled evenly into at most 1,000 blocks.

    ``columns`` is the size of a block's moments, which bounds how many are kept in memory.

    Raises
    ------
    ValueError
        If ``episodes`` does not have one label a row, or fewer than two different ones.
    """
    if episodes is not None:
        labels = np.asarray(episodes)
        if labels.shape != (count,):
            raise ValueError(f"episodes must hold one label per row ({count}), but its shape is {labels.shape}.")
        _, index = np.unique(labels, return_inverse=True)
        if index.max() == 0:
            raise ValueError("episodes must hold at least two different labels for an interval.")
        return np.asarray(index, dtype=np.intp)
    blocks = min(count, MAX_BLOCKS, max(100, 20_000_000 // columns))
    return np.arange(count) * blocks // count


def block_sums(first: Array, second: Array, blocks: NDArray[np.intp]) -> Array:
    """Σ over a block's rows of first ⊗ second: (T, a) and (T, b) to (blocks, a, b)."""
    order = np.argsort(blocks, kind="stable")
    starts = np.flatnonzero(np.diff(blocks[order], prepend=-1))
    ends = np.append(starts[1:], blocks.size)
    sums = np.empty((starts.size, first.shape[1], second.shape[1]))
    if starts.size == blocks.size:
        np.einsum("ti,tj->tij", first[order], second[order], out=sums)
        return sums
    for block, (start, end) in enumerate(zip(starts, ends, strict=True)):
        rows = order[start:end]
        sums[block] = first[rows].T @ second[rows]
    return sums


def block_weights(blocks: NDArray[np.intp], resamples: int, seed: int | np.random.Generator) -> Array:
    """Weights (resamples, blocks) of the Bayesian bootstrap: exponential, scaled so that rows count T in all.

    Unlike resampling with replacement it leaves no block out, so that a regression that was possible stays possible.

    References
    ----------
    Rubin, "The Bayesian bootstrap", Annals of Statistics 9, 1981.
    """
    sizes = np.bincount(blocks).astype(np.float64)
    size = check_count(resamples, "resamples", 50), sizes.size
    weights = check_generator(seed, "seed").exponential(size=size)
    return weights * (blocks.size / (weights @ sizes))[:, None]


def percentiles(draws: Array, level: float) -> Interval:
    """Percentile interval over the first axis, at the draws next outside; nan where a draw is nan, infinity allowed."""
    ordered = np.sort(draws, axis=0)
    rank = (1 - level) / 2 * (draws.shape[0] - 1)
    unknown = np.isnan(draws).any(axis=0)
    lower, upper = ordered[math.floor(rank)], ordered[draws.shape[0] - 1 - math.floor(rank)]
    return np.where(unknown, np.nan, lower), np.where(unknown, np.nan, upper)
