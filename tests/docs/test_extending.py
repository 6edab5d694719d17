"""docs/extending.md, followed from an empty folder: a third party's package with a model that has a response."""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from test_pages import FENCE, shape

import dpem

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
FILE = re.compile(r"^```\{code-block\} \w+\n:caption: (\S+)\n\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def install(folder: Path) -> None:
    """What pip writes for a package that is installed in place: its metadata, beside its source."""
    known = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    notes = folder / "src" / f"{known['name'].replace('-', '_')}-{known['version']}.dist-info"
    notes.mkdir()
    (notes / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {known['name']}\nVersion: {known['version']}\n")
    points = known["entry-points"].items()
    lines = [f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in own.items()) for group, own in points]
    (notes / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("ridge")
    files = dict(FILE.findall(PAGE))
    assert set(files) == {"pyproject.toml", "src/dpem_ridge/__init__.py"}
    for name, text in files.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    install(made)
    return made


def run(folder: Path, *command: str) -> subprocess.CompletedProcess:
    paths = [str(folder / "src"), str(Path(dpem.__file__).parents[1]), os.environ["PYTHONPATH"]]
    scripts = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PATH": scripts}
    return subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, timeout=300, check=False)


def test_the_page_works_as_it_is_written(folder):
    blocks = [(block[1], block[2]) for block in FENCE.finditer(PAGE)]
    python = "\n".join(body for language, body in blocks if language == "python")
    done = run(folder, sys.executable, "-c", python)
    assert done.returncode == 0, done.stderr
    [shown] = [body for language, body in blocks if language == "text"]
    assert shape(shown) == shape(done.stdout)
    [shell] = [body for language, body in blocks if language == "sh"]
    done = run(folder, "bash", "-euo", "pipefail", "-c", shell)
    assert done.returncode == 0, done.stderr
    assert "ridge-regression, replayed on 23 neighbours: no fault" in done.stdout
    assert (folder / "shell.html").stat().st_size > 10_000
    assert (folder / "again.html").stat().st_size > 10_000  # of a loaded model, whose errors are computed again
    assert (folder / "predicted.csv").read_text().count("\n") == 20_001


UNSAVABLE = """
from dataclasses import dataclass
import numpy as np
import dpem_ridge
from dpem import Budget

@dataclass(frozen=True)
class Parameters:
    moments: object

class DPOther(dpem_ridge.DPRidgeRegression):
    pass

budget = Budget(1.0, 1e-5)
try:
    DPOther(epsilon=1.0, delta=1e-6, bounds=(0, 1), budget=budget).fit(np.zeros((50, 2)), np.zeros(50))
except ValueError as refusal:
    print(refusal, budget.n_charges)
"""


def test_parameters_that_no_file_gives_back_are_refused_before_the_charge(folder):
    done = run(folder, sys.executable, "-c", UNSAVABLE)
    assert done.stdout.startswith(
        "DPOther cannot be saved: Parameters.moments must be declared as float, int, str, bool"
    )
    assert done.stdout.endswith("it is object. 0\n"), done.stderr


def test_an_option_that_is_not_given_keeps_the_constructor_s_default(folder):
    """--y-bounds is not given above: the model's own default (0, 1) holds, and is in the file."""
    text = (folder / "src" / "dpem_ridge" / "__init__.py").read_text()
    assert "y_bounds=(0, 1)" in text
    arguments = ("ridge-regression", "--target", "score", "--bounds", "0,100", "--epsilon", "1", "--delta", "1e-6")
    (folder / "few.csv").write_text("age,score\n" + "".join(f"{20 + i % 50},0.5\n" for i in range(3000)))
    done = run(
        folder, sys.executable, "-m", "dpem", "fit", arguments[0], "few.csv", *arguments[1:], "--out", "few.json"
    )
    assert done.returncode == 0, done.stderr
    assert '"bounds": [0.0, 1.0]' in re.sub(r"\s+", " ", (folder / "few.json").read_text()).replace("[ ", "[")
