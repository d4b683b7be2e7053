"""Claims about a training run in its folder and the command that starts it.

1. A run leaves a checkpoint, its card, the target's logits, the log and one row per log step; nothing of the resume
   state. The card holds what planning needs, and the checkpoint plans as it was measured.
2. A finished run with equal settings is left alone and says so; other settings in its folder are an error, also for a
   run that has only begun.
3. Bad input to ``python -m visual`` is one sentence on standard error and exit status 2; Hydra's folders lie under
   ``results/visual``.
4. Several devices train one model, of which one process writes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from visual_models import tiny_preset

from theory.runs import read_rows, read_run
from visual.__main__ import main
from visual.checkpoint import load_checkpoint, load_target
from visual.data import ClipDataset
from visual.experiment import train
from visual.manifest import Manifest
from visual.tasks import Task

Recorded = Callable[[str], tuple[Task, Manifest]]
ROOT = Path(__file__).resolve().parents[2]
CHANGES: dict[str, Any] = {"name": "quick", "image_size": 64, "encoder_patch": 32, "steps": 8, "probe_every": 4}


def run(manifest: Manifest, out: Path, kappa: float = 2.0, **changes: Any) -> Path:
    options = {name: changes.pop(name) for name in ("force",) if name in changes}
    preset = tiny_preset(**{**CHANGES, **changes})
    return train(
        "tworoom", kappa, preset, 7, data=manifest.folder, out=out, accelerator="cpu", progress=False, **options
    )


def test_a_run_leaves_what_it_should(
    short_recording: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Claims 1 and 2. Mutation: save the model before batch normalisation is estimated anew, or skip the settings."""
    _, manifest = short_recording("tworoom")
    folder = run(manifest, tmp_path)
    assert folder == tmp_path / "tworoom/k2-s7-quick/train"
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoint",
        "log",
        "model.json",
        "rows.parquet",
        "run.json",
        "target_logits.pt",
    ]
    rows = read_rows(folder)
    assert rows["step"].tolist() == [2, 4, 6, 8]
    assert set(rows["kappa"]) == {2.0}
    assert all(len(values) == 8 for values in rows["target_variances"])
    assert rows["probe_r2"].notna().tolist() == [False, True, False, True]
    assert 0 <= rows["wait_share"].max() < 1
    model = load_checkpoint(folder)
    source = ClipDataset(manifest.folder, "train")
    assert model.action_mean is not None
    torch.testing.assert_close(model.action_mean, source.action_mean)
    assert (model.card["task"], model.card["kappa"], model.card["effective_weight"]) == ("tworoom", 2.0, 0.72)
    assert model.card["held_out"]["clips"] == len(ClipDataset(manifest.folder, "validation"))
    assert len(model.card["held_out"]["probe_r2_each"]) == 2
    norm: Any = model.model.projector
    assert int(norm.net[1].num_batches_tracked) == 30
    variances = np.sort(torch.softmax(load_target(folder)["logits"].double(), dim=0).numpy() * 8)[::-1]
    np.testing.assert_allclose(rows["target_variances"].iloc[-1], variances, atol=1e-5)

    before = read_run(folder).started
    capsys.readouterr()
    run(manifest, tmp_path)
    assert "is finished" in capsys.readouterr().out
    assert read_run(folder).started == before
    with pytest.raises(ValueError, match="holds a run with preset"):
        run(manifest, tmp_path, steps=9)
    run(manifest, tmp_path, steps=9, force=True)
    assert read_rows(folder)["step"].tolist() == [2, 4, 6, 8, 9]


def test_a_begun_run_with_other_settings_is_an_error(short_recording: Recorded, tmp_path: Path) -> None:
    """Claim 2. Mutation: do not compare the resume state's settings."""
    _, manifest = short_recording("tworoom")
    with pytest.raises(ValueError, match="collapsed"):
        run(manifest, tmp_path, regularizer_weight=0.0, learning_rate=0.2, opening_steps=1, steps=200, save_every=1)
    assert (tmp_path / "tworoom/k2-s7-quick/train/resume/last.ckpt").is_file()
    with pytest.raises(ValueError, match=r"the state of a run with other settings; use force=true"):
        run(manifest, tmp_path)
    run(manifest, tmp_path, force=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "there is no command 'fly'; the commands are collect, train, plan"),
        (["train"], "task is missing"),
        (["train", "task=chess"], "There is no task 'chess'; choose from"),
        (["train", "task=tworoom", "kapa=2"], "Could not override 'kapa'"),
        (["train", "task=tworoom", "preset=desktop"], "Could not find 'preset/desktop'"),
        (["train", "task=tworoom", "kappa=two"], "kappa must be a number, but it is 'two'"),
        (["train", "task=tworoom", "data=nowhere"], "nowhere does not exist"),
        (["train", "task=tworoom", "kappa=["], "no viable alternative"),
        (["train", "task=tworoom", "threads=0"], "threads must be at least 1"),
        (["plan", "task=tworoom", "protocol.elites=1"], "elites = 1 must lie between 2"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Claim 3. Mutation: let Hydra report errors itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["visual"])
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line]
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert {path.name for path in tmp_path.iterdir()} <= {"results"}


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Claim 3. Mutation: exit with 0 without a command."""
    for arguments, code in (([], 2), (["--help"], 0)):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == code
        assert "task=tworoom preset=laptop" in capsys.readouterr().out


def test_two_processes_train_one_model(short_recording: Recorded, tmp_path: Path) -> None:
    """Claims 3 and 4. Mutation: leave the command out of the arguments of the second process."""
    _, manifest = short_recording("tworoom")
    sizes = {name: value for name, value in tiny_preset(**CHANGES).to_mapping().items() if name != "name"}
    overrides = [f"preset.{name}={'null' if value is None else value}" for name, value in sizes.items()]
    command = [sys.executable, "-m", "visual", "train", "task=tworoom", "preset=quick", "seed=7", "devices=2"]
    result = subprocess.run(
        [*command, "accelerator=cpu", f"data={manifest.folder}", "progress=false", *overrides],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    folder = tmp_path / "results/visual/tworoom/k2-s7-quick/train"
    rows = read_rows(folder)
    assert isinstance(rows, pd.DataFrame)
    assert rows["step"].tolist() == [2, 4, 6, 8]
    assert read_run(folder).settings["world_size"] == 2
    assert result.stdout.count("held-out prediction error") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"results"}
    assert {path.name for path in (tmp_path / "results/visual").iterdir()} == {"hydra", "tworoom"}
