"""The report: claims, figures and provenance as one Markdown file and one HTML file that needs nothing else.

It holds no numbers of its own: all it prints comes from the claims, the runs' records and the pictures it is given.
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from theory.claims import Claim
from theory.runs import RunRecord, write_atomic

TITLE = "The covariance a regulariser asks for is the metric the planner gets"
LEAD = (
    "Each statement below was computed by the command named at the end of this page: closed forms against independent "
    "brute force, and a two-dimensional world model trained for this report."
)
_STYLE = Path(__file__).with_name("report.css")
_IMAGE_WIDTH_DPI = 300 / 1.35


@dataclass(frozen=True)
class Picture:
    """A figure in the report: its PNG file and what it shows."""

    name: str
    caption: str
    path: Path


@dataclass(frozen=True)
class Report:
    """Everything a report shows.

    Attributes
    ----------
    claims
        The claims judged.
    pictures
        Figures, in order.
    runs
        Records of the runs behind the measured claims and the figures.
    facts
        Provenance, label → text: command, commit, run time, machine.
    versions
        Package versions.
    remarks
        Sentences that belong under the verdict, such as what a quick report leaves out.
    """

    claims: Sequence[Claim]
    pictures: Sequence[Picture]
    runs: Sequence[RunRecord]
    facts: dict[str, str]
    versions: dict[str, str]
    remarks: Sequence[str] = field(default=())

    @property
    def missed(self) -> list[Claim]:
        """Claims that missed their tolerance."""
        return [claim for claim in self.claims if not claim.passed]

    @property
    def verdict(self) -> str:
        """One sentence."""
        if not self.missed:
            return f"All {len(self.claims)} claims hold within their tolerances."
        labels = "; ".join(claim.label for claim in self.missed)
        return f"{len(self.missed)} of {len(self.claims)} claims missed their tolerance: {labels}."


def write_report(report: Report, folder: Path) -> tuple[Path, Path]:
    """Write ``report.md`` and ``report.html`` into ``folder``, each under a temporary name first.

    Raises
    ------
    ValueError
        If the folder cannot be written or a picture cannot be read.
    """
    markdown, html = folder / "report.md", folder / "report.html"
    texts = {markdown: to_markdown(report, folder), html: to_html(report)}
    for path, text in texts.items():
        write_atomic(path, text)
    return markdown, html


def format_number(value: float) -> str:
    """Four significant digits, without a zero's sign or needless decimals."""
    return f"{value + 0.0:.4g}" if math.isfinite(value) else str(value)


def sections(claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    """Claims by how they were checked, in the order given; measured ones by sweep."""
    groups: dict[str, list[Claim]] = {}
    for claim in claims:
        if claim.status != "seen in the trained toy":
            name = claim.status.capitalize()
        elif claim.label.startswith("T9"):
            name = "Seen in the trained toy: finite-weight theory, no fitted number"
        else:
            name = f"Seen in the trained toy: {claim.label.split(',')[0]}"
        groups.setdefault(name, []).append(claim)
    return groups


def _expected(claim: Claim) -> str:
    return ("" if claim.relation == "=" else f"{claim.relation} ") + format_number(claim.expected)


def _run_rows(runs: Sequence[RunRecord]) -> list[tuple[str, str, str]]:
    return [
        (run.folder.name, f"{run.seconds:.1f} s", json.dumps(_compact(run.settings), ensure_ascii=False))
        for run in runs
    ]


def _compact(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with a list of cases, which repeat each other, replaced by the values that occur in it."""
    compact: dict[str, Any] = {}
    for name, value in settings.items():
        if name == "cases" and isinstance(value, list) and all(isinstance(case, dict) for case in value):
            for key in dict.fromkeys(key for case in value for key in case if key != "seed"):
                compact[key] = list(dict.fromkeys(case[key] for case in value if key in case))
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            compact[name] = [_compact(item) for item in value]
        else:
            compact[name] = value
    return compact


def to_markdown(report: Report, folder: Path) -> str:
    """The report as Markdown; pictures are links relative to ``folder``."""

    def cell(text: str) -> str:
        return text.replace("|", "\\|").replace("\n", " ")

    lines = [f"# {TITLE}", "", LEAD, "", f"**{report.verdict}**", ""]
    lines += [line for remark in report.remarks for line in (remark, "")]
    lines += ["## Claims", ""]
    for name, claims in sections(report.claims).items():
        lines += [
            f"### {name}",
            "",
            "| claim | status | expected | measured | tolerance | pass |",
            "|---|---|--:|--:|--:|---|",
        ]
        for claim in claims:
            note = f" *{claim.note}*" if claim.note else ""
            text = f"**{claim.label}.** {claim.statement}{note} ({claim.source})"
            cells = [text, claim.status, _expected(claim), *map(format_number, (claim.measured, claim.tolerance))]
            lines.append("| " + " | ".join(map(cell, cells)) + f" | {'yes' if claim.passed else '**no**'} |")
        lines.append("")
    lines += ["## Figures", ""] if report.pictures else []
    for picture in report.pictures:
        link = Path(os.path.relpath(picture.path, folder)).as_posix()
        lines += [f"![{cell(picture.name)}]({link})", "", picture.caption, ""]
    lines += ["## How this was made", "", "| | |", "|---|---|"]
    lines += [f"| {cell(name)} | {cell(text)} |" for name, text in report.facts.items()]
    lines += [f"| versions | {cell(', '.join(f'{name} {version}' for name, version in report.versions.items()))} |", ""]
    if report.runs:
        lines += ["| run | time | settings and seeds |", "|---|--:|---|"]
        lines += [
            f"| {cell(name)} | {seconds} | `{cell(settings)}` |" for name, seconds, settings in _run_rows(report.runs)
        ]
        lines.append("")
    return "\n".join(lines)


def to_html(report: Report) -> str:
    """The report as one HTML document: style inside, pictures as data URIs, no script, no external resource."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(TITLE)}</title>",
        f"<style>{_STYLE.read_text(encoding='utf-8')}</style></head><body><main>",
        f'<h1>{escape(TITLE)}</h1><p class="lead">{escape(LEAD)}</p>',
        f'<p class="verdict {"bad" if report.missed else "good"}">{escape(report.verdict)}</p>',
        *(f"<p>{escape(remark)}</p>" for remark in report.remarks),
    ]
    if report.pictures:
        parts.append("<h2>Figures</h2>")
        parts += [figure_html(picture) for picture in report.pictures]
    parts.append("<h2>Claims</h2>")
    for name, claims in sections(report.claims).items():
        parts += [f"<h3>{escape(name)}</h3>", _claims_table(claims)]
    parts.append("<h2>How this was made</h2>")
    facts = report.facts | {"versions": ", ".join(f"{name} {version}" for name, version in report.versions.items())}
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts.items())
    parts.append(f'<div class="wide"><table>{rows}</table></div>')
    if report.runs:
        head = '<tr><th>run</th><th class="number">time</th><th>settings and seeds</th></tr>'
        body = "".join(
            f'<tr><td>{escape(name)}</td><td class="number">{seconds}</td><td><code>{escape(settings)}</code></td></tr>'
            for name, seconds, settings in _run_rows(report.runs)
        )
        parts.append(f'<h3>Runs</h3><div class="wide"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>')
    parts.append("</main></body></html>\n")
    return "\n".join(parts)


def figure_html(picture: Picture) -> str:
    """A picture with its caption, as a data URI."""
    content = _read(picture.path)
    # A PNG's width in pixels stands in bytes 16 to 19; it is shown a third larger than in print.
    width = round(int.from_bytes(content[16:20], "big") * 96 / _IMAGE_WIDTH_DPI)
    image = base64.b64encode(content).decode("ascii")
    return (
        f'<figure><span class="card"><img width="{width}" alt="{escape(picture.caption, quote=True)}" '
        f'src="data:image/png;base64,{image}"></span>'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}.") from None


def _claims_table(claims: Sequence[Claim]) -> str:
    columns = {"claim": "", "status": "", "expected": "number", "measured": "number", "tolerance": "number", "pass": ""}
    head = "".join(f'<th class="{kind}">{name}</th>' for name, kind in columns.items())
    body = "".join(map(_claim_row, claims))
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _claim_row(claim: Claim) -> str:
    note = f"{claim.note} " if claim.note else ""
    numbers = (_expected(claim), format_number(claim.measured), format_number(claim.tolerance))
    row, mark, word = ("", "good", "yes") if claim.passed else ("missed", "bad", "no")
    return (
        f'<tr class="{row}"><td class="claim"><strong>{escape(claim.label)}.</strong> {escape(claim.statement)}'
        f'<span class="note">{escape(note)}Source: {escape(claim.source)}.</span></td>'
        f'<td class="status">{escape(claim.status)}</td>'
        + "".join(f'<td class="number">{escape(number)}</td>' for number in numbers)
        + f'<td><span class="mark {mark}">{word}</span></td></tr>'
    )
