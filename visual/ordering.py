"""Does the latent cost order outcomes? Agreement per pair over stored sequences, and how two models differ (T11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from theory.ordering import pairwise_agreement, rank_correlation
from visual.candidates import Candidates, action_block
from visual.checkpoint import WorldModel
from visual.data import Recording
from visual.environments import FRAME_COLUMN
from visual.evaluation import action_scaling
from visual.features import encode_frames
from visual.model import normalize_pixels
from visual.permutation import bootstrap_interval
from visual.rollout import terminal_latent
from visual.tasks import Task

_CHUNK = 64


@dataclass(frozen=True)
class Difference:
    """Mean difference of two models over pairs, with a paired bootstrap interval of 95 %."""

    count: int
    difference: float
    low: float
    high: float


def ordering_rows(
    model: WorldModel, task: Task, recording: Recording, candidates: Candidates, device: str = "cpu"
) -> pd.DataFrame:
    """Agreement and rank correlation of both costs with the outcomes, one row per pair.

    Returns
    -------
    DataFrame
        ``pair``, ``episode``, ``already_solved``, ``sequences``, ``agreement_enc``, ``agreement_pred``,
        ``correlation_enc``, ``correlation_pred``; nan where no two outcomes differ.

    Raises
    ------
    ValueError
        If the model does not fit the recording or the candidates (:func:`visual.candidates.action_block`).
    """
    encoded, predicted = latent_costs(model, task, recording, candidates, device)
    rows = []
    for index, outcomes in enumerate(candidates.outcomes):
        row: dict[str, Any] = {
            "pair": int(candidates.pairs[index]),
            "episode": int(candidates.episodes[index]),
            "already_solved": bool(candidates.solved[index]),
            "sequences": len(outcomes),
        }
        for name, statistic in (("agreement", pairwise_agreement), ("correlation", rank_correlation)):
            row[f"{name}_enc"] = statistic(encoded[index], outcomes)
            row[f"{name}_pred"] = statistic(predicted[index], outcomes)
        rows.append(row)
    return pd.DataFrame(rows)


def latent_costs(
    model: WorldModel, task: Task, recording: Recording, candidates: Candidates, device: str = "cpu"
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """J_enc and J_pred of every stored sequence, (P, S) each.

    J_enc = ‖enc(reached frame) − enc(goal frame)‖²,   J_pred = ‖ẑ_T(enc(start frame), a) − enc(goal frame)‖².
    """
    block = action_block(task, model, recording)
    scaling = action_scaling(model, recording)
    starts, goals = (rows[candidates.pairs] for rows in recording.rows_of(recording.pairs(task)))
    start, goal = (
        encode_images(model, recording.read(FRAME_COLUMN, rows), device).double().cpu() for rows in (starts, goals)
    )
    reached = encode_images(model, candidates.frames.reshape(-1, *candidates.frames.shape[2:]), device).double().cpu()
    reached = reached.reshape(*candidates.outcomes.shape, -1)
    count, sequences, horizon, width = candidates.actions.shape
    plans = torch.from_numpy(scaling.transform(candidates.actions).astype(np.float32))
    plans = plans.reshape(count, sequences, horizon // block, block * width).to(device)
    with torch.no_grad():
        ends = terminal_latent(model.model, start.float().to(device), plans).double().cpu()
    encoded, predicted = ((end - goal[:, None]).square().sum(dim=-1).numpy() for end in (reached, ends))
    return encoded, predicted


def paired_difference(
    first: ArrayLike, second: ArrayLike, groups: ArrayLike, *, seed: int = 0, resamples: int = 10_000
) -> Difference:
    """Mean of second − first over pairs, with the percentile interval when groups are drawn again with replacement.

    Parameters
    ----------
    first, second
        One number per pair, (n,); pairs with a nan are left out.
    groups
        Group of each pair, (n,): pairs from one episode are drawn together.
    seed, resamples
        Seed and number of draws.

    Raises
    ------
    ValueError
        If lengths differ or no pair is left.
    """
    one, two, labels = np.asarray(first, dtype=float), np.asarray(second, dtype=float), np.asarray(groups)
    if one.ndim != 1 or one.shape != two.shape or one.shape != labels.shape:
        raise ValueError(f"first, second and groups must be paired, but are {one.shape}, {two.shape}, {labels.shape}.")
    known = ~(np.isnan(one) | np.isnan(two))
    if not known.any():
        raise ValueError("first and second must share at least one pair.")
    change = (two - one)[known]
    low, high = bootstrap_interval(change, labels[known], seed=seed, resamples=resamples)
    return Difference(len(change), float(change.mean()), low, high)


def encode_images(model: WorldModel, frames: NDArray[np.uint8], device: str) -> Tensor:
    """Features (n, D) of frames (n, H, H, 3)."""
    parts = torch.from_numpy(np.ascontiguousarray(frames)).movedim(-1, -3).split(_CHUNK)
    return torch.cat([encode_frames(model.model, normalize_pixels(part.to(device))) for part in parts])
