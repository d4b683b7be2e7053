"""Training as a stack (docs/theory.md, T10).

Claims:
1. A stack computes what a plain loop over single networks computes: loss, gradients and updates, written out.
2. A network's data and start depend on its own seed and the step alone: the same in every setting and every company.
3. The data have the stationary covariance, and the next state follows the system.
4. Slices are unit columns, in two dimensions evenly spaced, and a function of the step alone.
5. Target logits and linear paths move at ten times the rate of the rest; the target stays in its set, at κ = 1 on I.
6. Bad settings are refused in one sentence.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from toy2d import training
from toy2d.system import ToySystem
from toy2d.training import Case, TrainSettings, encoder_start, train, training_batches, training_slices

SMALL = {"batch_size": 32, "num_slices": 8, "hidden": 8}


def parameters(stack: training.TrainedStack, position: int) -> dict[str, torch.Tensor]:
    return {
        f"{name}.{key}": value[position]
        for name, network in (("encoder", stack.encoder), ("predictor", stack.predictor))
        for key, value in network.state_dict().items()
    }


def written_out(case: Case, options: TrainSettings) -> dict[str, torch.Tensor]:
    """One network trained alone in float64, every formula spelled out, Adam included."""
    start = train([case], TrainSettings(**{**options.__dict__, "steps": 1, "learning_rate": 1e-30}))
    weights = {name: value.double().requires_grad_(True) for name, value in parameters(start, 0).items()}
    logits = torch.zeros(options.latent_dim, dtype=torch.float64, requires_grad=True)
    leaves = {**weights, "logits": logits}
    moments = {name: (torch.zeros_like(leaf), torch.zeros_like(leaf)) for name, leaf in leaves.items()}

    def network(name: str, x: torch.Tensor) -> torch.Tensor:
        part = {key.split(".")[1]: value for key, value in weights.items() if key.startswith(name)}
        hidden = functional.gelu(x @ part["weight_in"] + part["bias_in"])
        hidden = functional.gelu(hidden @ part["weight_mid"] + part["bias_mid"])
        return x @ part["skip"] + part["bias_out"] + hidden @ part["weight_out"]

    half = 0.5 * math.log(case.kappa)
    knots = torch.arange(17, dtype=torch.float64) * 3 / 16
    mass = torch.full((17,), 2 * 3 / 16, dtype=torch.float64)
    mass[[0, -1]] = 3 / 16
    window = torch.exp(-knots.square() / 2)
    batches, slices = (
        training_batches([case], options.batch_size),
        training_slices(options.latent_dim, options.num_slices),
    )
    for step in range(options.steps):
        observed, action = (value[0].double() for value in next(batches))
        features = network("encoder", observed)
        predicted = network("predictor", torch.cat((features[: options.batch_size], action), 1))
        error = (predicted - features[options.batch_size :]).square().mean()
        variances = options.latent_dim * torch.softmax(logits.clamp(-half, half), 0)
        projected = (features / variances.sqrt()) @ next(slices).double()
        phase = projected[..., None] * knots
        gap = (phase.cos().mean(0) - window).square() + phase.sin().mean(0).square()
        statistic = len(features) * (gap @ (mass * window)).mean()
        loss = error + options.weight * statistic
        gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        rate = options.learning_rate * (1 + math.cos(math.pi * step / options.steps)) / 2
        with torch.no_grad():
            for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
                first, second = moments[name]
                first.lerp_(gradient, 1 - training.BETAS[0])
                second.lerp_(gradient.square(), 1 - training.BETAS[1])
                factor = 10.0 if name == "logits" or name.endswith("skip") else 1.0
                corrected = first / (1 - training.BETAS[0] ** (step + 1))
                scale = (second / (1 - training.BETAS[1] ** (step + 1))).sqrt() + 1e-8
                leaf -= factor * rate * corrected / scale
            logits.clamp_(-half, half)
    return {**{name: value.detach() for name, value in weights.items()}, "target": variances.detach()}


@pytest.mark.parametrize("dim", [2, 3])
def test_stack_is_the_plain_loop(dim: int) -> None:
    """Claim 1: eight steps, three networks with different seeds, noises, bounds and observations.

    Mutation: detach the next features in the prediction error, pool only the current features into the statistic, or
    leave ``zero_grad`` out.
    """
    cases = [Case(3, 0.5, 2.5), Case(1, 0.1, 1.0), Case(3, 0.3, 9.0, "nonlinear")]
    options = TrainSettings(steps=8, latent_dim=dim, **SMALL)  # type: ignore[arg-type]
    stack = train(cases, options)
    for position, case in enumerate(cases):
        expected = written_out(case, options)
        expected.pop("target")
        for name, value in parameters(stack, position).items():
            torch.testing.assert_close(value.double(), expected[name], rtol=2e-3, atol=2e-5, msg=name)


@settings(max_examples=10)
@given(st.integers(0, 1000), st.integers(0, 3))
def test_company_does_not_matter(seed: int, position: int) -> None:
    """Claim 2: alone and among others, to rounding.

    Mutation: take the generators by place in the stack (``seeded_generator(place, …)`` over ``enumerate(cases)``).
    """
    options = TrainSettings(steps=6, **SMALL)  # type: ignore[arg-type]
    others = [Case(seed + 7, 0.5, 2.0), Case(seed + 1, 0.01), Case(seed, 0.2, observation="nonlinear")]
    case = Case(seed, 0.4, 3.0)
    together = train([*others[:position], case, *others[position:]], options)
    alone = train([case], options)
    for name, value in parameters(alone, 0).items():
        torch.testing.assert_close(parameters(together, position)[name], value, rtol=2e-4, atol=2e-6, msg=name)
    torch.testing.assert_close(together.target_variances[position], alone.target_variances[0])


@settings(max_examples=20)
@given(st.integers(0, 1000), st.floats(0.0, 0.75), st.floats(0.0, 0.75))
def test_same_seed_same_data_in_every_setting(seed: int, low: float, high: float) -> None:
    """Claims 2 and 3: only what σ scales differs, and the next state obeys x' = 0.6 x + B a + σ ε with one ε.

    Mutation: mix σ into the seed, or give all networks one action gain (``gain = gain[:1]``).
    """
    cases = [Case(seed, low), Case(seed, high, 5.0), Case(seed + 1, low)]
    for observed, action in islice(training_batches(cases, 8), 2):
        state, following = observed.split(8, dim=1)
        assert torch.equal(state[0], state[1])
        assert torch.equal(action[0], action[1])
        assert not torch.equal(state[0], state[2])
        noise = [following[i] - case.system.conditional_mean(state[i], action[i]) for i, case in enumerate(cases)]
        torch.testing.assert_close(noise[0] * high, noise[1] * low, atol=2e-6, rtol=1e-3)


def test_data_have_the_stationary_covariance() -> None:
    """Claim 3, by 50,000 samples of current and next states; the warp is applied where it is asked for.

    Mutation: scale the noise by σ² instead of σ in ``training_batches``.
    """
    cases = [Case(0, 0.7), Case(0, 0.7, observation="nonlinear")]
    pairs = list(islice(training_batches(cases, 1000), 50))
    for part in (slice(0, 1000), slice(1000, 2000)):
        states = torch.cat([observed[0, part] for observed, _ in pairs])
        np.testing.assert_allclose(np.cov(states.numpy().T), np.diag([3.0625, 1.0]), atol=0.06)
    plain, warped = pairs[0][0]
    torch.testing.assert_close(warped, ToySystem(0.7, observation="nonlinear").observe(plain))


@pytest.mark.parametrize("dim", [2, 3, 8])
def test_slices(dim: int) -> None:
    """Claim 4.

    Mutation: spread the angles over the whole circle (``2 * math.pi / count``), which counts each direction twice.
    """
    first, second = islice(training_slices(dim, 32), 2)
    assert first.shape == (dim, 32)
    torch.testing.assert_close(first.norm(dim=0), torch.ones(32))
    assert not torch.equal(first, second)
    assert torch.equal(next(training_slices(dim, 32)), first)
    if dim == 2:
        cosines = (first.T @ first).abs().fill_diagonal_(0).max(dim=1).values
        torch.testing.assert_close(cosines, torch.full((32,), math.cos(math.pi / 32)))


@given(st.integers(2, 8), st.integers(0, 2**31))
def test_encoder_start(dim: int, seed: int) -> None:
    """Claim 2: well conditioned in every dimension: singular values 1 and 1/2.

    Mutation: start from a plain Gaussian matrix.
    """
    start = encoder_start(dim, torch.Generator().manual_seed(seed))
    torch.testing.assert_close(torch.linalg.svdvals(start), torch.tensor([1.0, 0.5]))


def test_learning_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim 5: Adam's first step is one learning rate long, up or down.

    Mutation: leave ``lr_multiplier`` out of ``attach_target``, or the skip paths in the group of the rest.
    """
    case, options = Case(0, 0.5, 50.0), TrainSettings(steps=1)
    before = parameters(train([case], TrainSettings(steps=1, learning_rate=1e-30)), 0)
    after = train([case], options)
    for name, value in parameters(after, 0).items():
        change = (value - before[name]).abs()
        rate = 2e-2 if name.endswith("skip") else 2e-3
        assert float(change.max()) == pytest.approx(rate, rel=1e-2), name
    logits = after.target_variances[0].log()
    assert float(logits.max() - logits.min()) == pytest.approx(0.04, rel=1e-2)


def test_target_stays_in_its_set() -> None:
    """Claim 5: tr Λ = D and condition number at most κ; at κ = 1 the target does not move.

    Mutation: give the regulariser κ² for κ.
    """
    cases = [Case(0, 0.5, kappa) for kappa in (1.0, 1.2, 4.0)]
    stack = train(cases, TrainSettings(steps=40, **SMALL))  # type: ignore[arg-type]
    torch.testing.assert_close(stack.target_variances.sum(1), torch.full((3,), 2.0))
    condition = stack.target_variances.max(1).values / stack.target_variances.min(1).values
    assert condition[0] == 1
    assert condition[1] == pytest.approx(1.2, rel=1e-5)
    assert 1.2 < condition[2] <= 4 * (1 + 1e-6)


def test_same_seed_same_weights_bit_for_bit() -> None:
    """Claim 2, exactly, on one machine.

    Mutation: draw slices from the global generator (``torch.rand(1)`` without ``generator``).
    """
    cases = [Case(seed, 0.3, 2.0) for seed in range(3)]
    first, second = (train(cases, TrainSettings(steps=5)) for _ in range(2))
    for position in range(3):
        for name, value in parameters(first, position).items():
            assert torch.equal(parameters(second, position)[name], value), name
    assert torch.equal(first.target_variances, second.target_variances)
    assert torch.equal(first.statistic, second.statistic)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: train([]), "cases must not be empty"),
        (lambda: Case(0, -0.1), "noise_std must not be negative"),
        (lambda: Case(0, 0.8), "noise_std must be below 0.8"),
        (lambda: Case(0, 0.1, 0.5), "kappa must be at least 1"),
        (lambda: Case(0, 0.1, math.inf), "kappa must be finite"),
        (lambda: Case(-1, 0.1), "seed must be at least 0"),
        (lambda: Case(0, 0.1, observation="sound"), "observation must be one of"),  # type: ignore[arg-type]
        (lambda: TrainSettings(steps=0), "steps must be at least 1"),
        (lambda: TrainSettings(latent_dim=1), "latent_dim must be at least 2"),
        (lambda: TrainSettings(weight=0.0), "weight must be positive"),
        (lambda: TrainSettings(batch_size=2.5), "batch_size must be a whole number"),  # type: ignore[arg-type]
    ],
)
def test_bad_settings_are_refused(make: Any, sentence: str) -> None:
    """Claim 6."""
    with pytest.raises(ValueError, match=sentence):
        make()
