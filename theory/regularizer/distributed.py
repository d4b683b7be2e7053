"""Several processes: one statistic over the global batch, the same slices everywhere.

Averaging the gradients of the processes, as DistributedDataParallel does, then gives the gradient of one process on the
concatenated batch. Local batches may differ in size. All collectives run on the group found at call time.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from theory.regularizer.kernel import Reduce


def current_group(group: dist.ProcessGroup | None = None) -> dist.ProcessGroup | None:
    """The group to reduce over: ``group``, else the default group; ``None`` where this process works alone."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    group = group if group is not None else dist.group.WORLD
    return group if group is not None and dist.get_world_size(group) > 1 else None


def share_slices(slices: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The slices of the group's first process, on every process."""
    slices = slices.contiguous().clone()
    dist.broadcast(slices, src=dist.get_global_rank(group, 0), group=group)
    return slices


def moment_reduction(group: dist.ProcessGroup) -> Reduce:
    """Sum moments and sample counts over the group, in one collective."""

    def reduce(moments: Tensor, samples: int) -> tuple[Tensor, int]:
        packed = torch.cat([moments.reshape(-1), moments.new_tensor([samples])])
        dist.all_reduce(packed, group=group)
        moments.copy_(packed[:-1].view_as(moments))
        return packed[-1], dist.get_world_size(group)

    return reduce


class AverageGradient(torch.autograd.Function):
    """Identity, whose gradient is averaged over the group.

    For parameters that every process holds but that may lie outside the module whose gradients are averaged: the
    target's logits stay equal on all processes, and averaging them once more changes nothing.
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor, group: dist.ProcessGroup) -> Tensor:
        """Return ``value``."""
        ctx.group = group
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        """Mean of the gradient over the group."""
        gradient = grad_outputs[0].contiguous().clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient / dist.get_world_size(ctx.group), None
