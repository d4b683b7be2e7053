"""SIGReg and ΛReg at κ = 1.

1. On the same slices, value and gradient are those of stable-worldmodel's SIGReg on LeWM's (T, B, D), of
   stable-pretraining's SlicedEppsPulley, and of LeJEPA's published formula.
2. ΛReg at κ = 1 is SIGReg, bit for bit.
3. Over random batches its mean is the closed form for Gaussian features (docs/theory.md, T8).
4. Every device present gives the same value; lower precision is computed in float32, under autocast too.
5. Slices come from an argument, a generator, or a seed and a step counter. Same seed, same loss, bit for bit; a resumed
   run draws what the uninterrupted one would have; evaluation does not disturb training.
6. Leading axes are independent: a stack is its members, ``"none"`` keeps them and ``"mean"`` averages.
7. λN is what a weight means: the statistic of a population grows with N.
8. Wrong input is refused in one sentence.
9. ``torch.compile`` around it works, with the regulariser outside the graph.
"""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sketched_formula import every_device, gaussian, relative_error, seeded, unit_columns, written_out

from theory.regularizer import LambdaReg, SIGReg, draw_slices, effective_weight
from theory.sketch import expected_statistic


def value_and_gradient(module: Any, z: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    z = z.detach().clone().requires_grad_()
    value = module(z, **options)
    value.sum().backward()
    assert z.grad is not None
    return value.detach(), z.grad


def unit_columns_like_the_peers(dim: int, count: int, generator: torch.Generator | None = None) -> torch.Tensor:
    slices = torch.randn(dim, count, generator=generator)
    return slices / slices.norm(p=2, dim=0)


# Claim 1


@pytest.mark.parametrize("module", [SIGReg(96), LambdaReg(24, 1.0, 96)], ids=["SIGReg", "LambdaReg"])
def test_is_stable_worldmodels_sigreg(module: SIGReg) -> None:
    from stable_worldmodel.wm.loss import SIGReg as Peer

    z = gaussian(4, 64, 24, dtype=torch.float32)
    torch.manual_seed(3)
    want, want_gradient = value_and_gradient(Peer(17, 96), z)
    torch.manual_seed(3)
    got, gradient = value_and_gradient(module, z, slices=unit_columns_like_the_peers(24, 96))
    assert relative_error(got, want) < 1e-6
    assert relative_error(gradient, want_gradient) < 1e-5


def test_is_stable_pretrainings_sliced_epps_pulley() -> None:
    from stable_pretraining.methods.lejepa import SlicedEppsPulley

    z = gaussian(64, 24, dtype=torch.float32)
    want, want_gradient = value_and_gradient(SlicedEppsPulley(96), z)
    # Its first step seeds its generator with zero.
    got, gradient = value_and_gradient(SIGReg(96), z, slices=unit_columns_like_the_peers(24, 96, seeded(0)))
    assert relative_error(got, want) < 1e-6
    assert relative_error(gradient, want_gradient) < 1e-5


def lejepa_statistic(z: torch.Tensor, slices: torch.Tensor) -> torch.Tensor:
    """LeJEPA's published form: 17 knots on [−5, 5], complex exponentials, trapezoid rule, window e^{−t²/2}, times N."""
    t = torch.linspace(-5, 5, 17, dtype=z.dtype)
    window = torch.exp(-0.5 * t**2)
    empirical = (1j * (z @ slices).unsqueeze(2) * t).exp().mean(0)
    error = (empirical - window).abs().square() * window
    return (torch.trapezoid(error, t, dim=1) * z.shape[0]).mean()


def test_is_lejepas_formula_on_half_its_knots() -> None:
    z, slices = gaussian(40, 6), unit_columns(6, 30)
    want, want_gradient = value_and_gradient(lejepa_statistic, z, slices=slices)
    got, gradient = value_and_gradient(SIGReg(30, knots=9, t_max=5.0), z, slices=slices)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, want_gradient, rtol=1e-10, atol=1e-15)


# Claim 2


@given(dim=st.integers(1, 64), seed=st.integers(0, 2**31), double=st.booleans())
def test_kappa_one_is_sigreg(dim: int, seed: int, double: bool) -> None:
    """Mutation: normalise the variances as D · softmax (49 · (1/49) is not one)."""
    z = gaussian(2, 20, dim, seed=seed, dtype=torch.float64 if double else torch.float32)
    sigreg, lambda_reg = SIGReg(16, seed=seed), LambdaReg(dim, 1.0, 16, seed=seed)
    want, want_gradient = value_and_gradient(sigreg, z)
    got, gradient = value_and_gradient(lambda_reg, z)
    assert torch.equal(got, want)
    assert torch.equal(gradient, want_gradient)
    slices = unit_columns(dim, 16, seed=seed + 1)
    torch.testing.assert_close(
        lambda_reg.double()(z.double(), slices=slices), written_out(z.double(), slices).mean(), rtol=1e-11, atol=0
    )


# Claim 3


@pytest.mark.parametrize("variances", [(1.0, 1.0), (1.5, 0.5), (0.3, 2.0, 0.7)])
def test_mean_over_batches_is_the_closed_form(variances: tuple[float, ...]) -> None:
    samples, batches = 64, 4000
    spread = torch.tensor(variances).sqrt()
    z = torch.randn(batches, samples, len(variances), generator=seeded(5)) * spread
    values = SIGReg(32)(z, generator=seeded(6), reduction="none")
    # Slices of their own for every batch, so that the draws are independent.
    slices = unit_columns(batches, len(variances), 8, seed=7, dtype=torch.float32)
    values = SIGReg()(z, slices=slices, reduction="none").double()
    error = float(values.std() / batches**0.5)
    expected = float(expected_statistic(torch.diag(spread.double() ** 2).numpy(), samples))
    assert abs(float(values.mean()) - expected) < 4 * error
    assert 4 * error < 0.05 * expected


# Claim 4


@every_device
def test_devices_agree(device: str) -> None:
    z, slices = gaussian(3, 50, 12, dtype=torch.float32), unit_columns(12, 40, dtype=torch.float32)
    want, want_gradient = value_and_gradient(written_out, z.double(), slices=slices.double())
    module = LambdaReg(12, 1.0, 40).to(device)
    got, gradient = value_and_gradient(module, z.to(device), slices=slices, reduction="none")
    assert gradient.device.type == device
    assert relative_error(got, want) < 1e-6
    assert relative_error(gradient, want_gradient) < 1e-5
    drawn = module(z.to(device))
    assert drawn.device.type == device
    assert torch.equal(drawn, copy.deepcopy(LambdaReg(12, 1.0, 40)).to(device)(z.to(device)))


@every_device
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_lower_precision_is_computed_in_single_precision(device: str, dtype: torch.dtype) -> None:
    z = gaussian(3, 50, 12).to(device, dtype)
    slices = unit_columns(12, 40, dtype=torch.float32)
    module = LambdaReg(12, 2.0, 40).to(device)
    value, gradient = value_and_gradient(module, z, slices=slices)
    assert value.dtype == torch.float32
    assert gradient.dtype == dtype
    assert relative_error(value, written_out(z.double().cpu(), slices.double()).mean()) < 1e-6
    # A whole module in low precision keeps its constraint and its precision.
    assert module.to(dtype)(z, slices=slices).dtype == torch.float32


def test_autocast_does_not_reach_the_statistic() -> None:
    z, slices = gaussian(3, 50, 12, dtype=torch.float32), unit_columns(12, 40, dtype=torch.float32)
    want = value_and_gradient(SIGReg(40), z, slices=slices)
    with torch.autocast("cpu", torch.bfloat16):
        got = value_and_gradient(SIGReg(40), z, slices=slices)
        assert (z[0] @ slices).dtype == torch.bfloat16
    assert torch.equal(got[0], want[0])
    assert torch.equal(got[1], want[1])


# Claim 5


def test_same_seed_same_loss() -> None:
    z = gaussian(2, 30, 5, dtype=torch.float32)
    first, second, other = SIGReg(16, seed=3), SIGReg(16, seed=3), SIGReg(16, seed=4)
    losses = [first(z) for _ in range(3)]
    assert [second(z) for _ in range(3)] == losses
    assert other(z) not in losses
    assert len(set(map(float, losses))) == 3


def test_draws_leave_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    want = torch.rand(3)
    torch.manual_seed(0)
    SIGReg(16)(gaussian(30, 5))
    assert torch.equal(torch.rand(3), want)


def test_inference_mode_leaves_nothing_behind() -> None:
    """Constants are cached; those made in inference mode must not spoil a later backward pass."""
    z, module = gaussian(30, 5, dtype=torch.float32), SIGReg(16, knots=13)
    with torch.inference_mode():
        want = SIGReg(16, knots=13)(z)
    z.requires_grad_()
    value = module(z)
    assert torch.equal(value, want)
    (gradient,) = torch.autograd.grad(value, z, create_graph=True)
    assert torch.isfinite(torch.autograd.grad(gradient.sum(), z)[0]).all()


def test_a_generator_and_given_slices() -> None:
    z = gaussian(2, 30, 5, dtype=torch.float32)
    module = SIGReg(16)
    slices = draw_slices(5, 16, seeded(9))
    torch.testing.assert_close(slices.norm(dim=0), torch.ones(16))
    assert torch.equal(module(z, generator=seeded(9)), module(z, slices=slices))
    assert module.step == 0


def test_a_resumed_run_draws_what_the_uninterrupted_one_would_have() -> None:
    z = gaussian(2, 30, 5, dtype=torch.float32)
    run = LambdaReg(5, 2.0, 16, seed=7)
    for _ in range(4):
        run(z)
    file = io.BytesIO()
    torch.save(run.state_dict(), file)
    file.seek(0)
    want = [run(z) for _ in range(3)]
    resumed = LambdaReg(5, 2.0, 16, seed=7)
    # Nothing but tensors: it loads where arbitrary objects are refused.
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert resumed.step == 4
    assert [resumed(z) for _ in range(3)] == want
    for clone in (copy.deepcopy(resumed), pickle.loads(pickle.dumps(resumed))):
        assert clone(z) == copy.deepcopy(run)(z)


def test_evaluation_does_not_disturb_training() -> None:
    z = gaussian(2, 30, 5, dtype=torch.float32)
    quiet, disturbed = SIGReg(16), SIGReg(16)
    want = [quiet(z) for _ in range(3)]
    got = []
    for _ in range(3):
        got.append(disturbed(z))
        disturbed.eval()
        disturbed(z)
        disturbed(z)
        disturbed.train()
    assert got == want


# Claim 6


def test_leading_axes_are_independent() -> None:
    kappas = torch.tensor([[1.0, 2.0, 4.0]])
    stack = LambdaReg(3, kappas, 20, batch_shape=(2, 3)).double()
    with torch.no_grad():
        stack.target.logits.copy_(gaussian(2, 3, 3))
    z, slices = gaussian(2, 3, 4, 15, 3), unit_columns(3, 20)
    own = unit_columns(2, 3, 3, 20)
    assert stack(z, slices=slices, reduction="none").shape == (2, 3, 4)
    torch.testing.assert_close(stack(z, slices=slices), stack(z, slices=slices, reduction="none").mean())
    for i in range(2):
        for j in range(3):
            single = LambdaReg(3, float(kappas[0, j]), 20).double()
            with torch.no_grad():
                single.target.logits.copy_(stack.target.logits[i, j])
            for shared, mine in ((slices, slices), (own, own[i, j])):
                stack.zero_grad()
                single.zero_grad()
                want = value_and_gradient(single, z[i, j], slices=mine, reduction="none")
                got = value_and_gradient(stack, z, slices=shared, reduction="none")
                torch.testing.assert_close(got[0][i, j], want[0])
                torch.testing.assert_close(got[1][i, j], want[1])
                assert stack.target.logits.grad is not None
                torch.testing.assert_close(stack.target.logits.grad[i, j], single.target.logits.grad)
                assert bool(stack.target.logits.grad[i, j].any()) == (j > 0)


def test_samples_lie_on_the_second_last_axis() -> None:
    """LeWM passes (T, B, D): the batch is compared with the Gaussian, time steps are averaged."""
    z, slices = gaussian(3, 40, 5), unit_columns(5, 20)
    permuted = z[:, torch.randperm(40, generator=seeded(1))]
    torch.testing.assert_close(SIGReg(20)(permuted, slices=slices), SIGReg(20)(z, slices=slices))
    swapped = SIGReg(20)(z.transpose(0, 1), slices=slices)
    assert not torch.isclose(swapped, SIGReg(20)(z, slices=slices), rtol=0.05)


def test_features_are_not_changed_and_slices_get_no_gradient() -> None:
    z, slices = gaussian(2, 20, 3).requires_grad_(), unit_columns(3, 10).requires_grad_()
    before = (z.detach().clone(), slices.detach().clone())
    LambdaReg(3, 2.0, 10)(z, slices=slices).backward()
    assert torch.equal(z, before[0])
    assert torch.equal(slices, before[1])
    assert slices.grad is None
    assert SIGReg(10)(z.detach(), slices=slices).requires_grad is False


# Claim 7


def test_the_weight_of_a_population_discrepancy_is_lambda_times_samples() -> None:
    """Doubled data is the same empirical distribution: at equal λ it pulls twice as hard, at equal λN as hard."""
    z, slices = 1.5 * gaussian(40, 3), unit_columns(3, 20)
    small, small_gradient = value_and_gradient(SIGReg(20), z, slices=slices)
    large, large_gradient = value_and_gradient(SIGReg(20), torch.cat([z, z]), slices=slices)
    torch.testing.assert_close(large, 2 * small)
    per_population = large_gradient.view(2, 40, 3).sum(0)
    torch.testing.assert_close(per_population, 2 * small_gradient)
    weight = 0.09
    same_pull = weight * effective_weight(1.0, 40) / effective_weight(1.0, 80)
    torch.testing.assert_close(same_pull * per_population, weight * small_gradient)
    assert effective_weight(0.09, 128) == pytest.approx(11.52)


@pytest.mark.parametrize(("weight", "samples"), [(-1.0, 3), (float("nan"), 3), (1.0, 0)])
def test_effective_weight_refuses(weight: float, samples: int) -> None:
    with pytest.raises(ValueError, match=r"^(weight|num_samples) must"):
        effective_weight(weight, samples)


# Claim 8

REFUSED: list[tuple[str, Any]] = [
    ("num_slices", lambda: SIGReg(0)),
    ("knots", lambda: SIGReg(4, 1)),
    ("knots", lambda: SIGReg(4, True)),
    ("knots", lambda: SIGReg(4, 17.0)),  # type: ignore[arg-type]
    ("knots", lambda: SIGReg(4, [0.0, 1.0, 0.5])),
    ("knots", lambda: SIGReg(4, [-1.0, 1.0])),
    ("knots", lambda: SIGReg(4, [0.0, float("nan")])),
    ("knots", lambda: SIGReg(4, [0.0])),
    ("t_max", lambda: SIGReg(4, 17, 0.0)),
    ("t_max", lambda: SIGReg(4, 17, float("inf"))),
    ("z", lambda: SIGReg(4)(torch.ones(3))),
    ("z", lambda: SIGReg(4)(torch.ones(3, 2, dtype=torch.int64))),
    ("z", lambda: SIGReg(4)(torch.ones(3, 2, dtype=torch.complex64))),
    ("z", lambda: SIGReg(4)(torch.ones(0, 2))),
    ("z", lambda: LambdaReg(3)(torch.ones(5, 2))),
    ("z", lambda: LambdaReg(2, batch_shape=(4,))(torch.ones(5, 2))),
    ("z", lambda: LambdaReg(2, batch_shape=(4,))(torch.ones(3, 5, 2))),
    ("slices", lambda: SIGReg(4)(torch.ones(5, 2), slices=torch.ones(4, 2))),
    ("slices", lambda: SIGReg(4)(torch.ones(3, 5, 2), slices=torch.ones(2, 2, 4))),
    ("slices", lambda: SIGReg(4)(torch.ones(5, 2), slices=torch.ones(2, 4))),
    ("slices", lambda: SIGReg(4)(torch.ones(5, 2), slices=torch.full((2, 4), torch.nan))),
    ("slices", lambda: SIGReg(4)(torch.ones(5, 2), slices=torch.eye(2, dtype=torch.int64))),
    ("reduction", lambda: SIGReg(4)(torch.ones(5, 2), reduction="sum")),  # type: ignore[arg-type]
    ("target", lambda: LambdaReg(3, target=LambdaReg(2).target)),
]


@pytest.mark.parametrize(("name", "call"), REFUSED, ids=[f"{name}-{index}" for index, (name, _) in enumerate(REFUSED)])
def test_refuses(name: str, call: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must [^\n]*\.$"):
        call()


# Claim 9


def test_compile_leaves_the_regulariser_outside_the_graph() -> None:
    torch._dynamo.reset()
    encoder, module = torch.nn.Linear(6, 4).double(), LambdaReg(4, 2.0, 16).double()
    x = gaussian(20, 6)

    def loss(batch: torch.Tensor) -> torch.Tensor:
        return 0.09 * module(encoder(batch).tanh()) + encoder(batch).square().mean()

    want = [loss(x) for _ in range(3)]
    want[-1].backward()
    gradient = encoder.weight.grad.clone()
    module.step, encoder.weight.grad = 0, None
    compiled = torch.compile(loss, backend="aot_eager")
    got = [compiled(x) for _ in range(3)]
    got[-1].backward()
    torch.testing.assert_close(torch.stack(got), torch.stack(want))
    torch.testing.assert_close(encoder.weight.grad, gradient)
    assert module.step == 3
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(loss, backend="aot_eager", fullgraph=True)(x)
