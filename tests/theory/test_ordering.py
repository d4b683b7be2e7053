"""Ordering statistics (docs/theory.md, T11).

1. `pairwise_agreement` is the double loop over pairs: agreement 1, tied costs ½, tied outcomes left out.
2. Both statistics depend on order alone: monotone transforms and permutations change nothing, reversal flips.
3. Without ties P = (1 + τ)/2 with Kendall's τ; with ties P follows from the counts of τ-b.
4. `rank_correlation` is Spearman's ρ, as scipy computes it and as Pearson of average ranks.
5. Undefined cases are nan; bad input is refused in one sentence.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from strategies import Array, seeds

from theory.ordering import pairwise_agreement, rank_correlation


def draw(seed: int, size: int, levels: int) -> tuple[Array, Array]:
    """Related costs and outcomes; few levels make many ties, 0 makes none."""
    rng = np.random.default_rng(seed)
    outcomes = rng.standard_normal(size)
    costs = rng.choice([-1.0, 0.0, 1.0]) * outcomes + rng.choice([0.0, 0.5, 5.0]) * rng.standard_normal(size)
    if levels:
        outcomes, costs = np.round(outcomes * levels / 3), np.round(costs * levels / 3)
    return costs, outcomes


def double_loop(costs: Array, outcomes: Array) -> float:
    """The definition, pair by pair."""
    score, pairs = 0.0, 0
    for i in range(len(costs)):
        for j in range(i):
            if outcomes[i] != outcomes[j]:
                pairs += 1
                if costs[i] == costs[j]:
                    score += 0.5
                elif (costs[i] < costs[j]) == (outcomes[i] < outcomes[j]):
                    score += 1.0
    return score / pairs if pairs else math.nan


SIZES = st.integers(1, 70)
LEVELS = st.sampled_from([0, 1, 3, 20])


@given(seed=seeds(), size=SIZES, levels=LEVELS)
def test_agreement_is_the_double_loop(seed: int, size: int, levels: int) -> None:
    """Claim 1, exactly.

    Mutation: break ties of the outcome by descending cost, or count tied costs as 1.
    """
    costs, outcomes = draw(seed, size, levels)
    assert pairwise_agreement(costs, outcomes) == pytest.approx(double_loop(costs, outcomes), rel=1e-15, nan_ok=True)


def test_agreement_of_many_sequences() -> None:
    """Claims 1 and 3 at a size for which the number of pairs overflows 32 bits."""
    rng = np.random.default_rng(0)
    size = 100_000
    outcomes, costs = rng.permutation(size), rng.permutation(size)
    assert pairwise_agreement(outcomes, outcomes) == 1.0
    assert pairwise_agreement(-outcomes, outcomes) == 0.0
    tau = stats.kendalltau(costs, outcomes).statistic
    assert pairwise_agreement(costs, outcomes) == pytest.approx((1 + tau) / 2, rel=1e-12)


@given(seed=seeds(), size=SIZES, levels=LEVELS)
def test_only_the_order_counts(seed: int, size: int, levels: int) -> None:
    """Claim 2.

    Mutation: correlate values rather than ranks, or compare costs by a sign of differences with a tolerance.
    """
    costs, outcomes = draw(seed, size, levels)
    shuffle = np.random.default_rng(seed).permutation(size)
    for statistic, flipped in ((pairwise_agreement, lambda p: 1 - p), (rank_correlation, lambda r: -r)):
        value = statistic(costs, outcomes)
        assert statistic(np.exp(costs), outcomes**3) == pytest.approx(value, nan_ok=True)
        assert statistic(1e-12 * costs, 1e12 * outcomes) == pytest.approx(value, nan_ok=True)
        assert statistic(costs[shuffle], outcomes[shuffle]) == pytest.approx(value, nan_ok=True)
        assert statistic(-costs, outcomes) == pytest.approx(flipped(value), nan_ok=True)
        assert statistic(costs, -outcomes) == pytest.approx(flipped(value), nan_ok=True)


@given(seed=seeds(), size=st.integers(2, 70), levels=LEVELS)
def test_agreement_and_kendall(seed: int, size: int, levels: int) -> None:
    """Claim 3: P = (1 + τ)/2 without ties; in general C − D = (2P − 1)U, which τ-b divides by its own root.

    Mutation: divide by all pairs instead of those with distinct outcomes.
    """
    costs, outcomes = draw(seed, size, levels)
    agreement = pairwise_agreement(costs, outcomes)
    tau = stats.kendalltau(costs, outcomes).statistic
    distinct = [sum(values[i] != values[j] for i in range(size) for j in range(i)) for values in (outcomes, costs)]
    if distinct[0] == 0 or distinct[1] == 0:
        assert math.isnan(tau)
        assert agreement == 0.5 or distinct[0] == 0
        return
    assert (2 * agreement - 1) * distinct[0] == pytest.approx(tau * math.sqrt(distinct[0] * distinct[1]), abs=1e-9)
    if levels == 0:
        assert agreement == pytest.approx((1 + tau) / 2, abs=1e-12)


@given(seed=seeds(), size=st.integers(2, 70), levels=LEVELS)
def test_rank_correlation_is_spearman(seed: int, size: int, levels: int) -> None:
    """Claim 4, against scipy and against Pearson of ranks counted one by one.

    Mutation: rank ties in order of appearance.
    """
    costs, outcomes = draw(seed, size, levels)
    value = rank_correlation(costs, outcomes)
    if np.ptp(costs) == 0 or np.ptp(outcomes) == 0:
        assert math.isnan(value)
        return
    assert -1.0 <= value <= 1.0
    assert value == pytest.approx(stats.spearmanr(costs, outcomes).statistic, abs=1e-12)
    ranks = [[np.sum(values < entry) + np.sum(values == entry) / 2 for entry in values] for values in (costs, outcomes)]
    assert value == pytest.approx(np.corrcoef(ranks)[0, 1], abs=1e-12)


def test_known_values() -> None:
    """Claims 1, 4 and 5 by hand."""
    assert pairwise_agreement([1, 2, 3], [10, 20, 30]) == 1.0
    assert pairwise_agreement([3, 2, 1], [10, 20, 30]) == 0.0
    assert pairwise_agreement([7, 7, 7], [10, 20, 30]) == 0.5
    assert pairwise_agreement([1, 1, 2], [1, 2, 2]) == 0.75
    assert pairwise_agreement([5, 1, 9], [1, 1, 2]) == 1.0
    assert rank_correlation([1, 2, 3], [1, 4, 9]) == 1.0
    assert rank_correlation([1, 2, 3], [9, 4, 1]) == -1.0
    assert rank_correlation([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(0.8)
    for undefined in (([1, 2], [3, 3]), ([1], [1])):
        assert math.isnan(pairwise_agreement(*undefined))
        assert math.isnan(rank_correlation(*undefined))
    assert math.isnan(rank_correlation([3, 3], [1, 2]))


@pytest.mark.parametrize("statistic", [pairwise_agreement, rank_correlation])
@pytest.mark.parametrize(
    ("costs", "outcomes", "message"),
    [
        ([], [], "outcomes must not be empty"),
        ([1.0, 2.0], [1.0, 2.0, 3.0], r"costs must have shape \(3,\)"),
        ([1.0, np.nan], [1.0, 2.0], "costs must be finite"),
        ([1.0, 2.0], [1.0, np.inf], "outcomes must be finite"),
        ([1.0, 2.0], [1.0, 2j], "outcomes must be real"),
        ([[1.0, 2.0]], [1.0, 2.0], r"costs must have shape \(2,\)"),
        (["a", "b"], [1.0, 2.0], "costs must hold numbers"),
    ],
)
def test_bad_input_is_one_sentence(statistic, costs, outcomes, message: str) -> None:
    """Claim 5."""
    with pytest.raises(ValueError, match=message) as caught:
        statistic(costs, outcomes)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")
