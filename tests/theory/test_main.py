"""``python -m theory``: the κ advisor on logs that known systems made, and the claims table.

Claims:

1. On logs of the toy the advisor finds c = 3.0625 within its interval, the plateau 9/56 at κ = 1, and that ΛReg hurts
   above c²; on logs whose noise runs the other way it answers 1 and says that every κ > 1 hurts.
2. Where the data do not settle it, it says so: noise alike in all directions, or too few rows.
3. Parquet, CSV and NPZ with the same transitions give the same advice; so do successive rows of shuffled episodes.
4. A task metric diag(q) moves the best κ to c·q₁/q₂, and to 1 below.
5. Ranges of κ that hurt end where the closed form says.
6. ``claims`` prints every claim and exits with 1 if one fails; ``--help`` imports nothing heavy.
7. Bad input is one sentence on standard error and exit status 2.
"""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import theory.claims
from theory.__main__ import app
from theory._advice import _noise_differs, _worse_ranges, advise
from theory._logs import TransitionLog, read_log
from theory.claims import Claim
from theory.commands import run_app
from theory.estimate import estimate_covariances

C = 3.0625
DEVIATIONS = np.array([1.75, 1.0])


def toy_log(rows: int, noise: Any, seed: int = 0) -> TransitionLog:
    """x' = 0.6x + a + w with Σ = diag(c, 1)."""
    rng = np.random.default_rng(seed)
    states = rng.standard_normal((rows, 2)) * DEVIATIONS
    actions = rng.standard_normal((rows, 2))
    following = 0.6 * states + actions + rng.standard_normal((rows, 2)) * noise
    return TransitionLog(states, following, actions, None, ["0", "1"])


def table(log: TransitionLog) -> pd.DataFrame:
    parts = {"state": log.states, "next_state": log.next_states, "action": log.actions}
    return pd.DataFrame(
        {f"{name}_{index}": rows[:, index] for name, rows in parts.items() for index in range(rows.shape[1])}
    )


# --- 1 to 2. advice --------------------------------------------------------------------------------------------------


def test_toy_logs_lead_to_its_kappa() -> None:
    advice = advise(toy_log(20_000, 0.3), draws=60)
    assert advice.kappa == pytest.approx(C, rel=0.05)
    assert advice.kappa_interval is not None
    assert advice.kappa_interval[0] < C < advice.kappa_interval[1]
    assert advice.regret_at_one == pytest.approx(9 / 56, rel=0.06)
    assert advice.regret_at_one_interval is not None
    assert advice.regret_at_one_interval[0] < 9 / 56 < advice.regret_at_one_interval[1]
    assert advice.regret < 1e-3
    assert len(advice.hurts) == 1
    assert advice.hurts[0][0] == pytest.approx(C**2, rel=0.08)
    assert advice.hurts[0][1] == math.inf
    assert advice.noise_differs
    assert advice.share_above_one == 1.0
    text = " ".join(advice.sentences)
    assert "ΛReg helps" in text
    assert f"above {advice.hurts[0][0]:.3g}" in text
    assert "uncertain" not in text


def test_noise_that_runs_the_other_way_is_told_to_stay_at_one() -> None:
    """Σ_w11/Σ_w22 = 64 > c: prediction puts the high variance on the wrong axis."""
    advice = advise(toy_log(5000, [0.8, 0.1]), draws=30)
    assert advice.kappa == 1.0
    assert advice.kappa_interval == (1.0, 1.0)
    assert advice.regret == advice.regret_at_one
    assert advice.hurts == [(pytest.approx(1.0, abs=1e-3), math.inf)]
    assert advice.share_above_one == 0.0
    text = " ".join(advice.sentences)
    assert "κ = 1 is best" in text
    assert "hurts at every κ > 1" in text


def test_noise_alike_in_all_directions_is_called_uncertain() -> None:
    """N ∝ I: which axis gets the high variance is chance, and a test at 95 % should hardly ever say otherwise.

    Two selected directions differ more than two given ones: exp(−1.96²/2) = 15 % of the logs pass as different.
    """
    passed = []
    for seed in range(150):
        log = toy_log(300, 0.3 * DEVIATIONS, seed)
        estimate = estimate_covariances(log.states, log.next_states, log.actions, resamples=200)
        passed.append(_noise_differs(estimate, 0.95))
    assert np.mean(passed) < 0.25
    advice = advise(toy_log(300, 0.3 * DEVIATIONS, int(np.argmin(passed))), draws=0)
    assert "is uncertain" in advice.sentences[-1]


def test_few_rows_leave_the_draws_divided() -> None:
    """With sixty rows and N ∝ I many logs cannot say whether κ > 1 helps, and the advice counts the draws."""
    divided = 0
    for seed in range(6):
        advice = advise(toy_log(60, 0.3 * DEVIATIONS, seed), draws=40)
        assert advice.share_above_one is not None
        told = f"in {round(40 * advice.share_above_one)} of 40 bootstrap draws" in " ".join(advice.sentences)
        assert told == (0.05 < advice.share_above_one < 0.95)
        divided += told
    assert divided >= 2


def test_isotropic_states_need_no_kappa() -> None:
    log = toy_log(4000, 0.3)
    root = np.linalg.cholesky(np.cov(log.states.T))
    whitened = TransitionLog(
        np.linalg.solve(root, log.states.T).T, np.linalg.solve(root, log.next_states.T).T, log.actions, None, log.names
    )
    advice = advise(whitened, draws=0)
    assert advice.kappa == 1.0
    assert "κ = 1 is right already" in advice.sentences[0]
    assert advice.kappa_interval is None


# --- 3. files --------------------------------------------------------------------------------------------------------


def test_formats_agree(tmp_path: Path) -> None:
    log = toy_log(200, 0.3)
    frame = table(log)
    frame.to_parquet(tmp_path / "log.parquet")
    frame[frame.columns[::-1]].to_csv(tmp_path / "log.csv", index=False)
    np.savez(tmp_path / "log.npz", states=log.states, next_states=log.next_states, actions=log.actions)
    for name in ("log.parquet", "log.csv", "log.npz"):
        read = read_log(tmp_path / name)
        for part in ("states", "next_states", "actions"):
            np.testing.assert_allclose(getattr(read, part), getattr(log, part), rtol=1e-12)
        assert read.episodes is None
        assert read.names == ["0", "1"]


def test_more_than_ten_columns_come_in_numeric_order_and_names_in_the_files(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((5, 12))
    frame = pd.DataFrame(
        {f"{part}_{i}": values[:, i] for part in ("state", "next_state") for i in sorted(range(12), key=str)}
    )
    frame.to_parquet(tmp_path / "many.parquet")
    read = read_log(tmp_path / "many.parquet")
    np.testing.assert_array_equal(read.states, values)
    np.testing.assert_array_equal(read.next_states, values)
    assert read.actions.shape == (5, 0)
    named = pd.DataFrame({"state_y": [1.0, 2], "state_x": [3.0, 4], "next_state_x": [5.0, 6], "next_state_y": [7.0, 8]})
    named.to_csv(tmp_path / "named.csv")
    read = read_log(tmp_path / "named.csv")
    assert read.names == ["y", "x"]
    np.testing.assert_array_equal(read.next_states, [[7, 5], [8, 6]])


def test_successive_rows_of_an_episode_are_transitions(tmp_path: Path) -> None:
    """Three episodes, shuffled, with a step column: 3 × 9 transitions, none across episodes."""
    frames = []
    for episode, start in zip("abc", (0, 100, 200), strict=True):
        steps = np.arange(10)
        frames.append(
            pd.DataFrame(
                {"episode": episode, "step": steps, "state_0": start + steps, "state_1": -steps, "action_0": steps}
            )
        )
    frame = pd.concat(frames).sample(frac=1, random_state=0)
    frame.to_parquet(tmp_path / "episodes.parquet", index=False)
    read = read_log(tmp_path / "episodes.parquet")
    assert read.states.shape == (27, 2)
    np.testing.assert_array_equal(read.next_states - read.states, np.tile([1, -1], (27, 1)))
    np.testing.assert_array_equal(read.actions[:, 0], read.states[:, 0] % 100)
    assert sorted(np.unique(read.episodes)) == ["a", "b", "c"]
    # Without step, rows of one episode keep the file's order, whatever lies between them.
    interleaved = pd.concat(frames).sort_values(["step", "episode"]).drop(columns="step")
    interleaved.to_parquet(tmp_path / "interleaved.parquet", index=False)
    again = read_log(tmp_path / "interleaved.parquet")
    np.testing.assert_array_equal(again.next_states - again.states, np.tile([1, -1], (27, 1)))


# --- 4 to 5. task metric and ranges ----------------------------------------------------------------------------------


def test_task_weights_move_the_best_kappa() -> None:
    log = toy_log(5000, 0.3)
    plain = advise(log, draws=0)
    for weights in ([2.0, 1.0], [1.0, 2.0]):
        expected = plain.kappa * weights[0] / weights[1]
        assert advise(log, weights, draws=0).kappa == pytest.approx(expected, rel=0.02)
    assert advise(log, [1.0, 10.0], draws=0).kappa == 1.0
    shown = advise(log, kappas=(3.5, 7.0), draws=0).curve["kappa"]
    assert {1.0, 2.0, 3.5, 4.0, 7.0, 8.0, 16.0}.issubset(set(shown))
    assert shown.is_monotonic_increasing


@given(center=st.floats(1.2, 8), width=st.floats(0.05, 0.9), depth=st.floats(0.0, 0.5))
@settings(max_examples=40)
def test_ranges_that_hurt_end_where_the_curve_crosses(center: float, width: float, depth: float) -> None:
    """cosh(½ ln(κ/c)) − 1 crosses its value at κ = 1 at c²; a bump in between is found with both its ends.

    Mutation: return the grid's own points (no bisection).
    """

    def closed(kappa: float) -> float:
        return math.cosh(0.5 * math.log(kappa / center)) - 1

    ranges = _worse_ranges(closed, closed(1.0), 100 * center)
    assert ranges == [(pytest.approx(center**2, rel=1e-4), math.inf)]

    left, right = 1 + center, (1 + center) * math.exp(0.2 + width)

    def bumped(kappa: float) -> float:
        return 1.5 if left < kappa < right else 1.0 - depth * (kappa > 1)

    ranges = _worse_ranges(bumped, 1.0, 1000.0)
    assert ranges == [(pytest.approx(left, rel=1e-6), pytest.approx(right, rel=1e-6))]


# --- 6. commands -----------------------------------------------------------------------------------------------------


def test_kappa_command_prints_numbers_and_words(tmp_path: Path) -> None:
    table(toy_log(500, 0.3)).to_parquet(tmp_path / "log.parquet")
    arguments = ["kappa", str(tmp_path / "log.parquet"), "--draws", "20", "--at", "5", "--task-weights", "1,1"]
    runs = [CliRunner().invoke(app, arguments) for _ in range(2)]
    assert runs[0].exit_code == 0
    assert runs[0].output == runs[1].output
    for words in ("500 transitions", "Σ_w", "relative noise 1", "best κ", "mean regret at κ = 1", "ΛReg helps", "T12"):
        assert words in runs[0].output
    wide = toy_log(60, 0.3)
    many = TransitionLog(*(np.random.default_rng(i).standard_normal((60, 9)) for i in range(2)), wide.actions, None, [])
    table(many).to_parquet(tmp_path / "many.parquet")
    result = CliRunner().invoke(app, ["kappa", str(tmp_path / "many.parquet"), "--draws", "0"])
    assert result.exit_code == 0
    assert "Σ, state covariance" not in result.output
    assert "relative noise 9" in result.output


@pytest.mark.parametrize(("measured", "code"), [(1.0, 0), (2.0, 1)])
def test_claims_command_judges(monkeypatch: pytest.MonkeyPatch, measured: float, code: int) -> None:
    found = [
        Claim("T1 sure", "One is one.", "proved symbolically", 1.0, 1.0, 0.0, "derived here"),
        Claim("T2 doubtful", "It is one.", "checked against brute force", 1.0, measured, 0.1, "derived here"),
        Claim("T3 bound", "At most two.", "checked against brute force", 2.0, 1.0, 0.0, "derived here", relation="≤"),
    ]
    monkeypatch.setattr(theory.claims, "exact_claims", lambda: found)
    result = CliRunner().invoke(app, ["claims"], env={"COLUMNS": "160"})
    assert result.exit_code == code
    for claim in found:
        assert claim.label in result.output
        assert claim.statement in result.output
    assert "≤ 2" in result.output
    assert f"{3 - code} of 3 claims hold." in result.output
    assert ("Missed: T2 doubtful." in result.output) == bool(code)
    assert ("FAIL" in result.output) == bool(code)


def test_help_is_light() -> None:
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom theory.__main__ import app\n"
        "for words in (['--help'], ['kappa', '--help'], ['claims', '--help']):\n"
        "    assert CliRunner().invoke(app, words).exit_code == 0\n"
        "print([name for name in ('numpy', 'scipy', 'pandas', 'torch', 'sympy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- 7. bad input ----------------------------------------------------------------------------------------------------


def write(path: Path, frame: pd.DataFrame) -> Path:
    frame.to_parquet(path)
    return path


def bad_files(folder: Path) -> dict[str, tuple[Path, str]]:
    good = table(toy_log(60, 0.3))
    (folder / "text.txt").write_text("x")
    (folder / "broken.parquet").write_text("not parquet")
    (folder / "broken.npz").write_text("not npz")
    (folder / "empty.csv").write_text("")
    np.savez(folder / "lacking.npz", states=np.zeros((5, 2)))
    np.savez(folder / "pickled.npz", states=np.array([None, 1], dtype=object), next_states=np.zeros((2, 2)))
    exact = good.assign(next_state_0=0.5 * good.state_0 + good.action_0, next_state_1=good.state_1)
    return {
        "missing": (folder / "nowhere.csv", "does not exist"),
        "folder": (folder, "must be a .parquet, .csv or .npz"),
        "ending": (folder / "text.txt", "must be a .parquet, .csv or .npz"),
        "broken parquet": (folder / "broken.parquet", "cannot be read as PARQUET"),
        "broken npz": (folder / "broken.npz", "cannot be read as NPZ"),
        "empty csv": (folder / "empty.csv", "cannot be read as CSV"),
        "lacking": (folder / "lacking.npz", "next_states"),
        "pickled": (folder / "pickled.npz", "cannot be read as NPZ"),
        "no states": (
            write(folder / "a.parquet", good.rename(columns=lambda name: "x" + name)),
            "must have columns state_",
        ),
        "no next": (write(folder / "b.parquet", good.filter(regex="^(state|action)")), "next_state_"),
        "other endings": (
            write(folder / "c.parquet", good.rename(columns={"next_state_1": "next_state_2"})),
            "same endings",
        ),
        "nan": (write(folder / "d.parquet", good.assign(state_1=np.nan)), "state_1 must be finite"),
        "text": (write(folder / "e.parquet", good.assign(state_1="left")), "state_1 must"),
        "constant": (write(folder / "f.parquet", good.assign(state_1=1.0)), "(0, 1)"),
        "few": (write(folder / "g.parquet", good.head(6)), "at least 7 rows"),
        "one column": (write(folder / "h.parquet", good.drop(columns=["state_1", "next_state_1"])), "two columns"),
        "noiseless": (write(folder / "i.parquet", exact), "must be noisy"),
        "one row each": (
            write(folder / "j.parquet", good.filter(regex="^state").assign(episode=np.arange(60))),
            "at least two rows",
        ),
    }


@pytest.mark.parametrize(
    "case",
    [
        "missing", "folder", "ending", "broken parquet", "broken npz", "empty csv", "lacking", "pickled", "no states",
        "no next", "other endings", "nan", "text", "constant", "few", "one column", "noiseless", "one row each",
    ],
)  # fmt: skip
def test_bad_files_are_one_sentence_and_status_two(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, words = bad_files(tmp_path)[case]
    monkeypatch.setattr(sys, "argv", ["theory", "kappa", str(path)])
    with pytest.raises(SystemExit) as stopped:
        run_app(app)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert words in error


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--task-weights", "1,two"], "task_weights"),
        (["--task-weights", "1"], "task_weights"),
        (["--task-weights", "1,-1"], "task_weights"),
        (["--at", "0.5"], "kappas"),
        (["--level", "2"], "level"),
        (["--draws", "-1"], "draws"),
    ],
)
def test_bad_options_are_one_sentence_and_status_two(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "log.parquet", table(toy_log(60, 0.3)))
    monkeypatch.setattr(sys, "argv", ["theory", "kappa", str(path), *options])
    with pytest.raises(SystemExit) as stopped:
        run_app(app)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_fresh_process_ends_without_a_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "theory", "kappa", str(tmp_path / "nowhere.npz")], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
