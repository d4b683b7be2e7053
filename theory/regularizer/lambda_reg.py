"""ΛReg: SIGReg's statistic after the features were standardised by a learnable target covariance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from theory.regularizer.distributed import AverageGradient
from theory.regularizer.sigreg import SIGReg
from theory.regularizer.target import FullTarget, LambdaTarget


class LambdaReg(SIGReg):
    """ΛReg: R(Λ^{−1/2} z), R the statistic of :class:`SIGReg` and Λ the learnable target of :class:`LambdaTarget`.

    Standardisation happens inside the regulariser only: prediction and planning keep the raw z. κ = 1 is SIGReg.

    Parameters
    ----------
    dim
        D, the latent dimension.
    kappa
        Bound κ ≥ 1 on the target's condition number; a number, or values that broadcast to ``batch_shape``.
    num_slices, knots, t_max
        As in :class:`SIGReg`.
    batch_shape
        Leading shape of a stack of networks, each with a target of its own; features are then
        ``(*batch_shape, ..., N, D)``.
    target
        A target to use instead of a new :class:`LambdaTarget`, such as a :class:`FullTarget`.
    **options
        ``seed``, ``distributed``, ``process_group`` as in :class:`SIGReg`.

    Attributes
    ----------
    target
        The target covariance. Give it a parameter group of its own with :func:`~theory.regularizer.attach_target`.

    Raises
    ------
    ValueError
        For κ < 1 or infinite, and for features whose shape does not fit ``dim`` and ``batch_shape``.

    References
    ----------
    AnisoWM (arXiv 2609.37441), Section 4.2; docs/theory.md, T3.
    """

    def __init__(
        self,
        dim: int,
        kappa: float | Sequence[float] | Tensor = 2.0,
        num_slices: int = 1024,
        knots: int | Sequence[float] | Tensor = 17,
        t_max: float = 3.0,
        batch_shape: tuple[int, ...] = (),
        *,
        target: LambdaTarget | FullTarget | None = None,
        **options: Any,
    ) -> None:
        super().__init__(num_slices, knots, t_max, **options)
        self.target = LambdaTarget(dim, kappa, batch_shape) if target is None else target
        if self.target.dim != dim or self.target.batch_shape != tuple(batch_shape):
            raise ValueError(
                f"target must have dim {dim} and batch_shape {tuple(batch_shape)}, but it has {self.target.dim} and "
                f"{self.target.batch_shape}."
            )

    def _check_features(self, z: Tensor) -> None:
        super()._check_features(z)
        batch_shape, dim = self.target.batch_shape, self.target.dim
        if z.ndim < len(batch_shape) + 2 or z.shape[: len(batch_shape)] != batch_shape or z.shape[-1] != dim:
            expected = ", ".join([*map(str, batch_shape), "...", "N", str(dim)])
            raise ValueError(f"z must have shape ({expected}), but its shape is {tuple(z.shape)}.")

    def _standardize(self, features: Tensor) -> Tensor:
        whitening = self.target.whitening().to(features.dtype)
        group = self._group()
        if group is not None:
            whitening = AverageGradient.apply(whitening, group)
        return self.target.standardize(features, whitening)
