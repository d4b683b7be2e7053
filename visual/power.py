"""How many pairs does a comparison need? Exact power of McNemar's test, and of unpaired tests beside it.

Two models run on the same n pairs. A pair is solved by the first alone with probability p₁₀, by the second alone with
p₀₁; their rates differ by p₀₁ − p₁₀ whatever the two have in common. Every power here is a finite sum of binomial
probabilities, without simulation and without a normal approximation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from visual.statistics import wilson_interval

Array = NDArray[np.float64]

#: Most pairs that :func:`pairs_needed` looks at.
MOST_PAIRS = 20_000


@dataclass(frozen=True)
class Discordance:
    """Probabilities that only the first, or only the second, of two models solves a pair.

    Attributes
    ----------
    only_first, only_second
        p₁₀ and p₀₁; each at least 0, together at most 1.

    Raises
    ------
    ValueError
        If they are not.
    """

    only_first: float
    only_second: float

    def __post_init__(self) -> None:
        values = (self.only_first, self.only_second)
        if not (min(values) >= 0 and sum(values) <= 1 + 1e-12):
            raise ValueError(
                f"only_first and only_second must be probabilities of sum at most 1, but they are {values}."
            )

    @property
    def total(self) -> float:
        """p₁₀ + p₀₁, the share of pairs on which the models differ."""
        return self.only_first + self.only_second


def discordance(first: float, second: float, correlation: float) -> Discordance:
    """p₁₀ = p₁ − p₁₁ and p₀₁ = p₂ − p₁₁ with p₁₁ = p₁p₂ + φ √(p₁(1 − p₁)p₂(1 − p₂)).

    Parameters
    ----------
    first, second
        Success rates p₁ and p₂, each strictly between 0 and 1.
    correlation
        φ, the correlation of the two successes of a pair. It cannot reach 1 unless p₁ = p₂: at its largest value every
        pair that the weaker model solves is solved by the stronger.

    Raises
    ------
    ValueError
        If a rate is out of range, or no two models with these rates have this correlation.
    """
    for name, rate in (("first", first), ("second", second)):
        if not 0 < rate < 1:
            raise ValueError(f"{name} must lie strictly between 0 and 1, but it is {rate}.")
    spread = math.sqrt(first * (1 - first) * second * (1 - second))
    low = (max(0.0, first + second - 1) - first * second) / spread
    high = (min(first, second) - first * second) / spread
    if not low - 1e-12 <= correlation <= high + 1e-12:
        raise ValueError(
            f"correlation must lie between {low:.6g} and {high:.6g} for rates {first:g} and {second:g}, "
            f"but it is {correlation}."
        )
    both = first * second + min(max(correlation, low), high) * spread
    return Discordance(max(0.0, first - both), max(0.0, second - both))


def mcnemar_power(counts: ArrayLike, models: Discordance, level: float = 0.05) -> Array:
    """Probability that :func:`visual.statistics.mcnemar_exact` returns p ≤ α on n pairs,

        Σ_m P[Bin(n, p₁₀ + p₀₁) = m] · P[min(C, m − C) ≤ k_m],   C ~ Bin(m, p₀₁/(p₁₀ + p₀₁)),

    with k_m the largest k for which 2 P[Bin(m, ½) ≤ k] ≤ α. It counts rejections in either direction.

    Parameters
    ----------
    counts
        Numbers of pairs n ≥ 1, of any shape.
    models
        p₁₀ and p₀₁.
    level
        α, between 0 and 1.

    Returns
    -------
    numpy.ndarray
        Power, in the shape of ``counts``.

    Raises
    ------
    ValueError
        If a count or the level is out of range.

    References
    ----------
    The sum is derived here from the multinomial distribution of the four outcomes; the test is McNemar's
    (Psychometrika 12, 1947) in its exact form.
    """
    numbers = _check(counts, level)
    if models.total == 0:
        return np.zeros(numbers.shape)
    discordant = np.arange(numbers.max() + 1)
    edge = _symmetric_edge(discordant, level)
    share = models.only_second / models.total
    # The two tails never meet: k_m < m/2, because α < 1.
    reject = stats.binom.cdf(edge, discordant, share) + stats.binom.cdf(edge, discordant, 1 - share)
    weights = np.asarray(stats.binom.pmf(discordant, numbers.ravel()[:, None], min(1.0, models.total)))
    return np.asarray(np.minimum(weights @ reject, 1.0).reshape(numbers.shape), dtype=np.float64)


def _symmetric_edge(discordant: NDArray[np.int64], level: float) -> NDArray[np.int64]:
    """Largest k with 2 P[Bin(m, ½) ≤ k] ≤ α for each m; −1 if there is none."""
    # One too high, unless the quantile is met exactly.
    edge = np.maximum(stats.binom.ppf(level / 2, discordant, 0.5), 0).astype(np.int64)
    return edge - (2 * stats.binom.cdf(edge, discordant, 0.5) > level)


def fisher_power(count: int, first: float, second: float, level: float = 0.05) -> float:
    """Power of Fisher's exact test, two-sided, when each model has its own n pairs: Σ P[X = x] P[Y = y] over p ≤ α.

    With groups of one size the conditional distribution of X given x + y is symmetric, so that its two-sided p-value
    is min(1, 2 P[X ≤ min(x, y)]).

    Parameters
    ----------
    count
        n, the number of pairs of each model.
    first, second
        Success rates.
    level
        α, between 0 and 1.

    Raises
    ------
    ValueError
        If a number is out of range.

    References
    ----------
    Fisher, "The Design of Experiments" (1935).
    """
    number = int(_check([count], level)[0])
    ways = special.gammaln(number + 1) - special.gammaln(np.arange(number + 1) + 1)
    ways = ways - special.gammaln(number - np.arange(number + 1) + 1)
    reject = np.zeros((number + 1, number + 1), dtype=bool)
    for total in range(2 * number + 1):
        smaller = np.arange(max(0, total - number), total // 2 + 1)
        whole = special.gammaln(2 * number + 1) - special.gammaln(total + 1) - special.gammaln(2 * number - total + 1)
        tail = np.cumsum(np.exp(ways[smaller] + ways[total - smaller] - whole))
        # A tie with α is a rejection; the sum of rounded terms must not decide it.
        rejected = smaller[(2 * tail <= level * (1 + 1e-9)) & (2 * smaller < total)]
        reject[rejected, total - rejected] = reject[total - rejected, rejected] = True
    return _unpaired(reject, number, first, second)


def newcombe_power(count: int, first: float, second: float, level: float = 0.05) -> float:
    """Probability that Newcombe's interval of p₂ − p₁ leaves out 0 when each model has its own n pairs.

    With Wilson limits l, u of each rate and d = p̂₂ − p̂₁, the interval is
    [d − √((p̂₂ − l₂)² + (u₁ − p̂₁)²), d + √((u₂ − p̂₂)² + (p̂₁ − l₁)²)].

    Parameters and errors as for :func:`fisher_power`.

    References
    ----------
    Newcombe, Statistics in Medicine 17 (1998), method 10.
    """
    number = int(_check([count], level)[0])
    rates = [wilson_interval(successes, number, 1 - level) for successes in range(number + 1)]
    rate, low, high = (np.array([getattr(item, name) for item in rates]) for name in ("rate", "low", "high"))
    difference = rate - rate[:, None]
    below = np.hypot(rate - low, (high - rate)[:, None])
    above = np.hypot(high - rate, (rate - low)[:, None])
    return _unpaired((difference > below) | (difference < -above), number, first, second)


def _unpaired(reject: NDArray[np.bool_], count: int, first: float, second: float) -> float:
    """Σ over the table of rejections, rows for the first model's successes."""
    for name, rate in (("first", first), ("second", second)):
        if not 0 <= rate <= 1:
            raise ValueError(f"{name} must lie between 0 and 1, but it is {rate}.")
    one, two = (np.asarray(stats.binom.pmf(np.arange(count + 1), count, rate)) for rate in (first, second))
    return float(one @ reject @ two)


def pairs_needed(models: Discordance, power: float = 0.8, level: float = 0.05) -> int:
    """Least n from which on :func:`mcnemar_power` stays at or above ``power``.

    Raises
    ------
    ValueError
        If the power or the level is out of range, the two rates are equal, or more than :data:`MOST_PAIRS` are needed.
    """
    if not 0 < power < 1:
        raise ValueError(f"power must lie strictly between 0 and 1, but it is {power}.")
    difference = abs(models.only_second - models.only_first)
    if difference == 0:
        raise ValueError("models must differ in their rates: no number of pairs tells equal ones apart.")
    # The normal approximation gives the range; the power rises in small waves, so the last step below it counts.
    reach = float(stats.norm.ppf(power) + stats.norm.ppf(1 - level / 2)) ** 2 * models.total / difference**2
    top = 2 * math.ceil(reach) + 50
    while top <= MOST_PAIRS:
        values = mcnemar_power(np.arange(1, top + 1), models, level)
        last = int(np.flatnonzero(values < power)[-1]) + 1
        if last <= 0.75 * top:
            return last + 1
        top *= 2
    raise ValueError(f"models must differ by more: {MOST_PAIRS} pairs do not give power {power:g}.")


def _check(counts: ArrayLike, level: float) -> NDArray[np.int64]:
    numbers = np.asarray(counts)
    if numbers.size == 0 or not np.issubdtype(numbers.dtype, np.integer) or (numbers < 1).any():
        raise ValueError("counts must be whole numbers of at least 1.")
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, but it is {level}.")
    return numbers.astype(np.int64)
