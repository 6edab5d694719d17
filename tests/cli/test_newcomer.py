"""A newcomer with a table: from dpem init to two models and a page about the ledger, in six short commands."""

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from running_dpem import dpem

from dpem.persistence import load_model

N = 3000
pytestmark = pytest.mark.usefixtures("table")


@pytest.fixture
def table(tmp_path: Path, monkeypatch):
    """A folder with one table: a number, a date, remarks, missing values, semicolons, decimal commas, an umlaut."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPEM_LEDGER", raising=False)
    rng = np.random.default_rng(3)
    ill = rng.random(N) < 0.5
    age, size = rng.integers(18, 95, N), rng.normal(np.where(ill, 150, 185), 6)
    pressure = 90 + 0.6 * age + rng.normal(0, 8, N)
    ward, sex = rng.choice([101, 205], N), rng.choice(["w", "m"], N)
    lines = ["Nummer;Datum;Alter;Größe (cm);Geschlecht;Station;Blutdruck;Bemerkung"]
    for i in range(N):
        tall = "" if i % 11 == 0 else f"{size[i]:.1f}".replace(".", ",")
        row = (f"P{i:05d}", "14.03.2026", age[i], tall, sex[i], ward[i], f"{pressure[i]:.1f}".replace(".", ","), "–")
        lines.append(";".join(map(str, row)))
    Path("patienten.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def filled_in(**more):
    """Fill in dpem.toml: remove the # of some lines, and write numbers."""
    page = Path("dpem.toml").read_text(encoding="utf-8")
    known = {
        '# target = "…"': 'target = "Blutdruck"',
        "# epsilon": "epsilon",
        "# delta": "delta",
        '# "Alter" = [0, 0]': '"Alter" = [18, 110]',
        '# "Größe (cm)" = [0, 0]': '"Größe (cm)" = [100, 230]',
        '# "Blutdruck" = [0, 0]': '"Blutdruck" = [60, 260]',
        '# "Geschlecht" = ["…", "…"]': '"Geschlecht" = ["w", "m"]',
        '# "Station" = ["…", "…"]': '"Station" = [101, 205]',
        **more,
    }
    for old, new in known.items():
        assert old in page, old
        page = page.replace(old, new, 1)
    Path("dpem.toml").write_text(page, encoding="utf-8")


def test_from_a_table_to_two_models_and_a_page_of_the_dataset():
    assert dpem("init", "patienten.csv").code == 0
    filled_in()
    assert dpem("ledger", "open", "--epsilon", "3", "--delta", "1e-5").code == 0
    dry = dpem("fit", "linear-regression", "--dry-run")
    assert dry.code == 0, dry.err
    assert "columns without bounds or levels in dpem.toml are not used: Nummer, Datum, Bemerkung" in dry.err
    begun = datetime.now(UTC)
    assert dpem("fit", "linear-regression", "--report", "report.html").code == 0
    first = Path("report.html").read_text(encoding="utf-8").split("</header>")[0]
    assert any(f"{day:%Y-%m-%d}" in first for day in (begun, datetime.now(UTC)))
    assert "of 3 at δ = 10⁻⁵" in first
    groups = dpem("fit", "gaussian-mixture", "--out", "groups.json", "--report", "groups.html")
    assert groups.code == 0, groups.err
    assert load_model("groups.json").columns_ == ("Alter", "Größe (cm)", "Blutdruck")

    assert dpem("fit", "linear-regression", "--epsilon", "9", "--out", "c.json").code == 4
    done = dpem("ledger", "export", "--out", "page.html")
    assert done.out.startswith("Wrote 3 entries of 1 dataset, with 2 models to page.html.\nHead of patienten: sha256:")
    page = Path("page.html").read_text(encoding="utf-8")
    for name, report in (("model.json", "report.html"), ("groups.json", "groups.html")):
        model = load_model(name)
        assert f'href="./{name}"' in page
        assert f'href="./{report}"' in page
        assert model.fit_check_.verdict in page
    assert "All releases of 2 fits about these rows together are" in page
    assert page.count("-differentially private") == 1  # stated once, for all fits together
    assert "Refused: over the budget" in page
    assert "P00001" not in page


def test_a_page_lists_fits_whose_models_are_elsewhere():
    assert dpem("init", "patienten.csv").code == 0
    filled_in()
    assert dpem("ledger", "open", "--epsilon", "3", "--delta", "1e-5").code == 0
    assert dpem("fit", "linear-regression").code == 0
    Path("model.json").rename("elsewhere.txt")
    assert dpem("ledger", "export", "--out", "page.html", "--json").json["models"] == 0
    assert "A fit whose file is not here" in Path("page.html").read_text(encoding="utf-8")
    refused = dpem("ledger", "export", "--out", "page.html", "--force", "--models", "nowhere")
    assert (refused.code, "--models must be a folder" in refused.err) == (2, True)


def test_names_in_the_settings_are_columns_of_the_table():
    assert dpem("init", "patienten.csv").code == 0
    filled_in(**{'# "Alter" = [0, 0]': '"Allter" = [18, 110]'})
    assert dpem("ledger", "open", "--epsilon", "3", "--delta", "1e-5").code == 0
    fit = ("fit", "linear-regression", "--dry-run")
    message = "'Allter' in bounds is not a column of patienten.csv; did you mean 'Alter'?\n"
    assert (dpem(*fit).code, dpem(*fit).err) == (2, f"dpem: error: {message}")
    assert "is not a column of patienten.csv; it has one column: check the separator" in dpem(*fit, "--sep", ",").err
    Path("dpem.toml").write_text(Path("dpem.toml").read_text(encoding="utf-8").replace("Allter", "Alter"), "utf-8")
    assert "'Numer' in person is not a column" in dpem(*fit, "--person", "Numer").err
    all_columns = "Alter,Größe (cm),Geschlecht,Station"
    assert "no column is left to use: fill in bounds or levels" in dpem(*fit, "--exclude", all_columns).err
    scaled = dpem("scale", "--dry-run", "--json").json["data"]
    assert scaled["columns"] == 2  # without the response


def test_options_take_precedence_over_settings():
    assert dpem("init", "patienten.csv").code == 0
    filled_in()
    assert dpem("ledger", "open", "--epsilon", "3", "--delta", "1e-5").code == 0
    fit = ("fit", "linear-regression", "--dry-run", "--json")
    assert dpem(*fit).json["data"]["columns"] == 4
    assert dpem(*fit, "--exclude", "Alter").json["data"]["columns"] == 3
    assert dpem(*fit, "--columns", "Alter").json["data"]["columns"] == 1
    assert dpem(*fit, "--exclude", "Allter").json["error"]["code"] == 2
    Path("bounds.json").write_text(json.dumps({"Alter": [18, 110], "Blutdruck": [60, 260]}), encoding="utf-8")
    assert dpem(*fit, "--bounds", "bounds.json").json["error"]["code"] in (2, 3)


def test_missing_options_are_named_together():
    assert dpem("init", "patienten.csv").code == 0
    done = dpem("fit", "linear-regression")
    assert done.code == 2
    assert "--epsilon and --delta must be given, here or in dpem.toml" in done.err
    assert "--delta must be given, here" in dpem("fit", "linear-regression", "--epsilon", "1").err
    assert "--n must be given (" in dpem("plan", "linear-regression", "--d", "3", "--delta", "1e-6").err


def test_a_first_line_that_may_be_a_record_is_not_quoted():
    Path("dpem.toml").write_text(
        'data = "people.csv"\nepsilon = 1.0\ndelta = 1e-6\n[levels]\nsecrets = ["no", "yes"]\n', encoding="utf-8"
    )
    Path("people.csv").write_text("Anna,secret,no\nBert,nothing,yes\n", encoding="utf-8")
    done = dpem("fit", "latent-class", "--dry-run")
    assert done.code == 2
    assert "is not a column of people.csv." in done.err
    assert not any(cell in done.err.replace("'secrets'", "") for cell in ("Anna", "secret", "nothing"))
