"""The comparison with peers, without the peers: jobs, scripts' arithmetic and the table. No downloads."""

import ast
import csv
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from studies.csv_files import write_rows
from studies.paper.peers import __main__ as peers
from studies.paper.peers import data, peer_opacus, runner, table
from studies.paper.settings import Setting

ROOT = Path(__file__).parents[2]
SMALL = {
    "symmetric-mixture": Setting("symmetric-mixture", 3000, 4, 4, 1.0, dense=True),
    "symmetric-regression": Setting("symmetric-regression", 3000, 4, 4, 1.0, dense=True),
    "missing-regression": Setting("missing-regression", 3000, 4, 4, 1.0, missing=0.1, dense=True),
}


def small(model):
    return data.Problem("small", "a small problem", SMALL[model])


# ---------------------------------------------------------------------------------------------------------------- jobs


@pytest.mark.parametrize("model", SMALL)
def test_a_job_has_the_truth_of_practice_tables_only(model, tmp_path):
    problem = small(model)
    job = json.loads(json.dumps(data.write(problem, 2, tmp_path)))
    assert job["epsilon"] == 1.0
    assert job["delta"] == 1 / 6000
    assert [set(t) for t in job["tables"]] == [{"X", "y", "start"}] * 2
    assert [set(t) for t in job["practice"]] == [{"X", "y", "start", "truth"}] * problem.practice
    table_0 = problem.table(0)
    np.testing.assert_array_equal(np.load(job["tables"][0]["X"]), table_0.X)
    assert (job["tables"][0]["y"] is None) == (model == "symmetric-mixture")
    first = [float(np.nansum(np.load(t["X"]))) for t in (*job["tables"], *job["practice"])]
    assert len(set(first)) == len(first)  # no table is seen in practice
    distance = np.linalg.norm(table_0.start - problem.setting.truth())
    assert distance == pytest.approx(1.0 if model == "missing-regression" else data.START_DISTANCE)


# ------------------------------------------------------------------------------------------------------------- scripts


def test_a_script_imports_nothing_of_dpem_and_every_pin_is_exact():
    peer = runner.OPACUS
    tree = ast.parse((Path(peers.__file__).with_name(peer.script)).read_text())

    def packages(nodes):
        for node in nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield (node.module or "").split(".")[0]

    everywhere = set(packages(ast.walk(tree)))
    assert peer.name in everywhere
    assert "dpem" not in everywhere
    assert set(packages(tree.body)) <= {*sys.stdlib_module_names, "numpy"}  # its peer only when run
    assert all(requirement.count("==") == 1 for requirement in peer.requirements)


def test_the_script_judges_an_estimate_as_the_table_does():
    rng = np.random.default_rng(0)
    for model, setting in SMALL.items():
        for estimate in rng.standard_normal((5, setting.d)):
            for signed in (estimate, -estimate):
                assert peer_opacus.error({"model": model}, signed, setting.truth()) == pytest.approx(
                    setting.error(signed)
                )


# --------------------------------------------------------------------------------------------------- the table


def test_a_row_and_the_page(tmp_path):
    problem = data.PROBLEMS[0]
    truth = problem.setting.truth()
    answer = {
        "start": True,
        "guarantee": "(0.5, 5e-05), add or remove",
        "estimates": [(1.1 * truth).tolist(), (-0.7 * truth).tolist()],
        "seconds": [1.0, 3.0],
        "tuning_seconds": 7.0,
        "settings": {"clip": 1 / 3, "steps": 4},
    }
    row = table.row(problem, table.from_peer("somebody", answer))
    assert float(row["error"]) == pytest.approx(0.2)
    assert float(row["sd"]) == pytest.approx(0.1)
    assert (row["seconds"], row["reps"], row["start"]) == ("2", "2", "given")
    assert row["settings"] == "clip 0.333, steps 4"

    hopeless = row | {"method": "nobody", "error": "12345"}
    write_rows(tmp_path / "p.csv", [row, hopeless])
    with (tmp_path / "p.csv").open() as file:
        assert list(csv.DictReader(file)) == [row, hopeless]
    page = table.page([row, hopeless], {"dpem": "1"}, "make it")
    assert "0.200 (0.100)" in page
    assert "> 10" in page
    assert "12345" not in page
    assert "`make it`" in page


def test_the_committed_pages_are_the_committed_table():
    """results/peers.md shows what results/peers.csv holds."""
    with (ROOT / "results" / "peers.csv").open() as file:
        rows = list(csv.DictReader(file))
    page = (ROOT / "results" / "peers.md").read_text(encoding="utf-8")
    head, _, versions = page.rpartition("Versions: ")
    assert head.split("| method |")[1] == table.page(rows, {}, "").split("| method |")[1].rpartition("Versions: ")[0]
    assert {"dpem", "opacus"} <= {part.split()[0] for part in versions.split(", ")}
    assert {r["problem"] for r in rows} == {p.key for p in data.PROBLEMS}
    assert all(math.isfinite(float(r["error"])) for r in rows if r["method"] == "dpem")
