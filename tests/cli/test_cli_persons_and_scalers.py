"""dpem with --rows-per-person, and predictions that need the scaler of the fit."""

import json
import os

import pandas as pd
import pytest
from running_dpem import LEDGER, N, charged, dpem

from dpem import Ledger
from dpem.persistence import fingerprint, load_model, save_model

MIXTURE = ("fit", "symmetric-mixture", "patients.csv", "--sigma", "0.5")
PRICE = ("--epsilon", "0.4", "--delta", "4e-4")
SCALE = ("scale", "patients.csv", "--bounds", "-5,5", *PRICE)

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def visits():
    """A dataset whose total counts persons with up to three rows."""
    opened = dpem("ledger", "open", "--ledger", LEDGER, "--dataset", "visits", "--epsilon", "2", "--delta", "1e-3",
                  "--rows-per-person", "3")  # fmt: skip
    assert opened.code == 0, opened.err
    assert "Opened visits with epsilon = 2, delta = 0.001 for a person with up to 3 rows in sqlite:///" in opened.out


def test_a_fit_and_a_scaler_protect_persons(visits):
    ledgered = ("--ledger", LEDGER, "--dataset", "visits", "--rows-per-person", "3")
    scaled = dpem(*SCALE, *ledgered)
    assert scaled.code == 0, scaled.err
    assert "as if all rows of one person with up to 3 rows had been different" in " ".join(scaled.out.split())
    done = dpem(*MIXTURE, *PRICE, *ledgered, "--scaler", "scaler.json", "--report", "report.html", "--anyway")
    assert done.code == 0, done.err
    message = " ".join(done.out.split())
    assert "as if all rows of one person with up to 3 rows had been different" in message
    assert "-differentially private for one person with up to 3 rows." in message
    model = load_model("model.json")
    assert model.rows_per_person == model.plan_.rows_per_person == model.guarantee_.rows_per_person == 3
    with open("report.html", encoding="utf-8") as file:
        assert "one person with up to 3" in file.read()
    assert [charge.rows_per_person for charge in Ledger(LEDGER).history("visits")] == [3, 3]
    lines = dpem("ledger", "show", "--ledger", LEDGER).out.splitlines()
    assert lines[0].split()[:4] == ["dataset", "epsilon", "delta", "rows/person"]
    assert [line.split()[3] for line in lines[1:]] == ["1", "3"]
    (state,) = dpem("ledger", "show", "--ledger", LEDGER, "--dataset", "visits", "--json").json["datasets"]
    assert state["rows_per_person"] == 3
    charges = dpem("ledger", "history", "--ledger", LEDGER, "--dataset", "visits", "--json").json["fits"]
    assert [charge["rows_per_person"] for charge in charges] == [3, 3]


@pytest.mark.parametrize("command", [(*MIXTURE, *PRICE), SCALE, (*MIXTURE, *PRICE, "--dry-run")])
def test_a_total_for_more_rows_of_a_person_refuses_and_spends_nothing(visits, command):
    before = set(os.listdir())
    for rows in ((), ("--rows-per-person", "2")):
        done = dpem(*command, *rows, "--ledger", LEDGER, "--dataset", "visits")
        assert (done.code, done.err.count("\n")) == (4, 1)
        assert "the dataset 'visits' (epsilon=2, delta=0.001) counts one person with up to 3 rows" in done.err
        assert "state at least 3 rows per person" in done.err
    assert charged("visits") == 0
    assert set(os.listdir()) == before


@pytest.mark.parametrize("command", [MIXTURE + PRICE, SCALE, (*MIXTURE, *PRICE, "--dry-run")])
def test_a_wrong_number_of_rows_per_person_is_refused_in_one_line(command):
    for rows, message in (
        ("-4", "--rows-per-person must be a whole number of at least 1, got -4."),
        (str(N + 1), "--rows-per-person must be at most the number of rows (600), got 601."),
        ("two", "--rows-per-person must be a whole number, got 'two'"),
    ):
        done = dpem(*command, "--rows-per-person", rows, "--ledger", LEDGER, "--dataset", "patients")
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert message in done.err
    assert charged() == 0


def test_a_plan_protects_persons():
    size = (
        "plan",
        "symmetric-mixture",
        *["--n", "600", "--d", "3", "--delta", "1e-3", "--epsilon", "1", "--sigma", "0.5"],
    )
    one, many = dpem(*size, "--json").json, dpem(*size, "--rows-per-person", "3", "--json").json
    assert (one["rows_per_person"], many["rows_per_person"]) == (1, 3)
    assert many["prediction"]["median"] > one["prediction"]["median"]
    assert "one person with up to 3" in dpem(*size, "--rows-per-person", "3").out
    refused = dpem(*size, "--rows-per-person", "601")
    assert refused.code == 2
    assert "--rows-per-person must be at most the number of rows (600), got 601." in refused.err


def test_a_refused_total_creates_no_ledger():
    command = ("ledger", "open", "--ledger", "sqlite:///new.db", "--dataset", "x", "--epsilon", "1", "--delta", "1e-4")
    done = dpem(*command, "--rows-per-person", "0")
    assert done.code == 2
    assert "--rows-per-person must be a whole number of at least 1, got 0." in done.err
    assert not os.path.exists("new.db")
    assert dpem(*command, "--rows-per-person", "7", "--json").json["rows_per_person"] == 7


@pytest.fixture
def scaled():
    """scaler.json, and model.json that was fitted to the scaled columns."""
    assert dpem(*SCALE).code == 0
    assert dpem(*MIXTURE, *PRICE, "--scaler", "scaler.json").code == 0


def refused(*arguments):
    before = set(os.listdir())
    done = dpem("predict", *arguments, "--out", "p.csv")
    assert done.code == 3
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert set(os.listdir()) == before
    return done.err


def test_predictions_need_the_scaler_of_the_fit(scaled):
    message = refused("model.json", "patients.csv")
    assert message.endswith(
        "'model.json' was fitted to scaled columns: give the scaler that it was fitted with as --scaler.\n"
    )
    assert dpem(*SCALE, "--out", "other.json").code == 0
    message = refused("model.json", "patients.csv", "--scaler", "other.json")
    assert "'model.json' was fitted with another scaler than the one given as --scaler." in message
    assert dpem("predict", "model.json", "patients.csv", "--scaler", "scaler.json", "--out", "p.csv").code == 0


def test_a_model_of_unscaled_columns_refuses_a_scaler(scaled):
    assert dpem(*MIXTURE, *PRICE, "--out", "plain.json").code == 0
    message = refused("plain.json", "patients.csv", "--scaler", "scaler.json")
    assert "'plain.json' was fitted to unscaled columns, or saved without its scaler" in message
    assert dpem("predict", "plain.json", "patients.csv", "--out", "p.csv").code == 0


def test_a_model_saved_in_python_needs_its_scaler_too(scaled):
    rows, scaler = pd.read_csv("patients.csv"), load_model("scaler.json")
    model = load_model("model.json").fit(scaler.transform(rows))
    save_model(model, "python.json", scaler=scaler)
    assert refused("python.json", "patients.csv")
    assert dpem("predict", "python.json", "patients.csv", "--scaler", "scaler.json", "--out", "p.csv").code == 0


def test_a_rescued_model_keeps_the_fingerprint_of_its_scaler(scaled, monkeypatch):
    from dpem.cli import files

    paths = []

    def fail_once(model, path, scaler=None):
        paths.append(path)
        if len(paths) == 1:
            raise OSError("the disk is full")
        save_model(model, path, scaler)

    monkeypatch.setattr(files, "save_model", fail_once)
    done = dpem(*MIXTURE, *PRICE, "--scaler", "scaler.json", "--out", "late.json")
    assert done.code == 6
    with open(paths[1], encoding="utf-8") as file:
        assert json.load(file)["scaler"] == fingerprint(load_model("scaler.json"))
