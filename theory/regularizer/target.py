"""ΛReg's learnable target covariance: a fixed trace and a bounded condition number, feasible at every read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from theory.spd import check_count

#: Largest bound κ. At it e^α reaches 1e±15; far beyond, float32 variances under- and overflow.
LARGEST_KAPPA = 1e30


class _ClampIntoBox(torch.autograd.Function):
    """Clamp α to [−b, b]; outside the box keep only the gradient whose descent step leads back into it.

    ``torch.clamp`` gives a logit outside its bounds no gradient at all, so one that an optimiser pushed out would
    stay there; passing every gradient would let it run away. For b = 0 nothing may move.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, bound: Tensor) -> Tensor:
        """Clamped logits."""
        ctx.save_for_backward(logits, bound)
        return torch.minimum(torch.maximum(logits, -bound), bound)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        """Gradient, zeroed where descent would lead further out or the box is a point."""
        logits, bound = ctx.saved_tensors
        (grad,) = grad_outputs
        outward = ((logits > bound) & (grad < 0)) | ((logits < -bound) & (grad > 0)) | (bound <= 0)
        return grad.masked_fill(outward, 0.0), None


def _bounds(kappa: float | Sequence[float] | Tensor) -> Tensor:
    """κ as a float64 tensor on the CPU; ``ValueError`` if it is no real number in [1, 1e30]."""
    try:
        bounds = torch.as_tensor(kappa).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"kappa must be a number or numbers, but it is {kappa!r}.") from None
    if bounds.dtype == torch.bool or bounds.is_complex():
        raise ValueError(f"kappa must be real, but its dtype is {bounds.dtype}.")
    # From Python numbers again: a detour through float32 would round them.
    bounds = bounds.double() if isinstance(kappa, Tensor) else torch.as_tensor(kappa, dtype=torch.float64)
    if not torch.isfinite(bounds).all() or (bounds < 1).any():
        raise ValueError("kappa must be finite and at least 1.")
    if (bounds > LARGEST_KAPPA).any():
        raise ValueError(f"kappa must be at most {LARGEST_KAPPA:g}: variances of that ratio leave float32.")
    return bounds


class LambdaTarget(nn.Module):
    """Diagonal target covariance Λ = diag(v) with tr Λ = D and max v / min v ≤ κ.

        v_i = D e^{α_i} / Σ_j e^{α_j},    α_i ∈ [−½ ln κ, ½ ln κ].

    Both constraints hold at every read, whatever an optimiser did to the logits. At κ = 1 the target is the identity
    and the logits get no gradient.

    Parameters
    ----------
    dim
        D, the latent dimension.
    kappa
        Bound κ ≥ 1 on the condition number; a number, or values that broadcast to ``batch_shape``.
    batch_shape
        Shape of a stack of independent targets.

    Attributes
    ----------
    logits
        α, a parameter of shape ``(*batch_shape, D)``, initially zero.
    kappa
        κ as a float64 tensor of shape ``batch_shape``. It is configuration, not state: it is not in the state dict,
        so a κ = 1 checkpoint loads into a κ > 1 module and stays κ > 1.

    Raises
    ------
    ValueError
        If a bound is below 1 or not finite, or does not broadcast to ``batch_shape``.

    References
    ----------
    AnisoWM (arXiv 2609.37441), Section 4.2; docs/theory.md, T3.
    """

    def __init__(self, dim: int, kappa: float | Sequence[float] | Tensor, batch_shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        dim = check_count(dim, "dim")
        batch_shape = tuple(check_count(size, "batch_shape") for size in batch_shape)
        bounds = _bounds(kappa)
        try:
            self.kappa = bounds.expand(batch_shape).clone()
        except RuntimeError:
            raise ValueError(
                f"kappa must broadcast to batch_shape {tuple(batch_shape)}, but its shape is {tuple(bounds.shape)}."
            ) from None
        self.dim = dim
        self.batch_shape = batch_shape
        self.logits = nn.Parameter(torch.zeros(*batch_shape, dim))

    def _bound(self, dtype: torch.dtype) -> Tensor:
        # From float64 at every use: a buffer would be rounded, perhaps upwards, by ``module.to(torch.bfloat16)``.
        return (0.5 * self.kappa.log()).unsqueeze(-1).to(dtype).to(self.logits.device)

    def variances(self) -> Tensor:
        """Target variances v, ``(*batch_shape, D)``, in float32 or better."""
        dtype = torch.promote_types(self.logits.dtype, torch.float32)
        weights = _ClampIntoBox.apply(self.logits.to(dtype), self._bound(dtype)).exp()
        # Dividing by the mean makes κ = 1 exactly the identity; D·softmax would round.
        return weights / weights.mean(dim=-1, keepdim=True)

    @torch.no_grad()
    def clip_(self) -> LambdaTarget:
        """Clip the logits to [−½ ln κ, ½ ln κ] in place; to be called after each update."""
        bound = self._bound(self.logits.dtype)
        self.logits.copy_(torch.minimum(torch.maximum(self.logits, -bound), bound))
        return self

    def covariance(self) -> Tensor:
        """Λ, ``(*batch_shape, D, D)``."""
        return torch.diag_embed(self.variances())

    def whitening(self) -> Tensor:
        """Diagonal of Λ^{−1/2}, ``(*batch_shape, D)``."""
        return self.variances().rsqrt()

    def standardize(self, features: Tensor, whitening: Tensor | None = None) -> Tensor:
        """Λ^{−1/2} z for features ``(*batch_shape, ..., N, D)``; ``whitening`` saves computing it again."""
        whitening = self.whitening() if whitening is None else whitening
        between = (1,) * (features.ndim - whitening.ndim)
        return features * whitening.reshape(*self.batch_shape, *between, self.dim)

    def extra_repr(self) -> str:
        """Configuration."""
        kappa = self.kappa.item() if self.kappa.ndim == 0 else f"tensor of shape {tuple(self.kappa.shape)}"
        return f"dim={self.dim}, kappa={kappa}, batch_shape={self.batch_shape}"


class FullTarget(LambdaTarget):
    """Full target covariance A = R diag(v) Rᵀ under the same bounds: tr A = D, λmax(A)/λmin(A) ≤ κ.

    v is parametrised as in :class:`LambdaTarget`; R is orthogonal, by PyTorch's matrix-exponential parametrisation, and
    starts at the identity. It answers whether a diagonal target is enough. Features are standardised by the symmetric
    root A^{−1/2} = R diag(v^{−1/2}) Rᵀ, so κ = 1 is the identity whatever R is.

    At α = 0 the covariance does not depend on R, so R moves only after the variances have parted.

    Attributes
    ----------
    rotation
        R, ``(*batch_shape, D, D)``; its free parameters are optimised with the logits.
    """

    def __init__(self, dim: int, kappa: float | Sequence[float] | Tensor, batch_shape: tuple[int, ...] = ()) -> None:
        super().__init__(dim, kappa, batch_shape)
        self.rotation = nn.Parameter(torch.eye(dim).expand(*batch_shape, dim, dim).clone())
        parametrizations.orthogonal(self, "rotation", orthogonal_map="matrix_exp")

    def _rotated(self, eigenvalues: Tensor) -> Tensor:
        rotation = self.rotation.to(eigenvalues.dtype)
        return (rotation * eigenvalues.unsqueeze(-2)) @ rotation.mT

    def covariance(self) -> Tensor:
        """A, ``(*batch_shape, D, D)``."""
        return self._rotated(self.variances())

    def whitening(self) -> Tensor:
        """A^{−1/2}, ``(*batch_shape, D, D)``."""
        return self._rotated(self.variances().rsqrt())

    def standardize(self, features: Tensor, whitening: Tensor | None = None) -> Tensor:
        """A^{−1/2} z for features ``(*batch_shape, ..., N, D)``; ``whitening`` saves computing it again."""
        whitening = self.whitening() if whitening is None else whitening
        between = (1,) * (features.ndim - whitening.ndim)
        return features @ whitening.reshape(*self.batch_shape, *between, self.dim, self.dim)
