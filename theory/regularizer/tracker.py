"""For logs: the measured feature spectrum beside the target's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from theory.regularizer.distributed import current_group
from theory.regularizer.target import LambdaTarget

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Spectrum:
    """Variances in descending order, each (D,).

    Attributes
    ----------
    features
        Eigenvalues of the measured feature covariance C.
    target
        Eigenvalues of the target covariance A.
    standardized
        Eigenvalues of A^{−1/2} C A^{−1/2}: all equal where the regulariser has what it asks for.
    """

    features: Array
    target: Array
    standardized: Array

    def summary(self) -> dict[str, float]:
        """Numbers for a logger, for each of the three spectra.

        ``trace``; ``condition``, the largest over the smallest eigenvalue; ``effective_rank``, the exponential of the
        entropy of the normalised eigenvalues; ``num_high``, how many lie above the mean.
        """
        summary = {}
        for name in ("features", "target", "standardized"):
            values = np.clip(getattr(self, name), 0.0, None)
            total = float(values.sum())
            shares = values[values > 0] / total if total > 0 else np.ones(1)
            summary[f"{name}/trace"] = total
            summary[f"{name}/condition"] = float(values[0] / values[-1]) if values[-1] > 0 else float("inf")
            summary[f"{name}/effective_rank"] = float(np.exp(-(shares * np.log(shares)).sum()))
            summary[f"{name}/num_high"] = float((values > values.mean() * (1 + 1e-6)).sum())
        return summary


class SpectrumTracker(nn.Module):
    """Running feature covariance C, an exponential average over batches with its start-up bias removed.

        m ← (1 − β) m + β mean(z),   S ← (1 − β) S + β mean(zzᵀ),   C = S − mmᵀ after division by 1 − (1 − β)^steps.

    Parameters
    ----------
    dim
        D, the latent dimension.
    momentum
        β in (0, 1], the weight of a new batch.
    distributed, process_group
        As in :class:`~theory.regularizer.SIGReg`: average over the global batch.

    Raises
    ------
    ValueError
        For a momentum outside (0, 1], features of another dimension, and a spectrum asked for before any batch.
    """

    mean: Tensor
    second_moment: Tensor

    def __init__(
        self,
        dim: int,
        momentum: float = 0.05,
        *,
        distributed: bool = True,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        if not 0 < momentum <= 1:
            raise ValueError(f"momentum must be in (0, 1], but it is {momentum}.")
        self.dim = dim
        self.momentum = momentum
        self.distributed = distributed
        self.process_group = process_group
        self.weight = 0.0
        # For logs only: a checkpoint of the model does not need them.
        self.register_buffer("mean", torch.zeros(dim), persistent=False)
        self.register_buffer("second_moment", torch.zeros(dim, dim), persistent=False)

    @torch.no_grad()
    def update(self, z: Tensor) -> None:
        """Add a batch of features ``(..., D)``; all leading axes are pooled."""
        if z.shape[-1] != self.dim or z.numel() == 0:
            raise ValueError(f"z must have shape (..., {self.dim}), not empty, but its shape is {tuple(z.shape)}.")
        rows = z.detach().reshape(-1, self.dim).to(self.mean)
        sums = torch.cat([rows.sum(0), (rows.mT @ rows).flatten(), rows.new_tensor([len(rows)])])
        group = current_group(self.process_group) if self.distributed else None
        if group is not None:
            dist.all_reduce(sums, group=group)
        sums = sums[:-1] / sums[-1]
        self.mean.lerp_(sums[: self.dim], self.momentum)
        self.second_moment.lerp_(sums[self.dim :].view(self.dim, self.dim), self.momentum)
        self.weight += self.momentum * (1 - self.weight)

    def covariance(self) -> Tensor:
        """C, (D, D)."""
        if self.weight == 0:
            raise ValueError("The tracker has seen no features yet.")
        mean = self.mean / self.weight
        return self.second_moment / self.weight - torch.outer(mean, mean)

    @torch.no_grad()
    def spectrum(self, target: LambdaTarget | None = None) -> Spectrum:
        """Spectra of the features, of ``target`` (the identity if ``None``), and of the features standardised by it."""
        covariance = self.covariance().double().cpu()
        if target is None:
            wanted, root = torch.eye(self.dim, dtype=torch.float64), torch.eye(self.dim, dtype=torch.float64)
        else:
            wanted = target.covariance().double().cpu()
            root = target.standardize(torch.eye(self.dim).to(target.variances())).double().cpu()
        parts = (covariance, wanted, root @ covariance @ root)
        features, wanted, standardized = (torch.linalg.eigvalsh(part).flip(-1).numpy() for part in parts)
        return Spectrum(features, wanted, standardized)
