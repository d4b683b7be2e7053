"""Mean regret over random k-dimensional reachable subspaces.

In coordinates y = Q^{1/2}x let the subspace be spanned by an orthonormal V (n, k), uniform, and the goal lie at a unit
offset d uniform in its complement. The planner misses the foot of the perpendicular by V(VᵀMV)⁻¹VᵀMd, so that

    mean = 1/(n−k) · E‖(VᵀMV)⁻¹VᵀM(I − VVᵀ)‖_F² = T_k(M)/(n−k).

With X (n, k) standard normal of rows x_i, which spans a uniform subspace, S = XᵀMX and M = diag(μ) this is

    T_k = Σ_{i<j} (μ_i − μ_j)² E[(x_iᵀS⁻¹x_j)²] = −Σ_{i<j} (μ_i − μ_j)² ∂²/∂μ_i∂μ_j E[ln det S].

*Duality.* The transpose of the oblique projector I − V(VᵀMV)⁻¹VᵀM projects onto the complement along MV, orthogonally
in M⁻¹; so T_k(M) = T_{n−k}(M⁻¹), and k = n − 1 is the case of lines.

*k = 1* is the integral of :func:`theory.regret.mean_line_regret`.

*k = 2.* Let φ(θ) = ∏(1 + 2θμ_i)^{−1/2}, w_i(θ) = 1/(1 + 2θμ_i), κ(θ, θ') = Σ_{i≠j} (μ_i − μ_j)² w_i(θ) w_j(θ'). From
det(S)^{−z} Γ₂(z) = ∫ e^{−tr ΘS} det(Θ)^{z−3/2} dΘ over positive Θ, from E e^{−tr ΘS} = φ(θ₁)φ(θ₂) for Θ of eigenvalues
θ₁ ≥ θ₂, from dΘ → π(θ₁ − θ₂)dθ₁dθ₂ and from T₂ = lim_{z→0} z⁻¹ Σ_{i<j} (μ_i − μ_j)² ∂_i∂_j E[det(S)^{−z}],

    T₂ = −½ f.p.∬_{θ₁>θ₂} (θ₁θ₂)^{−3/2} (θ₁ − θ₂) φ(θ₁)φ(θ₂) [½θ₁²κ(θ₁, θ₁) + ½θ₂²κ(θ₂, θ₂) + θ₁θ₂κ(θ₁, θ₂)] dθ₁dθ₂.

The finite part is that of the continuation in z, and one integration by parts in the variable that has the power −3/2
removes it. What remains has integrands that vanish at both ends of u = ln θ and are cut along the diagonal: sinc
quadrature for the cut (Stenger, 1993, section 3.6) converges exponentially.

*3 ≤ k ≤ n − 3* would need k-fold integrals of the same kind; there the mean is estimated by Monte Carlo, with its
standard error. (Scrambled Sobol' points were tried and gained nothing in these n·k dimensions.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from theory.regret.lines import (
    gaussian_kernel,
    mean_line_regret_of_stretches,
    normalized_spectrum,
    relative_stretches,
)
from theory.spd import Array, check_count, check_generator, check_scale

#: Spacing in u = ln θ of the sinc rule for planes. It leaves 1e-13 of the mean; 0.4 leaves 2e-12.
PLANE_STEP = 0.25

#: Entries n·k·m of the m frames drawn at once, between two looks at the standard error (m is at least 64).
_BATCH_ENTRIES = 2**16


@dataclass(frozen=True)
class SubspaceRegret:
    """Mean normalised regret over random subspaces, and how well it is known.

    Attributes
    ----------
    mean_regret
        The mean.
    standard_error
        Its standard error; 0 where a quadrature is exact to rounding (k = 1, 2, n − 2, n − 1).
    num_samples
        Subspaces drawn; 0 for a quadrature.
    """

    mean_regret: float
    standard_error: float
    num_samples: int


def mean_subspace_regret(
    metric: ArrayLike,
    k: int,
    task_metric: ArrayLike | None = None,
    *,
    tolerance: float = 5e-3,
    rng: np.random.Generator | int = 0,
) -> float:
    """Mean normalised regret over random k-dimensional reachable subspaces (see :func:`estimate_subspace_regret`).

    k = 1 is :func:`theory.regret.mean_line_regret`. For k = 1, 2, n − 2 and n − 1 the value is exact to rounding;
    otherwise its relative standard error is at most ``tolerance``.
    """
    return estimate_subspace_regret(metric, k, task_metric, tolerance=tolerance, rng=rng).mean_regret


def estimate_subspace_regret(
    metric: ArrayLike,
    k: int,
    task_metric: ArrayLike | None = None,
    *,
    tolerance: float = 5e-3,
    rng: np.random.Generator | int = 0,
) -> SubspaceRegret:
    """1/(n−k) · E‖(VᵀMV)⁻¹VᵀM(I − VVᵀ)‖_F² over uniform orthonormal V (n, k), in Q^{1/2}x coordinates.

    Parameters
    ----------
    metric
        M ≻ 0, shape (n, n), n ≥ 2.
    k
        Dimension of the subspaces, 1 ≤ k ≤ n − 1.
    task_metric
        Q ≻ 0, shape (n, n); ``None`` is Q = I.
    tolerance
        Relative standard error at which sampling stops, where sampling is needed; the time grows as its inverse square.
    rng
        Generator, or a seed for one, where sampling is needed.

    Returns
    -------
    SubspaceRegret
        ``mean_regret``, ``standard_error``, ``num_samples``.

    Raises
    ------
    ValueError
        If a matrix is not SPD, shapes differ, k is not in 1..n − 1 or the tolerance is not positive.

    Notes
    -----
    Half of the samples are uniform and half come from the angular Gaussian with parameter M^{−1/2}, weighted by the
    mixture's density (balance heuristic): near-singular VᵀMV carry much of the mean at large ρ, and uniform samples
    alone rarely meet them. Weights are below 2, so that the mixture never costs more than twice the samples.

    References
    ----------
    Derived in this module's docstring. Matrix angular central Gaussian density: Chikuse, Statistics on Special
    Manifolds (2003). Balance heuristic: Veach and Guibas, Optimally combining sampling techniques (1995).
    """
    stretches = relative_stretches(metric, task_metric, minimum=2)
    dim = stretches.size
    k = check_count(k, "k")
    if k >= dim:
        raise ValueError(f"k must be at most {dim - 1}, below the dimension of the metric, but it is {k}.")
    tolerance, generator = check_scale(tolerance, "tolerance"), check_generator(rng, "rng")
    # (n − k)·mean_k(M) = k·mean_{n−k}(M⁻¹): the smaller dimension is cheaper, or has a quadrature.
    dual = 2 * k > dim
    size, stretches = (dim - k, 1 / stretches[::-1]) if dual else (k, stretches)
    if size == 1:
        total, error, samples = (dim - 1) * mean_line_regret_of_stretches(stretches), 0.0, 0
    elif size == 2:
        total, error, samples = _plane_total(normalized_spectrum(stretches)), 0.0, 0
    else:
        total, error, samples = _sampled_total(normalized_spectrum(stretches), size, tolerance, generator)
    return SubspaceRegret(total / (dim - k), error / (dim - k), samples)


def _plane_total(spectrum: Array) -> float:
    """T₂ for the eigenvalues ``spectrum`` (n,), n ≥ 4, of geometric mean 1: the integral in this module's docstring."""
    from scipy.special import sici

    dim = spectrum.size
    # Toward zero the integrands fall as e^{u/2}, toward infinity as e^{−(n−1)u/2}.
    lower = -np.log(spectrum.sum()) - 80.0
    upper = np.log((1 / spectrum).sum() / 2) + 80.0 / (dim - 1)
    scale = np.exp(np.arange(lower, upper + PLANE_STEP, PLANE_STEP))
    density, weight, mean, spread = gaussian_kernel(spectrum, scale)
    # −φ' = φ Σ μ_i w_i.
    slope = density * weight * mean
    same = weight * spread
    # κ(θ₁, θ₂) as a sum of squares: small differences of μ lose no digits.
    cross = np.outer(weight, weight) * ((spread / weight)[:, None] + spread / weight + (mean[:, None] - mean) ** 2)
    first, second = scale[:, None], scale
    gap = first - second
    # The measure dθ = θ du is in the powers. Each line is one term of the bracket, integrated by parts where needed.
    integrand = (
        first**1.5 * (same * density)[:, None] * second**0.5 * (density + gap * slope)
        - second**1.5 * (same * density) * first**0.5 * (density[:, None] / 2 + second * slope[:, None])
        - gap * (first * second) ** 0.5 * density[:, None] * density * cross / 2
    )
    steps = np.arange(scale.size)
    # Integrates a sinc expansion over u₂ < u₁: ½ + Si(π(i − j))/π.
    below = 0.5 + sici(np.pi * (steps[:, None] - steps))[0] / np.pi
    diagonal = scale**2 * same * density**2
    return float(PLANE_STEP**2 * (integrand * below).sum() + PLANE_STEP * diagonal.sum())


def _sampled_total(spectrum: Array, k: int, tolerance: float, rng: np.random.Generator) -> tuple[float, float, int]:
    """T_k, its standard error and the number of subspaces drawn."""
    dim = spectrum.size
    batch = max(64, _BATCH_ENTRIES // (dim * k))
    # The two halves of the mixture are strata: each has its own mean and variance.
    sums, squares, count = np.zeros(2), np.zeros(2), 0
    while True:
        for stratum, power in enumerate((0.0, 0.5)):
            frames = np.linalg.qr(rng.standard_normal((batch, dim, k)) * spectrum[:, None] ** (-power / 2))[0]
            values = _oblique_squares(spectrum, frames) / _mixture_density(spectrum, frames)
            sums[stratum] += values.sum()
            squares[stratum] += values @ values
        count += batch
        means = sums / count
        variances = np.maximum(squares / count - means**2, 0.0) / (count - 1)
        total, error = float(means.mean()), math.sqrt(float(variances.sum())) / 2
        if error <= tolerance * total:
            return total, error, 2 * count


def _oblique_squares(spectrum: Array, frames: Array) -> Array:
    """‖(VᵀMV)⁻¹VᵀM(I − VVᵀ)‖_F² for M = diag(spectrum) and orthonormal V (m, n, k)."""
    transposed = frames.swapaxes(1, 2)
    images = spectrum[:, None] * frames
    inner = transposed @ images
    outside = images - frames @ inner
    return (np.linalg.solve(inner, outside.swapaxes(1, 2)) ** 2).sum(axis=(1, 2))


def _mixture_density(spectrum: Array, frames: Array) -> Array:
    """½ + ½ det(M)^{k/4} det(VᵀM^{1/2}V)^{−n/2}, the density relative to uniform V, for spectra with det M = 1."""
    dim = frames.shape[1]
    _, log_det = np.linalg.slogdet(frames.swapaxes(1, 2) @ (np.sqrt(spectrum)[:, None] * frames))
    return 0.5 + 0.5 * np.exp(-dim / 2 * log_det)
