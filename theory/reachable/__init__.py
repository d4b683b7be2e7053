"""Reachable sets: where the conditional mean of the state can be taken, and the point of a set nearest to a goal.

Every set R offers ``.nearest(goal, metric)``, the point x ∈ R of least (x − g)ᵀM(x − g): the choice of a planner whose
cost is the squared distance of metric M (docs/theory.md, T5). :class:`LinearSystem` builds such sets from dynamics.
"""

from __future__ import annotations

from theory.reachable.convex import Ellipsoid, Polytope, Zonotope
from theory.reachable.linear_system import LinearSystem
from theory.reachable.sets import AffineSet, FiniteSet, ReachableSet

__all__ = ["AffineSet", "Ellipsoid", "FiniteSet", "LinearSystem", "Polytope", "ReachableSet", "Zonotope"]
