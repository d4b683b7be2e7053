"""Success on held-out pairs: one row per pair, the random floor on the same pairs, none dropped.

What this module guards, each once:

- Plans survive in stable-worldmodel's policy between evaluations: every batch of episodes gets a new policy.
- Its evaluation needs exactly as many environments as episodes: here a batch may be smaller than the world.
- A reset shows the reset's frame, not the recorded start's: frames of start and goal are the recorded ones, drawn with
  the rendering of the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from visual.checkpoint import WorldModel
from visual.data import ClipDataset, Recording
from visual.environments import FRAME_COLUMN, open_world, read_columns, set_goal, set_state
from visual.features import encode_frames
from visual.manifest import Pairs
from visual.model import normalize_pixels
from visual.planning import PAIR_KEY, LatentCost, Planner, check_history
from visual.planning import Protocol as PlanProtocol
from visual.tasks import Columns, Task, get_task

if TYPE_CHECKING:
    from stable_worldmodel import World

COSTS = ("latent", "standardized", "simulator")
_AT_ONCE = 25


@dataclass(frozen=True)
class Scaling:
    """Standardisation of one environment action, as training used it; what stable-worldmodel's policy calls.

    Attributes
    ----------
    mean, std
        (A,).
    """

    mean: NDArray[np.float32]
    std: NDArray[np.float32]

    def transform(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Standardised actions."""
        return np.asarray((actions - self.mean) / self.std)

    def inverse_transform(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Actions of the environment."""
        return np.asarray(actions * self.std + self.mean)


class Actor(Protocol):
    """What chooses actions: a policy of stable-worldmodel or :class:`RandomActions`."""

    def set_env(self, env: Any) -> None:
        """Take the environments."""
        ...

    def get_action(self, info_dict: dict[str, Any]) -> NDArray[Any]:
        """One action per environment, (n, A)."""
        ...


class RandomActions:
    """Uniform actions; those of a pair are a function of the seed and the pair."""

    def __init__(self, seed: int, pairs: Sequence[int]) -> None:
        self._generators = [np.random.default_rng(np.random.SeedSequence([seed, pair])) for pair in pairs]

    def set_env(self, env: Any) -> None:
        """Take the bounds of the action space."""
        self._low, self._high = env.single_action_space.low, env.single_action_space.high

    def get_action(self, info_dict: dict[str, Any]) -> NDArray[Any]:
        """One action per environment."""
        rows = [generator.uniform(self._low, self._high) for generator in self._generators]
        return np.asarray(rows, dtype=np.float32)


@dataclass
class _Episode:
    """What is recorded of one pair while it runs."""

    pair: int
    start: Columns
    goal: Columns
    success: bool = False
    best: float = np.inf
    final: float = np.inf
    steps: int = 0


def evaluate(
    model: WorldModel | None,
    task: str | Task,
    recording: Recording,
    protocol: PlanProtocol,
    *,
    seed: int = 0,
    cost: str = "latent",
    scaling: Scaling | None = None,
    device: str = "cpu",
    progress: Callable[[int, int], object] | None = None,
) -> pd.DataFrame:
    """Plan on the first ``protocol.pairs`` planning pairs of a recording.

    Parameters
    ----------
    model
        The world model; ``None`` only with ``cost="simulator"``.
    task, recording, protocol
        The task, its recording, how to plan.
    seed
        Seed of candidates and random actions.
    cost
        ``"latent"``: squared latent distance. ``"standardized"``: every coordinate divided by its standard deviation
        over training frames (an ablation). ``"simulator"``: the outcome of executing the plan, a ceiling for the
        planner.
    scaling
        Scaling of actions; by default the model's card, or else the recording's training split.
    device
        Where to plan.
    progress
        Called as ``progress(done, total)``.

    Returns
    -------
    DataFrame
        One row per pair: ``pair``, ``episode``, ``start``, ``goal``, ``seed``, ``success`` (the environment said so
        within the budget), ``final_outcome``, ``best_outcome``, ``start_outcome`` (1 is the boundary of success),
        ``already_solved``, ``steps``, ``solves``, ``seconds`` (of planning), ``random_success``,
        ``random_best_outcome``.

    Raises
    ------
    ValueError
        If the recording has too few pairs, or model, recording and protocol do not fit together.
    """
    task = get_task(task)
    if cost not in COSTS:
        raise ValueError(f"There is no cost {cost!r}; the costs are {', '.join(COSTS)}.")
    if seed < 0:
        raise ValueError(f"The seed of planning must not be negative, but it is {seed}.")
    pairs = recording.pairs(task)
    if protocol.pairs > len(pairs):
        raise ValueError(
            f"{recording.path} has {len(pairs)} planning pairs, fewer than protocol.pairs = {protocol.pairs}."
        )
    if model is not None:
        check_fit(model, task, recording, protocol)
    elif cost != "simulator":
        raise ValueError(f"The cost {cost!r} needs a model.")
    if cost == "simulator" and protocol.solver == "gradient":
        raise ValueError("The gradient solver needs a cost with a gradient, which the simulator's is not.")
    check_device(device)
    scaling = scaling or action_scaling(model, recording)
    chosen = list(range(protocol.pairs))
    simulator = None
    if cost == "simulator":
        from visual.ceiling import SimulatorCost

        simulator = SimulatorCost(task, scaling)
    score = simulator if simulator is not None else latent_cost(model, recording, cost, device)
    planner = Planner(score, protocol, task.name, seed, device)

    def plan(_: Sequence[int]) -> Actor:
        from stable_worldmodel.policy import WorldModelPolicy

        policy: Actor = WorldModelPolicy(planner, planner.config, process={"action": scaling})
        return policy

    try:
        episodes = list(
            run_pairs(
                task,
                recording,
                pairs,
                chosen,
                protocol.budget,
                plan,
                frames=simulator is None,
                watch=simulator,
                progress=progress,
            )
        )
    finally:
        if simulator is not None:
            simulator.close()
    random = list(
        run_pairs(task, recording, pairs, chosen, protocol.budget, lambda part: RandomActions(seed, part), frames=False)
    )
    return pd.DataFrame(
        {
            "pair": pair,
            "episode": pairs.episode[pair],
            "start": pairs.start[pair],
            "goal": pairs.goal[pair],
            "seed": seed,
            "success": episode.success,
            "final_outcome": episode.final,
            "best_outcome": episode.best,
            "start_outcome": pairs.outcome[pair],
            "already_solved": pairs.already_solved[pair],
            "steps": episode.steps,
            "solves": planner.solves[pair],
            "seconds": float(planner.seconds[pair]),
            "random_success": floor.success,
            "random_best_outcome": floor.best,
        }
        for pair, episode, floor in zip(chosen, episodes, random, strict=True)
    )


def feature_std(model: WorldModel, recording: Recording, count: int = 1024, device: str = "cpu") -> Tensor:
    """Standard deviation of each latent coordinate (D,) over ``count`` training frames.

    Raises
    ------
    ValueError
        If a coordinate does not vary.
    """
    clips = ClipDataset(recording.manifest or recording.path, "train", 1, 1, verify=False)
    chosen = torch.from_numpy(np.random.default_rng(0).permutation(len(clips))[:count])
    parts = [
        encode_frames(model.model, normalize_pixels(clips.batch(part)[0][:, 0].to(device))) for part in chosen.split(64)
    ]
    std = torch.cat(parts).std(dim=0)
    if not bool((std > 0).all()):
        raise ValueError("A latent coordinate does not vary over training frames, so it cannot be standardised.")
    return std


def run_pairs(
    task: Task,
    recording: Recording,
    pairs: Pairs,
    chosen: Sequence[int],
    budget: int,
    make_actor: Callable[[Sequence[int]], Actor],
    *,
    frames: bool,
    watch: Any = None,
    progress: Callable[[int, int], object] | None = None,
) -> Iterator[_Episode]:
    """Run pairs in batches; ``watch.observe(pair, state, goal)`` sees every state before it is acted on."""
    manifest = recording.manifest
    with open_world(
        task,
        num_envs=min(len(chosen), _AT_ONCE),
        image_size=recording.image_size,
        fast_rendering=bool(manifest is not None and manifest.settings.get("fast_rendering", False)),
        pixels=frames,
    ) as world:
        for begin in range(0, len(chosen), world.num_envs):
            part = chosen[begin : begin + world.num_envs]
            yield from _run_batch(world, task, recording, pairs, part, budget, make_actor(part), frames, watch)
            if progress is not None:
                progress(begin + len(part), len(chosen))


def _run_batch(
    world: World,
    task: Task,
    recording: Recording,
    pairs: Pairs,
    part: Sequence[int],
    budget: int,
    actor: Actor,
    frames: bool,
    watch: Any,
) -> list[_Episode]:
    first = recording.offsets[[pairs.episode[pair] for pair in part]]
    rows = {name: first + [getattr(pairs, name)[pair] for pair in part] for name in ("start", "goal")}
    states = {name: recording.read_state(task, rows[name]) for name in rows}
    episodes = [
        _Episode(pair, _row(states["start"], index), _row(states["goal"], index)) for index, pair in enumerate(part)
    ]
    count = world.num_envs
    world.reset(seed=[part[min(i, len(part) - 1)] for i in range(count)])
    actor.set_env(world.envs)
    pinned: dict[str, Any] = {PAIR_KEY: _padded(np.array(part), count)[:, None]}
    if frames:
        pinned["goal"] = _padded(recording.read(FRAME_COLUMN, rows["goal"]), count)[:, None]
        world.infos[FRAME_COLUMN] = _padded(recording.read(FRAME_COLUMN, rows["start"]), count)[:, None]
    for index, episode in enumerate(episodes):
        set_state(world, task, episode.start, index)
        set_goal(world, task, episode.goal, index)
    current = [episode.start for episode in episodes]
    alive = np.arange(count) < len(part)
    for _ in range(budget):
        if not alive.any():
            break
        if watch is not None:
            for episode, state in zip(episodes, current, strict=True):
                watch.observe(episode.pair, state, episode.goal)
        world.infos.update({name: value.copy() for name, value in pinned.items()}, terminated=~alive[:, None])
        actions = _padded(np.asarray(actor.get_action(world.infos)), count)
        _, _, terminated, _, world.infos = world.envs.step(actions, mask=alive)
        for index in map(int, np.flatnonzero(alive)):
            episode = episodes[index]
            current[index] = read_columns(task, world.infos, index)
            episode.final = float(task.outcome(current[index], episode.goal))
            episode.best = min(episode.best, episode.final)
            episode.success |= bool(terminated[index])
            episode.steps += 1
        alive &= ~terminated
    return episodes


def _row(columns: Columns, index: int) -> Columns:
    return {name: values[index] for name, values in columns.items()}


def _padded(values: NDArray[Any], count: int) -> NDArray[Any]:
    """The rows of ``values``, the last one repeated up to ``count``: a last batch may be smaller than the world."""
    return values[np.minimum(np.arange(count), len(values) - 1)]


def check_trained_for(model: WorldModel, task: Task, recording: Recording) -> None:
    """Refuse a model whose card names another task, or whose frames are not the recording's.

    Raises
    ------
    ValueError
        If one of these differs.
    """
    if model.card.get("task", task.name) != task.name:
        raise ValueError(f"The model was trained on the task {model.card['task']!r}, not on {task.name!r}.")
    if model.image_size != recording.image_size:
        raise ValueError(
            f"{recording.path} holds frames of {recording.image_size} px, but the model takes {model.image_size} px."
        )


def check_fit(model: WorldModel, task: Task, recording: Recording, protocol: PlanProtocol) -> None:
    """Refuse a model that cannot plan on a recording with a protocol.

    Raises
    ------
    ValueError
        If task, history, frames or actions do not go together.
    """
    check_history(protocol, model)
    check_trained_for(model, task, recording)
    if model.action_width != protocol.action_block * recording.action_dim:
        raise ValueError(
            f"The model takes {model.action_width} stacked action components, but {protocol.action_block} actions of "
            f"{recording.path} have {protocol.action_block * recording.action_dim}."
        )


def check_device(device: str) -> None:
    """Refuse a device that PyTorch cannot use here.

    Raises
    ------
    ValueError
        If a tensor cannot be put there.
    """
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise ValueError(f"The device {device!r} cannot be used here ({reason}).") from None


def action_scaling(model: WorldModel | None, recording: Recording) -> Scaling:
    """Scaling of actions that a model was trained with; without a model or card, that of the training split."""
    if model is not None and model.action_mean is not None and model.action_std is not None:
        return Scaling(model.action_mean.numpy(), model.action_std.numpy())
    clips = ClipDataset(recording.manifest or recording.path, "train", 1, 1, verify=False)
    return Scaling(clips.action_mean.numpy(), clips.action_std.numpy())


def latent_cost(model: WorldModel | None, recording: Recording, cost: str, device: str) -> nn.Module:
    """The cost of a model by name, ``"latent"`` or ``"standardized"``, on a device."""
    assert model is not None
    model.model.to(device)
    weights = feature_std(model, recording, device=device).square().reciprocal() if cost == "standardized" else None
    return LatentCost(model.model, weights).to(device)
