"""The claims table: what this project says, how each statement was checked, and whether it held.

:func:`exact_claims` calls the numeric functions of :mod:`theory` and sets each against an independent brute force, here
and now. :func:`measured_claims` takes the toy's rows as an argument and judges what was trained. A claim passes or
fails by one comparison that is written in the claim itself; nothing is rounded, left out or replayed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from theory.spd import Array, check_array

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["proved symbolically", "checked against brute force", "seen in the trained toy"]
Relation = Literal["=", "≤", "≥"]

#: State covariance of the two-dimensional toy: standard deviations 7:4, scaled to (1.75, 1).
TOY_STATE_COV = np.diag([3.0625, 1.0])
#: Its condition number c, the κ at which T7's mean regret vanishes.
TOY_CONDITION = 3.0625
#: Mean regret of M ∝ Σ⁻¹ in the toy, (√c − 1)²/(2√c) (docs/theory.md, T6).
INVERSE_COVARIANCE_REGRET = 9 / 56


@dataclass(frozen=True)
class Claim:
    """One line of the table: ``measured`` against ``expected`` within ``tolerance``.

    Attributes
    ----------
    label
        Short name, such as "T6 mean, 2-D"; T1 to T12 are the statements of docs/theory.md.
    statement
        What is claimed, as one sentence.
    status
        How it was checked: "proved symbolically", "checked against brute force" or "seen in the trained toy".
    expected, measured, tolerance
        The numbers compared.
    source
        Paper, table or equation; "derived here" where the statement is ours.
    relation
        "=": |measured − expected| ≤ tolerance; "≤": measured ≤ expected + tolerance; "≥": measured ≥ expected −
        tolerance.
    note
        Spread, counts or a caveat that belongs beside the numbers.
    passed
        Whether the comparison holds (never true for nan).
    """

    label: str
    statement: str
    status: Status
    expected: float
    measured: float
    tolerance: float
    source: str
    relation: Relation = "="
    note: str = ""
    passed: bool = field(init=False)

    def __post_init__(self) -> None:
        """Refuse an unknown status or relation and a tolerance that decides nothing, then compare."""
        if self.status not in get_args(Status):
            raise ValueError(f"status must be one of {', '.join(get_args(Status))}, but it is {self.status!r}.")
        if self.relation not in get_args(Relation):
            raise ValueError(f"relation must be one of {', '.join(get_args(Relation))}, but it is {self.relation!r}.")
        if not (math.isfinite(self.tolerance) and self.tolerance >= 0 and math.isfinite(self.expected)):
            raise ValueError(
                f"The claim {self.label!r} needs a finite expected value and a finite tolerance of at least 0."
            )
        gap = float(self.measured) - float(self.expected)
        passed = {"=": abs(gap) <= self.tolerance, "≤": gap <= self.tolerance, "≥": gap >= -self.tolerance}[
            self.relation
        ]
        object.__setattr__(self, "passed", bool(passed))


def exact_claims() -> list[Claim]:
    """Evaluate every closed form against its brute force, in a few seconds.

    Returns
    -------
    list of Claim
        T1 to T9, T11 and T12 against brute force, then what SymPy proves.
    """
    from theory import _exact_claims

    return _exact_claims.evaluate()


def measured_claims(
    noise_rows: pd.DataFrame,
    kappa_rows: pd.DataFrame,
    overcomplete_rows: pd.DataFrame | None = None,
    *,
    weight: float = 0.09,
    batch_size: int = 512,
    min_seeds: int = 5,
) -> list[Claim]:
    """Judge the trained toy by its rows, one per seed × setting.

    Parameters
    ----------
    noise_rows
        Noise sweep: κ = 1, σ falling.
    kappa_rows
        κ sweep at one σ; it must hold κ = 1, κ = c and κ = c² with c = 3.0625.
    overcomplete_rows
        Sweep over the latent dimension D, if it was run.
    weight, batch_size
        Regulariser weight λ and the number of samples N on its sample axis, for the finite-weight theory (T9).
    min_seeds
        Fewest seeds a mean may rest on.

    Returns
    -------
    list of Claim
        Means over all seeds, with 95 % t intervals in the notes; folded runs are counted and never left out.

    Raises
    ------
    ValueError
        For missing columns, missing, doubled or non-finite rows, synthetic rows, too few seeds, or a sweep without the
        settings that its claims speak of.
    """
    from theory import _measured_claims

    return _measured_claims.evaluate(noise_rows, kappa_rows, overcomplete_rows, weight, batch_size, min_seeds)


def mean_interval(values: Sequence[float] | Array, level: float = 0.95) -> tuple[float, float, float]:
    """x̄ and the ends of its t interval, x̄ ± t_{m−1, (1+level)/2} · s/√m.

    Parameters
    ----------
    values
        m ≥ 2 independent measurements, such as one mean regret a seed.
    level
        Coverage of the interval, between 0 and 1.

    Raises
    ------
    ValueError
        For fewer than two values, non-finite values, or a level outside (0, 1).
    """
    from scipy.special import stdtrit

    sample = check_array(values, "values", ndim=1)
    if sample.size < 2:
        raise ValueError(
            f"values must hold at least two numbers for an interval, but there is {sample.size or 'none'}."
        )
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, but it is {level:.6g}.")
    mean = float(sample.mean())
    half = float(stdtrit(sample.size - 1, (1 + level) / 2) * sample.std(ddof=1) / math.sqrt(sample.size))
    return mean, mean - half, mean + half


def claims_frame(claims: Iterable[Claim]) -> pd.DataFrame:
    """The claims as a table, one row each, columns as the attributes of :class:`Claim`."""
    import pandas as pd

    columns = [
        "label",
        "statement",
        "status",
        "relation",
        "expected",
        "measured",
        "tolerance",
        "passed",
        "note",
        "source",
    ]
    return pd.DataFrame([{name: getattr(claim, name) for name in columns} for claim in claims], columns=columns)
