"""Estimators fit, plan, save and report without the packages that the command, files, ledgers and Dask need."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dpem._extras import EXTRAS, needed_by

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

#: A program that makes the import of optional packages fail.
BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""
OPTIONAL = {*EXTRAS, "matplotlib", "pandas", "polars", "psycopg", "statsmodels"}


def core(program, *, check=True):
    """The result of a program in a process that can import the core's requirements only."""
    blocked = BLOCKED.format(blocked=OPTIONAL)
    done = subprocess.run([sys.executable, "-c", blocked + program], capture_output=True, text=True)
    assert not check or done.returncode == 0, done.stderr
    return done


def packages(requirements):
    return {re.match(r"[\w-]+", requirement)[0].lower() for requirement in requirements}


def test_the_core_requires_no_optional_package():
    assert not packages(PROJECT["dependencies"]) & OPTIONAL


@pytest.mark.parametrize(("package", "extra"), sorted(EXTRAS.items()))
def test_the_extra_that_is_named_brings_the_package(package, extra):
    assert package in packages(PROJECT["optional-dependencies"][extra])


def test_the_core_fits_plans_saves_and_reports(tmp_path):
    program = f"""
import warnings
warnings.filterwarnings("ignore", "random_state")
import numpy as np
import dpem
from dpem import Budget, DPGaussianMixture, DPLatentClass, DPLinearRegression, DPMixtureRegression, DPStandardScaler
from dpem.paper import DPSymmetricMixture
rng = np.random.default_rng(0)
X = np.clip(rng.normal(0, 1, (3000, 2)), -3, 3)
y = X @ [1.0, -0.5] + 0.3 * rng.normal(size=3000)
known = dict(epsilon=4.0, delta=1e-5, bounds={{"x0": (-3, 3), "x1": (-3, 3)}})
model = DPLinearRegression(**known, y_bounds=(-6, 6), budget=Budget(4.0, 1e-5)).fit(X, y)
dpem.save_model(model, {str(tmp_path / "model.json")!r})
assert np.array_equal(dpem.load_model({str(tmp_path / "model.json")!r}).coef_, model.coef_)
dpem.write_report(model, {str(tmp_path / "report.html")!r})
assert dpem.plan("gaussian-mixture", n=3000, d=2, n_components=2, **{{**known, "bounds": None}}).steps
DPGaussianMixture(2, **known, random_state=0).fit(X + 1.5 * rng.choice([-1, 1], (3000, 1))).predict(X)
DPSymmetricMixture(epsilon=4.0, delta=1e-5, sigma=1.0, random_state=0).fit(X)
DPStandardScaler(epsilon=1.0, delta=1e-5, bounds=(-3, 3), random_state=0).fit(X)
print(len(model.coef_))
"""
    assert core(program).stdout.strip() == "2"


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("import dpem; dpem.read_table", "read_table needs pyarrow: pip install 'dpem[files]'."),
        ("from dpem.tables import DatasetSource", "DatasetSource needs pyarrow: pip install 'dpem[files]'."),
        ("from dpem import Ledger", "Ledger needs sqlalchemy: pip install 'dpem[ledger]'."),
        ("import dpem.cli", "the command needs click: pip install 'dpem[cli]'."),
        ("import dpem\nwith dpem.progress(): pass", "progress needs tqdm: pip install 'dpem[cli]'."),
    ],
)
def test_one_sentence_names_the_extra_of_a_missing_package(statement, sentence):
    failed = core(statement, check=False)
    assert failed.returncode == 1
    assert failed.stderr.strip().splitlines()[-1] == f"ModuleNotFoundError: {sentence}"


def test_the_command_names_its_extra():
    failed = core("import runpy; runpy.run_module('dpem', run_name='__main__')", check=False)
    assert (failed.returncode, failed.stderr) == (1, "dpem: the command needs click: pip install 'dpem[cli]'.\n")


def test_other_import_errors_are_unchanged():
    with pytest.raises(ModuleNotFoundError, match="No module named 'numpy_2'"), needed_by("the command"):
        raise ModuleNotFoundError("No module named 'numpy_2'", name="numpy_2")
