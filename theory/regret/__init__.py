"""Planning regret: what ranking outcomes with the metric M costs a task whose metric is Q (docs/theory.md, T5 to T7).

One case (:func:`planning_regret`, :func:`affine_regrets` for many at once), the mean over random reachable lines and
subspaces, the worst case, and both against the condition-number bound κ of ΛReg. Prediction is exact throughout: every
regret here is the geometry's alone.
"""

from __future__ import annotations

from theory.regret.cases import AffineRegrets, PlanningRegret, affine_regrets, planning_regret
from theory.regret.example import FiniteHorizonExample, finite_horizon_example
from theory.regret.kappa import BestKappa, best_kappa, regret_curve
from theory.regret.lines import WorstCase, mean_line_regret, regret_bound, worst_case, worst_regret
from theory.regret.subspaces import SubspaceRegret, estimate_subspace_regret, mean_subspace_regret

__all__ = [
    "AffineRegrets",
    "BestKappa",
    "FiniteHorizonExample",
    "PlanningRegret",
    "SubspaceRegret",
    "WorstCase",
    "affine_regrets",
    "best_kappa",
    "estimate_subspace_regret",
    "finite_horizon_example",
    "mean_line_regret",
    "mean_subspace_regret",
    "planning_regret",
    "regret_bound",
    "regret_curve",
    "worst_case",
    "worst_regret",
]
