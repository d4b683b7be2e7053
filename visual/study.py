"""A study: every recording, training, evaluation and diagnosis that a comparison needs; what is missing is run.

A study is a list of jobs, each one command of ``python -m visual`` with its run folder. A job is finished when its
folder holds a finished run on the same recording, here or among published rows; the others run as processes of one
thread each, several at a time, in the order of the list as soon as what they need is there. Killing the study loses
nothing: finished jobs stay finished, and an interrupted training goes on from its last resume state.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import IO

from theory.runs import RunRecord, ensure_writable, finished_run
from visual.checkpoint import FOLDER, weights_hash
from visual.experiment import run_folder
from visual.manifest import MANIFEST_FILE, read_manifest
from visual.planning import Protocol
from visual.success import plan_folder
from visual.tasks import get_task
from visual.variants import Variant, variants

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # On Windows, where two studies are not kept apart.
    fcntl = None

STAGES = ("collect", "advise", "train", "plan", "diagnose", "ceiling")
#: A diagnosis of the quick preset shows that every part runs.
_QUICK_DIAGNOSIS = (
    "cases=6",
    "candidates.random=6",
    "candidates.samples=12",
    "candidates.goals=2",
    "candidates.grid=7",
)
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Job:
    """One command of a study.

    Attributes
    ----------
    stage
        One of :data:`STAGES`.
    name
        What a reader calls it; unique in the study.
    arguments
        Of ``python -m visual``, the command first.
    folder
        The run's folder, or the recording's.
    needs
        Names of jobs that must be finished before.
    recording
        Folder of the recording that the run must be of.
    checkpoint
        Folder of the training run whose weights it opens, if it does.
    """

    stage: str
    name: str
    arguments: tuple[str, ...]
    folder: Path
    needs: tuple[str, ...] = ()
    recording: Path | None = None
    checkpoint: Path | None = None


@dataclass(frozen=True)
class Study:
    """What a comparison consists of.

    Attributes
    ----------
    tasks, kappas, seeds
        One model per task, κ and training seed.
    preset, protocol, pairs
        Names of preset and protocol; planning pairs per model, or ``None`` for the protocol's.
    ceiling_pairs
        Pairs of the planner's ceiling, 0 for none.
    changes
        Values by setting of the preset: one model per task, κ, seed and combination of them
        (:mod:`visual.variants`).
    stages
        Which stages, out of :data:`STAGES`.
    data, out
        Where recordings and run folders lie.
    published
        Folder of published runs, laid out like ``out``, or ``None``.
    """

    tasks: tuple[str, ...]
    kappas: tuple[float, ...]
    seeds: tuple[int, ...]
    preset: str
    protocol: Protocol
    pairs: int | None = None
    ceiling_pairs: int = 0
    changes: Mapping[str, Sequence[int | float]] = field(default_factory=dict)
    stages: tuple[str, ...] = STAGES
    data: Path = Path("data")
    out: Path = Path("results/visual")
    published: Path | None = None

    def __post_init__(self) -> None:
        for name in ("tasks", "kappas", "seeds", "stages"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"A study needs at least one entry in {name} and none twice; got {list(values)}.")
        for stage in self.stages:
            if stage not in STAGES:
                raise ValueError(f"There is no stage {stage!r}; the stages are {', '.join(STAGES)}.")
        for task in self.tasks:
            get_task(task)
        if any(not 1 <= kappa < math.inf for kappa in self.kappas):
            raise ValueError(f"kappas must be at least 1 and finite, but they are {list(self.kappas)}.")
        folders = [run_folder(self.out, "", kappa, 0, "").name.split("-")[0] for kappa in self.kappas]
        for name in folders:
            if folders.count(name) > 1:
                raise ValueError(f"The kappas {list(self.kappas)} are too close: two share the folder {name}.")
        if any(seed < 0 for seed in self.seeds):
            raise ValueError(f"seeds must not be negative, but they are {list(self.seeds)}.")
        if self.ceiling_pairs < 0 or (self.pairs is not None and self.pairs < 1):
            raise ValueError("pairs must be at least 1 and ceiling_pairs at least 0.")
        variants(self.preset, self.changes)

    def jobs(self) -> list[Job]:
        """Every job, in the order in which they are preferred: by seed, so that each κ has one model first."""
        found = [job for task in self.tasks for job in self._of_task(task)]
        return [job for job in found if job.stage in self.stages]

    def _of_task(self, task: str) -> Iterator[Job]:
        recording = self.data / task / self.preset
        where = (f"task={task}", f"preset={self.preset}")
        collect = Job("collect", f"collect {task}", ("collect", *where, f"data={recording}"), recording)
        yield collect
        yield Job(
            "advise",
            f"advise {task}",
            ("advise", *where, f"data={recording}", f"out={self.out}"),
            self.out / task / f"advice-{self.preset}",
            (collect.name,),
            recording,
        )
        first_diagnosis: tuple[str, ...] = ()
        for seed in self.seeds:
            for variant in variants(self.preset, self.changes):
                for kappa in [kappa for kappa in self.kappas if variant.applies(kappa)]:
                    for job in self._of_model(task, kappa, seed, variant, first_diagnosis):
                        yield job
                        if job.stage == "diagnose":
                            first_diagnosis = first_diagnosis or (job.name,)
        if self.ceiling_pairs:
            yield Job(
                "ceiling",
                f"ceiling {task}",
                (
                    "plan",
                    *where,
                    f"protocol={self.protocol.name}",
                    "cost=simulator",
                    f"protocol.pairs={self.ceiling_pairs}",
                    f"data={recording}",
                    f"out={self.out}",
                ),
                plan_folder(self.out, task, 1.0, 0, self.preset, self.protocol, "simulator"),
                (collect.name,),
                recording,
            )

    def _of_model(
        self, task: str, kappa: float, seed: int, variant: Variant, first_diagnosis: tuple[str, ...]
    ) -> Iterator[Job]:
        recording = self.data / task / self.preset
        model = " ".join(
            [f"{task} κ={kappa:g} seed={seed}", *(f"{name}={value:g}" for name, value in variant.settings)]
        )
        which = (
            *(f"task={task}", f"preset={self.preset}", *variant.arguments),
            *(f"kappa={kappa:g}", f"seed={seed}", f"data={recording}", f"out={self.out}"),
        )
        folder = run_folder(self.out, task, kappa, seed, variant.name)
        train = Job("train", f"train {model}", ("train", *which), folder / "train", (f"collect {task}",), recording)
        yield train
        pairs = () if self.pairs is None else (f"protocol.pairs={self.pairs}",)
        yield Job(
            "plan",
            f"plan {model}",
            ("plan", *which, f"protocol={self.protocol.name}", *pairs),
            plan_folder(self.out, task, kappa, seed, variant.name, self.protocol),
            (train.name,),
            recording,
            train.folder,
        )
        yield Job(
            "diagnose",
            f"diagnose {model}",
            ("diagnose", *which, *(_QUICK_DIAGNOSIS if self.preset == "quick" else ())),
            folder / "diagnose",
            # The first one also executes the candidates that all of them share.
            (train.name, *first_diagnosis),
            recording,
            train.folder,
        )

    def finished(self, job: Job) -> bool:
        """Whether a job's run lies in its folder, or among the published ones, and is of the present recording.

        Raises
        ------
        ValueError
            If a run in ``out`` is damaged, is of another recording than the one in ``data``, has fewer planning pairs
            than are asked for, or is of other weights than those trained here.
        """
        if job.stage == "collect":
            return (job.folder / MANIFEST_FILE).is_file()
        record = finished_run(job.folder)
        if record is not None:
            self._check(job, record)
            return True
        if self.published is None:
            return False
        record = finished_run(self.published / job.folder.relative_to(self.out))
        return record is not None and self._of_present_recording(job, record) and self._has_pairs(job, record)

    def missing(self) -> list[Job]:
        """Jobs to run: the unfinished ones, and those whose recording or weights an unfinished one opens."""
        jobs = self.jobs()
        wanted = {job.name for job in jobs if not self.finished(job)}
        for job in jobs:
            if job.name in wanted and job.checkpoint is not None and not (job.checkpoint / FOLDER).is_dir():
                wanted |= {other.name for other in jobs if other.folder == job.checkpoint}
        # A published run needs no recording, unless something is still to be run on it or recordings are all one wants.
        needed = {job.recording for job in jobs if job.name in wanted}
        alone = self.stages == ("collect",)
        return [job for job in jobs if job.name in wanted and (job.stage != "collect" or alone or job.folder in needed)]

    def _check(self, job: Job, record: RunRecord) -> None:
        if not self._of_present_recording(job, record):
            raise ValueError(
                f"{job.folder} holds a run on another recording than {job.recording}; record it again with the same "
                "seed, or use another out."
            )
        if not self._has_pairs(job, record):
            raise ValueError(
                f"{job.folder} holds fewer than the {self._pairs(job)} planning pairs that are asked for; plan again "
                "with force=true, or use another out."
            )
        source = job.checkpoint
        if source is None or finished_run(source) is None or not (source / FOLDER).is_dir():
            return
        if weights_hash(source) != record.settings.get("weights_sha256"):
            raise ValueError(
                f"{job.folder} holds a run with other weights than those in {source}, which was trained again; "
                "compute it again with force=true, or use another out."
            )

    def _pairs(self, job: Job) -> int | None:
        if job.stage == "plan":
            return self.protocol.pairs if self.pairs is None else self.pairs
        return self.ceiling_pairs if job.stage == "ceiling" else None

    def _has_pairs(self, job: Job, record: RunRecord) -> bool:
        """Pairs are taken in one order, so a run with more of them holds those that are asked for."""
        wanted, protocol = self._pairs(job), record.settings.get("protocol")
        return wanted is None or not isinstance(protocol, dict) or int(protocol.get("pairs", wanted)) >= wanted

    @staticmethod
    def _of_present_recording(job: Job, record: RunRecord) -> bool:
        if job.recording is None or not (job.recording / MANIFEST_FILE).is_file():
            return True
        return record.settings.get("data_sha256") == read_manifest(job.recording).sha256


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    began: float = field(default_factory=time.monotonic)


class Report:
    """What a study says while it runs; :func:`run` calls it."""

    def started(self, job: Job, log: Path) -> None:
        """A job started; its output goes to ``log``."""

    def ended(self, job: Job, seconds: float, words: str, failed: bool) -> None:
        """A job ended; ``words`` is the last line it wrote."""

    def waiting(self, running: Sequence[Job]) -> None:
        """Called a few times per second while jobs run."""


def run(study: Study, *, workers: int = 0, report: Report | None = None) -> list[Job]:
    """Run what is missing; return the jobs that were run.

    Parameters
    ----------
    study
        The study.
    workers
        Processes at a time, each with one thread for numerical libraries; 0 is one per core.
    report
        Told of every start and end.

    Raises
    ------
    ValueError
        If a job failed: the others are run nevertheless, except those that need it.
    """
    if workers < 0:
        raise ValueError(f"workers must be at least 0, but it is {workers}.")
    workers = workers or os.cpu_count() or 1
    report = report or Report()
    missing = study.missing()
    logs = study.out / "study"
    ensure_writable(logs)
    pending, running, failures = list(missing), list[_Running](), dict[str, str]()
    try:
        while pending or running:
            unfinished = {job.name for job in pending} | {item.job.name for item in running}
            blocked = {job.name for job in pending if any(need in failures for need in job.needs)}
            for job in [job for job in pending if job.name in blocked]:
                failures[job.name] = "what it needs failed"
                pending.remove(job)
            ready = [job for job in pending if not any(need in unfinished for need in job.needs)]
            for job in ready[: workers - len(running)]:
                pending.remove(job)
                try:
                    running.append(_start(job, logs))
                except ValueError as error:
                    failures[job.name] = str(error)
                    report.ended(job, 0.0, str(error), True)
                    continue
                report.started(job, _log_path(job, logs))
            time.sleep(_POLL_SECONDS)
            report.waiting([item.job for item in running])
            for item in [item for item in running if item.process.poll() is not None]:
                running.remove(item)
                item.log.close()
                words = _last_line(_log_path(item.job, logs))
                failed = item.process.returncode != 0
                if failed:
                    failures[item.job.name] = words
                report.ended(item.job, time.monotonic() - item.began, words, failed)
    finally:
        for item in running:
            item.process.terminate()
        for item in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                item.process.wait(timeout=20)
            item.process.kill()
            item.log.close()
    if failures:
        first, words = next(iter(failures.items()))
        raise ValueError(f"{len(failures)} of {len(missing)} jobs failed; the first was {first}: {words}")
    return missing


def command_of(job: Job) -> list[str]:
    """The process that runs a job."""
    quiet = () if job.stage == "advise" else ("progress=false",)
    threads = () if job.stage in ("collect", "advise") else ("threads=1",)
    return [sys.executable, "-m", "visual", *job.arguments, *threads, *quiet]


def _log_path(job: Job, logs: Path) -> Path:
    return logs / f"{job.name.replace(' ', '-').replace('κ=', 'k').replace('seed=', 's')}.log"


def _start(job: Job, logs: Path) -> _Running:
    # One thread each: on models this small several threads mostly wait, and two processes use two cores fully.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    log = _log_path(job, logs).open("ab")
    _lock(job, log)
    log.truncate(0)
    process = subprocess.Popen(
        command_of(job), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
    )
    return _Running(job, process, log)


def _lock(job: Job, log: IO[bytes]) -> None:
    """Hold a job's log for its process, which inherits it and so holds it longer than a study that is killed."""
    if fcntl is None:
        return
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        log.close()
        raise ValueError(
            f"{job.name} is already being run, by another study or by what is left of one that was killed; wait until "
            f"it ends ({log.name} is its log)."
        ) from None


def _last_line(path: Path) -> str:
    lines = [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else "it wrote nothing"
