"""What prediction and the regulariser choose together at finite weight and finite batch (T9).

T4 is the limit of a large regulariser weight. At a finite one the encoder also shrinks along noisy directions, which
changes the third digit of the toy's regret at the usual weight, and everything at a small one: the metric can reverse
its order, and the encoder can give directions up (collapse).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from theory._slices import SlicedStatistic, isotropic_statistic
from theory.spd import (
    Array,
    check_count,
    check_generator,
    check_kappa,
    check_scale,
    check_spd,
    inv_sqrt_spd,
    symmetrize,
)
from theory.target import relative_noise

#: Above this dimension, starts are thinned out to this number of each kind.
_MAX_STARTS = 16
#: A spectrum's entry below this has vanished; entries that are merely small were given back to the descent before.
_VANISHED = 1e-12
_DESCENT: Any = {"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-9}


@dataclass(frozen=True)
class JointOptimum:
    """Minimiser of prediction loss plus regulariser over encoders and allowed targets.

    Attributes
    ----------
    encoder
        W, (n, n); rows are latent coordinates, and a rotation of equal target variances is free.
    variances
        Diagonal of Λ, (n,), in the order of the encoder's rows.
    target
        L = RᵀΛR, (n, n): the target as the whitened state sees it.
    metric
        M = WᵀW, (n, n), in state coordinates; singular if collapsed.
    mean_regret
        Mean normalised regret over random lines with M and Q = I; nan if n = 1 or a direction collapsed (T5 and T6 need
        a definite metric).
    prediction_loss
        tr(WΣ_wWᵀ)/n.
    statistic
        E[R_N] at the optimum, without the weight.
    spectrum
        Eigenvalues of Λ^{−1/2} WΣWᵀ Λ^{−1/2}, (n,), descending: q_N each when the weight is large, 0 for a
        collapsed direction.
    rank
        Number of directions that did not collapse.
    collapsed
        Whether any did: features there are constant, the planner blind.
    """

    encoder: Array
    variances: Array
    target: Array
    metric: Array
    mean_regret: float
    prediction_loss: float
    statistic: float
    spectrum: Array
    rank: int
    collapsed: bool


def joint_optimum(
    state_cov: ArrayLike,
    noise_cov: ArrayLike,
    weight: float,
    batch_size: int,
    kappa: float = 1.0,
    *,
    knots: int = 17,
    t_max: float = 3.0,
    pair_correlation: float | None = None,
    starts: int | None = None,
    seed: int | np.random.Generator = 0,
) -> JointOptimum:
    """W, Λ = argmin of tr(WΣ_wWᵀ)/n + λ E[R_N(Λ^{−1/2} WΣWᵀ Λ^{−1/2})], tr Λ = n, max v ≤ κ min v.

    With G = Λ^{−1/2}WΣ^{1/2} and the relative noise N = Σ^{−1/2}Σ_wΣ^{−1/2} the objective is Σ_i v_i d_i/n +
    λ E[R_N(GGᵀ)], d_i = (GNGᵀ)_ii. It is linear in v, so the best Λ for a G is two-level (T4's rule for the d_i), and
    every iterate is feasible. What is left is smooth between changes of the level pattern and is descended with exact
    gradients:

    - in N's eigenbasis, G = diag(√p)Uᵀ, from one start per level pattern and one per number of faded directions. For
      κ = 1 the optimum lies there (von Neumann's trace inequality: E[R_N] sees only the spectrum of GGᵀ). For κ > 1 and
      n = 2 every stationary point elsewhere is a saddle: there NSLS ∝ I with S² = GᵀG, and the least statistic at fixed
      p₁p₂ is concave in √(p₁p₂) wherever it is attained at p₁ ≠ p₂ (checked numerically, not proved);
    - over all G from random starts, which has found no lower value in any case tried.

    Only N/λ enters: σ → 0 and λ → ∞ are one limit, M → q_N Σ^{−1/2}L*Σ^{−1/2} with T4's L*. The minimum over W is
    concave in v, so where T4 ties (N ∝ I, κ > 1), any finite weight breaks the tie towards two levels.

    Parameters
    ----------
    state_cov, noise_cov
        Σ, SPD (n, n), and Σ_w, positive semidefinite (n, n).
    weight
        Regulariser weight λ > 0.
    batch_size
        Samples N on the sample axis (pooled current and next features count both); E[R_N] contains the factor N.
    kappa
        Bound κ ≥ 1 on the condition number of Λ.
    knots, t_max, pair_correlation
        As for :func:`theory.sketch.expected_statistic`. A correlation of 0.6 between pooled current and next features
        moves the toy's mean regret by less than 3e-5 at N = 256.
    starts
        Random starts of the search over all G. Unless given, 4 up to dimension 8, and 0 above or if κ = 1.
    seed
        Seed or generator of those starts.

    Returns
    -------
    JointOptimum
        The lowest minimum found; whether it collapsed is in ``.collapsed``.

    Raises
    ------
    ValueError
        If a matrix is not (semi)definite, the weight is not positive, κ < 1, or a count is out of range.

    References
    ----------
    Derived here (docs/theory.md, T9).
    """
    state_cov = check_spd(state_cov, "state_cov")
    noise = relative_noise(state_cov, noise_cov)
    weight, kappa = check_scale(weight, "weight"), check_kappa(kappa)
    dim = noise.shape[0]
    starts = (4 if dim <= 8 and kappa > 1 else 0) if starts is None else check_count(starts, "starts", 0)
    statistic = SlicedStatistic(check_count(batch_size, "batch_size"), knots, t_max, pair_correlation)
    if noise.max() > 1e100 * weight:
        raise ValueError(f"weight must not vanish beside the relative noise, but it is {weight:.3g}.")
    problem = _Problem(noise, weight, kappa, statistic)
    best = min(problem.search_basis(), key=lambda candidate: candidate.value)
    for other in problem.search_all(starts, check_generator(seed, "seed")):
        if other.value < best.value - problem.rounding:
            best = other
    return _describe(problem, best, state_cov)


@dataclass(frozen=True)
class _Candidate:
    """G and v, with the objective divided by λ and the prediction loss."""

    factor: Array
    variances: Array
    value: float
    prediction_loss: float


@dataclass(frozen=True)
class _Problem:
    """Σ_i v_i d_i/(nλ) + E[R_N(GGᵀ)], the objective in units of λ."""

    noise: Array
    weight: float
    kappa: float
    statistic: SlicedStatistic

    @property
    def dim(self) -> int:
        return self.noise.shape[0]

    @property
    def rounding(self) -> float:
        """What the value is known to: E[R_N] is a difference of numbers as large as c₀."""
        return 1e-13 * self.statistic.offset

    def candidate(self, factor: Array, variances: Array | None = None) -> _Candidate:
        costs = np.einsum("ij,jk,ik->i", factor, self.noise, factor)
        variances = _allocate(costs, self.kappa) if variances is None else variances
        loss = float(variances @ costs) / self.dim
        spectrum = np.asarray(np.linalg.svd(factor, compute_uv=False), dtype=np.float64) ** 2
        return _Candidate(factor, variances, loss / self.weight + self.statistic.at_spectrum(spectrum)[0], loss)

    def search_basis(self) -> Iterator[_Candidate]:
        """Local minima in N's eigenbasis, G = diag(√p)Uᵀ."""
        levels, basis = np.linalg.eigh(self.noise)
        levels = np.clip(levels, 0.0, None)
        scale = isotropic_statistic(self.statistic) or 0.1
        starts = []
        # Without noise nothing chooses between targets, and L = I is returned.
        for high in _thin(self.dim if self.kappa > 1 and levels.any() else 0):
            starts.append((np.full(self.dim, scale), _two_levels(self.dim, high, self.kappa)))
        for faded in _thin(self.dim + 1)[1:]:
            spectrum = np.where(np.arange(self.dim) < self.dim - faded, scale, 1e-2 * scale)
            starts.append((spectrum, _allocate(levels * spectrum, self.kappa)))
            if self.kappa > 1 and faded < self.dim:
                # A direction that is given up can be the one that takes the high variance.
                starts.append((spectrum, _two_levels(self.dim, faded, self.kappa)[::-1]))
        for spectrum, variances in starts:
            spectrum, variances = self._descend_basis(levels, spectrum, variances)
            yield self.candidate(np.sqrt(spectrum)[:, None] * basis.T, variances)

    def _descend_basis(self, levels: Array, spectrum: Array, variances: Array) -> tuple[Array, Array]:
        """Alternate descent in p at fixed v with the best v at fixed p, until v stays.

        With little noise the level patterns differ by less than the rounding of E[R_N]; the costs d_i, small numbers
        known to as many digits, still tell them apart.
        """
        prices = levels / (self.dim * self.weight)
        for _ in range(2 * self.dim + 2):
            spectrum = self._descend_spectrum(prices * variances, spectrum)
            best = _allocate(levels * spectrum, self.kappa)
            if best @ (levels * spectrum) >= (variances @ (levels * spectrum)) * (1 - 1e-12):
                break
            variances = best
        return self._polish(prices * variances, spectrum), variances

    def _descend_spectrum(self, prices: Array, spectrum: Array) -> Array:
        """Local minimum over p ≥ 0 of Σ prices·p + E[R_N](p), with vanished entries exactly zero."""

        def objective(amplitude: Array) -> tuple[float, Array]:
            value, gradient = self.statistic.at_spectrum(amplitude**2)
            return float(prices @ amplitude**2) + value, 2 * amplitude * (prices + gradient)

        def hessian(amplitude: Array) -> Array:
            slopes, matrix = self.statistic.expand(amplitude**2)
            matrix *= 4 * np.outer(amplitude, amplitude)
            matrix[np.diag_indices_from(matrix)] += 2 * (prices + slopes)
            return matrix

        options: Any = {"gtol": 1e-5 * self.statistic.offset, "maxiter": 200}
        for _ in range(self.dim + 1):
            # In √p the bound p ≥ 0 is no constraint, and a vanishing direction is an ordinary minimum at 0.
            start = np.sqrt(spectrum)
            spectrum = minimize(objective, start, jac=True, hess=hessian, method="trust-exact", options=options).x ** 2
            small = spectrum < 1e-3 * max(1e-3, spectrum.max())
            spectrum[small] = 0.0
            revived = small & (prices + self.statistic.at_spectrum(spectrum)[1] < 0)
            if not revived.any():
                break
            spectrum[revived] = 1e-3
        return spectrum

    def _polish(self, prices: Array, spectrum: Array) -> Array:
        """Newton steps on ∂/∂p = 0 for the entries that are left, until rounding stops them.

        A trust region judges a step by the value, which rounding hides long before the gradient.
        """
        alive = spectrum > 0
        least = math.inf
        best = spectrum
        for _ in range(8 if alive.any() else 0):
            slopes, matrix = self.statistic.expand(spectrum)
            residual = (prices + slopes)[alive]
            size = float(np.abs(residual).max())
            if not size < 0.5 * least:
                break
            best, least = spectrum, size
            spectrum = spectrum.copy()
            spectrum[alive] -= np.linalg.solve(matrix[np.ix_(alive, alive)], residual)
            if not (spectrum[alive] > 0.5 * best[alive]).all():
                break
        return best

    def search_all(self, starts: int, rng: np.random.Generator) -> Iterator[_Candidate]:
        """Local minima over all G, from random starts."""
        scale = math.sqrt(isotropic_statistic(self.statistic) or 0.1)
        for _ in range(starts):
            start = rng.standard_normal(self.dim**2) * scale * math.exp(rng.uniform(-2.0, 0.5))
            solution = minimize(self._objective, start, jac=True, method="L-BFGS-B", options=_DESCENT)
            yield self.candidate(solution.x.reshape(self.dim, self.dim))

    def _objective(self, flat: Array) -> tuple[float, Array]:
        factor = flat.reshape(self.dim, self.dim)
        noisy = factor @ self.noise
        costs = np.einsum("ij,ij->i", noisy, factor)
        # The minimum over v is attained at one v, whose gradient is the minimum's (envelope theorem).
        prices = _allocate(costs, self.kappa) / (self.dim * self.weight)
        spectrum, vectors = np.linalg.eigh(factor @ factor.T)
        value, slopes = self.statistic.at_spectrum(np.clip(spectrum, 0.0, None))
        gradient = 2 * prices[:, None] * noisy + 2 * (vectors * slopes) @ (vectors.T @ factor)
        return float(prices @ costs) + value, gradient.ravel()


def _two_levels(dim: int, high: int, kappa: float) -> Array:
    """Target variances κm on the first ``high`` coordinates and m on the rest, with trace ``dim``."""
    variances = np.where(np.arange(dim) < high, kappa, 1.0)
    return variances * (dim / variances.sum())


def _allocate(costs: Array, kappa: float) -> Array:
    """Least Σ v_i d_i over Σ v_i = n, max v ≤ κ min v: v = κm on the k lowest costs, m on the rest; least such k."""
    order = np.argsort(costs, kind="stable")
    lowest = np.concatenate([[0.0], np.cumsum(costs[order])[:-1]])
    high = np.arange(costs.size)
    # Written with 1/κ, so that no product overflows at extreme κ.
    totals = costs.size / (high + (costs.size - high) / kappa) * (lowest + (costs.sum() - lowest) / kappa)
    variances = np.empty(costs.size)
    variances[order] = _two_levels(costs.size, int(np.argmin(totals)), kappa)
    return variances


def _thin(count: int) -> list[int]:
    """0..count − 1, thinned out evenly where that is more than can be tried; [0] if it is empty."""
    return sorted({round(index) for index in np.linspace(0, max(count - 1, 0), min(max(count, 1), _MAX_STARTS))})


def _describe(problem: _Problem, best: _Candidate, state_cov: Array) -> JointOptimum:
    dim = problem.dim
    left, scales, right = np.linalg.svd(best.factor)
    rotation = left @ right
    spectrum = np.where(scales**2 < _VANISHED, 0.0, scales**2)
    rank = int((spectrum > 0).sum())
    encoder = np.sqrt(best.variances)[:, None] * best.factor @ inv_sqrt_spd(state_cov)
    metric = symmetrize(encoder.T @ encoder)
    mean_regret = math.nan
    if rank == dim >= 2:
        from theory.regret import mean_line_regret

        try:
            mean_regret = float(mean_line_regret(metric))
        except ValueError:
            raise ValueError(
                "state_cov and kappa must be moderate: the optimal metric is singular to working precision."
            ) from None
    return JointOptimum(
        encoder=encoder,
        variances=best.variances,
        target=symmetrize((rotation.T * best.variances) @ rotation),
        metric=metric,
        mean_regret=mean_regret,
        prediction_loss=best.prediction_loss,
        statistic=problem.statistic.at_spectrum(spectrum)[0],
        spectrum=spectrum,
        rank=rank,
        collapsed=rank < dim,
    )
