"""Exact tests and bootstraps of paired differences, over pairs and over training seeds.

Two questions are asked of the same numbers. *Over pairs*: would these trained models differ on other pairs? *Over
seeds*: would other training runs differ like these? Many pairs cannot answer the second, and S seeds cannot give a
two-sided p-value below 2^(1−S).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Differences that are not whole numbers are enumerated, 2^n of them.
MAX_ENUMERATED = 20


def sign_flip_p_value(differences: ArrayLike, groups: ArrayLike | None = None) -> float:
    """Two-sided p-value of the exact sign-flip test that paired differences are symmetric about zero,

        p = P[|Σ_g ε_g d_g| ≥ |Σ_g d_g|],   ε_g = ±1 with equal probability, d_g the sum of the differences of group g.

    Parameters
    ----------
    differences
        Paired differences, (n,): whole numbers of any size, or at most 20 groups of real ones.
    groups
        Group of each difference, (n,): those of one group are not independent and flip together. By default every
        difference is its own group.

    Returns
    -------
    float
        p in (0, 1]; 1 if all differences are zero. With whole numbers it is a convolution, otherwise an enumeration;
        both are exact. For differences in {−1, 0, 1} it is the exact McNemar test.

    Raises
    ------
    ValueError
        If there are no differences, one is not finite, the lengths differ, or there are too many real ones.

    References
    ----------
    Fisher, "The Design of Experiments" (1935), section 21; Pitman, JRSS Supplement 4 (1937).
    """
    sums = group_sums(differences, groups)
    observed = abs(float(sums.sum()))
    rest = sums[sums != 0]
    if len(rest) == 0:
        return 1.0
    if np.array_equal(rest, np.round(rest)):
        return _by_convolution(np.abs(rest).astype(np.int64), round(observed))
    if len(rest) > MAX_ENUMERATED:
        raise ValueError(
            f"differences must be whole numbers, or at most {MAX_ENUMERATED} groups of real ones; got {len(rest)}."
        )
    signs = 1 - 2 * ((np.arange(2 ** len(rest))[:, None] >> np.arange(len(rest))) & 1)
    # Sums that are equal on paper may differ by rounding.
    slack = 1e-12 * np.abs(rest).sum()
    return float((np.abs(signs @ rest) >= observed - slack).mean())


def bootstrap_interval(
    values: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    seed: int = 0,
    resamples: int = 10_000,
    level: float = 0.95,
) -> tuple[float, float]:
    """Percentile interval of a mean when groups are drawn again with replacement.

    Parameters
    ----------
    values
        One number per pair, (n,).
    groups
        Group of each value, (n,); by default every value is its own.
    seed, resamples, level
        Seed and number of draws; coverage.

    Raises
    ------
    ValueError
        If there are no values, one is not finite, the lengths differ, or ``level`` or ``resamples`` is out of range.

    References
    ----------
    Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapters 8 and 13.
    """
    if not 0 < level < 1 or resamples < 1:
        raise ValueError(f"level must lie between 0 and 1 and resamples be positive; got {level} and {resamples}.")
    sums = group_sums(values, groups)
    sizes = group_sums(np.ones(np.shape(values)), groups)
    drawn = np.random.default_rng(seed).integers(0, len(sizes), size=(resamples, len(sizes)))
    low, high = np.quantile(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def group_sums(values: ArrayLike, groups: ArrayLike | None = None) -> NDArray[np.float64]:
    """Sum of the values of each group, groups in ascending order.

    Raises
    ------
    ValueError
        If there are no values, one is not finite, or the lengths differ.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0 or not np.isfinite(array).all():
        raise ValueError("values must be a vector of finite numbers, at least one.")
    labels = np.arange(len(array)) if groups is None else np.asarray(groups)
    if labels.shape != array.shape:
        raise ValueError(f"groups must have one entry per value, {len(array)}, but its shape is {labels.shape}.")
    _, members = np.unique(labels, return_inverse=True)
    return np.asarray(np.bincount(members, weights=array), dtype=np.float64)


def _by_convolution(sizes: NDArray[np.int64], observed: int) -> float:
    """Exact tail of Σ ±sizes: the probability of each sum, built up one term at a time."""
    total = int(sizes.sum())
    # Entry total + s is the probability of the sum s.
    chance = np.zeros(2 * total + 1)
    chance[total] = 1.0
    for size in sizes:
        up, down = np.zeros_like(chance), np.zeros_like(chance)
        up[size:], down[: len(chance) - size] = chance[: len(chance) - size], chance[size:]
        chance = (up + down) / 2
    distance = np.abs(np.arange(-total, total + 1))
    return float(min(1.0, chance[distance >= observed].sum()))
