"""The sketched Epps–Pulley statistic for Gaussian features, in closed form over samples and slices (T8).

LeWorldModel's regulariser projects N latents on random unit vectors u ("slices") and compares the empirical
characteristic function of each projection with the standard normal's at a few knots. For z ~ N(0, C) its expectation
is a function of C alone, computed here to rounding: no samples, no slices. What the regulariser and the prediction loss
do together is :func:`theory.joint.joint_optimum`, importable from here.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from theory._slices import SlicedStatistic, isotropic_statistic
from theory.joint import JointOptimum, joint_optimum
from theory.spd import Array, check_array, check_count, check_psd

__all__ = ["JointOptimum", "expected_statistic", "isotropic_scale", "joint_optimum", "whole_line_statistic"]


def expected_statistic(
    feature_cov: ArrayLike,
    batch_size: int | None,
    knots: int = 17,
    t_max: float = 3.0,
    *,
    pair_correlation: float | None = None,
) -> float:
    """E[R_N] = E_u Σ_k w_k {N (φ_k − ψ_k)² + (1 − φ_k²)}, φ_k = e^{−s²t_k²/2}, ψ_k = e^{−t_k²/2}, s² = uᵀCu.

    The second summand is the sampling noise of N independent, centred samples. Pooled pairs, N/2 of them with latent
    correlation r inside a pair, add Σ_k w_k (e^{−s²t_k²(1−r)} − φ_k²): current and next features in one batch are such
    pairs. The average over slices is exact: E_u e^{−a uᵀCu} = e^{−a tr C/2} I₀(a(c₁−c₂)/2) in two dimensions, and in n
    dimensions a contour integral that 48 nodes give to rounding (no Monte Carlo error is left to estimate).

    Parameters
    ----------
    feature_cov
        Feature covariance C, (D, D), positive semidefinite; for ΛReg that of Λ^{−1/2}z.
    batch_size
        Samples N on the sample axis (LeWorldModel passes (T, B, D): N = B there). ``None`` gives the population's
        statistic Σ_k w_k E_u (φ_k − ψ_k)², the limit of R_N/N.
    knots, t_max
        Knots t_k = k·t_max/(knots − 1); weights w_k = (dt, 2dt, ..., 2dt, dt)·e^{−t_k²/2}, which double the
        trapezoidal rule on [0, t_max] since the integrand is even.
    pair_correlation
        Latent correlation r ∈ [−1, 1] within pairs; N must then be even.

    Returns
    -------
    float
        Expectation over samples and slices.

    Raises
    ------
    ValueError
        If ``feature_cov`` is not symmetric positive semidefinite, or another argument is out of range.

    References
    ----------
    LeWorldModel's SIGReg for the statistic; the expectation is derived here (docs/theory.md, T8).
    """
    feature_cov = check_psd(feature_cov, "feature_cov")
    statistic = SlicedStatistic(batch_size, knots, t_max, pair_correlation)
    eigenvalues = np.clip(np.linalg.eigvalsh(feature_cov), 0.0, None)
    return statistic.at_spectrum(eigenvalues)[0]


def isotropic_scale(
    batch_size: int | None,
    knots: int = 17,
    t_max: float = 3.0,
    *,
    dim: int | None = None,
    latent_dim: int | None = None,
    pair_correlation: float | None = None,
) -> float:
    """q_N = argmin over q ≥ 0 of h(q), h the expected statistic of a slice with variance q: at qI every slice agrees.

    E_u h(uᵀCu) ≥ min h, with equality at C = q_N I only, so that q_N I is the minimiser over *all* covariances. It
    lies below 1: shrinking lowers the sampling noise. N = 2 gives 0.1855; one sample is best off at zero (collapse).

    With ``dim`` n < ``latent_dim`` D the features fill n dimensions of D, and the result is the c that minimises the
    statistic at cVVᵀ, VᵀV = Iₙ; c ≈ D/n. It is no longer slice-free.

    Parameters
    ----------
    batch_size
        Samples N; ``None`` is the population, q = 1.
    knots, t_max, pair_correlation
        As for :func:`expected_statistic`.
    dim, latent_dim
        Dimensions n ≤ D of the state and of the latent space; give both or neither.

    Returns
    -------
    float
        q_N, or c; 0 when the minimum is at zero.

    Raises
    ------
    ValueError
        If an argument is out of range, only one of the dimensions is given, or n > D.

    References
    ----------
    Derived here (docs/theory.md, T1 and T8).
    """
    statistic = SlicedStatistic(batch_size, knots, t_max, pair_correlation)
    if (dim is None) != (latent_dim is None):
        raise ValueError("dim and latent_dim must be given together.")
    if dim is None or latent_dim is None:
        return isotropic_statistic(statistic)
    dim, latent_dim = check_count(dim, "dim"), check_count(latent_dim, "latent_dim")
    if dim > latent_dim:
        raise ValueError(f"dim must be at most latent_dim ({latent_dim}), but it is {dim}.")
    if dim == latent_dim:
        return isotropic_statistic(statistic)
    filled = np.zeros(latent_dim)
    filled[:dim] = 1.0

    def slope(scale: float) -> float:
        return float(statistic.at_spectrum(scale * filled)[1] @ filled)

    if slope(0.0) == slope(1.0) == 0:
        raise ValueError("knots and t_max must leave a statistic with a minimum, but no knot sees the variance.")
    # The slope is negative from the origin to the minimiser; where it is not, sampling noise outweighs the fit.
    if slope(0.0) >= 0:
        return 0.0
    upper = latent_dim / dim
    while slope(upper) <= 0:
        upper *= 2
        if upper > 1e6 * latent_dim:
            raise ValueError("knots and t_max must leave a statistic with a minimum, but no knot sees the variance.")
    return float(brentq(slope, 0.0, upper, xtol=1e-14, rtol=1e-14))


def whole_line_statistic(variance: ArrayLike, batch_size: int | None) -> Array:
    """√(2π) {N [(2s²+1)^{−½} − 2(s²+2)^{−½} + 3^{−½}] + 1 − (2s²+1)^{−½}}: one slice, integrated over all t ∈ R.

    The closed form that the knots approximate. For N → ∞ the 17-knot sum is 1.7 % lower at s² = 0 and within 0.01 % at
    s² = 0.9; nearly all of that is the cut at t = 3.

    Parameters
    ----------
    variance
        Slice variances s² ≥ 0, any shape.
    batch_size
        Samples N; ``None`` drops the sampling noise and the factor N.

    Returns
    -------
    ndarray
        One value per variance.

    Raises
    ------
    ValueError
        For negative or non-finite variances, or a batch size below 1.

    References
    ----------
    Derived here (docs/theory.md, T8).
    """
    variance = check_array(variance, "variance")
    if (variance < 0).any():
        raise ValueError(f"variance must not be negative, but its smallest entry is {variance.min():.6g}.")
    count, noise = (1, 0) if batch_size is None else (check_count(batch_size, "batch_size"), 1)
    squared = (2 * variance + 1) ** -0.5
    fit = squared - 2 * (variance + 2) ** -0.5 + 3**-0.5
    return np.asarray(math.sqrt(2 * math.pi) * (count * fit + noise * (1 - squared)))
