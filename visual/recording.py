"""Record episodes of a task, resumably, into one HDF5 file with a manifest.

Episode ``i`` is a function of ``(seed, i)`` alone. Episodes are written, through stable-worldmodel's HDF5 writer, in
parts that appear by a rename; a recording that was killed goes on after its last complete part and ends with the same
file as one that was not. When all episodes are there, the parts become one file.

Row conventions (they are those of the published files): row 0 is the state after the reset, the action in row t leads
to row t + 1, and the last row's action is NaN, since nothing follows it. ``World.collect`` of stable-worldmodel 0.1.1
drops the first row and stores the first action of the episode in the last row; so its loop is not used.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from theory.runs import command_line, ensure_writable, git_commit, machine, package_versions, write_atomic
from visual.environments import make_policy, open_world, quiet, read_columns
from visual.manifest import (
    GOAL_OFFSET,
    MANIFEST_FILE,
    RECORDING_FILE,
    Manifest,
    draw_pairs,
    file_sha256,
    read_manifest,
    split_episodes,
)
from visual.resets import seeded_numpy
from visual.tasks import Task, get_task

if TYPE_CHECKING:
    from stable_worldmodel import World

Episode = dict[str, NDArray[Any]]
Progress = Callable[[int, int], object]
"""``progress(done, total)`` is called after each episode."""

_PARTS = "parts"
_PART_ROWS = 1000
_PART_NAME = re.compile(r"part-(\d{6})-(\d{6})\.h5")


@dataclass(frozen=True)
class Preset:
    """How frames are recorded.

    Attributes
    ----------
    image_size
        Height and width in pixels.
    fast_rendering
        Whether MuJoCo tasks are drawn by :mod:`visual.rendering`; otherwise they look as in the published files.
    """

    image_size: int
    fast_rendering: bool


PRESETS = {"quick": Preset(64, True), "laptop": Preset(64, True), "paper": Preset(224, False)}


def collect(
    task: str | Task,
    preset: str = "laptop",
    episodes: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    progress: Progress | None = None,
    *,
    force: bool = False,
) -> Manifest:
    """Record a task and describe the recording; a finished recording with these settings is returned as it is.

    Parameters
    ----------
    task
        A task or its name.
    preset
        ``"quick"``, ``"laptop"`` (64 px) or ``"paper"`` (224 px).
    episodes
        Number of episodes; by default the task's number for the preset.
    seed
        Seed of the recording, its split and its pairs.
    out
        Folder of the recording; by default ``data/<task>/<preset>``.
    progress
        Called as ``progress(done, total)`` after each episode.
    force
        Delete what the folder holds and record again.

    Returns
    -------
    Manifest
        The description, also written to ``manifest.json``.

    Raises
    ------
    ValueError
        If the task or preset does not exist, fewer than two episodes are asked for, the folder cannot be written, or
        it holds a recording with other settings.
    """
    task = get_task(task)
    if preset not in PRESETS:
        raise ValueError(f"There is no preset {preset!r}; choose from {', '.join(PRESETS)}.")
    count = task.episodes[preset] if episodes is None else episodes
    if count < 2:
        raise ValueError(f"A recording needs at least two episodes, since it is split by episode; got {count}.")
    if seed < 0:
        raise ValueError(f"The seed of a recording must not be negative; got {seed}.")
    folder = Path(out) if out is not None else Path("data") / task.name / preset
    settings = _settings(task, preset, count, seed)
    ensure_writable(folder)
    parts = folder / _PARTS
    if force:
        shutil.rmtree(parts, ignore_errors=True)
        for name in (MANIFEST_FILE, RECORDING_FILE):
            (folder / name).unlink(missing_ok=True)
    if (folder / MANIFEST_FILE).is_file():
        manifest = read_manifest(folder)
        _require_equal(folder, settings, manifest.settings)
        manifest.verify()
        return manifest
    _open_parts(folder, parts, settings)
    _record_missing(task, parts, count, seed, PRESETS[preset], progress)
    manifest = _finish(task, folder, parts, settings, seed)
    shutil.rmtree(parts)
    return manifest


def record_episode(world: World, task: Task, seed: int, index: int) -> Episode:
    """Record episode ``index``: columns of T + 1 rows for T steps, a function of ``(seed, index)``.

    Parameters
    ----------
    world
        One simulator with a policy.
    task
        Its task.
    seed, index
        Seed of the recording and number of the episode.
    """
    reset_seed, policy_seed = (int(s) for s in np.random.SeedSequence([seed, index]).generate_state(2) >> np.uint32(1))
    assert world.policy is not None
    actions: list[NDArray[np.float32]] = []
    with seeded_numpy(policy_seed):
        world.policy.set_seed(policy_seed)
        world.reset(seed=reset_seed)
        rows = [read_columns(task, world.infos)]
        done = False
        while not done:
            action = np.asarray(world.policy.get_action(world.infos), dtype=np.float32)
            _, _, terminated, truncated, world.infos = world.envs.step(action)
            actions.append(action[0].reshape(-1))
            rows.append(read_columns(task, world.infos))
            done = bool(terminated[0] or truncated[0])
    actions.append(np.full_like(actions[0], np.nan))
    length = len(rows)
    return {
        **{name: np.stack([row[name] for row in rows]) for name in rows[0]},
        "action": np.stack(actions),
        "episode_idx": np.full(length, index, dtype=np.int32),
        "step_idx": np.arange(length, dtype=np.int32),
    }


def _settings(task: Task, preset: str, episodes: int, seed: int) -> dict[str, Any]:
    fast = PRESETS[preset].fast_rendering and task.camera is not None
    settings = {
        "task": task.name,
        "preset": preset,
        "image_size": PRESETS[preset].image_size,
        "fast_rendering": fast,
        "camera": asdict(task.camera) if fast and task.camera is not None else None,
        "episodes": episodes,
        "seed": seed,
        "environment": task.env_id,
        "arguments": {**task.arguments, **task.recording_arguments},
        "max_episode_steps": task.max_episode_steps,
        "policy": asdict(task.policy),
        "goal_offset": GOAL_OFFSET,
    }
    # As JSON reads them back, so that equal settings compare equal.
    return dict(json.loads(json.dumps(settings)))


def _require_equal(folder: Path, wanted: dict[str, Any], found: dict[str, Any]) -> None:
    for key in [*wanted, *found]:
        if wanted.get(key) != found.get(key):
            raise ValueError(
                f"{folder} holds a recording with {key} = {found.get(key)!r}, not {wanted.get(key)!r}; "
                "use force to replace it, or another folder."
            )


def _open_parts(folder: Path, parts: Path, settings: dict[str, Any]) -> None:
    description = parts / "settings.json"
    if description.is_file():
        try:
            found = json.loads(description.read_text(encoding="utf-8"))
        except ValueError:
            raise ValueError(f"{description} is damaged; record the task again with force.") from None
        _require_equal(folder, settings, found)
        return
    write_atomic(description, json.dumps(settings, ensure_ascii=False) + "\n")


def _complete_parts(parts: Path) -> list[Path]:
    """The parts in order, up to the first gap."""
    found = sorted(path for path in parts.iterdir() if _PART_NAME.fullmatch(path.name))
    complete: list[Path] = []
    following = 0
    for path in found:
        first, last = _episode_range(path)
        if first != following:
            break
        complete.append(path)
        following = last + 1
    return complete


def _episode_range(part: Path) -> tuple[int, int]:
    match = _PART_NAME.fullmatch(part.name)
    assert match is not None
    return int(match[1]), int(match[2])


def _record_missing(task: Task, parts: Path, count: int, seed: int, preset: Preset, progress: Progress | None) -> None:
    complete = _complete_parts(parts)
    first = _episode_range(complete[-1])[1] + 1 if complete else 0
    if progress is not None:
        progress(first, count)
    if first >= count:
        return
    pending: list[Episode] = []
    with (
        quiet(),
        open_world(task, image_size=preset.image_size, recording=True, fast_rendering=preset.fast_rendering) as world,
    ):
        world.set_policy(make_policy(task.policy))
        for index in range(first, count):
            pending.append(record_episode(world, task, seed, index))
            if index == count - 1 or sum(len(episode["action"]) for episode in pending) >= _PART_ROWS:
                _write_episodes(parts / f"part-{index - len(pending) + 1:06d}-{index:06d}.h5", iter(pending))
                pending = []
            if progress is not None:
                progress(index + 1, count)


def _write_episodes(path: Path, episodes: Iterator[Episode]) -> None:
    from stable_worldmodel.data.formats.hdf5 import HDF5Writer

    temporary = path.with_suffix(".tmp")
    try:
        with HDF5Writer(temporary, mode="overwrite") as writer:
            writer.write_episodes(episodes)
        temporary.replace(path)
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        temporary.unlink(missing_ok=True)


def _read_episodes(parts: list[Path]) -> Iterator[Episode]:
    import h5py

    for part in parts:
        with h5py.File(part, "r") as file:
            names = [name for name in file if name not in ("ep_len", "ep_offset")]
            for length, offset in zip(file["ep_len"][:], file["ep_offset"][:], strict=True):
                yield {name: file[name][offset : offset + length] for name in names}


def _finish(task: Task, folder: Path, parts: Path, settings: dict[str, Any], seed: int) -> Manifest:
    import h5py

    path = folder / RECORDING_FILE
    _write_episodes(path, _read_episodes(_complete_parts(parts)))
    with h5py.File(path, "r") as file:
        lengths, offsets = file["ep_len"][:], file["ep_offset"][:]
        states = {name: file[name][:] for name in task.columns}
        columns = {
            name: {"type": str(file[name].dtype), "shape": list(file[name].shape[1:])}
            for name in file
            if name not in ("ep_len", "ep_offset")
        }
    split = split_episodes(lengths, seed)
    manifest = Manifest(
        folder=folder,
        settings=settings,
        file=RECORDING_FILE,
        sha256=file_sha256(path),
        bytes=path.stat().st_size,
        episodes=len(lengths),
        frames=int(lengths.sum()),
        columns=columns,
        split=split,
        goal_offset=GOAL_OFFSET,
        pairs=draw_pairs(task, lengths, offsets, states, split.planning, seed),
        versions={**package_versions(), **_simulator_versions()},
        machine=machine(),
        commit=git_commit(),
        command=command_line(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    manifest.write()
    return manifest


def _simulator_versions() -> dict[str, str]:
    """Versions of what simulates and draws: scales and success rules differ between releases."""
    import importlib.metadata

    names = ("stable-worldmodel", "gymnasium", "mujoco", "dm_control", "ogbench", "pymunk", "pygame", "h5py")
    return {name: importlib.metadata.version(name) for name in names}
