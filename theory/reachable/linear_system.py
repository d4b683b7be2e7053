"""Linear dynamics: stationary covariance, exact prediction, and what H steps of free or bounded actions reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from theory.reachable.convex import Ellipsoid, Zonotope
from theory.reachable.sets import AffineSet, freeze
from theory.spd import Array, check_array, check_count, check_psd, check_vector, symmetrize


@dataclass(frozen=True, eq=False, init=False)
class LinearSystem:
    """x' = Ax + Ba + w, with w of mean zero and covariance Σ_w, independent of (x, a).

    Parameters
    ----------
    A
        Dynamics, shape (n, n).
    B
        Action gain, shape (n, m), m ≥ 1.
    noise_cov
        Σ_w ⪰ 0, shape (n, n).

    Raises
    ------
    ValueError
        If shapes do not match or Σ_w is not positive semidefinite.
    """

    A: Array
    B: Array
    noise_cov: Array

    def __init__(self, A: ArrayLike, B: ArrayLike, noise_cov: ArrayLike) -> None:
        dynamics = check_array(A, "A", ndim=2)
        dim = dynamics.shape[0]
        if dim == 0 or dynamics.shape[1] != dim:
            raise ValueError(f"A must be square and not empty, but its shape is {dynamics.shape}.")
        gain = check_array(B, "B", shape=(dim, None))
        if gain.shape[1] == 0:
            raise ValueError("B must have at least one column.")
        freeze(self, A=dynamics, B=gain, noise_cov=check_psd(noise_cov, "noise_cov", dim))

    @property
    def dim(self) -> int:
        """n, the dimension of the state."""
        return self.A.shape[0]

    @property
    def action_dim(self) -> int:
        """m, the dimension of one action."""
        return self.B.shape[1]

    def stationary_covariance(self, action_cov: ArrayLike) -> Array:
        """Σ (n, n) with Σ = AΣAᵀ + BΣ_aBᵀ + Σ_w, for independent actions of covariance Σ_a (m, m).

        It is positive definite iff every direction is excited, by noise or by an action, after some number of steps.

        Raises
        ------
        ValueError
            If the spectral radius of A is not below 1: then no stationary covariance exists.
        """
        from scipy.linalg import solve_discrete_lyapunov

        action_cov = check_psd(action_cov, "action_cov", self.action_dim)
        radius = float(np.abs(np.linalg.eigvals(self.A)).max())
        if radius >= 1:
            raise ValueError(f"A must be stable, but its spectral radius is {radius:.6g}.")
        forcing = symmetrize(self.B @ action_cov @ self.B.T) + self.noise_cov
        return symmetrize(np.asarray(solve_discrete_lyapunov(self.A, forcing)))

    def predict(self, state: ArrayLike, actions: ArrayLike) -> Array:
        """Conditional means E[x_h | x_0, a_0, …, a_{h−1}] for h = 1..H, shape (..., H, n): exact multi-step prediction.

        Parameters
        ----------
        state
            x_0, shape (..., n).
        actions
            a_0, …, a_{H−1}, shape (..., H, m), with the same leading shape.
        """
        state, actions = check_array(state, "state"), check_array(actions, "actions")
        if state.ndim < 1 or state.shape[-1] != self.dim:
            raise ValueError(f"state must have shape (..., {self.dim}), but its shape is {state.shape}.")
        if actions.ndim < 2 or actions.shape[-1] != self.action_dim or actions.shape[:-2] != state.shape[:-1]:
            wanted = ", ".join([*map(str, state.shape[:-1]), "H", str(self.action_dim)])
            raise ValueError(f"actions must have shape ({wanted}), but its shape is {actions.shape}.")
        means = np.empty((*actions.shape[:-1], self.dim))
        for step in range(actions.shape[-2]):
            state = state @ self.A.T + actions[..., step, :] @ self.B.T
            means[..., step, :] = state
        return means

    def controllability(self, horizon: int) -> Array:
        """C = [A^{H−1}B, …, AB, B], shape (n, H·m): E[x_H] = A^H x_0 + C·(a_0, …, a_{H−1})."""
        blocks = [self.B]
        for _ in range(check_count(horizon, "horizon") - 1):
            blocks.append(self.A @ blocks[-1])
        return np.hstack(blocks[::-1])

    def reachable_set(
        self,
        state: ArrayLike,
        horizon: int,
        bound: Any = None,
        kind: Literal["affine", "energy", "box"] = "affine",
    ) -> AffineSet | Ellipsoid | Zonotope:
        """Where the conditional mean can be after H steps from x_0.

        Parameters
        ----------
        state
            x_0, shape (n,).
        horizon
            H ≥ 1.
        bound
            ``None`` for "affine"; E ≥ 0 for "energy"; b ≥ 0, a number or a vector (m,), for "box".
        kind
            "affine": free actions, {A^H x_0 + C·a}. "energy": Σ_t ‖a_t‖² ≤ E, the ellipsoid of shape E·CCᵀ. "box":
            |a_{t,i}| ≤ b_i, the zonotope of generators C·diag(b, …, b).

        Raises
        ------
        ValueError
            For an unknown kind, and for a bound that is missing, negative or not wanted.
        """
        state = check_vector(state, "state", self.dim)
        columns = self.controllability(horizon)
        center = np.linalg.matrix_power(self.A, horizon) @ state
        if kind == "affine":
            if bound is not None:
                raise ValueError("bound must be None for kind 'affine', where actions are free.")
            # C may have more columns than rank: its range is the set. Singular values below the rounding of C are zero.
            left, sizes, _ = np.linalg.svd(columns, full_matrices=False)
            rank = int((sizes > max(columns.shape) * np.finfo(np.float64).eps * sizes[0]).sum())
            return AffineSet(center, left[:, :rank])
        if kind == "energy":
            energy = _check_bound(bound, ()).item()
            return Ellipsoid.from_root(center, np.sqrt(energy) * columns)
        if kind == "box":
            limits = _check_bound(bound, (self.action_dim,))
            return Zonotope(center, columns * np.tile(limits, horizon))
        raise ValueError(f"kind must be 'affine', 'energy' or 'box', but it is {kind!r}.")


def _check_bound(bound: Any, shape: tuple[int, ...]) -> Array:
    if bound is None:
        raise ValueError("bound must be given for kinds 'energy' and 'box'.")
    value = check_array(bound, "bound")
    if value.ndim and value.shape != shape:
        raise ValueError(f"bound must be a number{' or a vector of shape ' + str(shape) if shape else ''}.")
    if (value < 0).any():
        raise ValueError(f"bound must not be negative, but it holds {float(value.min()):.6g}.")
    return np.broadcast_to(value, shape)
