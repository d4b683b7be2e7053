"""Candidate action sequences, executed once in the simulator and stored: the same ones judge every model (T11).

Of each planning pair, from its recorded start and over the task's diagnostic horizon: the recorded sequence, random
ones as a planner's first iteration draws them, and candidates of several iterations of the cross-entropy method. Those
must favour no model that is compared, so the method runs on the true outcome; ``candidates_from`` takes them from one
model's latent cost instead. Candidates are kept by index, never by cost.

The grids of states around some goals (:mod:`visual.neighborhoods`) are drawn in the same run, for the same reason.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from torch import Tensor, nn

from theory.runs import finished_run, open_run, read_rows, read_run
from visual.checkpoint import WorldModel
from visual.data import Recording
from visual.environments import FRAME_COLUMN, open_world, quiet, read_columns, render, set_state
from visual.evaluation import Scaling, action_scaling, check_trained_for
from visual.manifest import Pairs
from visual.neighborhoods import GRIDS_FILE, Grids, draw_grids
from visual.planning import PAIR_KEY, EpisodeCEM, LatentCost
from visual.tasks import Columns, Task
from visual.training import step_seed

if TYPE_CHECKING:
    from stable_worldmodel import World

CANDIDATES_FILE = "candidates.npz"
RECORDED, RANDOM = "recorded", "random"
_RANDOM_STREAM, _CEM_STREAM = 1, 2


@dataclass(frozen=True)
class Budget:
    """How many sequences a pair gets, and what the grids of states look like (``visual/conf/diagnose.yaml``).

    Attributes
    ----------
    random
        Random sequences.
    samples, elites
        Candidates per iteration of the cross-entropy method, and those that the next one is fitted to.
    task_samples, task_elites
        The same for tasks that differ: a step of Cube takes ten times as long as one of TwoRoom.
    after, kept
        Iterations of which candidates are kept, ascending; how many of each, the first by index.
    goals, grid
        Goals with a grid of states around them, and cells per side of a grid, odd.
    """

    random: int = 16
    samples: int = 32
    elites: int = 6
    task_samples: Mapping[str, int] = field(default_factory=lambda: {"cube": 10})
    task_elites: Mapping[str, int] = field(default_factory=lambda: {"cube": 3})
    after: tuple[int, ...] = (1, 2, 4)
    kept: int = 8
    goals: int = 4
    grid: int = 15

    def __post_init__(self) -> None:
        if isinstance(self.after, str) or not isinstance(self.after, Sequence):
            raise ValueError(f"candidates.after must be a list of iterations, but it is {self.after!r}.")
        for name in ("task_samples", "task_elites"):
            if not isinstance(getattr(self, name), Mapping):
                raise ValueError(f"candidates.{name} must give numbers by task, but it is {getattr(self, name)!r}.")
        object.__setattr__(self, "after", tuple(self.after))
        object.__setattr__(self, "task_samples", dict(self.task_samples))
        object.__setattr__(self, "task_elites", dict(self.task_elites))
        counts: dict[str, Any] = {name: getattr(self, name) for name in ("random", "samples", "elites", "kept", "grid")}
        counts |= {f"after[{index}]": value for index, value in enumerate(self.after)}
        counts |= {f"task_samples.{name}": value for name, value in self.task_samples.items()}
        counts |= {f"task_elites.{name}": value for name, value in self.task_elites.items()}
        for name, value in counts.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"candidates.{name} must be a positive integer, but it is {value!r}.")
        if list(self.after) != sorted(set(self.after)) or not self.after:
            raise ValueError(f"candidates.after must hold ascending iterations, but it is {list(self.after)}.")
        if isinstance(self.goals, bool) or not isinstance(self.goals, int) or self.goals < 0:
            raise ValueError(f"candidates.goals must be a whole number ≥ 0, but it is {self.goals!r}.")
        if self.grid % 2 == 0 or self.grid < 3:
            raise ValueError(f"candidates.grid must be odd and at least 3, but it is {self.grid}.")
        for samples, elites in [self.for_task(name) for name in ("", *self.task_samples, *self.task_elites)]:
            if not 2 <= elites <= samples or self.kept > samples:
                raise ValueError(
                    f"candidates: {elites} elites and {self.kept} kept must lie within {samples} samples, elites ≥ 2."
                )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Budget:
        """Build a budget from a configuration; ``ValueError`` for an unknown setting."""
        unknown = sorted(set(values) - {item.name for item in fields(cls)})
        if unknown:
            raise ValueError(f"candidates has no setting {', '.join(unknown)}.")
        return cls(**{str(name): value for name, value in values.items()})

    def for_task(self, task: str) -> tuple[int, int]:
        """Samples and elites on a task."""
        return self.task_samples.get(task, self.samples), self.task_elites.get(task, self.elites)

    @property
    def sequences(self) -> int:
        """Sequences of each pair."""
        return 1 + self.random + self.kept * len(self.after)


@dataclass(frozen=True)
class Candidates:
    """Executed sequences of P pairs, S of each.

    Attributes
    ----------
    pairs, episodes, solved
        Planning pair and its episode, and whether its start already is a success, (P,).
    sources
        Where each sequence comes from: ``"recorded"``, ``"random"``, ``"cem-<iteration>"``, (S,).
    actions
        Actions of the environment, (P, S, T, A) float32.
    frames
        Frame that each reached, (P, S, H, H, 3) uint8.
    states
        State columns that each reached, (P, S, …).
    outcomes
        ``Task.outcome`` of the reached state against the pair's goal, (P, S).
    grids
        States around goals.
    sha256
        Hash of the stored arrays.
    """

    pairs: NDArray[np.int64]
    episodes: NDArray[np.int64]
    solved: NDArray[np.bool_]
    sources: tuple[str, ...]
    actions: NDArray[np.float32]
    frames: NDArray[np.uint8]
    states: dict[str, NDArray[Any]]
    outcomes: NDArray[np.float64]
    grids: Grids | None
    sha256: str


@dataclass(frozen=True)
class _End:
    """What a sequence led to."""

    state: Columns
    outcome: float
    frame: NDArray[np.uint8] | None


class Execution:
    """A simulator that executes sequences from recorded states and draws where they end, and nothing on the way.

    Every execution starts with a reset, so that it does not depend on what was executed before.
    """

    def __init__(self, task: Task, world: World) -> None:
        self._task, self._world = task, world

    def run(self, pair: int, start: Columns, goal: Columns, actions: NDArray[np.float32], *, draw: bool) -> _End:
        """Execute ``actions`` (T, A) from ``start``; the frame is drawn on request."""
        world = self._world
        with without_frames(world):
            # The goal stays unset: reaching it on the way must not end the execution.
            world.reset(seed=pair)
            set_state(world, self._task, start)
            for action in actions:
                _, _, _, _, world.infos = world.envs.step(action[None])
        row = read_columns(self._task, world.infos)
        state = {name: row[name] for name in self._task.columns}
        return _End(state, float(self._task.outcome(state, goal)), render(world) if draw else None)


@contextlib.contextmanager
def without_frames(world: World, index: int = 0) -> Iterator[None]:
    """Within the block, steps and resets of simulator ``index`` draw nothing: ``infos`` hold an empty frame."""
    from stable_worldmodel.wrapper import AddPixelsWrapper

    wrapper = world.envs.envs[index]
    while not isinstance(wrapper, AddPixelsWrapper):
        if not hasattr(wrapper, "env"):
            raise ValueError("The world was opened without pixels.")
        wrapper = wrapper.env
    empty = np.zeros((*wrapper.pixels_shape, 3), dtype=np.uint8)
    wrapper._get_pixels = lambda: ({FRAME_COLUMN: empty}, 0.0)
    try:
        yield
    finally:
        del wrapper._get_pixels


class _Score(nn.Module):
    """Cost of the cross-entropy method for one pair: the outcome of execution, or a model's; it keeps what is asked."""

    def __init__(
        self,
        run: Callable[[NDArray[np.float32], bool], _End],
        scaling: Scaling,
        budget: Budget,
        latent: LatentCost | None,
    ) -> None:
        super().__init__()
        self._run, self._scaling, self._budget, self._latent = run, scaling, budget, latent
        self._iteration = 0
        self.kept: list[tuple[str, NDArray[np.float32], _End]] = []

    def get_cost(self, info_dict: dict[str, Any], action_candidates: Tensor) -> Tensor:
        """Costs (1, S) of plans (1, S, T, block · A)."""
        self._iteration += 1
        count = self._budget.kept if self._iteration in self._budget.after else 0
        plans = action_candidates[0].flatten(1).unflatten(1, (-1, len(self._scaling.mean)))
        actions = self._scaling.inverse_transform(plans.double().numpy()).astype(np.float32)
        needed = actions if self._latent is None else actions[:count]
        ends = [self._run(plan, index < count) for index, plan in enumerate(needed)]
        self.kept += [(f"cem-{self._iteration}", actions[index], ends[index]) for index in range(count)]
        if self._latent is not None:
            return self._latent.get_cost(info_dict, action_candidates)
        return torch.tensor([[end.outcome for end in ends]], dtype=action_candidates.dtype)

    def criterion(self, info_dict: dict[str, Any], action_candidates: Tensor) -> Tensor:
        """As :meth:`get_cost`."""
        return self.get_cost(info_dict, action_candidates)


def candidates_folder(out: str | Path, task: str, preset: str, source: str | None = None) -> Path:
    """``<out>/<task>/candidates-<preset>``, with the name of the model that the candidates were taken from, if any."""
    return Path(out) / task / (f"candidates-{preset}" if source is None else f"candidates-{preset}-{source}")


def make_candidates(
    folder: Path,
    task: Task,
    recording: Recording,
    preset: str,
    *,
    cases: int | None = None,
    seed: int = 0,
    budget: Budget | None = None,
    model: WorldModel | None = None,
    model_sha256: str | None = None,
    progress: Callable[[int, int], object] | None = None,
    force: bool = False,
) -> Candidates:
    """Execute candidates of the first pairs of a recording, or read them if that was done with equal settings.

    Parameters
    ----------
    folder
        The run's folder.
    task, recording, preset
        The task, its recording, and the preset's name.
    cases
        Number of pairs; by default ``task.cases``, or as many as there are.
    seed
        Seed of random sequences and of the cross-entropy method; both are functions of seed and pair.
    budget
        How many sequences.
    model, model_sha256
        A model whose latent cost the cross-entropy method descends, instead of the outcome, and its weights' hash.
    progress
        Called as ``progress(done, total)``, in pairs.
    force
        Execute again over a finished run.

    Raises
    ------
    ValueError
        If the recording has too few pairs, or the folder holds a run with other settings.

    Notes
    -----
    TwoRoom takes 152 executions a pair, about 4 s; Cube, whose steps and resets are slow, has a smaller budget: 57.
    """
    budget = budget or Budget()
    pairs = recording.pairs(task)
    count = min(task.cases, len(pairs)) if cases is None else cases
    if not 1 <= count <= len(pairs):
        raise ValueError(f"cases must lie in 1..{len(pairs)}, the planning pairs of {recording.path}; got {count}.")
    settings = {
        "task": task.name,
        "preset": preset,
        "cases": count,
        "horizon": task.horizon,
        "seed": seed,
        "budget": asdict(budget),
        "neighborhood": None if task.neighborhood is None else task.neighborhood.describe(),
        "data_sha256": recording.sha256,
        "candidates_from": model_sha256,
    }
    try:
        finished = not force and finished_run(folder, settings) is not None
    except ValueError as error:
        # A diagnosis has a force of its own.
        raise ValueError(f"{error} For candidates that is force_candidates=true.") from None
    if finished:
        return load_candidates(folder)
    with open_run(folder, settings, force=force) as run:
        rows, arrays, grids = _execute(task, recording, pairs, count, seed, budget, model, progress)
        rows.insert(0, "preset", preset)
        rows.insert(0, "task", task.name)
        rows.insert(0, "origin", "measured")
        run.write_file(CANDIDATES_FILE, lambda path: np.savez_compressed(path, **arrays))
        if grids is not None:
            run.write_file(GRIDS_FILE, lambda path: grids.write(path))
        run.write_rows(rows)
    return load_candidates(folder)


def load_candidates(folder: Path) -> Candidates:
    """Read a finished run of :func:`make_candidates`; ``ValueError`` if there is none, or only its published rows."""
    record = read_run(folder)
    if CANDIDATES_FILE not in record.files:
        raise ValueError(
            f"{folder} holds the rows of candidates without their actions and frames; execute them again with "
            "force_candidates=true, or use another out."
        )
    rows = read_rows(folder)
    count = rows["pair"].nunique()
    with np.load(folder / CANDIDATES_FILE) as stored:
        arrays = {name: stored[name] for name in stored.files}
    first = rows[rows["sequence"] == 0]
    return Candidates(
        pairs=first["pair"].to_numpy(dtype=np.int64),
        episodes=first["episode"].to_numpy(dtype=np.int64),
        solved=first["already_solved"].to_numpy(dtype=bool),
        sources=tuple(rows["source"][: len(rows) // count]),
        actions=arrays.pop("actions"),
        frames=arrays.pop("frames"),
        states={name.removeprefix("state_"): values for name, values in arrays.items()},
        outcomes=rows["outcome"].to_numpy(dtype=np.float64).reshape(count, -1),
        grids=Grids.read(folder / GRIDS_FILE) if GRIDS_FILE in record.files else None,
        sha256="".join(record.files[name] for name in (CANDIDATES_FILE, GRIDS_FILE) if name in record.files),
    )


def _execute(
    task: Task,
    recording: Recording,
    pairs: Pairs,
    count: int,
    seed: int,
    budget: Budget,
    model: WorldModel | None,
    progress: Callable[[int, int], object] | None,
) -> tuple[pd.DataFrame, dict[str, Any], Grids | None]:
    scaling = action_scaling(model, recording)
    starts, goals = recording.rows_of(pairs)
    manifest = recording.manifest
    rows: list[dict[str, Any]] = []
    actions, ends = [], []
    with (
        quiet(),
        open_world(
            task,
            image_size=recording.image_size,
            fast_rendering=bool(manifest is not None and manifest.settings.get("fast_rendering", False)),
        ) as world,
    ):
        execution = Execution(task, world)
        for pair in range(count):
            found = _sequences(
                task, recording, execution, pair, starts[pair], goals[pair], seed, budget, scaling, model
            )
            for sequence, (source, plan, end) in enumerate(found):
                labels = {"pair": pair, "episode": pairs.episode[pair], "sequence": sequence, "source": source}
                rows.append({**labels, "outcome": end.outcome, "already_solved": pairs.already_solved[pair]})
                actions.append(plan)
                ends.append(end)
            if progress is not None:
                progress(pair + 1, count)
        grids = draw_grids(world, task, recording, pairs, budget.goals, budget.grid, without_frames)
    shape = (count, budget.sequences)
    arrays: dict[str, Any] = {
        "actions": np.stack(actions).reshape(*shape, task.horizon, recording.action_dim),
        "frames": np.stack([end.frame for end in ends if end.frame is not None]).reshape(
            *shape, recording.image_size, recording.image_size, 3
        ),
    }
    for name in task.columns:
        values = np.stack([end.state[name] for end in ends])
        arrays[f"state_{name}"] = values.reshape(*shape, *values.shape[1:])
    return pd.DataFrame(rows), arrays, grids


def _sequences(
    task: Task,
    recording: Recording,
    execution: Execution,
    pair: int,
    start_row: int,
    goal_row: int,
    seed: int,
    budget: Budget,
    scaling: Scaling,
    model: WorldModel | None,
) -> list[tuple[str, NDArray[np.float32], _End]]:
    states = recording.read_state(task, np.array([start_row, goal_row]))
    start, goal = ({name: values[index] for name, values in states.items()} for index in (0, 1))

    def run(plan: NDArray[np.float32], draw: bool = True) -> _End:
        return execution.run(pair, start, goal, plan, draw=draw)

    recorded = np.asarray(recording.read("action", slice(start_row, start_row + task.horizon)), dtype=np.float32)
    generator = np.random.default_rng(np.random.SeedSequence([seed, pair, _RANDOM_STREAM]))
    noise = generator.standard_normal((budget.random, task.horizon, recording.action_dim))
    plans = [(RECORDED, recorded)]
    plans += [(RANDOM, plan) for plan in scaling.inverse_transform(noise).astype(np.float32)]
    found = [(source, plan, run(plan)) for source, plan in plans]
    score = _Score(run, scaling, budget, None if model is None else LatentCost(model.model))
    info: dict[str, Any] = {PAIR_KEY: torch.tensor([[pair]])}
    if model is not None:
        info |= _frames(recording, start_row, goal_row)
    # Every action is drawn by itself, so that the outcome's method needs no blocks; a model's has its own.
    block = 1 if model is None else action_block(task, model, recording)
    samples, elites = budget.for_task(task.name)
    solver = EpisodeCEM(
        score,
        seed=step_seed(seed, 0, _CEM_STREAM),
        num_samples=samples,
        topk=elites,
        n_steps=budget.after[-1],
        device="cpu",
    )
    _configure(solver, task.horizon // block, block, recording.action_dim)
    solver.solve(info)
    return [*found, *score.kept]


def action_block(task: Task, model: WorldModel, recording: Recording) -> int:
    """Environment actions that a model takes at once.

    Raises
    ------
    ValueError
        If the model was trained on another task, its frames or actions are not the recording's, or the task's
        diagnostic horizon is no multiple of the block.
    """
    check_trained_for(model, task, recording)
    if model.action_width % recording.action_dim:
        raise ValueError(
            f"The model takes {model.action_width} stacked action components, which is no multiple of the "
            f"{recording.action_dim} of an action of {recording.path}."
        )
    block = model.action_width // recording.action_dim
    if task.horizon % block:
        raise ValueError(
            f"The diagnostic horizon of {task.title} is {task.horizon} steps, which is no multiple of the model's "
            f"blocks of {block} actions."
        )
    return block


def _configure(solver: EpisodeCEM, horizon: int, block: int, action_dim: int) -> None:
    from stable_worldmodel.policy import PlanConfig

    space = Box(-1.0, 1.0, (1, action_dim))
    config = PlanConfig(horizon=horizon, receding_horizon=horizon, action_block=block)
    solver.configure(action_space=space, n_envs=1, config=config)


def _frames(recording: Recording, start_row: int, goal_row: int) -> dict[str, Tensor]:
    from visual.model import normalize_pixels

    frames = torch.from_numpy(recording.read(FRAME_COLUMN, np.array([start_row, goal_row]))).movedim(-1, -3)
    pixels = normalize_pixels(frames)
    return {"pixels": pixels[:1, None], "goal": pixels[1:, None]}
