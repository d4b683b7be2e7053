"""The statements of docs/theory.md in SymPy: stated, proved step by step there, printable and evaluable.

Each function builds a :class:`Statement` whose every step SymPy verified; a step that does not simplify to zero raises
:class:`UnprovedStepError`, so that a statement that exists is proved. :func:`statements` builds all of them.
"""

from __future__ import annotations

from theory.symbolic.metrics import anisotropic_metric, isotropic_metric, optimal_target
from theory.symbolic.regret import line_regret, mean_line_regret, regret_against_kappa, worst_regret
from theory.symbolic.statement import Statement, Step, UnprovedStepError, prove, prove_nonnegative
from theory.symbolic.statistic import sketched_statistic

__all__ = [
    "Statement",
    "Step",
    "UnprovedStepError",
    "anisotropic_metric",
    "isotropic_metric",
    "line_regret",
    "mean_line_regret",
    "optimal_target",
    "prove",
    "prove_nonnegative",
    "regret_against_kappa",
    "sketched_statistic",
    "statements",
    "worst_regret",
]


def statements() -> dict[str, Statement]:
    """All proved statements by label, in the order of docs/theory.md. Built once; the first call takes seconds."""
    built = (
        isotropic_metric(),
        anisotropic_metric(),
        optimal_target(),
        line_regret(),
        mean_line_regret(),
        worst_regret(),
        regret_against_kappa(),
        sketched_statistic(),
    )
    return {statement.label: statement for statement in built}
