"""dpem report: the report of a fitted model, from its file."""

from running_dpem import LEDGER, dpem

FIT = ("fit", "symmetric-mixture", "patients.csv", "--epsilon", "0.5", "--delta", "1e-4", "--sigma", "0.5")


def test_a_report_from_the_file_alone(folder):
    assert dpem(*FIT, "--out", "model.json").code == 0
    done = dpem("report", "model.json", "-o", "page.html", "--purpose", "table 3", "--dataset", "patients")
    assert (done.code, done.out) == (0, "Wrote page.html.\n")
    page = (folder / "page.html").read_text(encoding="utf-8")
    first = page.split("</header>")[0]
    assert "table 3" in first
    assert "patients" in first
    assert "ledger" not in first
    refused = dpem("report", "model.json", "-o", "page.html")
    assert refused.code == 6
    assert "--force" in refused.err


def test_the_report_states_what_is_left_of_the_budget(folder):
    charged = ("--ledger", LEDGER, "--dataset", "patients")
    assert dpem(*FIT, "--out", "model.json", *charged).code == 0
    assert dpem("report", "model.json", *charged, "--json").json["report"] == "report.html"
    first = (folder / "report.html").read_text(encoding="utf-8").split("</header>")[0]
    assert "of 1 at δ = 0.001" in first
    assert "budget.db" in first


def test_a_file_that_is_not_a_model_is_refused_in_one_sentence(folder):
    for name in ("patients.csv", "nowhere.json"):
        refused = dpem("report", name)
        assert refused.code == 3
        assert refused.err.count("\n") == 1
    assert not (folder / "report.html").exists()
