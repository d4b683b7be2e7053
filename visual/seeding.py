"""Resets that are a function of their seed, also where an environment of stable-worldmodel 0.1.1 ignores it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np


class SeededReset(gym.Wrapper[Any, Any, Any, Any]):
    """Seed the environment's own generator and sample its variations here, from the seed of the reset.

    Parameters
    ----------
    env
        The environment.
    variations
        Names of variations that the environment samples without a seed.
    """

    def __init__(self, env: gym.Env[Any, Any], variations: Sequence[str] = ()) -> None:
        super().__init__(env)
        self._variations = tuple(variations)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset; with a seed, the state after it is a function of the seed."""
        if seed is None:
            return self.env.reset(seed=seed, options=options)
        inner = self.env.unwrapped
        inner.np_random = np.random.default_rng(seed)
        if self._variations:
            space: Any = inner.variation_space  # type: ignore[attr-defined]
            space.seed(seed)
            space.reset()
            space.update(self._variations)
            values = {name: _lookup(space, name).value for name in self._variations}
            options = {**(options or {}), "variation": (), "variation_values": values}
        with seeded_numpy(seed):
            return self.env.reset(seed=seed, options=options)


def seeded_resets(variations: Sequence[str]) -> partial[SeededReset]:
    """A wrapper factory for ``World``: resets of the environment follow their seed."""
    return partial(SeededReset, variations=tuple(variations))


@contextlib.contextmanager
def seeded_numpy(seed: int) -> Iterator[None]:
    """Within the block, NumPy's global generator, which OGBench draws from, follows ``seed``; afterwards as before."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


def _lookup(space: Any, name: str) -> Any:
    for part in name.split("."):
        space = space[part]
    return space
