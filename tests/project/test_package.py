"""The project as a package.

1. ``import theory`` is light: no torch, pandas, sympy or scipy.optimize, and every listed submodule exists.
2. The wheel builds, installs in a fresh environment and imports there, and carries ``py.typed`` and the data files.
3. Imports flow one way: theory → toy2d → figures.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_import_theory_is_light(tmp_path: Path) -> None:
    script = (
        "import sys, theory\n"
        "heavy = {'torch', 'pandas', 'sympy', 'scipy.optimize', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "import theory.metric, theory.target, theory.reachable, theory.regret, theory.ordering\n"
        "heavy = {'torch', 'pandas', 'sympy', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    run(sys.executable, "-c", script, cwd=tmp_path)


def test_every_listed_submodule_exists() -> None:
    import theory

    for name in theory.__all__:
        assert getattr(theory, name) is not None
    with pytest.raises(AttributeError, match="no attribute"):
        _ = theory.absent


def test_wheel_installs_and_imports_in_a_fresh_environment(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist", ROOT)
    (wheel,) = (tmp_path / "dist").glob("anisowm-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"theory/py.typed", "toy2d/py.typed", "figures/py.typed"} <= names
    published = {path.relative_to(ROOT).as_posix() for path in (ROOT / "figures" / "published").glob("*.csv")}
    assert published <= names
    assert not any(name.startswith(("tests/", "benchmarks/", "results/")) for name in names)

    # Dependencies come from the environment under test: downloading PyTorch again would only test the network.
    run(sys.executable, "-m", "venv", tmp_path / "fresh")
    python = tmp_path / "fresh" / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-deps", "--no-index", wheel)
    purelib = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    here = run(sys.executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    # A .pth is processed after the environment's own folder, so the wheel's copy is the one that is found.
    (Path(purelib) / "dependencies.pth").write_text(here + "\n")
    script = (
        "import theory, toy2d, figures, theory.regret, theory.regularizer\n"
        f"assert all(m.__file__.startswith({purelib!r}) for m in (theory, toy2d, figures)), theory.__file__\n"
        "print(theory.regret.mean_line_regret([[16 / 49, 0], [0, 1]]))\n"
    )
    assert abs(float(run(python, "-c", script, cwd=tmp_path)) - 9 / 56) < 1e-12


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [("theory", {"toy2d", "visual", "figures"}), ("toy2d", {"visual", "figures"}), ("visual", {"toy2d", "figures"})],
)
def test_imports_flow_one_way(package: str, forbidden: set[str]) -> None:
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                names = [node.module]
            assert not {name.split(".")[0] for name in names} & forbidden, path
