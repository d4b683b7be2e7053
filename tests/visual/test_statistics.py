"""Claims about rates and comparisons.

1. Wilson's interval solves |p̂ − p| = z √(p(1−p)/n); it contains the rate and stays in [0, 1]; the published example
   (44 of 50: 76 to 94 %) comes out.
2. McNemar's exact p-value equals the enumeration of all sign patterns of the discordant pairs; it does not depend on
   concordant pairs or on the order of the models.
3. The paired bootstrap has the spread of the mean difference, is narrower than an unpaired one for correlated models,
   and draws pairs of one episode together.
4. Models evaluated on different pairs are not compared.
5. A summary counts what it says.
"""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from visual.statistics import compare, mcnemar_exact, paired_bootstrap, summarize, wilson_interval


@given(st.integers(1, 500), st.floats(0, 1), st.floats(0.5, 0.999))
def test_wilson_solves_the_score_equation(count: int, share: float, level: float) -> None:
    """Claim 1. Mutation: drop z²/4n² under the root."""
    successes = round(share * count)
    result = wilson_interval(successes, count, level)
    z = stats.norm.ppf((1 + level) / 2)
    assert 0 <= result.low <= result.rate <= result.high <= 1
    for bound in (result.low, result.high):
        if 0 < bound < 1:
            assert abs(result.rate - bound) == pytest.approx(z * np.sqrt(bound * (1 - bound) / count), rel=1e-6)


def test_wilson_at_the_edges() -> None:
    """Claim 1. Mutation: return nan bounds for n = 0, or leave 0 and 1 to rounding."""
    assert wilson_interval(0, 20).low == 0.0
    assert wilson_interval(20, 20).high == 1.0
    empty = wilson_interval(0, 0)
    assert np.isnan(empty.rate)
    assert (empty.low, empty.high) == (0.0, 1.0)
    published = wilson_interval(44, 50)
    assert (round(published.low, 2), round(published.high, 2)) == (0.76, 0.94)
    for arguments in ((3, 2, 0.95), (-1, 2, 0.95), (1, 2, 1.0)):
        with pytest.raises(ValueError, match="must lie between 0 and"):
            wilson_interval(*arguments)


@given(st.integers(0, 6), st.integers(0, 6), st.integers(1, 4))
def test_mcnemar_enumerates_sign_patterns(only_first: int, only_second: int, concordant: int) -> None:
    """Claim 2. Mutation: one-sided p-value, or count concordant pairs."""
    first = np.array([1] * only_first + [0] * only_second + [1, 0] * concordant)
    second = np.array([0] * only_first + [1] * only_second + [1, 0] * concordant)
    discordant = only_first + only_second
    smaller = min(only_first, only_second)
    tail = sum(sum(signs) <= smaller for signs in itertools.product((0, 1), repeat=discordant)) / 2**discordant
    expected = min(1.0, 2 * tail)
    assert mcnemar_exact(first, second) == pytest.approx(expected)
    assert mcnemar_exact(second, first) == pytest.approx(expected)


def test_bootstrap_spread_is_that_of_the_mean_difference() -> None:
    """Claim 3. Mutation: draw the two models' pairs independently of each other."""
    generator = np.random.default_rng(0)
    shared = generator.random(400)
    first, second = shared < 0.6, shared < 0.7
    low, high = paired_bootstrap(first, second, seed=1)
    difference = second.astype(float) - first
    assert low < difference.mean() < high
    assert (high - low) / 2 == pytest.approx(1.96 * difference.std() / np.sqrt(400), rel=0.1)
    unpaired = np.sqrt(first.var() / 400 + second.var() / 400)
    assert (high - low) / 2 < 0.6 * 1.96 * unpaired
    assert paired_bootstrap(first, second, seed=1) == (low, high)
    assert paired_bootstrap(first, first) == (0.0, 0.0)


def test_bootstrap_draws_groups_together() -> None:
    """Claim 3. Mutation: ignore the groups."""
    generator = np.random.default_rng(0)
    change = np.repeat(generator.random(50) < 0.5, 8)
    first, second = np.zeros(400, dtype=bool), change
    groups = np.repeat(np.arange(50), 8)
    alone = np.diff(paired_bootstrap(first, second, seed=0))[0]
    together = np.diff(paired_bootstrap(first, second, groups, seed=0))[0]
    assert together == pytest.approx(np.sqrt(8) * alone, rel=0.15)


def rows(success: list[int], **columns: list[int]) -> pd.DataFrame:
    count = len(success)
    base = {"pair": range(count), "episode": range(count), "start": [0] * count, "goal": [25] * count}
    return pd.DataFrame({**base, "success": success, **columns})


def test_only_equal_pairs_are_compared() -> None:
    """Claim 4. Mutation: compare by position without looking at the pairs."""
    one, two = rows([1, 0, 0, 1]), rows([1, 1, 1, 1])
    result = compare(one, two.sample(frac=1, random_state=0))
    assert (result.first, result.second, result.difference) == (0.5, 1.0, 0.5)
    assert (result.only_first, result.only_second, result.count) == (0, 2, 4)
    assert result.p_value == 0.5
    assert result.low <= 0.5 <= result.high
    different = (two.iloc[:3], two.assign(start=1), two.assign(pair=[0, 1, 2, 2]), two.assign(episode=[9, 1, 2, 3]))
    for other in different:
        with pytest.raises(ValueError, match="same pairs, each once"):
            compare(one, other)
    doubled = rows([1, 1]).assign(pair=[0, 0], episode=[0, 0])
    with pytest.raises(ValueError, match="same pairs, each once"):
        compare(doubled, doubled)


def test_summary_counts() -> None:
    """Claim 5. Mutation: take the rate of solved pairs for that of unsolved ones."""
    table = summarize(rows([1, 1, 0, 1], already_solved=[1, 0, 0, 0], random_success=[1, 0, 0, 0]))
    assert (table["n"], table["rate"], table["floor"], table["solved_at_start"]) == (4, 0.75, 0.25, 0.25)
    assert (table["unsolved_n"], table["unsolved_rate"]) == (3, pytest.approx(2 / 3))
    assert table["low"] < 0.75 < table["high"]
    with pytest.raises(ValueError, match="at least one pair"):
        summarize(rows([], already_solved=[], random_success=[]))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([1, 0], [1], "have 2 and 1 entries"),
        ([], [], "at least one"),
        ([0.5], [1], "truth value"),
        ([[1]], [[1]], "truth value"),
    ],
)
def test_bad_success_arrays(first: list[int], second: list[int], message: str) -> None:
    """Claim 2. Mutation: broadcast."""
    with pytest.raises(ValueError, match=message):
        mcnemar_exact(first, second)
    with pytest.raises(ValueError, match=message):
        paired_bootstrap(first, second)


def test_bad_bootstrap_settings() -> None:
    """Claim 3. Mutation: drop the checks."""
    with pytest.raises(ValueError, match="one entry per value, 2"):
        paired_bootstrap([1, 0], [0, 1], [0])
    with pytest.raises(ValueError, match="resamples be positive"):
        paired_bootstrap([1, 0], [0, 1], resamples=0)
