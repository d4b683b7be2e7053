"""Many small networks as one: each layer holds the weights of S networks and applies them in one batched product."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

#: Width of the two hidden layers.
HIDDEN = 64

#: Factor on the start of W₃: networks start near their linear path. Without that path about a third of the toy's runs
#: fold the plane.
LAST_SCALE = 0.01


class StackedMLP(nn.Module):
    """y = x A + GELU(GELU(x W₁ + b₁) W₂ + b₂) W₃ + b₃, for S networks at once.

    x is (S, N, d_in), y is (S, N, d_out); the skip path A is (S, d_in, d_out) and W₁, W₂, W₃ are (S, d_in, H),
    (S, H, H), (S, H, d_out). No operation mixes networks: what one computes does not depend on its neighbours, except
    by the rounding of a batched product.

    Parameters
    ----------
    skip
        Start of A.
    generators
        One generator for each network, from which its weights are drawn.
    hidden
        H, or 0 for the linear path alone.
    """

    def __init__(self, skip: Tensor, generators: Sequence[torch.Generator], *, hidden: int = HIDDEN) -> None:
        super().__init__()
        size, in_features, out_features = skip.shape
        self.hidden = hidden

        def draw(rows: int, columns: int, scale: float) -> nn.Parameter:
            weights = [torch.randn(rows, columns, generator=generator) for generator in generators]
            return nn.Parameter(torch.stack(weights) * scale)

        self.skip = nn.Parameter(skip.clone())
        self.bias_out = nn.Parameter(torch.zeros(size, 1, out_features))
        if hidden:
            self.weight_in = draw(in_features, hidden, 1 / math.sqrt(in_features))
            # Hidden units bend at different places, spread like the preactivations of the data.
            self.bias_in = draw(1, hidden, 1.0)
            self.weight_mid = draw(hidden, hidden, 1 / math.sqrt(hidden))
            self.bias_mid = nn.Parameter(torch.zeros(size, 1, hidden))
            self.weight_out = draw(hidden, out_features, LAST_SCALE / math.sqrt(hidden))

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs (S, N, d_in) to outputs (S, N, d_out)."""
        outputs = torch.baddbmm(self.bias_out, inputs, self.skip)
        if not self.hidden:
            return outputs
        features = functional.gelu(torch.baddbmm(self.bias_in, inputs, self.weight_in))
        features = functional.gelu(torch.baddbmm(self.bias_mid, features, self.weight_mid))
        return torch.baddbmm(outputs, features, self.weight_out)

    @torch.no_grad()
    def select(self, position: int) -> StackedMLP:
        """Network ``position`` as a stack of one, a copy that is not trained."""
        network = StackedMLP(self.skip[position : position + 1], [torch.Generator()], hidden=self.hidden).to(self.skip)
        network.load_state_dict({name: value[position : position + 1] for name, value in self.state_dict().items()})
        return network.requires_grad_(False)
