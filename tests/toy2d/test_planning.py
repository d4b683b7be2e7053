"""Planning on the imposed line (docs/theory.md, T5, T6, T10).

Claims:
1. The coarse-to-fine search returns the index of the dense search, for networks far more bent than trained ones.
2. The curvature bound that makes it safe holds on the whole line; of a mild network few points are evaluated.
3. Planning cases are what they are said to be: unit directions, goals at distance 1, points where the data are.
4. With a linear encoder the mean regret is the closed form: 9/56 at M = Σ⁻¹, 0 at M = I.
5. With an exact predictor, predicted and encoded outcomes give the same plan.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from theory.regret import mean_line_regret
from toy2d.networks import StackedMLP
from toy2d.planning import (
    GRID_POINTS,
    HALF_LENGTH,
    LineInputs,
    PlanningCases,
    curvature_bound,
    dense_search,
    draw_cases,
    encoder_inputs,
    grid_positions,
    line_search,
    predictor_inputs,
)
from toy2d.system import ToySystem

SEEDS = st.integers(0, 2**31)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_network(seed: int, inputs: int, outputs: int, bend: float, hidden: int = 64) -> StackedMLP:
    """One float64 network; ``bend`` scales its nonlinear path, 1 bending it about as much as its skip path tilts it."""
    skip = torch.randn(1, inputs, outputs, generator=generator(seed))
    network = StackedMLP(skip, [generator(seed + 1)], hidden=hidden).double().requires_grad_(False)
    if hidden:
        network.weight_out.mul_(bend / 0.01)
    return network


def double(cases: PlanningCases) -> PlanningCases:
    return PlanningCases(cases.state.double(), cases.point.double(), cases.direction.double(), cases.goal.double())


def linear_encoder(weight: np.ndarray) -> StackedMLP:
    """The map W as a stack of one, float64."""
    return StackedMLP(torch.tensor(weight.T)[None], [generator(0)], hidden=0).double().requires_grad_(False)


@settings(max_examples=30)
@given(SEEDS, st.sampled_from([0.0, 0.3, 1.0, 5.0]), st.integers(2, 4), st.sampled_from(["identity", "nonlinear"]))
def test_line_search_is_the_dense_search(seed: int, bend: float, dim: int, observation: Any) -> None:
    """Claim 1, for J_enc and, on lines in latent and action coordinates, for J_pred.

    Mutation: measure the chord from its left end only (``chord = 0 * right`` in ``_chord_distance``).
    """
    system = ToySystem(0.3, observation=observation)
    cases = double(draw_cases(system, 4, generator(seed)))
    encoder, predictor = random_network(seed, 2, dim, bend), random_network(seed + 9, dim + 2, dim, bend)
    goal = encoder(system.observe(cases.goal)[None])[0]
    for network, inputs in (
        (encoder, encoder_inputs(system, cases)),
        (predictor, predictor_inputs(system, encoder, cases)),
    ):
        dense = dense_search(network, inputs, goal)
        assert torch.equal(line_search(network, inputs, goal), dense)


@given(st.integers(20, GRID_POINTS - 21))
def test_narrow_minimum_is_found(index: int) -> None:
    """Claim 1: a dip of half-width 0.03, in a cost that otherwise falls to the left, lies between all coarse points.

    Mutation: trust the chords (``floor = _chord_distance(left, right)`` without its margin in ``line_search``).
    """
    steep, width, place = 400.0, 0.03, float(grid_positions(torch.tensor(index), torch.float64))
    network = StackedMLP(torch.tensor([[[0.01], [0.0]]]), [generator(0)], hidden=3).double().requires_grad_(False)
    offsets = torch.tensor([width, 0.0, -width], dtype=torch.float64) - place
    network.weight_in.copy_(torch.tensor([[[steep] * 3, [0.0] * 3]]))
    network.bias_in.copy_(steep * offsets)
    # GELU(u + 99) is u + 99 to rounding: the second layer passes the first one's units on.
    network.weight_mid.copy_(torch.eye(3)[None])
    network.bias_mid.fill_(99.0)
    network.weight_out.copy_(torch.tensor([[[-1.0], [2.0], [-1.0]]]) / (steep * width))
    network.bias_out.fill_(1.0)
    inputs = LineInputs(torch.zeros(1, 2).double(), torch.tensor([[1.0, 0.0]]).double())
    target = torch.full((1, 1), -0.05, dtype=torch.float64)
    assert abs(int(dense_search(network, inputs, target)) - index) <= 1
    assert torch.equal(line_search(network, inputs, target), dense_search(network, inputs, target))


def test_ties_go_to_the_lowest_index() -> None:
    """Claim 1: an encoder that sees nothing of the line makes all points equal.

    Mutation: keep the last of equal points (``"amin"`` → ``"amax"`` for the index in ``_Best.update``).
    """
    cases = double(draw_cases(ToySystem(0.1), 5, generator(0)))
    blind = StackedMLP(torch.zeros(1, 2, 2), [generator(0)], hidden=0).double().requires_grad_(False)
    inputs, goal = encoder_inputs(ToySystem(0.1), cases), torch.ones(5, 2, dtype=torch.float64)
    assert dense_search(blind, inputs, goal).eq(0).all()
    assert line_search(blind, inputs, goal).eq(0).all()


@given(SEEDS, st.sampled_from([0.0, 1.0, 5.0]), st.sampled_from(["identity", "nonlinear"]))
def test_curvature_bound_holds(seed: int, bend: float, observation: Any) -> None:
    """Claim 2: against the second derivative by automatic differentiation, everywhere on the line.

    Mutation: leave the weights' magnitudes out (``weight_mid.abs()`` → ``weight_mid``).
    """
    system = ToySystem(0.3, observation=observation)
    cases = double(draw_cases(system, 3, generator(seed)))
    network = random_network(seed, 2, 3, bend, hidden=2)
    inputs = encoder_inputs(system, cases)
    bound = curvature_bound(network, inputs)
    position = torch.linspace(-HALF_LENGTH, HALF_LENGTH, 301, dtype=torch.float64)
    for line in range(3):
        place = position.clone().requires_grad_(True)
        out = network(inputs.at(torch.full((301,), line), place)[None])[0]
        second = []
        for column in out.unbind(1):
            slope = torch.autograd.grad(column.sum(), place, create_graph=True)[0]
            second.append(torch.autograd.grad(slope.sum(), place, allow_unused=True, retain_graph=True)[0])
        curvature = torch.stack([torch.zeros_like(place) if part is None else part for part in second])
        assert curvature.norm(dim=0).max() <= bound[line] * (1 + 1e-12)


@pytest.mark.parametrize(("middle", "first_at", "second_at"), [(0.02, 0.0, math.sqrt(2)), (50.0, math.sqrt(2), 0.0)])
def test_curvature_bound_is_attained(middle: float, first_at: float, second_at: float) -> None:
    """Claim 2: nearly, by one hidden unit a layer. |GELU''| is largest at 0, GELU' at √2 where GELU'' is 0, so that a
    small middle weight leaves the first layer's bend alone, and a large one the second layer's.

    Mutation: halve ``_GELU_BEND``, or drop either term of the sum in ``curvature_bound``.
    """
    network = StackedMLP(torch.zeros(1, 2, 1), [generator(0)], hidden=1).double().requires_grad_(False)
    unit = first_at * (1 + math.erf(first_at / math.sqrt(2))) / 2
    for parameter, value in (
        (network.weight_in, [[[3.0], [0.0]]]),
        (network.bias_in, [[[first_at]]]),
        (network.weight_mid, [[[middle]]]),
        (network.bias_mid, [[[second_at - middle * unit]]]),
        (network.weight_out, [[[-2.0]]]),
    ):
        parameter.copy_(torch.tensor(value))
    inputs = LineInputs(torch.zeros(1, 2).double(), torch.tensor([[1.0, 0.0]]).double())
    step = 1e-4
    low, here, high = (
        network(inputs.at(torch.tensor([0]), torch.tensor([s]).double())[None]) for s in (-step, 0, step)
    )
    curvature = abs(float(low - 2 * here + high)) / step**2
    assert 0.9 * float(curvature_bound(network, inputs)) < curvature <= float(curvature_bound(network, inputs))


def test_gelu_constants() -> None:
    """Claim 2: the bounds on |GELU'| and |GELU''| hold, and are no looser than their rounding.

    Mutation: lower either constant in its fourth decimal.
    """
    from toy2d.planning import _GELU_BEND, _GELU_SLOPE

    x = torch.linspace(-8, 8, 400_001, dtype=torch.float64).requires_grad_(True)
    slope = torch.autograd.grad(torch.nn.functional.gelu(x).sum(), x, create_graph=True)[0]
    bend = torch.autograd.grad(slope.sum(), x)[0]
    for found, constant in ((slope, _GELU_SLOPE), (bend, _GELU_BEND)):
        assert constant - 1.2e-4 < float(found.detach().abs().max()) <= constant


def test_search_skips_most_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim 2: at most a sixth of the dense search's evaluations for a network as bent as a trained one.

    Mutation: keep every cell (``keep = torch.arange(len(line))`` in ``line_search``).
    """
    seen = 0
    forward = StackedMLP.forward

    def counted(self: StackedMLP, inputs: torch.Tensor) -> torch.Tensor:
        nonlocal seen
        seen += inputs.shape[1]
        return forward(self, inputs)

    monkeypatch.setattr(StackedMLP, "forward", counted)
    cases = double(draw_cases(ToySystem(0.1), 50, generator(1)))
    encoder = random_network(3, 2, 2, bend=0.1)
    inputs, goal = encoder_inputs(ToySystem(0.1), cases), encoder(cases.goal[None])[0]
    seen = 0
    line_search(encoder, inputs, goal)
    assert 0 < seen < 50 * GRID_POINTS / 6


@given(st.floats(0.0, 0.75), SEEDS)
def test_cases_are_as_described(sigma: float, seed: int) -> None:
    """Claim 3.

    Mutation: put the goal at distance 2 (``goal = point + 2 * …``) or on the line itself.
    """
    cases = draw_cases(ToySystem(sigma), 30, generator(seed))
    gap = cases.goal - cases.point
    torch.testing.assert_close(cases.direction.norm(dim=1), torch.ones(30))
    torch.testing.assert_close(gap.norm(dim=1), torch.ones(30), rtol=1e-5, atol=1e-5)
    assert float((gap * cases.direction).sum(1).abs().max()) < 1e-5


def test_points_lie_where_the_data_are() -> None:
    """Claim 3: points have the covariance Σ − σ²I of conditional means; directions and sides are uniform.

    Mutation: draw p from the current state (``point = state`` in ``draw_cases``).
    """
    system = ToySystem(0.6)
    cases = draw_cases(system, 40_000, generator(0))
    np.testing.assert_allclose(np.cov(cases.point.numpy().T), system.state_cov - 0.36 * np.eye(2), atol=0.06)
    second = torch.atan2(cases.direction[:, 1], cases.direction[:, 0])
    for harmonic in (1, 2, 4):
        assert abs(float((harmonic * second).cos().mean())) < 0.02


def test_grid() -> None:
    """Claim 3: half-length 3 in steps of 0.005, with the task optimum s = 0 on the grid."""
    positions = grid_positions(torch.arange(GRID_POINTS), torch.float64)
    np.testing.assert_allclose(np.diff(positions.numpy()), 0.005, rtol=1e-9)
    assert positions[0] == -3
    assert positions[-1] == 3
    assert positions[600] == 0


@pytest.mark.parametrize(("metric", "expected"), [(np.diag([1 / 3.0625, 1.0]), 9 / 56), (np.eye(2), 0.0)])
def test_linear_encoder_pays_the_closed_form(metric: np.ndarray, expected: float) -> None:
    """Claim 4, by Monte Carlo over 20,000 lines.

    Mutation: put the goal off the perpendicular (add ``0.1 * direction`` in ``draw_cases``), or draw all directions
    along the first axis.
    """
    system = ToySystem(0.1)
    cases = double(draw_cases(system, 20_000, generator(5)))
    encoder = linear_encoder(np.linalg.cholesky(metric).T)
    goal = encoder(cases.goal[None])[0]
    position = grid_positions(line_search(encoder, encoder_inputs(system, cases), goal), torch.float64)
    regret = ((cases.outcome(position) - cases.goal).square().sum(1) - 1).numpy()
    np.testing.assert_allclose(regret, position.square().numpy(), atol=1e-5)
    error = regret.std() / math.sqrt(len(regret))
    assert abs(regret.mean() - expected) < 4 * error + 1e-5
    assert expected == pytest.approx(mean_line_regret(metric), abs=1e-12)


@given(SEEDS, st.sampled_from([0.1, 0.5]))
def test_exact_predictor_plans_like_the_encoder(seed: int, sigma: float) -> None:
    """Claim 5: z' = W(0.6 x + B a) predicts exactly, so J_pred and J_enc choose the same points.

    Mutation: leave the drift out of the planned action (``action_for``), or B⁻¹ out of ``predictor_inputs``' slope.
    """
    system = ToySystem(sigma)
    weight = np.random.default_rng(seed).normal(size=(2, 2)) + 2 * np.eye(2)
    encoder = linear_encoder(weight)
    skip = np.vstack([system.decay * np.eye(2), np.diag(system.action_gain) @ weight.T])
    predictor = linear_encoder(skip.T)
    cases = double(draw_cases(system, 20, generator(seed)))
    goal = encoder(cases.goal[None])[0]
    predicted = line_search(predictor, predictor_inputs(system, encoder, cases), goal)
    encoded = line_search(encoder, encoder_inputs(system, cases), goal)
    assert int((predicted - encoded).abs().max()) <= 1


def test_no_lines_are_refused() -> None:
    """Claim 3: an empty test says nothing."""
    with pytest.raises(ValueError, match="lines must be at least 1"):
        draw_cases(ToySystem(0.1), 0, generator(0))


def test_line_inputs_pass_through_the_observer() -> None:
    """Claim 1: the encoder of J_enc sees the warp of the outcome, not of the offset."""
    system = ToySystem(0.1, observation="nonlinear")
    inputs = LineInputs(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.6, 0.8]]), system)
    torch.testing.assert_close(
        inputs.at(torch.tensor([0]), torch.tensor([0.5])), system.observe(torch.tensor([[1.3, 2.4]]))
    )
