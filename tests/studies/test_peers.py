"""The comparison with peers, without the peers: jobs, scripts' arithmetic, environments and the table. No downloads."""

import ast
import csv
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from studies.paper.peers import __main__ as peers
from studies.paper.peers import data, own, peer_diffprivlib, peer_opacus, runner, table
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


def test_the_problems_are_those_asked_for():
    sizes = {p.key: (p.setting.n, p.setting.d, p.sparsity, p.setting.epsilon) for p in data.PROBLEMS}
    assert sizes == {
        "mixture-low": (10_000, 10, None, 0.5),
        "mixture-high": (4000, 1000, 10, 0.5),
        "missing-low": (5000, 10, None, 0.6),
        "missing-high": (5000, 1000, 10, 0.6),
        "regressions-low": (50_000, 10, None, 0.6),
        "regressions-high": (5000, 1000, 10, 0.6),
    }
    assert all(p.setting.delta == 1 / (2 * p.setting.n) for p in data.PROBLEMS)


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


@pytest.mark.parametrize("peer", runner.PEERS, ids=lambda peer: peer.name)
def test_a_script_imports_nothing_of_dpem_and_its_peer_only_when_run(peer):
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
    assert set(packages(tree.body)) <= {*sys.stdlib_module_names, "numpy"}


@pytest.mark.parametrize("script", [peer_diffprivlib, peer_opacus])
def test_scripts_judge_an_estimate_as_the_table_does(script):
    rng = np.random.default_rng(0)
    for model, setting in SMALL.items():
        for estimate in rng.standard_normal((5, setting.d)):
            for signed in (estimate, -estimate):
                assert script.error({"model": model}, signed, setting.truth()) == pytest.approx(setting.error(signed))


def test_post_processing_keeps_the_largest():
    job = {"sparsity": 2}
    np.testing.assert_array_equal(peer_diffprivlib.sparse(job, np.array([1.0, -3.0, 0.5, 2.0])), [0.0, -3.0, 0.0, 2.0])
    dense = np.array([1.0, 2.0])
    np.testing.assert_array_equal(peer_diffprivlib.sparse({"sparsity": None}, dense), dense)


# -------------------------------------------------------------------------------------------------------- environments


def test_an_environment_with_these_pins_is_not_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "_call", lambda *_: pytest.fail("nothing needs to be made"))
    peer = runner.PEERS[0]
    (tmp_path / peer.name).mkdir()
    (tmp_path / peer.name / "requirements.txt").write_text("\n".join(peer.requirements) + "\n")
    assert runner.environment(peer, tmp_path) == tmp_path / peer.name / "bin" / "python"


def test_an_environment_with_other_pins_is_made_anew(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(runner, "_call", lambda command, what: calls.append(command))
    peer = runner.PEERS[1]
    (tmp_path / peer.name).mkdir()
    (tmp_path / peer.name / "requirements.txt").write_text("opacus==0.9\n")
    runner.environment(peer, tmp_path)
    assert calls[0][1:3] == ["-m", "venv"]
    assert calls[1][-len(peer.requirements) :] == list(peer.requirements)


def test_every_pin_is_exact():
    assert all(requirement.count("==") == 1 for peer in runner.PEERS for requirement in peer.requirements)


def test_a_script_gets_its_job_and_is_heard(tmp_path):
    script = tmp_path / "echo.py"
    script.write_text("import json, sys\njob = json.load(open(sys.argv[1]))\njson.dump(job, open(sys.argv[2], 'w'))\n")
    job = {"problem": "small", "n": 3}
    assert runner.run(Path(sys.executable), script, job, tmp_path) == job


def test_a_script_that_fails_is_named(tmp_path):
    script = tmp_path / "broken.py"
    script.write_text("raise OSError('no such thing')\n")
    with pytest.raises(RuntimeError, match=r"broken\.py on small failed: OSError: no such thing"):
        runner.run(Path(sys.executable), script, {"problem": "small"}, tmp_path)


# --------------------------------------------------------------------------------------------------- own methods, table


def test_methods_apply_where_they_should():
    names = {p.key: [m.name for m in own.methods(p)] for p in data.PROBLEMS}
    for key, methods in names.items():
        assert methods[0] == "dpem"
        assert "clipped gradient EM" in methods
        assert ("Wang et al. 2020, tuned" in methods) == key.endswith("low")
        assert ("noisy covariance alone" in methods) == (key in ("mixture-low", "regressions-low"))
        assert methods[-1].endswith("not private")
    starts = {m.name: m.start for m in own.methods(data.PROBLEMS[0])}
    assert not starts["dpem"]
    assert starts["clipped gradient EM"]


def test_tuning_takes_the_settings_with_the_smallest_error():
    problem = small("symmetric-mixture")
    truth = problem.setting.truth()
    method = own.Method(
        "scaled truth", lambda t, seed, settings: settings["by"] * truth, False, ({"by": 2}, {"by": 1.1})
    )
    outcome = own.run(problem, method, [problem.table(0)])
    assert outcome.settings == {"by": 1.1}
    assert outcome.guarantee == "(1, 0.00017), replace"


def test_baselines_run_on_a_small_problem():
    """Every private baseline beats answering zero at n = 3000, d = 4, ε = 1."""
    problem = small("symmetric-regression")
    tables = [problem.table(0)]
    for method in own.methods(problem):
        if method.name in ("clipped gradient EM", "noisy covariance alone"):
            plain = tuple(settings for settings in method.grid if settings.get("step", 1.0) == 1.0)[-3:]
            outcome = own.run(problem, own.Method(method.name, method.fit, method.start, plain), tables)
            assert problem.setting.error(outcome.estimates[0]) < 1.0


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
    table.write_csv([row, hopeless], tmp_path / "p.csv")
    with (tmp_path / "p.csv").open() as file:
        assert list(csv.DictReader(file)) == [row, hopeless]
    page = table.page([row, hopeless], {"dpem": "1"}, "make it")
    assert "0.200 (0.100)" in page
    assert "> 10" in page
    assert "12345" not in page
    assert "`make it`" in page


def test_an_estimate_that_is_not_a_number_is_not_called_good():
    row = dict.fromkeys(table.FIELDS, "1") | {"problem": "mixture-low", "error": "nan"}
    assert "> 10" in table.page([row], {}, "")


@pytest.mark.parametrize(
    ("arguments", "word"), [(["--reps", "0"], "--reps"), (["--out", "no/such/folder/p.csv"], "--out")]
)
def test_refusals(arguments, word, capsys):
    with pytest.raises(SystemExit):
        peers.main(arguments)
    assert word in capsys.readouterr().err


def test_the_committed_pages_are_the_committed_table():
    """results/peers.md shows what results/peers.csv holds."""
    with (ROOT / "results" / "peers.csv").open() as file:
        rows = list(csv.DictReader(file))
    page = (ROOT / "results" / "peers.md").read_text(encoding="utf-8")
    head, _, versions = page.rpartition("Versions: ")
    assert head.split("| method |")[1] == table.page(rows, {}, "").split("| method |")[1].rpartition("Versions: ")[0]
    assert {"dpem", "diffprivlib", "opacus"} <= {part.split()[0] for part in versions.split(", ")}
    assert {r["problem"] for r in rows} == {p.key for p in data.PROBLEMS}
    assert all(math.isfinite(float(r["error"])) for r in rows if r["method"] == "dpem")
