"""dpem fit: files of every kind, the ledger, dry runs, what is printed and written."""

import json
import os

import numpy as np
import pytest
from running_dpem import LEDGER, NAMES, charged, dpem

from dpem import Ledger
from dpem.persistence import load_model

MIXTURE = ("fit", "symmetric-mixture", "patients.csv", "--sigma", "0.5")
PRICE = ("--epsilon", "0.4", "--delta", "4e-4")
PAID = (*PRICE, "--ledger", LEDGER, "--dataset", "patients")

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize("data", ["patients.csv", "patients.parquet", "patients.arrow"])
def test_every_kind_of_file(data):
    done = dpem("fit", "symmetric-mixture", data, "--sigma", "0.5", *PRICE)
    assert done.code == 0, done.err
    model = load_model("model.json")
    assert model.coef_.shape == (3,)
    assert (model.epsilon, model.delta, model.sigma_) == (0.4, 4e-4, 0.5)
    assert list(model.feature_names_in_) == NAMES
    assert "(0.4, 0.0004)-differentially private" in done.out
    assert "no --ledger: this fit spends" in done.err


@pytest.mark.parametrize(
    ("model", "data"), [("symmetric-regression", "mixed.csv"), ("missing-regression", "missing.parquet")]
)
def test_regressions_take_a_target_and_columns(model, data):
    done = dpem("fit", model, data, "--target", "outcome", "--columns", "height, age", "--sigma", "0.5", *PRICE)
    assert done.code == 0, done.err
    assert list(load_model("model.json").feature_names_in_) == ["height", "age"]


def test_fits_are_charged_until_the_budget_is_spent():
    first = dpem(*MIXTURE, *PAID, "--report", "report.html")
    assert first.code == 0, first.err
    assert "spends epsilon = 0.4, delta = 0.0004 of patients in sqlite:///" in first.err
    assert "epsilon = 1 of 1 is left at delta = 0.001 before it and 0.75 after it" in first.err
    *_, spent, left, head, model, report = first.out.splitlines()
    assert spent == "This fit spent epsilon = 0.4, delta = 0.0004."
    assert left.startswith("At delta = 0.001, 1 fit of patients spent epsilon = ")
    assert left.endswith(" of 1; one more may use up to 0.75.")
    state = Ledger(LEDGER).state("patients")
    assert (head, model, report) == (
        f"Head of the ledger: {state.head}",
        "The model is in model.json.",
        "The report is in report.html.",
    )
    with open("report.html", encoding="utf-8") as file:
        assert file.read().startswith("<!DOCTYPE html>")
    assert [charge.outcome for charge in Ledger(LEDGER).history("patients")] == ["answered"]

    second = dpem(*MIXTURE, *PAID, "--out", "second.json")
    assert second.code == 0, second.err
    assert charged() == 2

    third = dpem(*MIXTURE, "--epsilon", "0.9", "--delta", "4e-4", *PAID[4:], "--out", "third.json")
    assert third.code == 4
    assert "this fit needs epsilon=0.9" in third.err
    assert "allows one more fit up to" in third.err
    assert third.err.count("\n") == 1
    assert charged() == 2
    assert not os.path.exists("third.json")


def test_the_ledger_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("DPEM_LEDGER", LEDGER)
    assert dpem(*MIXTURE, *PRICE, "--dataset", "patients").code == 0
    assert charged() == 1


def test_json_of_a_fit():
    done = dpem(*MIXTURE, *PAID, "--json")
    document = done.json
    assert done.err == ""
    assert document["data"] == {"path": "patients.csv", "rows": 600, "columns": 3}
    assert document["price"]["epsilon"] == 0.4
    assert document["ledger"]["dataset"] == "patients"
    assert document["ledger"]["left_after"] == pytest.approx(document["left"])
    assert document["ledger"]["left_before"] > document["left"]
    model = load_model("model.json")
    assert {name: values[0] for name, values in document["fitted"].items()} == dict(
        zip(NAMES, model.coef_, strict=True)
    )
    assert document["plan"] == {**model.plan_.to_dict(), "feasible": True}
    assert document["guarantee"] == str(model.guarantee_)
    assert document["warnings"] == []


def test_a_dry_run_shows_the_price_and_spends_nothing():
    before = sorted(os.listdir())
    done = dpem(*MIXTURE, *PAID, "--dry-run")
    assert done.code == 0, done.err
    assert "Plan for symmetric-mixture" in done.out
    assert "A fit would spend" in done.out
    assert "Nothing was spent." in " ".join(done.out.split())  # the path of the ledger decides where lines break
    assert charged() == 0
    assert sorted(os.listdir()) == before
    assert dpem(*MIXTURE, "--epsilon", "3", "--delta", "4e-4", *PAID[4:], "--dry-run").code == 4


def test_existing_files_are_kept_unless_forced():
    with open("model.json", "w", encoding="utf-8") as file:
        file.write("precious")
    done = dpem(*MIXTURE, *PAID)
    assert (done.code, done.err) == (
        6,
        "dpem: error: 'model.json' exists already; choose another file with --out, or replace it with --force.\n",
    )
    assert charged() == 0
    assert dpem(*MIXTURE, *PAID, "--force").code == 0
    load_model("model.json")


def test_a_start_of_numbers():
    done = dpem(*MIXTURE, *PRICE, "--start", "0.5,0.5,0")
    assert done.code == 0, done.err
    np.testing.assert_array_equal(load_model("model.json").start, [0.5, 0.5, 0.0])


def test_the_published_method_with_an_equal_start():
    done = dpem(*MIXTURE, *PRICE, "--method", "published", "--start", "equal")
    assert done.code == 0, done.err
    assert load_model("model.json").plan_.settings["method"] == "published"


def test_warnings_are_one_line_each():
    done = dpem(*MIXTURE, "--epsilon", "0.4", "--delta", "0.01", "--dry-run")
    assert done.code == 0, done.err
    done = dpem(*MIXTURE, "--epsilon", "0.4", "--delta", "0.01")
    lines = [line for line in done.err.splitlines() if "delta=0.01 is not below 1/n" in line]
    assert len(lines) == 1
    assert lines[0].startswith("dpem: warning: ")
    assert "UserWarning" not in done.err


def test_a_charged_model_that_cannot_be_written_is_written_elsewhere(monkeypatch):
    from dpem.cli import files

    real = files.save_model

    def full(model, path, scaler=None):
        if path == "model.json":
            raise OSError("'model.json' cannot be written: no space left on device.")
        real(model, path, scaler)

    monkeypatch.setattr(files, "save_model", full)
    done = dpem(*MIXTURE, *PAID, "--json")
    assert done.code == 6
    error = done.json["error"]
    assert error["charged"] is True
    kept = error["message"].partition("the model that was paid for is in ")[2].partition(": move")[0]
    assert load_model(kept).coef_.shape == (3,)


def test_a_model_that_cannot_be_written_anywhere_is_printed(monkeypatch):
    from dpem.cli import files

    def full(model, path, scaler=None):
        raise OSError("no space left on device.")

    monkeypatch.setattr(files, "save_model", full)
    done = dpem(*MIXTURE, *PAID)
    assert done.code == 6
    kept = json.loads(done.err.partition("the model that was paid for is ")[2].rstrip(".\n"))
    assert kept["fitted"]["theta"]["support"] == [0, 1, 2]


def test_a_model_is_fitted_to_scaled_columns():
    with open("bounds.json", "w", encoding="utf-8") as file:
        json.dump({name: [-5, 5] for name in NAMES}, file)
    scale = dpem("scale", "patients.csv", "--bounds", "bounds.json", *PAID)
    assert scale.code == 0, scale.err
    done = dpem(*MIXTURE, *PRICE, "--scaler", "scaler.json", "--report", "report.html")
    assert done.code == 0, done.err
    assert charged() == 1
    assert "both together are (" in done.out
    whole = done.out.partition("both together are (")[2].partition(",")[0].strip()
    with open("report.html", encoding="utf-8") as file:
        page = file.read()
    assert "model and scaling together" in page
    assert f"ε = {whole}" in page or f"({whole}, " in page
    predicted = dpem("predict", "model.json", "patients.csv", "--scaler", "scaler.json", "--out", "p.csv")
    assert predicted.code == 0, predicted.err
    scaler, model = load_model("scaler.json"), load_model("model.json")
    del scaler.feature_names_in_, model.feature_names_in_
    rows = scaler.transform(np.loadtxt("patients.csv", delimiter=",", skiprows=1))
    found = np.loadtxt("p.csv", delimiter=",", skiprows=1)[:, 0]
    np.testing.assert_array_equal(found, model.predict(rows))


def test_json_and_dry_run_of_a_scaler():
    command = ("scale", "patients.parquet", "--bounds", "-5,5", *PAID, "--json")
    assert dpem(*command, "--dry-run").json["dry_run"] is True
    assert charged() == 0
    assert set(dpem(*command).json["fitted"]) == set(NAMES)
    assert charged() == 1


def test_diagnostics_are_in_the_text_and_in_the_json(monkeypatch):
    """Warnings are printed on standard error, notes with the results; machines get both."""
    from dpem.fitting.diagnostics import Diagnostic
    from dpem.paper import DPSymmetricMixture

    found = (Diagnostic("collinear", "note", "Two columns are nearly collinear.", "Drop one of them."),)
    monkeypatch.setattr(DPSymmetricMixture, "diagnostics_", found, raising=False)
    done = dpem(*MIXTURE, *PAID)
    assert "Note: Two columns are nearly collinear. Drop one of them." in done.out
    machine = dpem(*MIXTURE, *PAID, "--out", "b.json", "--json").json["diagnostics"]
    assert [(one["code"], one["severity"]) for one in machine] == [("collinear", "note")]


def test_estimates_are_rounded_to_their_standard_errors():
    from dpem.cli.fit import ascii_number

    values = ((-60.118, 0.191), (1234.6, 52.0), (0.0055214, 0.0209), (2.0, 0.0))
    assert [ascii_number(value, error) for value, error in values] == ["-60.12", "1235", "0.006", "2"]
