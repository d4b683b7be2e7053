"""One trained world model in its run folder: data in, training, evaluation on held-out episodes, checkpoint out."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from theory.regularizer import effective_weight
from theory.runs import describe_finished, ensure_writable, finished_run, open_run, write_atomic
from visual.checkpoint import CARD_FILE, FOLDER, TARGET_FILE, save_card, save_checkpoint, save_target
from visual.data import ClipDataset, Recording, open_recording
from visual.features import (
    batch_statistics,
    effective_rank,
    encode_frames,
    feature_spectrum,
    linear_probe,
    reestimate_batchnorm,
)
from visual.model import Preset, model_config, normalize_pixels
from visual.monitor import Monitor
from visual.tasks import Task, get_task
from visual.training import RESUME_FILE, RESUME_FOLDER, LeWMTraining, fit, is_first_process

if TYPE_CHECKING:
    from stable_worldmodel.wm.lewm import LeWM

BATCHNORM_BATCHES = 30
HELD_OUT_CLIPS = 1024
_PROBE_CLIPS = 512
_CHUNK = 64


def run_folder(out: str | Path, task: str, kappa: float, seed: int, preset: str) -> Path:
    """Folder of a model: ``<out>/<task>/k<κ>-s<seed>-<preset>``; its training lies under ``train/``."""
    return Path(out) / task / f"k{kappa:g}-s{seed}-{preset}"


def trained_folder(out: str | Path, task: str, kappa: float, seed: int, preset: str) -> Path:
    """Folder of a finished training.

    Raises
    ------
    ValueError
        If there is none, with the command that trains it, or it is damaged.
    """
    folder = run_folder(out, task, kappa, seed, preset) / "train"
    command = f"python -m visual train task={task} kappa={kappa:g} preset={preset} seed={seed}"
    if finished_run(folder) is None:
        raise ValueError(f"{folder} holds no trained model; train it first: {command} (or give checkpoint=PATH).")
    if not (folder / FOLDER).is_dir():
        raise ValueError(f"{folder} holds the rows of a training without its weights; train again: {command}.")
    return folder


def train(
    task: str | Task,
    kappa: float,
    preset: Preset,
    seed: int,
    *,
    data: str | Path | None = None,
    out: str | Path = "results/visual",
    accelerator: str = "auto",
    devices: int = 1,
    num_nodes: int = 1,
    num_workers: int = 0,
    wandb: bool = False,
    progress: bool = True,
    force: bool = False,
) -> Path:
    """Train a world model and leave it in its run folder; a finished run with equal settings is left as it is.

    Parameters
    ----------
    task
        A task or its name.
    kappa
        Bound κ ≥ 1 on the target's condition number; 1 is LeWM.
    preset, seed
        Sizes and optimisation settings; seed of weights, clips, slices and dropout.
    data
        Recording; by default ``data/<task>/<preset>``.
    out
        Where run folders lie.
    accelerator, devices, num_nodes, num_workers, wandb, progress
        As for :func:`visual.training.fit`.
    force
        Train again over a finished or begun run.

    Returns
    -------
    Path
        The run's folder, ``…/train``.

    Raises
    ------
    ValueError
        If an input is not valid, the folder holds a run with other settings, or training fails.
    """
    task = get_task(task)
    # At the door, before anything is written.
    for name, value, least in (("devices", devices, 1), ("num_nodes", num_nodes, 1), ("num_workers", num_workers, 0)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, but it is {value}.")
    folder = run_folder(out, task.name, kappa, seed, preset.name) / "train"
    recording = open_recording(data or Path("data") / task.name / preset.name, image_size=preset.image_size)
    settings = _settings(task, kappa, preset, seed, devices * num_nodes, recording)
    record = None if force else finished_run(folder, settings)
    if record is not None:
        print(describe_finished(record))
        return folder
    source, validation = (_clips(recording, preset, split) for split in ("train", "validation"))
    if not bool((source.action_std > 0).all()):
        raise ValueError(f"{recording.path} has an action component that never varies, so it cannot be standardised.")
    module = LeWMTraining(
        preset,
        kappa,
        seed,
        source,
        source.action_mean,
        source.action_std,
        preset.total_steps(len(source), devices * num_nodes),
        num_workers,
    )
    _prepare_folder(folder, settings, force)
    monitor = Monitor(lambda trained: {"probe_r2": _probe_during_training(trained.model, task, source, validation)})
    with contextlib.ExitStack() as stack:
        # Only the first process of a data-parallel run writes.
        run = stack.enter_context(open_run(folder, settings, force=force)) if is_first_process() else None
        fit(
            module,
            monitor,
            folder,
            accelerator=accelerator,
            devices=devices,
            num_nodes=num_nodes,
            wandb=wandb,
            progress=progress,
        )
        if run is None:
            return folder
        # Lightning leaves the model on the CPU.
        module.to(module.trainer.strategy.root_device)
        held_out = evaluate_held_out(module, task, source, validation)
        files = save_checkpoint(folder, module.model, model_config(preset, source.action_dim))
        card = _card(task, kappa, preset, seed, devices * num_nodes, source, recording, held_out, files)
        run.write_file(CARD_FILE, lambda path: save_card(path, card))
        run.write_file(TARGET_FILE, lambda path: save_target(path, module.regularizer.target))
        run.write_rows(_rows(monitor, task, kappa, seed, preset))
    shutil.rmtree(folder / RESUME_FOLDER, ignore_errors=True)
    print(_describe(folder, card))
    return folder


def evaluate_held_out(module: LeWMTraining, task: Task, source: ClipDataset, validation: ClipDataset) -> dict[str, Any]:
    """Re-estimate batch normalisation, then measure the model in evaluation mode on held-out episodes.

    Returns
    -------
    dict
        ``clips``; ``prediction`` (mean squared latent error per coordinate) beside ``copy`` (that of "the next latent
        is the last one"); ``feature_variance`` (mean over coordinates), ``effective_rank``, ``feature_spectrum``;
        ``probe_r2`` (mean over state coordinates) and ``probe_r2_each``.
    """
    model = module.model

    def forward(batch: object) -> None:
        pixels, actions = module.prepare(*batch)  # type: ignore[misc]
        encoded = model.encode({"pixels": pixels, "action": actions})
        model.predict(encoded["emb"][:, :-1], encoded["act_emb"][:, :-1])

    size = module.preset.batch_size
    batches = (source.sample(module.seed, module.total_steps + index, size) for index in range(BATCHNORM_BATCHES))
    reestimate_batchnorm(model, batches, forward)
    chosen = _choose(len(validation), HELD_OUT_CLIPS)
    errors, copies, features = [], [], []
    with torch.no_grad():
        for part in chosen.split(_CHUNK):
            pixels, actions = module.prepare(*validation.batch(part))
            encoded = model.encode({"pixels": pixels, "action": actions})
            latents = encoded["emb"]
            predicted = model.predict(latents[:, :-1], encoded["act_emb"][:, :-1])
            errors.append((predicted - latents[:, 1:]).square().mean(dim=(1, 2)))
            copies.append((latents[:, :-1] - latents[:, 1:]).square().mean(dim=(1, 2)))
            features.append(latents[:, 0])
        spectrum = feature_spectrum(torch.cat(features))
        each = _probe(model, task, source, validation, HELD_OUT_CLIPS)
    return {
        "clips": len(chosen),
        "prediction": float(torch.cat(errors).mean()),
        "copy": float(torch.cat(copies).mean()),
        "feature_variance": float(spectrum.mean()),
        "effective_rank": effective_rank(spectrum),
        "feature_spectrum": [round(value, 6) for value in spectrum.tolist()],
        "probe_r2": _mean(each),
        "probe_r2_each": [None if np.isnan(value) else round(float(value), 6) for value in each],
    }


def _probe_during_training(model: LeWM, task: Task, source: ClipDataset, validation: ClipDataset) -> float:
    with batch_statistics(model):
        return _mean(_probe(model, task, source, validation, _PROBE_CLIPS)) or 0.0


def _probe(model: LeWM, task: Task, source: ClipDataset, validation: ClipDataset, limit: int) -> np.ndarray:
    """Held-out R² (k,): the probe is fitted on training episodes and judged on validation episodes."""
    device = next(model.parameters()).device
    sets: list[np.ndarray] = []
    for clips in (source, validation):
        chosen = _choose(len(clips), limit)
        parts = [encode_frames(model, _first_frames(clips, part, device)) for part in chosen.split(_CHUNK)]
        sets += [torch.cat(parts).float().cpu().numpy(), clips.states(chosen, task)[:, 0].numpy()]
    return linear_probe(sets[0], sets[1], sets[2], sets[3])


def _first_frames(clips: ClipDataset, indices: Tensor, device: torch.device) -> Tensor:
    return normalize_pixels(clips.batch(indices)[0][:, 0].to(device))


def _choose(count: int, limit: int) -> Tensor:
    """At most ``limit`` clips, spread over all of them; the same for every model."""
    return torch.from_numpy(np.random.default_rng(0).permutation(count)[:limit])


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _clips(recording: Recording, preset: Preset, split: str) -> ClipDataset:
    return ClipDataset(recording.manifest or recording.path, split, preset.frames, preset.frameskip, verify=False)


def _settings(
    task: Task, kappa: float, preset: Preset, seed: int, world_size: int, recording: Recording
) -> dict[str, Any]:
    return {
        "task": task.name,
        "kappa": float(kappa),
        "seed": seed,
        "preset": preset.to_mapping(),
        "world_size": world_size,
        "data_sha256": recording.sha256,
    }


def _prepare_folder(folder: Path, settings: dict[str, Any], force: bool) -> None:
    """Make sure that a resume state in the folder belongs to this run."""
    resume = folder / RESUME_FOLDER
    description = resume / "settings.json"
    if not is_first_process():
        return
    if force:
        shutil.rmtree(resume, ignore_errors=True)
    text = json.dumps(settings, indent=1)
    # A training that ended before its first state leaves a description of nothing.
    if (resume / RESUME_FILE).is_file() and _read_settings(description) != json.loads(text):
        raise ValueError(
            f"{resume} holds the state of a run with other settings; use force=true to start again, or another folder."
        )
    ensure_writable(resume)
    write_atomic(description, text + "\n")


def _read_settings(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ValueError(f"{path} is missing or damaged; use force=true to start again.") from None


def _card(
    task: Task,
    kappa: float,
    preset: Preset,
    seed: int,
    world_size: int,
    source: ClipDataset,
    recording: Recording,
    held_out: dict[str, Any],
    files: dict[str, str],
) -> dict[str, Any]:
    return {
        "task": task.name,
        "kappa": float(kappa),
        "seed": seed,
        "preset": preset.name,
        "image_size": preset.image_size,
        "frameskip": preset.frameskip,
        "history": preset.history,
        "latent_dim": preset.latent_dim,
        "action_width": preset.frameskip * source.action_dim,
        "action_mean": source.action_mean.tolist(),
        "action_std": source.action_std.tolist(),
        "regularizer_weight": preset.regularizer_weight,
        # The statistic contains the factor N, so λ means something only beside it.
        "effective_weight": effective_weight(preset.regularizer_weight, preset.batch_size * world_size),
        "data": str(recording.path.name),
        "held_out": held_out,
        "files": files,
    }


def _rows(monitor: Monitor, task: Task, kappa: float, seed: int, preset: Preset) -> pd.DataFrame:
    rows = pd.DataFrame(monitor.rows)
    for position, (name, value) in enumerate(_identity(task, kappa, seed, preset)):
        rows.insert(position, name, value)
    return rows


def _identity(task: Task, kappa: float, seed: int, preset: Preset) -> Iterator[tuple[str, Any]]:
    yield from (
        ("origin", "measured"),
        ("task", task.name),
        ("kappa", float(kappa)),
        ("seed", seed),
        ("preset", preset.name),
    )


def _describe(folder: Path, card: dict[str, Any]) -> str:
    held_out = card["held_out"]
    probe = "no probe" if held_out["probe_r2"] is None else f"probe R² {held_out['probe_r2']:.3f}"
    return (
        f"{folder}: held-out prediction error {held_out['prediction']:.4f} (copying the last latent: "
        f"{held_out['copy']:.4f}), effective rank {held_out['effective_rank']:.1f} of {card['latent_dim']}, {probe}."
    )
