"""Metrics that an affine encoder induces (docs/theory.md, T1 and T2).

1. Every encoder whose features have covariance qI induces M = qΣ⁻¹, whatever rotation or bias it has.
2. Every encoder whose features have covariance qΛ induces M = qΣ^{-1/2} L Σ^{-1/2} with L = RᵀΛR: L has the spectrum of
   Λ. Conversely each target L is reached through a *diagonal* feature covariance.
3. `matching_encoder` attains the covariance q RLRᵀ and its metric does not depend on R, also for D > n.
4. The metric turns with the state (rotation covariance) and scales against it; neither changes a condition number.
5. L = I gives the isotropic metric; L ∝ Σ gives M ∝ I.
6. D < n leaves a singular metric whose null space is what the encoder drops.
7. Input that has no answer is refused in one sentence that names the argument.

All up to dimension 64 and condition number 1e8.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from strategies import Array, conditions, dims, random_rotation, random_spd, seeds, spd_matrices, tolerance

from theory.metric import anisotropic_metric, encoder_metric, isotropic_metric, matching_encoder
from theory.spd import check_spd, condition_number, sqrt_spd


def assert_close(actual: Array, expected: Array, relative: float) -> None:
    """Norm-wise relative agreement: what an operation on an ill-conditioned matrix can promise."""
    assert np.linalg.norm(actual - expected) <= relative * np.linalg.norm(expected)


def encoder_with_covariance(rng: np.random.Generator, state_cov: Array, feature_cov: Array) -> Array:
    """A random W with WΣWᵀ = feature_cov: draw any invertible W₀ and repair its features by two Cholesky factors."""
    dim = state_cov.shape[0]
    raw = random_rotation(rng, dim) * np.exp(rng.uniform(-0.5, 0.5, dim)) @ random_rotation(rng, dim)
    # Cholesky of Σ keeps the construction independent of the symmetric square root used by the code under test.
    raw = raw @ np.linalg.inv(np.linalg.cholesky(state_cov))
    raw_cov = raw @ state_cov @ raw.T
    return np.linalg.cholesky(feature_cov) @ np.linalg.solve(np.linalg.cholesky((raw_cov + raw_cov.T) / 2), raw)


@given(seed=seeds(), dim=dims(), condition=conditions(), scale=st.floats(0.01, 100.0))
def test_every_encoder_that_matches_an_isotropic_target_induces_the_inverse_covariance(
    seed: int, dim: int, condition: float, scale: float
) -> None:
    """Claim 1, with Σ⁻¹ checked by what defines it, and latent distances measured through a bias.

    Mutation: return ``scale * symmetrize(whitener)`` (one factor Σ^{-1/2} short).
    """
    rng = np.random.default_rng(seed)
    state_cov = random_spd(rng, dim, condition)
    weight = encoder_with_covariance(rng, state_cov, scale * np.eye(dim))
    metric = isotropic_metric(state_cov, scale)
    assert_close(weight @ state_cov @ weight.T, scale * np.eye(dim), tolerance(condition, dim))
    assert_close(encoder_metric(weight), metric, tolerance(condition, dim))
    assert_close(metric @ state_cov, scale * np.eye(dim), tolerance(condition, dim))
    bias, (first, second) = rng.standard_normal(dim), rng.standard_normal((2, dim))
    latent_gap = (weight @ first + bias) - (weight @ second + bias)
    squared = (first - second) @ metric @ (first - second)
    assert latent_gap @ latent_gap == pytest.approx(squared, rel=tolerance(condition, dim) * condition**0.5 + 1e-12)


@given(seed=seeds(), dim=dims(), condition=conditions(1e6), kappa=conditions(100.0), scale=st.floats(0.01, 100.0))
def test_every_encoder_that_matches_a_diagonal_target_sees_its_rotated_twin(
    seed: int, dim: int, condition: float, kappa: float, scale: float
) -> None:
    """Claim 2, forward: L, read off a random matching encoder, has the spectrum of Λ and gives the encoder's metric.

    Mutation: use ``target`` for ``sqrt_spd(target)`` in ``anisotropic_metric``.
    """
    rng = np.random.default_rng(seed)
    state_cov = random_spd(rng, dim, condition)
    variances = np.exp(rng.uniform(0.0, np.log(kappa), dim))
    variances *= dim / variances.sum()
    weight = encoder_with_covariance(rng, state_cov, scale * np.diag(variances))
    root = sqrt_spd(state_cov)
    target = root @ weight.T @ weight @ root / scale
    allowed = tolerance(condition, dim) * kappa
    assert_allclose(
        np.linalg.eigvalsh((target + target.T) / 2), np.sort(variances), rtol=0, atol=allowed * variances.max()
    )
    assert_close(encoder_metric(weight), anisotropic_metric(state_cov, target, scale), allowed)


@given(seed=seeds(), dim=dims(), condition=conditions(), kappa=conditions(100.0), scale=st.floats(0.01, 100.0))
def test_a_diagonal_target_loses_nothing(seed: int, dim: int, condition: float, kappa: float, scale: float) -> None:
    """Claim 2, backward: for each L some rotation makes the feature covariance diagonal, with the same metric.

    Mutation: multiply by ``rotation.T`` in ``matching_encoder``.
    """
    rng = np.random.default_rng(seed)
    state_cov, target = random_spd(rng, dim, condition), random_spd(rng, dim, kappa)
    variances, vectors = np.linalg.eigh(target)
    weight = matching_encoder(state_cov, target, vectors.T, scale)
    allowed = tolerance(condition, dim) * kappa
    assert_close(weight @ state_cov @ weight.T, scale * np.diag(variances), allowed)
    assert_close(encoder_metric(weight), anisotropic_metric(state_cov, target, scale), allowed)


@given(seed=seeds(), dim=dims(1, 32), spare=st.integers(0, 8), condition=conditions(), scale=st.floats(0.01, 100.0))
def test_the_metric_does_not_depend_on_the_rotation(
    seed: int, dim: int, spare: int, condition: float, scale: float
) -> None:
    """Claim 3: two rotations (D, n), D ≥ n, give two encoders, the covariance q RLRᵀ each, and one metric.

    Mutation: return ``weight`` where ``rotation @ weight`` is due.
    """
    rng = np.random.default_rng(seed)
    state_cov, target = random_spd(rng, dim, condition), random_spd(rng, dim, 10.0)
    metric = anisotropic_metric(state_cov, target, scale)
    for latent_dim in (dim, dim + spare):
        rotation = random_rotation(rng, latent_dim)[:, :dim]
        weight = matching_encoder(state_cov, target, rotation, scale)
        assert weight.shape == (latent_dim, dim)
        assert_close(
            weight @ state_cov @ weight.T, scale * rotation @ target @ rotation.T, tolerance(condition, dim) * 10
        )
        assert_close(encoder_metric(weight), metric, tolerance(condition, dim) * 10)


@given(seed=seeds(), dim=dims(), condition=conditions(1e7), factor=st.floats(0.01, 100.0))
def test_the_metric_turns_with_the_state_and_scales_against_it(
    seed: int, dim: int, condition: float, factor: float
) -> None:
    """Claim 4: x → √f Ox takes Σ to f OΣOᵀ and M to OMOᵀ/f, if the whitened target turns with O.

    Mutation: replace the symmetric ``inv_sqrt_spd`` in ``anisotropic_metric`` by the inverse Cholesky factor.
    """
    rng = np.random.default_rng(seed)
    state_cov, target, turn = random_spd(rng, dim, condition), random_spd(rng, dim, 10.0), random_rotation(rng, dim)
    metric = anisotropic_metric(state_cov, target)
    turned_cov, turned_target = factor * turn @ state_cov @ turn.T, turn @ target @ turn.T
    turned = anisotropic_metric(turned_cov, turned_target)
    allowed = tolerance(condition, dim) * 10
    assert_close(turned, turn @ metric @ turn.T / factor, allowed)
    assert_close(isotropic_metric(turned_cov), turn @ isotropic_metric(state_cov) @ turn.T / factor, allowed)
    assert condition_number(turned) == pytest.approx(condition_number(metric), rel=allowed)


@given(state_cov=spd_matrices(), scale=st.floats(0.01, 100.0))
def test_two_targets_have_known_metrics(state_cov: Array, scale: float) -> None:
    """Claim 5: L = I is the isotropic case, and a target ∝ Σ makes latent distance state distance.

    Mutation: drop the factor ``check_scale(scale)`` from ``anisotropic_metric``.
    """
    dim = state_cov.shape[0]
    allowed = tolerance(np.linalg.cond(state_cov), dim)
    assert_close(anisotropic_metric(state_cov, np.eye(dim), scale), isotropic_metric(state_cov, scale), allowed)
    target = state_cov * (dim / np.trace(state_cov))
    metric = anisotropic_metric(state_cov, target, scale)
    assert_close(metric, scale * dim / np.trace(state_cov) * np.eye(dim), allowed)


@given(state_cov=spd_matrices(1, 64, 1e8))
def test_metrics_are_spd_to_working_precision(state_cov: Array) -> None:
    """What is returned passes the door of the functions that take a metric.

    Mutation: build M as ``root @ target @ root`` without ``symmetrize``, or return ``-metric``.
    """
    metric = isotropic_metric(state_cov)
    assert_array_equal(metric, metric.T)
    assert_array_equal(check_spd(metric, "metric"), metric)


@given(seed=seeds(), dim=dims(2, 32))
def test_a_smaller_latent_has_a_singular_metric(seed: int, dim: int) -> None:
    """Claim 6: rank M = D < n, and M vanishes exactly on the null space of W.

    Mutation: return ``weight @ weight.T``.
    """
    rng = np.random.default_rng(seed)
    latent_dim = int(rng.integers(1, dim))
    weight = rng.standard_normal((latent_dim, dim))
    metric = encoder_metric(weight)
    assert metric.shape == (dim, dim)
    assert np.linalg.matrix_rank(metric) == latent_dim
    dropped = np.linalg.svd(weight)[2][latent_dim:]
    assert_allclose(metric @ dropped.T, 0.0, atol=1e-12 * np.linalg.norm(metric))
    assert_allclose(encoder_metric(weight), sum(np.outer(row, row) for row in weight), atol=1e-12 * dim)


SINGULAR = [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: isotropic_metric(SINGULAR), r"state_cov .*singular along the direction \(0\.707, -0\.707\)"),
        (lambda: isotropic_metric(np.diag([1.0, -1.0])), "state_cov must be positive definite"),
        (lambda: isotropic_metric([[1.0, 0.5], [0.0, 1.0]]), "state_cov must be symmetric"),
        (lambda: isotropic_metric([[np.nan]]), "state_cov must be finite"),
        (lambda: isotropic_metric([[1j]]), "state_cov must be real"),
        (lambda: isotropic_metric(np.ones((2, 3))), "state_cov must be square"),
        (lambda: isotropic_metric(np.ones((0, 0))), "state_cov must not be empty"),
        (lambda: isotropic_metric(1e-310 * np.eye(2)), "state_cov or scale has a size .* beyond the range of float64"),
        (lambda: anisotropic_metric(1e-200 * np.eye(2), 1e200 * np.eye(2)), "state_cov, target or scale has a size"),
        (lambda: encoder_metric(1e200 * np.eye(2)), "weight has a size"),
        (lambda: matching_encoder(np.eye(2), rotation=1e200 * np.eye(2)), "rotation must have orthonormal columns"),
        (lambda: isotropic_metric(np.eye(2), scale=0.0), "scale must be positive"),
        (lambda: isotropic_metric(np.eye(2), scale=np.inf), "scale must be finite"),
        (lambda: anisotropic_metric(np.eye(2), np.eye(3)), r"target must have shape \(2, 2\)"),
        (lambda: anisotropic_metric(np.eye(2), SINGULAR), "target must be positive definite"),
        (lambda: anisotropic_metric(np.eye(2), np.eye(2), scale=-1.0), "scale must be positive"),
        (lambda: encoder_metric(np.ones(3)), "weight must have 2 dimensions"),
        (lambda: encoder_metric(np.ones((0, 3))), "weight must not be empty"),
        (lambda: encoder_metric([[np.inf]]), "weight must be finite"),
        (lambda: matching_encoder(np.eye(2), rotation=np.eye(3)), r"rotation must have shape \(any, 2\)"),
        (lambda: matching_encoder(np.eye(2), rotation=[[1.0, 0.0]]), "rotation must have at least as many rows"),
        (lambda: matching_encoder(np.eye(2), rotation=2 * np.eye(2)), "rotation must have orthonormal columns"),
        (lambda: matching_encoder(np.eye(2), target=np.diag([1.0, 0.0])), "target must be positive definite"),
        (lambda: matching_encoder(SINGULAR), "state_cov must be positive definite"),
        (lambda: matching_encoder(np.eye(2), scale=0.0), "scale must be positive"),
    ],
)
def test_bad_input_is_one_sentence(call, message: str) -> None:
    """Claim 7."""
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")
