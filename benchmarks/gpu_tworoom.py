"""TwoRoom at 224 pixels with the paper preset's model on one GPU in ten minutes: record, train, plan, compare.

    python -m benchmarks.gpu_tworoom             # one H200 (or any CUDA device: fewer steps fit into the time)
    python -m benchmarks.gpu_tworoom --dry       # every line on a CPU in about a minute, with a tiny model

The model is the preset's (ViT-Tiny/14, D = 192, six predictor layers, batch 128, bfloat16), for κ = 1 and κ = 2. The
schedule is not: fifteen epochs of 10,000 episodes take hours. One step costs 5 TFLOP (512 frames × 257 tokens × 5.4 M
weights × 6, and attention), so an H200 at a fifth of its 990 TFLOP/s would take 26 ms. The script times 60 steps on the
spot and trains both models for as many as fit, at 10 times the published peak rate, since they are few. Numbers of such
a run are not the paper's: read them as "the pipeline runs at full size, and this is what minutes give".

Recording is spread over the cores: episode i follows from (seed, i), so that the file is the one that a single process
would write. Results go to results/gpu-tworoom/ (runs, and summary.json with seconds per stage).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from theory.runs import read_rows, read_run, write_atomic
from visual import recording
from visual.data import ClipDataset
from visual.environments import make_policy, open_world, quiet
from visual.experiment import train
from visual.manifest import MANIFEST_FILE, Manifest
from visual.model import Preset, load_preset
from visual.monitor import Monitor
from visual.planning import Protocol, load_protocol
from visual.statistics import compare, summarize
from visual.success import describe_comparison, plan
from visual.tasks import get_task
from visual.training import LeWMTraining, fit

TASK, SEED = "tworoom", 3072
KAPPAS = (1.0, 2.0)
TRIAL_STEPS = 60
#: What planning and the table need at the end, in seconds.
PLANNING_RESERVE = 100.0
#: What a training run needs besides its steps: reading the recording, batch normalisation, held-out evaluation.
RUN_OVERHEAD = 25.0


def record_part(name: str, preset: str, folder: Path, first: int, last: int, seed: int) -> None:
    """Episodes ``first`` to ``last`` as one part of a recording, as ``visual.recording`` names and writes them."""
    torch.set_num_threads(1)
    task, settings = get_task(name), recording.PRESETS[preset]
    with (
        quiet(),
        open_world(
            task, image_size=settings.image_size, recording=True, fast_rendering=settings.fast_rendering
        ) as world,
    ):
        world.set_policy(make_policy(task.policy))
        episodes = [recording.record_episode(world, task, seed, index) for index in range(first, last + 1)]
    recording._write_episodes(folder / recording._PARTS / f"part-{first:06d}-{last:06d}.h5", iter(episodes))


def record(preset: str, episodes: int, folder: Path, workers: int, seed: int = 0) -> Manifest:
    """A recording whose parts are made by several processes; a finished one is returned as it is."""
    task = get_task(TASK)
    if not (folder / MANIFEST_FILE).is_file():
        shutil.rmtree(folder, ignore_errors=True)
        parts = folder / recording._PARTS
        parts.mkdir(parents=True)
        recording._open_parts(folder, parts, recording._settings(task, preset, episodes, seed))
        size = max(1, min(15, episodes // workers))
        ranges = [(first, min(first + size, episodes) - 1) for first in range(0, episodes, size)]
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            jobs = [pool.submit(record_part, TASK, preset, folder, first, last, seed) for first, last in ranges]
            for job in jobs:
                job.result()
    return recording.collect(task, preset, episodes, seed, folder)


def steps_per_second(preset: Preset, data: Path, accelerator: str, num_workers: int, steps: int) -> float:
    """Speed of training once it is under way."""
    log_every = steps // 3
    short = Preset.from_mapping(
        {**preset.to_mapping(), "steps": steps, "log_every": log_every, "probe_every": 10**6, "save_every": 10**6}
    )
    clips = ClipDataset(data, "train", preset.frames, preset.frameskip, verify=False)
    module = LeWMTraining(short, 2.0, SEED, clips, clips.action_mean, clips.action_std, steps, num_workers)
    monitor = Monitor()
    with tempfile.TemporaryDirectory() as folder:
        fit(module, monitor, Path(folder), accelerator=accelerator, progress=False)
    first, last = monitor.rows[0], monitor.rows[-1]
    return float((last["step"] - first["step"]) / max(last["seconds"] - first["seconds"], 1e-6))


def table(folders: dict[float, tuple[Path, Path]]) -> str:
    """A Markdown table with what belongs beside every rate, and the paired comparison."""
    lines = [
        "| κ | success | of unsolved pairs | random actions | held-out error (copy) | effective rank | probe R² | "
        "s per solve |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kappa, (trained, planned) in folders.items():
        rows, card = read_rows(planned), json.loads((trained / "model.json").read_text(encoding="utf-8"))
        held_out, rates = card["held_out"], summarize(rows)
        percent = {name: f"{100 * value:.0f}" for name, value in rates.items() if name not in ("n", "unsolved_n")}
        probe = "–" if held_out["probe_r2"] is None else f"{held_out['probe_r2']:.3f}"
        lines.append(
            f"| {kappa:g} | {percent['rate']} % [{percent['low']}, {percent['high']}] of {rates['n']} "
            f"| {percent['unsolved_rate']} % of {rates['unsolved_n']} | {percent['floor']} % "
            f"| {held_out['prediction']:.4f} ({held_out['copy']:.4f}) | {held_out['effective_rank']:.1f} | {probe} "
            f"| {rows['seconds'].sum() / max(1, rows['solves'].sum()):.3f} |"
        )
    (_, first), (_, second) = folders.values()
    return "\n".join([*lines, "", describe_comparison(compare(read_rows(first), read_rows(second)), KAPPAS[1])])


def settings(dry: bool) -> tuple[Preset, str, Protocol, int]:
    """Model, recording preset, protocol and number of episodes."""
    if not dry:
        preset = load_preset(
            "paper", epochs=None, steps=1, learning_rate=5e-4, target_lr_multiplier=10.0, save_every=10**6
        )
        return preset, "paper", load_protocol("lewm-paper"), 700
    sizes: dict[str, Any] = {"image_size": 64, "encoder_patch": 16, "encoder_depth": 1, "predictor_depth": 1}
    sizes |= {"predictor_mlp": 32, "projector_hidden": 32, "num_slices": 32, "batch_size": 8, "precision": "32-true"}
    preset = load_preset("paper", **sizes, epochs=None, steps=1, learning_rate=5e-4, save_every=10**6)
    return preset, "quick", load_protocol("lewm-paper", num_samples=16, elites=4, iterations=1, pairs=4, budget=10), 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", default=os.environ.get("DRY") == "1", help="also DRY=1")
    parser.add_argument("--budget", type=float, default=570.0, help="seconds for everything")
    parser.add_argument("--episodes", type=int)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that record")
    parser.add_argument("--loaders", type=int, default=4, help="processes that load clips")
    parser.add_argument("--out", type=Path, default=Path("results/gpu-tworoom"))
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    began = time.perf_counter()
    accelerator, device = ("cpu", "cpu") if options.dry else ("gpu", "cuda")
    if not options.dry and not torch.cuda.is_available():
        parser.error("no CUDA device can be used here; --dry runs every line on the CPU")
    preset, recorded, protocol, episodes = settings(options.dry)
    episodes = options.episodes or episodes
    data = options.data or options.out / "data"
    seconds: dict[str, float] = {}

    def stage(name: str) -> None:
        seconds[name] = round(time.perf_counter() - began - sum(seconds.values()), 1)
        print(f"{name}: {seconds[name]:.1f} s", flush=True)

    manifest = record(recorded, episodes, data, options.workers)
    print(f"{manifest.episodes} episodes, {manifest.frames} frames, {len(manifest.pairs)} pairs")
    stage("record")
    # Loaders hand their batches over in shared memory, of which containers often have 64 MB.
    shared = Path("/dev/shm")
    roomy = shared.is_dir() and shutil.disk_usage(shared).free > 4 * 2**30
    loaders = options.loaders if roomy and not options.dry else 0
    rate = steps_per_second(preset, data, accelerator, loaders, 6 if options.dry else TRIAL_STEPS)
    left = options.budget - (time.perf_counter() - began) - PLANNING_RESERVE
    steps = 4 if options.dry else int(max(1.0, left / len(KAPPAS) - RUN_OVERHEAD) * rate)
    clips = len(ClipDataset(data, "train", preset.frames, preset.frameskip, verify=False))
    stage("time a step")
    passes = steps * preset.batch_size / clips
    print(f"{rate:.1f} steps/s with {loaders} loaders; {steps} steps per model, {passes:.1f} passes over the clips")
    changes = {"steps": steps, "opening_steps": max(1, steps // 2), "log_every": max(1, min(50, steps // 4))}
    preset = Preset.from_mapping({**preset.to_mapping(), **changes, "probe_every": max(1, steps // 3)})
    folders = {}
    for kappa in KAPPAS:
        trained = train(
            TASK,
            kappa,
            preset,
            SEED,
            data=data,
            out=options.out,
            accelerator=accelerator,
            num_workers=loaders,
            progress=False,
            force=True,
        )
        stage(f"train κ = {kappa:g}")
        planned = plan(TASK, kappa, preset.name, SEED, protocol, data=data, out=options.out, device=device, force=True)
        stage(f"plan κ = {kappa:g}")
        folders[kappa] = trained, planned
    text = table(folders)
    total = time.perf_counter() - began
    print(f"\n{text}\n\n{total:.0f} s in all.")
    summary = {
        "dry": options.dry,
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "steps": steps,
        "steps_per_second": rate,
        "frames": manifest.frames,
        "seconds": {**seconds, "total": round(total, 1)},
        "table": text.splitlines(),
        "commit": read_run(folders[KAPPAS[0]][0]).commit,
    }
    write_atomic(options.out / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
