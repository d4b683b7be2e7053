"""Does a planning cost order outcomes? Statistics over recorded action sequences (docs/theory.md, T11).

A planner needs only the order of its costs. For one initial state and goal with m recorded sequences, these functions
compare the order of the costs with the order of the outcomes; a table averages them over the pairs of initial state and
goal, never over the pooled sequences.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.spd import Array, check_vector


def pairwise_agreement(costs: ArrayLike, outcomes: ArrayLike) -> float:
    """Fraction of pairs that cost and outcome order alike: P = (C + T/2) / U.

    Over all pairs of sequences whose outcomes differ, U of them, C counts those whose costs differ in the same sense
    and T those whose costs are equal: a tied cost leaves the planner to a coin. Pairs with equal outcomes are left out,
    since no order of them is wrong. A perfect order gives 1, a reversed one 0, a constant cost ½. Without ties,
    P = (1 + τ)/2 with Kendall's τ.

    Parameters
    ----------
    costs, outcomes
        Planning cost and true outcome of each recorded sequence, both (m,), both smaller-is-better.

    Returns
    -------
    float
        P in [0, 1]; nan when no two outcomes differ (m = 1 included), so that averages must say how many they left out.

    Raises
    ------
    ValueError
        If an argument is empty, not a vector, not finite, or the lengths differ.

    Notes
    -----
    O(m log m) time and O(m) memory: discordant pairs are the inversions of the costs in order of outcome.

    References
    ----------
    AnisoWM (arXiv 2609.37441), Table 1; the treatment of ties is ours. Knight, "A computer method for calculating
    Kendall's tau with ungrouped data", JASA 61 (1966), for the counting.
    """
    outcomes = check_vector(outcomes, "outcomes")
    costs = check_vector(costs, "costs", outcomes.size)
    cost_ranks = np.unique(costs, return_inverse=True)[1]
    outcome_ranks = np.unique(outcomes, return_inverse=True)[1]
    ordered = cost_ranks[np.lexsort((cost_ranks, outcome_ranks))]

    untied = math.comb(costs.size, 2) - _tied_pairs(outcome_ranks)
    if untied == 0:
        return math.nan
    # Equal outcomes stand in order of cost, so that none of their pairs counts as an inversion.
    discordant = _inversions(ordered)
    both = outcome_ranks * (int(cost_ranks.max()) + 1) + cost_ranks
    tied_costs = _tied_pairs(cost_ranks) - _tied_pairs(both)
    return (untied - discordant - tied_costs / 2) / untied


def rank_correlation(costs: ArrayLike, outcomes: ArrayLike) -> float:
    """Spearman's ρ: the Pearson correlation of the ranks of costs and outcomes, ties at their average rank.

    Parameters
    ----------
    costs, outcomes
        Planning cost and true outcome of each recorded sequence, both (m,).

    Returns
    -------
    float
        ρ in [−1, 1]; nan when all costs or all outcomes are equal (m = 1 included).

    Raises
    ------
    ValueError
        If an argument is empty, not a vector, not finite, or the lengths differ.

    References
    ----------
    AnisoWM (arXiv 2609.37441), the neighbourhood diagnosis; docs/theory.md, T11.
    """
    outcomes = check_vector(outcomes, "outcomes")
    costs = check_vector(costs, "costs", outcomes.size)
    first, second = _centred_ranks(costs), _centred_ranks(outcomes)
    spread = float(first @ first) * float(second @ second)
    return float(first @ second) / math.sqrt(spread) if spread > 0 else math.nan


def _centred_ranks(values: Array) -> Array:
    """Twice the average rank minus its mean, a whole number for each of ``values`` (m,), so that no digit is lost."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (2 * last - counts - values.size).astype(np.float64)[inverse]


def _tied_pairs(ranks: NDArray[np.intp]) -> int:
    """Number of pairs of equal entries."""
    counts = np.unique(ranks, return_counts=True)[1]
    return int(np.sum(counts * (counts - 1) // 2))


def _inversions(ranks: NDArray[np.intp]) -> int:
    """Number of pairs i < j with ranks[i] > ranks[j], for ranks in 0..m−1.

    A pair is inverted at exactly one bit: the highest at which the two differ, where the earlier has 1 and the later 0.
    So the ranks are sorted by ever longer prefixes, and each bit counts the ones that precede a zero of equal prefix.
    """
    total = 0
    for bit in reversed(range(int(ranks.max()).bit_length())):
        ones = (ranks >> bit) & 1
        prefixes = ranks >> (bit + 1)
        starts = np.flatnonzero(np.diff(prefixes, prepend=-1))
        seen = np.cumsum(ones) - ones
        seen -= np.repeat(seen[starts], np.diff(starts, append=ranks.size))
        total += int(seen[ones == 0].sum())
        ranks = ranks[np.argsort(ranks >> bit, kind="stable")]
    return total
