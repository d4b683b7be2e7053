"""Success rates and their comparison: Wilson intervals, exact McNemar tests, paired bootstraps.

Every function takes arrays of pairs in the same order; two models are compared only on the same pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from visual.permutation import bootstrap_interval


@dataclass(frozen=True)
class Rate:
    """A success rate.

    Attributes
    ----------
    successes, count
        k of n.
    rate
        k/n; nan for n = 0.
    low, high
        Wilson interval; [0, 1] for n = 0.
    """

    successes: int
    count: int
    rate: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """Two models on the same pairs.

    Attributes
    ----------
    count
        Number of pairs n.
    first, second
        Success rates.
    difference
        second − first.
    low, high
        Paired bootstrap interval of the difference.
    only_first, only_second
        Pairs that one model solved and the other did not.
    p_value
        Exact McNemar test of equal success, two-sided.
    """

    count: int
    first: float
    second: float
    difference: float
    low: float
    high: float
    only_first: int
    only_second: int
    p_value: float


def wilson_interval(successes: int, count: int, level: float = 0.95) -> Rate:
    """Wilson's score interval of a rate,

        (p̂ + z²/2n ± z √(p̂(1−p̂)/n + z²/4n²)) / (1 + z²/n),   p̂ = k/n, z the normal quantile of (1 + level)/2.

    Parameters
    ----------
    successes, count
        k and n, 0 ≤ k ≤ n.
    level
        Coverage, between 0 and 1.

    Raises
    ------
    ValueError
        If a number is out of range.

    References
    ----------
    Wilson, JASA 22 (1927).
    """
    if not 0 <= successes <= count:
        raise ValueError(f"successes must lie between 0 and count = {count}, but it is {successes}.")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, but it is {level}.")
    if count == 0:
        return Rate(0, 0, float("nan"), 0.0, 1.0)
    z = float(stats.norm.ppf((1 + level) / 2))
    rate = successes / count
    center = rate + z**2 / (2 * count)
    spread = z * np.sqrt(rate * (1 - rate) / count + z**2 / (4 * count**2))
    scale = 1 + z**2 / count
    # At k = 0 and k = n the bound is exact, up to rounding that would leave [0, 1].
    low = 0.0 if successes == 0 else float((center - spread) / scale)
    high = 1.0 if successes == count else float((center + spread) / scale)
    return Rate(int(successes), int(count), rate, low, high)


def mcnemar_exact(first: ArrayLike, second: ArrayLike) -> float:
    """Two-sided p-value of the exact McNemar test,

        p = min(1, 2 P[X ≤ min(b, c)]),   X ~ Binomial(b + c, ½),   1 if no pair is discordant;

    b and c count the pairs that one model solved and the other did not.

    Parameters
    ----------
    first, second
        Success of each pair, (n,).

    Raises
    ------
    ValueError
        If the arrays differ in length, are empty, or hold anything but truth values.

    References
    ----------
    McNemar, Psychometrika 12 (1947), in its exact form.
    """
    one, two = _pair_up(first, second)
    only_first, only_second = int((one & ~two).sum()), int((~one & two).sum())
    discordant = only_first + only_second
    if discordant == 0:
        return 1.0
    return float(min(1.0, 2 * stats.binom.cdf(min(only_first, only_second), discordant, 0.5)))


def paired_bootstrap(
    first: ArrayLike,
    second: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    seed: int = 0,
    resamples: int = 10_000,
    level: float = 0.95,
) -> tuple[float, float]:
    """Percentile interval of the mean of second − first when groups of pairs are drawn again with replacement.

    Parameters
    ----------
    first, second
        Success of each pair, (n,).
    groups
        Group of each pair, (n,): pairs from one episode are not independent and are drawn together. By default every
        pair is its own group.
    seed, resamples, level
        Seed and number of draws; coverage.

    Raises
    ------
    ValueError
        As :func:`mcnemar_exact` and :func:`visual.permutation.bootstrap_interval`.

    References
    ----------
    Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapters 8 and 13.
    """
    one, two = _pair_up(first, second)
    return bootstrap_interval(
        two.astype(float) - one.astype(float), groups, seed=seed, resamples=resamples, level=level
    )


def compare(first: pd.DataFrame, second: pd.DataFrame, *, seed: int = 0) -> Comparison:
    """Compare two models' rows, paired by ``pair``.

    Parameters
    ----------
    first, second
        Rows of :func:`visual.evaluation.evaluate`: ``pair``, ``episode``, ``start``, ``goal``, ``success``.
    seed
        Seed of the bootstrap.

    Raises
    ------
    ValueError
        If the two were not evaluated on the same pairs, each once.
    """
    keys = ["pair", "episode", "start", "goal"]
    one, two = (rows.sort_values("pair").reset_index(drop=True) for rows in (first, second))
    if len(one) != len(two) or one["pair"].duplicated().any() or not one[keys].equals(two[keys]):
        raise ValueError("Two models can be compared only if both were evaluated on the same pairs, each once.")
    a, b = _pair_up(one["success"].to_numpy(), two["success"].to_numpy())
    low, high = paired_bootstrap(a, b, one["episode"].to_numpy(), seed=seed)
    return Comparison(
        count=len(a),
        first=float(a.mean()),
        second=float(b.mean()),
        difference=float(b.mean() - a.mean()),
        low=low,
        high=high,
        only_first=int((a & ~b).sum()),
        only_second=int((~a & b).sum()),
        p_value=mcnemar_exact(a, b),
    )


def summarize(rows: pd.DataFrame) -> dict[str, Any]:
    """The rate of an evaluation with what belongs beside it.

    Parameters
    ----------
    rows
        Rows of one model: ``success``, ``already_solved``, ``random_success``.

    Returns
    -------
    dict
        ``n``, ``rate``, ``low``, ``high`` (Wilson, 95 %); ``floor``, ``floor_low``, ``floor_high`` (random actions on
        the same pairs); ``solved_at_start`` (share of pairs); ``unsolved_n``, ``unsolved_rate``, ``unsolved_low``,
        ``unsolved_high`` (pairs that were not).

    Raises
    ------
    ValueError
        If there are no rows.
    """
    if rows.empty:
        raise ValueError("rows must hold at least one pair.")
    solved = rows["already_solved"].to_numpy(dtype=bool)
    success = rows["success"].to_numpy(dtype=bool)
    floor = rows["random_success"].to_numpy(dtype=bool)
    total, random, unsolved = (
        wilson_interval(int(values.sum()), len(values)) for values in (success, floor, success[~solved])
    )
    return {
        "n": total.count,
        "rate": total.rate,
        "low": total.low,
        "high": total.high,
        "floor": random.rate,
        "floor_low": random.low,
        "floor_high": random.high,
        "solved_at_start": float(solved.mean()),
        "unsolved_n": unsolved.count,
        "unsolved_rate": unsolved.rate,
        "unsolved_low": unsolved.low,
        "unsolved_high": unsolved.high,
    }


def _pair_up(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    arrays = []
    for name, values in (("first", first), ("second", second)):
        array = np.asarray(values)
        if array.ndim != 1 or len(array) == 0 or not np.isin(array, (0, 1)).all():
            raise ValueError(f"{name} must hold one truth value per pair, and at least one.")
        arrays.append(array.astype(bool))
    if len(arrays[0]) != len(arrays[1]):
        raise ValueError(f"first and second must be paired, but have {len(arrays[0])} and {len(arrays[1])} entries.")
    return arrays[0], arrays[1]
