"""A statement with the identities that prove it, each verified by SymPy when the statement is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import sympy as sp


class UnprovedStepError(ArithmeticError):
    """A step whose two sides SymPy could not show to be equal, or whose sign it could not show."""


@dataclass(frozen=True, eq=False)
class Step:
    """One verified identity: ``left`` equals ``right`` under the definitions ``where``.

    Attributes
    ----------
    claim
        What the identity says, in words.
    left, right
        Its two sides: scalars, explicit matrices or matrix symbols.
    where
        Definitions that the identity needs, to be put in one after another.
    nonnegative
        Whether ``right`` was also shown to be ≥ 0 from the signs of its symbols; the step then proves left ≥ 0.
    """

    claim: str
    left: Any
    right: Any
    where: Mapping[Any, Any] = field(default_factory=dict)
    nonnegative: bool = False

    @property
    def latex(self) -> str:
        """The identity and its definitions as LaTeX, without delimiters."""
        identity = f"{sp.latex(self.left)} = {sp.latex(self.right)}" + (r" \ge 0" if self.nonnegative else "")
        return r",\quad ".join(
            [identity, *(f"{sp.latex(key)} = {sp.latex(value)}" for key, value in self.where.items())]
        )


@dataclass(frozen=True, eq=False)
class Statement:
    """One statement of docs/theory.md, proved symbolically.

    Attributes
    ----------
    label
        Its label there, such as "T4"; where one label holds two statements, "T6 mean" and "T6 worst".
    statement
        The statement in one or two sentences.
    assumptions
        What is assumed; signs are assumptions of the symbols, the rest is said here.
    steps
        The identities that prove it. A statement exists only if SymPy verified every one.
    latex
        The result as LaTeX, without delimiters.
    expressions
        Closed forms by name, to be evaluated: see :meth:`function`.
    arguments
        For each of them its free symbols, in the order in which :meth:`function` takes them.
    """

    label: str
    statement: str
    assumptions: tuple[str, ...]
    steps: tuple[Step, ...]
    latex: str
    expressions: Mapping[str, Any]
    arguments: Mapping[str, tuple[Any, ...]] = field(repr=False)

    def function(self, name: str) -> Callable[..., Any]:
        """Numeric form of ``expressions[name]``: takes ``arguments[name]`` one by one, broadcasts over arrays.

        Raises
        ------
        ValueError
            If there is no such expression.
        """
        if name not in self.expressions:
            raise ValueError(f"name must be one of {', '.join(self.expressions)}, but it is {name!r}.")
        return _lambdify(self, name)


@cache
def _lambdify(statement: Statement, name: str) -> Callable[..., Any]:
    numeric: Callable[..., Any] = sp.lambdify(statement.arguments[name], statement.expressions[name], cse=True)
    return numeric


def prove(claim: str, left: Any, right: Any, where: Mapping[Any, Any] | None = None) -> Step:
    """Verify left = right, if need be with the definitions ``where`` put in (in their order), and return the step.

    Integrals, derivatives and limits that are passed unevaluated are carried out here, so that nothing is asserted.

    Raises
    ------
    UnprovedStepError
        If the difference of the two sides does not simplify to zero.
    """
    difference = _evaluate(left, where) - _evaluate(right, where)
    if isinstance(difference, sp.MatrixBase):
        proved = all(_vanishes(entry) for entry in difference)
    elif isinstance(difference, sp.MatrixExpr):
        proved = difference.doit() == sp.ZeroMatrix(*difference.shape)
    else:
        proved = _vanishes(difference)
    if not proved:
        raise UnprovedStepError(f"{claim}: the sides differ by {difference}.")
    return Step(claim, left, right, dict(where or {}))


def prove_nonnegative(claim: str, expression: Any, witness: Any, where: Mapping[Any, Any] | None = None) -> Step:
    """Verify expression = witness and that the signs of its symbols make ``witness`` ≥ 0.

    ``where`` replaces slack symbols of the witness by what they stand for: 1 − τ ≥ 0, say, is a non-negative symbol to
    the sign check and an expression to the identity.

    Raises
    ------
    UnprovedStepError
        If the two differ, or the sign does not follow.
    """
    step = prove(claim, expression, witness, where)
    if witness.is_nonnegative is not True:
        raise UnprovedStepError(f"{claim}: the sign of {witness} does not follow from its symbols.")
    return replace(step, nonnegative=True)


def _vanishes(expression: Any) -> bool:
    # Trigonometric polynomials cancel by expansion once they are written in exponentials, which is far quicker than
    # what `simplify` tries; it in turn does not see that √(x/2 + 1) is √(x + 2)/√2, which factoring inside roots shows.
    exponential = expression.rewrite([sp.sin, sp.cos, sp.sinh, sp.cosh], sp.exp)
    if sp.expand(exponential) == 0:
        return True
    roots = exponential.replace(
        lambda node: node.is_Pow and not node.exp.is_integer and node.base != sp.E,
        lambda node: sp.factor(node.base) ** node.exp,
    )
    return sp.expand(roots) == 0 or sp.simplify(roots) == 0


def _evaluate(side: Any, where: Mapping[Any, Any] | None) -> Any:
    # One definition after another, since one may bring in symbols that the next defines.
    side = sp.sympify(side)
    for symbol, meaning in (where or {}).items():
        side = side.subs(symbol, meaning).doit()
    return side.doit()


def symmetric(name: str) -> tuple[Any, tuple[Any, Any, Any]]:
    """A symmetric 2×2 matrix of real symbols, and its entries (11, 12, 22), the diagonal ones positive."""
    first, last = sp.symbols(f"{name}_11 {name}_22", positive=True)
    mixed = sp.Symbol(f"{name}_12", real=True)
    return sp.Matrix([[first, mixed], [mixed, last]]), (first, mixed, last)


def rotation(angle: Any) -> Any:
    """Rotation of the plane by ``angle``."""
    return sp.Matrix([[sp.cos(angle), -sp.sin(angle)], [sp.sin(angle), sp.cos(angle)]])
