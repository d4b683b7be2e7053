"""Time and peak memory of the regulariser, side by side with what a user would pick instead.

    python -m benchmarks.bench_regularizer                  # this machine's CPU, one and two threads
    python -m benchmarks.bench_regularizer --device cuda    # the same table on a GPU, under ten minutes

Contenders take turns within every round, so that a busy machine disturbs them alike; the ratio is taken round by round.
Peak memory is measured in a process of its own: the largest resident set on Linux (large allocations are returned to
the system at once there), the allocator's peak on CUDA. With ``--write`` the tables replace their part of
docs/benchmarks.md; the numbers behind them go to results/bench/.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.regularizer_peers import CONTENDERS, LAMBDA, OURS, PEERS, WORLDMODEL, Cell, Contender

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "results" / "bench"
BASE = Cell(4, 128, 192, 1024)
AXES: dict[str, tuple[str, Sequence[int]]] = {
    "samples": ("batch N", (64, 256, 1024, 4096)),
    "dim": ("dimension D", (32, 96, 384, 768)),
    "slices": ("slices S", (256, 512, 2048, 4096)),
}
#: Every axis at its end: too large for the peers.
CORNER = Cell(4, 4096, 768, 4096)
#: The toy's stack: networks on the time axis.
STACK = Cell(70, 512, 2, 32)
#: Sizes that are measured with every number of threads.
AROUND_BASE = (BASE, Cell(1, 128, 192, 1024), STACK)
MEMORY_LIMIT_GIB = 8.0
Row = dict[str, Any]


def cells() -> list[Cell]:
    """The base, T = 1, one axis at a time, all of them at their ends, and the toy's stack."""
    varied = [Cell(**{**vars_of(BASE), axis: value}) for axis, (_, values) in AXES.items() for value in values]
    return [BASE, Cell(**{**vars_of(BASE), "steps": 1}), *varied, CORNER, STACK]


def vars_of(cell: Cell) -> dict[str, int]:
    return {"steps": cell.steps, "samples": cell.samples, "dim": cell.dim, "slices": cell.slices}


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def forward_backward(module: nn.Module, z: torch.Tensor) -> None:
    z.grad = None
    module(z).backward()


def timed(call: Callable[[], None], device: torch.device) -> float:
    """Seconds of one call."""
    synchronize(device)
    start = time.perf_counter()
    call()
    synchronize(device)
    return time.perf_counter() - start


def rounds(calls: dict[str, Callable[[], None]], device: torch.device, budget: float) -> dict[str, list[float]]:
    """Seconds per call, contender by contender within each round, for about ``budget`` seconds and 3 to 40 rounds.

    A fast contender is repeated within a round for about a fifth of the slowest one's time, and its median counts: what
    disturbs a long call once disturbs some of the short ones.
    """
    first = {name: timed(call, device) for name, call in calls.items()}
    first = {name: seconds if seconds > 1 else timed(calls[name], device) for name, seconds in first.items()}
    slowest = max(first.values())
    repeats = {name: max(1, min(20, round(0.2 * slowest / seconds))) for name, seconds in first.items()}
    seen: dict[str, list[float]] = {name: [] for name in calls}
    start = time.perf_counter()
    while len(seen[next(iter(calls))]) < 3 or (
        time.perf_counter() - start < budget and len(seen[next(iter(calls))]) < 40
    ):
        for name, call in calls.items():
            seen[name].append(statistics.median(timed(call, device) for _ in range(repeats[name])))
    return seen


def time_cell(cell: Cell, contenders: Sequence[Contender], device: torch.device, threads: int, budget: float) -> Row:
    """Times of one size, with the peers that fit."""
    torch.set_num_threads(threads)
    calls: dict[str, Callable[[], None]] = {}
    marks: dict[str, str] = {}
    for contender in contenders:
        needed = contender.gibibytes(cell)
        if needed > MEMORY_LIMIT_GIB:
            marks[contender.name] = f"not run: needs about {needed:.0f} GiB"
            continue
        module, z = contender.build(cell.dim, cell.slices).to(device), cell.features(device)
        calls[contender.name] = lambda module=module, z=z: forward_backward(module, z)  # type: ignore[misc]
    seen = rounds(calls, device, budget)
    return {"cell": vars_of(cell), "threads": threads, "seconds": seen, "marks": marks}


# Peak memory, in a process of its own


def status_bytes(key: str) -> int:
    """A field of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def peak_bytes(contender: Contender, cell: Cell, device: torch.device) -> int | None:
    """Peak memory of one forward and backward beyond what was there before; ``None`` where it cannot be measured."""
    module, z = contender.build(cell.dim, cell.slices).to(device), cell.features(device)
    if device.type == "cuda":
        forward_backward(module, z)
        z.grad = None
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        forward_backward(module, z)
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = status_bytes("VmRSS")
    except OSError:
        return None
    forward_backward(module, z)
    return status_bytes("VmHWM") - before


def measure_memory(device: str, quick: bool) -> list[Row]:
    """Run this file in a fresh process that returns large allocations to the system at once."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, "-m", "benchmarks.bench_regularizer", "--memory-only", "--device", device]
    done = subprocess.run(
        command + ["--quick"] * quick, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    rows: list[Row] = json.loads(done.stdout.splitlines()[-1])
    return rows


def memory_rows(device: torch.device, quick: bool) -> list[Row]:
    """Peak memory of every contender at every size."""
    torch.set_num_threads(1)
    rows = []
    for contender in CONTENDERS:
        peak_bytes(contender, Cell(1, 64, 32, 64), device)
        for cell in [Cell(1, 64, 32, 64)] if quick else cells():
            fits = contender.gibibytes(cell) <= MEMORY_LIMIT_GIB
            peak = peak_bytes(contender, cell, device) if fits else None
            rows.append({"name": contender.name, "cell": vars_of(cell), "bytes": peak})
    return rows


# A LeWM training step


def training_step_share(device: torch.device, budget: float, quick: bool) -> Row:
    """Seconds of a LeWM step without regulariser, and of the regularisers on its features, in turns.

    On a CPU a small model (64 × 64 pixels, D = 32, 256 slices, batch 64), on a GPU the published one (224 × 224,
    ViT-Tiny/14, D = 192, 1024 slices, batch 128).
    """
    from benchmarks.lewm_step import lewm_step

    paper = device.type == "cuda" and not quick
    step, cell = lewm_step(device, paper=paper, batch=4 if quick else None)
    calls: dict[str, Callable[[], None]] = {"step": step}
    for contender in (OURS, LAMBDA, WORLDMODEL):
        module, z = contender.build(cell.dim, cell.slices).to(device), cell.features(device)
        calls[contender.name] = lambda module=module, z=z: forward_backward(module, z)  # type: ignore[misc]
    seen = rounds(calls, device, budget)
    return {"cell": vars_of(cell), "threads": torch.get_num_threads(), "seconds": seen, "paper": paper}


# Tables


def ratio(row: Row, peer: str, ours: str = OURS.name) -> tuple[float, float, float] | None:
    """Median and quartiles over rounds of the peer's time relative to ours."""
    if peer not in row["seconds"]:
        return None
    ratios = [theirs / mine for theirs, mine in zip(row["seconds"][peer], row["seconds"][ours], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return middle, low, high


def milliseconds(row: Row, name: str) -> str:
    if name in row["marks"]:
        return row["marks"][name]
    return f"{1e3 * statistics.median(row['seconds'][name]):.1f}"


def ratio_text(row: Row, peer: str) -> str:
    found = ratio(row, peer)
    return "–" if found is None else f"**{found[0]:.1f}** ({found[1]:.1f}–{found[2]:.1f})"


def mebibytes(value: int | None) -> str:
    return "–" if value is None else f"{value / 2**20:.1f}"


def exponent(rows: list[Row], axis: str, name: str) -> float:
    """Slope of log median time against the log of the size, least squares over the axis."""
    points = [
        (math.log(row["cell"][axis]), math.log(statistics.median(row["seconds"][name])))
        for row in rows
        if name in row["seconds"]
        and all(row["cell"][other] == value for other, value in vars_of(BASE).items() if other != axis)
    ]
    x, y = zip(*sorted(points), strict=True)
    return statistics.linear_regression(x, y).slope


def tables(report: Row) -> str:
    """The report as Markdown."""
    lines = [f"### {report['label']}", "", f"{report['machine']}. {report['versions']}. {report['when']}.", ""]
    for threads in report["threads"]:
        rows = [row for row in report["times"] if row["threads"] == threads]
        if report["device"] == "cpu":
            lines += [f"**{threads} thread{'s' * (threads > 1)}**", ""]
        lines += [
            "| (T, N, D), S | ours, ms | ΛReg, ms | " + " | ".join(f"{peer.name}, ms | ratio" for peer in PEERS) + " |",
            "|---|" + "---:|" * (2 + 2 * len(PEERS)),
        ]
        for row in rows:
            texts = [f"{milliseconds(row, peer.name)} | {ratio_text(row, peer.name)}" for peer in PEERS]
            ours, extra = milliseconds(row, OURS.name), milliseconds(row, LAMBDA.name)
            lines.append(f"| {Cell(**row['cell'])} | {ours} | {extra} | " + " | ".join(texts) + " |")
        lines.append("")
        if len(rows) > 3:
            lines += ["| time ∝ sizeᵖ, p for | ours | " + " | ".join(peer.name for peer in PEERS) + " |"]
            lines += ["|---|" + "---:|" * (1 + len(PEERS))]
            for axis, (label, _) in AXES.items():
                slopes = [f"{exponent(rows, axis, name):.2f}" for name in (OURS.name, *(peer.name for peer in PEERS))]
                lines.append(f"| {label} | " + " | ".join(slopes) + " |")
            lines.append("")
    names = [contender.name for contender in CONTENDERS]
    lines += ["Peak extra memory of forward plus backward, MiB:", ""]
    lines += ["| (T, N, D), S | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for cell in dict.fromkeys(Cell(**row["cell"]) for row in report["memory"]):
        found = {row["name"]: row["bytes"] for row in report["memory"] if row["cell"] == vars_of(cell)}
        lines.append(f"| {cell} | " + " | ".join(mebibytes(found[name]) for name in names) + " |")
    share = report["share"]
    step = statistics.median(share["seconds"]["step"])
    model = "the published size" if share["paper"] else "a small model, 64 × 64 pixels"
    lines += ["", f"A LeWM training step ({model}; features {Cell(**share['cell'])} slices) without regulariser takes "]
    lines[-1] += f"{1e3 * step:.0f} ms; of the whole step the regulariser takes"
    for name in (WORLDMODEL.name, OURS.name, LAMBDA.name):
        seconds = statistics.median(share["seconds"][name])
        lines[-1] += f" {100 * seconds / (seconds + step):.1f} % with {name},"
    lines[-1] = lines[-1].rstrip(",") + "."
    return "\n".join(lines) + "\n"


def write_page(text: str, device: str) -> None:
    """Replace this device's part of docs/benchmarks.md."""
    begin, end = f"<!-- regularizer {device}: begin -->", f"<!-- regularizer {device}: end -->"
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{PAGE} must contain the lines '{begin}' and '{end}'.")
    PAGE.write_text(f"{before}{begin}\n\n{text}\n{end}{after}", encoding="utf-8")


def processor() -> str:
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def build_report(device: torch.device, quick: bool, seconds: float) -> Row:
    """Measure everything within about ``seconds``."""
    cuda = device.type == "cuda"
    cores = os.cpu_count() or 1
    threads = [torch.get_num_threads()] if cuda else [1, *([2] if cores > 1 else [])]
    sizes = [Cell(1, 64, 32, 64), Cell(2, 64, 32, 64)] if quick else cells()
    # The number of threads is an axis too: it varies around the base.
    plan = [(cell, threads[0]) for cell in sizes]
    plan += [(cell, count) for count in threads[1:] for cell in sizes if quick or cell in AROUND_BASE]
    budget = 0.0 if quick else 0.6 * seconds / len(plan)
    times = []
    for cell, count in plan:
        times.append(time_cell(cell, CONTENDERS, device, count, budget))
        print(f"{cell}, {count} thread(s): " + ratio_text(times[-1], WORLDMODEL.name), file=sys.stderr, flush=True)
    torch.set_num_threads(threads[-1])
    share = training_step_share(device, 0.0 if quick else 0.1 * seconds, quick)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan
    machine = torch.cuda.get_device_name(device) if cuda else f"{processor()}, {cores} cores (load {load:.1f})"
    packages = ("torch", "stable-worldmodel", "stable-pretraining")
    return {
        "label": f"CUDA: {machine}" if cuda else "CPU",
        "device": device.type,
        "machine": machine,
        "versions": ", ".join(f"{name} {version(name)}" for name in packages) + f", Python {platform.python_version()}",
        "when": time.strftime("%Y-%m-%d"),
        "threads": threads,
        "times": times,
        "memory": measure_memory(str(device), quick),
        "share": share,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--seconds", type=float, default=480.0, help="time to spend, about (default 480)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    parser.add_argument("--memory-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("This machine has no CUDA device.")
    if options.memory_only:
        print(json.dumps(memory_rows(device, options.quick)))
        return
    report = build_report(device, options.quick, options.seconds)
    text = tables(report)
    print(text)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"regularizer-{device.type}.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    if options.write:
        write_page(text, device.type)


if __name__ == "__main__":
    main()
