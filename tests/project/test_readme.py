"""The README.

1. Each Python snippet runs as printed, and prints the numbers its comments give.
2. Every make target, link and picture it names exists.
3. The first screen holds the sentence, the equation, a picture and the two commands, in that order.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet_runs_as_printed(number: int) -> None:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(SNIPPETS[number], f"README snippet {number}", "exec"), {})
    printed = [float(line) for line in output.getvalue().split()]
    promised = re.findall(r"print\(.*\)  # ([\d.]+):", SNIPPETS[number])
    assert len(printed) == len(promised)
    for value, text in zip(printed, promised, strict=True):
        decimals = len(text.partition(".")[2])
        assert f"{value:.{decimals}f}" == text


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) >= 2


def test_links_and_pictures_exist() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(targets) > 4
    for target in targets:
        if not target.startswith("https://"):
            assert (ROOT / target).exists(), target


def test_make_targets_exist() -> None:
    for target in set(re.findall(r"make ([a-z]+)", README)):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_first_screen_order() -> None:
    marks = ["**The covariance that a regulariser asks for", "$$", "![", "make reproduce", "make test", "```python"]
    positions = [README.index(mark) for mark in marks]
    assert positions == sorted(positions)
    assert README[: positions[-1]].count("\n") < 40
