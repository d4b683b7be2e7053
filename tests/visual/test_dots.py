"""TwoRoom's frames: the same on every processor, and those of the environment up to one level.

Statements, each of which fails for a changed implementation:

1. A world of TwoRoom draws with :func:`visual.dots.gaussian_dot`.
2. Errors of the last bit in the exponential, which is how processors differ, change no pixel; in float32 they do.
3. The dot is the environment's own, up to float32's rounding, and frames differ by at most one level.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from visual import dots
from visual.dots import gaussian_dot, portable_dots
from visual.environments import open_world, quiet

DRAWS = 200


@pytest.fixture(scope="module")
def environments() -> tuple[Any, Any]:
    """TwoRoom drawn here, and TwoRoom as it comes."""
    with quiet():
        from stable_worldmodel.envs.two_room import TwoRoomEnv

        ours, theirs = TwoRoomEnv(), TwoRoomEnv()
    portable_dots(ours)
    for env in (ours, theirs):
        env.reset(seed=0)
    return ours, theirs


def frames(env: Any) -> NDArray[np.int16]:
    """Frames at positions that follow from a fixed seed."""
    positions = torch.rand(DRAWS, 2, generator=torch.Generator().manual_seed(1)) * 190 + 16
    drawn = [env._render_frame(position).numpy() for position in positions]
    return np.stack(drawn).astype(np.int16)


def shaken(values: NDArray[Any]) -> NDArray[Any]:
    """Each value moved by one unit in the last place, up or down."""
    signs = np.random.default_rng(2).choice([-1.0, 1.0], values.shape).astype(values.dtype)
    return np.nextafter(values, values + signs)


def test_worlds_draw_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: leave the wrapper out of ``open_world``."""
    calls = []

    def count(size: int, center: Any, radius: float) -> Any:
        calls.append(size)
        return gaussian_dot(size, center, radius)

    monkeypatch.setattr(dots, "gaussian_dot", count)
    with quiet(), open_world("tworoom") as world:
        world.reset(seed=0)
    assert calls
    assert set(calls) == {224}


def test_last_bits_change_no_pixel(environments: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: let ``_bump`` compute in float32."""
    ours, _ = environments
    before = frames(ours)
    exact = dots._bump
    monkeypatch.setattr(dots, "_bump", lambda offset, width: shaken(exact(offset, width)))
    np.testing.assert_array_equal(frames(ours), before)
    monkeypatch.setattr(dots, "_bump", lambda offset, width: shaken(exact(offset, width).astype(np.float32)))
    assert (frames(ours) != before).any(), "errors of float32's last bit should be visible, or this test shows nothing"


def test_frames_are_the_environments(environments: tuple[Any, Any]) -> None:
    """Mutation: swap the axes, or take the radius for the variance."""
    ours, theirs = environments
    difference = np.abs(frames(ours) - frames(theirs))
    assert difference.max() <= 1
    assert (difference > 0).mean() < 1e-3
    center = torch.tensor([60.3, 101.7])
    torch.testing.assert_close(ours._gaussian_dot(center, 7.0), theirs._gaussian_dot(center, 7.0), atol=1e-6, rtol=1e-5)
    far = gaussian_dot(8, torch.tensor([1e9, 0.0]), 1.0)
    assert torch.equal(far, torch.zeros(8, 8))
