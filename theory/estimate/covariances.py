"""State covariance and process noise from logged transitions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from theory.estimate.bootstrap import (
    Interval,
    block_sums,
    block_weights,
    check_independent,
    check_level,
    check_rows,
    percentiles,
    row_blocks,
    standardize,
)
from theory.spd import Array, symmetrize


@dataclass(frozen=True, eq=False)
class CovarianceEstimate:
    """What logged transitions say about Σ and Σ_w.

    Attributes
    ----------
    state_cov
        Sample covariance of the states, (n, n).
    noise_cov
        Residual covariance of next states given states and actions, (n, n), unbiased under the linear model.
    dynamics, action_gain, offset
        Least-squares A (n, n), B (n, m) and b (n,) of x' = Ax + Ba + b + w.
    interval
        Lower and upper ends by name: "state_cov" and "noise_cov" entry by entry, (n, n) each, and "relative_noise", the
        eigenvalues of N = Σ^{-1/2}Σ_wΣ^{-1/2} in ascending order, (n,) each.
    level
        Coverage of the intervals.
    state_cov_draws, noise_cov_draws
        Bootstrap draws behind the intervals, (resamples, n, n), to carry the uncertainty to functions of both.
    num_transitions, degrees_of_freedom
        T, and T − n − m − 1 for the residuals.
    """

    state_cov: Array
    noise_cov: Array
    dynamics: Array
    action_gain: Array
    offset: Array
    interval: dict[str, Interval]
    level: float
    state_cov_draws: Array
    noise_cov_draws: Array
    num_transitions: int
    degrees_of_freedom: int


def estimate_covariances(
    states: ArrayLike,
    next_states: ArrayLike,
    actions: ArrayLike,
    *,
    episodes: ArrayLike | None = None,
    level: float = 0.95,
    resamples: int = 500,
    seed: int | np.random.Generator = 0,
) -> CovarianceEstimate:
    """Σ̂ = XᵀX/(T − 1), Σ̂_w = RᵀR/(T − n − m − 1): centred states X, residuals R of next states on states and actions.

    If the dynamics are not linear, what the regression cannot follow counts as noise, and Σ̂_w is too large; that is
    also what a predictor that is linear in the latent would face.

    Parameters
    ----------
    states, next_states
        x and x', (T, n), row t of one following row t of the other.
    actions
        a, (T, m); (T, 0) for a system without actions.
    episodes
        One label a row. Rows of one episode are correlated, and the bootstrap keeps them together; a handful of
        episodes gives intervals that are too narrow. Without labels, consecutive rows in at most 1,000 blocks.
    level, resamples, seed
        Coverage of the percentile intervals, number of bootstrap draws (≥ 50) and their seed or generator.

    Returns
    -------
    CovarianceEstimate
        ``state_cov``, ``noise_cov``, ``interval`` and what else the regression gives.

    Raises
    ------
    ValueError
        If shapes differ, entries are not finite, there are fewer than 2n + m + 1 rows (the residual covariance would be
        singular), or states or actions do not vary in some direction, which the message names: a logged constant or
        duplicate, a cos of an angle that hardly moves, actions that are a linear function of the states.
    """
    states = check_rows(states, "states")
    count, dim = states.shape
    if dim == 0:
        raise ValueError("states must have at least one column.")
    next_states = check_rows(next_states, "next_states", count, dim)
    actions = check_rows(actions, "actions", count)
    action_dim = actions.shape[1]
    level = check_level(level)
    freedom = count - dim - action_dim - 1
    if freedom < dim:
        raise ValueError(
            f"states must have at least {2 * dim + action_dim + 1} rows for {dim} state and {action_dim} action "
            f"columns, but there are {count}."
        )
    whitened, center, scale = standardize(states, "states")
    driven, action_center, action_scale = standardize(actions, "actions")
    regressors = np.hstack([whitened, driven])
    scales = np.concatenate([scale, action_scale])
    check_independent(
        regressors, scales, "actions must not be a linear function of states, but (states, actions) are constant along"
    )

    mean = next_states.mean(axis=0)
    target = next_states - mean
    gain = np.linalg.lstsq(regressors, target, rcond=None)[0]
    residuals = target - regressors @ gain
    gain = (gain / scales[:, None]).T
    dynamics, action_gain = gain[:, :dim], gain[:, dim:]
    state_cov = symmetrize(whitened.T @ whitened) * np.outer(scale, scale) / (count - 1)
    noise_cov = symmetrize(residuals.T @ residuals / freedom)

    state_draws, noise_draws = _draws(regressors, residuals / scale, freedom, episodes, resamples, seed)
    levels = _relative_levels(state_draws, noise_draws)
    state_draws *= np.outer(scale, scale)
    noise_draws *= np.outer(scale, scale)
    interval = {
        "state_cov": percentiles(state_draws, level),
        "noise_cov": percentiles(noise_draws, level),
        "relative_noise": percentiles(levels, level),
    }
    return CovarianceEstimate(
        state_cov=state_cov,
        noise_cov=noise_cov,
        dynamics=dynamics,
        action_gain=action_gain,
        offset=mean - dynamics @ center - action_gain @ action_center,
        interval=interval,
        level=level,
        state_cov_draws=state_draws,
        noise_cov_draws=noise_draws,
        num_transitions=count,
        degrees_of_freedom=freedom,
    )


def _draws(
    regressors: Array,
    residuals: Array,
    freedom: int,
    episodes: ArrayLike | None,
    resamples: int,
    seed: int | np.random.Generator,
) -> tuple[Array, Array]:
    """Bootstrap draws of the two covariances in standardised units, each regressed afresh."""
    (count, dim), size = residuals.shape, regressors.shape[1] + residuals.shape[1]
    # Residuals stand for next states: they differ by a linear function of the regressors, which a regression removes.
    rows = np.hstack([regressors, residuals])
    blocks = row_blocks(count, (size + 1) * size, episodes)
    weights = block_weights(blocks, resamples, seed) / count
    means = weights @ block_sums(np.ones((count, 1)), rows, blocks)[:, 0]
    moments = np.tensordot(weights, block_sums(rows, rows, blocks), axes=1)
    moments -= means[:, :, None] * means[:, None, :]
    given, cross, total = moments[:, :-dim, :-dim], moments[:, :-dim, -dim:], moments[:, -dim:, -dim:]
    noise: Array = symmetrize(total - np.swapaxes(cross, 1, 2) @ np.linalg.solve(given, cross))
    # A draw loses the degrees of freedom once more, so that the correction enters twice.
    return moments[:, :dim, :dim] * (count / (count - 1)) ** 2, noise * (count / freedom) ** 2


def _relative_levels(state_draws: Array, noise_draws: Array) -> Array:
    """Eigenvalues of Σ^{-1/2}Σ_wΣ^{-1/2} for each draw, ascending, (resamples, n)."""
    root = np.linalg.cholesky(state_draws)
    half = np.linalg.solve(root, noise_draws)
    whitened: Array = np.asarray(np.linalg.solve(root, np.swapaxes(half, 1, 2)), dtype=np.float64)
    return np.asarray(np.linalg.eigvalsh(symmetrize(whitened)), dtype=np.float64)
