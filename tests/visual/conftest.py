"""Recordings that the tests of ``visual`` share: short real ones per task, and files written by hand."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Before a simulator loads: software rendering without a display.
os.environ.setdefault("MUJOCO_GL", "egl")

import absl.logging
import numpy as np
import pytest

from visual.manifest import Manifest
from visual.recording import collect
from visual.tasks import TASKS, Task

# Hydra closes every logging handler when it sets up its own, and absl's handler then closes its stream unless that is
# the current stderr or the process's own. Left alone, it would be the file in which pytest collects all output.
absl.logging.get_absl_handler().python_handler.stream = sys.__stderr__

SHORT_STEPS = 30
# With these seeds TwoRoom's expert needs at least SHORT_STEPS steps in both episodes.
SEEDS = {"tworoom": 1}


def short_task(name: str) -> Task:
    """The task with episodes of at most 30 steps, which hold clips and pairs."""
    return dataclasses.replace(TASKS[name], max_episode_steps=SHORT_STEPS)


@pytest.fixture(scope="session")
def short_recording(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Task, Manifest]]:
    """Two short episodes of a task, recorded once per session."""
    done: dict[str, tuple[Task, Manifest]] = {}

    def record(name: str) -> tuple[Task, Manifest]:
        if name not in done:
            task = short_task(name)
            folder = tmp_path_factory.mktemp(name) / "recording"
            done[name] = task, collect(task, "quick", episodes=2, seed=SEEDS.get(name, 0), out=folder)
        return done[name]

    return record


@pytest.fixture
def write_file(tmp_path: Path) -> Callable[..., Path]:
    """Write an HDF5 file in stable-worldmodel's layout by hand."""

    def write(
        lengths: tuple[int, ...] = (30, 45, 24, 60),
        *,
        name: str = "file.h5",
        size: int = 8,
        action_dim: int = 2,
        columns: dict[str, Any] | None = None,
        filters: Any = None,
        last_action: float = np.nan,
        seed: int = 0,
    ) -> Path:
        import h5py

        generator = np.random.default_rng(seed)
        ends = np.cumsum(lengths)
        rows = int(ends[-1])
        pixels = generator.integers(0, 256, size=(rows, size, size, 3), dtype=np.uint8)
        action = generator.uniform(-1, 1, size=(rows, action_dim)).astype(np.float32)
        action[ends - 1] = last_action
        content = {"pixels": pixels, "action": action, **(columns or {"state": generator.normal(size=(rows, 2))})}
        with h5py.File(tmp_path / name, "w") as file:
            for column, values in content.items():
                values = values(rows) if callable(values) else values
                options = {"chunks": (min(16, rows), *values.shape[1:]), **(filters or {})} if filters else {}
                file.create_dataset(column, data=values, **options)
            file["ep_len"] = np.array(lengths, dtype=np.int32)
            file["ep_offset"] = (ends - np.array(lengths)).astype(np.int64)
        return tmp_path / name

    return write
