"""The symbolic face (docs/theory.md, T1 to T8 in SymPy).

1. Every statement that is listed is proved: each of its steps holds at random values of its symbols too, evaluated
   without SymPy's simplifier (integrals by quadrature, derivatives by differences of high precision).
2. A false identity, a wrong sign or a wrong definition raises instead of becoming a step.
3. The evaluated closed forms equal the numeric functions on random input: metric, target, regret, sketch.
4. They equal quadrature and dense search that know neither face.
5. Statements are complete records: label, words, assumptions, LaTeX, arguments for each expression.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import integrate
from strategies import Array, conditions, random_spd, seeds

from theory import symbolic
from theory.metric import anisotropic_metric, encoder_metric, isotropic_metric, matching_encoder
from theory.reachable import AffineSet
from theory.regret import best_kappa, mean_line_regret, planning_regret, regret_curve, worst_case, worst_regret
from theory.sketch import expected_statistic, whole_line_statistic
from theory.symbolic import Statement, Step, UnprovedStepError, prove, prove_nonnegative
from theory.target import optimal_target, relative_noise

ANGLES = st.floats(-4.0, 4.0)
BUILDERS = {
    "T1": symbolic.isotropic_metric,
    "T2": symbolic.anisotropic_metric,
    "T4": symbolic.optimal_target,
    "T5": symbolic.line_regret,
    "T6 mean": symbolic.mean_line_regret,
    "T6 worst": symbolic.worst_regret,
    "T7": symbolic.regret_against_kappa,
    "T8": symbolic.sketched_statistic,
}


def plane_spd(seed: int, condition: float = 1e3) -> Array:
    """A random SPD matrix of the plane."""
    rng = np.random.default_rng(seed)
    return random_spd(rng, 2, np.exp(rng.uniform(0.0, np.log(condition))), np.exp(rng.normal()))


def entries(matrix: Array) -> tuple[float, float, float]:
    """The arguments (11, 12, 22) of a symmetric matrix."""
    return float(matrix[0, 0]), float(matrix[0, 1]), float(matrix[1, 1])


# -- 1. the steps ------------------------------------------------------------------------------------------------------


def free_symbols(step: Step) -> list:
    """Scalars and matrix symbols that the step leaves open, in a fixed order."""
    sides = [sp.sympify(side) for side in (step.left, step.right, *step.where, *step.where.values())]
    return sorted(set().union(*(side.free_symbols for side in sides)), key=str)


def draw_values(step: Step, rng: np.random.Generator) -> dict:
    """A value for each scalar, as its sign allows; whole numbers stand for the dimension of matrix symbols."""
    return {
        symbol: 2 if symbol.is_integer else sp.Float(rng.uniform(0.2 if symbol.is_nonnegative else -1.5, 1.8), 30)
        for symbol in free_symbols(step)
        if not isinstance(symbol, sp.MatrixSymbol)
    }


def evaluate(side: object, where: dict, values: dict) -> object:
    """One side of a step in numbers: definitions first, then values, then floating point."""
    side = sp.sympify(side)
    for symbol, meaning in where.items():
        side = side.subs(symbol, meaning)
    side = side.subs(values)
    if side.is_Matrix:
        return np.array(side.doit().evalf(), dtype=complex)
    if not side.has(sp.Integral):
        side = side.doit()
    return complex(side.evalf(15))


@pytest.mark.parametrize("label", list(BUILDERS))
def test_each_step_holds_in_numbers(label: str) -> None:
    """Claim 1."""
    for index, step in enumerate(BUILDERS[label]().steps):
        rng = np.random.default_rng(index)
        slow = sp.sympify(step.left).has(sp.Integral, sp.Limit)
        for _ in range(1 if slow else 3):
            values = draw_values(step, rng)
            if sp.sympify(step.left).has(sp.MatrixSymbol):
                check_matrix_step(step, values, rng)
                continue
            left, right = (evaluate(side, step.where, values) for side in (step.left, step.right))
            assert_allclose(left, right, rtol=1e-9, atol=1e-12, err_msg=step.claim)
            if step.nonnegative and not step.where:
                assert right.real >= 0


def check_matrix_step(step: Step, scalars: dict, rng: np.random.Generator) -> None:
    """A step in matrix symbols: what ``where`` defines follows from the rest, which is random (K SPD, R orthogonal)."""
    matrices = {symbol.name: rng.standard_normal((2, 2)) for symbol in free_symbols(step) if symbol.is_Matrix}
    for name, repair in (("K", lambda k: k @ k.T), ("R", lambda r: np.linalg.qr(r)[0])):
        if name in matrices:
            matrices[name] = repair(matrices[name])
    for symbol, meaning in step.where.items():
        if isinstance(symbol, sp.MatrixSymbol):
            matrices[symbol.name] = walk(meaning, matrices, scalars)
    assert_allclose(walk(step.left, matrices, scalars), walk(step.right, matrices, scalars), rtol=1e-8, atol=1e-9)


def walk(expression: object, matrices: dict[str, Array], scalars: dict) -> Array:
    """Evaluate a matrix expression node by node with NumPy."""
    if isinstance(expression, sp.MatrixSymbol):
        return matrices[expression.name]
    if isinstance(expression, sp.Identity):
        return np.eye(2)
    if isinstance(expression, sp.Transpose):
        return walk(expression.arg, matrices, scalars).T
    if isinstance(expression, sp.MatPow):
        return np.linalg.matrix_power(walk(expression.base, matrices, scalars), int(expression.exp))
    if isinstance(expression, sp.MatMul):
        factors = [
            walk(factor, matrices, scalars) if factor.is_Matrix else float(factor.subs(scalars)) * np.eye(2)
            for factor in expression.args
        ]
        return np.linalg.multi_dot(factors)
    raise TypeError(f"no rule for {type(expression)}")


# -- 2. what is not true is not a step ---------------------------------------------------------------------------------


def test_false_identities_are_refused() -> None:
    """Claim 2: for scalars, matrices, matrix symbols, integrals, and under definitions."""
    x, y = sp.symbols("x y", real=True)
    matrix = sp.MatrixSymbol("W", 2, 2)
    for left, right, where in (
        (x**2, x**2 + sp.Rational(1, 10**9), None),
        (sp.cos(x) ** 2, 1 - sp.sin(2 * x) ** 2, None),
        (sp.diag(x, y), sp.diag(x, x), None),
        (matrix * matrix.T, matrix.T * matrix, None),
        (sp.Integral(sp.exp(-(x**2)), (x, -sp.oo, sp.oo)), sp.pi, None),
        (x, y, {x: 2 * y}),
    ):
        with pytest.raises(UnprovedStepError, match="the claim: the sides differ by"):
            prove("the claim", left, right, where)
    assert prove("the claim", x, 2 * y, {x: 2 * y}).left == x


def test_signs_must_follow() -> None:
    """Claim 2: a true identity whose sign is open is no inequality."""
    x = sp.Symbol("x", real=True)
    u = sp.Symbol("u", nonnegative=True)
    assert prove_nonnegative("a square", x**2 - 2 * x + 1, (x - 1) ** 2).nonnegative
    assert prove_nonnegative("slack", 1 - x, u, {u: 1 - x}).nonnegative
    with pytest.raises(UnprovedStepError, match="the sign of x does not follow"):
        prove_nonnegative("open", x, x)
    with pytest.raises(UnprovedStepError, match="sides differ"):
        prove_nonnegative("false", x - 1, x**2)


# -- 3. closed forms against the numeric face --------------------------------------------------------------------------


@given(seed=seeds(), scale=st.floats(0.1, 10.0), angle=ANGLES, turn=ANGLES)
def test_metrics_agree(seed: int, scale: float, angle: float, turn: float) -> None:
    """Claim 3 for T1 and T2: the symbolic metric, encoder and target are those of `theory.metric`.

    Mutation: swap s₁ and s₂ in the whitener, or drop q from the metric.
    """
    rng = np.random.default_rng(seed)
    deviations = np.exp(rng.uniform(-1.0, 1.0, 2))
    isotropic, anisotropic = symbolic.isotropic_metric(), symbolic.anisotropic_metric()
    state_cov = isotropic.function("state_cov")(*deviations, angle)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    metric = isotropic.function("metric")(*entries(state_cov), scale)
    assert_allclose(metric, isotropic_metric(state_cov, scale), rtol=1e-9, atol=1e-10)
    encoder = isotropic.function("encoder")(*deviations, angle, turn, scale)
    assert_allclose(encoder, matching_encoder(state_cov, rotation=rotation, scale=scale), rtol=1e-8, atol=1e-10)
    assert_allclose(encoder_metric(encoder), metric, rtol=1e-8, atol=1e-10)

    half_gap = rng.uniform(0.0, 0.9)
    target = anisotropic.function("target")(1.0, half_gap, turn)
    assert_allclose(np.linalg.eigvalsh(target), [1 - half_gap, 1 + half_gap], atol=1e-12)
    assert_allclose(
        anisotropic.function("metric")(*deviations, angle, *entries(target), scale),
        anisotropic_metric(state_cov, target, scale),
        rtol=1e-8,
        atol=1e-10,
    )


@given(seed=seeds(), kappa=conditions(1e3), angle=ANGLES)
def test_targets_agree(seed: int, kappa: float, angle: float) -> None:
    """Claim 3 for T4: the symbolic optimum is `optimal_target`'s.

    Mutation: exchange the two variances.
    """
    rng = np.random.default_rng(seed)
    least, greatest = np.sort(rng.uniform(0.1, 10.0, 2))
    statement = symbolic.optimal_target()
    noise = statement.function("noise")(least, greatest, angle)
    best = optimal_target(noise, kappa)
    assert best.value == pytest.approx(statement.function("value")(least, greatest, kappa))
    assert_allclose(best.matrix, statement.function("matrix")(kappa, angle), atol=1e-9 / (greatest - least))


@given(seed=seeds())
def test_line_regrets_agree(seed: int) -> None:
    """Claim 3 for T5: chosen outcome, excess and normalised regret of a random case are `planning_regret`'s.

    Mutation: take the distance in a without its factor vᵀQv.
    """
    rng = np.random.default_rng(seed)
    metric, task_metric = plane_spd(seed), plane_spd(seed + 1, 30.0)
    point, direction, goal = rng.standard_normal((3, 2))
    statement = symbolic.line_regret()
    arguments = (*point, *direction, *goal, *entries(metric), *entries(task_metric))
    case = planning_regret(AffineSet(point, direction[:, None]), goal, metric, task_metric)
    assert_allclose(statement.function("chosen")(*arguments).ravel(), case.chosen, rtol=1e-7, atol=1e-7)
    optimal = (case.optimal - goal) @ task_metric @ (case.optimal - goal)
    assert statement.function("excess")(*arguments) == pytest.approx(case.excess, rel=1e-6, abs=1e-9 * optimal)
    assert statement.function("normalized")(*arguments) == pytest.approx(case.normalized, rel=1e-6, abs=1e-9)


@given(seed=seeds())
def test_mean_and_worst_regret_agree(seed: int) -> None:
    """Claim 3 for T6: both closed forms in the entries of M and Q are `theory.regret`'s, and the worst line attains.

    Mutation: divide by √det where det is due.
    """
    metric, task_metric = plane_spd(seed), plane_spd(seed + 1, 30.0)
    mean, worst = symbolic.mean_line_regret(), symbolic.worst_regret()
    arguments = (*entries(metric), *entries(task_metric))
    expected = mean_line_regret(metric, task_metric)
    assert mean.function("mean_of_metric")(*arguments) == pytest.approx(expected, rel=1e-8, abs=1e-10)
    bound = worst_regret(metric, task_metric)
    assert worst.function("worst_of_metric")(*arguments) == pytest.approx(bound, rel=1e-8, abs=1e-10)
    ratio = float(np.linalg.cond(metric))
    assert mean.function("mean")(ratio) == pytest.approx(mean_line_regret(metric), rel=1e-8, abs=1e-10)
    assert worst.function("worst")(ratio) == pytest.approx(worst_case(metric).regret, rel=1e-8, abs=1e-10)
    assert mean.function("regret_at_slope")(ratio**-0.5, ratio) == pytest.approx(
        worst.function("worst")(ratio), rel=1e-8, abs=1e-12
    )


@given(contrast=st.floats(1.05, 50.0), kappa=conditions(1e3), tilt=st.floats(0.2, 5.0), sigma=st.floats(0.01, 2.0))
def test_the_kappa_curve_agrees(contrast: float, kappa: float, tilt: float, sigma: float) -> None:
    """Claim 3 for T7: `regret_curve` for isotropic and for strongly anisotropic noise, with and without a task metric.

    Mutation: put c/κ² for κ/c.
    """
    state_cov = np.diag([contrast, 1.0])
    statement = symbolic.regret_against_kappa()

    def curve(noise_cov: Array, task_metric: Array | None = None) -> float:
        return float(regret_curve(state_cov, noise_cov, [kappa], task_metric)["mean_regret"].iloc[0])

    isotropic = sigma**2 * np.eye(2)
    assert statement.function("mean")(kappa, contrast) == pytest.approx(curve(isotropic), rel=1e-7, abs=1e-9)
    assert statement.function("mean_of_task")(kappa, contrast, tilt, 1.0) == pytest.approx(
        curve(isotropic, np.diag([tilt, 1.0])), rel=1e-7, abs=1e-9
    )
    against = np.diag([2.0 * contrast, 1.0])
    assert statement.function("mean_if_flipped")(kappa, contrast) == pytest.approx(curve(against), rel=1e-7, abs=1e-9)


def test_the_best_kappa_is_where_the_curve_says() -> None:
    """Claim 3 for T7: zero at κ = c and κ = cq₁/q₂; 9/56 at κ = 1 and κ = c² for standard deviations 7:4."""
    statement = symbolic.regret_against_kappa()
    contrast = 3.0625
    state_cov = np.diag([contrast, 1.0])
    assert best_kappa(state_cov, np.eye(2)).kappa == pytest.approx(contrast, rel=1e-4)
    assert best_kappa(state_cov, np.eye(2), np.diag([2.0, 1.0])).kappa == pytest.approx(2 * contrast, rel=1e-4)
    assert best_kappa(state_cov, np.diag([5.0, 1.0])).kappa == 1.0
    for kappa, value in ((1.0, 9 / 56), (contrast, 0.0), (contrast**2, 9 / 56)):
        assert statement.function("mean")(kappa, contrast) == pytest.approx(value, abs=1e-15)


@given(variance=st.floats(0.0, 5.0), count=st.integers(1, 1000))
def test_the_statistic_agrees(variance: float, count: int) -> None:
    """Claim 3 for T8: the closed form is `whole_line_statistic`, and the sum over many knots far out.

    Mutation: write (s²+1) for (s²+2).
    """
    statement = symbolic.sketched_statistic()
    expected = float(statement.function("expected")(variance, count))
    assert expected == pytest.approx(float(whole_line_statistic(variance, count)), rel=1e-12)
    fine = expected_statistic([[variance]], count, knots=401, t_max=12.0)
    assert expected == pytest.approx(fine, rel=1e-9)
    population = float(statement.function("population")(variance))
    assert population == pytest.approx(expected_statistic([[variance]], None, knots=401, t_max=12.0), abs=1e-12)
    if count % 2 == 0:
        paired = float(statement.function("expected_pairs")(variance, count, 0.6))
        fine = expected_statistic([[variance]], count, knots=401, t_max=12.0, pair_correlation=0.6)
        assert paired == pytest.approx(fine, rel=1e-9)


# -- 4. closed forms against quadrature and search ---------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [1.0, 1.7, 3.0625, 40.0])
def test_mean_and_worst_by_quadrature_and_grid(ratio: float) -> None:
    """Claim 4 for T6: the average and the maximum over directions, from the definition of regret on a line."""
    metric = np.diag([1.0, ratio])

    def regret(angle: float) -> float:
        along = np.array([math.cos(angle), math.sin(angle)])
        across = np.array([-math.sin(angle), math.cos(angle)])
        return float((along @ metric @ across) ** 2 / (along @ metric @ along) ** 2)

    mean = integrate.quad(regret, 0.0, math.pi, epsabs=1e-12, limit=200)[0] / math.pi
    assert symbolic.mean_line_regret().function("mean")(ratio) == pytest.approx(mean, abs=1e-10)
    worst = max(map(regret, np.linspace(0.0, math.pi, 20_001)))
    bound = symbolic.worst_regret().function("worst")(ratio)
    assert worst <= bound + 1e-12
    assert worst == pytest.approx(bound, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("deviation", [0.0, 0.5, 1.0, 1.6])
def test_the_statistic_by_quadrature_and_simulation(deviation: float) -> None:
    """Claim 4 for T8: the integral over t, with E|φ̂ − ψ|² from simulated samples."""
    rng = np.random.default_rng(7)
    count, draws = 8, 5_000
    times = np.linspace(-8.0, 8.0, 81)
    samples = deviation * rng.standard_normal((draws, count))
    squares = np.zeros((draws, times.size))
    for index, time in enumerate(times):
        empirical = np.exp(1j * time * samples).mean(axis=1)
        squares[:, index] = np.abs(empirical - np.exp(-(time**2) / 2)) ** 2
    values = count * (squares * np.exp(-(times**2) / 2)).sum(axis=1) * (times[1] - times[0])
    expected = float(symbolic.sketched_statistic().function("expected")(deviation**2, count))
    error = values.std() / math.sqrt(draws)
    assert abs(values.mean() - expected) <= 4 * error + 1e-9


@pytest.mark.parametrize("variances", [(1.0, 1.0), (2.0, 0.5), (0.1, 3.0)])
def test_the_slice_average_by_quadrature(variances: tuple[float, float]) -> None:
    """Claim 4 for T8: the Bessel form against the average over equally spaced angles, exact to rounding on a period."""
    angles = np.arange(256) * (2 * math.pi / 256)
    forms = variances[0] * np.cos(angles) ** 2 + variances[1] * np.sin(angles) ** 2
    average = symbolic.sketched_statistic().function("slice_average")
    for factor in (0.1, 1.0, 4.0):
        assert average(factor, *variances) == pytest.approx(np.exp(-factor * forms).mean(), rel=1e-12)


# -- 5. records --------------------------------------------------------------------------------------------------------


def test_the_registry_lists_complete_statements() -> None:
    """Claim 5: every statement, in order, with all that a reader needs."""
    registry = symbolic.statements()
    assert list(registry) == list(BUILDERS)
    for label, statement in registry.items():
        assert isinstance(statement, Statement)
        assert statement.label == label
        assert statement is BUILDERS[label]()
        assert statement.statement.endswith(".")
        assert statement.assumptions
        assert len(statement.steps) >= 5
        assert all(step.claim and "=" in step.latex for step in statement.steps)
        assert statement.latex.count("{") == statement.latex.count("}")
        assert set(statement.arguments) == set(statement.expressions)
        for name, expression in statement.expressions.items():
            assert expression.free_symbols <= set(statement.arguments[name])
            assert sp.latex(expression)


def test_functions_broadcast_and_name_their_expressions() -> None:
    """Claim 5: closed forms take arrays, and an unknown name is one sentence."""
    statement = symbolic.regret_against_kappa()
    curve = statement.function("mean")(np.array([1.0, 3.0625, 9.37890625]), 3.0625)
    assert_allclose(curve, [9 / 56, 0.0, 9 / 56], atol=1e-15)
    with pytest.raises(ValueError, match="name must be one of mean, mean_of_task, mean_if_flipped, but it is 'median'"):
        statement.function("median")


def test_the_trained_setting_has_the_symbolic_noise() -> None:
    """Claim 3 for T7's first step: isotropic noise is relatively least where the state varies most."""
    noise = relative_noise(np.diag([3.0625, 1.0]), 0.25 * np.eye(2))
    assert_allclose(noise, 0.25 * np.diag([1 / 3.0625, 1.0]))
