"""The sweeps: their settings, their rows, and the folder each is kept in.

A sweep is one or more stacks. A stack is dealt out to ``threads`` workers, each with its own part of the networks and
one numerical thread: networks never wait for each other, and the machine's other work slows the sweep by its share
only, where threads inside each operation would stand at a barrier a thousand times a second.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import torch

from theory.runs import ROWS_FILE, RunRecord, finished_run, open_run
from theory.spd import check_count, check_kappa
from toy2d.example import SeparationExample, example_of
from toy2d.measure import measure_stack
from toy2d.system import STATE_CONDITION
from toy2d.training import Case, TrainSettings, train

T = TypeVar("T")

#: Called with the number of network steps done so far, and of all there are.
Progress = Callable[[int, int], None]

#: Noise levels of the noise sweep: 0.3 down to 0.01 in five equal ratios.
NOISE_LEVELS = tuple(round(0.3 * 30 ** (-step / 5), 4) for step in range(6))
#: Noise level of the setting with a nonlinear observation.
NONLINEAR_NOISE = 0.1
#: κ of the κ sweep, c and c² among them, and its noise level.
KAPPAS = (1.0, 1.5, 1.75, 2.0, STATE_CONDITION, 5.36, STATE_CONDITION**2)
KAPPA_NOISE = 0.5
#: Latent dimensions of the over-complete sweep.
LATENT_DIMS = (2, 3, 4, 8)
#: Shape of the turned noise of the sweep of diagonal and full targets: its variances are 4 : 1, at 45° to the state's
#: axes, so that the axes of Σ^{−1/2}Σ_wΣ^{−1/2} are neither the state's nor the encoder's coordinates.
TURNED_RATIO, TURNED_ANGLE = 4.0, 45.0
#: Seeds that the toy's settings were not chosen on (docs/theory.md, T10).
FRESH_SEEDS = tuple(range(10, 15))

#: The file beside the noise sweep's rows that figure 1a is drawn from.
EXAMPLE_FILE = "example.npz"
# Networks dealt to one worker at a time: enough to hide the cost of calling an operation, few enough for memory.
_MOST_TOGETHER = 40


@dataclass(frozen=True)
class Sweep:
    """A sweep to be run.

    Attributes
    ----------
    name
        "noise-sweep", "kappa-sweep", "overcomplete", "diagonal" or "fresh-seeds": the command and the folder.
    stacks
        Pairs of training settings and the cases trained with them.
    lines
        Imposed lines each network plans on.
    """

    name: str
    stacks: tuple[tuple[TrainSettings, tuple[Case, ...]], ...]
    lines: int

    def __post_init__(self) -> None:
        check_count(self.lines, "lines")

    @property
    def total_steps(self) -> int:
        """Network steps in all, for a progress bar."""
        return sum(settings.steps * len(cases) for settings, cases in self.stacks)

    def settings(self) -> dict[str, Any]:
        """Everything that decides the rows, as JSON values."""
        stacks = [
            {"training": _values(settings), "cases": [_values(case) for case in cases]}
            for settings, cases in self.stacks
        ]
        seeds = sorted({case.seed for _, cases in self.stacks for case in cases})
        return {
            "experiment": self.name,
            "seeds": seeds,
            "steps": sorted({settings.steps for settings, _ in self.stacks}),
            "lines": self.lines,
            "stacks": stacks,
        }


@dataclass(frozen=True)
class SweepResult:
    """The rows of a sweep, one for each seed and setting; the noise sweep also has figure 1a's example."""

    rows: pd.DataFrame
    example: SeparationExample | None


def noise_plan(
    seeds: int = 10,
    steps: int = 2000,
    *,
    sigmas: Sequence[float] = NOISE_LEVELS,
    nonlinear_sigma: float | None = NONLINEAR_NOISE,
    lines: int = 2000,
) -> Sweep:
    """κ = 1, process noise from 0.3 down 30-fold; and one noise level seen through a nonlinear observation."""
    numbers = range(check_count(seeds, "seeds"))
    if nonlinear_sigma is None:
        _check_some(sigmas, "sigmas")
    cases = [Case(seed, float(sigma)) for sigma in sigmas for seed in numbers]
    if nonlinear_sigma is not None:
        cases += [Case(seed, nonlinear_sigma, observation="nonlinear") for seed in numbers]
    return Sweep("noise-sweep", ((TrainSettings(steps=steps), tuple(cases)),), lines)


def kappa_plan(
    seeds: int = 10,
    steps: int = 4000,
    *,
    kappas: Sequence[float] = KAPPAS,
    sigma: float = KAPPA_NOISE,
    lines: int = 2000,
) -> Sweep:
    """ΛReg's bound κ from 1 to c², at one noise level."""
    numbers = range(check_count(seeds, "seeds"))
    cases = tuple(Case(seed, sigma, check_kappa(kappa)) for kappa in _check_some(kappas, "kappas") for seed in numbers)
    return Sweep("kappa-sweep", ((TrainSettings(steps=steps), cases),), lines)


def overcomplete_plan(
    seeds: int = 5,
    steps: int = 3000,
    *,
    latent_dims: Sequence[int] = LATENT_DIMS,
    kappas: Sequence[float] = (1.0, STATE_CONDITION),
    sigma: float = KAPPA_NOISE,
    lines: int = 2000,
) -> Sweep:
    """Latents with more dimensions than the state, at κ = 1 and at κ = c, where two dimensions have no regret.

    κ = 1 is the control: spare coordinates change the metric without any help from the target.
    """
    numbers = range(check_count(seeds, "seeds"))
    cases = tuple(Case(seed, sigma, check_kappa(kappa)) for kappa in _check_some(kappas, "kappas") for seed in numbers)
    dims = _check_some(latent_dims, "latent_dims")
    stacks = tuple((TrainSettings(steps=steps, latent_dim=dim), cases) for dim in dims)
    return Sweep("overcomplete", stacks, lines)


def diagonal_plan(
    seeds: int = len(FRESH_SEEDS),
    steps: int = 3000,
    *,
    kappas: Sequence[float] = (2.0, STATE_CONDITION),
    sigma: float = KAPPA_NOISE,
    hidden: int = 16,
    lines: int = 2000,
) -> Sweep:
    """Diagonal against full targets on the same cases: isotropic noise at κ = c, and noise turned against the axes.

    The seeds are fresh ones, from :data:`FRESH_SEEDS` on; the networks are narrow, which halves the time.
    """
    numbers = _fresh(seeds)
    bounds = [check_kappa(kappa) for kappa in _check_some(kappas, "kappas")]
    cases = tuple(Case(seed, sigma, STATE_CONDITION) for seed in numbers)
    cases += tuple(
        Case(seed, sigma, kappa, noise_ratio=TURNED_RATIO, noise_angle=TURNED_ANGLE)
        for kappa in bounds
        for seed in numbers
    )
    stacks = ((TrainSettings(steps=steps, hidden=hidden, full_target=full), cases) for full in (False, True))
    return Sweep("diagonal", tuple(stacks), lines)


def fresh_plan(seeds: int = len(FRESH_SEEDS), steps: int = 4000, *, lines: int = 2000) -> Sweep:
    """The ends of the noise and κ sweeps again, with seeds that no setting was chosen on, from :data:`FRESH_SEEDS` on.

    κ = 1 and κ = c at the κ sweep's noise and steps, and κ = 1 at the noise sweep's least noise and its steps.
    """
    numbers = _fresh(seeds)
    ends = tuple(Case(seed, KAPPA_NOISE, kappa) for kappa in (1.0, STATE_CONDITION) for seed in numbers)
    plateau = tuple(Case(seed, NOISE_LEVELS[-1]) for seed in numbers)
    stacks = ((TrainSettings(steps=steps), ends), (TrainSettings(steps=min(steps, 2000)), plateau))
    return Sweep("fresh-seeds", stacks, lines)


def _fresh(seeds: int) -> range:
    return range(FRESH_SEEDS[0], FRESH_SEEDS[0] + check_count(seeds, "seeds"))


def noise_sweep(
    seeds: int = 10, steps: int = 2000, *, threads: int | None = None, progress: Progress | None = None, **options: Any
) -> pd.DataFrame:
    """Rows of the noise sweep; ``options`` as in :func:`noise_plan`."""
    return run_sweep(noise_plan(seeds, steps, **options), threads=threads, progress=progress).rows


def kappa_sweep(
    seeds: int = 10, steps: int = 4000, *, threads: int | None = None, progress: Progress | None = None, **options: Any
) -> pd.DataFrame:
    """Rows of the κ sweep; ``options`` as in :func:`kappa_plan`."""
    return run_sweep(kappa_plan(seeds, steps, **options), threads=threads, progress=progress).rows


def overcomplete(
    seeds: int = 5, steps: int = 3000, *, threads: int | None = None, progress: Progress | None = None, **options: Any
) -> pd.DataFrame:
    """Rows of the over-complete sweep; ``options`` as in :func:`overcomplete_plan`."""
    return run_sweep(overcomplete_plan(seeds, steps, **options), threads=threads, progress=progress).rows


def diagonal(
    seeds: int = len(FRESH_SEEDS),
    steps: int = 3000,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Rows of the sweep of diagonal and full targets; ``options`` as in :func:`diagonal_plan`."""
    return run_sweep(diagonal_plan(seeds, steps, **options), threads=threads, progress=progress).rows


def run_sweep(sweep: Sweep, *, threads: int | None = None, progress: Progress | None = None) -> SweepResult:
    """Train and measure every network of a sweep.

    Parameters
    ----------
    threads
        Workers, by default one for each core. Rows are equal bit for bit at equal ``threads`` on one machine, and to
        rounding otherwise.
    progress
        Called from the workers, one call at a time.
    """
    threads = default_threads() if threads is None else check_count(threads, "threads")
    jobs = [(settings, part) for settings, cases in sweep.stacks for part in deal(cases, threads)]
    meter = _Meter(sweep.total_steps, progress)
    with workers(threads) as pool:
        futures = [pool.submit(_run_part, settings, cases, sweep, meter) for settings, cases in jobs]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
            results = [future.result() for future in futures if future.done()]
        except BaseException:
            meter.stop()
            for future in futures:
                future.cancel()
            raise
    rows = pd.DataFrame([row for part, _ in results for row in part])
    examples = [example for _, example in results if example is not None]
    return SweepResult(rows, examples[0] if examples else None)


def write_sweep(
    sweep: Sweep,
    folder: str | Path,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    force: bool = False,
) -> RunRecord:
    """Run a sweep into ``folder``: ``rows.parquet``, ``run.json``, and the noise sweep's ``example.npz``.

    Raises
    ------
    ValueError
        If the folder cannot be written or, unless ``force``, holds a finished run.
    """
    with open_run(folder, sweep.settings(), force=force) as run:
        result = run_sweep(sweep, threads=threads, progress=progress)
        run.write_rows(result.rows)
        if result.example is not None:
            run.write_file(EXAMPLE_FILE, result.example.save)
    record = finished_run(folder)
    if record is None:
        raise ValueError(f"{Path(folder) / ROWS_FILE} was removed while the sweep was finishing.")
    return record


def default_threads() -> int:
    """One worker for each core this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _values(item: TrainSettings | Case) -> dict[str, Any]:
    """Fields of a setting. Those added since runs were first published are named only where they say something."""
    later = {"noise_ratio": 1.0, "noise_angle": 0.0, "full_target": False}
    return {name: value for name, value in asdict(item).items() if name not in later or value != later[name]}


def _check_some(values: Sequence[T], name: str) -> Sequence[T]:
    if not values:
        raise ValueError(f"{name} must not be empty.")
    return values


def deal(cases: Sequence[Case], threads: int) -> list[tuple[Case, ...]]:
    """Cut a stack into equal parts, as many as keep all workers busy."""
    rounds = -(-len(cases) // (_MOST_TOGETHER * threads))
    parts = min(len(cases), rounds * threads)
    bounds = [len(cases) * part // parts for part in range(parts + 1)]
    return [tuple(cases[start:stop]) for start, stop in itertools.pairwise(bounds)]


def _run_part(
    settings: TrainSettings, cases: tuple[Case, ...], sweep: Sweep, meter: _Meter
) -> tuple[list[dict[str, Any]], SeparationExample | None]:
    stack = train(cases, settings, meter.advance)
    rows = [{"experiment": sweep.name, **row, "origin": "measured"} for row in measure_stack(stack, sweep.lines)]
    if sweep.name == "diagonal":
        target = "full" if settings.full_target else "diagonal"
        shapes = [{"noise_ratio": case.noise_ratio, "noise_angle": case.noise_angle} for case in cases]
        rows = [{**row, "target": target, **shape} for row, shape in zip(rows, shapes, strict=True)]
    # The example is the first seed's at the smallest noise seen directly.
    plain = [case for _, part in sweep.stacks for case in part if case.observation == "identity"]
    wanted = min(plain, key=lambda case: (case.sigma, case.seed)) if sweep.name == "noise-sweep" and plain else None
    if wanted not in cases:
        return rows, None
    position = cases.index(wanted)
    return rows, example_of(wanted.system, stack.encoder.select(position), wanted.seed)


class _Stopped(Exception):
    """Raised in workers that are told to stop."""


class _Meter:
    """Network steps done by all workers; the way to stop them."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total, self._progress, self._done = total, progress, 0
        self._lock = threading.Lock()
        self._stopped = False

    def advance(self, steps: int) -> None:
        with self._lock:
            if self._stopped:
                raise _Stopped
            self._done += steps
            if self._progress is not None:
                self._progress(self._done, self._total)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True


@contextmanager
def workers(threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool whose threads compute on one core each; PyTorch's own setting is restored afterwards."""
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown()
        torch.set_num_threads(before)
