"""Planning in latent space: named protocols, a cost that is right for many episodes at once, solvers by name.

The cost of a plan is the squared distance from its predicted terminal latent to the goal's,

    J(a) = Σ_d s_d (ẑ_T(a) − z_goal)_d²,     s = 1 unless the standardisation ablation is asked for.

What this module guards, each once:

- ``LeWM.criterion`` of stable-worldmodel 0.1.1 mixes up episodes and candidates when a solver takes several episodes at
  a time: :class:`LatentCost` does not.
- Its solvers draw candidates for a whole batch from one stream, so that an episode's plan depends on its neighbours:
  :class:`EpisodeCEM` gives every episode and solve its own stream, and :class:`Planner` calls the other solvers for
  one episode at a time.
- They print at every solve: :class:`Planner` does not.
- ``history_len`` is ignored: planning starts from one frame and the context grows to the model's history; a protocol
  that asks for another history is refused.
- The standard deviation of a single elite is not a number: a protocol needs two.
- iCEM clamps standardised candidates to the bounds of raw actions: no solver clamps here.
"""

from __future__ import annotations

import contextlib
import io
import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from typing import Any

import numpy as np
import torch
from stable_worldmodel.policy import PlanConfig
from stable_worldmodel.solver import CEMSolver, GradientSolver, ICEMSolver, MPPISolver
from stable_worldmodel.wm.lewm import LeWM
from torch import Tensor, nn

from visual.checkpoint import WorldModel
from visual.model import normalize_pixels
from visual.rollout import terminal_latent
from visual.training import step_seed

SOLVERS = ("cem", "icem", "mppi", "gradient")
PAIR_KEY = "pair"
"""Entry of the information passed to a solver that says which planning pair each row is, (B, 1)."""


@dataclass(frozen=True)
class Protocol:
    """How plans are made (``visual/conf/protocol/<name>.yaml``).

    Attributes
    ----------
    name
        Protocol name, part of the run folder's.
    solver
        ``"cem"``, ``"icem"``, ``"mppi"`` or ``"gradient"``.
    num_samples, elites, iterations
        Candidates per iteration, those kept, iterations.
    task_iterations
        Iterations of tasks that differ.
    horizon, receding, action_block
        Length of a plan and the part that is executed before planning again, in blocks of ``action_block`` actions.
    initial_scale
        Standard deviation of the first candidates, in units of the recorded actions' standard deviation.
    budget
        Environment steps per episode.
    history
        Context frames, or ``None`` for the model's own.
    pairs
        Planning pairs.
    """

    name: str
    solver: str
    num_samples: int
    elites: int
    iterations: int
    task_iterations: dict[str, int]
    horizon: int
    receding: int
    action_block: int
    initial_scale: float
    budget: int
    history: int | None
    pairs: int

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Protocol:
        """Build a protocol from a configuration and check it.

        Raises
        ------
        ValueError
            If a setting is missing, unknown, or contradicts another.
        """
        names = {item.name for item in fields(cls)}
        missing, unknown = sorted(names - set(values)), sorted(set(values) - names)
        if missing or unknown:
            raise ValueError(f"The protocol lacks {missing or 'nothing'} and has unknown settings {unknown or 'none'}.")
        protocol = cls(**{str(key): value for key, value in values.items()})
        for name in ("num_samples", "elites", "iterations", "horizon", "receding", "action_block", "budget", "pairs"):
            value = getattr(protocol, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"protocol.{name} must be a positive integer, but it is {value!r}.")
        if protocol.solver not in SOLVERS:
            raise ValueError(f"There is no solver {protocol.solver!r}; the solvers are {', '.join(SOLVERS)}.")
        if protocol.solver != "gradient" and not 2 <= protocol.elites <= protocol.num_samples:
            raise ValueError(
                f"protocol.elites = {protocol.elites} must lie between 2 and num_samples = {protocol.num_samples}."
            )
        if protocol.receding > protocol.horizon:
            raise ValueError(f"protocol.receding = {protocol.receding} exceeds horizon = {protocol.horizon}.")
        if not 0 < protocol.initial_scale < math.inf:
            raise ValueError(f"protocol.initial_scale must be positive, but it is {protocol.initial_scale!r}.")
        return protocol

    def iterations_for(self, task: str) -> int:
        """Iterations on a task."""
        return int(self.task_iterations.get(task, self.iterations))


def load_protocol(name: str, /, **changes: Any) -> Protocol:
    """Read a protocol by name, with some settings changed.

    Raises
    ------
    ValueError
        If there is no such protocol or a change is not valid.
    """
    from omegaconf import OmegaConf

    folder = resources.files("visual") / "conf" / "protocol"
    source = folder / f"{name}.yaml"
    if not source.is_file():
        known = ", ".join(sorted(item.name.removesuffix(".yaml") for item in folder.iterdir()))
        raise ValueError(f"There is no protocol {name!r}; the protocols are {known}.")
    values = OmegaConf.to_container(OmegaConf.create(source.read_text(encoding="utf-8")), resolve=True)
    assert isinstance(values, dict)
    return Protocol.from_mapping({**{str(key): value for key, value in values.items()}, **changes})


class LatentCost(nn.Module):
    """Cost of candidate plans for any number of episodes, in the form stable-worldmodel's solvers call.

    Start and goal are encoded once per solve and kept in the dictionary that the solver passes at every iteration.

    Parameters
    ----------
    model
        LeWM in evaluation mode.
    weights
        s, (D,), or ``None`` for the Euclidean distance.
    """

    weights: Tensor | None

    def __init__(self, model: LeWM, weights: Tensor | None = None) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("weights", weights)

    def get_cost(self, info_dict: dict[str, Any], action_candidates: Tensor) -> Tensor:
        """Costs (B, S) of plans (B, S, T, frameskip · A); frames in the dictionary are (B, S or 1, 1, 3, H, W)."""
        if "latent_start" not in info_dict:
            info_dict["latent_start"], info_dict["latent_goal"] = self.encode(
                info_dict["pixels"][:, 0], info_dict["goal"][:, 0]
            )
        info_dict["latent_end"] = terminal_latent(self.model, info_dict["latent_start"], action_candidates)
        return self.criterion(info_dict, action_candidates)

    @torch.no_grad()
    def encode(self, pixels: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
        """Latents (B, D) of the last start frames and of the goal frames, in one pass; both (B, t, 3, H, W)."""
        frames = torch.stack([pixels[:, -1], goal[:, -1]], dim=1)
        latents: Tensor = self.model.encode({"pixels": frames})["emb"]
        return latents[:, 0], latents[:, 1]

    def criterion(self, info_dict: dict[str, Any], action_candidates: Tensor) -> Tensor:
        """Weighted squared distance of ``latent_end`` (B, S, D) from ``latent_goal`` (B, D): (B, S)."""
        difference = (info_dict["latent_end"] - info_dict["latent_goal"].unsqueeze(1)).square()
        return difference.sum(dim=-1) if self.weights is None else (difference * self.weights).sum(dim=-1)


class EpisodeCEM(CEMSolver):
    """stable-worldmodel's cross-entropy method for many episodes at once, each with its own stream of candidates.

    The plan of a pair is a function of the seed, the pair and how often it was planned before; who else is planned at
    the same time, and in which order, does not matter. With one episode and the same stream it is ``CEMSolver``.

    References
    ----------
    LeWorldModel, planning; ``stable_worldmodel.solver.CEMSolver`` 0.1.1, whose update rule it keeps.
    """

    def __init__(self, model: nn.Module, *, seed: int, **arguments: Any) -> None:
        super().__init__(model, seed=seed, **arguments)
        self.seed = seed
        self.solved: Counter[int] = Counter()

    @torch.inference_mode()
    def solve(self, info_dict: dict[str, Any], init_action: Tensor | None = None) -> dict[str, Any]:
        """Plan for every row of ``info_dict``; ``actions`` of the result are (B, horizon, frameskip · A)."""
        total = len(next(iter(info_dict.values())))
        pairs = pair_numbers(info_dict, total)
        streams = [
            torch.Generator(self.device).manual_seed(step_seed(self.seed, pair, self.solved[pair])) for pair in pairs
        ]
        self.solved.update(pairs)
        mean, std = (part.to(self.device) for part in self.init_action_distrib(total, init_action))
        shape = (self.num_samples, self.horizon, self.action_dim)
        shared = {
            name: value.to(self.device, self.dtype if value.is_floating_point() else None).unsqueeze(1)
            for name, value in info_dict.items()
            if torch.is_tensor(value)
        }
        for _ in range(self.n_steps):
            noise = torch.stack(
                [torch.randn(shape, generator=stream, device=self.device, dtype=self.dtype) for stream in streams]
            )
            candidates = noise * std.unsqueeze(1) + mean.unsqueeze(1)
            candidates[:, 0] = mean
            costs = self.model.get_cost(shared, candidates)
            best, indices = costs.topk(self.topk, dim=1, largest=False)
            elites = candidates.gather(1, indices[..., None, None].expand(-1, -1, *candidates.shape[2:]))
            mean, std = elites.mean(dim=1), elites.std(dim=1)
        return {"actions": mean.cpu(), "costs": best.mean(dim=1).tolist(), "mean": [mean.cpu()], "var": [std.cpu()]}


def pair_numbers(info_dict: Mapping[str, Any], total: int) -> list[int]:
    """Planning pair of each row; 0, 1, … if the dictionary does not say."""
    if PAIR_KEY not in info_dict:
        return list(range(total))
    return [int(value) for value in np.asarray(info_dict[PAIR_KEY]).reshape(-1)]


class Planner:
    """A solver by name, quiet and timed; what ``stable_worldmodel.policy.WorldModelPolicy`` calls.

    Parameters
    ----------
    cost
        The cost.
    protocol, task
        How to plan, and for which task.
    seed
        Seed of the candidates.
    device
        Where to plan.

    Attributes
    ----------
    solves, seconds
        Number of solves of each pair, and its share of their wall-clock time in seconds.
    """

    def __init__(self, cost: nn.Module, protocol: Protocol, task: str, seed: int, device: str = "cpu") -> None:
        self.protocol = protocol
        self.config = PlanConfig(
            horizon=protocol.horizon, receding_horizon=protocol.receding, action_block=protocol.action_block
        )
        self.solves: Counter[int] = Counter()
        self.seconds: Counter[int] = Counter()
        self._seed = seed
        self._solver = _make_solver(cost, protocol, protocol.iterations_for(task), seed, device)

    def configure(self, *, action_space: Any, n_envs: int, config: Any) -> None:
        """Take the action space (n, A) and the planning lengths."""
        self._solver.configure(action_space=action_space, n_envs=n_envs, config=config)
        if isinstance(self._solver, ICEMSolver):
            self._solver._action_low = self._solver._action_high = None

    @property
    def action_dim(self) -> int:
        """Components of a stacked action."""
        return int(self._solver.action_dim)

    @property
    def n_envs(self) -> int:
        """Number of episodes."""
        return int(self._solver.n_envs)

    @property
    def horizon(self) -> int:
        """Blocks in a plan."""
        return int(self._solver.horizon)

    def __call__(self, info_dict: dict[str, Any], init_action: Tensor | None = None) -> dict[str, Any]:
        """As :meth:`solve`."""
        return self.solve(info_dict, init_action)

    def solve(self, info_dict: dict[str, Any], init_action: Tensor | None = None) -> dict[str, Any]:
        """Plan for every row of ``info_dict``."""
        pairs = pair_numbers(info_dict, len(next(iter(info_dict.values()))))
        needed: dict[str, Tensor] = {
            name: _as_frames(info_dict[name]) for name in ("pixels", "goal") if name in info_dict
        }
        needed[PAIR_KEY] = torch.tensor(pairs).unsqueeze(1)
        began = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            if isinstance(self._solver, EpisodeCEM):
                result: dict[str, Any] = self._solver.solve(needed, init_action=init_action)
            else:
                result = {"actions": self._solve_each(needed, pairs, init_action)}
        if not bool(torch.isfinite(result["actions"]).all()):
            raise ValueError("The solver returned a plan that is not finite; look at the checkpoint and the frames.")
        elapsed = time.perf_counter() - began
        for pair in pairs:
            self.solves[pair] += 1
            self.seconds[pair] += elapsed / len(pairs)  # type: ignore[assignment]
        return result

    def _solve_each(self, info_dict: dict[str, Tensor], pairs: list[int], init_action: Tensor | None) -> Tensor:
        """Plans (B, horizon, frameskip · A), each from the stream of its pair and solve."""
        plans = []
        for row, pair in enumerate(pairs):
            seed = step_seed(self._seed, pair, self.solves[pair])
            self._solver.torch_gen = torch.Generator(self._solver.device).manual_seed(seed)
            alone = {name: value[row : row + 1] for name, value in info_dict.items()}
            first = None if init_action is None else init_action[row : row + 1]
            plans.append(self._solver.solve(alone, init_action=first)["actions"])
        return torch.cat(plans)


def _as_frames(frames: Any) -> Tensor:
    """Recorded or rendered frames (B, t, H, W, 3) of 8 bits as the encoder's input (B, t, 3, H, W)."""
    return normalize_pixels(torch.as_tensor(frames).movedim(-1, -3))


def _make_solver(cost: nn.Module, protocol: Protocol, iterations: int, seed: int, device: str) -> Any:
    common: dict[str, Any] = {
        "device": device,
        "seed": seed,
        "num_samples": protocol.num_samples,
        "n_steps": iterations,
    }
    sampling: dict[str, Any] = {"topk": protocol.elites, "var_scale": protocol.initial_scale}
    if protocol.solver == "cem":
        return EpisodeCEM(cost, **common, **sampling)
    if protocol.solver == "icem":
        return ICEMSolver(cost, **common, **sampling)
    if protocol.solver == "mppi":
        return MPPISolver(cost, **common, **sampling)
    return GradientSolver(cost, **common, var_scale=protocol.initial_scale)


def check_history(protocol: Protocol, model: WorldModel) -> None:
    """Refuse a protocol that asks for another history than the model was trained with, or another action block.

    Raises
    ------
    ValueError
        If they differ.
    """
    if protocol.history is not None and protocol.history != model.history:
        raise ValueError(
            f"protocol.history = {protocol.history}, but the model was trained with {model.history} context frames."
        )
    if model.action_width % protocol.action_block:
        raise ValueError(
            f"protocol.action_block = {protocol.action_block} does not divide the model's {model.action_width} "
            "stacked action components."
        )
