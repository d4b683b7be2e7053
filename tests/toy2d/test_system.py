"""The toy's system (docs/theory.md, T10).

Claims:
1. The action gain keeps the state covariance stationary, exactly: d²Σ + B² + σ²I = Σ.
2. Where no invertible gain exists, one sentence says so; other bad numbers are refused at the door too.
3. The planner's action leads to the outcome it was asked for.
4. The nonlinear observation is smooth, increasing and invertible, and is not affine.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from toy2d.system import STATE_CONDITION, WARP_SKEW, ToySystem

FRACTIONS = st.floats(0.0, 0.99)
DEVIATIONS = st.floats(0.2, 5.0)


@st.composite
def systems(draw: st.DrawFn, observation: str = "identity") -> ToySystem:
    """A system with any deviations, decay and noise for which one exists."""
    std = (draw(DEVIATIONS), draw(DEVIATIONS))
    decay = draw(st.floats(-0.95, 0.95))
    limit = math.sqrt(1 - decay**2) * min(std)
    return ToySystem(draw(FRACTIONS) * limit, std, decay, observation)  # type: ignore[arg-type]


@given(systems())
def test_state_covariance_is_stationary(system: ToySystem) -> None:
    """Claim 1.

    Mutation: leave the noise out of B² (``- self.noise_std**2`` dropped in ``action_gain``).
    """
    gain = np.diag(system.action_gain)
    following = system.decay**2 * system.state_cov + gain @ gain + system.noise_cov
    np.testing.assert_allclose(following, system.state_cov, rtol=1e-12, atol=1e-12)


def test_default_system_is_seven_to_four() -> None:
    """Claim 1, the toy's numbers: Σ = diag(1.75², 1), c = 49/16, and no system at σ ≥ 0.8."""
    system = ToySystem(0.5)
    np.testing.assert_array_equal(system.state_cov, np.diag([3.0625, 1.0]))
    assert STATE_CONDITION == 49 / 16
    np.testing.assert_allclose(system.action_gain**2, [0.64 * 3.0625 - 0.25, 0.39])
    ToySystem(0.7999)
    with pytest.raises(ValueError, match=r"noise_std must be below 0\.8, but it is 0\.8"):
        ToySystem(0.8)


@given(systems())
def test_noise_without_a_gain_is_refused(system: ToySystem) -> None:
    """Claim 2: at the limit and above it.

    Mutation: compare σ with the larger standard deviation (``std.max()`` in ``__post_init__``), or accept equality.
    """
    limit = math.sqrt(1 - system.decay**2) * min(system.state_std)
    for noise in (limit, 1.5 * limit):
        with pytest.raises(ValueError, match="no action gain then keeps the state covariance stationary"):
            ToySystem(noise, system.state_std, system.decay)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"noise_std": -0.1}, "noise_std must not be negative, but it is -0.1"),
        ({"noise_std": math.nan}, "noise_std must be finite"),
        ({"noise_std": 0.1, "state_std": (1.0, 0.0)}, "state_std must be positive"),
        ({"noise_std": 0.1, "state_std": (1.0,)}, "state_std must have shape"),
        ({"noise_std": 0.1, "decay": 1.0}, "decay must lie strictly between -1 and 1"),
        ({"noise_std": 0.1, "observation": "pixels"}, "observation must be one of identity, nonlinear"),
    ],
)
def test_bad_numbers_are_refused(arguments: dict[str, object], sentence: str) -> None:
    """Claim 2."""
    with pytest.raises(ValueError, match=sentence):
        ToySystem(**arguments)  # type: ignore[arg-type]


@given(systems(), st.integers(0, 2**31))
def test_action_reaches_the_wanted_outcome(system: ToySystem, seed: int) -> None:
    """Claim 3.

    Mutation: forget the drift (``mean - self.decay * state`` → ``mean`` in ``action_for``).
    """
    state, wanted = torch.randn(2, 20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    reached = system.conditional_mean(state, system.action_for(state, wanted))
    torch.testing.assert_close(reached, wanted, rtol=1e-9, atol=1e-9)


@given(systems("nonlinear"), st.integers(0, 2**31))
def test_warp_is_invertible(system: ToySystem, seed: int) -> None:
    """Claim 4: the inverse, and slopes between 1 − a and 1 + a, both of which are approached.

    Mutation: take the other root (``- WARP_SKEW *`` → ``+ WARP_SKEW *`` in ``unobserve``).
    """
    state = 4 * torch.randn(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(system.unobserve(system.observe(state)), state, rtol=1e-9, atol=1e-9)
    far = torch.tensor(system.state_std, dtype=torch.float64) * torch.tensor([[-50.0], [50.0]], dtype=torch.float64)
    state = torch.cat((state, far)).requires_grad_(True)
    slope = torch.autograd.grad(system.observe(state).sum(), state)[0]
    assert (slope > 1 - WARP_SKEW).all()
    assert (slope < 1 + WARP_SKEW).all()
    torch.testing.assert_close(
        slope[-2:].mean(1), torch.tensor([1 - WARP_SKEW, 1 + WARP_SKEW]).double(), atol=1e-3, rtol=0
    )


def test_identity_observation_is_the_state() -> None:
    """Claim 4, the other observation."""
    state = torch.randn(5, 2)
    system = ToySystem(0.1)
    assert torch.equal(system.observe(state), state)
    assert torch.equal(system.unobserve(state), state)
