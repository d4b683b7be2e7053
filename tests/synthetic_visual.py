"""Small synthetic runs of every stage of ``python -m visual``, written as the commands write them.

All numbers are made up by :func:`write`; nothing here trains or plans. Every row says ``origin = "synthetic"`` unless a
test asks for another one.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from theory.runs import open_run

TASKS = ("tworoom", "reacher", "pusht", "cube")
KAPPAS = (1.0, 2.0, 4.0)
SEEDS = (3072, 42)
DIM, STEPS, PAIRS, GRID = 32, (50, 500, 1000, 2000, 4000), 20, 7


def spectrum(kappa: float, high: int, dim: int = DIM) -> np.ndarray:
    """Two levels with ratio κ and mean 1, ``high`` of them high."""
    levels = np.where(np.arange(dim) < high, kappa, 1.0)
    return levels / levels.mean()


def high_count(task: str, seed: int) -> int:
    return 12 + 3 * TASKS.index(task) + seed % 2


def success(task: str, kappa: float, seed: int) -> np.ndarray:
    """Success of each pair: 10 to 19 of 20, a function of the arguments."""
    solved = 10 + 2 * TASKS.index(task) + int(kappa) // 2 + (seed == 42)
    return np.arange(PAIRS) < solved


def agreement(task: str, kappa: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Agreement of the encoded and of the predicted cost, by pair; the last pair cannot be ordered."""
    generator = np.random.default_rng([TASKS.index(task), int(4 * kappa), seed])
    enc, pred = generator.uniform(0.5, 0.9, (2, PAIRS))
    enc[-1] = pred[-1] = np.nan
    return enc, pred


def recording(task: str, preset: str) -> str:
    """What stands for the hash of a recording's manifest; variants have their preset's."""
    return f"{task}, {preset.split('-')[0]}"


def write(root: Path, *, tasks: tuple[str, ...] = TASKS, origin: str = "synthetic", preset: str = "laptop") -> Path:
    """Write runs of all stages below ``root``; return it."""
    for task in tasks:
        base = root / "visual" / task
        for kappa in KAPPAS:
            for seed in SEEDS:
                folder = base / f"k{kappa:g}-s{seed}-{preset}"
                _train(folder / "train", task, kappa, seed, preset, origin)
                _plan(folder / "plan-laptop", task, kappa, seed, preset, origin)
                if kappa <= 2:
                    _diagnose(folder / "diagnose", task, kappa, seed, preset, origin)
                if kappa <= 2 and seed == SEEDS[0]:
                    _film(folder / "film-laptop", task, kappa, seed, preset, origin)
        _ceiling(base / f"simulator-{preset}" / "plan-laptop", task, preset, origin)
        _candidates(base / f"candidates-{preset}", task, preset, origin)
        _advice(base / f"advice-{preset}", task, preset, origin)
    return root


def _advice(folder: Path, task: str, preset: str, origin: str) -> None:
    kappa = np.array([1.0, 2.0, 4.0])
    regret = 0.1 + 0.05 * np.abs(kappa - TASKS.index(task) - 1)
    rows = pd.DataFrame(
        {
            "origin": origin,
            "task": task,
            "preset": preset,
            "kappa": kappa,
            "mean_regret": regret,
            "low": regret - 0.01,
            "high": regret + 0.01,
            "best_kappa": 1.0 + TASKS.index(task),
            "best_low": 1.0,
            "best_high": 2.0 + TASKS.index(task),
            "dim": 2,
        }
    )
    with open_run(folder, {"task": task}) as run:
        run.write_rows(rows)


def _train(folder: Path, task: str, kappa: float, seed: int, preset: str, origin: str) -> None:
    rows = []
    for step in STEPS:
        ratio = min(kappa, 1 + (kappa - 1) * step / 1000)
        rows.append(
            {
                "origin": origin,
                "task": task,
                "kappa": kappa,
                "seed": seed,
                "preset": preset,
                "step": step,
                "prediction": 100.0 / step,
                "seconds": 0.15 * step,
                "target_condition": ratio,
                "target_high": high_count(task, seed) if ratio > 1 else 0,
                "target_variances": spectrum(ratio, high_count(task, seed)).tolist(),
                "feature_spectrum": spectrum(ratio, 10).tolist(),
            }
        )
    held_out = {
        "prediction": 0.02 + 0.001 * kappa + 1e-6 * seed,
        "copy": 1.0,
        "feature_variance": 0.9,
        "effective_rank": 20.0,
        "probe_r2": None if task == "cube" else 0.9,
        "feature_spectrum": (np.geomspace(2.0, 0.1 / kappa, DIM)).tolist(),
    }
    settings = {
        "task": task,
        "kappa": kappa,
        "seed": seed,
        "preset": {
            "name": preset,
            "epochs": None,
            "steps": 4000,
            "batch_size": 64,
            "learning_rate": 2e-3,
            "weight_decay": 1e-3,
            "target_lr_multiplier": 10.0,
            "latent_dim": DIM,
            "regularizer_weight": 0.09,
        },
    }
    with open_run(folder, settings) as run:
        run.write_rows(pd.DataFrame(rows))
        run.write_file("model.json", lambda path: path.write_text(json.dumps({"held_out": held_out})))
        run.write_file("target_logits.pt", lambda path: path.write_bytes(b"weights"))


def _plan(folder: Path, task: str, kappa: float, seed: int, preset: str, origin: str) -> None:
    pair = np.arange(PAIRS)
    rows = pd.DataFrame(
        {
            "origin": origin,
            "task": task,
            "kappa": kappa,
            "training_seed": seed,
            "preset": preset,
            "cost": "latent",
            "protocol": "laptop",
            "solver": "cem",
            "pair": pair,
            "episode": pair,
            "start": 3,
            "goal": 28,
            "solves": 2,
            "seconds": 0.5,
            "success": success(task, kappa, seed),
            "already_solved": pair < 2,
            "random_success": pair < 4,
        }
    )
    settings = {"task": task, "kappa": kappa, "training_seed": seed, "data_sha256": recording(task, preset)}
    with open_run(folder, settings) as run:
        run.write_rows(rows)


def _ceiling(folder: Path, task: str, preset: str, origin: str) -> None:
    pair = np.arange(PAIRS)
    rows = pd.DataFrame(
        {
            "origin": origin,
            "task": task,
            "preset": preset,
            "cost": "simulator",
            "protocol": "laptop",
            "solver": "cem",
            "pair": pair,
            "success": pair < PAIRS - 1,
        }
    )
    with open_run(folder, {"task": task, "cost": "simulator"}) as run:
        run.write_rows(rows)


def _candidates(folder: Path, task: str, preset: str, origin: str) -> None:
    rows = pd.DataFrame(
        {
            "origin": origin,
            "task": task,
            "preset": preset,
            "pair": pair,
            "sequence": sequence,
            "source": "random",
            "outcome": 1.0 + sequence,
            "already_solved": pair < 2,
        }
        for pair in range(PAIRS)
        for sequence in range(5)
    )
    with open_run(folder, {"task": task}) as run:
        run.write_rows(rows)
        run.write_file("candidates.npz", lambda path: path.write_bytes(b"frames"))


def neighborhood(task: str, kappa: float, seed: int, preset: str, origin: str, pair: int) -> pd.DataFrame:
    """Task cost r, latent cost a rotated ellipse that is rounder for κ = 2; the last row is not valid."""
    axis = np.linspace(-30.0, 30.0, GRID)
    x, y = (values.ravel() for values in np.meshgrid(axis, axis))
    row, column = (values.ravel() for values in np.mgrid[:GRID, :GRID])
    stretch = 1.0 + 3.0 / kappa**2
    return pd.DataFrame(
        {
            "origin": origin,
            "task": task,
            "kappa": kappa,
            "training_seed": seed,
            "preset": preset,
            "pair": pair,
            "row": row,
            "column": column,
            "first": 100.0 + x,
            "second": 80.0 + y,
            "task_cost": np.hypot(x, y) / 16.0,
            "latent_cost": (x + y) ** 2 + stretch * (x - y) ** 2 + pair,
            "valid": row < GRID - 1,
        }
    )


def _diagnose(folder: Path, task: str, kappa: float, seed: int, preset: str, origin: str) -> None:
    enc, pred = agreement(task, kappa, seed)
    rows = pd.DataFrame(
        {
            "origin": origin,
            "task": task,
            "kappa": kappa,
            "training_seed": seed,
            "preset": preset,
            "pair": np.arange(PAIRS),
            "episode": np.arange(PAIRS) // 2,
            "sequences": 5,
            "agreement_enc": enc,
            "agreement_pred": pred,
        }
    )
    grids = [neighborhood(task, kappa, seed, preset, origin, pair) for pair in (3, 5, 6, 8)]
    settings = {"task": task, "kappa": kappa, "training_seed": seed}
    hashes = {"data_sha256": recording(task, preset), "candidates_sha256": f"candidates of {task}"}
    with open_run(folder, settings | hashes) as run:
        run.write_rows(rows)
        summary = {"sentences": ["It was made up.", "All of it."]}
        run.write_file("summary.json", lambda path: path.write_text(json.dumps(summary)))
        run.write_file(
            "neighborhoods.parquet", lambda path: pd.concat(grids, ignore_index=True).to_parquet(path, index=False)
        )


def _film(folder: Path, task: str, kappa: float, seed: int, preset: str, origin: str) -> None:
    pairs, last = (3, 5), 20
    frames: dict[str, np.ndarray] = {"scene": np.full((32, 32, 3), 30 * TASKS.index(task) + 100, dtype=np.uint8)}
    rows = []
    for pair in pairs:
        video = np.full((last + 1, 16, 16, 3), 255, dtype=np.uint8)
        for step in range(last + 1):
            video[step, 4:8, step % 12 : step % 12 + 4] = (200, 40, int(40 * kappa))
            reached = kappa > 1 and step == last
            labels = {"origin": origin, "task": task, "kappa": kappa, "training_seed": seed, "preset": preset}
            labels |= {"protocol": "laptop", "pair": pair, "step": step}
            rows.append({**labels, "outcome": 3.0 - 0.1 * step, "reached": reached})
        frames |= {f"pair_{pair}": video, f"goal_{pair}": video[-1], f"grid_{pair}": video[:5]}
        frames[f"steps_{pair}"] = np.arange(last + 1, dtype=np.int16)
    with open_run(folder, {"task": task, "kappa": kappa, "training_seed": seed}) as run:
        run.write_rows(pd.DataFrame(rows))
        run.write_file("frames.npz", lambda path: _save(path, frames))


def _save(path: Path, frames: dict[str, np.ndarray]) -> None:
    with path.open("wb") as stream:
        np.savez_compressed(stream, **frames)  # type: ignore[arg-type]
