"""One process of test_distributed.py: runs every variant on its share of the batch and saves what it saw.

    python distributed_worker.py RANK WORLD_SIZE FOLDER

Variants marked wrong are what public implementations do; each differs from the right one in a single line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from theory.regularizer import FullTarget, LambdaReg, SIGReg, SpectrumTracker, draw_slices

DIM, INPUTS, LEAD, SLICES = 4, 5, 2, 40
#: Samples of each process; uneven on purpose.
SHARES = (9, 14, 5, 12)

Statistic = Callable[[Tensor], Tensor]


def inputs(rank: int) -> Tensor:
    """Local inputs (lead, samples, features) of a process."""
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randn(LEAD, SHARES[rank], INPUTS, generator=generator, dtype=torch.float64)


def encoder() -> nn.Module:
    """The same on every process."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.Tanh(), nn.Linear(8, DIM)).double()


def slices(seed: int = 0) -> Tensor:
    return draw_slices(DIM, SLICES, torch.Generator().manual_seed(seed), torch.float64)


def lambda_reg(full: bool = False) -> LambdaReg:
    """ΛReg away from the symmetric point."""
    target = FullTarget(DIM, 4.0) if full else None
    module = LambdaReg(DIM, 4.0, SLICES, target=target, seed=3).double()
    with torch.no_grad():
        module.target.logits.copy_(torch.linspace(-0.3, 0.4, DIM))
    return module


def epps_pulley(z: Tensor, directions: Tensor, average: Callable[[Tensor], Tensor], scale: float) -> Tensor:
    """The statistic with the process average left open."""
    t = torch.linspace(0, 3, 17, dtype=z.dtype)
    weights = torch.full_like(t, 2 * 3 / 16)
    weights[[0, -1]] /= 2
    window = torch.exp(-(t**2) / 2)
    angles = (z @ directions)[..., None] * t
    cosine, sine = average(angles.cos().mean(-3)), average(angles.sin().mean(-3))
    error = (cosine - window) ** 2 + sine**2
    return (error @ (weights * window)).mean() * z.shape[-2] * scale


def local_only(z: Tensor) -> Tensor:
    """Wrong: the statistic of the local batch."""
    return epps_pulley(z, slices(), lambda value: value, 1)


def reduce_without_gradient(z: Tensor) -> Tensor:
    """Wrong: an in-place all-reduce that autograd does not see: its backward pass divides by the number of processes
    but does not sum over them.
    """
    world = dist.get_world_size()

    def average(value: Tensor) -> Tensor:
        dist.all_reduce(value.data)
        return value / world

    return epps_pulley(z, slices(), average, world)


def drop_the_result(z: Tensor) -> Tensor:
    """Wrong: the functional all-reduce returns its result, and it is dropped."""
    from torch.distributed.nn.functional import all_reduce

    world = dist.get_world_size()

    def average(value: Tensor) -> Tensor:
        all_reduce(value.clone())
        return value

    return epps_pulley(z, slices(), average, world)


def own_slices(z: Tensor) -> Tensor:
    """Wrong: every process projects on directions of its own before it averages."""
    from torch.distributed.nn.functional import all_reduce

    world = dist.get_world_size()
    return epps_pulley(z, slices(dist.get_rank()), lambda value: all_reduce(value) / world, world)


def train(statistic: Statistic, rank: int, even: bool = False) -> dict[str, Any]:
    """Loss and encoder gradient after DistributedDataParallel has averaged it."""
    model = DistributedDataParallel(encoder())
    x = inputs(rank)[:, : min(SHARES)] if even else inputs(rank)
    loss = statistic(model(x))
    loss.backward()
    return {"loss": loss.detach(), "encoder": [parameter.grad for parameter in model.parameters()]}


class World(nn.Module):
    """Encoder and regulariser in one module, as a training script would wrap them."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.regularizer = encoder(), lambda_reg()

    def forward(self, x: Tensor) -> Tensor:
        return self.regularizer(self.encoder(x), slices=slices())


def main(rank: int, world: int, folder: Path) -> None:
    # Made before there is a process group: it must be looked up at call time.
    sigreg, outside, full, drawn = SIGReg(SLICES), lambda_reg(), lambda_reg(full=True), lambda_reg()
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    seen: dict[str, Any] = {"sigreg": train(lambda z: sigreg(z, slices=slices()), rank)}
    for name, module in (("outside", outside), ("full", full)):
        seen[name] = train(lambda z, module=module: module(z, slices=slices()), rank)
        seen[name]["target"] = [parameter.grad for parameter in module.target.parameters()]

    inside = DistributedDataParallel(World())
    loss = inside(inputs(rank))
    loss.backward()
    seen["inside"] = {
        "loss": loss.detach(),
        "encoder": [parameter.grad for parameter in inside.module.encoder.parameters()],
        "target": [inside.module.regularizer.target.logits.grad],
    }

    # Different seeds on the processes: the first one's slices are everybody's.
    drawn.seed += rank
    seen["drawn"] = train(drawn, rank)
    seen["generator"] = train(lambda z: sigreg(z, generator=torch.Generator().manual_seed(50 + rank)), rank)
    half = [dist.new_group([first, first + 1]) for first in range(0, world, 2)]
    pairs = SIGReg(SLICES, process_group=half[rank // 2])
    seen["pairs"] = {"loss": pairs(encoder()(inputs(rank)), slices=slices()).detach()}
    alone = SIGReg(SLICES, distributed=False)
    seen["alone"] = {"loss": alone(encoder()(inputs(rank)), slices=slices()).detach()}

    z = encoder()(inputs(rank)).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(outside(z, slices=slices()), z, create_graph=False)
    seen["local rows"] = {"gradient": gradient}
    try:
        torch.autograd.grad(sigreg(z, slices=slices()), z, create_graph=True)
    except RuntimeError as error:
        seen["second derivative"] = {"message": str(error)}

    tracker = SpectrumTracker(DIM, momentum=1.0).double()
    tracker.update(z)
    seen["tracker"] = {"covariance": tracker.covariance()}

    seen["right, even"] = train(lambda z: sigreg(z, slices=slices()), rank, even=True)
    for wrong in (local_only, reduce_without_gradient, drop_the_result, own_slices):
        seen[wrong.__name__] = train(wrong, rank, even=True)
    torch.save(seen, folder / f"seen-{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
