"""Recording policies that stable-worldmodel does not ship."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_worldmodel.policy import BasePolicy


class HeldRandomPolicy(BasePolicy):
    """Uniform random actions, each held for a geometric number of steps, so that the agent travels.

    Independent actions average out: a point that moves 0.2 per step at most is 0.6 from where it was 25 steps ago.

    Parameters
    ----------
    mean_steps
        Mean number of steps for which an action is held.
    seed
        Seed of the draws.
    """

    def __init__(self, mean_steps: float = 10.0, seed: int | None = None) -> None:
        super().__init__()
        if not mean_steps >= 1:
            raise ValueError(f"An action must be held for at least one step; got mean_steps = {mean_steps}.")
        self.type = "held-random"
        self._mean_steps = mean_steps
        self.set_seed(seed)

    def set_seed(self, seed: int | None) -> None:
        """Seed the draws and forget the action that was held."""
        self.seed = seed
        self._generator = np.random.default_rng(seed)
        self._held: NDArray[np.float32] | None = None

    def get_action(self, obs: dict[str, Any], **kwargs: Any) -> NDArray[np.float32]:
        """The held action of each environment, drawn anew with probability 1 / ``mean_steps``."""
        space = self.env.action_space
        drawn = self._generator.uniform(space.low, space.high).astype(np.float32)
        renewed = self._generator.uniform(size=len(drawn)) < 1 / self._mean_steps
        if self._held is None:
            self._held = drawn
        self._held = np.where(renewed[:, None], drawn, self._held)
        return self._held.copy()
