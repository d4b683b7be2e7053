"""What is measured on a trained network.

Claims:
1. Jacobians are those of the state, through the observation; the metric of a linear encoder is WᵀW.
2. Folds are found by the sign of det J, near-singular states in larger latents, and reported as a share.
3. The prediction error is against the conditional mean: zero for an exact predictor, whatever the noise.
4. The nonlinear share is what no affine map of the state explains; collapse is flagged.
5. Planning rows are mean normalised regrets; 9/56 for a linear encoder with M = Σ⁻¹.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erf
from strategies import random_rotation

from theory.regret import mean_line_regret
from toy2d import measure
from toy2d.measure import encoder_geometry, encoder_jacobian, measure_stack, planning, prediction_error
from toy2d.networks import StackedMLP
from toy2d.system import ToySystem
from toy2d.training import Case, TrainSettings, train

SEEDS = st.integers(0, 2**31)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def linear(weight: np.ndarray) -> StackedMLP:
    """The map W as a stack of one."""
    skip = torch.tensor(weight.T, dtype=torch.float32)[None]
    return StackedMLP(skip, [generator(0)], hidden=0).requires_grad_(False)


def bent(seed: int, inputs: int = 2, outputs: int = 2, scale: float = 30.0) -> StackedMLP:
    """A random network whose nonlinear path is not small."""
    skip = torch.randn(1, inputs, outputs, generator=generator(seed))
    network = StackedMLP(skip, [generator(seed + 1)]).requires_grad_(False)
    network.weight_out.mul_(scale)
    return network


def folding(outputs: int = 2) -> StackedMLP:
    """(x₁, |x₂|, 0, …) smoothed at the scale 0.02: half the plane is seen from the back."""
    network = StackedMLP(torch.zeros(1, 2, outputs), [generator(0)], hidden=2).requires_grad_(False)
    network.skip[0, 0, 0] = 1.0
    network.weight_in.copy_(torch.tensor([[[0.0, 0.0], [50.0, -50.0]]]))
    network.bias_in.zero_()
    # GELU(u) is u for large u and 0 for small, so a second pass changes nothing.
    network.weight_mid.copy_(torch.eye(2)[None])
    network.weight_out.zero_()
    network.weight_out[0, :, 1] = 1 / 50
    return network


@settings(max_examples=20)
@given(SEEDS, st.sampled_from(["identity", "nonlinear"]), st.integers(2, 4))
def test_jacobian_is_the_derivative_in_the_state(seed: int, observation: str, dim: int) -> None:
    """Claim 1, against central differences in float64.

    Mutation: differentiate with respect to the observation (``observed = system.observe(state)`` made the leaf).
    """
    system = ToySystem(0.1, observation=observation)  # type: ignore[arg-type]
    encoder = bent(seed, 2, dim).double()
    state = torch.randn(10, 2, dtype=torch.float64, generator=generator(seed))
    latent, jacobian = encoder_jacobian(system, encoder, state)
    assert jacobian.shape == (10, dim, 2)
    for axis in range(2):
        step = torch.zeros(2, dtype=torch.float64)
        step[axis] = 1e-5
        up, down = (encoder(system.observe(state + sign * step)[None])[0] for sign in (1, -1))
        torch.testing.assert_close(jacobian[:, :, axis], (up - down) / 2e-5, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(latent, encoder(system.observe(state)[None])[0])


@given(SEEDS)
def test_linear_encoder_geometry(seed: int) -> None:
    """Claims 1 and 4: metric WᵀW with its closed-form regret, no fold, no nonlinear share.

    Mutation: average J instead of JᵀJ with the transpose on the wrong side (``jacobian @ jacobian.transpose(1, 2)``).
    """
    rng = np.random.default_rng(seed)
    weight = random_rotation(rng, 3)[:, :2] * rng.uniform(0.3, 3.0, 2) @ random_rotation(rng, 2)
    row = encoder_geometry(ToySystem(0.1), linear(weight), generator(seed))
    metric = weight.T @ weight
    found = np.array([[row["metric_11"], row["metric_12"]], [row["metric_12"], row["metric_22"]]])
    np.testing.assert_allclose(found, metric, rtol=1e-4, atol=1e-4)
    assert row["metric_regret"] == pytest.approx(mean_line_regret(metric), rel=1e-3)
    assert row["metric_ratio"] == pytest.approx(metric[0, 0] / metric[1, 1], rel=1e-4)
    assert row["nonlinear_share"] < 1e-8
    assert not row["folded"]


@given(SEEDS, st.floats(0.1, 10.0))
def test_deviation_is_zero_exactly_at_the_inverse_covariance(seed: int, scale: float) -> None:
    """Claim 1: any rotation and scale of Σ^{-1/2} has deviation 0, another metric has not.

    Mutation: compare with Σ instead of Σ⁻¹.
    """
    turn = np.random.default_rng(seed).uniform(0, 2 * np.pi)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    matching = scale * rotation @ np.diag([1 / 1.75, 1.0])
    assert encoder_geometry(ToySystem(0.1), linear(matching), generator(0))["metric_deviation"] < 1e-5
    other = encoder_geometry(ToySystem(0.1), linear(scale * rotation), generator(0))
    sigma = np.diag([1 / 3.0625, 1.0])
    expected = np.linalg.norm(np.eye(2) / 2 - sigma / np.trace(sigma)) / np.linalg.norm(sigma / np.trace(sigma))
    assert other["metric_deviation"] == pytest.approx(expected, rel=1e-4)


def test_folds_are_counted() -> None:
    """Claim 2: a folded plane has half its states on the minority side; a mirrored one has none.

    Mutation: report the share of negative determinants (``fold_share = negative``).
    """
    row = encoder_geometry(ToySystem(0.1), folding(), generator(0))
    assert row["fold_share"] == pytest.approx(0.5, abs=0.03)
    assert row["folded"]
    mirrored = encoder_geometry(ToySystem(0.1), linear(np.diag([1.0, -1.0])), generator(0))
    assert mirrored["fold_share"] == 0
    assert not mirrored["folded"]


def test_near_singular_states_are_counted_in_larger_latents() -> None:
    """Claim 2, D = 3: the states within the smooth edge of |x₂|, and all of a map onto a line.

    Mutation: compare with the wrong end of the spectrum (``eigenvalues[:, 1] < SINGULAR_RATIO * eigenvalues[:, 0]``).
    """
    onto_line = encoder_geometry(ToySystem(0.1), linear(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 0.01]])), generator(0))
    assert onto_line["fold_share"] == 1
    assert encoder_geometry(ToySystem(0.1), linear(np.eye(3, 2)), generator(0))["fold_share"] == 0
    edge = encoder_geometry(ToySystem(0.1), folding(3), generator(0))
    assert 0 < edge["fold_share"] < 0.02


@settings(max_examples=20)
@given(SEEDS, st.floats(0.0, 0.7), st.floats(-1.0, 1.0))
def test_prediction_error_of_a_linear_model(seed: int, sigma: float, offset: float) -> None:
    """Claim 3: exact predictor, no error whatever σ; a constant offset δ in every coordinate, error δ².

    Mutation: compare with a sampled next latent, or with the latent of the noise's one-sided nodes.
    """
    system = ToySystem(sigma)
    weight = np.random.default_rng(seed).normal(size=(2, 2)) + 2 * np.eye(2)
    predictor = linear(np.hstack([system.decay * np.eye(2), weight @ np.diag(system.action_gain)]))
    predictor.bias_out.fill_(offset)
    row = prediction_error(system, linear(weight), predictor, generator(seed))
    assert row["prediction_error"] == pytest.approx(offset**2, rel=1e-4, abs=1e-9)
    variance = np.trace(weight @ system.state_cov @ weight.T) / 2
    assert row["prediction_error_relative"] == pytest.approx(row["prediction_error"] / variance, rel=0.15, abs=1e-12)


@given(SEEDS, st.floats(0.0, 0.75))
def test_conditional_mean_of_a_nonlinear_encoder(seed: int, sigma: float) -> None:
    """Claim 3: of z = (0, x₂ erf(x₂/√2)), whose mean under N(m, s²) is known, with β = √(1 + s²), as
    m erf(m/(β√2)) + (2/π)^{1/2} (s²/β) e^{−m²/(2β²)} (Stein's identity).

    Mutation: integrate with the physicists' rule (``hermite.hermgauss`` nodes, whose weight is e^{−t²}).
    """
    system = ToySystem(sigma)
    encoder = StackedMLP(torch.zeros(1, 2, 2), [generator(0)], hidden=2).requires_grad_(False)
    # GELU(u) + GELU(−u) = u erf(u/√2), and GELU(u + 20) = u + 20 passes it on.
    for parameter, value in (
        (encoder.weight_in, [[[0.0, 0.0], [1.0, -1.0]]]),
        (encoder.bias_in, [[[0.0, 0.0]]]),
        (encoder.weight_mid, [[[1.0, 0.0], [0.0, 1.0]]]),
        (encoder.bias_mid, [[[20.0, 20.0]]]),
        (encoder.weight_out, [[[0.0, 1.0], [0.0, 1.0]]]),
        (encoder.bias_out, [[[0.0, -40.0]]]),
    ):
        parameter.copy_(torch.tensor(value))
    blind = StackedMLP(torch.zeros(1, 4, 2), [generator(0)], hidden=0).requires_grad_(False)
    found = prediction_error(system, encoder, blind, generator(seed))["prediction_error"]
    normal = torch.randn(measure.TEST_TRANSITIONS, 4, generator=generator(seed))
    mean = system.conditional_mean(normal[:, :2] * torch.tensor(system.state_std), normal[:, 2:])[:, 1].double().numpy()
    beta = np.sqrt(1 + sigma**2)
    expected = mean * erf(mean / (beta * np.sqrt(2)))
    expected += np.sqrt(2 / np.pi) * sigma**2 / beta * np.exp(-(mean**2) / (2 * beta**2))
    assert found == pytest.approx(np.square(expected).mean() / 2, rel=1e-4)


def test_nonlinear_share() -> None:
    """Claim 4: z = (x₁, |x₂|) leaves Var|x₂| = 1 − 2/π of 3.0625 + 1 − 2/π unexplained.

    Mutation: leave the constant out of the regressors.
    """
    row = encoder_geometry(ToySystem(0.1), folding(), generator(3))
    rest = 1 - 2 / np.pi
    assert row["nonlinear_share"] == pytest.approx(rest / (3.0625 + rest), rel=0.06)


def test_collapse_is_flagged() -> None:
    """Claim 4: where a direction of the state is lost, in whatever latent coordinates; a spare coordinate is no loss.

    Mutation: look at the largest variance only (``principal[-1]``), or at the smallest of them (``principal[0]``).
    """
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    for scale, collapsed in ((1.0, False), (0.2, False), (0.05, True), (0.001, True)):
        weight = turn @ np.array([[1 / 1.75, 0.0], [0.0, scale], [0.0, 0.0]])
        assert encoder_geometry(ToySystem(0.1), linear(weight), generator(0))["collapsed"] is collapsed


def test_planning_of_a_linear_model() -> None:
    """Claim 5: both regrets are the closed form's, within four standard errors; actions are rarely in the tails.

    Mutation: report the positions themselves instead of their squares.
    """
    system = ToySystem(0.1)
    weight = np.diag([1 / 1.75, 1.0])
    predictor = linear(np.hstack([system.decay * np.eye(2), weight @ np.diag(system.action_gain)]))
    row = planning(system, linear(weight), predictor, 4000, generator(0))
    assert row["regret_enc"] == pytest.approx(9 / 56, abs=4 * 0.12 / 4000**0.5)
    assert row["regret_pred"] == pytest.approx(row["regret_enc"], abs=2e-3)
    assert row["regret_enc_median"] == pytest.approx(0.14, abs=0.03)
    assert 0 < row["action_tail_share"] < 0.05


def test_rows_name_their_network() -> None:
    """Claims 1–5 together: one row for each case, in order, with the learned target sorted and every value plain.

    Mutation: read the target of the first network for all (``stack.target_variances[0]``).
    """
    cases = [Case(4, 0.3), Case(2, 0.5, 3.0, "nonlinear")]
    options = TrainSettings(steps=3, latent_dim=3, batch_size=16, num_slices=4, hidden=8)
    rows = measure_stack(train(cases, options), lines=5)
    for case, row in zip(cases, rows, strict=True):
        names = ("seed", "sigma", "kappa", "observation")
        assert tuple(row[name] for name in names) == tuple(getattr(case, name) for name in names)
        assert (row["latent_dim"], row["steps"]) == (3, 3)
        assert row["target_variances"] == sorted(row["target_variances"], reverse=True)
        assert sum(row["target_variances"]) == pytest.approx(3, rel=1e-5)
        assert row["target_condition"] == pytest.approx(row["target_variances"][0] / row["target_variances"][-1])
        assert all(type(value) in (int, float, str, bool, list) for value in row.values())
    assert rows[0]["target_condition"] == 1
    assert rows[1]["target_condition"] > 1
