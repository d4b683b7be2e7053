"""The fused kernel against the formula written out.

1. Value and gradient are the formula's, for any leading shape, batch, dimension, slices and number of knots.
2. In float32 and up to 65 knots the value is within 1e-6 and the gradient within 1e-5 of float64, for feature scales
   1e-3 to 10; at 1e2, where projections themselves have lost digits, within 1.5 times the plain float32 formula.
3. Blocks are a matter of speed only: any block size gives the same result.
4. Non-uniform knots are possible; equally spaced knots, given as a list, are the number of knots.
5. First and second derivatives pass gradcheck and gradgradcheck; transformations that would need more are refused.
6. Several threads share the work and change nothing but rounding; for a number of threads the result is reproducible,
   PyTorch's own number of threads stays what it was, and errors come through.
7. Nothing that carries the knots is kept for the backward pass, and no operation makes anything that large.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sketched_formula import (
    every_device,
    gaussian,
    relative_error,
    unit_columns,
    written_out,
    written_out_with_gradient,
)
from torch.utils._python_dispatch import TorchDispatchMode

from theory.regularizer import SIGReg, kernel
from theory.regularizer.harmonics import PowerBlock
from theory.regularizer.kernel import sketched_statistic
from theory.regularizer.parallel import map_threads
from theory.regularizer.quadrature import Quadrature

BLOCK_SIZES = [1, 600, 1500, 3000, 1 << 16]


def kernel_with_gradient(z: torch.Tensor, slices: torch.Tensor, rule: Quadrature) -> tuple[torch.Tensor, torch.Tensor]:
    values, gradient = sketched_statistic(z, slices, rule, gradient=True)
    assert gradient is not None
    return values, gradient


@given(
    lead=st.integers(1, 4),
    samples=st.integers(1, 40),
    dim=st.integers(1, 9),
    count=st.integers(1, 12),
    knots=st.integers(2, 65),
    exponent=st.floats(-3, 2),
    own_slices=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_value_and_gradient_are_those_of_the_formula(
    lead: int, samples: int, dim: int, count: int, knots: int, exponent: float, own_slices: bool, seed: int
) -> None:
    """Claim 1.

    Mutation: take every giant step with the first stride (``self._stride[index - 1]`` → ``self._stride[0]``).
    """
    z = gaussian(lead, samples, dim, seed=seed) * 10.0**exponent
    slices = unit_columns(*([lead] if own_slices else []), dim, count, seed=seed + 1)
    want, want_gradient = written_out_with_gradient(z, slices, knots)
    got, gradient = kernel_with_gradient(z, slices, Quadrature.build(knots, 3.0))
    # With one sample of tiny scale the gradient is a difference of nearly equal numbers.
    torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-14)
    torch.testing.assert_close(gradient, want_gradient, rtol=1e-9, atol=1e-12)


@every_device
@pytest.mark.parametrize("scale", [1e-3, 3e-3, 1e-2, 1e-1, 1.0, 3.0, 10.0, 100.0])
@pytest.mark.parametrize(
    ("knots", "shape"),
    [(knots, (6, 128, 24, 24)) for knots in (2, 9, 17, 33, 50, 65)]
    + [(knots, (2, 2048, 16, 32)) for knots in (17, 65)],
    ids=str,
)
def test_single_precision(device: str, knots: int, scale: float, shape: tuple[int, int, int, int]) -> None:
    """Claim 2. The plain formula's own error at 1e2 is computed beside it."""
    lead, samples, dim, count = shape
    z = gaussian(lead, samples, dim, seed=knots).float() * scale
    slices = unit_columns(dim, count, seed=1).float()
    want, want_gradient = written_out_with_gradient(z.double(), slices.double(), knots)
    got, gradient = kernel_with_gradient(z.to(device), slices.to(device), Quadrature.build(knots, 3.0))
    value_bound, gradient_bound = 1e-6, 1e-5
    if scale > 10:
        plain, plain_gradient = written_out_with_gradient(z.to(device), slices.to(device), knots)
        value_bound = max(value_bound, 1.5 * relative_error(plain, want))
        gradient_bound = max(gradient_bound, 1.5 * relative_error(plain_gradient, want_gradient))
    assert relative_error(got, want) < value_bound
    assert relative_error(gradient, want_gradient) < gradient_bound


def three_term(angle: torch.Tensor, orders: int) -> torch.Tensor:
    """Sines of kθ, k = 1 … orders, by the three-term rule that the kernel does not use."""
    twice, before, now = 2 * angle.cos(), torch.zeros_like(angle), angle.sin()
    rows = []
    for _ in range(orders):
        rows.append(now)
        before, now = now, twice * now - before
    return torch.stack(rows)


def test_the_recurrence_that_was_not_chosen_loses_small_angles() -> None:
    """Why powers: at small angles the three-term rule misses the bound of claim 2 and powers do not."""
    angle = gaussian(4096).float() * 1e-3
    orders = torch.arange(1, 65).double()
    want = torch.sin(orders[:, None] * angle.double())
    block = PowerBlock(1, 4096, 64, angle)
    block.load(angle.clone().unsqueeze(0))
    powers = torch.cat([block._powers[:, 0], *(block._powers[:, 0] * (1 + row[0]) for row in block._strides)])
    assert relative_error(three_term(angle, 64)[-1], want[-1]) > 1e-5
    assert relative_error(powers.imag[63], want[-1]) < 1e-6


@pytest.mark.parametrize("own_slices", [False, True])
@pytest.mark.parametrize("uniform", [True, False])
def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch, own_slices: bool, uniform: bool) -> None:
    """Claim 3."""
    z, slices = gaussian(5, 30, 4), unit_columns(*([5] if own_slices else []), 4, 50)
    rule = Quadrature.build(17 if uniform else [0.0, 0.1, 0.4, 1.0, 2.5], 3.0)
    results, shapes = [], set()
    for size in BLOCK_SIZES:
        monkeypatch.setattr(kernel, "CPU_BLOCK", size)
        shapes.add(kernel.block_shape(5, 30, 50, z.device))
        results.append(kernel_with_gradient(z, slices, rule))
    # One slice group at a time, several groups, one network, several networks, everything at once.
    assert shapes == {(1, 32), (1, 50), (2, 50), (5, 50)}
    for values, gradient in results[1:]:
        torch.testing.assert_close(values, results[0][0], rtol=1e-13, atol=0)
        torch.testing.assert_close(gradient, results[0][1], rtol=1e-12, atol=1e-15)


def test_non_uniform_knots() -> None:
    """Claim 4."""
    knots = torch.tensor([0.0, 0.05, 0.3, 0.9, 1.0, 2.0, 3.5], dtype=torch.float64)
    z, slices = gaussian(2, 25, 3), unit_columns(3, 20)
    want, want_gradient = written_out_with_gradient(z, slices, knots)
    for given_as in (knots, knots.tolist(), tuple(knots.tolist())):
        module = SIGReg(20, given_as)
        assert module.quadrature.spacing is None
        z.requires_grad_()
        values = module(z, slices=slices, reduction="none")
        (gradient,) = torch.autograd.grad(values.sum(), z)
        torch.testing.assert_close(values, want, rtol=1e-12, atol=0)
        torch.testing.assert_close(gradient, want_gradient, rtol=1e-11, atol=1e-15)
    # A first knot that is not at zero counts too.
    torch.testing.assert_close(
        SIGReg(20, knots[1:])(z, slices=slices, reduction="none"), written_out(z, slices, knots[1:]), rtol=1e-12, atol=0
    )


def test_a_list_of_equally_spaced_knots_is_their_number() -> None:
    z, slices = gaussian(2, 25, 3), unit_columns(3, 20)
    listed = SIGReg(20, [k * 0.25 for k in range(13)])
    assert listed.quadrature.spacing == 0.25
    assert torch.equal(listed(z, slices=slices), SIGReg(20, 13, 3.0)(z, slices=slices))


@pytest.mark.parametrize("knots", [2, 17, 30, [0.1, 0.4, 1.7]], ids=str)
def test_derivatives(knots: int | list[float]) -> None:
    """Claim 5. Mutation: return ``gradient`` without ``outer`` in ``backward``."""
    z, slices = gaussian(2, 3, 7, 3).requires_grad_(), unit_columns(3, 5)
    module = SIGReg(5, knots)

    def statistic(features: torch.Tensor) -> torch.Tensor:
        return module(features, slices=slices, reduction="none")

    assert statistic(z).shape == (2, 3)
    assert torch.autograd.gradcheck(statistic, z)
    assert torch.autograd.gradgradcheck(statistic, z[:1, :1].detach().requires_grad_())


def test_a_gradient_penalty_is_differentiated() -> None:
    """The second derivative where people meet it, against the formula differentiated twice."""
    z, slices = gaussian(2, 9, 3).requires_grad_(), unit_columns(3, 11)

    def penalty(values: torch.Tensor) -> torch.Tensor:
        (gradient,) = torch.autograd.grad(values.mean(), z, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), z)[0]

    want = penalty(written_out(z, slices))
    torch.testing.assert_close(penalty(SIGReg(11)(z, slices=slices, reduction="none")), want, rtol=1e-10, atol=1e-14)


def test_functional_transforms_are_refused() -> None:
    z, slices = gaussian(3, 9, 3), unit_columns(3, 11)
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda features: SIGReg(11)(features, slices=slices))(z)


@pytest.fixture
def _restore_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("_restore_threads")
@pytest.mark.parametrize("lead", [1, 2, 6, 9])
@pytest.mark.parametrize("own_slices", [False, True])
def test_threads_change_nothing_but_rounding(monkeypatch: pytest.MonkeyPatch, lead: int, own_slices: bool) -> None:
    """Claim 6: split along the leading axis, along the slices, and not evenly.

    Mutation: one gradient for all shares (``copies = 1``).
    """
    monkeypatch.setattr(kernel, "CPU_BLOCK", 400)
    z, slices = gaussian(lead, 30, 4), unit_columns(*([lead] if own_slices else []), 4, 50)
    rule = Quadrature.build(17, 3.0)
    torch.set_num_threads(1)
    want, want_gradient = kernel_with_gradient(z, slices, rule)
    shares = set()
    for threads in (2, 3):
        torch.set_num_threads(threads)
        shares.add(len(kernel.split(lead, 30, 50, z.device)))
        for inference in (False, True):
            with torch.inference_mode(inference):
                values, gradient = kernel_with_gradient(z, slices, rule)
            torch.testing.assert_close(values, want, rtol=1e-13, atol=0)
            torch.testing.assert_close(gradient, want_gradient, rtol=1e-12, atol=1e-15)
            again, gradient_again = kernel_with_gradient(z, slices, rule)
            assert torch.equal(again, values)
            assert torch.equal(gradient_again, gradient)
            assert not gradient_again.requires_grad
        assert torch.get_num_threads() == threads
    assert shares == {2, 3}


@pytest.mark.usefixtures("_restore_threads")
def test_small_work_is_not_shared() -> None:
    torch.set_num_threads(2)
    assert kernel.split(1, 8, 16, torch.device("cpu")) == [(slice(0, 1), slice(0, 16))]


@pytest.mark.usefixtures("_restore_threads")
def test_errors_of_a_thread_come_through_and_threads_keep_to_one_core() -> None:
    torch.set_num_threads(3)
    seen: list[tuple[int, bool]] = []
    map_threads(lambda item: seen.append((torch.get_num_threads(), torch.is_grad_enabled())), [0, 1, 2])
    assert seen == [(1, False)] * 3
    assert torch.get_num_threads() == 3
    with pytest.raises(ZeroDivisionError):
        map_threads(lambda item: 1 // item, [1, 0, 2])


class LargestResult(TorchDispatchMode):
    """Remembers the largest tensor that any operation returned, in elements of float32."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, list | tuple) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.untyped_storage().nbytes() / 4)
        return result


@pytest.mark.parametrize("uniform", [True, False])
def test_no_tensor_carries_the_knots(uniform: bool) -> None:
    """Claim 7: nothing is as large as samples × slices × knots, and what is kept is as large as the features."""
    samples, dim, count, knots = 256, 8, 4096, 17
    z = gaussian(1, samples, dim).float().requires_grad_()
    slices = unit_columns(dim, count).float()
    module = SIGReg(count, knots if uniform else [0.01 + k * 3 / 16 for k in range(knots)])
    kept: list[torch.Tensor] = []
    watch = LargestResult()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), watch:
        value = module(z, slices=slices)
        value.backward()
    projections = samples * count
    assert sum(tensor.numel() for tensor in kept) < projections / 4
    assert watch.largest < projections * 2

    plain = LargestResult()
    with plain:
        written_out(z, slices).mean().backward()
    assert plain.largest >= projections * knots
