"""The documentation.

1. ``mkdocs build --strict`` succeeds: no broken link, no missing page, no docstring reference that resolves to nothing.
2. The pages ask no other server for anything they need: scripts, styles and fonts are all local.
3. Formulas reach the page as formulas: KaTeX is shipped and the theory page marks its mathematics for it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_builds_every_page(site: Path) -> None:
    for page in (
        "index.html",
        "theory/index.html",
        "use-it/index.html",
        "benchmarks/index.html",
        "api/theory/index.html",
    ):
        assert (site / page).is_file()


def test_no_other_server_is_asked(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=\"([^\"]+)\"", text)
        loaded += re.findall(r"<link[^>]*rel=\"(?:stylesheet|preload|icon|preconnect)\"[^>]*href=\"([^\"]+)\"", text)
        loaded += re.findall(r"<link[^>]*href=\"([^\"]+)\"[^>]*rel=\"(?:stylesheet|preload|icon|preconnect)\"", text)
        assert loaded
        assert not [address for address in loaded if re.match(r"(https?:)?//", address)], page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_formulas_are_marked_and_the_renderer_is_shipped(site: Path) -> None:
    theory = (site / "theory" / "index.html").read_text(encoding="utf-8")
    assert theory.count('class="arithmatex"') > 100
    assert "vendor/katex/katex.min.js" in theory
    assert (site / "vendor" / "katex" / "katex.min.js").stat().st_size > 100_000
    assert "$" not in re.sub(r"<(script|code)[\s\S]*?</\1>", "", theory), "a formula was left as text"


def test_theory_page_states_every_label() -> None:
    text = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    assert [int(number) for number in re.findall(r"^## T(\d+) ", text, re.MULTILINE)] == list(range(1, 13))
