"""The report.

1. Every claim appears in both files with status, expected, measured, tolerance and verdict; a missed one is named.
2. The HTML needs nothing but itself, is well formed, and escapes what it is given.
3. Markdown links the pictures by relative paths that exist.
"""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from figures.report import Picture, Report, format_number, sections, to_html, to_markdown, write_report
from theory.claims import Claim
from theory.runs import RunRecord

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def make_report(tmp_path: Path, missed: bool = False) -> Report:
    picture = tmp_path / "figures" / "fig.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_bytes(PNG)
    claims = [
        Claim(
            "T6 mean, 2-D", "A mean <of> 9/56 | exactly.", "checked against brute force", 9 / 56, 9 / 56, 1e-9, "here"
        ),
        Claim(
            "κ sweep, minimum", "Smallest at c.", "seen in the trained toy", 3.0625, 3.0625, 1e-3, "ours", note="n = 10"
        ),
        Claim("Noise sweep, error", "Falls.", "seen in the trained toy", 3.0, 2.0 if missed else 4.0, 0.0, "p", "≥"),
    ]
    run = RunRecord(tmp_path / "toy2d" / "kappa-sweep", {"seeds": [0, 1]}, {}, {}, {}, "abc", "python", "2026", 12.34)
    facts = {"command": "python -m figures reproduce", "git commit": "abc <def>", "run time": "61 s"}
    return Report(claims, [Picture("fig", "A caption & more.", picture)], [run], facts, {"numpy": "2.0"}, ["A remark."])


class Page(HTMLParser):
    """Collects attributes and rows, and checks that tags nest."""

    VOID = ("meta", "img", "br")

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.links: list[str] = []
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.stack):
            self.rows[-1][-1] += data


def parse(html: str) -> Page:
    page = Page()
    page.feed(html)
    page.close()
    assert page.stack == []
    return page


def test_html_has_every_claim(tmp_path: Path) -> None:
    page = parse(to_html(make_report(tmp_path)))
    rows = {row[0].split(".")[0]: row for row in page.rows if len(row) == 6}
    assert rows["claim"] == ["claim", "status", "expected", "measured", "tolerance", "pass"]
    assert rows["T6 mean, 2-D"][1:] == ["checked against brute force", "0.1607", "0.1607", "1e-09", "yes"]
    assert rows["Noise sweep, error"][2:] == ["≥ 3", "4", "0", "yes"]
    assert "A mean <of> 9/56 | exactly." in rows["T6 mean, 2-D"][0]
    assert "n = 10" in rows["κ sweep, minimum"][0]


def test_html_needs_nothing_but_itself(tmp_path: Path) -> None:
    """Mutation: the picture is linked by its path."""
    html = to_html(make_report(tmp_path))
    page = parse(html)
    assert page.links == [f"data:image/png;base64,{base64.b64encode(PNG).decode()}"]
    assert page.tags.isdisjoint({"script", "link", "iframe", "object"})
    assert "url(" not in html
    assert "@import" not in html
    assert "prefers-color-scheme: dark" in html
    assert "abc &lt;def&gt;" in html


def test_a_missed_claim_is_named_in_the_verdict(tmp_path: Path) -> None:
    """Mutation: ``missed`` is always empty."""
    report = make_report(tmp_path, missed=True)
    assert report.verdict == "1 of 3 claims missed their tolerance: Noise sweep, error."
    for text in (to_html(report), to_markdown(report, tmp_path)):
        assert report.verdict in text
    assert "| **no** |" in to_markdown(report, tmp_path)
    assert make_report(tmp_path).verdict == "All 3 claims hold within their tolerances."


def test_markdown(tmp_path: Path) -> None:
    markdown, html = write_report(make_report(tmp_path), tmp_path)
    text = markdown.read_text(encoding="utf-8")
    (link,) = re.findall(r"!\[[^]]*\]\(([^)]*)\)", text)
    assert (tmp_path / link).read_bytes() == PNG
    table = [line for line in text.splitlines() if line.startswith("| **")]
    assert [line.replace("\\|", "").count("|") for line in table] == [7, 7, 7]
    for part in ("python -m figures reproduce", "abc <def>", "61 s", "numpy 2.0", '{"seeds": [0, 1]}', "A remark."):
        assert part in text
    assert html.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_sections_keep_every_claim_once(tmp_path: Path) -> None:
    claims = make_report(tmp_path).claims
    assert [claim for group in sections(claims).values() for claim in group] == list(claims)


@pytest.mark.parametrize(
    ("value", "text"),
    [(9 / 56, "0.1607"), (0.0, "0"), (-0.0, "0"), (3.0, "3"), (1.2346e-12, "1.235e-12"), (float("nan"), "nan")],
)
def test_numbers(value: float, text: str) -> None:
    assert format_number(value) == text


def test_an_unwritable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written"):
        write_report(make_report(tmp_path), tmp_path / "file" / "below")
