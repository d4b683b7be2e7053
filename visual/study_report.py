"""What a study shows in the terminal: the jobs with their state, and which of them run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from visual.study import Job, Report, Study


def print_jobs(study: Study, console: Console | None = None) -> None:
    """List every job of a study: finished, or to be run."""
    missing = {job.name for job in study.missing()}
    # A folder is there to be copied, so a narrow terminal or a pipe breaks it and cuts nothing.
    table = Table("job", "state", Column("folder", overflow="fold"), box=None, pad_edge=False)
    for job in study.jobs():
        table.add_row(job.name, "missing" if job.name in missing else "finished", str(job.folder))
    console = console or Console()
    console.print(table)
    console.print(f"{len(missing)} of {len(study.jobs())} jobs are missing.")


class ConsoleReport(Report):
    """A bar over the jobs, the names of those that run, and one line per job that ended.

    Parameters
    ----------
    study
        The study.
    console
        Where to write.
    """

    def __init__(self, study: Study, console: Console | None = None) -> None:
        self._console = console or Console()
        self._total = len(study.missing())
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._bar = self._progress.add_task("study", total=self._total)
        self._ended = 0

    def __enter__(self) -> Self:
        if self._total == 0:
            self._console.print("Everything is finished; nothing to do.")
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def started(self, job: Job, log: Path) -> None:
        """Say so only where no bar shows it."""
        if not self._console.is_terminal:
            self._console.print(f"{job.name}: started, log {log}", highlight=False, soft_wrap=True)

    def ended(self, job: Job, seconds: float, words: str, failed: bool) -> None:
        """One line with the time and what the job said last."""
        self._ended += 1
        state = "failed" if failed else "done"
        minutes, rest = divmod(round(seconds), 60)
        self._console.print(
            f"[{self._ended}/{self._total}] {job.name}: {state} in {minutes} min {rest} s. {words}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        self._progress.update(self._bar, completed=self._ended)

    def waiting(self, running: Sequence[Job]) -> None:
        """Name the jobs that run."""
        self._progress.update(self._bar, description=", ".join(job.name for job in running) or "study")
