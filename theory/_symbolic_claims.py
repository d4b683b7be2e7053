"""The claims that SymPy proves while the table is made: each step of each statement is verified again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from theory import symbolic
from theory.claims import Claim

_STATEMENTS: Mapping[str, Callable[[], symbolic.Statement]] = {
    "T1": symbolic.isotropic_metric,
    "T2": symbolic.anisotropic_metric,
    "T4": symbolic.optimal_target,
    "T5": symbolic.line_regret,
    "T6 mean": symbolic.mean_line_regret,
    "T6 worst": symbolic.worst_regret,
    "T7": symbolic.regret_against_kappa,
    "T8": symbolic.sketched_statistic,
}


def evaluate() -> list[Claim]:
    """One claim for each statement: it has no step that SymPy could not verify."""
    return [_proved(label, build) for label, build in _STATEMENTS.items()]


def _proved(label: str, build: Callable[[], symbolic.Statement]) -> Claim:
    try:
        statement = build()
    except symbolic.UnprovedStepError as error:
        text, unproved, note = f"Statement {label} of docs/theory.md.", 1.0, str(error)
    else:
        text, unproved = statement.statement, 0.0
        assumptions = "; ".join(statement.assumptions)
        note = f"Counts the steps not verified; {len(statement.steps)} were verified. Assumes: {assumptions}."
    return Claim(
        f"{label}, symbolic", text, "proved symbolically", 0.0, unproved, 0.0, f"docs/theory.md, {label}", note=note
    )
