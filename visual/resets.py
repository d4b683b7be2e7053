"""Resets that are a function of their seed and do not compile a model again, whatever stable-worldmodel 0.1.1 does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np


class SeededReset(gym.Wrapper[Any, Any, Any, Any]):
    """Seed an environment that ignores seeds, and keep it from compiling its MuJoCo model at each reset.

    The environment's own generator, NumPy's global one (OGBench draws from it) and the named variations follow the
    seed of the reset. Cube marks its model as changed at each reset, because it compares colours the wrong way round,
    and compiles for 0.6 s; nothing here changes a model after its first reset, so later marks are dropped.

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
        """Reset; with a seed, the state columns after it are a function of the seed."""
        inner: Any = self.env.unwrapped
        with contextlib.ExitStack() as stack:
            if seed is not None:
                inner.np_random = np.random.default_rng(seed)
                stack.enter_context(seeded_numpy(seed))
                if self._variations:
                    options = {**(options or {}), **_sampled(inner.variation_space, self._variations, seed)}
            result = self.env.reset(seed=seed, options=options)
        if hasattr(inner, "mark_dirty"):
            inner.mark_dirty = _ignore
        return result


def seeded_resets(variations: Sequence[str]) -> partial[SeededReset]:
    """A wrapper factory for ``World``: resets of the environment follow their seed."""
    return partial(SeededReset, variations=tuple(variations))


@contextlib.contextmanager
def seeded_numpy(seed: int) -> Iterator[None]:
    """Within the block, NumPy's global generator follows ``seed``; afterwards it goes on as if nothing had been."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


def _sampled(space: Any, names: Sequence[str], seed: int) -> dict[str, Any]:
    """Reset options that fix the named variations to a draw from ``seed`` and sample nothing else."""
    space.seed(seed)
    space.reset()
    space.update(names)
    values = {}
    for name in names:
        part = space
        for key in name.split("."):
            part = part[key]
        values[name] = np.array(part.value)
    return {"variation": (), "variation_values": values}


def _ignore() -> None:
    """Stand in for ``mark_dirty`` after the first reset."""
