"""Mean regret over random k-dimensional subspaces: exact for k = 1, 2, n − 2, n − 1, sampled with an error otherwise.

1. k = 1 is the mean over lines.
2. (n − k)·mean_k(M) = k·mean_{n−k}(M⁻¹): the quadrature for planes equals that for lines at n = 3, and itself at n = 4.
3. Every route agrees with Monte Carlo over planned cases, in x coordinates with a task metric.
4. The sampled route agrees with the quadrature where both exist, and its standard error is the spread that is seen.
5. M ∝ Q gives zero; the scale of M and the coordinates do not matter; the mean never exceeds the worst case.
6. Wrong input is refused in one sentence.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import conditions, random_rotation, random_spd, seeds, spd_pairs

from theory.regret import (
    affine_regrets,
    estimate_subspace_regret,
    mean_line_regret,
    mean_subspace_regret,
    worst_regret,
)
from theory.regret.subspaces import _plane_total, _sampled_total

Array = NDArray[np.float64]


def spectrum_of(rng: np.random.Generator, dim: int, condition: float) -> Array:
    """Eigenvalues of geometric mean 1 with this condition number."""
    spectrum = np.exp(rng.uniform(0, np.log(condition), dim))
    spectrum[:2] = 1.0, condition
    return spectrum / np.exp(np.log(spectrum).mean())


@given(spd_pairs(2, 32, 1e4))
def test_lines_are_the_first_case(pair: tuple[Array, Array]) -> None:
    """Claim 1, exactly.

    Mutation: divide T_k by n − 1 whatever k is (seen by claim 3), or by k here.
    """
    assert mean_subspace_regret(pair[0], 1, pair[1]) == pytest.approx(mean_line_regret(*pair), rel=1e-14, abs=0)


@settings(max_examples=25)
@given(seeds(), conditions(1e6))
def test_planes_in_three_dimensions_are_lines_of_the_inverse(seed: int, condition: float) -> None:
    """Claim 2: the double integral against the single one, to 1e-10.

    Mutation: drop the boundary term ``diagonal``, halve ``cross``, or PLANE_STEP = 0.8.
    """
    spectrum = spectrum_of(np.random.default_rng(seed), 3, condition)
    lines = 2 * mean_line_regret(np.diag(1 / spectrum))
    # Differences of eigenvalues are known to ε relative to the eigenvalues.
    rel = 1e-10 + 1e-14 / max(condition - 1, 1e-14)
    assert _plane_total(spectrum) == pytest.approx(lines, rel=rel, abs=1e-25)


@settings(max_examples=25)
@given(seeds(), conditions(1e6))
def test_planes_in_four_dimensions_are_self_dual(seed: int, condition: float) -> None:
    """Claim 2: T₂(M) = T₂(M⁻¹) at n = 4.

    Mutation: use the powers θ₁^{1/2}θ₂^{3/2} in the first term (exchange the variables).
    """
    spectrum = spectrum_of(np.random.default_rng(seed), 4, condition)
    rel = 1e-10 + 1e-14 / max(condition - 1, 1e-14)
    assert _plane_total(spectrum) == pytest.approx(_plane_total(1 / spectrum), rel=rel, abs=1e-25)


@pytest.mark.parametrize(("dim", "k"), [(3, 2), (4, 2), (5, 2), (5, 3), (5, 4), (7, 3), (8, 5)])
def test_mean_agrees_with_monte_carlo(dim: int, k: int) -> None:
    """Claim 3: 40,000 random subspaces and offsets, each planned; five standard errors.

    Mutation: leave out the duality's exchange of M and M⁻¹; divide by k instead of n − k.
    """
    rng = np.random.default_rng(10 * dim + k)
    metric, task = random_spd(rng, dim, 8.0), random_spd(rng, dim, 10.0)
    inverse_root = np.linalg.inv(np.linalg.cholesky(task).T)
    span = np.linalg.qr(rng.standard_normal((40_000, dim, k)))[0]
    offset = rng.standard_normal((40_000, dim))
    offset -= np.einsum("mnk,mjk,mj->mn", span, span, offset)
    batch = affine_regrets(offset @ inverse_root.T, inverse_root @ span, np.zeros_like(offset), metric, task)
    error = batch.normalized.std(ddof=1) / math.sqrt(len(offset))
    estimate = estimate_subspace_regret(metric, k, task)
    assert batch.num_reachable == 0
    assert abs(batch.mean - estimate.mean_regret) < 5 * math.hypot(error, estimate.standard_error)
    exact = min(k, dim - k) <= 2
    assert (estimate.standard_error == 0) == exact
    assert (estimate.num_samples == 0) == exact


@pytest.mark.parametrize(("dim", "k", "condition"), [(5, 2, 10.0), (4, 2, 1e4), (6, 4, 1e3)])
def test_standard_error_is_the_spread_seen(dim: int, k: int, condition: float) -> None:
    """Claim 4: 30 sampled means against the quadrature: their z-scores have a root mean square near 1.

    Mutation: report the variance's root without dividing by the strata, or weight by one stratum's density.
    """
    rng = np.random.default_rng(dim)
    spectrum = spectrum_of(rng, dim, condition)
    exact = (dim - k) * mean_subspace_regret(np.diag(spectrum), k)
    sampled = [_sampled_total(spectrum, k, 0.02, np.random.default_rng(seed)) for seed in range(30)]
    scores = np.array([(total - exact) / error for total, error, _ in sampled])
    assert all(error <= 0.02 * total for total, error, _ in sampled)
    # χ²/30 of 30 normal scores lies in this range with probability above 0.9999.
    assert 0.25 < np.mean(scores**2) < 2.4


def test_tolerance_and_seed_are_kept() -> None:
    """The relative standard error is what was asked for; equal seeds give equal numbers, and a generator may be passed.

    Mutation: ignore ``tolerance`` or ``rng``.
    """
    metric = np.diag(np.geomspace(1, 50, 7))
    loose, tight = (estimate_subspace_regret(metric, 3, tolerance=level, rng=1) for level in (0.02, 0.002))
    assert loose.standard_error <= 0.02 * loose.mean_regret
    assert 0 < tight.standard_error <= 0.002 * tight.mean_regret
    assert tight.num_samples > loose.num_samples > 0
    assert mean_subspace_regret(metric, 3, rng=1) == mean_subspace_regret(metric, 3, rng=np.random.default_rng(1))
    assert mean_subspace_regret(metric, 3, rng=1) != mean_subspace_regret(metric, 3, rng=2)


@given(seeds(), st.integers(3, 9), st.data())
def test_invariance_zero_and_bound(seed: int, dim: int, data: st.DataObject) -> None:
    """Claim 5, for every k.

    Mutation: sample in x instead of Q^{1/2}x coordinates; use M without its normalisation in the weights.
    """
    rng = np.random.default_rng(seed)
    k = data.draw(st.integers(1, dim - 1))
    metric, task = random_spd(rng, dim, 30.0), random_spd(rng, dim, 5.0)
    mean = mean_subspace_regret(metric, k, task, tolerance=0.05)
    assert 0 < mean < worst_regret(metric, task)
    change = random_rotation(rng, dim) @ random_spd(rng, dim, 3.0)
    moved = mean_subspace_regret(100 * change.T @ metric @ change, k, change.T @ task @ change, tolerance=0.05)
    assert moved == pytest.approx(mean, rel=1e-6)
    assert mean_subspace_regret(7 * task, k, task, tolerance=0.05) < 1e-20


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_subspace_regret(np.eye(3), 0), "k must be at least 1"),
        (lambda: mean_subspace_regret(np.eye(3), 3), "k must be at most 2"),
        (lambda: mean_subspace_regret(np.eye(3), 1.5), "k must be a whole number"),
        (lambda: mean_subspace_regret([[1.0]], 1), "metric must be at least 2 × 2"),
        (lambda: mean_subspace_regret(np.eye(3), 1, np.eye(2)), "task_metric must have shape"),
        (lambda: mean_subspace_regret(np.eye(3), 1, tolerance=0.0), "tolerance must be positive"),
        (lambda: mean_subspace_regret(np.eye(6), 3, rng=-1), "rng must be at least 0"),
        (lambda: mean_subspace_regret(np.eye(6), 3, rng=None), "rng must be a whole number"),
    ],
)
def test_refuses(call: object, message: str) -> None:
    """Claim 6.

    Mutation: drop any check.
    """
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call()
