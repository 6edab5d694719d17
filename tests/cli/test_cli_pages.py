"""The planner and the demo from the command line."""

import json

import pytest
from running_dpem import dpem

from dpem import demo
from dpem.planner import page
from dpem.privacy import Price
from studies import planner_grid as grid


def test_the_planner_is_written_to_a_file(folder):
    done = dpem("planner", "--html", "planner.html")
    assert (done.code, done.out) == (0, "Wrote planner.html.\n")
    assert (folder / "planner.html").read_text(encoding="utf-8") == page()
    assert dpem("planner", "--html", "planner.html").code == 6
    assert dpem("planner", "--html", "planner.html", "--force", "--json").json["opened"] is False
    assert dpem("planner", "--html", "nowhere/planner.html").code == 6


def test_the_planner_opens_a_browser(folder, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    assert dpem("planner").out.startswith("Opened ")
    assert opened[0].startswith("file://")


def test_the_demo_has_json_too(folder, monkeypatch):
    monkeypatch.setattr(demo, "main", lambda out, say: say("a line") or {"rows": 3})
    assert dpem("demo").out == "a line\n"
    assert dpem("demo", "--json").json == {"rows": 3, "warnings": []}


def test_a_demo_without_statsmodels_names_the_extra(folder, monkeypatch):
    def missing(*_):
        raise RuntimeError("the demo needs statsmodels and pandas: pip install 'dpem[demo]'.")

    monkeypatch.setattr(demo, "main", missing)
    done = dpem("demo")
    assert done.code == 1
    assert "pip install" in done.err


@pytest.mark.parametrize("name", grid.stored()["models"])
def test_the_command_on_the_page_plans_what_the_table_says(folder, name):
    """The command has the form that planner.js writes; its prediction is that of a node of the table, to the precision
    at which machines agree on rehearsals of EM (see tests/planner/test_planner.py).
    """
    model = grid.stored()["models"][name]
    n, d = model["rows"][1], model["columns"][1]
    count = ["--" + model["count"].replace("_", "-"), str(model["groups"][0])] if model["count"] else []
    declared = []
    if not model["bounds"]:
        (folder / "levels.json").write_text(json.dumps({f"x{j}": [0, 1] for j in range(d)}))
        declared = ["--levels", "levels.json"]
    epsilon = Price(model["rho"][2], model["gaussian"]).epsilon(grid.DELTA)
    size = ["--n", str(n), "--d", str(d), "--epsilon", repr(epsilon), "--delta", str(grid.DELTA)]
    done = dpem("plan", name, *size, *count, *declared, "--json")
    assert done.code == 0, done.out
    predicted = done.json["prediction"]
    effect, prices, sizes = model["effect"], len(model["rho"]), len(model["rows"])
    before = effect["others"].index(effect["usual"]) * (len(model["groups"]) or 1) * len(model["columns"])
    node = model["values"][prices * sizes * (before + 1) + prices + 2]
    assert predicted["median"] == pytest.approx(grid.decoded(node)[0], rel=0.05, abs=1e-3)
