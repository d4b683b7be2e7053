"""Runs at rest: a folder with ``run.json`` (how) and ``rows.parquet`` (what), never half-written, never mixed.

Every file is written under a temporary name in the same folder and renamed; ``run.json`` comes last and holds the
SHA-256 of each other file. So a folder is finished exactly when ``run.json`` exists and its hashes match, whenever the
process was killed, and a forced recomputation leaves the earlier run whole until it is itself complete.

This module stands in ``theory`` because ``toy2d`` and ``visual`` share it and never import each other; it holds no
mathematics and no public formula.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

RUN_FILE = "run.json"
ROWS_FILE = "rows.parquet"
_TEMPORARY = ".anisowm-tmp-"
#: No run lasts that long between writing a file and its end, on this machine or another.
_ABANDONED_SECONDS = 7 * 24 * 3600
#: A path that starts at the root of the file system, as an argument or as the value of one.
_ABSOLUTE = re.compile(r"(?<![^\s=,\[\"'])/[^\s,\]\"']+")
_PACKAGES = ("anisowm", "numpy", "scipy", "sympy", "torch", "pandas", "pyarrow", "matplotlib", "stable-worldmodel")


@dataclass(frozen=True)
class RunRecord:
    """What ``run.json`` says of a finished run.

    Attributes
    ----------
    folder
        Where the run lies (not stored: a folder may be moved).
    settings
        All settings and seeds, as JSON values. Two runs are the same run if these are equal.
    files
        SHA-256 of each file of the run, by name.
    versions, machine, commit
        Package versions; processor, cores and threads; git commit, with ``+dirty`` when the tree had changes, or
        ``None`` outside a checkout.
    command, started, seconds
        The command line, the start as an ISO 8601 time in UTC, and the wall-clock duration in seconds.
    """

    folder: Path
    settings: dict[str, Any]
    files: dict[str, str]
    versions: dict[str, str]
    machine: dict[str, Any]
    commit: str | None
    command: str
    started: str
    seconds: float


@dataclass
class OpenRun:
    """A run being computed; its files become visible, all of them, when the ``with`` block ends without an error."""

    folder: Path
    settings: dict[str, Any]
    _pending: dict[str, Path] = field(default_factory=dict)

    def write_rows(self, rows: pd.DataFrame) -> None:
        """Store tidy rows as ``rows.parquet``."""
        if rows.empty:
            raise ValueError(f"The run in {self.folder} has no rows to write.")
        self.write_file(ROWS_FILE, lambda path: rows.to_parquet(path, index=False))

    def write_file(self, name: str, write: Callable[[Path], object]) -> None:
        """Store another file: ``write`` gets a temporary path with the suffix of ``name``."""
        if Path(name).name != name or name == RUN_FILE:
            raise ValueError(f"{name!r} is not a name for a file of a run.")
        temporary = _temporary_path(self.folder, Path(name).suffix)
        self._pending[name] = temporary
        write(temporary)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``, with its suffix, to write to; renamed if the block ends without an error.

    Raises
    ------
    ValueError
        If the folder cannot be created, or it or the file cannot be written.
    """
    ensure_writable(path.parent)
    temporary = None
    try:
        temporary = _temporary_path(path.parent, path.suffix)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write ``content`` (text as UTF-8) to ``path`` by :func:`replacing`, whose errors it raises."""
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def ensure_writable(folder: Path) -> None:
    """Create ``folder`` and try a write in it.

    Raises
    ------
    ValueError
        If that fails, so that a run does not find out after its work is done.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".writable-"):
            pass
    except OSError as error:
        raise ValueError(f"The folder {folder} cannot be written: {error.strerror or error}.") from None


@contextlib.contextmanager
def open_run(folder: str | Path, settings: Mapping[str, Any], *, force: bool = False) -> Iterator[OpenRun]:
    """Compute a run into ``folder``; its files appear together at the end, or not at all.

    Parameters
    ----------
    folder
        The run's folder; created if absent. Checked for writing before the work starts.
    settings
        All settings and seeds, JSON-serialisable.
    force
        Replace a finished run. Without it, a finished run in the folder is an error (see :func:`finished_run`).

    Raises
    ------
    ValueError
        If the folder cannot be written, or holds a finished run and ``force`` is false.
    """
    folder = Path(folder)
    normal = _normal(settings)
    ensure_writable(folder)
    if (folder / RUN_FILE).is_dir():
        raise ValueError(f"{folder / RUN_FILE} is a folder, where the run's record must lie; remove it.")
    if not force and finished_run(folder, normal) is not None:
        raise ValueError(f"{folder} holds a finished run with these settings; use force to compute it again.")
    run = OpenRun(folder, normal)
    started, clock = datetime.now(UTC), time.perf_counter()
    try:
        yield run
        files = {name: _sha256(path) for name, path in run._pending.items()}
        record = RunRecord(
            folder=folder,
            settings=normal,
            files=files,
            versions=package_versions(),
            machine=machine(),
            commit=git_commit(),
            command=command_line(),
            started=started.isoformat(timespec="seconds"),
            seconds=round(time.perf_counter() - clock, 3),
        )
        content = {name: value for name, value in asdict(record).items() if name != "folder"}
        for name, path in run._pending.items():
            path.replace(folder / name)
        write_atomic(folder / RUN_FILE, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise ValueError(f"The run in {folder} could not be written: {error.strerror or error}.") from None
    finally:
        for path in run._pending.values():
            path.unlink(missing_ok=True)


def finished_run(folder: str | Path, settings: Mapping[str, Any] | None = None) -> RunRecord | None:
    """Return the record of the finished run in ``folder``, or ``None`` if there is none.

    A folder without ``run.json`` holds no finished run, whatever else lies there: its run was killed and starts clean.

    Raises
    ------
    ValueError
        If ``settings`` are given and differ (the first difference is named), if ``run.json`` is damaged, or if a file
        is missing or differs from its hash.
    """
    folder = Path(folder)
    path = folder / RUN_FILE
    try:
        if not path.exists():
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
        record = RunRecord(folder=folder, **content)
        _check_types(record)
    except PermissionError:
        raise ValueError(f"{path} cannot be read: permission denied.") from None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{path} is damaged; compute the run again with force.") from None
    for name, expected in record.files.items():
        if not (folder / name).is_file():
            raise ValueError(
                f"{folder / name} is missing though {RUN_FILE} lists it; compute the run again with force."
            )
        if _sha256(folder / name) != expected:
            raise ValueError(
                f"{folder / name} is not the file that {RUN_FILE} describes; compute the run again with force."
            )
    if settings is not None:
        wanted = _normal(settings)
        for key in [*wanted, *record.settings]:
            if wanted.get(key) != record.settings.get(key):
                raise ValueError(
                    f"{folder} holds a run with {key} = {record.settings.get(key)!r}, not {wanted.get(key)!r}; "
                    "use force to replace it, or another folder."
                )
    return record


def _check_types(record: RunRecord) -> None:
    """``TypeError`` unless the values have the types that readers rely on."""
    texts: list[object] = [record.command, record.started, *record.files.values(), *record.versions.values()]
    if record.commit is not None:
        texts.append(record.commit)
    typed = (
        all(isinstance(text, str) for text in texts)
        and isinstance(record.settings, dict)
        and isinstance(record.machine, dict)
        and isinstance(record.seconds, int | float)
    )
    if not typed:
        raise TypeError("A value has the wrong type.")


def read_run(folder: str | Path) -> RunRecord:
    """Return the record of a finished run; ``ValueError`` if ``folder`` holds none."""
    record = finished_run(folder)
    if record is None:
        raise ValueError(f"{Path(folder)} holds no finished run ({RUN_FILE} is missing).")
    return record


def read_rows(folder: str | Path) -> pd.DataFrame:
    """Return the rows of a finished run, verified against the hash in ``run.json``.

    Raises
    ------
    ValueError
        If the folder holds no finished run, no rows, or rows that cannot be read.
    """
    import pandas as pd

    record = read_run(folder)
    path = record.folder / ROWS_FILE
    if ROWS_FILE not in record.files:
        raise ValueError(f"The run in {record.folder} has no {ROWS_FILE}.")
    try:
        return pd.read_parquet(path)
    except Exception as error:
        raise ValueError(f"{path} is not a readable Parquet file ({type(error).__name__}).") from None


def describe_finished(record: RunRecord) -> str:
    """One sentence that says a finished run was found and is not computed again."""
    commit = f", commit {record.commit[:12]}" if record.commit else ""
    return f"{record.folder} is finished ({record.started}{commit}); nothing to do. Use --force to compute it again."


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that can change a number."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def machine() -> dict[str, Any]:
    """Processor, cores, and the thread count of PyTorch if it is loaded: rows are bit-equal only at the same count."""
    torch = sys.modules.get("torch")
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads() if torch is not None else None,
    }


def git_commit() -> str | None:
    """Commit of the checkout of this file, with ``+dirty`` if tracked files differ; ``None`` outside a checkout."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True, timeout=20
        )
        status = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip() + ("+dirty" if status.stdout.strip() else "")


def command_line() -> str:
    """The command as a reader would type it: ``python -m package …`` with no path of this machine."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    name = f"-m {spec.name.removesuffix('.__main__')}" if spec is not None else Path(sys.argv[0]).name
    return portable_command(" ".join(["python", name, *sys.argv[1:]]))


def portable_command(command: str) -> str:
    """A command without absolute paths: each is relative to the current folder, or only its last part behind ``…/``."""
    return _ABSOLUTE.sub(lambda match: _portable_path(Path(match[0])), command)


def _portable_path(path: Path) -> str:
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else f"…/{path.name}"


def _normal(settings: Mapping[str, Any]) -> dict[str, Any]:
    try:
        normal = json.loads(json.dumps(dict(settings), allow_nan=False))
    except (TypeError, ValueError):
        raise ValueError("settings must be JSON values (finite numbers, strings, lists, dictionaries).") from None
    return dict(normal)


def _temporary_path(folder: Path, suffix: str) -> Path:
    """A new empty file; those that killed processes left in the folder a week ago are removed."""
    for left in folder.glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                left.unlink()
    handle, name = tempfile.mkstemp(dir=folder, prefix=_TEMPORARY, suffix=suffix)
    os.close(handle)
    path = Path(name)
    # mkstemp makes files private; a result should have the permissions any new file gets.
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
