"""Regret over all reachable lines: the mean, the worst case, and the bounds that hold for every set (T6).

In coordinates y = Q^{1/2}x the task metric is the identity and the planner's metric has eigenvalues μ₁ ≤ … ≤ μₙ. For a
line along the unit vector v whose goal lies at the unit offset d ⊥ v from the task's best point,

    regret = (vᵀMd)² / (vᵀMv)².
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from theory.reachable import ReachableSet
from theory.reachable.sets import metric_root
from theory.spd import Array, check_spd

#: Spacing of the trapezoidal rule in u = ln s. The integrands are analytic for |Im u| < π and grow by small factors up
#: to |Im u| = π/2, so that the error is about exp(−π²/0.25) = 7e-18 of the integral.
LINE_STEP = 0.25


def whitened_factor(metric: ArrayLike, task_metric: ArrayLike | None, minimum: int = 1) -> tuple[Array, Array | None]:
    """F = L_Q⁻¹L_M and L_Q from Cholesky factors M = L_M L_Mᵀ and Q = L_Q L_Qᵀ; L_Q is ``None`` for Q = I.

    FFᵀ = L_Q⁻¹ M L_Q⁻ᵀ has the eigenvalues μ of M relative to Q. The singular values √μ of F are positive whatever the
    rounding, and have a condition number √ρ where that of μ is ρ.
    """
    metric = check_spd(metric, "metric")
    if metric.shape[0] < minimum:
        raise ValueError(f"metric must be at least {minimum} × {minimum}: a line fills a space of one dimension.")
    factor: Array = np.asarray(np.linalg.cholesky(metric), dtype=np.float64)
    if task_metric is None:
        return factor, None
    from scipy.linalg import solve_triangular

    task_factor = metric_root(task_metric, metric.shape[0], "task_metric").T
    return solve_triangular(task_factor, factor, lower=True), task_factor


def relative_stretches(metric: ArrayLike, task_metric: ArrayLike | None, minimum: int = 1) -> Array:
    """Square roots σ of the eigenvalues μ of M relative to Q, ascending, shape (n,)."""
    factor, _ = whitened_factor(metric, task_metric, minimum)
    return np.asarray(np.linalg.svd(factor, compute_uv=False)[::-1], dtype=np.float64)


def mean_line_regret(metric: ArrayLike, task_metric: ArrayLike | None = None) -> float:
    """Mean normalised regret over random reachable lines.

    The line's direction is uniform and its offset from the goal uniform in the orthogonal complement, both in Q^{1/2}x
    coordinates. Two dimensions: cosh(½ ln ρ) − 1 = (√ρ − 1)²/(2√ρ). In n dimensions, with a_i = 1 + 2sμ_i, w_i = 1/a_i,

        mean = 1/(n−1) · ∫₀^∞ s ∏a_i^{−1/2} Σ_{i<j} (μ_i − μ_j)² w_i w_j ds.

    Derivation: averaging over d leaves (vᵀM²v − (vᵀMv)²)/((n−1)(vᵀMv)²); with v = x/‖x‖, x standard normal, the
    numerator is Σ_{i<j} (μ_i − μ_j)² x_i²x_j²/‖x‖⁴ by Lagrange's identity; and 1/b² = ∫ s e^{−sb} ds, b = xᵀMx, makes
    the expectation a product. No term is negative, so that M ∝ Q gives zero to the square of rounding and a small
    regret is accurate relatively.

    Parameters
    ----------
    metric
        M ≻ 0, shape (n, n), n ≥ 2.
    task_metric
        Q ≻ 0, shape (n, n); ``None`` is Q = I.

    Raises
    ------
    ValueError
        If a matrix is not SPD, shapes differ or n < 2.

    References
    ----------
    Derived here (docs/theory.md, T6). For Q = I and M ∝ Σ⁻¹ with standard deviations 7:4 it is 9/56 = 0.160714,
    consistent with, not identified by, the plateau of 0.1607 in AnisoWM (arXiv 2609.37441), Figure 1.
    """
    stretches = relative_stretches(metric, task_metric, minimum=2)
    return mean_line_regret_of_stretches(stretches)


def mean_line_regret_of_stretches(stretches: Array) -> float:
    """:func:`mean_line_regret` from the ascending σ_i = √μ_i, shape (n,), n ≥ 2."""
    if stretches.size == 2:
        low, high = stretches
        return float((high - low) / low * ((high - low) / high) / 2)
    scaled = normalized_spectrum(stretches)
    # The integrand over s² falls with s, and times s^{n/2} it rises: both tails beyond these ends are below e^{−40}.
    lower = -np.log(scaled.sum()) - 20.0
    upper = np.log((1 / scaled).sum() / 2) + 80.0 / scaled.size
    scale = np.exp(np.arange(lower, upper + LINE_STEP, LINE_STEP))
    density, weight, _, spread = gaussian_kernel(scaled, scale)
    return float(LINE_STEP * np.sum(scale**2 * density * weight * spread)) / (scaled.size - 1)


def normalized_spectrum(stretches: Array) -> Array:
    """μ_i = σ_i², divided by their geometric mean."""
    return (stretches / np.exp(np.log(stretches).mean())) ** 2


def gaussian_kernel(spectrum: Array, scale: Array) -> tuple[Array, Array, Array, Array]:
    """∏a_i^{−1/2}, W = Σw_i, μ̄ = Σw_iμ_i/W and Σw_i(μ_i − μ̄)² at each s, with a_i = 1 + 2sμ_i and w_i = 1/a_i.

    Σ_{i<j} (μ_i − μ_j)² w_i w_j is W times the last.
    """
    factors = 1 + 2 * scale[:, None] * spectrum
    weights = 1 / factors
    weight = weights.sum(axis=1)
    mean = (weights @ spectrum) / weight
    spread = (weights * (spectrum - mean[:, None]) ** 2).sum(axis=1)
    return np.exp(-np.log(factors).sum(axis=1) / 2), weight, mean, spread


def worst_regret(metric: ArrayLike, task_metric: ArrayLike | None = None) -> float:
    """Largest normalised regret of any reachable line, and of any closed convex set: sinh²(½ ln ρ) = (ρ − 1)²/(4ρ).

    Kantorovich's inequality gives it for affine sets, where :func:`worst_case` attains it. For a convex set the
    variational inequality at x_M, (x* − x_M)ᵀM(x_M − g) ≥ 0, puts x_M − g in the M-ball with diameter [0, x* − g]: its
    largest point is the image of x* − g under an oblique projection, whose norm is at most cosh(½ ln ρ).

    Parameters
    ----------
    metric, task_metric
        M, Q ≻ 0, shape (n, n), n ≥ 2; ``None`` is Q = I.

    Raises
    ------
    ValueError
        If a matrix is not SPD, shapes differ or n < 2.

    References
    ----------
    Kantorovich's inequality; for convex sets derived here (docs/theory.md, T6).
    """
    stretches = relative_stretches(metric, task_metric, minimum=2)
    return _worst(stretches)


def _worst(stretches: Array) -> float:
    low, high = float(stretches[0]), float(stretches[-1])
    return ((high - low) / low * ((high + low) / high) / 2) ** 2


@dataclass(frozen=True, eq=False)
class WorstCase:
    """A reachable line and a goal that cost the most.

    Attributes
    ----------
    regret
        Normalised regret (ρ − 1)²/(4ρ), which the pair attains.
    direction
        v, the direction of the line, shape (n,), with vᵀQv = 1.
    offset
        d, from the goal to the line's task-optimal point, shape (n,), with dᵀQd = 1 and dᵀQv = 0: the reachable set is
        {g + d + av}.
    """

    regret: float
    direction: Array
    offset: Array


def worst_case(metric: ArrayLike, task_metric: ArrayLike | None = None) -> WorstCase:
    """The line and goal that attain :func:`worst_regret`.

    In Q^{1/2}x coordinates v ∝ √μ_max e_min + √μ_min e_max and d ∝ √μ_min e_min − √μ_max e_max, with e_min and e_max
    unit eigenvectors of Q^{-1/2}MQ^{-1/2}; both are mapped back by Q^{-1/2}.

    Parameters
    ----------
    metric, task_metric
        M, Q ≻ 0, shape (n, n), n ≥ 2; ``None`` is Q = I.

    Raises
    ------
    ValueError
        If a matrix is not SPD, shapes differ or n < 2.

    References
    ----------
    docs/theory.md, T6.
    """
    factor, task_factor = whitened_factor(metric, task_metric, minimum=2)
    vectors, stretches, _ = np.linalg.svd(factor)
    (high, low), ends = vectors[:, [0, -1]].T, stretches[[0, -1]]
    cosine, sine = ends / np.hypot(*ends)
    frame = np.stack([cosine * low + sine * high, sine * low - cosine * high])
    if task_factor is not None:
        # Back to x = L_Q⁻ᵀy, a rotation away from Q^{-1/2}y.
        frame = np.linalg.solve(task_factor.T, frame.T).T
    return WorstCase(worst_regret(metric, task_metric), frame[0], frame[1])


def regret_bound(reachable: ReachableSet, metric: ArrayLike, task_metric: ArrayLike | None = None) -> float:
    """A certificate: no goal gives ``reachable`` a larger normalised regret than this, whatever its shape.

    (ρ − 1)²/(4ρ) for a convex set, and ρ − 1 for any other, where the first can be exceeded: from
    J(x_M) ≤ (x_M − g)ᵀM(x_M − g)/μ_min ≤ (x* − g)ᵀM(x* − g)/μ_min ≤ ρ J(x*). Two points approach it.

    Parameters
    ----------
    reachable
        Any set of :mod:`theory.reachable`.
    metric, task_metric
        M, Q ≻ 0, shape (n, n); ``None`` is Q = I.

    Raises
    ------
    ValueError
        If a matrix is not SPD or shapes differ.

    References
    ----------
    Derived here (docs/theory.md, T6).
    """
    stretches = relative_stretches(check_spd(metric, "metric", reachable.dim), task_metric)
    if reachable.convex:
        return _worst(stretches)
    low, high = float(stretches[0]), float(stretches[-1])
    return (high - low) / low * ((high + low) / low)
