"""Publishing: finished, measured, small runs are copied to ``figures/measured/``, which is committed."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from figures.catalog import MEASURED, Source
from theory.runs import RUN_FILE, ensure_writable, portable_command, read_rows, read_run

#: Largest file that is published.
MAX_BYTES = 1_000_000


def publish(source: Source, results: Path, measured: Path = MEASURED) -> Path:
    """Copy the finished run of ``source`` to ``measured``; return its new folder.

    Files that the source calls private (weights, frames) stay behind, and the published record does not list them. Its
    command names no absolute path.

    Raises
    ------
    ValueError
        If ``results`` holds no finished run there, its rows are not all measured, a file is larger than 1 MB, or the
        folder cannot be written. What was published before then stays as it was.
    """
    folder = results / source.path
    record = read_run(folder)
    rows = read_rows(folder)
    if "origin" not in rows.columns or (rows["origin"] != "measured").any():
        raise ValueError(f"The rows in {folder} are not all measured (column origin), so they are not published.")
    kept = {name: digest for name, digest in record.files.items() if name not in source.private}
    names = [*kept, RUN_FILE]
    for name in names:
        if (size := (folder / name).stat().st_size) > MAX_BYTES:
            raise ValueError(f"{folder / name} has {size / 1e6:.1f} MB; only files up to 1 MB are published.")
    target = measured / source.path
    ensure_writable(target.parent)
    try:
        # The copy is complete before the old one is moved away.
        staging = Path(tempfile.mkdtemp(dir=target.parent, prefix=".tmp-"))
        try:
            new, old = staging / "new", staging / "old"
            new.mkdir()
            for name in names:
                shutil.copyfile(folder / name, new / name)
            command = portable_command(record.command)
            if kept != record.files or command != record.command:
                content = json.loads((new / RUN_FILE).read_text(encoding="utf-8"))
                content |= {"files": kept, "command": command}
                text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
                (new / RUN_FILE).write_text(text, encoding="utf-8")
            if target.exists():
                target.rename(old)
            try:
                new.rename(target)
            except OSError:
                if old.exists():
                    old.rename(target)
                raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise ValueError(f"{target} cannot be written: {error.strerror or error}.") from None
    return target
