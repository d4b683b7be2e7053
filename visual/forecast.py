"""What another κ would make of a trained model's latents: the regret of the metric, before anything is trained with it.

Of a model (of κ = 1, to look ahead) take the directions that its features fill, whitened, u = Wᵀz, and their relative
noise N. T12 says which covariance Λ(κ) ΛReg asks for in them, spare dimensions first; an encoder that follows gives the
planner z(κ) = Λ(κ)^{1/2}u. The metric of the best linear map from the states to z(κ), in units of the success
threshold, has the regret of T5. Against :mod:`visual.advice`, which knows the logged states alone, this forecast knows
what the encoder made of them, and how much else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.estimate import estimate_metric
from theory.spd import check_array
from theory.target import optimal_target
from visual.advice import KAPPAS
from visual.geometry import Frames
from visual.occupancy import filled_directions

_NAMES = ("mean_regret", "condition_number")


def forecast_regret(
    frames: Frames,
    features: ArrayLike,
    residuals: ArrayLike,
    kappas: Sequence[float] = KAPPAS,
    *,
    draws: int = 100,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Mean regret of the metric of z(κ) = Λ(κ)^{1/2}u for each κ.

    Parameters
    ----------
    frames
        States and latents of held-out frames.
    features, residuals
        z (M, D) and ẑ − z (K, D) of held-out clips.
    kappas
        κ ≥ 1.
    draws, seed
        Bootstrap draws over episodes, and their seed.

    Returns
    -------
    list
        One dictionary per κ: ``kappa``; ``mean_regret`` and ``condition_number`` of the best linear map from the
        states, each with ``…_low`` and ``…_high`` (95 %), ``None`` where the metric is singular; ``num_high`` and
        ``num_high_filled``, the directions on the high level, and how many of them the features fill.

    Raises
    ------
    ValueError
        If shapes disagree, the features do not vary, a κ is below 1, or as :func:`theory.estimate.estimate_metric`.

    References
    ----------
    Derived here (docs/theory.md, T12, T5).
    """
    features, residuals = check_array(features, "features", ndim=2), check_array(residuals, "residuals", ndim=2)
    dim = features.shape[1]
    if residuals.shape[1] != dim or frames.latents.shape[1] != dim:
        raise ValueError(
            f"frames, features and residuals must have the same latent dimension, but they have "
            f"{frames.latents.shape[1]}, {dim} and {residuals.shape[1]}."
        )
    _, whitening, noise = filled_directions(features, residuals)
    whitened = (frames.latents - features.mean(axis=0)) @ whitening
    spare = dim - whitening.shape[1]
    rows = []
    for kappa in kappas:
        target = optimal_target(noise, kappa, latent_dim=dim)
        found = estimate_metric(
            frames.states, whitened @ _square_root(target.matrix), episodes=frames.episodes, resamples=draws, seed=seed
        )
        row: dict[str, Any] = {"kappa": float(kappa)}
        for name in _NAMES:
            low, high = found.interval[name]
            values = {name: getattr(found, name), f"{name}_low": low, f"{name}_high": high}
            row |= {key: float(value) if np.isfinite(value) else None for key, value in values.items()}
        rows.append(row | {"num_high": target.num_high, "num_high_filled": max(0, target.num_high - spare)})
    return rows


def best(rows: Sequence[dict[str, Any]]) -> float | None:
    """The κ of least mean regret, the smallest of equals; ``None`` if no metric is regular."""
    known = [row for row in rows if row["mean_regret"] is not None]
    return min(known, key=lambda row: (row["mean_regret"], row["kappa"]))["kappa"] if known else None


def describe(rows: Sequence[dict[str, Any]]) -> str:
    """One sentence."""
    kappa = best(rows)
    if kappa is None:
        return "What another κ would make of these latents cannot be said: some state does not show in them."
    at = ", ".join(
        f"{row['mean_regret']:.3f} [{row['mean_regret_low']:.3f}, {row['mean_regret_high']:.3f}] at κ = "
        f"{row['kappa']:g}"
        for row in rows
        if row["kappa"] in (1, 2, 4) and row["mean_regret"] is not None
    )
    return (
        "Scaled as the theory of over-complete latents says, these latents' best linear map would have a mean regret "
        f"of {at}; the least is at κ = {kappa:g} (of {len(rows)} values up to {max(row['kappa'] for row in rows):g})."
    )


def _square_root(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(values)) @ vectors.T)
