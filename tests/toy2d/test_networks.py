"""Stacked networks.

Claims:
1. Each network of a stack computes skip path + two-hidden-layer GELU network, as written out in float64.
2. No operation mixes networks: outputs and gradients of one do not depend on the others.
3. Starts depend on a network's own generator alone, and begin near the skip path.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import erf

from toy2d.networks import StackedMLP

SIZES = st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**31))


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def stack(size: int, inputs: int, outputs: int, seed: int, hidden: int = 16) -> StackedMLP:
    """A stack whose every parameter is random and of order one, in float64."""
    network = StackedMLP(torch.zeros(size, inputs, outputs), [generator(seed)] * size, hidden=hidden).double()
    with torch.no_grad():
        for index, parameter in enumerate(network.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=generator(seed + index)))
    return network


def gelu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x * (1 + erf(x / np.sqrt(2))) / 2


@pytest.mark.parametrize("hidden", [0, 16])
@given(sizes=SIZES)
def test_forward_is_the_formula(sizes: tuple[int, int, int, int], hidden: int) -> None:
    """Claim 1.

    Mutation: leave out the second GELU, or add the skip path twice (``outputs`` → ``2 * outputs``).
    """
    size, inputs, outputs, seed = sizes
    network = stack(size, inputs, outputs, seed, hidden)
    x = torch.randn(size, 7, inputs, dtype=torch.float64, generator=generator(seed + 99))
    found = network(x).detach().numpy()
    for index in range(size):
        weights = {name: value[index].detach().numpy() for name, value in network.named_parameters()}
        expected = x[index].numpy() @ weights["skip"] + weights["bias_out"]
        if hidden:
            first = gelu(x[index].numpy() @ weights["weight_in"] + weights["bias_in"])
            expected = expected + gelu(first @ weights["weight_mid"] + weights["bias_mid"]) @ weights["weight_out"]
        np.testing.assert_allclose(found[index], expected, rtol=1e-10, atol=1e-10)


@given(SIZES)
def test_networks_do_not_mix(sizes: tuple[int, int, int, int]) -> None:
    """Claim 2: gradients of one network's output reach its own weights only, and a network alone computes the same.

    Mutation: share a bias over the stack (``self.bias_out`` → ``self.bias_out.mean(0, keepdim=True)`` in ``forward``).
    """
    size, inputs, outputs, seed = sizes
    network = stack(size, inputs, outputs, seed)
    x = torch.randn(size, 4, inputs, dtype=torch.float64, generator=generator(seed + 99))
    chosen = seed % size
    out = network(x)
    torch.testing.assert_close(network.select(chosen)(x[chosen : chosen + 1]), out[chosen : chosen + 1].detach())
    out[chosen].sum().backward()
    for parameter in network.parameters():
        assert parameter.grad is not None
        others = [index for index in range(size) if index != chosen]
        assert not parameter.grad[others].any()
    assert network.bias_out.grad is not None
    assert network.bias_out.grad[chosen].eq(4).all()


def test_selected_network_is_a_copy() -> None:
    """Claim 2: training the stack on does not move a network taken out of it."""
    network = stack(2, 2, 2, 0)
    alone = network.select(1)
    before = alone.skip.clone()
    with torch.no_grad():
        network.skip.add_(1.0)
    assert torch.equal(alone.skip, before)
    assert not any(parameter.requires_grad for parameter in alone.parameters())


@given(st.integers(0, 2**31), st.integers(1, 4))
def test_start_depends_on_the_own_generator(seed: int, neighbours: int) -> None:
    """Claim 3: a network starts the same alone and among others, close to its skip path.

    Mutation: draw all networks from the first generator (``generator=generators[0]`` in ``draw``), or start W₃ at
    full size (``LAST_SCALE = 1``).
    """
    skip = torch.randn(neighbours + 1, 3, 2, generator=generator(seed))
    many = StackedMLP(skip, [generator(seed + index) for index in range(neighbours + 1)])
    alone = StackedMLP(skip[-1:], [generator(seed + neighbours)])
    for name, value in alone.state_dict().items():
        assert torch.equal(many.state_dict()[name][-1:], value)
    x = torch.randn(1, 200, 3, generator=generator(seed + 77))
    assert float((alone(x) - x @ skip[-1:]).detach().abs().max()) < 0.2
