"""Which coordinates features fill, on features whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theory.target import optimal_target
from visual.occupancy import describe, occupancy

DIM = 8


def linear_features(
    encoder: np.ndarray, noise: np.ndarray, seed: int = 0, count: int = 6000
) -> tuple[np.ndarray, np.ndarray]:
    """z = Wx and r = Wε for x ~ N(0, I) and ε with variances ``noise``, (count, D) each."""
    generator = np.random.default_rng(seed)
    states = generator.normal(size=(count, encoder.shape[1]))
    errors = generator.normal(size=(count, encoder.shape[1])) * np.sqrt(noise)
    return states @ encoder.T, errors @ encoder.T


def test_spare_coordinates_are_found_empty_and_take_the_high_variance() -> None:
    """T12 planted: three states on the last three of eight coordinates, the target large on the other five."""
    kappa, noise = 2.0, np.array([0.03, 0.04, 0.05])
    target = optimal_target(np.diag(noise), kappa, latent_dim=DIM).variances
    encoder = np.zeros((DIM, 3))
    encoder[5:] = np.diag(np.sqrt(target[5:] * DIM / 3))
    found = occupancy(*linear_features(encoder, noise), kappa, target)
    assert (found.rank, found.spare, found.num_high, found.predicted_high) == (3, 5, 5, 5)
    assert found.predicted_high_filled == 0
    assert found.filled_high == pytest.approx(0.0, abs=1e-9)
    assert found.filled_low == pytest.approx(1.0, abs=1e-9)
    assert found.anisotropy_asked == pytest.approx(kappa)
    assert found.anisotropy_kept == pytest.approx(0.0, abs=1e-9)
    assert "fill 3 of 8 dimensions" in describe(found.summary(), kappa)


def test_features_that_fill_the_space_keep_the_anisotropy() -> None:
    """No spare dimension: T4 decides, and the features follow their target."""
    kappa, noise = 2.0, np.linspace(0.01, 0.08, DIM)
    best = optimal_target(np.diag(noise), kappa)
    target = np.diag(best.matrix)
    found = occupancy(*linear_features(np.diag(np.sqrt(target)), noise), kappa, target)
    assert (found.rank, found.spare) == (DIM, 0)
    assert found.num_high == found.predicted_high == found.predicted_high_filled == best.num_high
    assert found.filled_high == pytest.approx(1.0)
    assert found.filled_low == pytest.approx(1.0)
    assert found.anisotropy_kept == pytest.approx(kappa, rel=0.05)


def test_a_direction_of_little_noise_is_high_although_it_is_filled() -> None:
    """T12's rule beyond the spare dimensions: a filled direction is high if its noise is below the threshold."""
    noise = np.array([1e-5, 0.05, 0.05])
    encoder = np.linalg.qr(np.random.default_rng(2).normal(size=(DIM, 3)))[0]
    found = occupancy(*linear_features(encoder, noise), 2.0)
    assert (found.spare, found.predicted_high, found.predicted_high_filled) == (5, 6, 1)
    assert found.num_high is None
    assert found.filled_high is None


@settings(max_examples=25)
@given(st.integers(1, DIM), st.floats(1.0, 10.0), st.integers(0, 10**6))
def test_leverages_sum_to_the_rank_and_units_do_not_matter(rank: int, kappa: float, seed: int) -> None:
    """Σ P_ii = rank; features and residuals in other units, or turned, have the same rank and prediction.

    Turned: without a target, u = z and nothing prefers the axes.
    """
    generator = np.random.default_rng(seed)
    encoder = np.linalg.qr(generator.normal(size=(DIM, rank)))[0]
    features, residuals = linear_features(encoder, generator.uniform(0.01, 0.1, rank), seed, 400)
    target = np.where(np.arange(DIM) < DIM // 2, 1.2, 0.8)
    found = occupancy(features * np.sqrt(target), residuals * np.sqrt(target), kappa, target)
    assert found.rank == rank
    assert found.filled_high is not None
    assert found.filled_low is not None
    assert found.filled.sum() == pytest.approx(rank)
    assert DIM / 2 * (found.filled_high + found.filled_low) == pytest.approx(rank)
    plain = occupancy(features, residuals, kappa)
    turn = np.linalg.qr(generator.normal(size=(DIM, DIM)))[0]
    for other in (occupancy(7 * features, 7 * residuals, kappa), occupancy(features @ turn, residuals @ turn, kappa)):
        assert (other.rank, other.predicted_high) == (plain.rank, plain.predicted_high)
    assert found.predicted_high == plain.predicted_high


def test_an_identity_target_has_one_kind_of_coordinate() -> None:
    features, residuals = linear_features(np.eye(DIM), np.full(DIM, 0.1), count=100)
    found = occupancy(features, residuals, 2.0, np.ones(DIM))
    assert found.num_high == 0
    assert found.anisotropy_kept is None
    assert describe(found.summary(), 2.0).endswith("filled.")


def test_bad_input_gets_one_sentence() -> None:
    features, residuals = linear_features(np.eye(DIM), np.full(DIM, 0.1), count=100)
    with pytest.raises(ValueError, match="more rows than columns"):
        occupancy(features[:DIM], residuals, 2.0)
    with pytest.raises(ValueError, match="the encoder has collapsed"):
        occupancy(np.ones((100, DIM)), residuals, 2.0)
    with pytest.raises(ValueError, match="positive variances"):
        occupancy(features, residuals, 2.0, np.zeros(DIM))
    with pytest.raises(ValueError, match="kappa"):
        occupancy(features, residuals, 0.5)
