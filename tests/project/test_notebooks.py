"""The notebooks as files; that they run, and that what their text says holds, is tested by executing them (nbmake).

1. There are five, numbered, and each opens with a title and a question.
2. Each checks its own text: it holds assertions, and they were reached when the stored outputs were made.
3. Stored outputs are those of one run from top to bottom: no error, no warning, no path of a machine, no time stamp.
4. Pictures are small enough to be shown, and each notebook draws several.
5. Code is imported, not written there: cells are short.
6. The documentation lists every notebook.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_BYTES = 60_000


def load(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def code(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def text(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)


def test_five_in_order() -> None:
    assert [path.name[:3] for path in NOTEBOOKS] == ["01-", "02-", "03-", "04-", "05-"]


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest) -> dict[str, Any]:
    return load(request.param)


def test_opens_with_a_question(notebook: dict[str, Any]) -> None:
    first = notebook["cells"][0]
    assert first["cell_type"] == "markdown"
    opening = text(first["source"])
    assert re.match(r"# 0[1-5] · \w", opening)
    assert re.search(r"^\*\*.*\?\*\*$", opening, re.MULTILINE), "the question stands in bold below the title"


def test_checks_its_text(notebook: dict[str, Any]) -> None:
    asserts = [line for cell in code(notebook) for line in text(cell["source"]).splitlines() if "assert " in line]
    assert len(asserts) >= 8


def test_outputs_are_of_one_clean_run(notebook: dict[str, Any]) -> None:
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert [cell["execution_count"] for cell in code(notebook)] == list(range(1, len(code(notebook)) + 1))
    for cell in notebook["cells"]:
        assert not cell["metadata"]
    for output in (output for cell in code(notebook) for output in cell["outputs"]):
        assert output["output_type"] in ("stream", "display_data", "execute_result")
        assert output.get("name", "stdout") == "stdout"
        data = {key: value for key, value in output.get("data", {}).items() if not key.startswith("image/")}
        shown = text(output.get("text", "")) + "".join(text(value) for value in data.values())
        assert not re.search(r"(?<![\w/<])/(?:[\w.-]+/)+|[A-Z]:\\|\d{4}-\d\d-\d\d", shown), shown


def test_pictures_are_small(notebook: dict[str, Any]) -> None:
    pictures = [
        base64.b64decode(text(output["data"]["image/png"]))
        for cell in code(notebook)
        for output in cell["outputs"]
        if "image/png" in output.get("data", {})
    ]
    assert len(pictures) >= 3
    assert max(map(len, pictures)) <= MOST_BYTES


def test_cells_are_short(notebook: dict[str, Any]) -> None:
    assert max(len(text(cell["source"]).splitlines()) for cell in code(notebook)) <= 36
    imports = "\n".join(text(cell["source"]) for cell in code(notebook))
    assert re.search(r"^from theory\.", imports, re.MULTILINE)


def test_documentation_lists_every_notebook() -> None:
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    for path in NOTEBOOKS:
        assert f"notebooks/{path.name}" in page
        title = text(load(path)["cells"][0]["source"]).splitlines()[0].removeprefix("# ")
        assert title in page
