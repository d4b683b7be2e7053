"""ΛReg: SIGReg's statistic after the features were standardised by a learnable target covariance."""

from __future__ import annotations

import torch
from torch import Tensor

from theory.regularizer.sigreg import Reduction, SIGReg
from theory.regularizer.target import LambdaTarget


class LambdaReg(SIGReg):
    """ΛReg: R(Λ^{−1/2} z), R the statistic of :class:`SIGReg` and Λ the learnable target of :class:`LambdaTarget`.

    Standardisation happens inside the regulariser only: prediction and planning keep the raw z. κ = 1 is SIGReg.

    Parameters
    ----------
    dim
        D, the latent dimension.
    kappa
        Bound κ ≥ 1 on the target's condition number; broadcasts to ``batch_shape``.
    num_slices, knots, t_max, seed
        As in :class:`SIGReg`.
    batch_shape
        Leading shape of a stack of networks, each with a target of its own.

    Attributes
    ----------
    target
        The target covariance.

    References
    ----------
    AnisoWM (arXiv 2609.37441), Section 4.2.
    """

    def __init__(
        self,
        dim: int,
        kappa: float | Tensor = 2.0,
        num_slices: int = 1024,
        knots: int = 17,
        t_max: float = 3.0,
        batch_shape: tuple[int, ...] = (),
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(num_slices, knots, t_max, seed=seed)
        self.target = LambdaTarget(dim, kappa, batch_shape)

    def forward(
        self,
        z: Tensor,
        *,
        slices: Tensor | None = None,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> Tensor:
        """Statistic of Λ^{−1/2} z for features z ``(*batch_shape, ..., N, D)``."""
        dtype = torch.promote_types(z.dtype, torch.float32)
        return super().forward(self.target.whiten(z.to(dtype)), slices=slices, generator=generator, reduction=reduction)
