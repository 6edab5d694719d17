"""The wheel that users install: it holds every module and data file, and works outside the source tree."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import dpem

ROOT = Path(dpem.__file__).parents[2]
PACKAGE = Path(dpem.__file__).parent

USE = """
import numpy as np, dpem
from dpem import registry
assert "site-packages" in dpem.__file__, dpem.__file__
assert {"linear-regression", "symmetric-mixture"} <= set(registry.modules())
rows = np.random.default_rng(0).uniform(0, 1, (2000, 2))
model = dpem.DPLinearRegression(epsilon=float("inf"), delta=1e-6, bounds=(0, 1), y_bounds=(0, 2))
print(model.fit(rows, rows.sum(axis=1)).coef_.round(6).tolist())
"""


def test_the_wheel_holds_every_file_and_works_in_a_clean_environment(tmp_path):
    source = tmp_path / "source"  # a build leaves files behind
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(PACKAGE, source / "src" / "dpem", ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-c", "from setuptools.build_meta import build_wheel; build_wheel('..')"]  # as pip does
    done = subprocess.run(build, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = [p for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert {f"dpem/{p.relative_to(PACKAGE).as_posix()}" for p in modules} <= names

    venv.create(tmp_path / "env", with_pip=False, system_site_packages=False)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(str(Path(sys.modules["numpy"].__file__).parents[1]))  # what dpem depends on
    zipfile.ZipFile(wheel).extractall(site)
    python = tmp_path / "env" / "bin" / "python"
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run([python, "-c", USE], capture_output=True, text=True, cwd=tmp_path, env=clean, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[1.0, 1.0]"
