"""The target's place in an optimiser: its own parameter group, no weight decay, clipped after each update."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from theory.regularizer.target import LambdaTarget


def attach_target(
    optimizer: torch.optim.Optimizer, module: nn.Module, *, lr_multiplier: float = 1.0
) -> RemovableHandle:
    """Give the targets inside ``module`` a parameter group with zero weight decay, and clip them after every step.

    The group's learning rate is ``lr_multiplier`` times that of the optimiser's first group. Logits that are already
    in another group (because they were part of ``model.parameters()``) are moved. Call it before a learning-rate
    scheduler is made, so that the scheduler sees the group and gives it the same schedule.

    Returns
    -------
    RemovableHandle
        Its ``remove()`` takes the clipping off the optimiser again.

    References
    ----------
    AnisoWM (arXiv 2609.37441), Table 3: zero weight decay, same schedule, clipped after each update.
    """
    if not lr_multiplier > 0:
        raise ValueError(f"lr_multiplier must be positive, but it is {lr_multiplier}.")
    targets = [child for child in module.modules() if isinstance(child, LambdaTarget)]
    if not targets:
        raise ValueError("module must contain a target covariance, but it has none.")
    parameters = [parameter for target in targets for parameter in target.parameters()]
    ids = {id(parameter) for parameter in parameters}
    for group in optimizer.param_groups:
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in ids]
    learning_rate = float(optimizer.param_groups[0]["lr"]) * lr_multiplier
    optimizer.add_param_group({"params": parameters, "lr": learning_rate, "weight_decay": 0.0})

    def clip(*_: Any) -> None:
        for target in targets:
            target.clip_()

    return optimizer.register_step_post_hook(clip)
