"""The report of one visual task: tables and pictures of what was run, as Markdown and as one HTML file."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from figures import catalog, comparison, report
from figures.report import Picture
from figures.tables import markdown
from figures.visual_rows import DIAGNOSE, PLAN, TASKS, TRAIN, VisualRuns
from theory.runs import RUN_FILE, RunRecord, ensure_writable, read_run, write_atomic
from visual.tasks import get_task

_STYLE = Path(report.__file__).with_name("report.css")
LEAD = (
    "LeWM (κ = 1) and AnisoWM (κ > 1), trained by one loop on one recording and judged on the same held-out pairs. "
    "Published numbers in the pictures are the paper's and say so."
)


def write(
    task: str, results: Path, folder: Path | None = None, progress: Callable[[str], object] = print
) -> list[Path]:
    """Write ``report.md`` and ``report.html`` for a task.

    Parameters
    ----------
    task
        Name of the task.
    results
        Folder of runs.
    folder
        Where to write; by default ``<results>/visual/<task>``.
    progress
        Told the name of each picture before it is drawn.

    Returns
    -------
    list of Path
        The two files.

    Raises
    ------
    ValueError
        If there is no such task, none of its runs is finished, or the folder cannot be written.
    """
    title = get_task(task).title
    folder = folder or results / "visual" / task
    # Published runs stand in only where nothing was run: a report never mixes them with one's own.
    own = any((results / "visual" / task).glob(f"*/*/{RUN_FILE}"))
    with catalog.only_results() if own else contextlib.nullcontext():
        return _write(title, task, results, folder, progress)


def _write(title: str, task: str, results: Path, folder: Path, progress: Callable[[str], object]) -> list[Path]:
    found = comparison.sections(results, task)
    if not found:
        raise ValueError(
            f"{results / 'visual' / task} holds no finished run; run `python -m visual study tasks=[{task}]`."
        )
    ensure_writable(folder)
    pictures = _pictures(task, results, folder / "figures", progress)
    words = _words(task, results)
    runs = [read_run(path) for stage in (TRAIN, PLAN, DIAGNOSE) for path in _of(stage, task).folders(results)]
    texts = {
        folder / "report.md": _markdown(title, found, words, pictures, runs, folder),
        folder / "report.html": _html(title, found, words, pictures, runs),
    }
    for path, text in texts.items():
        write_atomic(path, text)
    return list(texts)


def _of(stage: VisualRuns, task: str) -> VisualRuns:
    return replace(stage, task=task)


def _pictures(task: str, results: Path, folder: Path, progress: Callable[[str], object]) -> list[Picture]:
    """Every figure that draws a stage this task has runs of."""
    pictures = []
    for name in catalog.names():
        figure = catalog.get(name)
        stages = [need for need in figure.needs if isinstance(need, VisualRuns)]
        if not isinstance(figure, catalog.Figure) or not stages:
            continue
        # Figures of no task in particular draw those of the paper.
        if any(stage.task != task and (stage.task is not None or task not in TASKS) for stage in stages):
            continue
        if not all(_of(stage, task).sources(results) for stage in stages):
            continue
        progress(f"drawing {name}")
        png = next(path for path in figure.render(results, folder) if path.suffix == ".png")
        pictures.append(Picture(name, figure.caption, png))
    return pictures


def _words(task: str, results: Path) -> list[tuple[str, list[str]]]:
    """What each diagnosis says in words, by the name of its model."""
    said = []
    for path, card in _of(DIAGNOSE, task).cards(results, "summary.json").items():
        sentences = card.get("sentences", [])
        if isinstance(sentences, list) and sentences:
            said.append((Path(path).parent.name, [str(sentence) for sentence in sentences]))
    return said


def _run_rows(runs: Sequence[RunRecord]) -> list[tuple[str, str, str, str]]:
    return [
        (
            f"{run.folder.parent.name}/{run.folder.name}",
            f"{run.seconds / 60:.1f} min",
            (run.commit or "–")[:12],
            json.dumps({key: value for key, value in run.settings.items() if key != "preset"}, ensure_ascii=False),
        )
        for run in runs
    ]


def _markdown(
    title: str,
    found: Sequence[comparison.Section],
    words: Sequence[tuple[str, list[str]]],
    pictures: Sequence[Picture],
    runs: Sequence[RunRecord],
    folder: Path,
) -> str:
    lines = [f"# {title}", "", LEAD, ""]
    for section in found:
        lines += [f"## {section.title}", "", markdown(section.table), section.note, ""]
    if words:
        lines += ["## In words", ""]
        for model, sentences in words:
            lines += [f"**{model}.** {' '.join(sentences)}", ""]
    if pictures:
        lines += ["## Figures", ""]
        for picture in pictures:
            link = Path(os.path.relpath(picture.path, folder)).as_posix()
            lines += [f"![{picture.name}]({link})", "", picture.caption, ""]
    lines += ["## Runs", "", "| run | time | commit | settings |", "|---|--:|---|---|"]
    lines += [f"| {name} | {minutes} | {commit} | `{text}` |" for name, minutes, commit, text in _run_rows(runs)]
    return "\n".join([*lines, ""])


def _html(
    title: str,
    found: Sequence[comparison.Section],
    words: Sequence[tuple[str, list[str]]],
    pictures: Sequence[Picture],
    runs: Sequence[RunRecord],
) -> str:
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}: LeWM and AnisoWM</title>",
        f"<style>{_STYLE.read_text(encoding='utf-8')}</style></head><body><main>",
        f'<h1>{escape(title)}</h1><p class="lead">{escape(LEAD)}</p>',
    ]
    for section in found:
        table = section.table.to_html(index=False, border=0, justify="left")
        parts.append(f'<h2>{escape(section.title)}</h2><div class="wide">{table}</div><p>{escape(section.note)}</p>')
    if words:
        parts.append("<h2>In words</h2>")
        parts += [f"<p><strong>{escape(model)}.</strong> {escape(' '.join(text))}</p>" for model, text in words]
    if pictures:
        parts.append("<h2>Figures</h2>")
        parts += [report.figure_html(picture) for picture in pictures]
    body = "".join(
        f'<tr><td>{escape(name)}</td><td class="number">{minutes}</td><td>{escape(commit)}</td>'
        f"<td><code>{escape(text)}</code></td></tr>"
        for name, minutes, commit, text in _run_rows(runs)
    )
    head = '<tr><th>run</th><th class="number">time</th><th>commit</th><th>settings</th></tr>'
    parts.append(f'<h2>Runs</h2><div class="wide"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>')
    parts.append("</main></body></html>\n")
    return "\n".join(parts)
