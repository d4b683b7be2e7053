"""The metric that a trained encoder induces, from states and their latents."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from theory.estimate.bootstrap import (
    Interval,
    block_sums,
    block_weights,
    check_level,
    check_rows,
    percentiles,
    row_blocks,
    standardize,
)
from theory.regret.lines import mean_line_regret_of_stretches
from theory.spd import RANK_TOLERANCE, Array, check_spd, symmetrize


@dataclass(frozen=True, eq=False)
class MetricEstimate:
    """The metric of the best linear map from state to latent.

    Attributes
    ----------
    metric
        M = WᵀW, (n, n).
    encoder
        Least-squares W of z = Wx + b, (D, n).
    condition_number
        ρ(M, Q); infinite if M is singular, as for D < n.
    mean_regret, worst_regret
        What planning with M costs the task metric Q, over random lines and at worst; if M is singular nan and infinite
        (T5 and T6 need a definite metric), and both nan for n = 1.
    r_squared
        Share of the latents' total variance that the linear map explains. M describes the encoder to that extent;
        :func:`estimate_local_metrics` shows the rest.
    interval
        Lower and upper ends by name: "metric", "condition_number", "mean_regret", "worst_regret", "r_squared".
    level
        Coverage of the intervals.
    num_samples
        T.
    """

    metric: Array
    encoder: Array
    condition_number: float
    mean_regret: float
    worst_regret: float
    r_squared: float
    interval: dict[str, Interval]
    level: float
    num_samples: int


def estimate_metric(
    states: ArrayLike,
    latents: ArrayLike,
    *,
    task_metric: ArrayLike | None = None,
    episodes: ArrayLike | None = None,
    level: float = 0.95,
    resamples: int = 500,
    seed: int | np.random.Generator = 0,
) -> MetricEstimate:
    """M̂ = ŴᵀŴ, Ŵ = argmin Σ_t ‖z_t − z̄ − W(x_t − x̄)‖².

    Whatever the encoder does beyond a linear map adds about tr(S)Σ⁻¹/T to M̂, S the residual covariance of the latents:
    negligible unless T is small. A condition number near 1 is overestimated, and its interval cannot reach 1.

    Parameters
    ----------
    states, latents
        x, (T, n), and z, (T, D), row by row.
    task_metric
        Q, SPD (n, n); ``None`` is Q = I.
    episodes
        One label a row; rows of one episode are kept together by the bootstrap.
    level, resamples, seed
        Coverage of the percentile intervals, number of bootstrap draws (≥ 50) and their seed or generator.

    Returns
    -------
    MetricEstimate
        The metric and what it costs, with intervals.

    Raises
    ------
    ValueError
        If shapes differ, entries are not finite, there are fewer than n + 2 rows, states do not vary in some direction
        (which the message names), latents do not vary at all, or Q is not SPD.
    """
    states, latents = check_states_and_latents(states, latents)
    (count, dim), level = states.shape, check_level(level)
    if task_metric is not None:
        task_metric = check_spd(task_metric, "task_metric", dim)
    whitened, _, scale = standardize(states, "states")
    centered = latents - latents.mean(axis=0)
    spread = float(np.sqrt((centered**2).sum(axis=1).mean()))
    if spread <= 1e-12 * np.abs(latents).max():
        raise ValueError("latents must vary, but every row is the same: the encoder has collapsed.")
    encoder, r_squared = fit_encoder(whitened, centered)
    metric = metric_in_units(encoder, scale)
    costs = spectrum_costs(relative_spectrum(metric, task_metric))

    # The residuals' cross moments are not needed: the normal equations are, and the latents' total variance.
    blocks = row_blocks(count, (dim + 1) * (dim + latents.shape[1] + 1), episodes)
    weights = block_weights(blocks, resamples, seed) / count
    scaled = centered / spread
    rows = np.hstack([np.ones((count, 1)), whitened])
    moments = np.tensordot(weights, block_sums(rows, np.hstack([rows, scaled]), blocks), axes=1)
    moments = moments[:, 1:, 1:] - moments[:, 1:, :1] * moments[:, :1, 1:]
    means = weights @ block_sums(np.ones((count, 1)), scaled, blocks)[:, 0]
    total = weights @ block_sums(np.ones((count, 1)), (scaled**2).sum(axis=1, keepdims=True), blocks)[:, 0, 0]
    maps = np.linalg.solve(moments[:, :, :dim], moments[:, :, dim:])
    shares = np.einsum("rij,rij->r", maps, moments[:, :, dim:]) / (total - (means**2).sum(axis=1))
    metrics = np.stack([metric_in_units(spread * linear.T, scale) for linear in maps])
    draws = np.array([spectrum_costs(spectrum) for spectrum in relative_spectrum(metrics, task_metric)])
    names = ("condition_number", "mean_regret", "worst_regret")
    interval = {name: percentiles(draws[:, index], level) for index, name in enumerate(names)}
    interval |= {"metric": percentiles(metrics, level), "r_squared": percentiles(shares, level)}
    return MetricEstimate(
        metric=metric,
        encoder=encoder / scale,
        condition_number=costs[0],
        mean_regret=costs[1],
        worst_regret=costs[2],
        r_squared=r_squared,
        interval=interval,
        level=level,
        num_samples=count,
    )


def check_states_and_latents(states: ArrayLike, latents: ArrayLike) -> tuple[Array, Array]:
    """Return states (T, n) and latents (T, D) with T ≥ n + 2, or raise ``ValueError``."""
    states = check_rows(states, "states")
    count, dim = states.shape
    latents = check_rows(latents, "latents", count)
    for name, array in (("states", states), ("latents", latents)):
        if array.shape[1] == 0:
            raise ValueError(f"{name} must have at least one column.")
    if count < dim + 2:
        raise ValueError(f"states must have at least {dim + 2} rows for {dim} columns, but there are {count}.")
    return states, latents


def fit_encoder(regressors: Array, centered: Array) -> tuple[Array, float]:
    """Least-squares W (D, n) of centred latents (T, D) on centred regressors (T, n), and R² over all latents."""
    solution = np.asarray(np.linalg.lstsq(regressors, centered, rcond=None)[0], dtype=np.float64)
    residual = ((centered - regressors @ solution) ** 2).sum()
    return solution.T, float(1 - residual / (centered**2).sum())


def metric_in_units(encoder: Array, scale: Array) -> Array:
    """WᵀW for W (D, n) that acts on states divided by ``scale`` (n,)."""
    return symmetrize(encoder.T @ encoder) / np.outer(scale, scale)


def relative_spectrum(metrics: Array, task_metric: Array | None) -> Array:
    """Eigenvalues of M relative to Q, ascending, (..., n) for metrics (..., n, n)."""
    if task_metric is not None:
        root = np.linalg.cholesky(task_metric)
        half = np.linalg.solve(root, metrics)
        metrics = symmetrize(np.asarray(np.linalg.solve(root, np.swapaxes(half, -1, -2)), dtype=np.float64))
    return np.asarray(np.linalg.eigvalsh(metrics), dtype=np.float64)


def spectrum_costs(spectrum: Array) -> tuple[float, float, float]:
    """ρ, mean regret and worst regret from ascending eigenvalues μ (n,); (∞, nan, ∞) if one is zero to rounding."""
    low, high = float(spectrum[0]), float(spectrum[-1])
    if low <= spectrum.size * RANK_TOLERANCE * high:
        return math.inf, math.nan, math.inf if spectrum.size > 1 else math.nan
    if spectrum.size == 1:
        return 1.0, math.nan, math.nan
    return high / low, mean_line_regret_of_stretches(np.sqrt(spectrum)), (high - low) / low * (high - low) / high / 4
