"""The commands that a data-protection officer runs on a ledger: verify, explain, policy, export."""

import json
import sqlite3
from pathlib import Path

import pytest
from running_dpem import LEDGER, dpem

from dpem import Ledger

FIT = ("fit", "symmetric-mixture", "patients.csv", "--sigma", "0.5", "--epsilon", "0.4", "--delta", "4e-4")
AT = ("--ledger", LEDGER)
ON = (*AT, "--dataset", "patients")
pytestmark = pytest.mark.usefixtures("folder")


def edit(*statements):
    connection = sqlite3.connect(LEDGER.removeprefix("sqlite:///"), isolation_level=None)
    for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {trigger}")
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_an_untouched_ledger_is_verified_with_its_models_and_reports():
    assert dpem(*FIT, *ON, "--report", "report.html").code == 0
    done = dpem("ledger", "verify", *AT, "--models", ".")
    head = Ledger(LEDGER).state("patients").head
    assert (done.code, done.out) == (0, f"patients: no entry was changed or removed (4 in all), head {head}.\n")
    assert dpem("ledger", "verify", *AT, "--models", ".", "--json").json["checked"] == 1
    assert head in Path("report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE dpem_entries SET body = json_set(body, '$.rho', 1e-9) WHERE number = 2", "entry 2 (fit) was changed"),
        ("UPDATE dpem_datasets SET body = json_set(body, '$.epsilon', 9)", "entry 1 (opened) was changed"),
        ("DELETE FROM dpem_entries WHERE number = 4", "1 row(s) of dpem_entries were removed"),
    ],
)
def test_a_tampered_copy_has_an_exit_status_and_says_what_differs(statement, message):
    assert dpem(*FIT, *ON).code == 0
    edit(statement)
    done = dpem("ledger", "verify", *AT)
    assert (done.code, done.out) == (5, "")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_removed_entries_are_found_by_the_head_that_a_report_prints():
    """Even if ids are made to look right."""
    assert dpem(*FIT, *ON, "--report", "report.html").code == 0
    edit("DELETE FROM dpem_entries", "UPDATE sqlite_sequence SET seq = 0 WHERE name = 'dpem_entries'")
    assert "triggers" in dpem("ledger", "verify", *AT).err
    done = dpem("ledger", "verify", *AT, "--models", ".")
    assert done.code == 5
    assert "of report.html" in done.err
    assert dpem("ledger", "verify", *AT, "--head", "sha256:00").code == 5


def test_a_model_file_that_contradicts_its_entry_is_found(monkeypatch):
    """A ledger in which a charge names a model that was fitted at another price."""
    assert dpem(*FIT, *ON, "--out", "model.json").code == 0
    fingerprint = Ledger(LEDGER).history("patients")[0].model
    other = Ledger("sqlite:///other.db").open("patients", 1.0, 1e-3)
    from dpem.privacy import Price

    charge = other.charge(0.4, 4e-4, Price(1e-9))
    charge.released(fingerprint)
    done = dpem("ledger", "verify", "--ledger", "sqlite:///other.db", "--models", ".")
    assert done.code == 5
    assert "entry 2 states another epsilon, delta or price than its model model.json" in done.err


def test_a_model_file_that_was_edited_is_found():
    assert dpem(*FIT, *ON, "--out", "model.json").code == 0
    Path("other.json").write_text('{"format": "something else"}')
    assert dpem("ledger", "verify", *AT, "--models", ".").code == 0
    text = Path("model.json").read_text(encoding="utf-8")
    Path("model.json").write_text(text.replace('"delta": ', '"delta": 0'), encoding="utf-8")
    done = dpem("ledger", "verify", *AT, "--models", ".")
    assert done.code == 5
    assert "'model.json' cannot be loaded" in done.err


def test_explain_prints_how_fits_add_up():
    assert dpem(*FIT, *ON).code == dpem(*FIT, *ON, "--out", "b.json").code == 0
    done = dpem("ledger", "explain", *ON)
    assert done.out.startswith("patients:\n  prices add: ρ = ")
    lines = dpem("ledger", "explain", *AT, "--json").json["datasets"]["patients"]
    assert lines == list(Ledger(LEDGER).state("patients").explained)


def test_a_policy_file_refuses_a_fit_before_the_charge():
    with open("policy.toml", "w", encoding="utf-8") as file:
        file.write('smallest_n = 601\nmodels = ["symmetric-mixture"]\n')
    done = dpem("ledger", "policy", *ON, "--file", "policy.toml")
    assert (done.code, done.out) == (0, "Each later fit of patients must meet this policy.\n")
    refused = dpem(*FIT, *ON)
    assert refused.code == 4
    assert "requires at least 601 rows, but this table has 600" in refused.err
    ledger = Ledger(LEDGER, "patients")
    assert (ledger.history(), [one.reason for one in ledger.state().refusals]) == ([], ["policy"])
    with open("policy.json", "w", encoding="utf-8") as file:
        json.dump({"smallest_n": 600}, file)
    assert dpem("ledger", "policy", *ON, "--file", "policy.json").code == 0
    assert dpem(*FIT, *ON).code == 0


@pytest.mark.parametrize(("name", "text"), [("a.toml", "x ="), ("a.json", "[1]"), ("a.toml", "largest = 1")])
def test_a_bad_policy_file_is_refused_in_one_sentence(name, text):
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)
    done = dpem("ledger", "policy", *ON, "--file", name)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert len(Ledger(LEDGER).state("patients").chain) == 1


def test_a_confusable_name_causes_a_warning():
    done = dpem("ledger", "open", *AT, "--dataset", "Patients", "--epsilon", "1", "--delta", "1e-4")
    assert done.code == 0
    assert "warning: dataset 'Patients' is named like 'patients'" in done.err


def test_the_csv_has_the_digest_of_each_entry():
    assert dpem(*FIT, *ON).code == 0
    done = dpem("ledger", "export", *ON, "--out", "ledger.csv")
    state = Ledger(LEDGER).state("patients")
    assert f"Head of patients: {state.head}" in done.out
    header, line = Path("ledger.csv").read_text(encoding="utf-8").splitlines()
    entry = dict(zip(header.split(","), line.rsplit(",", header.count(",")), strict=True))
    assert entry["entry_digest"] == state.chain[1].digest


def test_every_output_states_the_same_remaining_epsilon():
    fitted = dpem(*FIT, *ON, "--report", "report.html")
    left = Ledger(LEDGER).state("patients").left_rounded
    assert f"one more may use up to {left}." in fitted.out
    assert f"and {left} after it" in fitted.err
    assert dpem("ledger", "show", *AT).out.splitlines()[1].split()[5] == left
    assert f"ε = {left} of 1 at δ = 0.001" in Path("report.html").read_text(encoding="utf-8")
    assert dpem("ledger", "export", *ON, "--out", "page.html").code == 0
    assert f"<dt>left, ε</dt><dd>{left}</dd>" in Path("page.html").read_text(encoding="utf-8")


def test_the_settings_file_names_the_ledger():
    Path("dpem.toml").write_text(f'ledger = "{LEDGER}"\ndataset = "patients"\n', encoding="utf-8")
    assert dpem("ledger", "verify").out.startswith("patients: no entry was changed or removed (1 in all)")
    assert dpem("ledger", "explain").out.startswith("patients:\n  no fit was charged")
    assert "reachable" in dpem("doctor").out
