"""The metric that a trained world model gives the planner, measured on held-out frames (docs/theory.md, T1, T2, T5).

States are those that the outcome measures, in units of the success threshold (``Task.scaled_state``), so that Q = I.
The metric of the best linear map from state to latent is what the theory speaks of; R² says how much of the latent it
is. Metrics of local linear maps say what the planner faces near a goal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from theory.estimate import LocalMetrics, estimate_local_metrics, estimate_metric
from visual.checkpoint import WorldModel
from visual.data import ClipDataset, Recording
from visual.features import encode_frames
from visual.model import normalize_pixels
from visual.tasks import Task, get_task

_CHUNK = 64
_LOCAL = (
    "local_condition_number",
    "local_mean_regret",
    "local_spread",
    "local_r_squared",
    "local_radius",
    "local_singular",
)


@dataclass(frozen=True, eq=False)
class Frames:
    """Frames as the theory sees them.

    Attributes
    ----------
    states, latents
        x in task units, (T, n), and z, (T, D).
    episodes
        Episode of each, (T,).
    """

    states: NDArray[np.float64]
    latents: NDArray[np.float64]
    episodes: NDArray[np.int64]


def measure_geometry(
    model: WorldModel,
    task: str | Task,
    recording: Recording,
    *,
    split: str = "planning",
    count: int = 3000,
    centers: int = 100,
    neighbors: int | None = None,
    draws: int = 200,
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, Any]:
    """Global and local metrics of an encoder over the frames of held-out episodes.

    Parameters
    ----------
    model, task, recording
        The model, the task and its recording.
    split, count
        Which episodes, and at most how many frames of them.
    centers, neighbors
        Number of local maps and frames per map, as :func:`theory.estimate.estimate_local_metrics`.
    draws, seed
        Bootstrap draws over episodes, and the seed of these, the frames and the centres.
    device
        Where to encode.

    Returns
    -------
    dict
        ``frames``, ``dim``; ``condition_number``, ``mean_regret``, ``worst_regret``, ``r_squared``, each with
        ``…_low`` and ``…_high`` (95 %); ``metric`` (nested lists); ``local_condition_number`` (median),
        ``local_mean_regret`` (mean), ``local_spread`` (median), ``local_r_squared`` (median), ``local_radius``
        (median, in standard deviations of the states), ``local_singular``. What a singular metric does not have is
        ``None``, and so are all local numbers where some state does not vary in a neighbourhood.

    Raises
    ------
    ValueError
        If the states do not vary, the encoder has collapsed, or there are too few frames.

    References
    ----------
    Derived here; estimates as :mod:`theory.estimate`.
    """
    frames = held_out_frames(model, task, recording, split=split, count=count, seed=seed, device=device)
    return geometry_of(frames, centers=centers, neighbors=neighbors, draws=draws, seed=seed)


def held_out_frames(
    model: WorldModel,
    task: str | Task,
    recording: Recording,
    *,
    split: str = "planning",
    count: int = 3000,
    seed: int = 0,
    device: str = "cpu",
) -> Frames:
    """States and latents of frames of held-out episodes; parameters and errors as :func:`measure_geometry`."""
    task = get_task(task)
    clips = ClipDataset(recording.manifest or recording.path, split, 1, 1, verify=False)
    chosen = torch.from_numpy(np.sort(np.random.default_rng(seed).permutation(len(clips))[:count]))
    rows = clips.rows(chosen)
    states = task.scaled_state(recording.read_state(task, rows))
    for coordinate, period in task.scaled_periods.items():
        states[:, coordinate] = _in_one_turn(states[:, coordinate], period)
    with torch.no_grad():
        parts = [
            encode_frames(model.model, normalize_pixels(clips.batch(part)[0][:, 0].to(device)))
            for part in chosen.split(_CHUNK)
        ]
    latents = torch.cat(parts).double().cpu().numpy()
    return Frames(states, latents, np.searchsorted(recording.offsets, rows, side="right") - 1)


def geometry_of(
    frames: Frames, *, centers: int = 100, neighbors: int | None = None, draws: int = 200, seed: int = 0
) -> dict[str, Any]:
    """What :func:`measure_geometry` returns, of frames at hand."""
    states, latents, episodes = frames.states, frames.latents, frames.episodes
    whole = estimate_metric(states, latents, episodes=episodes, resamples=draws, seed=seed)
    local = local_metrics(frames, centers=centers, neighbors=neighbors, seed=seed)
    found: dict[str, Any] = {"frames": len(states), "dim": states.shape[1], "metric": whole.metric.tolist()}
    for name in ("condition_number", "mean_regret", "worst_regret", "r_squared"):
        low, high = whole.interval[name]
        found |= {name: number(getattr(whole, name)), f"{name}_low": number(low), f"{name}_high": number(high)}
    if local is None:
        return found | dict.fromkeys(_LOCAL)
    return found | {
        "local_condition_number": number(np.median(local.condition_numbers)),
        "local_mean_regret": number(local.mean_regret),
        "local_spread": _median_of_known(local.spread),
        "local_r_squared": float(np.median(local.r_squared)),
        "local_radius": float(np.median(local.radii)),
        "local_singular": local.num_singular,
    }


def local_metrics(
    frames: Frames, *, centers: int = 100, neighbors: int | None = None, seed: int = 0
) -> LocalMetrics | None:
    """Metrics of local linear maps (:func:`theory.estimate.estimate_local_metrics`).

    ``None`` where a state is constant in a neighbourhood: a cube lies on its table.
    """
    number = min(centers, len(frames.states))
    try:
        return estimate_local_metrics(frames.states, frames.latents, centers=number, neighbors=neighbors, seed=seed)
    except ValueError:
        return None


def _in_one_turn(angles: np.ndarray, period: float) -> np.ndarray:
    """Angles in one turn around their circular mean, where they are densest."""
    center = np.angle(np.exp(2j * np.pi * angles / period).mean()) * period / (2 * np.pi)
    return np.asarray((angles - center + period / 2) % period + center - period / 2)


def number(value: Any) -> float | None:
    """A finite number, or ``None``, as JSON has it."""
    return float(value) if np.isfinite(value) else None


def _median_of_known(values: np.ndarray) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None


def describe(found: dict[str, Any]) -> str:
    """One sentence on the metric the planner gets."""
    share = (
        f"The best linear map from the {found['dim']} states to the latent explains {100 * found['r_squared']:.0f} % "
        "of its variance"
    )
    if found["mean_regret"] is None:
        return f"{share}; its metric is singular: some state does not show in the latent."
    whole = (
        f"{share}; its metric has condition number {found['condition_number']:.2f} "
        f"[{found['condition_number_low']:.2f}, {found['condition_number_high']:.2f}] against the task's, for which "
        f"the theory gives a mean regret of {found['mean_regret']:.3f}."
    )
    if found["local_r_squared"] is None:
        return f"{whole} Local maps were not fitted: some state does not vary among neighbours."
    return (
        f"{whole} Local maps explain {100 * found['local_r_squared']:.0f} %, with "
        f"{_text(found['local_condition_number'])} as median condition number and a mean regret of "
        f"{_text(found['local_mean_regret'])}."
    )


def _text(value: float | None) -> str:
    return "no finite value" if value is None else f"{value:.3g}"
