"""Exact tests over pairs and seeds, against enumeration, McNemar and simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visual.permutation import bootstrap_interval, group_sums, sign_flip_p_value
from visual.statistics import mcnemar_exact

WHOLE = st.lists(st.integers(-4, 4), min_size=1, max_size=9)


@given(WHOLE, st.data())
def test_whole_numbers_agree_with_enumeration_by_groups(differences: list[int], data: st.DataObject) -> None:
    groups = data.draw(st.lists(st.integers(0, 3), min_size=len(differences), max_size=len(differences)))
    sums = [sum(d for d, g in zip(differences, groups, strict=True) if g == group) for group in sorted(set(groups))]
    observed = abs(sum(sums))
    tail = [
        abs(sum(s * d for s, d in zip(signs, sums, strict=True))) >= observed
        for signs in itertools.product((-1, 1), repeat=len(sums))
    ]
    assert sign_flip_p_value(differences, groups) == pytest.approx(np.mean(tail), abs=1e-12)


@given(WHOLE)
def test_real_numbers_take_the_same_value_as_whole_ones(differences: list[int]) -> None:
    assert sign_flip_p_value(np.array(differences) / 7) == pytest.approx(sign_flip_p_value(differences), abs=1e-12)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_on_one_model_each_it_is_the_exact_mcnemar_test(successes: list[tuple[bool, bool]]) -> None:
    first, second = np.array(successes).T
    p_value = sign_flip_p_value(second.astype(int) - first.astype(int))
    assert p_value == pytest.approx(mcnemar_exact(first, second), abs=1e-12)


def test_seeds_that_agree_reach_the_smallest_attainable_p_value() -> None:
    for count in (1, 2, 3, 5):
        assert sign_flip_p_value(np.linspace(0.011, 0.07, count)) == pytest.approx(2.0 ** (1 - count))


def test_differences_of_zero_say_nothing() -> None:
    assert sign_flip_p_value([0, 0, 0]) == 1.0
    assert sign_flip_p_value([0, 3, 0, 3]) == sign_flip_p_value([3, 3]) == 0.5


def test_many_pairs_stay_exact() -> None:
    """600 pairs of ±1 and 0: the tail of a binomial, far beyond enumeration."""
    from scipy import stats

    differences = np.repeat([1, -1, 0], [40, 20, 540])
    assert sign_flip_p_value(differences) == pytest.approx(2 * stats.binom.cdf(20, 60, 0.5), rel=1e-10)


def test_p_values_are_uniform_at_most_under_the_null() -> None:
    generator = np.random.default_rng(5)
    draws = [sign_flip_p_value(generator.integers(-3, 4, size=40)) for _ in range(2000)]
    assert np.mean(np.array(draws) <= 0.05) < 0.065


def test_the_bootstrap_covers_a_known_mean_and_groups_widen_it() -> None:
    generator = np.random.default_rng(3)
    groups = np.repeat(np.arange(40), 5)
    covered, alone, together = [], [], []
    for seed in range(150):
        values = 0.3 + np.repeat(generator.normal(size=40), 5) + 0.1 * generator.normal(size=200)
        low, high = bootstrap_interval(values, groups, seed=seed, resamples=400)
        covered.append(low <= 0.3 <= high)
        together.append(high - low)
        alone.append(np.ptp(bootstrap_interval(values, seed=seed, resamples=400)))
    assert 0.86 <= np.mean(covered) <= 0.99
    assert np.mean(together) > 1.8 * np.mean(alone)
    assert bootstrap_interval(values, groups, seed=1) == bootstrap_interval(values, groups, seed=1)


@pytest.mark.parametrize(
    ("values", "groups", "sentence"),
    [
        ([], None, "at least one"),
        ([1.0, float("nan")], None, "finite numbers"),
        ([[1.0]], None, "must be a vector"),
        ([1.0, 2.0], [0], "one entry per value, 2"),
    ],
)
def test_bad_values_get_one_sentence(values: list[float], groups: list[int] | None, sentence: str) -> None:
    for call in (sign_flip_p_value, bootstrap_interval, group_sums):
        with pytest.raises(ValueError, match=sentence):
            call(values, groups)


def test_too_many_real_differences_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 20 groups"):
        sign_flip_p_value(np.linspace(0.1, 1.23, 21))
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        bootstrap_interval([1.0], level=1.0)
