"""The comparison of the general models, without the peers: the baseline's privacy, scores, jobs and scripts."""

import ast
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from dpem.privacy import Price
from studies.peers import __main__ as peers
from studies.peers import judge, moments, page, peer_synthetic
from studies.peers.tables import PRACTICE, PROBLEMS, Problem, drawn

ROOT = Path(__file__).parents[2]
JOB = {"model": "regression", "measure": "R²", "epsilon": 1.0, "delta": 1e-6}


# ------------------------------------------------------------------------------------------------------- noisy moments


def moved(one, other, radius):
    """How far replacing the one row of a table by another moves the release."""
    rows = [moments.packed(moments.contributions(r[None], radius)) for r in (one, other)]
    return np.linalg.norm(rows[0] - rows[1])


def hostile_pairs(entries, rng):
    corners = rng.choice([-1.0, 1.0], size=(100, 2, entries))
    pairs = [(one, other) for one, other in corners] + [(one, -one) for one, _ in corners]
    pairs += [tuple(rng.choice([-1e308, 1e308, np.nan, np.inf, 1.0], size=(2, entries))) for _ in range(100)]
    return pairs + [tuple(rng.standard_normal((2, entries)) * 10 ** rng.uniform(-3, 3)) for _ in range(100)]


@pytest.mark.parametrize("part", [0.03, 0.3, 1.0, 2.0])
def test_replacing_a_row_reaches_the_sensitivity_and_no_more(part):
    D = 5
    radius = math.sqrt(1 + part * D)
    pairs = hostile_pairs(D, np.random.default_rng(0))
    if part * D > 1:  # a pair at right angles: 1 + (x, y)·(x', y') = 0
        angle = -1 / (part * D)
        far = math.sqrt(part) * np.ones(D)
        side = math.sqrt(part * D / 2) * np.array([1.0, -1.0, *[0.0] * (D - 2)])
        pairs.append((far, angle * far + math.sqrt(1 - angle**2) * side))
    with np.errstate(all="ignore"):
        largest = max(moved(one, other, radius) for one, other in pairs)
    assert largest <= moments.sensitivity(radius)
    if part * D > 1:
        assert largest > 0.999 * moments.sensitivity(radius)


def test_replacing_a_row_moves_sums_as_stated():
    rng = np.random.default_rng(0)
    pairs = [*hostile_pairs(4, rng), *rng.uniform(-1, 1, size=(500, 2, 4))]
    largest = max(np.linalg.norm(moments.sums(one[None]) - moments.sums(other[None])) for one, other in pairs)
    assert largest == pytest.approx(moments.sums_sensitivity(4))
    assert largest <= moments.sums_sensitivity(4)


@pytest.mark.parametrize("standardise", [False, True])
def test_the_noise_costs_what_is_stated(standardise):
    for epsilon in (0.5, 1.0):
        noise, of_sums = moments.deviations(2.0, 7, epsilon, 1e-6, standardise)
        rho = (moments.sensitivity(2.0) / noise) ** 2 / 2 + (moments.sums_sensitivity(7) / of_sums) ** 2 / 2
        assert Price(rho, gaussian=True).delta(epsilon) == pytest.approx(1e-6, rel=1e-3)
        assert Price(rho, gaussian=True).delta(epsilon) <= 1e-6 * (1 + 1e-9)


def test_the_noise_that_is_added_is_the_noise_that_is_stated(monkeypatch):
    """With all rows at the middle of their bounds the release is noise; its spread is measured where it is unpacked."""
    seen = []
    unpacked = moments.unpacked
    monkeypatch.setattr(moments, "unpacked", lambda entries, size: seen.append(entries) or unpacked(entries, size))
    d, part = 40, 0.3
    job = JOB | {"low": [-1.0] * d, "high": [1.0] * d, "y_bounds": [-1.0, 1.0]}
    table = {"X": np.zeros((10, d)), "y": np.zeros(10)}
    moments.fit(job, table, {"standardise": False, "part": part, "ridge": 1.0, "repair": "edge"}, 1)
    stated = moments.deviations(math.sqrt(1 + part * (d + 1)), d + 1, 1.0, 1e-6, False)[0]
    assert np.std(seen[0][1:]) == pytest.approx(stated, rel=0.06)  # 902 entries


@pytest.mark.parametrize("standardise", [False, True])
def test_without_noise_the_moments_give_least_squares(monkeypatch, standardise):
    monkeypatch.setattr(moments, "deviations", lambda *_: (0.0, 0.0))
    split = drawn(1)
    table = {"X": split.X, "y": split.y}
    settings = {"standardise": standardise, "part": 50.0, "ridge": 1.0, "repair": "ridge"}
    found = moments.fit(JOB | split.facts, table, settings, 0)
    line = LinearRegression().fit(split.X, np.clip(split.y, -8, 10))
    np.testing.assert_allclose(found["coef"], line.coef_, atol=1e-6)
    assert found["intercept"] == pytest.approx(line.intercept_, abs=1e-6)


# -------------------------------------------------------------------------------------------------------------- scores


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((200, 3)), 3 + 2 * rng.standard_normal((100, 3))])
    model = GaussianMixture(2, covariance_type="diag", random_state=0).fit(X)
    answer = {"means": model.means_, "variances": model.covariances_, "weights": model.weights_}
    joint = judge.joint_groups(answer, X)
    assert judge.likelihood(joint) == pytest.approx(model.score(X))
    found = np.argmax(joint, axis=1)
    np.testing.assert_array_equal(found, model.predict(X))
    label = np.arange(300) >= 200
    assert judge.adjusted_rand(label, found) == pytest.approx(adjusted_rand_score(label, found))
    y = X @ [1.0, 2.0, 0.0] + 1
    line = LinearRegression().fit(X[:50], y[:50] + rng.standard_normal(50))
    linear = {"coef": line.coef_, "intercept": line.intercept_, "fill": np.zeros(3)}
    assert judge.r_squared(linear, X, y) == pytest.approx(line.score(X, y))


# ------------------------------------------------------------------------------------------------------------ the jobs


def test_a_job_keeps_what_is_held_out_to_itself(tmp_path):
    problem = Problem("small", "small", "regression", "R²", 1.0, lambda seed: drawn(seed, 200, 2))
    job = json.loads(json.dumps(problem.job(2, tmp_path)))
    assert [set(judge.load(t["path"])) for t in job["tables"]] == [{"X", "y"}] * 2
    assert [set(judge.load(t["path"])) for t in job["practice"]] == [{"X", "y", "X_new", "y_new"}] * PRACTICE
    assert {t["seed"] for t in job["practice"]}.isdisjoint(t["seed"] for t in job["tables"])
    grid = [{"at": 0.0}, {"at": 1.0}]

    def fit(job, table, settings, seed):
        return {"coef": [settings["at"] * 0.5, -0.3 * settings["at"]], "intercept": settings["at"], "fill": [0, 0]}

    found = judge.run(job, fit, grid, "none")
    assert found["settings"] == {"at": 1.0}  # the true line is better than nothing
    outcome = peers.judged(problem, job, found)
    assert len(outcome.scores) == 2
    assert min(outcome.scores) > 0


def test_synthetic_rows_go_to_levels_and_back():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 10, 500), np.zeros(500), rng.integers(0, 3, 500)])
    X[:, 1] = X[:, 0] ** 2
    rows = np.column_stack([X[:, :2], X[:, 2] == 1, X[:, 2] == 2])
    rows[0, 0], rows[1, 2:] = np.nan, np.nan
    job = {"dummies": [[2, 3]], "squares": {"1": 0}}
    low, high = np.zeros(4), np.array([10.0, 100.0, 1.0, 1.0])
    columns = peer_synthetic.domain(job, 4, 20, False)
    codes = peer_synthetic.coded(job, rows, columns, low, high)
    made = peer_synthetic.decoded(job, codes, columns, low, high, rng)
    np.testing.assert_array_equal(made[:, 2:], rows[:, 2:])
    assert np.nanmax(np.abs(made[:, 0] - rows[:, 0])) <= 0.5
    np.testing.assert_array_equal(np.isnan(made[:, 0]), np.isnan(rows[:, 0]))
    np.testing.assert_allclose(made[:, 1], made[:, 0] ** 2)


# ------------------------------------------------------------------------------------------- scripts and environments


@pytest.mark.parametrize("peer", peers.PEERS.values(), ids=peers.PEERS)
def test_a_script_imports_nothing_of_dpem_and_every_pin_is_exact(peer):
    tree = ast.parse((Path(peers.__file__).with_name(peer.script)).read_text(encoding="utf-8"))
    modules = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }
    assert not any(name.split(".")[0] == "dpem" for name in modules)
    first = {name.split(".")[0] for node in tree.body if isinstance(node, ast.ImportFrom) for name in [node.module]}
    assert first <= {*sys.stdlib_module_names, "numpy", "studies"}
    assert all("==" in pin for pin in peer.requirements)
    assert all(len(commit) == 40 for _, commit in peer.sources)


def test_the_page_shows_what_was_measured():
    rows = page.read(ROOT / "results" / "peers_real.csv")
    assert page.text(rows) == (ROOT / "results" / "peers_real.md").read_text(encoding="utf-8")
    logistic = {f"{key}-{epsilon}" for key in page.LOGISTIC for epsilon in ("0.5", "1")}
    shown = {*page.REGRESSION, *page.LATENT, *logistic}
    assert {row["problem"] for row in rows} == {problem.key for problem in PROBLEMS} == shown
    for row in rows:
        scores = np.array(row["scores"].split(), dtype=float)
        assert float(row["middle"]) == pytest.approx(np.median(scores), rel=1e-3)
        assert float(row["worst"]) == pytest.approx(scores.min(), rel=1e-3)
        assert int(row["reps"]) == len(scores)
