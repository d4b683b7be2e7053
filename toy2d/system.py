"""The 2-D linear–Gaussian system of the toy, and what the encoder sees of its state (docs/theory.md, T10).

x' = 0.6 x + B a + σ ε,  a ~ N(0, I),  ε ~ N(0, I),  B diagonal with B² = (1 − 0.6²) Σ − σ² I,

so that x and x' both have covariance Σ = diag(1.75², 1), the standard deviations 7:4 scaled to a small one of 1. The
noise may be made anisotropic and turned against the state's axes; B is then a lower triangle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from theory.spd import check_scale, check_vector

Observation = Literal["identity", "nonlinear"]
OBSERVATIONS: tuple[Observation, ...] = ("identity", "nonlinear")

#: Standard deviations of the stationary state, 7:4. Their squared ratio is c = 3.0625.
STATE_STD = (1.75, 1.0)

#: Condition number c of the state covariance: ΛReg with κ = c makes the metric isotropic (docs/theory.md, T7).
STATE_CONDITION = (STATE_STD[0] / STATE_STD[1]) ** 2

#: Skew a of the warp that ``observation="nonlinear"`` applies; its slopes lie in (1 − a, 1 + a).
WARP_SKEW = 0.5


@dataclass(frozen=True)
class ToySystem:
    """x' = d x + B a + σ ε with B² = (1 − d²) Σ − σ² I, so that the state covariance Σ is stationary.

    Parameters
    ----------
    noise_std
        σ, the standard deviation of the isotropic process noise, in state units.
    state_std
        Standard deviations (2,) of the state; Σ = diag(state_std²).
    decay
        d, in (−1, 1).
    observation
        ``"identity"``: the encoder sees o = x. ``"nonlinear"``: it sees an invertible smooth warp of each coordinate
        (:meth:`observe`), so that an encoder that is linear in o cannot be linear in x.
    noise_ratio, noise_angle
        r ≥ 1 and θ in degrees: Σ_w = σ² T diag(√r, 1/√r) Tᵀ with T the rotation by θ, so that the noise's larger axis
        lies at θ from the first state axis and det Σ_w = σ⁴ whatever r is. r = 1 is the isotropic noise.

    Raises
    ------
    ValueError
        If σ is negative or so large that no real B exists (σ ≥ 0.8 for the default system), |d| ≥ 1, a standard
        deviation is not positive, r < 1, or the observation is unknown.

    References
    ----------
    System and sizes derived here (docs/theory.md, T10); the ratio 7:4 is consistent with, not identified by, the
    0.1607 of AnisoWM (arXiv 2609.37441), Figure 1b.
    """

    noise_std: float
    state_std: tuple[float, float] = STATE_STD
    decay: float = 0.6
    observation: Observation = "identity"
    noise_ratio: float = 1.0
    noise_angle: float = 0.0

    def __post_init__(self) -> None:
        std = check_vector(self.state_std, "state_std", 2)
        for value in std:
            check_scale(value, "state_std")
        noise = check_vector([self.noise_std], "noise_std")[0]
        if noise < 0:
            raise ValueError(f"noise_std must not be negative, but it is {noise:.6g}.")
        if not abs(check_vector([self.decay], "decay")[0]) < 1:
            raise ValueError(f"decay must lie strictly between -1 and 1, but it is {self.decay:.6g}.")
        check_vector([self.noise_angle], "noise_angle")
        if check_scale(self.noise_ratio, "noise_ratio") < 1:
            raise ValueError(f"noise_ratio must be at least 1, but it is {self.noise_ratio:.6g}.")
        # (1 − d²) Σ − σ² SSᵀ is definite as long as σ² ‖Σ^{−1/2} S‖² < 1 − d².
        room = std.min() if self.noise_ratio == 1 else 1 / np.linalg.norm(self._noise_shape / std[:, None], 2)
        limit = math.sqrt(1 - self.decay**2) * float(room)
        # B must be invertible, since the planner inverts it: σ = limit is refused too.
        if noise >= limit:
            raise ValueError(
                f"noise_std must be below {limit:.6g}, but it is {noise:.6g}: "
                "no action gain then keeps the state covariance stationary."
            )
        if self.observation not in OBSERVATIONS:
            raise ValueError(f"observation must be one of {', '.join(OBSERVATIONS)}, but it is {self.observation!r}.")

    @property
    def state_cov(self) -> NDArray[np.float64]:
        """Σ (2, 2)."""
        return np.diag(np.square(np.asarray(self.state_std, dtype=np.float64)))

    @property
    def noise_cov(self) -> NDArray[np.float64]:
        """Σ_w = σ² I (2, 2)."""
        return self.noise_factor @ self.noise_factor.T

    @property
    def noise_factor(self) -> NDArray[np.float64]:
        """F (2, 2) with Σ_w = FFᵀ: σ I, or the axes of the noise as columns."""
        return self.noise_std * self._noise_shape

    @property
    def action_gain(self) -> NDArray[np.float64]:
        """Diagonal (2,) of B, which is all of it unless the noise is turned."""
        return np.diag(self.action_matrix).copy()

    @property
    def action_matrix(self) -> NDArray[np.float64]:
        """B (2, 2), the lower triangle with positive diagonal and BBᵀ = (1 − d²) Σ − Σ_w."""
        room = (1 - self.decay**2) * self.state_cov - self.noise_cov
        return np.asarray(np.linalg.cholesky(room), dtype=np.float64)

    @property
    def _noise_shape(self) -> NDArray[np.float64]:
        if self.noise_ratio == 1:
            return np.eye(2)
        angle = math.radians(self.noise_angle)
        axes = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        return axes * self.noise_ratio ** np.array([0.25, -0.25])

    def conditional_mean(self, state: Tensor, action: Tensor) -> Tensor:
        """E[x' | x, a] = d x + B a, for states and actions (..., 2)."""
        return self.decay * state + action @ _like(self.action_matrix.T, state)

    def action_for(self, state: Tensor, mean: Tensor) -> Tensor:
        """Action B⁻¹ (y − d x) whose conditional-mean outcome is y (..., 2)."""
        return self.solve_gain(mean - self.decay * state)

    def solve_gain(self, vector: Tensor) -> Tensor:
        """B⁻¹ v for vectors (..., 2), by forward substitution: a diagonal B divides and rounds no more than that."""
        (first, _), (below, second) = self.action_matrix.tolist()
        head = vector[..., 0] / first
        return torch.stack((head, (vector[..., 1] - below * head) / second), dim=-1)

    def observe(self, state: Tensor) -> Tensor:
        """What the encoder sees of states (..., 2): o = x, or the warp of each coordinate in units of its deviation,

        o_i = s_i (u + a (√(1 + u²) − 1)),  u = x_i / s_i,  a = :data:`WARP_SKEW`.

        The warp is smooth, increasing and skewed: its slope runs from 1 − a on the left to 1 + a on the right.
        """
        if self.observation == "identity":
            return state
        std = _like(np.asarray(self.state_std), state)
        unit = state / std
        return std * (unit + WARP_SKEW * ((1 + unit.square()).sqrt() - 1))

    def unobserve(self, observed: Tensor) -> Tensor:
        """The state (..., 2) that is seen as ``observed``: the inverse of :meth:`observe`."""
        if self.observation == "identity":
            return observed
        std = _like(np.asarray(self.state_std), observed)
        shifted = observed / std + WARP_SKEW
        rest = 1 - WARP_SKEW**2
        return std * (shifted - WARP_SKEW * (shifted.square() + rest).sqrt()) / rest


def _like(values: NDArray[np.float64], reference: Tensor) -> Tensor:
    return torch.as_tensor(values, dtype=reference.dtype, device=reference.device)
