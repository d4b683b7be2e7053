"""Averages over random slices, without random slices.

A slice u is uniform on the unit sphere of R^D. The sketched statistic of Gaussian features is a sum of exponentials of
the slice variance uᵀCu, so that all it needs is E e^{−uᵀAu}, and one contour integral gives that to rounding in every
dimension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaln, i0e, i1e

from theory.spd import Array, check_array, check_count, check_scale

ComplexArray = NDArray[np.complex128]

#: Nodes on half of the contour. The error falls geometrically with them: 32 already reach 1e-12 in dimension 1 to 192.
NODES = 48
#: e^{−37} is below the rounding of a number near 1.
_NEGLIGIBLE = 37.0


def sphere_exponential(exponents: Array) -> tuple[Array, Array]:
    """E e^{−Σ_j α_j u_j²} for u uniform on the unit sphere of R^D, and its derivatives with respect to α.

    Parameters
    ----------
    exponents
        α, (m, D), any real numbers: m spheres' worth of exponents.

    Returns
    -------
    values, gradients
        (m,) and (m, D); gradients are −E u_j² e^{−Σ α_j u_j²}.
    """
    terms, inverse = _contour(exponents)
    return terms.sum(axis=1).real, -0.5 * np.einsum("mk,jmk->mj", terms, inverse).real


def _contour(exponents: Array) -> tuple[ComplexArray, ComplexArray]:
    """Nodes of the contour integral: terms (m, K), and 1/(p + β_j) (D, m, K) that each derivative multiplies them by.

    With a = min_j α_j and β_j = α_j − a,

        E e^{−Σ α_j u_j²} = e^{−a} · Γ(D/2)/(2πi) ∫ e^p ∏_j (p + β_j)^{−1/2} dp

    along any contour from −∞ below the negative real axis around it to −∞ above (derived here: r^{D/2−1} E e^{−r Σ β_j
    u_j²}/Γ(D/2) has the Laplace transform ∏(p + β_j)^{−1/2}, as polar coordinates in a Gaussian integral show; this is
    its inversion at r = 1). Branch points lie on (−∞, 0]; the parabola p = b(1 + iθ)² has its focus at 0 and passes
    through the saddle point b of the integrand, Σ_j 1/(2(b + β_j)) = 1, so nothing cancels and the trapezoidal rule in
    θ converges geometrically.

    References
    ----------
    The integral is the normalising constant of the Bingham distribution; parabolic contours for inverting Laplace
    transforms: Weideman & Trefethen, "Parabolic and hyperbolic contours for computing the Bromwich integral", 2007.
    """
    shift = exponents.min(axis=1)
    relative = exponents - shift[:, None]
    saddle = _saddle(relative)[:, None]
    theta = np.linspace(0.0, 1.0, NODES) * np.sqrt(_NEGLIGIBLE / saddle)
    root = 1.0 + 1j * theta
    point = saddle * root * root
    # β_j first, so that sums over j run along memory; real and imaginary part apart, which NumPy computes much faster.
    real, imaginary = point.real + relative.T[:, :, None], point.imag
    modulus = np.hypot(real, imaginary)
    # θ ≥ 0 keeps p in the upper half-plane, where the principal logarithm is the continuous one.
    angle = imaginary - 0.5 * np.arctan2(imaginary, real).sum(axis=0)
    size = point.real - 0.5 * np.log(modulus).sum(axis=0)
    size = np.exp(size + (float(gammaln(exponents.shape[1] / 2)) - shift[:, None]))
    # dp = 2ib(1 + iθ)dθ; the lower half of the contour is the complex conjugate of the upper.
    steps = theta[:, 1:2] * saddle * (2.0 / math.pi)
    terms = size * (np.cos(angle) + 1j * np.sin(angle)) * root * steps
    terms[:, 0] *= 0.5
    return terms, (real / modulus - 1j * (imaginary / modulus)) / modulus


def _saddle(relative: Array) -> Array:
    """Root b of Σ_j 1/(2(b + β_j)) = 1 for β ≥ 0 with a zero in each row; it lies in [1/2, D/2]."""
    # In 1/Σ(...) the function is concave and increasing, so Newton from the left end rises to the root monotonically.
    point = np.full(relative.shape[0], 0.5)
    for _ in range(60):
        inverse = 1.0 / (point[:, None] + relative)
        total, slope = 0.5 * inverse.sum(axis=1), 0.5 * (inverse**2).sum(axis=1)
        step = (total - 1.0) * total / slope
        point = np.clip(point + step, 0.5, relative.shape[1] / 2)
        if np.all(np.abs(step) <= 1e-8 * point):
            break
    return point


def circle_exponential(exponents: Array) -> tuple[Array, Array]:
    """:func:`sphere_exponential` for D = 2 in closed form, E e^{−α₁u₁² − α₂u₂²} = e^{−(α₁+α₂)/2} I₀((α₁−α₂)/2)."""
    low, gap = exponents.min(axis=1), (exponents[:, 0] - exponents[:, 1]) / 2
    decay = np.exp(-low)
    even, odd = decay * i0e(gap), decay * i1e(gap)
    return even, np.stack([-even + odd, -even - odd], axis=1) / 2


@dataclass(frozen=True)
class SlicedStatistic:
    """Expected statistic as a function of the slice variance, h(s²) = c₀ + Σ_j c_j e^{−a_j s²}, and of a spectrum.

    Attributes
    ----------
    batch_size
        Number of samples N, or ``None`` for the population's statistic (N → ∞, not multiplied by N).
    knots, t_max
        Knots t_k = k·t_max/(knots − 1), k = 0..knots − 1.
    pair_correlation
        Latent correlation r within each of N/2 pairs, or ``None`` for independent samples.
    """

    batch_size: int | None
    knots: int = 17
    t_max: float = 3.0
    pair_correlation: float | None = None

    def __post_init__(self) -> None:
        """Check the four numbers."""
        if self.batch_size is not None:
            check_count(self.batch_size, "batch_size")
        check_count(self.knots, "knots", 2)
        if not 0.01 <= check_scale(self.t_max, "t_max") <= 100:
            raise ValueError(f"t_max must lie in [0.01, 100], where knots see anything, but it is {self.t_max:.6g}.")
        if self.pair_correlation is not None:
            if not -1 <= check_array(self.pair_correlation, "pair_correlation", ndim=0).item() <= 1:
                raise ValueError(f"pair_correlation must lie in [-1, 1], but it is {self.pair_correlation:.6g}.")
            if self.batch_size is not None and self.batch_size % 2:
                raise ValueError(f"batch_size must be even for pooled pairs, but it is {self.batch_size}.")

    @cached_property
    def _terms(self) -> tuple[float, Array, Array]:
        t = np.linspace(0.0, self.t_max, self.knots)
        step = self.t_max / (self.knots - 1)
        weights = np.full(self.knots, 2 * step)
        weights[[0, -1]] = step
        weights *= np.exp(-(t**2) / 2)
        # The knot t = 0 contributes nothing: both characteristic functions are 1 there.
        t, weights = t[1:], weights[1:]
        target = np.exp(-(t**2) / 2)
        # N(φ − ψ)² + (1 − φ²) [+ e^{−s²t²(1−r)} − φ²], with φ = e^{−s²t²/2}, φ² = e^{−s²t²}.
        count, noise = (1.0, 0.0) if self.batch_size is None else (float(self.batch_size), 1.0)
        paired = noise if self.pair_correlation is not None else 0.0
        constant = float((weights * (count * target**2 + noise)).sum())
        rates = [t**2, t**2 / 2]
        coefficients = [weights * (count - noise - paired), -2 * count * weights * target]
        if paired and self.pair_correlation is not None:
            rates.append(t**2 * (1 - self.pair_correlation))
            coefficients.append(weights)
        return constant, np.concatenate(rates), np.concatenate(coefficients)

    @property
    def offset(self) -> float:
        """c₀; the statistic at any spectrum is known to rounding relative to it."""
        return self._terms[0]

    def at_variance(self, variance: Array) -> Array:
        """h(s²) of one slice, for slice variances s² of any shape."""
        constant, rates, coefficients = self._terms
        return constant + np.exp(-np.multiply.outer(variance, rates)) @ coefficients

    def slope(self, variance: Array) -> Array:
        """h′(s²)."""
        _, rates, coefficients = self._terms
        return -np.exp(-np.multiply.outer(variance, rates)) @ (rates * coefficients)

    def at_spectrum(self, eigenvalues: Array) -> tuple[float, Array]:
        """E_u h(uᵀCu) and its derivatives (D,), for the eigenvalues (D,) of the feature covariance C."""
        constant, rates, coefficients = self._terms
        average = circle_exponential if eigenvalues.size == 2 else sphere_exponential
        # Beyond 1e300 the exponentials have long been zero, and rates times eigenvalues would overflow.
        values, gradients = average(np.multiply.outer(rates, np.minimum(eigenvalues, 1e300)))
        return constant + float(coefficients @ values), (coefficients * rates) @ gradients

    def expand(self, eigenvalues: Array) -> tuple[Array, Array]:
        """First derivatives (D,) and second derivatives (D, D) of :meth:`at_spectrum`'s value."""
        _, rates, coefficients = self._terms
        terms, inverse = _contour(np.multiply.outer(rates, eigenvalues))
        flat = inverse.reshape(eigenvalues.size, terms.size)
        first = (-0.5 * (coefficients * rates)[:, None] * terms).ravel()
        second = (0.25 * (coefficients * rates**2)[:, None] * terms).ravel()
        matrix = ((flat * second) @ flat.T).real
        # (p + β)^{−1/2} has the second derivative 3/4 (p + β)^{−5/2}, three times what a pair of factors gives.
        matrix[np.diag_indices_from(matrix)] *= 3.0
        return (flat @ first).real, matrix


def isotropic_statistic(statistic: SlicedStatistic) -> float:
    """Minimiser q ≥ 0 of h(q), the statistic at qI; 0 if the minimum is there (one sample, or N = 2 pairs of twins)."""
    # By the slope, whose terms are products: with knots far apart the values differ by less than their rounding.
    grid = np.linspace(0.0, 2.0, 2001)
    slopes = np.array([float(statistic.slope(variance)) for variance in grid])
    rises = np.flatnonzero((slopes[:-1] < 0) & (slopes[1:] >= 0))
    if rises.size == 0 and slopes.min() >= 0 < slopes.max():
        return 0.0
    if rises.size == 0:
        raise ValueError("knots and t_max must leave a statistic with a minimum, but no knot sees the variance.")
    roots = [
        brentq(lambda variance: float(statistic.slope(np.asarray(variance))), grid[i], grid[i + 1], xtol=1e-15)
        for i in rises
    ]
    if slopes[0] >= 0:
        roots.insert(0, 0.0)
    return float(min(roots, key=lambda variance: float(statistic.at_variance(np.asarray(variance)))))
