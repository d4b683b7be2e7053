"""The expected sketched statistic against samples, slices and quadrature (docs/theory.md, T8).

Claims:

1. The average over slices, E e^{−uᵀAu}, is exact: in two dimensions against a dense sum over angles, where eigenvalues
   come in pairs against a divided difference, in any dimension against quasi-Monte Carlo within its own error; its
   derivatives and its two identities hold to rounding.
2. The expectation over samples is the mean of the sampled statistic: written out in NumPy, and as stable-worldmodel's
   ``SIGReg`` computes it; for independent samples and for correlated pairs.
3. Twins (pairs with correlation 1) are N/2 samples; correlation 0 is independence; the population is the limit.
4. q_N I minimises the statistic over all covariances; q_N < 1 rises to 1, and one sample collapses. Over-complete
   latents settle at c ≈ D/n.
5. The whole-line closed form is the integral, and the knots approximate it as well as stated.
6. Only the spectrum matters; bad input is refused.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtri
from scipy.stats import beta, qmc
from stable_worldmodel.wm.loss import SIGReg
from strategies import Array, conditions, dims, random_rotation, random_spd, seeds

from theory._slices import SlicedStatistic, circle_exponential, sphere_exponential
from theory.sketch import expected_statistic, isotropic_scale, whole_line_statistic

T = 3 * np.arange(17) / 16
WEIGHTS = np.where((np.arange(17) == 0) | (np.arange(17) == 16), 3 / 16, 6 / 16) * np.exp(-(T**2) / 2)


def sampled_statistic(samples: Array, slices: Array) -> Array:
    """N Σ_k w_k |φ̂(t_k) − ψ(t_k)|² averaged over slices: samples (m, N, D), slices (m, D, S) to (m,)."""
    phases = (samples @ slices)[..., None] * T
    gap = np.exp(1j * phases).mean(axis=1) - np.exp(-(T**2) / 2)
    return samples.shape[1] * (np.abs(gap) ** 2 @ WEIGHTS).mean(axis=1)


def unit_columns(rng: np.random.Generator, *shape: int) -> Array:
    slices = rng.standard_normal(shape)
    return slices / np.linalg.norm(slices, axis=-2, keepdims=True)


def agree(values: Array, expected: float, errors: float = 4.5) -> None:
    """Assert that a Monte Carlo mean lies within so many of its own standard errors of the expected value."""
    standard_error = values.std(ddof=1) / math.sqrt(values.size)
    assert abs(values.mean() - expected) < errors * standard_error
    assert standard_error < 0.02 * expected, "too few samples to tell"


# --- 1. slices -------------------------------------------------------------------------------------------------------


@given(seed=seeds(), size=st.floats(-3, 3))
def test_circle_average_is_the_mean_over_angles(seed: int, size: float) -> None:
    """E e^{−α₁u₁² − α₂u₂²} is the mean over the circle, and so are its derivatives.

    Mutation: swap ``i0e`` and ``i1e``.
    """
    exponents = np.random.default_rng(seed).uniform(0, 1, (1, 2)) * 10**size
    angles = 2 * np.pi * np.arange(4096) / 4096
    squares = np.stack([np.cos(angles), np.sin(angles)], axis=1) ** 2
    integrand = np.exp(-squares @ exponents[0])
    value, gradient = circle_exponential(exponents)
    np.testing.assert_allclose(value[0], integrand.mean(), rtol=1e-12)
    np.testing.assert_allclose(gradient[0], -(squares * integrand[:, None]).mean(axis=0), rtol=1e-10, atol=1e-15)
    by_contour = sphere_exponential(exponents)
    np.testing.assert_allclose(by_contour[0], value, rtol=1e-12)
    np.testing.assert_allclose(by_contour[1], gradient, rtol=1e-9, atol=1e-15)


@given(seed=seeds(), pairs=st.integers(1, 6))
def test_sphere_average_of_paired_exponents_is_a_divided_difference(seed: int, pairs: int) -> None:
    """With every exponent twice, (u_{2j−1}² + u_{2j}²)_j is uniform on the simplex: (m−1)! times a divided difference.

    Mutation: drop the 0.5 in the logarithm's exponent.
    """
    rng = np.random.default_rng(seed)
    exponents = 3.0 * np.arange(pairs) + rng.uniform(0, 2, pairs)
    gaps = exponents[None, :] - exponents[:, None] + np.eye(pairs)
    divided = math.factorial(pairs - 1) * (np.exp(-exponents) / gaps.prod(axis=1)).sum()
    value, _ = sphere_exponential(np.repeat(exponents, 2)[None])
    np.testing.assert_allclose(value, divided, rtol=1e-9)


@given(seed=seeds(), dim=dims(1, 64), condition=conditions(1e8), size=st.floats(-3, 2), shift=st.floats(-2, 2))
def test_sphere_average_identities(seed: int, dim: int, condition: float, size: float, shift: float) -> None:
    """−Σ_j ∂F/∂α_j = F because ‖u‖ = 1; adding s to every exponent multiplies F by e^{−s}; Jensen bounds F.

    Mutation: a gradient factor −1/factors instead of −0.5/factors.
    """
    rng = np.random.default_rng(seed)
    exponents = 10**size * np.exp(-rng.uniform(0, math.log(condition) + 1e-9, (1, dim)))
    value, gradient = sphere_exponential(exponents)
    np.testing.assert_allclose(-gradient.sum(axis=1), value, rtol=1e-11)
    assert (gradient < 0).all()
    np.testing.assert_allclose(sphere_exponential(exponents + shift)[0], value * math.exp(-shift), rtol=1e-11)
    # Jensen's inequality from below, with E u_j² = 1/D; the least exponent from above.
    assert math.exp(-exponents.mean()) * (1 - 1e-11) <= value[0] <= math.exp(-exponents.min()) * (1 + 1e-11)


@given(seed=seeds(), dim=dims(3, 64), size=st.floats(-1, 1.5))
def test_sphere_gradient_is_the_derivative(seed: int, dim: int, size: float) -> None:
    """∂F/∂α along a random direction is the central difference of F.

    Mutation: ``-0.5 / factors`` → ``-0.5 / (factors + 0.01)`` in the gradient.
    """
    rng = np.random.default_rng(seed)
    exponents = 10**size * rng.uniform(0.1, 1, (1, dim))
    direction, step = rng.standard_normal((1, dim)), 1e-5
    difference = (
        sphere_exponential(exponents + step * direction)[0] - sphere_exponential(exponents - step * direction)[0]
    )
    value, gradient = sphere_exponential(exponents)
    np.testing.assert_allclose(difference / (2 * step) / value, (gradient * direction).sum(axis=1) / value, atol=1e-8)


@given(seed=seeds(), dim=dims(1, 24), batch_size=st.integers(2, 1000))
def test_expansion_of_the_statistic(seed: int, dim: int, batch_size: int) -> None:
    """First and second derivatives in the spectrum, as Newton's method uses them, against central differences.

    Mutation: leave out the factor 3 on the diagonal.
    """
    rng = np.random.default_rng(seed)
    statistic, spectrum = SlicedStatistic(batch_size), rng.uniform(0.05, 2, dim)
    direction, step = rng.standard_normal(dim), 1e-5
    gradient, matrix = statistic.expand(spectrum)
    np.testing.assert_allclose(gradient, statistic.at_spectrum(spectrum)[1], rtol=1e-9, atol=1e-11 * batch_size)
    ahead, behind = (statistic.at_spectrum(spectrum + sign * step * direction)[1] for sign in (1, -1))
    np.testing.assert_allclose((ahead - behind) / (2 * step), matrix @ direction, atol=1e-7 * batch_size)


@pytest.mark.parametrize("dim", [3, 5, 24, 192])
@pytest.mark.parametrize("batch_size", [64, 512])
def test_slice_average_lies_within_the_error_of_quasi_monte_carlo(dim: int, batch_size: int) -> None:
    """Scrambled Sobol points, sixteen independent scrambles: their spread is the error of their mean.

    Mutation: change a quadrature weight of the contour's first node from 0.5 to 1.
    """
    rng = np.random.default_rng(dim)
    spectrum = np.exp(rng.uniform(-3, 1, dim))
    statistic = SlicedStatistic(batch_size)
    means = []
    for scramble in range(16):
        normals = ndtri(qmc.Sobol(dim, seed=1000 * dim + scramble).random(1024).clip(1e-12, 1 - 1e-12))
        squares = normals**2 / (normals**2).sum(axis=1, keepdims=True)
        means.append(statistic.at_variance(squares @ spectrum).mean())
    agree(np.array(means), expected_statistic(np.diag(spectrum), batch_size))


# --- 2. samples ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dim", "batch_size"), [(1, 3), (2, 2), (2, 32), (3, 8), (6, 64)])
def test_expectation_is_the_mean_of_the_sampled_statistic(dim: int, batch_size: int) -> None:
    """Literal definition: samples drawn, slices drawn, characteristic functions evaluated.

    Mutation: ``count - noise`` → ``count`` in the coefficients (the sampling noise of φ̂ forgotten).
    """
    rng = np.random.default_rng(10 * dim + batch_size)
    feature_cov = random_spd(rng, dim, 5.0, 0.4)
    samples = rng.standard_normal((4000, batch_size, dim)) @ np.linalg.cholesky(feature_cov).T
    values = sampled_statistic(samples, unit_columns(rng, 4000, dim, 2))
    agree(values, expected_statistic(feature_cov, batch_size))


@pytest.mark.parametrize("correlation", [0.6, -0.5, 1.0])
def test_pooled_pairs_have_the_extra_covariance(correlation: float) -> None:
    """Current and next features pooled: N/2 pairs with latent correlation r.

    Mutation: ``1 - self.pair_correlation`` → ``1 + self.pair_correlation``.
    """
    rng = np.random.default_rng(7)
    feature_cov = np.array([[0.9, 0.3], [0.3, 0.5]])
    root = np.linalg.cholesky(feature_cov).T
    first, fresh = rng.standard_normal((2, 12000, 6, 2))
    second = correlation * first + math.sqrt(1 - correlation**2) * fresh
    samples = np.concatenate([first, second], axis=1) @ root
    values = sampled_statistic(samples, unit_columns(rng, 12000, 2, 2))
    agree(values, expected_statistic(feature_cov, 12, pair_correlation=correlation))
    assert abs(values.mean() - expected_statistic(feature_cov, 12)) > 5 * values.std() / math.sqrt(values.size)


@pytest.mark.parametrize(("dim", "batch_size"), [(2, 16), (5, 128)])
def test_expectation_is_what_stable_worldmodel_computes(dim: int, batch_size: int) -> None:
    """The regulariser that LeWorldModel trains with, in float64, on (T, B, D) input: N is B, T is averaged.

    Mutation: weights (dt, 2dt, ...) halved.
    """
    feature_cov = random_spd(np.random.default_rng(dim), dim, 4.0, 0.5)
    root = torch.from_numpy(np.linalg.cholesky(feature_cov).T.copy())
    precision = torch.get_default_dtype()
    values = []
    with torch.random.fork_rng():
        torch.manual_seed(dim)
        torch.set_default_dtype(torch.float64)
        try:
            module = SIGReg(knots=17, num_proj=16).double()
            for _ in range(200):
                values.append(float(module(torch.randn(8, batch_size, dim) @ root)))
        finally:
            torch.set_default_dtype(precision)
    agree(np.array(values), expected_statistic(feature_cov, batch_size))


# --- 3. pairs and the population -------------------------------------------------------------------------------------


@given(seed=seeds(), dim=dims(1, 16), half=st.integers(1, 2000), condition=conditions(1e4))
def test_twins_are_half_as_many_samples(seed: int, dim: int, half: int, condition: float) -> None:
    """R_N of N/2 pairs with r = 1 is 2 R_{N/2}; with r = 0 it is R_N; R_N/N tends to the population's statistic.

    Mutation: ``count - noise - paired`` → ``count - noise``.
    """
    feature_cov = random_spd(np.random.default_rng(seed), dim, condition, 2.0 / condition)
    twins = expected_statistic(feature_cov, 2 * half, pair_correlation=1.0)
    np.testing.assert_allclose(twins, 2 * expected_statistic(feature_cov, half), rtol=1e-9, atol=1e-9)
    independent = expected_statistic(feature_cov, 2 * half, pair_correlation=0.0)
    np.testing.assert_allclose(independent, expected_statistic(feature_cov, 2 * half), rtol=1e-9, atol=1e-9)
    population = expected_statistic(feature_cov, None)
    noise = expected_statistic(feature_cov, half) - half * population
    assert -1e-9 <= noise <= WEIGHTS.sum()
    np.testing.assert_allclose(expected_statistic(feature_cov, 10**8) / 10**8, population, atol=1e-7)


# --- 4. where the statistic settles ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch_size", "scale"),
    [(2, 0.1855), (8, 0.7645), (128, 0.984435), (256, 0.992202), (512, 0.996097), (4096, 0.999512)],
)
def test_isotropic_scale_minimises_the_slice_statistic(batch_size: int, scale: float) -> None:
    """A dense grid over s², refined by a parabola, finds the same minimum; the figures are those of docs/theory.md."""
    grid = np.linspace(1e-3, 1.5, 200_001)
    phi = np.exp(-np.multiply.outer(grid, T**2) / 2)
    values = batch_size * (phi - np.exp(-(T**2) / 2)) ** 2 @ WEIGHTS + (1 - phi**2) @ WEIGHTS
    best = int(values.argmin())
    left, middle, right = values[best - 10], values[best], values[best + 10]
    vertex = grid[best] + 5 * (grid[1] - grid[0]) * (left - right) / (left - 2 * middle + right)
    assert isotropic_scale(batch_size) == pytest.approx(vertex, abs=1e-8)
    assert isotropic_scale(batch_size) == pytest.approx(scale, abs=5e-5 if batch_size < 100 else 5e-7)


@given(seed=seeds(), dim=dims(1, 64), batch_size=st.integers(2, 5000), condition=conditions(1e8), size=st.floats(-2, 1))
def test_no_covariance_beats_the_isotropic_one(
    seed: int, dim: int, batch_size: int, condition: float, size: float
) -> None:
    """E R_N(C) ≥ E R_N(q_N I) for every C, and q_N I is stationary: shrinking or stretching it loses.

    Mutation: return the grid's minimiser in ``isotropic_statistic`` (off by up to 5e-4).
    """
    scale = isotropic_scale(batch_size)
    assert 0 < scale < 1
    least = expected_statistic(scale * np.eye(dim), batch_size)
    feature_cov = random_spd(np.random.default_rng(seed), dim, condition, scale * 10**size / math.sqrt(condition))
    assert expected_statistic(feature_cov, batch_size) >= least * (1 - 1e-9)
    gradient = SlicedStatistic(batch_size).at_spectrum(np.full(dim, scale))[1]
    assert np.abs(gradient).max() < 1e-10 * batch_size
    assert expected_statistic(1.01 * scale * np.eye(dim), batch_size) > least
    assert expected_statistic(0.99 * scale * np.eye(dim), batch_size) > least


def test_one_sample_collapses_and_the_population_does_not_shrink() -> None:
    """N = 1: the statistic rises from zero variance on. N → ∞: q = 1, and q_N rises to it."""
    values = SlicedStatistic(1).at_variance(np.linspace(0, 5, 501))
    assert (np.diff(values) > 0).all()
    assert isotropic_scale(1) == 0.0
    assert isotropic_scale(1, dim=2, latent_dim=4) == 0.0
    assert isotropic_scale(2, pair_correlation=1.0) == 0.0, "one pair of twins is one sample"
    # Knots so far apart that the values at neighbouring variances are equal to rounding.
    assert isotropic_scale(None, knots=17, t_max=100.0) == pytest.approx(1.0, abs=1e-12)
    assert isotropic_scale(None, knots=2, t_max=20.0) == pytest.approx(1.0, abs=1e-12)
    assert isotropic_scale(None) == pytest.approx(1.0, abs=1e-12)
    scales = [isotropic_scale(2**power) for power in range(1, 13)]
    assert (np.diff(scales) > 0).all()


@pytest.mark.parametrize(("dim", "latent_dim"), [(2, 3), (2, 4), (3, 8), (2, 32)])
def test_overcomplete_scale(dim: int, latent_dim: int) -> None:
    """‖Vᵀu‖² is Beta(n/2, (D−n)/2): its quantiles give the same statistic, least at the same c, close to D/n."""
    scale = isotropic_scale(512, dim=dim, latent_dim=latent_dim)
    shares = beta.ppf((np.arange(20_000) + 0.5) / 20_000, dim / 2, (latent_dim - dim) / 2)
    statistic = SlicedStatistic(512)

    def brute_force(candidate: float) -> float:
        return float(statistic.at_variance(candidate * shares).mean())

    filled = np.diag([scale] * dim + [0.0] * (latent_dim - dim))
    assert brute_force(scale) == pytest.approx(expected_statistic(filled, 512), rel=1e-4)
    assert brute_force(scale) < min(brute_force(0.995 * scale), brute_force(1.005 * scale))
    assert 0.45 * latent_dim / dim < scale < 1.2 * latent_dim / dim
    # Filling the n dimensions unevenly is worse.
    uneven = filled.copy()
    uneven[0, 0], uneven[1, 1] = 1.1 * scale, scale / 1.1
    assert expected_statistic(uneven, 512) > expected_statistic(filled, 512)


# --- 5. the whole line -----------------------------------------------------------------------------------------------


@given(variance=st.floats(0, 50), batch_size=st.one_of(st.none(), st.integers(1, 10_000)))
def test_whole_line_closed_form_is_the_integral(variance: float, batch_size: int | None) -> None:
    """∫ e^{−t²/2} {N (φ − ψ)² + 1 − φ²} dt over R by adaptive quadrature.

    Mutation: the middle term's factor −2 → −1.
    """

    def integrand(t: float) -> float:
        phi, psi = math.exp(-variance * t**2 / 2), math.exp(-(t**2) / 2)
        noise = 0.0 if batch_size is None else 1 - phi**2
        return psi * ((batch_size or 1) * (phi - psi) ** 2 + noise)

    integral = 2 * quad(integrand, 0, 12, epsabs=1e-13, epsrel=1e-11, limit=400)[0]
    assert whole_line_statistic(variance, batch_size) == pytest.approx(
        integral, rel=1e-9, abs=1e-12 * (batch_size or 1)
    )


@given(variance=st.floats(0, 4), batch_size=st.one_of(st.none(), st.integers(1, 1000)))
def test_many_knots_reach_the_whole_line(variance: float, batch_size: int | None) -> None:
    """With 200 knots up to t = 12 the trapezoidal rule is the integral.

    Mutation: ``step = t_max / knots``.
    """
    line = expected_statistic([[variance]], batch_size, knots=200, t_max=12.0)
    assert line == pytest.approx(float(whole_line_statistic(variance, batch_size)), rel=1e-9, abs=1e-12)


def test_seventeen_knots_are_as_close_as_stated() -> None:
    """1.7 % low at s² = 0, within 0.011 % at s² = 0.9."""
    gaps = [expected_statistic([[s]], None) / float(whole_line_statistic(s, None)) - 1 for s in (0.0, 0.9)]
    assert -0.0175 < gaps[0] < -0.0165
    assert 5e-5 < abs(gaps[1]) < 1.1e-4


# --- 6. invariance and bad input -------------------------------------------------------------------------------------


@given(seed=seeds(), dim=dims(2, 64), condition=conditions(1e6), batch_size=st.integers(1, 1000))
def test_only_the_spectrum_matters(seed: int, dim: int, condition: float, batch_size: int) -> None:
    """R(UCUᵀ) = R(C); zero rows and columns added leave it a function of the padded spectrum.

    Mutation: use the diagonal of C instead of its eigenvalues.
    """
    rng = np.random.default_rng(seed)
    feature_cov = random_spd(rng, dim, condition, 1.0 / condition)
    rotation = random_rotation(rng, dim)
    rotated = rotation @ feature_cov @ rotation.T
    value = expected_statistic(feature_cov, batch_size)
    assert expected_statistic((rotated + rotated.T) / 2, batch_size) == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e30, 1e150, 1e300])
@pytest.mark.parametrize("dim", [1, 2, 3, 8])
def test_covariances_of_any_size_are_taken(size: float, dim: int) -> None:
    """Vanishing features give N Σ w (1 − ψ)², boundless ones Σ w (Nψ² + 1) over the knots t > 0; no overflow."""
    psi = np.exp(-(T[1:] ** 2) / 2)
    expected = 64 * (1 - psi) ** 2 @ WEIGHTS[1:] if size < 1 else (64 * psi**2 + 1) @ WEIGHTS[1:]
    assert expected_statistic(size * np.eye(dim), 64) == pytest.approx(float(expected), rel=1e-9)
    uneven = np.diag(np.linspace(0, 1, dim) * size)
    assert math.isfinite(expected_statistic(uneven, 64))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: expected_statistic([[1.0, 2.0], [2.0, 1.0]], 8), "feature_cov"),
        (lambda: expected_statistic([[1.0, 2.0], [0.0, 1.0]], 8), "feature_cov"),
        (lambda: expected_statistic([[math.nan]], 8), "feature_cov"),
        (lambda: expected_statistic(np.eye(2), 0), "batch_size"),
        (lambda: expected_statistic(np.eye(2), 2.5), "batch_size"),  # type: ignore[arg-type]
        (lambda: expected_statistic(np.eye(2), 8, knots=1), "knots"),
        (lambda: expected_statistic(np.eye(2), 8, t_max=0.0), "t_max"),
        (lambda: isotropic_scale(8, t_max=1e200), "t_max"),
        (lambda: isotropic_scale(8, knots=2, t_max=100.0), "knots and t_max"),
        (lambda: isotropic_scale(8, knots=2, t_max=100.0, dim=1, latent_dim=3), "knots and t_max"),
        (lambda: expected_statistic(np.eye(2), 8, pair_correlation=1.5), "pair_correlation"),
        (lambda: expected_statistic(np.eye(2), 7, pair_correlation=0.5), "batch_size"),
        (lambda: isotropic_scale(8, dim=2), "dim"),
        (lambda: isotropic_scale(8, dim=3, latent_dim=2), "dim"),
        (lambda: whole_line_statistic(-1.0, 8), "variance"),
        (lambda: whole_line_statistic(1.0, 0), "batch_size"),
    ],
)
def test_bad_input_is_one_sentence_that_names_the_argument(call, name) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=rf"\b{name}\b") as caught:
        call()
    assert str(caught.value).count("\n") == 0
