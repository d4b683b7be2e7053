"""A ceiling for the planner: the same solver on the true cost, candidates executed in the simulator."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from visual.environments import open_world, read_columns, set_state
from visual.planning import pair_numbers
from visual.tasks import Columns, Task

if TYPE_CHECKING:
    from stable_worldmodel import World

    from visual.evaluation import Scaling


class SimulatorCost(nn.Module):
    """Outcome (``Task.outcome``) of the state that a plan really leads to.

    Parameters
    ----------
    task
        The task.
    scaling
        Scaling of the candidates.
    """

    def __init__(self, task: Task, scaling: Scaling) -> None:
        super().__init__()
        self._task, self._scaling = task, scaling
        self._now: dict[int, tuple[Columns, Columns]] = {}
        self._stack = contextlib.ExitStack()
        self._world: World | None = None

    def observe(self, pair: int, state: Columns, goal: Columns) -> None:
        """Plans of ``pair`` start from ``state`` until it is said otherwise."""
        self._now[pair] = state, goal

    def get_cost(self, info_dict: dict[str, Any], action_candidates: Tensor) -> Tensor:
        """Outcomes (B, S) of plans (B, S, T, block · A)."""
        pairs = pair_numbers(info_dict, len(action_candidates))
        plans = action_candidates.flatten(2).unflatten(2, (-1, len(self._scaling.mean)))
        actions = self._scaling.inverse_transform(plans.double().numpy()).astype(np.float32)
        rows = [[self._outcome(pair, plan) for plan in row] for pair, row in zip(pairs, actions, strict=True)]
        return torch.tensor(rows, dtype=action_candidates.dtype)

    def criterion(self, info_dict: dict[str, Any], action_candidates: Tensor) -> Tensor:
        """As :meth:`get_cost`."""
        return self.get_cost(info_dict, action_candidates)

    def close(self) -> None:
        """Close the simulator."""
        self._stack.close()
        self._world = None

    def _outcome(self, pair: int, plan: np.ndarray) -> float:
        if self._world is None:
            self._world = self._stack.enter_context(open_world(self._task, pixels=False))
        world, (state, goal) = self._world, self._now[pair]
        # The goal stays unset: reaching it on the way must not end the execution.
        world.reset(seed=pair)
        set_state(world, self._task, state)
        for action in plan:
            _, _, _, _, world.infos = world.envs.step(action[None])
        return float(self._task.outcome(read_columns(self._task, world.infos), goal))
