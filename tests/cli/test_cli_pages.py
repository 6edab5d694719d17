"""The planner and the demo from the command line."""

import json

import pytest
from running_dpem import dpem

from dpem import demo
from dpem.planner import page
from dpem.privacy import Price
from studies import planner_grid as grid


def test_the_planner_is_one_file(folder):
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


def test_a_demo_without_its_table_says_what_it_needs(folder, monkeypatch):
    def missing(*_):
        raise RuntimeError("the demo needs statsmodels and pandas: pip install 'dpem[demo]'.")

    monkeypatch.setattr(demo, "main", missing)
    done = dpem("demo")
    assert done.code == 1
    assert "pip install" in done.err


@pytest.mark.parametrize("name", grid.stored()["models"])
def test_the_command_on_the_page_plans_what_the_table_says(folder, name):
    """The form of the command is that of planner.js; the prediction is a node's, as near as machines agree on those
    that rehearse EM (see tests/planner/test_planner.py).
    """
    own = grid.stored()["models"][name]
    n, d = own["rows"][1], own["columns"][1]
    count = ["--" + own["count"].replace("_", "-"), str(own["groups"][0])] if own["count"] else []
    known = []
    if not own["bounds"]:
        (folder / "levels.json").write_text(json.dumps({f"x{j}": [0, 1] for j in range(d)}))
        known = ["--levels", "levels.json"]
    epsilon = Price(own["rho"][2], own["gaussian"]).epsilon(grid.DELTA)
    size = ["--n", str(n), "--d", str(d), "--epsilon", repr(epsilon), "--delta", str(grid.DELTA)]
    done = dpem("plan", name, *size, *count, *known, "--json")
    assert done.code == 0, done.out
    predicted = done.json["prediction"]
    before = own["effect"]["others"].index(own["effect"]["usual"]) * (len(own["groups"]) or 1) * len(own["columns"])
    node = own["values"][len(own["rho"]) * len(own["rows"]) * (before + 1) + len(own["rho"]) + 2]
    assert predicted["median"] == pytest.approx(grid.decoded(node)[0], rel=0.05, abs=1e-3)
