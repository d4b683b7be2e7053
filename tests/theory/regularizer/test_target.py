"""Target covariances, their optimiser helper, and the spectrum tracker.

1. A target is feasible at every read, whatever was done to its logits, in every precision: trace D, condition ≤ κ.
2. Both extremes are reached; ``clip_`` returns to the box; outside it, descent leads back and never further out.
3. At κ = 1 nothing moves. κ is configuration: a κ = 1 checkpoint loads into a κ > 1 module and stays κ > 1.
4. Started at the symmetric point the logits part, towards the variances of the features.
5. A full target is feasible too, is ΛReg's where its rotation is the identity, turns with the features, and fits a
   rotated covariance that a diagonal target cannot.
6. ``attach_target``: own group, no weight decay, a multiple of the rate, the same schedule, clipped after each step.
7. The tracker's spectra are those of the data; standardised features are isotropic where the target fits.
8. Wrong input is refused in one sentence.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sketched_formula import every_device, gaussian, relative_error, unit_columns

from theory.regularizer import FullTarget, LambdaReg, LambdaTarget, SpectrumTracker, attach_target

EPSILON = {torch.float32: 2.0**-23, torch.float64: 2.0**-52}


def assert_feasible(eigenvalues: torch.Tensor, kappa: float, epsilon: float) -> None:
    """Trace D and condition ≤ κ, to a few roundings."""
    values = eigenvalues.detach().double()
    assert bool((values > 0).all())
    assert float((values.mean(-1) - 1).abs().max()) < 8 * epsilon
    assert float((values.amax(-1) / values.amin(-1)).max()) < kappa * (1 + 16 * epsilon)


# Claims 1 to 3


@given(
    dim=st.integers(1, 64),
    kappa=st.floats(1.0, 1e6),
    spread=st.sampled_from([1e-3, 1.0, 30.0, 1e6, 1e30]),
    seed=st.integers(0, 2**31),
    double=st.booleans(),
)
def test_feasible_at_every_read(dim: int, kappa: float, spread: float, seed: int, double: bool) -> None:
    """Mutation: read the logits without clamping them."""
    target = LambdaTarget(dim, kappa)
    target = target.double() if double else target
    with torch.no_grad():
        target.logits.copy_(spread * gaussian(dim, seed=seed))
    before = target.variances()
    assert_feasible(before, kappa, EPSILON[before.dtype])
    target.clip_()
    assert float(target.logits.abs().max()) <= 0.5 * math.log(kappa) * (1 + EPSILON[before.dtype])
    assert torch.equal(target.variances(), before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kappa", [1.0, 1.7, 2.0, 9.379])
def test_feasible_in_low_precision(dtype: torch.dtype, kappa: float) -> None:
    """The bound itself must not be rounded upwards."""
    target = LambdaTarget(6, kappa).to(dtype)
    with torch.no_grad():
        target.logits.copy_(torch.tensor([-9.0, 9.0, 9.0, 0.1, -0.1, 9.0]))
    for _ in range(2):
        assert target.variances().dtype == torch.float32
        assert_feasible(target.variances(), kappa, EPSILON[torch.float32])
        target.clip_()


@given(dim=st.integers(2, 40), kappa=st.floats(1.0, 1e4))
def test_both_extremes_are_reached(dim: int, kappa: float) -> None:
    """T3's bounds on a single variance. Mutation: a box of half the width (¼ ln κ)."""
    for sign in (1.0, -1.0):
        target = LambdaTarget(dim, kappa).double()
        with torch.no_grad():
            target.logits.fill_(-sign * 100.0)[0] = sign * 100.0
        extreme = dim * kappa / (kappa + dim - 1) if sign > 0 else dim / (1 + (dim - 1) * kappa)
        assert float(target.variances()[0].detach()) == pytest.approx(extreme, rel=1e-12)


@given(kappa=st.floats(1.01, 100.0), start=st.floats(-5.0, 5.0), pull=st.sampled_from([-1.0, 1.0]))
def test_descent_leads_back_into_the_box(kappa: float, start: float, pull: float) -> None:
    """Mutation: ``torch.clamp``, whose gradient vanishes outside; or a straight-through gradient."""
    target = LambdaTarget(2, kappa).double()
    bound = 0.5 * math.log(kappa)
    with torch.no_grad():
        target.logits[0] = start * bound
    (pull * target.variances()[0]).backward()
    assert target.logits.grad is not None
    gradient = float(target.logits.grad[0])
    if abs(start) <= 1:
        assert math.copysign(1.0, gradient) == pull
    else:
        leads_back = (start > 0) == (pull > 0)
        assert (gradient != 0) == leads_back
        assert gradient * start >= 0


def test_gradient_inside_the_box() -> None:
    logits = gaussian(2, 5).mul(0.1).requires_grad_()
    target = LambdaTarget(5, 4.0, (2,)).double()

    def variances(alpha: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(target, {"logits": alpha}, (), {})

    target.forward = target.variances  # type: ignore[method-assign]
    assert torch.autograd.gradcheck(variances, logits)


def test_kappa_per_member_of_a_stack() -> None:
    kappas = torch.tensor([[1.0], [2.0], [8.0]])
    target = LambdaTarget(4, kappas, batch_shape=(3, 2)).double()
    with torch.no_grad():
        target.logits.copy_(1e3 * gaussian(3, 2, 4))
    condition = target.variances().amax(-1) / target.variances().amin(-1)
    torch.testing.assert_close(condition, kappas.double().expand(3, 2))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_nothing_moves_at_kappa_one(optimizer: Any) -> None:
    module = LambdaReg(3, 1.0, 16)
    steps = optimizer(module.parameters(), lr=1.0)
    for seed in range(5):
        steps.zero_grad()
        module(gaussian(30, 3, seed=seed) * torch.tensor([0.1, 1.0, 5.0])).backward()
        steps.step()
    assert not module.target.logits.any()
    assert torch.equal(module.target.variances(), torch.ones(3))


def test_a_kappa_one_checkpoint_loads_into_a_larger_kappa() -> None:
    isotropic, anisotropic = LambdaReg(3, 1.0, 16), LambdaReg(3, 4.0, 16)
    anisotropic.load_state_dict(isotropic.state_dict())
    assert anisotropic.target.kappa == 4.0
    with torch.no_grad():
        anisotropic.target.logits.copy_(torch.tensor([9.0, -9.0, 0.0]))
    variances = anisotropic.target.variances()
    assert float(variances.max() / variances.min()) == pytest.approx(4.0, rel=1e-5)


# Claim 4


def fit_target(module: LambdaReg, z: torch.Tensor, steps: int = 150, rate: float = 0.05) -> list[float]:
    """Train the target alone on fixed features; the loss per step on a fixed set of slices."""
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    attach_target(optimizer, module.target)
    slices = unit_columns(z.shape[-1], 64, seed=11, dtype=z.dtype)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = module(z, slices=slices)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@every_device
def test_the_symmetric_start_is_left(device: str) -> None:
    z = (gaussian(400, 3, dtype=torch.float32) * torch.tensor([1.6, 1.0, 0.5]).sqrt()).to(device)
    module = LambdaReg(3, 10.0, 64).to(device)
    losses = fit_target(module, z)
    measured = z.var(0) / z.var(0).mean()
    assert losses[-1] < 0.2 * losses[0]
    assert relative_error(module.target.variances(), measured) < 0.1


# Claim 5


@given(
    dim=st.integers(1, 12),
    kappa=st.floats(1.0, 1e4),
    spread=st.sampled_from([1e-2, 1.0, 1e3]),
    seed=st.integers(0, 2**31),
)
def test_full_target_is_feasible(dim: int, kappa: float, spread: float, seed: int) -> None:
    """Mutation: R Λ R instead of R Λ Rᵀ."""
    target = FullTarget(dim, kappa).double()
    with torch.no_grad():
        for index, parameter in enumerate(target.parameters()):
            parameter.copy_(spread * gaussian(*parameter.shape, seed=seed + index))
    covariance = target.covariance().detach()
    torch.testing.assert_close(covariance, covariance.mT, rtol=0, atol=1e-9)
    assert_feasible(torch.linalg.eigvalsh(covariance), kappa, 1e-10)
    whitening = target.whitening().detach()
    torch.testing.assert_close(
        whitening @ covariance @ whitening, torch.eye(dim, dtype=torch.float64), rtol=0, atol=1e-8
    )


def test_full_target_without_rotation_is_the_diagonal_one() -> None:
    z, slices = gaussian(2, 4, 30, 3), unit_columns(3, 20)
    full = LambdaReg(3, 4.0, 20, batch_shape=(2,), target=FullTarget(3, 4.0, (2,))).double()
    diagonal = LambdaReg(3, 4.0, 20, batch_shape=(2,)).double()
    for module in (full, diagonal):
        with torch.no_grad():
            module.target.logits.copy_(0.3 * gaussian(2, 3))
        module(z, slices=slices).backward()
    torch.testing.assert_close(full(z, slices=slices), diagonal(z, slices=slices))
    torch.testing.assert_close(full.target.logits.grad, diagonal.target.logits.grad)


def test_full_target_at_kappa_one_is_the_identity_whatever_its_rotation() -> None:
    target = FullTarget(4, 1.0).double()
    with torch.no_grad():
        for parameter in target.parameters():
            parameter.copy_(gaussian(*parameter.shape))
    torch.testing.assert_close(target.covariance(), torch.eye(4, dtype=torch.float64))


def test_full_target_fits_what_a_diagonal_one_cannot() -> None:
    """Correlated features of equal variances: nothing to gain for a diagonal target, everything for a full one."""
    mixing = torch.tensor([[1.0, 1.0], [1.0, -1.0]]) / math.sqrt(2)
    z = gaussian(400, 2, dtype=torch.float32) * torch.tensor([1.6, 0.4]).sqrt() @ mixing
    wanted = torch.cov(z.mT) / torch.cov(z.mT).trace() * 2
    full = LambdaReg(2, 10.0, 64, target=FullTarget(2, 10.0))
    # Off the stationary point: a rotation only matters once the variances have parted.
    with torch.no_grad():
        full.target.logits.copy_(torch.tensor([0.1, -0.1]))
    losses = fit_target(full, z, steps=300)
    diagonal = fit_target(LambdaReg(2, 10.0, 64), z, steps=300)
    assert losses[-1] < 0.2 * diagonal[-1]
    assert relative_error(full.target.covariance(), wanted) < 0.1


# Claim 6


def test_attach_target_moves_the_logits_into_a_group_of_their_own() -> None:
    model = torch.nn.ModuleDict({"encoder": torch.nn.Linear(3, 2), "regularizer": LambdaReg(2, 2.0, 8)})
    logits = model["regularizer"].target.logits
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    handle = attach_target(optimizer, model, lr_multiplier=10.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 1]
    assert optimizer.param_groups[1]["params"][0] is logits
    assert optimizer.param_groups[1]["weight_decay"] == 0.0
    for _ in range(4):
        rates = [group["lr"] for group in optimizer.param_groups]
        assert rates[1] == pytest.approx(10 * rates[0])
        logits.grad = torch.tensor([1e3, -1e3])
        optimizer.step()
        schedule.step()
    bound = 0.5 * math.log(2.0)
    assert 0 < logits[1].item() < bound
    optimizer.param_groups[1]["lr"] = 10.0
    optimizer.step()
    torch.testing.assert_close(logits.detach(), torch.tensor([-bound, bound]))
    handle.remove()
    optimizer.step()
    assert float(logits.detach().abs().max()) > 1.0


def test_weight_decay_does_not_pull_the_target_to_the_identity() -> None:
    module = LambdaReg(2, 4.0, 8)
    with torch.no_grad():
        module.target.logits.copy_(torch.tensor([0.5, -0.5]))
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=0.1, weight_decay=0.5)
    attach_target(optimizer, module)
    module.target.logits.grad = torch.zeros(2)
    for _ in range(20):
        optimizer.step()
    assert torch.equal(module.target.logits.detach(), torch.tensor([0.5, -0.5]))


def test_attach_target_moves_a_full_target_and_keeps_optimizer_state() -> None:
    module = LambdaReg(3, 4.0, 8, target=FullTarget(3, 4.0))
    encoder = torch.nn.Linear(3, 3)
    optimizer = torch.optim.Adam([*encoder.parameters(), *module.parameters()], lr=0.1)
    module(encoder(gaussian(20, 3, dtype=torch.float32))).backward()
    optimizer.step()
    attach_target(optimizer, module)
    assert len(optimizer.param_groups[1]["params"]) == len(list(module.target.parameters())) == 2
    copied = copy.deepcopy(optimizer.state_dict())
    assert len(copied["state"]) == 4
    optimizer.load_state_dict(copied)


# Claim 7


@every_device
def test_tracker_is_the_running_covariance(device: str) -> None:
    batches = [gaussian(4, 25, 3, seed=seed) * (1 + seed) + seed for seed in range(3)]
    tracker = SpectrumTracker(3, momentum=0.3).to(device)
    tracker = tracker.double() if device != "mps" else tracker
    for batch in batches:
        tracker.update(batch.to(device, tracker.mean.dtype))
    weights = np.array([0.7**2, 0.7, 1.0])
    rows = [batch.reshape(-1, 3).numpy() for batch in batches]
    average = np.average([row.mean(0) for row in rows], axis=0, weights=weights)
    second = np.average([row.T @ row / len(row) for row in rows], axis=0, weights=weights)
    want = second - np.outer(average, average)
    np.testing.assert_allclose(tracker.covariance().cpu().numpy(), want, rtol=1e-4)
    np.testing.assert_allclose(tracker.spectrum().features, np.linalg.eigvalsh(want)[::-1], rtol=1e-4)


@pytest.mark.parametrize("full", [False, True])
def test_spectra_of_features_that_fit_their_target(full: bool) -> None:
    target = FullTarget(4, 8.0).double() if full else LambdaTarget(4, 8.0).double()
    with torch.no_grad():
        for index, parameter in enumerate(target.parameters()):
            parameter.copy_(gaussian(*parameter.shape, seed=index))
    rows = torch.linalg.qr(gaussian(400, 4) - gaussian(400, 4).mean(0)).Q * 20
    rows = torch.linalg.qr(rows - rows.mean(0)).Q * 20
    z = rows @ torch.linalg.cholesky(target.covariance().detach()).mT
    tracker = SpectrumTracker(4, momentum=1.0).double()
    tracker.update(z)
    spectrum = tracker.spectrum(target)
    np.testing.assert_allclose(spectrum.features, spectrum.target, rtol=1e-9)
    np.testing.assert_allclose(spectrum.standardized, np.ones(4), rtol=1e-9)
    summary = spectrum.summary()
    assert summary["standardized/condition"] == pytest.approx(1.0)
    assert summary["standardized/effective_rank"] == pytest.approx(4.0)
    assert summary["standardized/num_high"] == 0
    assert summary["target/trace"] == pytest.approx(4.0)
    assert summary["target/condition"] == pytest.approx(spectrum.target[0] / spectrum.target[-1])
    assert summary["target/num_high"] == (spectrum.target > 1).sum()


def test_a_collapsed_spectrum_has_rank_one() -> None:
    tracker = SpectrumTracker(3, momentum=1.0).double()
    tracker.update(torch.outer(gaussian(50)[:, None].flatten(), torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)))
    summary = tracker.spectrum().summary()
    assert summary["features/effective_rank"] == pytest.approx(1.0, abs=1e-6)
    assert summary["features/condition"] > 1e9
    assert not SpectrumTracker(3).state_dict()


# Claim 8

REFUSED: list[tuple[str, Any]] = [
    ("dim", lambda: LambdaTarget(0, 2.0)),
    ("kappa", lambda: LambdaTarget(2, 0.5)),
    ("kappa", lambda: LambdaTarget(2, float("nan"))),
    ("kappa", lambda: LambdaReg(2, float("inf"))),
    ("kappa", lambda: LambdaTarget(2, [1.0, 2.0], batch_shape=(3,))),
    ("kappa", lambda: FullTarget(2, 0.0)),
    ("momentum", lambda: SpectrumTracker(2, 0.0)),
    ("z", lambda: SpectrumTracker(2).update(torch.ones(3, 4))),
    ("module", lambda: attach_target(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1), torch.nn.Linear(1, 1))),
    (
        "lr_multiplier",
        lambda: attach_target(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1), LambdaReg(2), lr_multiplier=0),
    ),
]


@pytest.mark.parametrize(("name", "call"), REFUSED, ids=[f"{name}-{index}" for index, (name, _) in enumerate(REFUSED)])
def test_refuses(name: str, call: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must [^\n]*\.$"):
        call()


def test_an_empty_tracker_says_so() -> None:
    with pytest.raises(ValueError, match="has seen no features yet"):
        SpectrumTracker(2).spectrum()


@pytest.mark.parametrize("kappa", ["2", None, True, 2 + 1j, float("nan"), float("inf"), 0.5, 1e31, [2.0, "x"]])
def test_kappa_must_be_a_real_number_that_float32_can_hold(kappa: object) -> None:
    with pytest.raises(ValueError, match="kappa must be"):
        LambdaTarget(4, kappa)  # type: ignore[arg-type]


def test_largest_kappa_stays_finite_and_feasible() -> None:
    target = LambdaTarget(5, 1e30)
    with torch.no_grad():
        target.logits.copy_(torch.tensor([1e3, -1e3, 0.0, 5.0, -5.0]))
    variances = target.variances()
    assert torch.isfinite(variances).all()
    assert (variances > 0).all()
    assert float(variances.sum()) == pytest.approx(5, rel=1e-6)


@pytest.mark.parametrize("dim", [0, -1, 2.5, True, "2", None])
def test_dim_must_be_a_whole_number(dim: object) -> None:
    with pytest.raises(ValueError, match="dim must be"):
        LambdaTarget(dim, 2.0)  # type: ignore[arg-type]
