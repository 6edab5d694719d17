"""A general model from a shell, on a table of people: an ID, texts, missing values, semicolons, a settings file."""

import csv
import getpass
import json
import os
from pathlib import Path

import numpy as np
import pytest
from running_dpem import LEDGER, dpem

from dpem import Ledger
from dpem.persistence import fingerprint, load_model

N = 3000
LEVELS = {"smoker": [0, 1], "region": ["north", "süd"], "tired": ["no", "yes"], "coughs": ["no", "yes"]}
PRICE = ("--epsilon", "1", "--delta", "1e-6")
FIT = ("fit", "latent-class", "people.csv", "--sep", ";", "--exclude", "id,when", "--levels", "levels.json", *PRICE)

pytestmark = pytest.mark.usefixtures("people")


@pytest.fixture
def people(tmp_path: Path, monkeypatch):
    """An otherwise empty folder with a table of answers, and a ledger."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPEM_LEDGER", raising=False)
    rng = np.random.default_rng(0)
    ill = rng.random(N) < 0.4
    yes = {name: np.where(rng.random(N) < np.where(ill, 0.9, 0.1), 1, 0) for name in LEVELS}
    lines = ["id;when;smoker;region;tired;coughs"]
    for i in range(N):
        answers = [str(LEVELS[name][yes[name][i]]) for name in LEVELS]
        answers[2] = "" if i % 9 == 0 else answers[2]
        lines.append(";".join([f"P{i:04d}", "2024-05-01", *answers]))
    Path("people.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    Path("levels.json").write_text(json.dumps(LEVELS), encoding="utf-8")
    Ledger(LEDGER).open("people", 3.0, 1e-4)
    return tmp_path


def test_a_file_with_semicolons_is_fitted_and_predicted():
    done = dpem(*FIT, "--ledger", LEDGER, "--dataset", "people", "--purpose", "table 3", "--report", "report.html")
    assert done.code == 0, done.err
    assert "Fitted latent-class." in done.out
    assert "The model describes the rows better than" in done.out
    assert Path("report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    (charge,) = Ledger(LEDGER).history("people")
    assert charge.purpose == "table 3"

    predicted = dpem("predict", "model.json", "people.csv", "--sep", ";", "--keep", "id", "--out", "groups.csv")
    assert predicted.code == 0, predicted.err
    lines = Path("groups.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "id,component,probability_0,probability_1"
    assert len(lines) == N + 1
    assert lines[5].startswith('"P0004"')
    model = load_model("model.json")
    assert model.levels_["region"].labels == ("north", "süd")


def test_a_settings_file_has_the_options_of_a_fit():
    written = dpem("init", "people.csv")
    assert written.code == 0, written.err
    page = Path("dpem.toml").read_text(encoding="utf-8")
    assert 'sep = ";"' in page
    assert '# "region" = [0, 0]' in page
    assert "P0001" not in page
    assert "2024" not in page
    assert dpem("init", "people.csv").code == 6
    settings = {"data": "people.csv", "sep": ";", "exclude": ["id", "when"], "epsilon": 1.0, "delta": 1e-6,
                "ledger": LEDGER, "dataset": "people"}  # fmt: skip
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    levels = [f"{name} = {json.dumps(labels, ensure_ascii=False)}" for name, labels in LEVELS.items()]
    Path("dpem.toml").write_text("\n".join([*lines, "[levels]", *levels]), encoding="utf-8")
    dry = dpem("fit", "latent-class", "--dry-run", "--json").json
    assert dry["data"] == {"path": "people.csv", "rows": N, "columns": 4}
    assert dry["ledger"]["dataset"] == "people"
    assert dpem("fit", "latent-class", "--epsilon", "0.5").code == 0
    assert load_model("model.json").epsilon == 0.5
    assert "people" in dpem("ledger", "show").out


def test_a_formula_takes_precedence_over_the_columns_of_a_settings_file():
    Path("rows.csv").write_text("a,b,y\n" + "0.5,0.25,0.75\n" * 50, encoding="utf-8")
    settings = 'data = "rows.csv"\ntarget = "b"\nexclude = ["a"]\ny_bounds = [0, 1]\n[bounds]\na = [0, 1]\n'
    Path("dpem.toml").write_text(settings, encoding="utf-8")
    fit = ("fit", "linear-regression", *PRICE, "--formula", "y ~ a", "--dry-run")
    assert dpem(*fit).code == 0
    refused = dpem(*fit, "--target", "b")
    assert refused.code == 2
    assert "--target cannot be used with --formula" in refused.err


@pytest.mark.parametrize("declared", ["levels", "classes", "formula"])
def test_a_response_of_texts_is_read_as_its_classes(declared):
    """By the levels of a settings file, or by --classes."""
    rng = np.random.default_rng(0)
    a = rng.random(400)
    yes = rng.random(400) < a
    lines = [f"{x},{('no', 'yes')[int(one)]}" for x, one in zip(a, yes, strict=True)]
    Path("texts.csv").write_text("\n".join(["a,y", *lines]), encoding="utf-8")
    levels = '[levels]\ny = ["no", "yes"]\n' if declared == "levels" else ""
    Path("settings.toml").write_text(f"[bounds]\na = [0, 1]\n{levels}", encoding="utf-8")
    fit = ("fit", "logistic-regression")
    response = ("--formula", "y ~ a") if declared == "formula" else ("--target", "y")
    more = () if declared == "levels" else ("--classes", "no,yes")
    settings = ("--config", "settings.toml")
    assert dpem(*settings, *fit, "texts.csv", *PRICE, *response, *more, "--out", "texts.json").code == 0
    model = load_model("texts.json")
    assert list(model.classes_) == ["no", "yes"]
    assert "incomplete-rows" not in [diagnostic.code for diagnostic in model.diagnostics_]


def test_the_column_of_weights_is_read_beside_the_others():
    Path("rows.csv").write_text("a,b,w,y\n" + "0.5,0.25,1,yes\n" * 50, encoding="utf-8")
    fit = ("fit", "logistic-regression", "rows.csv", "--target", "y", "--columns", "a", "--bounds", "0,1", "--dry-run")
    weighted = dpem(*fit, *PRICE, "--classes", "no,yes", "--weights", "w")
    assert "2 columns are used: a, w" in weighted.err
    assert "has no column 'ww'" in dpem(*fit, *PRICE, "--classes", "no,yes", "--weights", "ww").err
    assert "--classes must be the two levels" in dpem(*fit, *PRICE, "--classes", "no").err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epsilom = 1", "unknown key 'epsilom'"),
        ("epsilon = ", "cannot be read as settings"),
        ("levels = 3", "levels in 'dpem.toml' must be a table"),
    ],
)
def test_wrong_settings(text, message):
    Path("dpem.toml").write_text(text, encoding="utf-8")
    done = dpem("fit", "latent-class", "people.csv", *PRICE)
    assert done.code == 2
    assert message in done.err


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        (("--n-classes", "1"), 7, "--n-classes must be at least 2"),
        (("--n-classes", "few"), 7, "--n-classes must be a positive whole number or \"auto\", got 'few'"),
        (("--exclude", "id,nothing"), 3, "has no column 'nothing'"),
        (("--exclude", "id"), 2, "--levels must name every column, but lack column 'when'"),
        (("--sep", ","), 3, "--sep must be"),
        (("--levels", "no.json"), 3, "--levels must be a JSON file such as"),
        (("--rows-per-person", "0"), 2, "--rows-per-person must be a whole number of at least 1"),
    ],
)
def test_a_dry_run_refuses_what_a_fit_refuses(changes, code, message, dry):
    before = sorted(os.listdir())
    if changes == ("--exclude", "id"):
        Path("people.csv").write_text("id;when;smoker;region;tired;coughs\n1;2;0;north;no;no\n3;4;1;süd;no;no\n")
    done = dpem(*FIT, *changes, *dry)
    assert (done.code, done.out) == (code, ""), done.err
    assert message in done.err
    assert sorted(os.listdir()) == before


def test_quiet_prints_results_only():
    assert "rows; 4 columns are used" in dpem(*FIT).err
    quiet = dpem("-q", *FIT, "--force")
    assert "columns are used" not in quiet.err
    assert "Fitted" in quiet.out


def test_an_export_has_charged_and_refused_fits():
    paid = ("--ledger", LEDGER, "--dataset", "people")
    assert dpem(*FIT, *paid, "--purpose", "=table <3>").code == 0
    assert dpem(*FIT, *paid, "--epsilon", "9", "--purpose", "too much", "--out", "b.json").code == 4
    assert dpem(*FIT, *paid, "--epsilon", "8", "--dry-run").code == 4
    listed = dpem("ledger", "history", *paid, "--json").json
    (charge,), (refusal,) = listed["fits"], listed["refusals"]
    assert charge["model"] == fingerprint(load_model("model.json"))
    assert (refusal["epsilon"], refusal["reason"], refusal["purpose"]) == (9.0, "budget", "too much")

    assert dpem("ledger", "export", *paid, "--out", "export.csv").code == 0
    rows = list(csv.DictReader(Path("export.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["entry"] for row in rows] == ["charged", "refused"]
    assert rows[0]["purpose"] == "'=table <3>"
    assert rows[0]["who"] == getpass.getuser()
    assert rows[0]["private"] == "True"

    assert dpem("ledger", "export", "--ledger", LEDGER, "--out", "export.html").code == 0
    page = Path("export.html").read_text(encoding="utf-8")
    assert "=table &lt;3&gt;" in page
    assert "Refused: over the budget" in page
    assert charge["model"].removeprefix("sha256:")[:16] in page
    assert "http" not in page.replace("http-equiv", "")
    assert dpem("ledger", "export", "--ledger", LEDGER, "--out", "export.txt").code == 2
