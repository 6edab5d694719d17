"""Every refusal is one sentence with its exit status; nothing is spent or written, and no value of the data shown."""

import json
import os
import re

import pytest
from running_dpem import LEDGER, charged, dpem

from dpem.cli.common import Exit

MIXTURE = ["fit", "symmetric-mixture", "patients.csv"]
PRICE = ["--epsilon", "0.4", "--delta", "4e-4", "--sigma", "0.5"]
LEDGERED = ["--ledger", LEDGER, "--dataset", "patients"]
SECRET = "Wilhelmina"

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture(autouse=True)
def odd_files(folder):
    """Files that must be refused, and one with a name that no message may show."""
    texts = {
        "text.csv": f"age,height,dose\n1,2,3\n4,{SECRET},6\n7,8,9\n",
        "nan.csv": "age,height,dose\n1,2,3\n4,,6\n7,8,9\n",
        "empty.csv": "",
        "header.csv": "age,height,dose\n",
        "rows.xlsx": "PK",
        "broken.parquet": "PAR1 no",
        "short.json": "[1, 2]",
        "edited.json": '{"format": "dpem-model", "format_version": 1}',
        "none.json": "{",
        "notes.txt": "budget",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["fit", "symmetric-mixture"], Exit.USAGE, "DATA, --epsilon and --delta must be given"),
        (["fot"], Exit.USAGE, "There is no command 'fot'; did you mean fit?"),
        (
            ["fit", "linear-regression", "--config", "a.toml"],
            Exit.USAGE,
            "--config stands before the command, as in dpem --config",
        ),
        (["fit", "gauss", "patients.csv", *PRICE], Exit.USAGE, "no model 'gauss'; did you mean gaussian-mixture?"),
        (["fit", "kmeans", "patients.csv", *PRICE], Exit.USAGE, "There is no model 'kmeans'; models are"),
        ([*MIXTURE, "--delta", "1e-4"], Exit.USAGE, "--epsilon must be given, here or in dpem.toml"),
        ([*MIXTURE, *PRICE, "--epsilon", "-1"], Exit.USAGE, "--epsilon must be a positive finite number, got -1"),
        ([*MIXTURE, *PRICE, "--epsilon", "inf"], Exit.USAGE, "--epsilon must be a positive finite number, got inf"),
        ([*MIXTURE, *PRICE, "--epsilon", "much"], Exit.USAGE, "--epsilon must be a number, got 'much'"),
        ([*MIXTURE, *PRICE, "--sparsity", "4"], Exit.USAGE, "--sparsity must be between 1 and"),
        ([*MIXTURE, *PRICE, "--sparsity", "auto"], Exit.USAGE, "--sparsity auto needs --max-sparsity"),
        ([*MIXTURE, *PRICE[:4], "--method", "published"], Exit.USAGE, "--method published needs --sigma"),
        ([*MIXTURE, *PRICE, "--target", "dose"], Exit.USAGE, "--target"),
        (
            ["fit", "missing-regression", "missing.csv", *PRICE],
            Exit.USAGE,
            "--target must be given, here or in dpem.toml: missing-regression needs a response",
        ),
        ([*MIXTURE, *PRICE, "--columns", "age,,dose"], Exit.USAGE, "must be names with commas"),
        ([*MIXTURE, *PRICE, "--out", "patients.csv", "--force"], Exit.USAGE, "must differ from one another"),
        ([*MIXTURE, *PRICE, "--report", "model.json"], Exit.USAGE, "must differ from one another"),
        ([*MIXTURE, *PRICE, "--dataset", "patients"], Exit.USAGE, "--dataset needs a ledger"),
        ([*MIXTURE, *PRICE, "--ledger", LEDGER], Exit.USAGE, "A ledger needs --dataset"),
        ([*MIXTURE, *PRICE, "--ledger", "budget.db", "--dataset", "x"], Exit.USAGE, "must look like"),
        (["fit", "symmetric-mixture", "pateints.csv", *PRICE], Exit.DATA, "pateints.csv"),
        (["fit", "symmetric-mixture", "rows.xlsx", *PRICE], Exit.DATA, "rows.xlsx"),
        (["fit", "symmetric-mixture", "broken.parquet", *PRICE], Exit.DATA, "broken.parquet"),
        (["fit", "symmetric-mixture", "empty.csv", *PRICE], Exit.DATA, "must begin with a line of column names"),
        (["fit", "symmetric-mixture", "header.csv", *PRICE], Exit.DATA, "has a header but no rows"),
        ([*MIXTURE, *PRICE, "--columns", "age,hieght"], Exit.DATA, "has no column 'hieght'; did you mean 'height'?"),
        (
            ["fit", "symmetric-regression", "mixed.csv", "--target", "outcom", *PRICE],
            Exit.DATA,
            "has no column 'outcom'",
        ),
        ([*MIXTURE, *PRICE, "--start", "1,2"], Exit.USAGE, "--start must be a vector of length 3"),
        ([*MIXTURE, *PRICE, "--start", "notes.txt"], Exit.USAGE, "--start must be one of 'equal'"),
        ([*MIXTURE, *PRICE, "--scaler", "edited.json"], Exit.DATA, "cannot be loaded"),
        ([*MIXTURE, *PRICE, "--out", "no/model.json"], Exit.OUTPUT, "its folder does not exist"),
        ([*MIXTURE, *PRICE, *LEDGERED, "--dataset", "patient"], Exit.LEDGER, "dpem ledger open opens it"),
        ([*MIXTURE, *PRICE, "--ledger", "sqlite:///no.db", "--dataset", "x"], Exit.LEDGER, "there is no such file"),
        ([*MIXTURE, *PRICE, "--ledger", "sqlite:///notes.txt", "--dataset", "x"], Exit.LEDGER, "not a database"),
        ([*MIXTURE, *PRICE, *LEDGERED, "--epsilon", "1.5"], Exit.BUDGET, "epsilon=1.5"),
        ([*MIXTURE, *PRICE, "--method", "published"], Exit.PLAN, "--method published needs --start"),
        ([*MIXTURE, "--epsilon", "0.01", "--delta", "1e-4"], Exit.PLAN, "--sigma must be given"),
        (["scale", "patients.csv", "--bounds", "1", *PRICE[:4]], Exit.USAGE, "must be two numbers such as 0,100"),
        (["scale", "patients.csv", "--bounds", "5,1", *PRICE[:4]], Exit.USAGE, "low below high"),
        (["scale", "patients.csv", "--bounds", "short.json", *PRICE[:4]], Exit.DATA, "must contain a JSON object"),
        (["ledger", "open", "--dataset", "x", *PRICE[:4]], Exit.USAGE, "DPEM_LEDGER is not set"),
        (["ledger", "open", "--dataset", "patients", "--ledger", LEDGER, *PRICE[:4]], Exit.LEDGER, "is open already"),
        (
            ["ledger", "open", "--dataset", "x", "--ledger", LEDGER, "--epsilon", "0", "--delta", "1e-4"],
            Exit.USAGE,
            "--epsilon of a dataset must be positive, got 0",
        ),
        (["ledger", "show", "--ledger", LEDGER, "--dataset", "x"], Exit.LEDGER, "dataset 'x' is not open"),
        (["ledger", "history", "--ledger", "mysql://me:secret@h/db"], Exit.USAGE, "must begin with"),
        (
            ["plan", "symmetric-mixture", "--n", "9", "--d", "3", "--delta", "1e-4"],
            Exit.USAGE,
            "--epsilon must be given, or",
        ),
        (
            ["plan", "symmetric-mixture", "--n", "0", "--d", "3", *PRICE],
            Exit.USAGE,
            "--n must be a positive whole number",
        ),
        (["plan", "symmetric-mixture", "--n", "9", "--d", "3", *PRICE, "--csv"], Exit.USAGE, "--csv needs --sweep"),
        (
            ["plan", "symmetric-mixture", "--n", "9", "--d", "3", *PRICE[2:], "--sweep", "epsilon"],
            Exit.USAGE,
            "NAME=V1,V2",
        ),
        (["predict", "edited.json", "patients.csv", "--out", "p.csv"], Exit.DATA, "cannot be loaded"),
        (["predict", "edited.json", "patients.csv", "--out", "p.txt"], Exit.USAGE, "--out must end in .csv"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_refusals(arguments, code, message):
    before = sorted(os.listdir())
    done = dpem(*arguments)
    assert done.code == code, done.err
    assert done.out == ""
    assert message in done.err
    assert re.fullmatch("dpem: error: .*\n", done.err)
    assert SECRET not in done.err
    assert "secret" not in done.err
    machine = dpem(*arguments, "--json")
    error = machine.json["error"]
    assert (machine.code, machine.err, error["code"], error["kind"]) == (code, "", code, code.name.lower())
    assert error["charged"] is False
    assert message in error["message"]
    assert sorted(os.listdir()) == before
    assert charged() == 0


def test_a_missing_value_is_not_refused():
    """A refusal would reveal an entry."""
    done = dpem("fit", "symmetric-mixture", "nan.csv", *PRICE, *LEDGERED, "--anyway")
    assert done.code == 0
    assert charged() == 1


@pytest.mark.parametrize(("place", "message", "fits"), [
    ("dpem.cli.spending.announce", "interrupted; nothing was spent.", 0),
    ("dpem.paper.estimators.base.run_steps", "interrupted; the fit stays charged, and nothing was released.", 1),
])  # fmt: skip
def test_an_interruption_states_whether_the_fit_was_charged(monkeypatch, place, message, fits):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupted)
    done = dpem(*MIXTURE, *PRICE, *LEDGERED)
    assert done.code == Exit.INTERRUPTED
    assert done.err.splitlines()[-1].endswith(message)
    assert charged() == fits
    assert not os.path.exists("model.json")


def test_an_infeasible_plan_is_not_fitted_without_anyway():
    noisy = [*MIXTURE, "--epsilon", "0.01", "--delta", "4e-4", "--sigma", "0.5", *LEDGERED]
    dry = dpem(*noisy, "--dry-run")
    assert (dry.code, dry.err) == (0, "dpem: patients.csv has 600 rows; 3 columns are used: age, height, dose\n")
    assert "Not feasible as it is" in dry.out
    refused = dpem(*noisy)
    assert refused.code == Exit.PLAN
    assert "--anyway overrides this" in refused.err
    assert charged() == 0
    done = dpem(*noisy, "--anyway")
    assert done.code == 0, done.err
    assert done.err.count("expect little more than noise") == 1
    assert charged() == 1


def test_an_unexpected_error_quotes_nothing(monkeypatch):
    def broken(*_, **__):
        raise KeyError(SECRET)

    monkeypatch.setattr("dpem.paper.estimators.base.run_steps", broken)
    done = dpem(*MIXTURE, *PRICE, *LEDGERED, "--json")
    assert done.code == Exit.FAILED
    assert done.json["error"]["charged"] is True
    assert "KeyError" in done.json["error"]["message"]
    assert SECRET not in json.dumps(done.json)
