"""docs/extending.md, followed from an empty folder: a third party's package with a model that has a response."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from test_pages import FENCE, shape

import dpem

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
FILE = re.compile(r"^```\{code-block\} \w+\n:caption: (\S+)\n\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def install(folder: Path) -> None:
    """Write the metadata that pip writes for a package that is installed in place, beside its source."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    metadata = folder / "src" / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in points.items()) for group, points in groups]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("ridge")
    files = dict(FILE.findall(PAGE))
    assert set(files) == {"pyproject.toml", "src/dpem_ridge/__init__.py"}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    install(root)
    return root


#: Runs Python programs and commands of dpem, one after the other, in one process that can import the package.
STEPS = """
import contextlib, io, json, pathlib, runpy, sys, traceback
from click.testing import CliRunner

results = []
for kind, step in json.load(sys.stdin):
    if kind == "dpem":
        from dpem.cli import cli
        done = CliRunner().invoke(cli, step)
        results.append([done.exit_code, done.output])
        continue
    pathlib.Path("step.py").write_text(step)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            runpy.run_path("step.py", run_name="__main__")
            results.append([0, out.getvalue()])
        except BaseException:
            results.append([1, traceback.format_exc()])
print(json.dumps(results))
"""

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

FEW = "ridge-regression few.csv --target score --bounds 0,100 --epsilon 1 --delta 1e-6 --out few.json"


def blocks(language: str) -> list[str]:
    return [body for block_language, body in FENCE.findall(PAGE) if block_language == language]


@pytest.fixture(scope="module")
def results(folder):
    """The exit code and output of the page's Python, of each command of its shell block, and of two further steps."""
    (folder / "few.csv").write_text("age,score\n" + "".join(f"{20 + i % 50},0.5\n" for i in range(3000)))
    [shell] = blocks("sh")
    lines = shell.strip().splitlines()
    assert all(line.startswith("dpem ") for line in lines)
    steps = [("python", "\n".join(blocks("python")))]
    steps += [("dpem", shlex.split(line)[1:]) for line in lines]
    steps += [("python", UNSAVABLE), ("dpem", ["fit", *shlex.split(FEW)])]
    paths = [str(folder / "src"), str(Path(dpem.__file__).parents[1]), os.environ["PYTHONPATH"]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", STEPS]
    done = subprocess.run(
        command, cwd=folder, env=environment, input=json.dumps(steps), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_page_works_as_it_is_written(folder, results):
    python, *commands = results[:-2]
    assert python[0] == 0, python[1]
    [shown] = blocks("text")
    assert shape(shown) == shape(python[1])
    assert [code for code, _ in commands] == [0] * len(commands), commands
    assert "ridge-regression, replayed on 23 neighbours: no fault" in commands[-1][1]
    assert (folder / "shell.html").stat().st_size > 10_000
    assert (folder / "again.html").stat().st_size > 10_000  # of a loaded model, whose errors are computed again
    predicted = np.loadtxt(folder / "predicted.csv", skiprows=1)
    assert np.corrcoef(predicted, np.loadtxt(folder / "people.csv", delimiter=",", skiprows=1)[:, 2])[0, 1] > 0.85


def test_parameters_that_cannot_be_saved_are_refused_before_the_charge(results):
    _, printed = results[-2]
    assert printed.startswith("DPOther cannot be saved: Parameters.moments must be declared as float, int, str, bool")
    assert printed.endswith("it is object. 0\n")


def test_an_omitted_option_keeps_the_constructor_s_default(folder, results):
    """--y-bounds is omitted above: the model's own default (0, 1) holds, and is in the file."""
    assert "y_bounds=(0, 1)" in (folder / "src" / "dpem_ridge" / "__init__.py").read_text()
    assert results[-1][0] == 0, results[-1][1]
    assert '"bounds": [0.0, 1.0]' in re.sub(r"\s+", " ", (folder / "few.json").read_text()).replace("[ ", "[")
