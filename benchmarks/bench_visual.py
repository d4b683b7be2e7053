"""Training step, wait for data and planning of the visual pipeline, side by side with stable-worldmodel's own parts.

    python -m benchmarks.bench_visual step                              # one training step
    python -m benchmarks.bench_visual wait --data data/tworoom/laptop   # 200 steps through Lightning
    python -m benchmarks.bench_visual solve [--checkpoint RUN]          # one solve per episode
    python -m benchmarks.bench_visual agreement --checkpoint RUN --data data/tworoom/laptop --task tworoom

Contenders take turns within every round, so that a busy machine disturbs them alike; the ratio is taken round by round
and given as median and quartiles. Times are of the process (CPU) unless ``--device`` is an accelerator, where they are
of the wall clock. Numbers go to results/bench/visual-<name>.json.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from stable_worldmodel.policy import PlanConfig
from stable_worldmodel.solver import CEMSolver
from stable_worldmodel.wm.loss import SIGReg

from theory.regularizer import attach_target
from visual import planning
from visual.checkpoint import load_checkpoint
from visual.data import ClipDataset, open_recording
from visual.evaluation import evaluate
from visual.model import (
    PIXEL_MEAN,
    PIXEL_STD,
    Preset,
    build_model,
    build_regularizer,
    load_preset,
    normalize_pixels,
    world_model_loss,
)
from visual.monitor import Monitor
from visual.planning import EpisodeCEM, LatentCost, load_protocol
from visual.training import LeWMTraining, fit

RESULTS = Path("results/bench")


def timed(call: Callable[[], object], device: str) -> float:
    if device == "cpu":
        start = time.process_time()
        call()
        return time.process_time() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def side_by_side(calls: dict[str, Callable[[], object]], device: str, rounds: int) -> dict[str, Any]:
    """Seconds of each contender and the ratio of the second to the first, median and quartiles over rounds."""
    for call in calls.values():
        call()
    seen = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            seen[name].append(timed(call, device))
    first, second = calls
    ratios = [b / a for a, b in zip(seen[first], seen[second], strict=True)]
    return {**{name: spread(values) for name, values in seen.items()}, "ratio": spread(ratios), "rounds": rounds}


def spread(values: list[float]) -> dict[str, float]:
    low, median, high = statistics.quantiles(values, n=4)
    return {"median": median, "low": low, "high": high}


def step(preset: Preset, device: str, rounds: int) -> dict[str, Any]:
    """One step on clips of 8 bits: ours, and the same one from stable-worldmodel's modules and statistic."""
    generator = torch.Generator().manual_seed(0)
    shape = (preset.batch_size, preset.frames, 3, preset.image_size, preset.image_size)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator).to(device)
    actions = torch.randn(preset.batch_size, preset.frames, 2 * preset.frameskip, generator=generator).to(device)
    half = preset.precision.startswith("bf16")

    def ours() -> Callable[[], None]:
        model = build_model(preset, 2, seed=0).to(device)
        regularizer = build_regularizer(preset, 2.0).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=preset.learning_rate, fused=True)
        attach_target(optimizer, regularizer, lr_multiplier=preset.target_lr_multiplier)
        parameters = [*model.parameters(), *regularizer.parameters()]

        def run() -> None:
            with torch.autocast(device, torch.bfloat16, enabled=half):
                loss = world_model_loss(model, regularizer, 0.09, normalize_pixels(pixels), actions).total
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()

        return run

    def theirs() -> Callable[[], None]:
        model = build_model(preset, 2, seed=0).to(device)
        statistic = SIGReg(knots=preset.knots, num_proj=preset.num_slices).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=preset.learning_rate)
        mean, std = (torch.tensor(values, device=device).view(3, 1, 1) for values in (PIXEL_MEAN, PIXEL_STD))

        def run() -> None:
            with torch.autocast(device, torch.bfloat16, enabled=half):
                frames = (pixels.float() / 255 - mean) / std
                encoded = model.encode({"pixels": frames, "action": actions})
                features = encoded["emb"]
                predicted = model.predict(features[:, :-1], encoded["act_emb"][:, :-1])
                loss = (predicted - features[:, 1:]).pow(2).mean() + 0.09 * statistic(features.transpose(0, 1))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        return run

    return side_by_side({"ours": ours(), "stable-worldmodel": theirs()}, device, rounds)


def wait(preset: str, data: Path, device: str) -> dict[str, Any]:
    """Share of wall-clock time spent waiting for data over 200 steps, and Lightning's whole step."""
    settings = load_preset(preset, steps=200, epochs=None, opening_steps=10**6, log_every=50, save_every=10**6)
    clips = ClipDataset(data, "train", settings.frames, settings.frameskip, image_size=settings.image_size)
    module = LeWMTraining(settings, 2.0, 0, clips, clips.action_mean, clips.action_std, 200)
    monitor = Monitor()
    with tempfile.TemporaryDirectory() as folder:
        fit(module, monitor, Path(folder), accelerator="cpu" if device == "cpu" else "gpu", progress=False)
    shares = [row["wait_share"] for row in monitor.rows]
    return {"wait_share": spread(shares), "steps_per_second": 200 / monitor.rows[-1]["seconds"], "clips": len(clips)}


def solve(checkpoint: Path | None, protocol: str, episodes: int, device: str, rounds: int) -> dict[str, Any]:
    """One solve for each of ``episodes`` episodes: ours, all at once; theirs as shipped, one at a time."""
    model: Any = (
        load_checkpoint(checkpoint).model if checkpoint else build_model(load_preset("laptop"), 2, seed=0).eval()
    ).to(device)
    settings = load_protocol(protocol)
    size = model.encoder.config.image_size
    width = model.action_encoder.input_dim // settings.action_block
    generator = torch.Generator().manual_seed(0)
    frames = {name: torch.randn(episodes, 1, 3, size, size, generator=generator) for name in ("pixels", "goal")}
    arguments: dict[str, Any] = {
        "num_samples": settings.num_samples,
        "topk": settings.elites,
        "n_steps": settings.iterations,
        "device": device,
        "seed": 0,
    }
    plan = PlanConfig(settings.horizon, settings.receding, action_block=settings.action_block)
    solvers = {
        "ours": EpisodeCEM(LatentCost(model), **arguments),
        "stable-worldmodel": CEMSolver(model, batch_size=1, **arguments),
    }
    for solver in solvers.values():
        solver.configure(action_space=Box(-1, 1, (episodes, width)), n_envs=episodes, config=plan)

    def call(name: str) -> Callable[[], None]:
        def run() -> None:
            with contextlib.redirect_stdout(io.StringIO()):
                solvers[name].solve({**frames, "action": torch.zeros(episodes, 1, width)})

        return run

    result = side_by_side({name: call(name) for name in solvers}, device, rounds)
    for name in solvers:
        result[name] = {key: value / episodes for key, value in result[name].items()}
    return {**result, "episodes": episodes, "protocol": protocol}


def agreement(checkpoint: Path, task: str, data: Path, protocol: str) -> dict[str, Any]:
    """Pairs on which success in float32 is the same with the shipped rollout and with ours, same candidates."""
    model, recording, settings = load_checkpoint(checkpoint), open_recording(data), load_protocol(protocol)
    ours = evaluate(model, task, recording, settings)

    def shipped(module: Any, start: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        ends = []
        for latent, plans in zip(start, actions, strict=True):
            count = len(plans)
            info = {"pixels": torch.empty(1, count, 1, 0), "emb": latent.expand(1, count, 1, -1)}
            ends.append(module.rollout(info, plans.unsqueeze(0))["predicted_emb"][0, :, -1])
        return torch.stack(ends)

    original = planning.terminal_latent
    planning.terminal_latent = shipped
    try:
        theirs = evaluate(model, task, recording, settings)
    finally:
        planning.terminal_latent = original
    same = (ours["success"] == theirs["success"]).to_numpy()
    return {
        "pairs": len(ours),
        "agree": float(np.mean(same)),
        "ours": float(ours["success"].mean()),
        "shipped": float(theirs["success"].mean()),
        "seconds_per_solve": float(ours["seconds"].sum() / ours["solves"].sum()),
        "shipped_seconds_per_solve": float(theirs["seconds"].sum() / theirs["solves"].sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["step", "wait", "solve", "agreement"])
    parser.add_argument("--preset", default="laptop")
    parser.add_argument("--protocol", default="laptop")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--task", default="tworoom")
    parser.add_argument("--data", type=Path, default=Path("data/tworoom/laptop"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.name == "step":
        result = step(load_preset(options.preset), options.device, options.rounds)
    elif options.name == "wait":
        result = wait(options.preset, options.data, options.device)
    elif options.name == "solve":
        result = solve(options.checkpoint, options.protocol, options.episodes, options.device, options.rounds)
    else:
        if options.checkpoint is None:
            parser.error("agreement needs --checkpoint")
        result = agreement(options.checkpoint, options.task, options.data, options.protocol)
    result |= {"threads": options.threads, "device": options.device, "preset": options.preset}
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1)
    (RESULTS / f"visual-{options.name}.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
