"""The commands ``python -m toy2d …``.

Claims:
1. ``--help`` is light: it imports neither torch nor pandas.
2. Bad input ends in one sentence on standard error and exit status 2, without a traceback, and nothing is lost.
3. A finished run is skipped with its date; ``--force`` computes it again; a half-written folder starts clean.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from theory.commands import run_app
from toy2d import __main__ as command

ROOT = Path(__file__).resolve().parents[2]
FAST = ["--quick", "--seeds", "1", "--steps", "2", "--threads", "1"]


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Exit status of a command, run in this process."""
    monkeypatch.setattr(sys, "argv", ["toy2d", *arguments])
    with pytest.raises(SystemExit) as stop:
        run_app(command.app)
    assert isinstance(stop.value.code, int)
    return stop.value.code


def test_help_is_light() -> None:
    """Claim 1.

    Mutation: import ``toy2d.sweeps`` at the top of ``toy2d/__main__.py``.
    """
    script = (
        "import sys; from toy2d.__main__ import app\n"
        "try: app(['kappa-sweep', '--help'])\n"
        "except SystemExit as stop: assert stop.code in (0, None)\n"
        "assert not {'torch', 'pandas', 'scipy', 'sympy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for option in ("--seeds", "--steps", "--out", "--threads", "--quick", "--force"):
        assert option in done.stdout


@pytest.mark.parametrize("name", ["noise-sweep", "kappa-sweep", "overcomplete"])
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--seeds", "0"], "seeds must be at least 1, but it is 0."),
        (["--steps", "-5"], "steps must be at least 1, but it is -5."),
        (["--threads", "0"], "threads must be at least 1, but it is 0."),
        (["--out", "/dev/null/run"], "The folder /dev/null/run cannot be written: Not a directory."),
    ],
)
def test_bad_input_is_one_sentence(
    name: str,
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Claim 2: and the folder stays as it was.

    Mutation: raise ``RuntimeError`` in ``check_count``, which ``run_app`` lets through as a traceback.
    """
    out = [] if "--out" in arguments else ["--out", str(tmp_path / "run")]
    assert call(monkeypatch, name, *arguments, *out) == 2
    assert capsys.readouterr().err == f"error: {sentence}\n"
    assert not (tmp_path / "run").exists() or not any((tmp_path / "run").iterdir())


def test_unknown_words_are_usage_errors(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Claim 2: typer's own sentence, status 2."""
    assert call(monkeypatch, "noise-sweep", "--seeds", "ten") == 2
    assert "Invalid value" in capsys.readouterr().err
    assert call(monkeypatch, "other-sweep") == 2


def test_life_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Claims 2 and 3, through one folder.

    Mutation: skip whatever finished run lies there (``finished_run(folder)`` without the settings in ``_run``).
    """
    folder = tmp_path / "run"
    out = ["--out", str(folder)]
    folder.mkdir()
    (folder / "rows.parquet").write_bytes(b"half-written")
    assert call(monkeypatch, "noise-sweep", *FAST, *out) == 0
    assert "example.npz, rows.parquet" in capsys.readouterr().out.replace("\n", "")
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(first) == {"run.json", "rows.parquet", "example.npz"}

    assert call(monkeypatch, "noise-sweep", *FAST, *out) == 0
    said = capsys.readouterr().out
    assert "is finished" in said
    assert json.loads(first["run.json"])["started"][:16] in said

    assert call(monkeypatch, "noise-sweep", *FAST, *out, "--steps", "3") == 2
    assert "holds a run with steps = [2], not [3]" in capsys.readouterr().err
    assert call(monkeypatch, "kappa-sweep", *FAST, *out) == 2
    capsys.readouterr()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first

    (folder / "rows.parquet").write_bytes(b"damaged")
    assert call(monkeypatch, "noise-sweep", *FAST, *out) == 2
    assert "is not the file that run.json describes" in capsys.readouterr().err
    assert call(monkeypatch, "noise-sweep", *FAST, *out, "--force") == 0
    assert (folder / "rows.parquet").read_bytes() == first["rows.parquet"]


def test_quick_plan_is_small() -> None:
    """Claim 3: ``--quick`` keeps every setting and cuts seeds, steps and lines; what is given wins.

    Mutation: let the quick numbers override given ones (``given | options``).
    """
    for name in ("noise-sweep", "kappa-sweep", "overcomplete"):
        full, quick = command.plan(name), command.plan(name, quick=True)
        assert {(c.sigma, c.kappa, c.observation) for _, cases in quick.stacks for c in cases} == {
            (c.sigma, c.kappa, c.observation) for _, cases in full.stacks for c in cases
        }
        assert quick.total_steps * 10 < full.total_steps
        assert command.plan(name, 3, 7, quick=True).settings()["seeds"] == [0, 1, 2]
        assert command.plan(name, 3, 7, quick=True).settings()["steps"] == [7]
