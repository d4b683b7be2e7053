"""The benchmark runs, compares like with like, and reports what it measured; no time is asserted.

1. All contenders on one size: times, ratios, exponents, memory and the share of a training step reach the tables.
2. Cells whose peer needs more than the limit are marked and not run.
3. Contenders estimate the same thing: on large samples their values agree.
4. The page is replaced between its markers only, and a missing device is reported in one sentence.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import bench_regularizer as bench
from benchmarks.regularizer_peers import CONTENDERS, LAMBDA, OURS, PEERS, PUBLISHED, WORLDMODEL, Cell

CPU = torch.device("cpu")
TINY = Cell(2, 16, 4, 8)


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """A report on tiny sizes, put together as the script does, but in this process."""
    sizes = [TINY, *(Cell(**{**bench.vars_of(TINY), axis: 32}) for axis in bench.AXES)]
    times = [bench.time_cell(cell, CONTENDERS, CPU, 1, budget=0.0) for cell in sizes]
    memory = [
        {"name": contender.name, "cell": bench.vars_of(TINY), "bytes": bench.peak_bytes(contender, TINY, CPU)}
        for contender in CONTENDERS
    ]
    return {
        "label": "CPU",
        "device": "cpu",
        "machine": "a machine",
        "versions": "versions",
        "when": "today",
        "threads": [1],
        "times": times,
        "memory": memory,
        "share": bench.training_step_share(CPU, budget=0.0, quick=True),
    }


def test_the_report_reaches_the_tables(monkeypatch: pytest.MonkeyPatch, report: dict[str, Any]) -> None:
    """Claim 1."""
    monkeypatch.setattr(bench, "BASE", TINY)
    text = bench.tables(json.loads(json.dumps(report)))
    rows = [line for line in text.splitlines() if line.startswith("| (2, 16, 4), 8 |")]
    assert len(rows) == 2
    assert len(rows[0].split("|")) == 2 + 3 + 2 * len(PEERS)
    for row in report["times"]:
        for peer in PEERS:
            found = bench.ratio(row, peer.name)
            assert found is not None
            assert found[1] <= found[0] <= found[2]
    assert all(contender.name in text for contender in (OURS, LAMBDA, *PEERS) if contender is not OURS)
    assert text.count(" % with ") == 3


def test_exponent_is_the_slope() -> None:
    rows = [
        {"cell": {**bench.vars_of(bench.BASE), "samples": samples}, "seconds": {"x": [3e-6 * samples**1.5]}}
        for samples in (64, 128, 1024)
    ]
    assert bench.exponent(rows, "samples", "x") == pytest.approx(1.5)


def test_large_cells_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim 2."""
    assert WORLDMODEL.gibibytes(bench.CORNER) > bench.MEMORY_LIMIT_GIB > WORLDMODEL.gibibytes(bench.BASE)
    assert OURS.gibibytes(bench.CORNER) == 0
    monkeypatch.setattr(bench, "MEMORY_LIMIT_GIB", 0.0)
    row = bench.time_cell(TINY, (OURS, WORLDMODEL), CPU, 1, budget=0.0)
    assert list(row["seconds"]) == [OURS.name]
    assert "not run" in bench.milliseconds(row, WORLDMODEL.name)
    assert bench.ratio_text(row, WORLDMODEL.name) == "–"


def test_contenders_estimate_the_same_thing() -> None:
    """Claim 3. LeJEPA's knots are others, so its value is another; it is compared in test_sigreg.py."""
    cell = Cell(3, 200, 6, 1000)
    z = 1.3 * cell.features(CPU).detach()
    values = {contender.name: float(contender.build(6, 1000)(z).detach()) for contender in CONTENDERS}
    for contender in CONTENDERS:
        if contender is not PUBLISHED:
            assert values[contender.name] == pytest.approx(values[OURS.name], rel=0.1)


def test_the_page_is_replaced_between_its_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim 4."""
    page = tmp_path / "page.md"
    begin, end = "<!-- regularizer cpu: begin -->", "<!-- regularizer cpu: end -->"
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(bench, "PAGE", page)
    for text in ("new", "newer"):
        bench.write_page(text, "cpu")
        assert page.read_text(encoding="utf-8") == f"before\n{begin}\n\n{text}\n{end}\nafter\n"
    with pytest.raises(SystemExit, match="must contain the lines"):
        bench.write_page("new", "cuda")


def test_a_missing_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="no CUDA device"):
        bench.main(["--device", "cuda"])
