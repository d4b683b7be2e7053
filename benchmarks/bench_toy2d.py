"""The toy's stack against the loop a user would write: one network after another, with stable-worldmodel's SIGReg.

Both train encoder and predictor of docs/theory.md, T10, at κ = 1: batch 256, N = 512 pooled features, 32 slices, 17
knots, Adam. The stack runs as a sweep does, dealt to workers of one thread each; the loop lets PyTorch use the same
number of threads inside each operation. The two are timed in turns, so that other load on the machine meets both, and
compared round by round, per network and step.

    python benchmarks/bench_toy2d.py            # both thread counts, about two minutes
    python benchmarks/bench_toy2d.py --quick    # to see that it runs
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from toy2d.networks import StackedMLP
from toy2d.sweeps import deal, workers
from toy2d.training import BETAS, Case, TrainSettings, train

RESULTS = Path("results") / "benchmarks"
SIGMA = 0.3


class PlainMLP(nn.Module):
    """One network of the toy in ordinary layers."""

    def __init__(self, inputs: int, outputs: int, hidden: int) -> None:
        super().__init__()
        self.skip = nn.Linear(inputs, outputs, bias=False)
        self.body = nn.Sequential(
            nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.skip(x) + self.body(x)


def plain_twin(network: StackedMLP) -> PlainMLP:
    """The network of a stack of one, in ordinary layers."""
    _, inputs, outputs = network.skip.shape
    twin = PlainMLP(inputs, outputs, network.hidden)
    first, middle, last = (layer for layer in twin.body if isinstance(layer, nn.Linear))
    with torch.no_grad():
        twin.skip.weight.copy_(network.skip[0].T)
        for layer, weight, bias in (
            (first, network.weight_in, network.bias_in),
            (middle, network.weight_mid, network.bias_mid),
            (last, network.weight_out, network.bias_out),
        ):
            layer.weight.copy_(weight[0].T)
            layer.bias.copy_(bias[0, 0])
    return twin


def check_same() -> None:
    """Both sides must be the same networks: equal outputs for equal weights."""
    stack = train([Case(0, SIGMA)], TrainSettings(steps=2))
    for network, inputs in ((stack.encoder, 2), (stack.predictor, 4)):
        x = torch.randn(64, inputs)
        torch.testing.assert_close(plain_twin(network)(x), network(x[None])[0], rtol=1e-4, atol=1e-5)


def peer_regularizer(settings: TrainSettings) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from stable_worldmodel.wm.loss import SIGReg
    return SIGReg(17, settings.num_slices)


def plain_loop(cases: Sequence[Case], settings: TrainSettings, regularizer: nn.Module) -> None:
    """Train the networks one after another, as a user would."""
    for case in cases:
        torch.manual_seed(case.seed)
        system = case.system
        std, gain = torch.tensor(system.state_std), torch.tensor(system.action_gain, dtype=torch.float32)
        encoder = PlainMLP(2, settings.latent_dim, settings.hidden)
        predictor = PlainMLP(settings.latent_dim + 2, settings.latent_dim, settings.hidden)
        skips = [encoder.skip.weight, predictor.skip.weight]
        rest = [*encoder.body.parameters(), *predictor.body.parameters()]
        groups = [{"params": rest}, {"params": skips, "lr": settings.learning_rate * settings.skip_rate}]
        optimizer = torch.optim.Adam(groups, lr=settings.learning_rate, betas=BETAS)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
        for _ in range(settings.steps):
            state = torch.randn(settings.batch_size, 2) * std
            action = torch.randn(settings.batch_size, 2)
            noise = system.noise_std * torch.randn(settings.batch_size, 2)
            following = system.decay * state + action * gain + noise
            features = encoder(torch.cat((state, following)))
            current, target = features.split(settings.batch_size)
            error = (predictor(torch.cat((current, action), dim=1)) - target).square().mean()
            loss = error + settings.weight * regularizer(features[None])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


def stack_seconds(networks: int, steps: int, threads: int) -> float:
    """Seconds per network and step of the stack."""
    cases = [Case(seed, SIGMA) for seed in range(networks)]
    with workers(threads) as pool:
        start = time.perf_counter()
        list(pool.map(lambda part: train(part, TrainSettings(steps=steps)), deal(cases, threads)))
        return (time.perf_counter() - start) / (networks * steps)


def loop_seconds(steps: int, threads: int, regularizer: nn.Module) -> float:
    """Seconds per network and step of the plain loop (every network costs the same, so one is timed)."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        start = time.perf_counter()
        plain_loop([Case(0, SIGMA)], TrainSettings(steps=steps), regularizer)
        return (time.perf_counter() - start) / steps
    finally:
        torch.set_num_threads(before)


def measure(threads: int, rounds: int, networks: int, seconds: float) -> dict[str, Any]:
    """Rounds of about ``seconds`` for each side, in turns."""
    regularizer = peer_regularizer(TrainSettings())
    # The first calls pay for allocation and code paths; the second say how many steps fill the time.
    for _ in range(2):
        once = stack_seconds(networks, 2, threads), loop_seconds(3, threads, regularizer)
    steps = max(2, round(seconds / (once[0] * networks)))
    loop_steps = max(3, round(seconds / once[1]))
    stack, loop = [], []
    for _ in range(rounds):
        stack.append(stack_seconds(networks, steps, threads))
        loop.append(loop_seconds(loop_steps, threads, regularizer))
    return {"threads": threads, "networks": networks, "stack": stack, "loop": loop}


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def table(report: dict[str, Any]) -> str:
    lines = [
        f"{report['machine']}; {report['versions']}; load average {report['load']:.1f}.",
        "",
        "| threads | networks | stack, ms | plain loop, ms | ratio (quartiles) |",
        "|---:|---:|---:|---:|---:|",
    ]
    for row in report["rows"]:
        stack, loop = (1e3 * spread(row[name])[0] for name in ("stack", "loop"))
        ratio, low, high = spread([theirs / ours for theirs, ours in zip(row["loop"], row["stack"], strict=True)])
        times = f"{stack:.2f} | {loop:.2f} | **{ratio:.1f}** ({low:.1f}–{high:.1f})"
        lines.append(f"| {row['threads']} | {row['networks']} | {times} |")
    lines += ["", f"Times per network and step. Peak memory of the process: {report['peak_mib']:.0f} MiB."]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", help="thread counts (default: 1, and 2 where there are two)")
    parser.add_argument("--networks", type=int, default=70, help="networks of the stack (default 70, as in a sweep)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="tiny, to see that it runs")
    options = parser.parse_args(arguments)
    networks, rounds, seconds = (4, 2, 0.0) if options.quick else (options.networks, options.rounds, 3.0)
    cores = os.cpu_count() or 1
    check_same()
    rows = []
    for threads in options.threads or [1, *([2] if cores > 1 else [])]:
        rows.append(measure(threads, rounds, networks, seconds))
        print(f"{threads} thread(s) done", file=sys.stderr, flush=True)
    report = {
        "machine": f"{platform.system()} {platform.machine()}, {cores} cores",
        "versions": ", ".join(f"{name} {version(name)}" for name in ("torch", "stable-worldmodel")),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "rows": rows,
    }
    print(table(report))
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "toy2d.json").write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
