"""A results folder with small synthetic runs of the toy's sweeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from toy_rows import diagonal_rows, example, kappa_rows, noise_rows, overcomplete_rows

from theory.runs import open_run


def write_results(root: Path, origin: str = "synthetic") -> Path:
    sweeps = {
        "noise-sweep": noise_rows(seeds=5, origin=origin),
        "kappa-sweep": kappa_rows(seeds=5, origin=origin),
        "overcomplete": overcomplete_rows(origin=origin),
        "diagonal": diagonal_rows(origin=origin),
    }
    for name, rows in sweeps.items():
        with open_run(root / "toy2d" / name, {"experiment": name, "seeds": 5}) as run:
            run.write_rows(rows)
            if name == "noise-sweep":
                run.write_file("example.npz", lambda path: np.savez_compressed(path.open("wb"), **example()))
    return root


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return write_results(tmp_path / "results")


@pytest.fixture
def measured_results(tmp_path: Path) -> Path:
    """The same rows with the origin "measured", for what refuses synthetic ones."""
    return write_results(tmp_path / "results", origin="measured")
