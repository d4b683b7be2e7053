"""Regret from a short horizon alone: one actuator, exact prediction, and a geometry that makes the difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from theory.metric import anisotropic_metric, isotropic_metric
from theory.reachable import AffineSet, LinearSystem
from theory.regret.cases import PlanningRegret, planning_regret
from theory.regret.kappa import best_kappa
from theory.spd import Array
from theory.target import optimal_target, relative_noise


@dataclass(frozen=True, eq=False)
class FiniteHorizonExample:
    """A planning case with positive regret under κ = 1, and the κ that removes it.

    Attributes
    ----------
    system
        The dynamics: n = 2, scalar action.
    state_cov
        Σ, the stationary covariance under unit-variance actions, shape (2, 2).
    reachable
        What one step reaches: a line, since the horizon 1 is shorter than the state dimension 2.
    goal
        g, shape (2,), at distance 1 from the line.
    isotropic
        Regret of ranking by M = Σ⁻¹, which is what κ = 1 leads to.
    kappa
        The best κ: the condition number of Σ, since the noise is isotropic.
    corrected
        Regret of the same case at that κ; zero up to rounding, since M ∝ I.
    """

    system: LinearSystem
    state_cov: Array
    reachable: AffineSet
    goal: Array
    isotropic: PlanningRegret
    kappa: float
    corrected: PlanningRegret


def finite_horizon_example(step: float = 0.2, stiffness: float = 8.0, damping: float = 2.0) -> FiniteHorizonExample:
    """A mass on a damped spring, pushed by a force for one step: the planner knows the outcome exactly and still errs.

    x = (position, velocity), x' = Ax + Ba + w with A = [[1, h], [−hk, 1 − hc]], B = (h²/2, h), w of covariance 0.01 I.
    After one step E[x'] lies on the line {Ax₀ + Ba}; a goal off that line leaves a compromise between position and
    velocity, and M = Σ⁻¹ compromises in units of standard deviations, the task (Q = I) in its own.

    Parameters
    ----------
    step
        h, the length of a time step.
    stiffness, damping
        k and c, per unit mass; they must make A stable.

    Raises
    ------
    ValueError
        If the system is not stable.

    References
    ----------
    Derived here (docs/theory.md, T5 and T7).
    """
    dynamics = np.array([[1.0, step], [-step * stiffness, 1.0 - step * damping]])
    gain = np.array([[step**2 / 2], [step]])
    system = LinearSystem(dynamics, gain, 0.01 * np.eye(2))
    state_cov = system.stationary_covariance([[1.0]])

    reachable = system.reachable_set(np.zeros(2), horizon=1)
    assert isinstance(reachable, AffineSet)
    goal = np.array([-gain[1, 0], gain[0, 0]]) / np.linalg.norm(gain)
    best = best_kappa(state_cov, system.noise_cov)
    target = optimal_target(relative_noise(state_cov, system.noise_cov), best.kappa)
    return FiniteHorizonExample(
        system=system,
        state_cov=state_cov,
        reachable=reachable,
        goal=goal,
        isotropic=planning_regret(reachable, goal, isotropic_metric(state_cov)),
        kappa=best.kappa,
        corrected=planning_regret(reachable, goal, anisotropic_metric(state_cov, target.matrix)),
    )
