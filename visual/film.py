"""Planned pairs as film: what figures of rollouts, arenas and environments need of the simulator, small enough to keep.

Pairs are planned again, with the candidates of the evaluation, and the actions that were executed are replayed with a
camera running. The pairs are chosen by rule: the first, in the order of evaluation, that are not solved at the start.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from theory.runs import describe_finished, finished_run, open_run
from visual.candidates import candidates_folder
from visual.checkpoint import WorldModel, load_checkpoint, weights_hash
from visual.data import Recording, open_recording
from visual.environments import FRAME_COLUMN, open_world, read_columns, render, set_goal, set_state
from visual.evaluation import Actor, action_scaling, check_device, check_fit, latent_cost, run_pairs
from visual.experiment import run_folder, trained_folder
from visual.manifest import Pairs
from visual.neighborhoods import GRIDS_FILE
from visual.planning import Planner, Protocol
from visual.tasks import Task, get_task

FRAMES_FILE = "frames.npz"
#: A film fits into this many bytes: frames are left out, at first every second one, until it does.
MAX_BYTES = 1_000_000
#: Height and width of the picture of the environment.
SCENE_SIZE = 224
_STRIDES = (1, 2, 5, 10, 25)


class RecordedActions:
    """An actor that remembers what another one did, by pair."""

    def __init__(self, actor: Actor, pairs: Sequence[int]) -> None:
        self.actions: dict[int, list[NDArray[Any]]] = {pair: [] for pair in pairs}
        self._actor, self._pairs = actor, list(pairs)

    def set_env(self, env: Any) -> None:
        """Pass the environments on."""
        self._actor.set_env(env)

    def get_action(self, info_dict: dict[str, Any]) -> NDArray[Any]:
        """Actions of the other actor."""
        actions = np.asarray(self._actor.get_action(info_dict))
        for index, pair in enumerate(self._pairs):
            self.actions[pair].append(actions[index].copy())
        return actions


def film(
    task: str | Task,
    kappa: float,
    preset: str,
    training_seed: int,
    protocol: Protocol,
    *,
    pairs: int = 2,
    seed: int = 0,
    data: str | Path | None = None,
    out: str | Path = "results/visual",
    device: str = "cpu",
    progress: Callable[[int, int], object] | None = None,
    force: bool = False,
) -> Path:
    """Film planned pairs of a model and leave frames and rows in its run folder.

    Parameters
    ----------
    task, kappa, preset, training_seed
        Which model.
    protocol, seed
        How to plan; seed of the candidates.
    pairs
        How many.
    data
        Recording; by default ``data/<task>/<preset>``.
    out, device, progress, force
        As for :func:`visual.success.plan`.

    Returns
    -------
    Path
        The run's folder, ``…/film-<protocol>``. Its rows: one per pair and step, with ``outcome`` and ``reached``. Its
        ``frames.npz``, uint8: ``pair_<n>`` (T, H, W, 3) at the steps ``steps_<n>`` (T,), ``goal_<n>`` (H, W, 3),
        ``scene`` (224, 224, 3), and where neighbourhoods were drawn, ``grid_<n>`` (5, H, W, 3): the goal and the grid's
        corners.

    Raises
    ------
    ValueError
        If an input is not valid, there are fewer pairs that are not solved at the start, the replay differs from the
        plan's execution, or the folder holds a run with other settings.
    """
    task = get_task(task)
    parent = run_folder(out, task.name, kappa, training_seed, preset)
    folder = parent / f"film-{protocol.name}"
    check_device(device)
    if seed < 0:
        raise ValueError(f"The seed of candidates must not be negative, but it is {seed}.")
    recording = open_recording(data or Path("data") / task.name / preset)
    source = trained_folder(out, task.name, kappa, training_seed, preset)
    model = load_checkpoint(source)
    settings: dict[str, Any] = {
        "task": task.name,
        "kappa": float(kappa),
        "training_seed": training_seed,
        "preset": preset,
        "protocol": vars(protocol),
        "pairs": pairs,
        "seed": seed,
        "data_sha256": recording.sha256,
        "weights_sha256": weights_hash(source),
    }
    record = None if force else finished_run(folder, settings)
    if record is not None:
        print(describe_finished(record))
        return folder
    planning = recording.pairs(task)
    chosen = choose(planning, pairs)
    arenas = _arenas(candidates_folder(out, task.name, recording.preset or preset), settings["data_sha256"])
    with open_run(folder, settings, force=force) as run:
        actions, success = _plan(task, recording, planning, chosen, model, protocol, seed, device, progress)
        rows, frames = replay(task, recording, planning, actions)
        reached = rows.groupby("pair")["reached"].any().to_dict()
        if reached != success:
            pair = next(pair for pair in chosen if reached[pair] != success[pair])
            raise ValueError(
                f"{task.title} does not repeat itself: the replay of pair {pair} ends unlike its planning."
            )
        frames |= arenas
        labels: dict[str, Any] = {
            "origin": "measured",
            **{name: settings[name] for name in ("task", "kappa", "training_seed", "preset")},
        }
        for position, (name, value) in enumerate({**labels, "protocol": protocol.name, "seed": seed}.items()):
            rows.insert(position, name, value)
        content = compress(frames)
        run.write_rows(rows)
        run.write_file(FRAMES_FILE, lambda path: path.write_bytes(content))
    print(f"{folder}: pairs {', '.join(map(str, chosen))}; goals reached: {sum(reached.values())} of {len(reached)}.")
    return folder


def choose(pairs: Pairs, count: int) -> list[int]:
    """The first ``count`` pairs that are not solved at the start.

    Raises
    ------
    ValueError
        If there are fewer, or ``count`` is not positive.
    """
    unsolved = [pair for pair in range(len(pairs)) if not pairs.already_solved[pair]]
    if not 1 <= count <= len(unsolved):
        raise ValueError(f"pairs must lie in 1..{len(unsolved)}, those not solved at the start, but it is {count}.")
    return unsolved[:count]


def _plan(
    task: Task,
    recording: Recording,
    pairs: Pairs,
    chosen: list[int],
    model: WorldModel,
    protocol: Protocol,
    seed: int,
    device: str,
    progress: Callable[[int, int], object] | None,
) -> tuple[dict[int, list[NDArray[Any]]], dict[int, bool]]:
    """Executed actions and success of each pair, planned as the evaluation plans it."""
    check_fit(model, task, recording, protocol)
    scaling = action_scaling(model, recording)
    planner = Planner(latent_cost(model, recording, "latent", device), protocol, task.name, seed, device)
    actors: list[RecordedActions] = []

    def act(part: Sequence[int]) -> Actor:
        from stable_worldmodel.policy import WorldModelPolicy

        policy: Any = WorldModelPolicy(planner, planner.config, process={"action": scaling})
        actors.append(RecordedActions(policy, part))
        return actors[-1]

    episodes = list(run_pairs(task, recording, pairs, chosen, protocol.budget, act, frames=True, progress=progress))
    chosen_actions = {pair: done for actor in actors for pair, done in actor.actions.items()}
    # An actor is asked until the last pair of its batch is done.
    actions = {episode.pair: chosen_actions[episode.pair][: episode.steps] for episode in episodes}
    return actions, {episode.pair: episode.success for episode in episodes}


def replay(
    task: Task,
    recording: Recording,
    pairs: Pairs,
    actions: Mapping[int, Sequence[NDArray[Any]]],
) -> tuple[pd.DataFrame, dict[str, NDArray[Any]]]:
    """Execute actions from the recorded starts, drawing every step.

    Parameters
    ----------
    task, recording, pairs
        The task, its recording and planning pairs.
    actions
        By pair: the actions to execute, (steps, A).

    Returns
    -------
    rows
        ``pair``, ``step``, ``outcome``, ``reached`` (the environment said so, at this step or before).
    frames
        As :func:`film` stores them, without arenas; the frame of step 0 and that of the goal are the recorded ones.
    """
    manifest = recording.manifest
    fast = bool(manifest is not None and manifest.settings.get("fast_rendering", False))
    rows: list[dict[str, Any]] = []
    frames: dict[str, NDArray[Any]] = {}
    with open_world(task, image_size=recording.image_size, fast_rendering=fast) as world:
        for pair, plan in actions.items():
            places = recording.offsets[pairs.episode[pair]] + np.array([pairs.start[pair], pairs.goal[pair]])
            states = recording.read_state(task, places)
            start, goal = ({name: values[i] for name, values in states.items()} for i in (0, 1))
            recorded = recording.read(FRAME_COLUMN, places)
            # With the pair's seed, as the evaluation resets it.
            world.reset(seed=[pair])
            set_state(world, task, start)
            set_goal(world, task, goal)
            video, reached = [recorded[0]], False
            rows.append({"pair": pair, "step": 0, "outcome": float(task.outcome(start, goal)), "reached": reached})
            for step, action in enumerate(plan, start=1):
                _, _, terminated, _, world.infos = world.envs.step(np.asarray(action)[None])
                row = read_columns(task, world.infos)
                video.append(row[FRAME_COLUMN])
                reached |= bool(np.asarray(terminated).reshape(-1)[0])
                outcome = float(task.outcome(row, goal))
                rows.append({"pair": pair, "step": step, "outcome": outcome, "reached": reached})
            frames |= {f"pair_{pair}": np.stack(video), f"steps_{pair}": np.arange(len(video), dtype=np.int16)}
            frames[f"goal_{pair}"] = recorded[1]
    pair = next(iter(actions))
    place = recording.offsets[pairs.episode[pair]] + np.array([pairs.start[pair]])
    start = {name: values[0] for name, values in recording.read_state(task, place).items()}
    with open_world(task, image_size=SCENE_SIZE, fast_rendering=False) as world:
        world.reset(seed=[pair])
        set_state(world, task, start)
        frames["scene"] = render(world)
    return pd.DataFrame(rows), frames


def _arenas(folder: Path, data_sha256: str) -> dict[str, NDArray[Any]]:
    """Goal and corners of each grid of states, if ``diagnose`` has finished drawing some of this recording.

    ``ValueError`` if the candidates are damaged.
    """
    record = finished_run(folder)
    if record is None or GRIDS_FILE not in record.files or record.settings.get("data_sha256") != data_sha256:
        return {}
    with np.load(folder / GRIDS_FILE, allow_pickle=False) as stored:
        pairs, frames = stored["pairs"], stored["frames"]
    last = frames.shape[1] - 1
    cells = [(last // 2, last // 2), (0, 0), (0, last), (last, 0), (last, last)]
    return {
        f"grid_{pair}": np.stack([grid[cell] for cell in cells])
        for pair, grid in zip(pairs.tolist(), frames, strict=True)
    }


def compress(frames: Mapping[str, NDArray[Any]], limit: int = MAX_BYTES) -> bytes:
    """Frames as ``.npz`` of at most ``limit`` bytes; every second, fifth, … step is kept if all are too many.

    The first and the last step are always kept.

    Raises
    ------
    ValueError
        If even the fewest steps do not fit.
    """
    for stride in _STRIDES:
        kept = dict(frames)
        for name in [name for name in frames if name.startswith("pair_")]:
            last = len(frames[name]) - 1
            steps = np.unique([*range(0, last + 1, stride), last])
            number = name.removeprefix("pair_")
            kept |= {name: frames[name][steps], f"steps_{number}": frames[f"steps_{number}"][steps]}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **kept)  # type: ignore[arg-type]
        if len(buffer.getvalue()) <= limit:
            return buffer.getvalue()
    raise ValueError(
        f"The film needs more than {limit / 1e6:.1f} MB at {_STRIDES[-1]} steps a frame; film fewer pairs."
    )
