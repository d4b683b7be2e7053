"""What another κ would make of a trained model's latents: the regret of the metric, before anything is trained with it.

Of a model of κ = 1, to look ahead, take the features u and the second moments N of their one-step residuals. Move the
target and let the features follow (:mod:`visual.allocation`): z(κ) = Λ(κ)^{1/2}u, Λ(κ) = ``optimal_target(N, κ)``, the
covariance of least prediction error. Spare directions, which have next to no residual, come first by themselves (T12).
The metric of the best linear map from the states to z(κ), in units of the success threshold, has the regret of T5; at
κ = 1 it is the measured one. Against :mod:`visual.advice`, which knows the logged states alone, this forecast knows
what the encoder made of them, and how much else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.estimate import estimate_metric
from theory.spd import check_array
from theory.target import optimal_target
from visual.advice import KAPPAS
from visual.geometry import Frames, local_metrics, number

_NAMES = ("mean_regret", "condition_number")


def forecast_regret(
    frames: Frames,
    residuals: ArrayLike,
    kappas: Sequence[float] = KAPPAS,
    *,
    draws: int = 100,
    centers: int = 100,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Mean regret of the metric of z(κ) = Λ(κ)^{1/2}u for each κ, of a model whose target is the identity.

    Parameters
    ----------
    frames
        States and latents u of held-out frames.
    residuals
        û − u of held-out clips, (K, D).
    kappas
        κ ≥ 1.
    draws, centers, seed
        Bootstrap draws over episodes; number of local maps; the seed of both.

    Returns
    -------
    list
        One dictionary per κ: ``kappa``; ``mean_regret`` and ``condition_number`` of the best linear map from the
        states, each with ``…_low`` and ``…_high`` (95 %), ``None`` where the metric is singular; ``local_mean_regret``,
        the mean over local linear maps, as :func:`visual.geometry.measure_geometry` has it; ``num_high``, how many
        directions are on the high level.

    Raises
    ------
    ValueError
        If shapes disagree, a κ is below 1, or as :func:`theory.estimate.estimate_metric`.

    References
    ----------
    Derived here (docs/theory.md, T12, T5).
    """
    residuals = check_array(residuals, "residuals", ndim=2)
    if residuals.shape[1] != frames.latents.shape[1]:
        raise ValueError(
            f"frames and residuals must have the same latent dimension, but they have {frames.latents.shape[1]} and "
            f"{residuals.shape[1]}."
        )
    noise = residuals.T @ residuals / len(residuals)
    rows = []
    for kappa in kappas:
        target = optimal_target(noise, kappa)
        scaled = replace(frames, latents=frames.latents @ _square_root(target.matrix))
        found = estimate_metric(scaled.states, scaled.latents, episodes=scaled.episodes, resamples=draws, seed=seed)
        local = local_metrics(scaled, centers=centers, seed=seed)
        row: dict[str, Any] = {"kappa": float(kappa)}
        for name in _NAMES:
            low, high = found.interval[name]
            values = {name: getattr(found, name), f"{name}_low": low, f"{name}_high": high}
            row |= {key: number(value) for key, value in values.items()}
        row["local_mean_regret"] = None if local is None else number(local.mean_regret)
        rows.append(row | {"num_high": target.num_high})
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
    at = ", ".join(_at(row) for row in rows if row["kappa"] in (1, 2, 4) and row["mean_regret"] is not None)
    largest = max(row["kappa"] for row in rows)
    return (
        f"Scaled as prediction asks for, the best linear map to these latents would have a mean regret of {at}; the "
        f"least is at κ = {kappa:g} (of {len(rows)} values up to {largest:g})."
    )


def _at(row: dict[str, Any]) -> str:
    local = "" if row["local_mean_regret"] is None else f" (local maps {row['local_mean_regret']:.3f})"
    interval = f"[{row['mean_regret_low']:.3f}, {row['mean_regret_high']:.3f}]"
    return f"{row['mean_regret']:.3f} {interval}{local} at κ = {row['kappa']:g}"


def _square_root(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(values)) @ vectors.T)
