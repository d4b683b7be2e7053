"""What a world model's latent space says about planning: one run per model, and what it found in words.

- Ordering (T11): does the cost order the outcomes of the stored sequences? ``J_enc`` = ‖enc(reached) − enc(goal)‖²
  measures the encoder alone, ``J_pred`` is the planner's cost with the predictor's rollout in it.
- Neighbourhoods: does the latent cost grow with the distance from a goal (:mod:`visual.neighborhoods`)?
- Allocation (T4): which coordinates got large variance, and are they those that predict well
  (:mod:`visual.allocation`)?

Any LeWM-style checkpoint can be diagnosed; without a target beside it, what concerns the target is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from theory.runs import describe_finished, finished_run, open_run, read_rows, read_run
from visual.allocation import Allocation, allocate, predict_clips
from visual.candidates import (
    Budget,
    Candidates,
    action_block,
    candidates_folder,
    make_candidates,
)
from visual.checkpoint import (
    FOLDER,
    TARGET_FILE,
    WorldModel,
    foreign_name,
    load_checkpoint,
    load_target,
    model_name,
    weights_hash,
)
from visual.data import ClipDataset, Recording, open_recording
from visual.environments import FRAME_COLUMN
from visual.evaluation import action_scaling, check_device
from visual.experiment import run_folder, trained_folder
from visual.features import effective_rank, feature_spectrum
from visual.findings import describe
from visual.forecast import forecast_regret
from visual.geometry import geometry_of, held_out_frames
from visual.model import normalize_pixels
from visual.neighborhoods import neighborhood_rows
from visual.occupancy import occupancy
from visual.ordering import encode_images, ordering_rows, paired_difference
from visual.tasks import Task, get_task

SUMMARY_FILE = "summary.json"
NEIGHBORHOODS_FILE = "neighborhoods.parquet"
COORDINATES_FILE = "coordinates.parquet"
#: κ that a model of κ = 1 is asked about.
FORECAST_KAPPA = 2.0
_CLIPS = 1024
_CHUNK = 64


def diagnose(
    task: str | Task,
    kappa: float,
    preset: str,
    training_seed: int,
    *,
    budget: Budget | None = None,
    cases: int | None = None,
    seed: int = 0,
    candidates_from: str | Path | None = None,
    checkpoint: str | Path | None = None,
    data: str | Path | None = None,
    out: str | Path = "results/visual",
    device: str = "cpu",
    progress: Callable[[int, int], object] | None = None,
    force: bool = False,
    force_candidates: bool = False,
) -> Path:
    """Diagnose a model and leave rows, grids, coordinates and findings in its run folder.

    Parameters
    ----------
    task, kappa, preset, training_seed
        Which model: that of ``run_folder``. The last three label the rows of a ``checkpoint``.
    budget, cases, seed
        Sequences per pair; number of pairs, by default the task's; seed of the candidates.
    candidates_from
        Checkpoint on whose latent cost the cross-entropy method runs, instead of the outcome.
    checkpoint
        A checkpoint from elsewhere, instead of the run's.
    data
        Recording; by default ``data/<task>/<preset>``.
    out, device, progress
        Where run folders lie; where the model runs; called as ``progress(done, total)`` while candidates are executed.
    force, force_candidates
        Diagnose, or execute candidates, again over a finished run.

    Returns
    -------
    Path
        The run's folder, ``…/diagnose``.

    Raises
    ------
    ValueError
        If an input is not valid, or a folder holds a run with other settings.
    """
    task = get_task(task)
    folder = diagnose_folder(out, task.name, kappa, training_seed, preset, checkpoint)
    source = Path(checkpoint) if checkpoint else trained_folder(out, task.name, kappa, training_seed, preset)
    check_device(device)
    if seed < 0:
        raise ValueError(f"The seed of candidates must not be negative, but it is {seed}.")
    model = load_checkpoint(source)
    recording = open_recording(data or Path("data") / task.name / preset)
    action_block(task, model, recording)
    chooser = None if candidates_from is None else Path(candidates_from)
    if chooser is not None:
        action_block(task, load_checkpoint(chooser), recording)
    # Candidates belong to the recording, so that variants of a preset share them.
    made_for = recording.preset or preset
    candidates = make_candidates(
        candidates_folder(out, task.name, made_for, None if chooser is None else model_name(chooser)),
        task,
        recording,
        made_for,
        cases=cases,
        seed=seed,
        budget=budget,
        model=None if chooser is None else load_checkpoint(chooser),
        model_sha256=None if chooser is None else weights_hash(chooser),
        progress=progress,
        force=force_candidates,
    )
    settings: dict[str, Any] = {
        "task": task.name,
        "kappa": float(kappa),
        "training_seed": training_seed,
        "preset": preset,
        "data_sha256": recording.sha256,
        "weights_sha256": weights_hash(source),
        "candidates_sha256": candidates.sha256,
    }
    record = None if force else finished_run(folder, settings)
    if record is not None:
        print(describe_finished(record))
    else:
        target = read_target(source)
        labels = {
            "origin": "measured",
            **{name: settings[name] for name in ("task", "kappa", "training_seed", "preset")},
        }
        model.model.to(device)
        with open_run(folder, settings, force=force) as run:
            rows = ordering_rows(model, task, recording, candidates, device)
            features, residuals = _held_out(model, recording, device)
            forecast = float(kappa) if kappa > 1 else FORECAST_KAPPA
            allocation = allocate(features, residuals, forecast, target)
            summary = {**settings, **_summary(task, candidates, rows, features, allocation)}
            filled = occupancy(features, residuals, forecast, target)
            summary["occupancy"] = filled.summary()
            summary |= _geometry(model, task, recording, device, residuals if kappa == 1 else None)
            if candidates.grids is not None:
                cells, rho = neighborhood_rows(*_encode_grids(model, recording, task, candidates, device))
                summary["neighborhoods"] = _describe_grids(task, candidates, rho)
                run.write_file(NEIGHBORHOODS_FILE, lambda path: _labelled(cells, labels).to_parquet(path, index=False))
            coordinates = coordinate_rows(allocation).assign(filled=filled.filled)
            run.write_file(COORDINATES_FILE, lambda path: _labelled(coordinates, labels).to_parquet(path, index=False))
            summary["sentences"] = describe(summary)
            run.write_file(SUMMARY_FILE, lambda path: path.write_text(_json(summary), encoding="utf-8"))
            run.write_rows(_labelled(rows, labels))
    summary = json.loads((folder / SUMMARY_FILE).read_text(encoding="utf-8"))
    for sentence in summary["sentences"]:
        print(sentence)
    baseline = diagnose_folder(out, task.name, 1.0, training_seed, preset)
    if checkpoint is None and kappa != 1.0:
        try:
            if _comparable(baseline, settings):
                print(_describe_comparison(read_rows(baseline), read_rows(folder), kappa))
        except ValueError as error:
            # This diagnosis is finished, whatever became of the other.
            print(f"Not compared with κ = 1: {error}")
    return folder


def diagnose_folder(
    out: str | Path, task: str, kappa: float, training_seed: int, preset: str, checkpoint: str | Path | None = None
) -> Path:
    """``diagnose`` beside the model's ``train``; for a checkpoint from elsewhere in ``<out>/<task>/<its folder>``."""
    parent = run_folder(out, task, kappa, training_seed, preset)
    if checkpoint is not None:
        parent = Path(out) / task / foreign_name(Path(checkpoint))
    return parent / "diagnose"


def coordinate_rows(allocation: Allocation) -> pd.DataFrame:
    """One row per latent coordinate: what it was given, and what its residual asks for.

    ``target_variance`` is nan without a target; ``predicted_variance`` belongs to the κ of ``prediction_kappa``.
    """
    dim = len(allocation.feature_variance)
    return pd.DataFrame(
        {
            "coordinate": np.arange(dim),
            "target_variance": np.full(dim, math.nan) if allocation.target is None else allocation.target,
            "feature_variance": allocation.feature_variance,
            "residual_variance": allocation.residual_variance,
            "relative_residual": allocation.relative_residual,
            "predicted_variance": allocation.predicted,
            "prediction_kappa": allocation.kappa,
        }
    )


def read_target(source: Path) -> NDArray[np.float64] | None:
    """Variances v = D softmax(logits) of the target that lies beside a checkpoint, (D,); ``None`` if none does."""
    folder = source.parent if source.is_file() else source
    folder = folder.parent if folder.name == FOLDER else folder
    if not (folder / TARGET_FILE).is_file():
        return None
    logits = load_target(folder)["logits"].double().reshape(-1)
    return np.asarray(torch.softmax(logits, dim=0).numpy() * len(logits))


def _encode_grids(
    model: WorldModel, recording: Recording, task: Task, candidates: Candidates, device: str
) -> tuple[Any, NDArray[Any], NDArray[Any]]:
    grids = candidates.grids
    assert grids is not None
    rows = recording.rows_of(recording.pairs(task))[1][grids.pairs]
    goals = encode_images(model, recording.read(FRAME_COLUMN, rows), device)
    cells = encode_images(model, grids.frames.reshape(-1, *grids.frames.shape[3:]), device)
    return grids, cells.reshape(*grids.valid.shape, -1).double().cpu().numpy(), goals.double().cpu().numpy()


def _held_out(model: WorldModel, recording: Recording, device: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Features and one-step residuals of clips of the validation episodes, the same clips for every model."""
    frameskip = model.action_width // recording.action_dim
    clips = ClipDataset(recording.manifest or recording.path, "validation", model.history + 1, frameskip, verify=False)
    scaling = action_scaling(model, recording)
    chosen = torch.from_numpy(np.random.default_rng(0).permutation(len(clips))[:_CLIPS])
    features: list[NDArray[Any]] = []
    residuals: list[NDArray[Any]] = []
    for part in chosen.split(_CHUNK):
        pixels, actions = clips.batch(part)
        steps = scaling.transform(actions.unflatten(-1, (frameskip, -1)).numpy())
        scaled = torch.from_numpy(steps.astype(np.float32)).flatten(-2)
        found = predict_clips(model.model, normalize_pixels(pixels.to(device)), scaled.to(device))
        for parts, values in zip((features, residuals), found, strict=True):
            parts.append(values.flatten(0, 1).double().cpu().numpy())
    return np.concatenate(features), np.concatenate(residuals)


def _summary(
    task: Task, candidates: Candidates, rows: pd.DataFrame, features: NDArray[Any], allocation: Allocation
) -> dict[str, Any]:
    spectrum = feature_spectrum(torch.from_numpy(features))
    ordering: dict[str, Any] = {
        "pairs": len(rows),
        "already_solved": int(rows["already_solved"].sum()),
        "undecided": int(rows["agreement_pred"].isna().sum()),
        "sequences": len(candidates.sources),
        "horizon": task.horizon,
    }
    for name in ("agreement_enc", "agreement_pred", "correlation_enc", "correlation_pred"):
        known = rows[name].dropna()
        ordering[name] = float(known.mean()) if len(known) else None
    target = allocation.target
    return {
        "ordering": ordering,
        "features": {
            "frames": len(features),
            "effective_rank": effective_rank(spectrum),
            "spectrum": [round(value, 6) for value in spectrum.tolist()],
            "target_variances": None if target is None else [round(v, 6) for v in np.sort(target)[::-1].tolist()],
        },
        "allocation": {"dim": len(allocation.predicted), **allocation.summary()},
    }


def _geometry(
    model: WorldModel,
    task: Task,
    recording: Recording,
    device: str,
    residuals: NDArray[Any] | None,
) -> dict[str, Any]:
    """The metric, and with residuals its forecast for other κ; or why there is none.

    A collapsed encoder still has all the rest.
    """
    # Its interval draws episodes again, so one episode says nothing.
    if len(recording.episodes_of("planning")) < 2:
        return {"geometry": None, "forecast": None, "geometry_missing": "It needs two held-out episodes."}
    try:
        frames = held_out_frames(model, task, recording, device=device)
        forecast = None if residuals is None else forecast_regret(frames, residuals)
        return {"geometry": geometry_of(frames), "forecast": forecast, "geometry_missing": None}
    except ValueError as error:
        return {"geometry": None, "forecast": None, "geometry_missing": str(error)}


def _describe_grids(task: Task, candidates: Candidates, rho: list[float]) -> dict[str, Any]:
    grids, neighborhood = candidates.grids, task.neighborhood
    assert grids is not None
    assert neighborhood is not None
    return {
        "pairs": grids.pairs.tolist(),
        "cells": int(grids.valid[0].size),
        "valid": [float(valid.mean()) for valid in grids.valid],
        "rho": [None if math.isnan(value) else value for value in rho],
        "axes": [[axis.label, axis.half_width, axis.unit] for axis in (neighborhood.first, neighborhood.second)],
    }


def _describe_comparison(first: pd.DataFrame, second: pd.DataFrame, kappa: float) -> str:
    merged = first.merge(second, on=["pair", "episode"], suffixes=("_1", "_2"), validate="one_to_one")
    parts = []
    for name, label in (("agreement_pred", "J_pred"), ("agreement_enc", "J_enc")):
        if not (merged[f"{name}_1"] + merged[f"{name}_2"]).notna().any():
            return (
                f"No two outcomes differ on any of the {len(merged)} pairs, so κ = {kappa:g} and κ = 1 compare in none."
            )
        found = paired_difference(merged[f"{name}_1"], merged[f"{name}_2"], merged["episode"])
        parts.append(f"{label} {100 * found.difference:+.1f} points [{100 * found.low:+.1f}, {100 * found.high:+.1f}]")
    return (
        f"κ = {kappa:g} against κ = 1 on the same {len(merged)} pairs and sequences, agreement: {', '.join(parts)} "
        "(paired bootstrap over episodes, 95 %)."
    )


def _comparable(folder: Path, settings: dict[str, Any]) -> bool:
    if finished_run(folder) is None:
        return False
    other = read_run(folder).settings
    return all(other.get(name) == settings[name] for name in ("data_sha256", "candidates_sha256"))


def _labelled(rows: pd.DataFrame, labels: dict[str, Any]) -> pd.DataFrame:
    rows = rows.copy()
    for position, (name, value) in enumerate(labels.items()):
        rows.insert(position, name, value)
    return rows


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
