"""Claims about the number of pairs.

1. McNemar's power is the sum over all outcomes of n pairs, enumerated one by one with the test itself; it is what
   simulated comparisons reject, and the test's size when the models are equal.
2. Rates and a correlation fix the discordance, and only possible ones are accepted.
3. Fisher's and Newcombe's powers are the sums over all tables, enumerated with SciPy's test and the interval written
   out.
4. The number of pairs is the last at which the power was too small, plus one.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from visual.power import Discordance, discordance, fisher_power, mcnemar_power, newcombe_power, pairs_needed
from visual.statistics import mcnemar_exact, wilson_interval

OUTCOMES = ((1, 1), (1, 0), (0, 1), (0, 0))


def enumerated(count: int, models: Discordance, level: float) -> float:
    """Σ over the number of pairs of each of the four outcomes, with the p-value of the test itself."""
    both = (1 - models.total) / 2
    chances = (both, models.only_first, models.only_second, both)
    total = 0.0
    for numbers in itertools.product(range(count + 1), repeat=4):
        if sum(numbers) != count:
            continue
        pairs = [outcome for outcome, number in zip(OUTCOMES, numbers, strict=True) for _ in range(number)]
        first, second = zip(*pairs, strict=True)
        if mcnemar_exact(first, second) <= level:
            total += float(stats.multinomial.pmf(numbers, count, chances))
    return total


@pytest.mark.parametrize("level", [0.05, 0.0625, 0.3])
@pytest.mark.parametrize("chances", [(0.1, 0.5), (0.0, 0.9), (0.3, 0.3)])
def test_mcnemar_power_is_the_sum_over_all_outcomes(chances: tuple[float, float], level: float) -> None:
    """Claim 1; at α = 1/16 five pairs to none are exactly on the edge.

    Mutation: one tail only, or ``>=`` for ``>`` in ``_symmetric_edge``.
    """
    models = Discordance(*chances)
    for count in (1, 5, 8):
        assert mcnemar_power(count, models, level) == pytest.approx(enumerated(count, models, level), abs=1e-12)


def test_mcnemar_power_is_what_simulations_reject() -> None:
    """Claim 1 at the numbers of the figure, 1500 comparisons of 200 pairs."""
    models = Discordance(0.02, 0.08)
    generator = np.random.default_rng(3)
    draws = generator.multinomial(200, [models.only_first, models.only_second, 1 - models.total], size=1500)
    rejected = []
    for first, second, same in draws:
        pairs = np.repeat(np.array([[1, 0], [0, 1], [1, 1]]), [first, second, same], axis=0)
        rejected.append(mcnemar_exact(pairs[:, 0], pairs[:, 1]) <= 0.05)
    expected = float(mcnemar_power(200, models))
    assert np.mean(rejected) == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 1500))


@given(st.floats(0, 0.5), st.integers(1, 300), st.floats(0.01, 0.3))
def test_equal_models_are_told_apart_no_more_often_than_the_level(share: float, count: int, level: float) -> None:
    """Claim 1: the exact test keeps its level."""
    size = float(mcnemar_power(count, Discordance(share, share), level))
    assert 0 <= size <= level * (1 + 1e-9)


@given(st.floats(0, 0.4), st.floats(0, 0.4), st.integers(1, 60))
def test_the_order_of_the_models_does_not_matter(first: float, second: float, count: int) -> None:
    """Claim 1: two-sided."""
    one, other = (float(mcnemar_power(count, Discordance(*pair))) for pair in ((first, second), (second, first)))
    assert one == pytest.approx(other, abs=1e-12)


@given(st.floats(0.02, 0.98), st.floats(0.02, 0.98), st.floats(0, 1))
def test_discordance_has_the_rates_and_the_correlation(first: float, second: float, share: float) -> None:
    """Claim 2, over all possible correlations.

    Mutation: leave the root out of p₁₁.
    """
    spread = math.sqrt(first * (1 - first) * second * (1 - second))
    least, most = max(0.0, first + second - 1), min(first, second)
    correlation = (least + share * (most - least) - first * second) / spread
    models = discordance(first, second, correlation)
    both = first - models.only_first
    assert second - first == pytest.approx(models.only_second - models.only_first, abs=1e-12)
    assert (both - first * second) / spread == pytest.approx(correlation, abs=1e-9)
    with pytest.raises(ValueError, match="correlation must lie between"):
        discordance(first, second, (most - first * second) / spread + 0.01)


def test_87_and_93() -> None:
    """Claim 2: independent models differ on 18.2 % of pairs, nested ones on 6 %."""
    independent = discordance(0.87, 0.93, 0.0)
    assert (independent.only_first, independent.only_second) == pytest.approx((0.87 * 0.07, 0.13 * 0.93))
    nested = discordance(0.87, 0.93, (0.87 - 0.87 * 0.93) / math.sqrt(0.87 * 0.13 * 0.93 * 0.07))
    assert (nested.only_first, nested.only_second) == pytest.approx((0.0, 0.06), abs=1e-12)


@pytest.mark.parametrize("rates", [(0.4, 0.9), (0.5, 0.5), (1.0, 0.2)])
def test_unpaired_powers_are_sums_over_all_tables(rates: tuple[float, float]) -> None:
    """Claim 3. Mutation: double the p-value at x = y too, or swap two Wilson limits."""
    for count, level in ((1, 0.5), (6, 0.05), (11, 0.1)):
        fisher = newcombe = 0.0
        z_level = 1 - level
        for x, y in itertools.product(range(count + 1), repeat=2):
            chance = float(stats.binom.pmf(x, count, rates[0]) * stats.binom.pmf(y, count, rates[1]))
            if stats.fisher_exact([[x, count - x], [y, count - y]]).pvalue <= level * (1 + 1e-9):
                fisher += chance
            one, two = wilson_interval(x, count, z_level), wilson_interval(y, count, z_level)
            low = two.rate - one.rate - math.sqrt((two.rate - two.low) ** 2 + (one.high - one.rate) ** 2)
            high = two.rate - one.rate + math.sqrt((two.high - two.rate) ** 2 + (one.rate - one.low) ** 2)
            newcombe += chance * (low > 0 or high < 0)
        assert fisher_power(count, *rates, level) == pytest.approx(fisher, abs=1e-12)
        assert newcombe_power(count, *rates, level) == pytest.approx(newcombe, abs=1e-12)


@pytest.mark.parametrize("chances", [(0.0, 0.06), (0.02, 0.08), (0.1, 0.4)])
def test_pairs_needed_is_the_last_step_below(chances: tuple[float, float]) -> None:
    """Claim 4. Mutation: return the first n that reaches the power."""
    models = Discordance(*chances)
    needed = pairs_needed(models)
    later = mcnemar_power(np.arange(needed, 3 * needed), models)
    assert (later >= 0.8).all()
    assert mcnemar_power(needed - 1, models) < 0.8


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Discordance(-0.1, 0.2), "must be probabilities"),
        (lambda: Discordance(0.6, 0.6), "must be probabilities"),
        (lambda: discordance(1.0, 0.5, 0.0), "first must lie strictly between 0 and 1"),
        (lambda: mcnemar_power(0, Discordance(0.1, 0.2)), "counts must be whole numbers"),
        (lambda: mcnemar_power([2.5], Discordance(0.1, 0.2)), "counts must be whole numbers"),
        (lambda: mcnemar_power(5, Discordance(0.1, 0.2), 1.0), "level must lie strictly"),
        (lambda: fisher_power(5, 0.5, 1.5), "second must lie between 0 and 1"),
        (lambda: pairs_needed(Discordance(0.1, 0.1)), "no number of pairs"),
        (lambda: pairs_needed(Discordance(0.1, 0.2), power=1.0), "power must lie strictly"),
        (lambda: pairs_needed(Discordance(0.4, 0.401)), "must differ by more"),
    ],
)
def test_bad_numbers_are_refused(call: object, message: str) -> None:
    """Claim 4, and every door."""
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
