"""The forecast for other κ from a model's latents.

1. For a linear encoder that whitens the states it is the regret curve of T7, which knows Σ and Σ_w and no latents,
   whatever the axes of the latent.
2. At κ = 1 it is the measured metric's, whatever the features' covariance.
3. Spare dimensions take the high variance: where the others have equal relative noise, no κ changes the metric.
4. Errors and words.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theory.estimate import estimate_metric
from theory.regret import regret_curve
from visual.forecast import best, describe, forecast_regret
from visual.geometry import Frames, geometry_of

KAPPAS = (1.0, 2.0, 4.0, 16.0)


def sample(seed: int, dim: int, spare: int = 0) -> tuple[Frames, np.ndarray, np.ndarray]:
    """States of unequal variances, whitened latents in random axes of a larger space, their residuals, the noise."""
    generator = np.random.default_rng(seed)
    states = generator.normal(size=(400, dim)) * np.geomspace(1, 6, dim) + generator.normal(size=dim)
    noise = generator.normal(size=(300, dim)) * np.geomspace(1, 3, dim)[generator.permutation(dim)] * 0.1
    axes = np.linalg.qr(generator.normal(size=(dim + spare, dim + spare)))[0][:, :dim]
    encoder = axes @ np.linalg.inv(np.linalg.cholesky(np.cov(states.T)))
    return Frames(states, states @ encoder.T, np.repeat(np.arange(40), 10)), noise @ encoder.T, noise


@given(st.integers(0, 10_000), st.integers(2, 5))
def test_a_whitening_encoder_has_the_theorys_curve(seed: int, dim: int) -> None:
    """Claim 1. Mutation: scale by Λ instead of its square root, or take N's diagonal alone."""
    frames, residuals, noise = sample(seed, dim)
    found = forecast_regret(frames, residuals, KAPPAS, draws=50)
    expected = regret_curve(np.cov(frames.states.T), noise.T @ noise / len(noise), KAPPAS)
    np.testing.assert_allclose(
        [[row["mean_regret"], row["condition_number"], row["num_high"]] for row in found],
        expected[["mean_regret", "condition_number", "num_high"]],
        rtol=1e-6,
        atol=1e-9,
    )
    least = expected["mean_regret"].min()
    assert expected.set_index("kappa")["mean_regret"][best(found)] == pytest.approx(least, rel=1e-6, abs=1e-9)
    assert all(row["mean_regret_low"] <= row["mean_regret_high"] for row in found)


def test_one_is_what_is_measured() -> None:
    """Claim 2. Mutation: whiten the features first."""
    frames, residuals, _ = sample(1, 3)
    stretched = Frames(frames.states, frames.latents * [1.0, 2.0, 0.1], frames.episodes)
    measured = estimate_metric(stretched.states, stretched.latents, resamples=50)
    first = forecast_regret(stretched, residuals, draws=50)[0]
    assert first["mean_regret"] == pytest.approx(measured.mean_regret)
    assert first["local_mean_regret"] == pytest.approx(geometry_of(stretched, draws=50)["local_mean_regret"])
    assert first["local_mean_regret"] == pytest.approx(measured.mean_regret)


def test_spare_dimensions_come_first() -> None:
    """Claim 3. Mutation: give the high level to the directions of most noise."""
    frames, _, _ = sample(1, 3, spare=30)
    residuals = 0.1 * (frames.latents - frames.latents.mean(axis=0))
    found = forecast_regret(frames, residuals, KAPPAS, draws=50)
    assert [row["num_high"] for row in found[1:]] == [30, 30, 30]
    np.testing.assert_allclose([row["mean_regret"] for row in found], found[0]["mean_regret"], rtol=1e-9)
    assert best(found) in KAPPAS


def test_errors_and_words() -> None:
    """Claim 4."""
    frames, residuals, _ = sample(2, 2)
    found = forecast_regret(frames, residuals, draws=50)
    assert f"the least is at κ = {best(found):g} (of 10 values up to 16)" in describe(found)
    assert describe(found).count("at κ = ") == 4
    with pytest.raises(ValueError, match="must have the same latent dimension, but they have 2 and 1"):
        forecast_regret(frames, residuals[:, :1])
    with pytest.raises(ValueError, match="collapsed"):
        forecast_regret(Frames(frames.states, np.ones((400, 2)), frames.episodes), residuals)
    with pytest.raises(ValueError, match="kappa"):
        forecast_regret(frames, residuals, [0.5])
    nothing = [{**row, "mean_regret": None} for row in found]
    assert best(nothing) is None
    assert "cannot be said" in describe(nothing)
