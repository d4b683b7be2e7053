"""State-space metrics that an affine encoder induces (docs/theory.md, T1 and T2).

An encoder z = Wx (+ b) sees two states x, y at squared latent distance (x − y)ᵀ WᵀW (x − y): a planner that ranks
outcomes by latent distance plans with the metric M = WᵀW, whatever metric the task has. A regulariser that fixes the
feature covariance WΣWᵀ therefore fixes M, and these functions say to what.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from theory.spd import (
    Array,
    check_array,
    check_result,
    check_scale,
    check_spd,
    inv_sqrt_spd,
    sqrt_spd,
    symmetrize,
)

#: Largest entry of RᵀR − I accepted from a matrix that is said to have orthonormal columns.
ORTHONORMALITY_TOLERANCE = 1e-10


def isotropic_metric(state_cov: ArrayLike, scale: float = 1.0) -> Array:
    """Metric under an isotropic target: M = q Σ⁻¹.

    Every affine encoder whose features have covariance WΣWᵀ = qI induces this one metric, so that a planner with exact
    predictions measures distance in standard deviations of the training states, not in units of the task.

    Parameters
    ----------
    state_cov
        State covariance Σ, SPD (n, n).
    scale
        Isotropic scale q > 0 at which the regulariser settles; it never changes a ranking.

    Returns
    -------
    Array
        M, SPD (n, n), in units of q over units of the state squared.

    Raises
    ------
    ValueError
        If Σ is not SPD (a singular Σ is reported with its null direction) or q is not positive.

    References
    ----------
    AnisoWM (arXiv 2609.37441), Lemma 1; docs/theory.md, T1.
    """
    whitener = inv_sqrt_spd(check_spd(state_cov, "state_cov"))
    with np.errstate(over="ignore"):
        return check_result(check_scale(scale) * symmetrize(whitener @ whitener), "state_cov or scale")


def anisotropic_metric(state_cov: ArrayLike, target: ArrayLike, scale: float = 1.0) -> Array:
    """Metric under an anisotropic target: M = q Σ^{-1/2} L Σ^{-1/2}.

    L = RᵀΛR is the target covariance as the whitened state Σ^{-1/2}x sees it. L = I gives :func:`isotropic_metric`, and
    L ∝ Σ gives M ∝ I, the geometry of the state itself.

    Parameters
    ----------
    state_cov
        State covariance Σ, SPD (n, n).
    target
        Target covariance L, SPD (n, n). Its trace is n where the latent has the state's dimension, but not in an
        over-complete latent (docs/theory.md, T12), so that it is not checked here.
    scale
        Isotropic scale q > 0.

    Returns
    -------
    Array
        M, SPD (n, n).

    Raises
    ------
    ValueError
        If Σ or L is not SPD, the shapes differ, or q is not positive.

    References
    ----------
    docs/theory.md, T2 (derived there).
    """
    state_cov = check_spd(state_cov, "state_cov")
    target = check_spd(target, "target", state_cov.shape[0])
    # A Gram matrix stays semidefinite under rounding; the three-factor product does not.
    factor = sqrt_spd(target) @ inv_sqrt_spd(state_cov)
    with np.errstate(over="ignore", invalid="ignore"):
        metric = check_scale(scale) * symmetrize(factor.T @ factor)
    return check_result(metric, "state_cov, target or scale")


def encoder_metric(weight: ArrayLike) -> Array:
    """Metric that latent Euclidean distance induces on states: M = WᵀW.

    Parameters
    ----------
    weight
        Linear part W of the encoder z = Wx + b, shape (D, n): latent by state dimension. The bias moves no distance.

    Returns
    -------
    Array
        M, symmetric positive semidefinite (n, n), singular exactly where W drops a direction of the state (D < n).

    Raises
    ------
    ValueError
        If W is not a finite real matrix with at least one row and column.

    References
    ----------
    AnisoWM (arXiv 2609.37441); docs/theory.md, T1.
    """
    weight = check_array(weight, "weight", ndim=2)
    if weight.size == 0:
        raise ValueError(f"weight must not be empty, but its shape is {weight.shape}.")
    with np.errstate(over="ignore", invalid="ignore"):
        return check_result(symmetrize(weight.T @ weight), "weight")


def matching_encoder(
    state_cov: ArrayLike,
    target: ArrayLike | None = None,
    rotation: ArrayLike | None = None,
    scale: float = 1.0,
) -> Array:
    """Encoder whose features have a given covariance: W = √q R L^{1/2} Σ^{-1/2}, so that WΣWᵀ = q RLRᵀ.

    Every encoder with that feature covariance that fills n dimensions is of this form, and R does not move the metric:
    WᵀW = q Σ^{-1/2} L Σ^{-1/2} for each of them.

    Parameters
    ----------
    state_cov
        State covariance Σ, SPD (n, n).
    target
        Target covariance L, SPD (n, n); ``None`` is the isotropic target L = I.
    rotation
        R, shape (D, n) with D ≥ n and orthonormal columns, RᵀR = I; ``None`` is the identity (n, n).
    scale
        Isotropic scale q > 0.

    Returns
    -------
    Array
        W, shape (D, n).

    Raises
    ------
    ValueError
        If Σ or L is not SPD, a shape does not fit, D < n, the columns of R are not orthonormal, or q is not positive.

    References
    ----------
    docs/theory.md, T1 and T2 (derived there).
    """
    state_cov = check_spd(state_cov, "state_cov")
    dim = state_cov.shape[0]
    weight = np.sqrt(check_scale(scale)) * inv_sqrt_spd(state_cov)
    if target is not None:
        weight = sqrt_spd(check_spd(target, "target", dim)) @ weight
    if rotation is None:
        return weight
    rotation = check_array(rotation, "rotation", shape=(None, dim))
    if rotation.shape[0] < dim:
        raise ValueError(
            f"rotation must have at least as many rows as columns, but its shape is {rotation.shape}: "
            "a latent of lower dimension than the state cannot match a target of full rank."
        )
    with np.errstate(over="ignore", invalid="ignore"):
        gap = float(np.abs(rotation.T @ rotation - np.eye(dim)).max())
    if not gap <= ORTHONORMALITY_TOLERANCE:
        raise ValueError(
            f"rotation must have orthonormal columns, but their inner products are off by up to {gap:.3g}."
        )
    return rotation @ weight
