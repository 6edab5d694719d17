"""A folder of small files, a ledger, and the command in this process."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import csv, feather, parquet

from dpem import Ledger
from dpem.cli import cli

NAMES = ["age", "height", "dose"]
BETA = np.array([0.8, 0.6, 0.0])
N = 600
LEDGER = "sqlite:///budget.db"


@dataclass
class Outcome:
    """What a run of the command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def dpem(*arguments: str) -> Outcome:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert "Traceback" not in result.output
    return Outcome(result.exit_code, result.stdout, result.stderr)


def charged(dataset: str = "patients") -> int:
    return len(Ledger(LEDGER).history(dataset))


def _write(table: pa.Table, stem: str) -> None:
    csv.write_csv(table, f"{stem}.csv")
    parquet.write_table(table, f"{stem}.parquet")
    feather.write_feather(table, f"{stem}.arrow", compression="uncompressed")


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a mixture, two regressions, and a ledger of (1, 1e-3) for patients."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("files"))
        _write_files()
        return Path.cwd()


def _write_files() -> None:
    rng = np.random.default_rng(0)
    sign = rng.choice([-1.0, 1.0], size=N)
    rows = sign[:, None] * BETA + 0.5 * rng.standard_normal((N, 3))
    _write(pa.table(dict(zip(NAMES, rows.T, strict=True))), "patients")
    X = rng.standard_normal((N, 3))
    noise = 0.5 * rng.standard_normal(N)
    _write(pa.table({**dict(zip(NAMES, X.T, strict=True)), "outcome": sign * (X @ BETA) + noise}), "mixed")
    missing = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    columns = {name: pa.array(column, from_pandas=True) for name, column in zip(NAMES, missing.T, strict=True)}
    _write(pa.table({**columns, "outcome": X @ BETA + noise}), "missing")
    Ledger(LEDGER).open("patients", 1.0, 1e-3)


@pytest.fixture
def folder(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files, in the current folder."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPEM_LEDGER", raising=False)
    return tmp_path
