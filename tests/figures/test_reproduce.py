"""``python -m figures reproduce`` and ``report``.

1. A plan is trained, judged, drawn and reported: exit status 0 where every claim holds.
2. With κ ignored by the regulariser the same plan exits with status 1 and names the claims that missed.
3. Rows already there are computed again, never replayed, even where they are half-written.
4. ``report`` judges rows on disk, and refuses missing, half-written and synthetic ones with exit status 2.
5. A folder that cannot be written is one sentence and exit status 2 before anything is computed; nothing is lost.
6. ``--quick`` judges exact claims only, and says so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_rows import kappa_rows, noise_rows, overcomplete_rows

from figures import catalog, reproduce
from figures.__main__ import app
from theory.claims import Claim
from theory.commands import run_app
from theory.regularizer import LambdaReg
from theory.runs import open_run, read_rows, read_run
from toy2d import training
from toy2d.sweeps import Sweep, overcomplete_plan
from toy2d.system import STATE_CONDITION
from toy2d.training import Case, TrainSettings


def small_plan() -> reproduce.Plan:
    """The least that carries the claims: two seeds, narrow networks, much noise where ΛReg must feel it."""
    settings = TrainSettings(steps=1000, hidden=8, target_rate=30.0)
    kappas = (1.0, STATE_CONDITION, STATE_CONDITION**2)
    noise = tuple(Case(seed, sigma) for sigma in (0.42, 0.01) for seed in range(2))
    kappa = tuple(Case(seed, 0.75, bound) for bound in kappas for seed in range(2))
    return reproduce.Plan(
        Sweep("noise-sweep", ((settings, noise),), 200),
        Sweep("kappa-sweep", ((settings, kappa),), 200),
        None,
        min_seeds=2,
    )


def tiny_plan() -> reproduce.Plan:
    """As little as can be trained at all; not judged."""
    settings = TrainSettings(steps=2, hidden=4, batch_size=8)
    cases = tuple(Case(seed, sigma) for sigma in (0.3, 0.1) for seed in range(2))
    sweep = Sweep("noise-sweep", ((settings, cases),), 5)
    bounds = tuple(Case(seed, 0.5, bound) for bound in (1.0, 2.0) for seed in range(2))
    return reproduce.Plan(sweep, Sweep("kappa-sweep", ((settings, bounds),), 5), None, min_seeds=None)


@pytest.fixture
def _few_exact_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = Claim("T0", "One.", "checked against brute force", 1.0, 1.0, 0.0, "here")
    monkeypatch.setattr(reproduce, "exact_claims", lambda: [claim])


def run(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        run_app(lambda: app([str(arg) for arg in args], prog_name="figures"))
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.out, printed.err


def assert_sentence(status: int, errors: str, part: str) -> None:
    assert status == 2, errors
    assert errors.startswith("error: ")
    assert part in errors
    assert errors.strip().count("\n") == 0


# 1. and 2. The whole way


@pytest.mark.usefixtures("_few_exact_claims")
def test_a_working_regulariser_exits_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "full_plan", small_plan)
    status, out, errors = run(capsys, "reproduce", "--out", tmp_path)
    assert status == 0, out + errors
    assert "claims hold within their tolerances." in out
    for sweep in ("exact claims", "noise-sweep", "kappa-sweep", "figures"):
        assert sweep in errors
    html, markdown = ((tmp_path / f"report.{kind}").read_text(encoding="utf-8") for kind in ("html", "md"))
    for text in (html, markdown):
        assert "T0" in text
        assert "κ sweep, regret at κ = 3.0625" in text
    assert html.count("data:image/png;base64,") == 2
    for name in ("fig01_separation", "fig_regret_vs_kappa"):
        assert f"](figures/{name}.png)" in markdown
        assert sorted(path.suffix for path in (tmp_path / "figures").glob(f"{name}.*")) == [".csv", ".pdf", ".png"]
    rows = read_rows(tmp_path / "toy2d" / "kappa-sweep")
    assert len(rows) == 6
    assert (rows["origin"] == "measured").all()
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()], "temporary files were left"


class IsotropicReg(LambdaReg):
    """ΛReg that ignores κ."""

    def __init__(self, dim: int, kappa: Any = 2.0, **options: Any) -> None:
        super().__init__(dim, torch.ones_like(torch.as_tensor(kappa)), **options)


@pytest.mark.usefixtures("_few_exact_claims")
def test_a_regulariser_that_ignores_kappa_exits_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "full_plan", small_plan)
    monkeypatch.setattr(training, "LambdaReg", IsotropicReg)
    status, out, _ = run(capsys, "reproduce", "--out", tmp_path)
    assert status == 1, out
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    missed = next(line for line in report.splitlines() if "missed their tolerance" in line)
    for part in (out, missed):
        assert "κ sweep, regret at κ = 3.0625" in part
        assert "Noise sweep, regret" not in part
    assert "| **no** |" in report
    assert (tmp_path / "report.html").exists()


# 3. Never replayed


@pytest.mark.usefixtures("_few_exact_claims")
def test_rows_that_are_there_are_computed_again(tmp_path: Path) -> None:
    """Mutation: ``write_sweep`` only where ``finished_run`` finds nothing."""
    plan = tiny_plan()
    good = {"noise-sweep": noise_rows(origin="measured"), "kappa-sweep": kappa_rows(origin="measured")}
    for sweep in (plan.noise, plan.kappa):
        with open_run(tmp_path / "toy2d" / sweep.name, sweep.settings()) as planted:
            planted.write_rows(good[sweep.name])
    (tmp_path / "toy2d" / "kappa-sweep" / "rows.parquet").write_bytes(b"half-writt")
    assert reproduce.reproduce(tmp_path, plan=plan) == 0
    for sweep in (plan.noise, plan.kappa):
        rows = read_rows(tmp_path / "toy2d" / sweep.name)
        assert len(rows) == len(sweep.stacks[0][1])
        assert (rows["steps"] == 2).all()


@pytest.mark.usefixtures("_few_exact_claims")
def test_an_interrupted_sweep_leaves_the_earlier_run_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tiny_plan()
    reproduce.reproduce(tmp_path, plan=plan)
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("toy2d.sweeps.measure_stack", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce.reproduce(tmp_path, plan=plan)
    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()} == before


# 4. Rows on disk


def with_toy_settings(root: Path) -> Path:
    """The measured rows again, with the settings that a sweep of the toy leaves."""
    training_settings = {"weight": 0.09, "batch_size": 256}
    for name, rows in {
        "noise-sweep": noise_rows(origin="measured"),
        "kappa-sweep": kappa_rows(origin="measured"),
        "overcomplete": overcomplete_rows(origin="measured"),
    }.items():
        old = root / "toy2d" / name
        extra = {path.name: path.read_bytes() for path in old.glob("*.npz")}
        with open_run(old, {"seeds": [0], "stacks": [{"training": training_settings}]}, force=True) as fresh:
            fresh.write_rows(rows)
            for file, content in extra.items():
                fresh.write_file(file, lambda path, content=content: path.write_bytes(content))
    return root


@pytest.mark.usefixtures("_few_exact_claims")
def test_report_judges_rows_on_disk(measured_results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = with_toy_settings(measured_results)
    status, out, _ = run(capsys, "report", "--results", results)
    assert status == 0, out
    text = (results / "report.md").read_text(encoding="utf-8")
    assert "read from disk, not trained for this report" in text
    assert "T9 finite weight, κ sweep" in text
    assert "Over-complete, D = 3" in text
    rows = kappa_rows(origin="measured").assign(regret_pred=0.16)
    with open_run(
        results / "toy2d" / "kappa-sweep", read_run(results / "toy2d" / "kappa-sweep").settings, force=True
    ) as r:
        r.write_rows(rows)
    status, out, _ = run(capsys, "report", "--results", results)
    assert status == 1
    assert "κ sweep, minimum" in out


@pytest.mark.usefixtures("_few_exact_claims")
def test_report_refuses_what_it_cannot_judge(
    measured_results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, errors = run(capsys, "report", "--results", tmp_path / "none")
    assert_sentence(status, errors, "make it with `python -m toy2d noise-sweep`")
    status, _, errors = run(capsys, "report", "--results", measured_results)
    assert_sentence(status, errors, "are not those of a sweep of toy2d")
    results = with_toy_settings(measured_results)
    folder = results / "toy2d" / "kappa-sweep"
    with open_run(folder, read_run(folder).settings, force=True) as run_folder:
        run_folder.write_rows(kappa_rows(origin="synthetic"))
    status, _, errors = run(capsys, "report", "--results", results)
    assert_sentence(status, errors, "kappa_rows must be measured")
    (folder / "rows.parquet").write_bytes(b"PAR1")
    status, _, errors = run(capsys, "report", "--results", results)
    assert_sentence(status, errors, "is not the file that run.json describes")
    (folder / "run.json").write_text("{")
    status, _, errors = run(capsys, "report", "--results", results)
    assert_sentence(status, errors, "is damaged")
    assert not (results / "report.md").exists()


def test_sweeps_of_different_weight_are_not_judged_together(measured_results: Path) -> None:
    results = with_toy_settings(measured_results)
    folder = results / "toy2d" / "kappa-sweep"
    settings = json.loads(json.dumps(read_run(folder).settings).replace("0.09", "0.5"))
    with open_run(folder, settings, force=True) as fresh:
        fresh.write_rows(kappa_rows(origin="measured"))
    with pytest.raises(ValueError, match="must share one regulariser weight"):
        reproduce.report_rows(results)


# 5. Bad folders


@pytest.mark.parametrize("blocked", ["", "figures", "toy2d", "toy2d/kappa-sweep", "toy2d/overcomplete"])
def test_an_unwritable_folder_is_found_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, blocked: str
) -> None:
    """Mutation: check ``folder`` alone."""

    def computed() -> list[Claim]:
        raise AssertionError("Claims were computed before the folders were checked.")

    monkeypatch.setattr(reproduce, "exact_claims", computed)
    path = tmp_path / "results" / blocked if blocked else tmp_path / "results"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a file, not a folder")
    status, _, errors = run(capsys, "reproduce", "--out", tmp_path / "results")
    assert_sentence(status, errors, "cannot be written")
    assert path.read_text() == "a file, not a folder"


# 6. Quick


@pytest.mark.usefixtures("_few_exact_claims")
def test_quick_judges_exact_claims_only_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "quick_plan", tiny_plan)
    status, out, _ = run(capsys, "reproduce", "--quick", "--out", tmp_path)
    assert status == 0
    text = (tmp_path / "quick" / "report.md").read_text(encoding="utf-8")
    for part in (text, out):
        assert "only the exact claims are judged" in part
        assert "All 1 claims hold" in part
    assert "seen in the trained toy" not in text
    assert (tmp_path / "quick" / "figures" / "fig_regret_vs_kappa.pdf").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["quick"]


def test_plans_hold_what_the_claims_need() -> None:
    full, quick = reproduce.full_plan(), reproduce.quick_plan()
    assert quick.min_seeds is None
    assert full.min_seeds == 5
    for plan, seeds in ((full, {"noise": 10, "kappa": 10, "overcomplete": 5}), (quick, {})):
        assert list(plan.sweeps) == [catalog.NOISE_SWEEP, catalog.KAPPA_SWEEP, catalog.OVERCOMPLETE]
        for source, sweep in plan.sweeps.items():
            assert source.path == f"toy2d/{sweep.name}"
        for name, count in seeds.items():
            cases = getattr(plan, name).stacks[0][1]
            assert len({case.seed for case in cases}) == count
    bounds = {case.kappa for case in full.kappa.stacks[0][1]}
    assert {1.0, 1.5, 1.75, 2.0, STATE_CONDITION, 5.36, STATE_CONDITION**2} == bounds
    sigmas = [case.sigma for case in full.noise.stacks[0][1]]
    assert max(sigmas) / min(sigmas) == pytest.approx(30)
    assert {settings.latent_dim for settings, _ in overcomplete_plan().stacks} == {2, 3, 4, 8}
