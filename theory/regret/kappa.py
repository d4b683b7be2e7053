"""Regret against κ, the bound that ΛReg sets on the target's condition number, and the best κ (T7)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from theory.metric import anisotropic_metric
from theory.regret.lines import mean_line_regret, mean_line_regret_of_stretches, worst_regret
from theory.spd import Array, check_array, check_kappa, check_spd, condition_number, inv_sqrt_spd
from theory.target import TIE_TOLERANCE, optimal_target, relative_noise

if TYPE_CHECKING:
    import pandas as pd

#: Largest step in ln κ between two looks at the curve, before a minimum is refined.
_LOG_STEP = 0.1


def regret_curve(
    state_cov: ArrayLike, noise_cov: ArrayLike, kappas: ArrayLike, task_metric: ArrayLike | None = None
) -> pd.DataFrame:
    """Regret of the metric that ΛReg settles at, M(κ) = Σ^{-1/2} L*(κ) Σ^{-1/2}, for each κ.

    L*(κ) is what prediction chooses among the targets of condition number ≤ κ, as the noise vanishes (docs/theory.md,
    T4). With n = 2, isotropic noise and Q = I: mean regret = cosh(½ ln(κ/c)) − 1, c the condition number of Σ.

    Parameters
    ----------
    state_cov
        State covariance Σ ≻ 0, shape (n, n), n ≥ 2.
    noise_cov
        Process-noise covariance Σ_w ⪰ 0, shape (n, n); its scale does not matter.
    kappas
        κ ≥ 1, shape (m,), m ≥ 1.
    task_metric
        Q ≻ 0, shape (n, n); ``None`` is Q = I.

    Returns
    -------
    pandas.DataFrame
        One row per κ, in the order given: ``kappa``, ``mean_regret`` (:func:`theory.regret.mean_line_regret`),
        ``worst_regret``, ``condition_number`` ρ(M, Q) and ``num_high``, how many directions take the high variance.

    Raises
    ------
    ValueError
        If a matrix does not qualify, shapes differ, ``kappas`` is empty or a κ is below 1 or infinite.

    References
    ----------
    Derived here (docs/theory.md, T7).
    """
    import pandas as pd

    kappas = np.atleast_1d(check_array(kappas, "kappas"))
    if kappas.ndim != 1 or kappas.size == 0:
        raise ValueError(f"kappas must be a vector of at least one κ, but its shape is {kappas.shape}.")
    noise = relative_noise(state_cov, noise_cov)
    if noise.shape[0] < 2:
        raise ValueError("state_cov must be at least 2 × 2: a line fills a space of one dimension.")
    if task_metric is not None:
        task_metric = check_spd(task_metric, "task_metric", noise.shape[0])
    rows = []
    for kappa in kappas:
        target = optimal_target(noise, check_kappa(kappa, "kappas"))
        metric = _metric(state_cov, target.matrix, kappa)
        rows.append(
            {
                "kappa": float(kappa),
                "mean_regret": mean_line_regret(metric, task_metric),
                "worst_regret": worst_regret(metric, task_metric),
                "condition_number": condition_number(metric, task_metric),
                "num_high": target.num_high,
            }
        )
    return pd.DataFrame(rows)


def _metric(state_cov: ArrayLike, target: Array, kappa: float) -> Array:
    """The metric that ΛReg settles at; a κ so large that float64 cannot tell it from a singular one is refused."""
    try:
        return check_spd(anisotropic_metric(state_cov, target), "metric")
    except ValueError:
        raise ValueError(
            f"kappas must leave a metric that is positive definite to working precision, but κ = {kappa:.6g} does not."
        ) from None


@dataclass(frozen=True)
class BestKappa:
    """The κ of least mean regret.

    Attributes
    ----------
    kappa
        κ ≥ 1; exactly 1 where a wider target helps nothing.
    mean_regret
        Mean normalised regret over random lines at that κ.
    """

    kappa: float
    mean_regret: float


def best_kappa(state_cov: ArrayLike, noise_cov: ArrayLike, task_metric: ArrayLike | None = None) -> BestKappa:
    """The κ of least :func:`regret_curve` mean regret: 1 where ΛReg hurts, c q₁/q₂ in T7's two-dimensional case.

    L*(κ) is two-level, and the k-th direction in order of relative noise ν₁ ≤ … ≤ νₙ is high exactly for κ < κ_k,

        κ_k = Σ_{j>k} (ν_j − ν_k) / Σ_{j<k} (ν_k − ν_j),

    which falls with k. So the curve is smooth between neighbouring κ_k and jumps at them, and each piece is searched by
    itself: sampled at steps of at most 0.1 in ln κ, and every local minimum within a piece refined by bounded
    minimisation. At κ_k itself direction k is low, by the rule for ties of :func:`theory.target.optimal_target`, though
    leaving it high would be as good for prediction; where a piece falls all the way to such an end the answer is the
    last κ before it that is not a tie to working precision.

    In two dimensions there is one piece and nothing to search: with u₁, u₂ the eigenvectors of N, the less noisy first,
    and b_i = Q^{-1/2}Σ^{-1/2}u_i, the best κ is max(1, |b₂|²/|b₁|²), and where that exceeds 1 the regret left is
    1/sin∠(b₁, b₂) − 1.

    Parameters
    ----------
    state_cov
        State covariance Σ ≻ 0, shape (n, n), n ≥ 2.
    noise_cov
        Process-noise covariance Σ_w ⪰ 0, shape (n, n); its scale does not matter.
    task_metric
        Q ≻ 0, shape (n, n); ``None`` is Q = I.

    Returns
    -------
    BestKappa
        ``kappa`` (exact for n = 2; otherwise relative accuracy about 1e-8, at a minimum that is flat; one within
        :data:`theory.target.TIE_TOLERANCE` of 1 is 1) and ``mean_regret``.

    Raises
    ------
    ValueError
        If a matrix does not qualify or shapes differ.

    Notes
    -----
    The last piece is searched up to 100 times the larger of its lower end and the condition number of Σ^{1/2}QΣ^{1/2},
    at which a two-level target can match the task at best.

    References
    ----------
    Derived here (docs/theory.md, T4 and T7).
    """
    noise = relative_noise(state_cov, noise_cov)
    levels, vectors = np.linalg.eigh(noise)
    dim = levels.size
    # M = Σ^{-1/2}UlUᵀΣ^{-1/2} for levels l of L. Relative to Q its eigenvalues are squared singular values of √l·G.
    whitener = inv_sqrt_spd(check_spd(state_cov, "state_cov"))
    if dim < 2:
        raise ValueError("state_cov must be at least 2 × 2: a line fills a space of one dimension.")
    gain = vectors.T @ whitener
    if task_metric is not None:
        task_factor = np.linalg.cholesky(check_spd(task_metric, "task_metric", dim))
        gain = np.linalg.solve(task_factor, gain.T).T

    def regret(log_kappa: float, num_high: int) -> float:
        roots = np.where(np.arange(dim) < num_high, math.exp(log_kappa / 2), 1.0)
        stretches = np.linalg.svd(roots[:, None] * gain, compute_uv=False)[::-1]
        return mean_line_regret_of_stretches(np.asarray(stretches, dtype=np.float64))

    if dim == 2:
        # κ b₁b₁ᵀ + b₂b₂ᵀ is roundest where its two parts have equal traces; gain's rows are the b_i.
        plane = float(gain[1] @ gain[1]) / float(gain[0] @ gain[0])
        # Where Σ ∝ Q⁻¹ this is 1 but for rounding, and which way it rounds depends on the processor.
        helps = plane > 1 + TIE_TOLERANCE and optimal_target(noise, plane).num_high > 0
        kappa = plane if helps else 1.0
        target = optimal_target(noise, kappa)
        return BestKappa(kappa, mean_line_regret(anisotropic_metric(state_cov, target.matrix), task_metric))

    best_log, best = 0.0, regret(0.0, 0)
    end = 2 * math.log(np.linalg.cond(gain)) + math.log(100.0)
    brackets = []
    for num_high, low, high in _pieces(np.clip(levels, 0.0, None)):
        brackets += _brackets(partial(regret, num_high=num_high), low, min(high, max(end, low + math.log(100.0))))
    # The most promising first: then few of the others can still compete.
    for bracket in sorted(brackets, key=lambda bracket: bracket.value):
        if bracket.value < best:
            best_log, best = bracket.log_kappa, bracket.value
        if bracket.bound < best:
            log_kappa, value = bracket.refine()
            if value < best:
                best_log, best = log_kappa, value
    # A minimum this close to κ = 1 is one of rounding: the curve is flat there to its square.
    kappa = math.exp(best_log) if best_log > TIE_TOLERANCE else 1.0
    metric = anisotropic_metric(state_cov, optimal_target(noise, kappa).matrix)
    return BestKappa(kappa, mean_line_regret(metric, task_metric))


def _pieces(levels: Array) -> list[tuple[int, float, float]]:
    """(k, ln κ from, ln κ to) for each number k of high directions that some κ > 1 gives, from ascending ν (n,)."""
    dim = levels.size
    pieces, low = [], 0.0
    for num_high in range(dim - 1, 0, -1):
        inside, outside = levels[:num_high], levels[num_high:]
        # κ_k, just inside the tolerance to which a tie is a tie; ν_k in a group of equals shares its end.
        edge = inside[-1] * (1 + 2 * TIE_TOLERANCE)
        gain, loss = float((outside - edge).sum()), float((edge - inside).sum())
        if gain <= loss:
            continue
        high = math.log(gain / loss) if loss > 0 else math.inf
        if high > low:
            pieces.append((num_high, low, high))
            exact = float((inside[-1] - inside).sum())
            low = math.log(float((outside - inside[-1]).sum()) / exact) if exact > 0 else math.inf
    return pieces


@dataclass(frozen=True)
class _Bracket:
    """A sampled local minimum of a smooth piece of the curve, between its two neighbours."""

    function: Callable[[float], float]
    log_kappa: float
    value: float
    low: float
    high: float

    @property
    def bound(self) -> float:
        """What the curve cannot fall below between the neighbours.

        Slopes in ln κ are at most ½√(f(f + 2)) for n = 2, and none steeper was seen for n > 2; twice that is allowed.
        """
        step = max(self.high - self.log_kappa, self.log_kappa - self.low)
        return self.value - step * math.sqrt(self.value * (self.value + 2))

    def refine(self) -> tuple[float, float]:
        """The minimum's ln κ and value."""
        from scipy.optimize import minimize_scalar

        bounds = self.low, self.high
        found = minimize_scalar(
            self.function, bounds=bounds, method="bounded", options={"xatol": 1e-11, "maxiter": 200}
        )
        return float(found.x), float(found.fun)


def _brackets(function: Callable[[float], float], low: float, high: float) -> list[_Bracket]:
    """Local minima of a smooth function sampled on [low, high] at steps of at most 0.1, the ends included."""
    points = np.linspace(low, high, max(3, math.ceil((high - low) / _LOG_STEP) + 1)).tolist()
    values = [function(point) for point in points]
    padded = [math.inf, *values, math.inf]
    last = len(points) - 1
    return [
        _Bracket(function, points[i], values[i], points[max(i - 1, 0)], points[min(i + 1, last)])
        for i in range(last + 1)
        if values[i] <= min(padded[i], padded[i + 2])
    ]
