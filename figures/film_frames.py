"""Frames of the films that ``python -m visual film`` leaves behind, checked and ready to draw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from figures import visual_rows
from figures.visual_rows import FILM

if TYPE_CHECKING:
    import pandas as pd

FRAMES_FILE = "frames.npz"


@dataclass(frozen=True)
class Rollout:
    """One planned pair on film.

    Attributes
    ----------
    task, kappa, training_seed, pair, preset
        Which.
    steps
        Environment step of each frame, (T,).
    frames, goal
        (T, H, W, 3) and (H, W, 3) uint8.
    reached
        Whether the goal was attained at the step of each frame or before, (T,).
    """

    task: str
    kappa: float
    training_seed: int
    pair: int
    preset: str
    steps: NDArray[np.int64]
    frames: NDArray[np.uint8]
    goal: NDArray[np.uint8]
    reached: NDArray[np.bool_]

    def at(self, step: int) -> int:
        """Index of the last frame that is not after ``step``."""
        return int(np.searchsorted(self.steps, step, side="right")) - 1


def films(results: Path) -> pd.DataFrame:
    """Rows of all films, of one preset and one protocol."""
    return visual_rows.one_setting(FILM.rows(results), ("preset", "protocol"))


def _archives(results: Path) -> dict[str, dict[str, NDArray[np.uint8]]]:
    """Arrays of each film by the run's path."""
    return {source.path: source.arrays(results, FRAMES_FILE) for source in FILM.sources(results)}


def arenas(results: Path) -> dict[str, dict[int, NDArray[np.uint8]]]:
    """Goal and corners of the grids by task and pair, (5, H, W, 3) each; every model saw the same."""
    found: dict[str, dict[int, NDArray[np.uint8]]] = {}
    for path, arrays in _archives(results).items():
        for name, frames in arrays.items():
            if name.startswith("grid_"):
                _check(frames, 4, f"{path}/{FRAMES_FILE}", name)
                found.setdefault(Path(path).parts[1], {})[int(name.removeprefix("grid_"))] = frames
    return found


def scenes(results: Path) -> dict[str, NDArray[np.uint8]]:
    """A picture of each environment, (H, W, 3)."""
    found: dict[str, NDArray[np.uint8]] = {}
    for path, arrays in _archives(results).items():
        if "scene" in arrays:
            found.setdefault(Path(path).parts[1], _check(arrays["scene"], 3, f"{path}/{FRAMES_FILE}", "scene"))
    return found


def rollouts(results: Path, rows: pd.DataFrame) -> list[Rollout]:
    """Every filmed pair of ``rows``, sorted by task, pair and κ.

    Raises
    ------
    ValueError
        If a film lacks frames of a pair, or has frames of steps without rows.
    """
    archives = _archives(results)
    found = []
    for (run, pair), group in rows.groupby(["run", "pair"]):
        place = f"{run}/{FRAMES_FILE}"
        arrays = archives[str(run)]
        missing = [name for name in (f"pair_{pair}", f"goal_{pair}", f"steps_{pair}") if name not in arrays]
        if missing:
            raise ValueError(f"{place} lacks {', '.join(missing)}.")
        frames, steps = (
            _check(arrays[f"pair_{pair}"], 4, place, f"pair_{pair}"),
            arrays[f"steps_{pair}"].astype(np.int64),
        )
        reached = group.set_index("step")["reached"].astype(bool)
        if len(steps) != len(frames) or not set(steps.tolist()) <= set(reached.index):
            raise ValueError(f"{place} and the rows of pair {pair} must have the same steps.")
        first = group.iloc[0]
        found.append(
            Rollout(
                task=str(first["task"]),
                kappa=float(first["kappa"]),
                training_seed=int(first["training_seed"]),
                pair=int(first["pair"]),
                preset=str(first["preset"]),
                steps=steps,
                frames=frames,
                goal=_check(arrays[f"goal_{pair}"], 3, place, f"goal_{pair}"),
                reached=reached.loc[steps.tolist()].to_numpy(),
            )
        )
    return sorted(found, key=lambda rollout: (visual_rows.TASKS.index(rollout.task), rollout.pair, rollout.kappa))


def _check(frames: NDArray[np.uint8], axes: int, place: str, name: str) -> NDArray[np.uint8]:
    if frames.dtype != np.uint8 or frames.ndim != axes or frames.shape[-1] != 3:
        raise ValueError(f"{name} in {place} must hold 8-bit colour frames.")
    return frames
