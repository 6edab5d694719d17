"""The reproduction: what it runs is what the package runs, its files survive interruptions, its numbers come from
them.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpem.paper.models import MODELS
from dpem.paper.published import PublishedEM
from dpem.paper.steps import PaperState
from dpem.privacy import Account, Curator
from dpem.privacy.noise import SeededNoise
from dpem.tables import ArraySource
from studies.paper.reproduce import EXPERIMENTS, curves, figures, fill, noise, rates, reproduce, runner
from studies.paper.reproduce.curves import CORRECTED, IMPROVED, IMPROVED_START, REFERENCE, Table, key, prescribed
from studies.paper.reproduce.runner import Experiment, Verdict
from studies.paper.reproduce.store import Point, Results, Store
from studies.paper.settings import Setting

SMALL = Setting("symmetric-mixture", n=900, d=30, s=3, epsilon=1.0)


# What is run ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["symmetric-mixture", "missing-regression"])
def test_the_last_beta_is_the_estimator_s(model):
    """Recording changes nothing: same plan, same noise, same answer as the estimator gives."""
    at = replace(SMALL, model=model, missing=0.1 if model == "missing-regression" else 0.0)
    table, plans = Table("test", at, 0), curves.plans(at)
    cases = {
        IMPROVED_START: (table.improved(IMPROVED_START, plans.same_start, table.start), {"start": table.start}),
        IMPROVED: (table.improved(IMPROVED, plans.no_start, None), {}),
        CORRECTED: (
            table.paper(CORRECTED, model == "missing-regression"),  # the published method keeps the printed covariance
            {"start": table.start, "method": "published"},
        ),
    }
    for method, (trace, changes) in cases.items():
        noise = np.random.default_rng(table.seed(method))  # DPEM_TEST_DRAW changes whole numbers only
        model_fit = at.estimator(random_state=noise, **changes).fit(table.X, table.y)
        np.testing.assert_allclose(trace[-1], model_fit.coef_, rtol=1e-9, atol=1e-12)


def test_traces_have_every_iteration():
    found = curves.traces(Table("test", SMALL, 1), curves.plans(SMALL))
    assert len(found[CORRECTED]) == prescribed(SMALL.n)[0] + 1
    assert len(found[REFERENCE]) == curves.REFERENCE_ITERATIONS + 1
    starts = {m: SMALL.error(trace[0]) for m, trace in found.items() if m != IMPROVED}
    assert all(math.isclose(error, curves.DISTANCE) for error in starts.values())
    assert SMALL.error(found[IMPROVED][0]) == pytest.approx(1.0)


@pytest.mark.parametrize("at", [figures.GAUSSIAN, figures.REGRESSIONS, figures.MISSING, figures.DENSE],
                         ids=lambda at: at.model + (" dense" if at.dense else ""))  # fmt: skip
def test_the_noise_floor_is_the_noise_that_is_drawn(at):
    """Read off the account of a run on few rows: the formula uses the same N₀ and T at that n."""
    at = replace(at, n=1600, d=20, s=20 if at.dense else 4)
    account = Account(at.epsilon, at.delta, gaussian=at.dense)
    curator = Curator(ArraySource(*at.draw(np.random.default_rng(0))), account, SeededNoise(0))
    n_iter, T = prescribed(at.n)
    steps = PublishedEM(0.0, at.epsilon, at.delta, None if at.dense else at.s, n_iter=n_iter, step=curves.ETA, T=T)
    steps.run(curator, MODELS[at.model](at.sigma), PaperState(np.zeros(at.d), np.arange(at.d)))
    scale = account.releases[-1].scale
    norm = math.sqrt(at.d) * curves.ETA * scale if at.dense else math.sqrt(2 * at.s) * scale
    smallest, largest = (1600 // n_iter) / (1600 / n_iter), 1.01
    assert 1 / largest < norm / figures.noise_floor(at) < largest / smallest


# Files ---------------------------------------------------------------------------------------------------------------

COUNTED: list[tuple[int, int]] = []


def prepare(setting):
    return setting.n


def repeat(setting, prepared, rep):
    COUNTED.append((setting.n, rep))
    return [Point("a, method", t, prepared + rep + t / 7) for t in range(3)]


def toy(**protocol) -> Experiment:
    settings = (SMALL, replace(SMALL, n=901))
    return Experiment("toy", "a toy", settings, protocol, prepare, repeat, lambda r, path: None,
                      lambda r: Verdict((), (), ()))  # fmt: skip


def run(folder, reps, experiment=None, parallel=map) -> str:
    experiment = experiment or toy()
    COUNTED.clear()
    store = Store(folder / "toy.csv", "toy", experiment.protocol)
    runner.run(experiment, store, reps, parallel, progress=False)
    return (folder / "toy.csv").read_text()


def test_what_is_there_is_not_computed_again(tmp_path):
    whole = run(tmp_path / ".." / tmp_path.name, 4)
    assert len(COUNTED) == 8
    (tmp_path / "toy.csv").unlink()
    run(tmp_path, 1)
    assert run(tmp_path, 4) == whole
    assert sorted(COUNTED) == [(n, rep) for n in (900, 901) for rep in (1, 2, 3)]
    assert run(tmp_path, 4) == whole
    assert COUNTED == []
    assert run(tmp_path, 2) == whole, "fewer repetitions than there are: nothing is lost"


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_line_cut_short_costs_its_repetition_only(tmp_path, cut):
    whole = run(tmp_path, 3)
    (tmp_path / "toy.csv").write_text(whole[:-cut])
    assert run(tmp_path, 3) == whole
    assert COUNTED == [(901, 2)]


def test_the_file_does_not_depend_on_who_finishes_first(tmp_path):
    first = run(tmp_path, 3)
    (tmp_path / "toy.csv").unlink()
    backwards = lambda f, tasks: map(f, list(tasks)[::-1])  # noqa: E731
    assert run(tmp_path, 3, parallel=backwards) == first


def test_a_file_made_with_other_settings_or_code_is_refused_and_kept(tmp_path, monkeypatch):
    before = run(tmp_path, 1)
    for change in ({"eta": 1.0}, {}):
        with pytest.raises(ValueError, match="made with other settings or another version"):
            run(tmp_path, 1, toy(**change))
        monkeypatch.setattr("studies.paper.reproduce.store.__version__", "0.0")
    assert (tmp_path / "toy.csv").read_text() == before


# The command ---------------------------------------------------------------------------------------------------------


def test_all_three_files_are_written_and_agree(tmp_path, monkeypatch):
    panels = figures.three_panels(SMALL, (900,) * 3, (3,) * 3, (1.0,) * 3)
    tiny = figures.high_dimensional("tiny", "a small figure", [panels])
    monkeypatch.setitem(EXPERIMENTS, "tiny", tiny)
    reproduce(["tiny"], reps=2, out=tmp_path, raw=tmp_path / "raw", workers=1, progress=False)
    picture, text = (tmp_path / "tiny.png").read_bytes(), (tmp_path / "tiny.md").read_text("utf-8")
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(picture[16:20], "big") >= 1200, "pixels wide"
    rows = [
        line.split(",") for line in (tmp_path / "raw/tiny.csv").read_text("utf-8").splitlines() if CORRECTED in line
    ]
    last = max(int(row[-3]) for row in rows)
    mean = np.mean([float(row[-2]) for row in rows if int(row[-3]) == last])
    assert f"| {mean:.2f} (" in text or f"| {mean:.3f} (" in text
    assert "python -m studies.paper.reproduce tiny --reps 2" in text
    assert str(curves.SEED) in text


# Verdicts ------------------------------------------------------------------------------------------------------------


def results_of(errors: dict[Setting, dict[str, list[float]]]) -> Results:
    """Results with one iteration; a list holds the repetitions."""
    found = {}
    for at, methods in errors.items():
        for rep in range(len(next(iter(methods.values())))):
            found[key(at), rep] = [Point(m, 0, values[rep]) for m, values in methods.items()]
    return Results.of(found)


def test_slopes_recover_a_planted_exponent():
    """cost = 3/n exactly on average; the slope's z-score is checked at 5, false alarm below 1e-6."""
    rng, reps = np.random.default_rng(5), 200
    sweep = rates.IMPROVED_SWEEPS[0]
    assert sweep.variable == "n"
    errors = {}
    for at in sweep.settings:
        reference = np.abs(0.01 + 0.001 * rng.standard_normal(reps))
        square = reference**2 + (300 / at.n) ** 2 * rng.gamma(4.0, 0.25, size=reps)
        errors[at] = {REFERENCE: reference.tolist(), IMPROVED: np.sqrt(square).tolist()}
    found = rates.slope(results_of(errors), sweep, IMPROVED)
    assert found.used == len(sweep.settings)
    assert abs(found.value + 1) < 5 * found.error
    assert 0.005 < found.error < 0.1
    assert -1 < found.theorem < -0.5, "the logarithms flatten the theorem's form"


def test_pages_are_filled_from_the_csv(tmp_path):
    at = replace(figures.DENSE, n=300, d=4, s=4)
    (tmp_path / "docs").mkdir()
    target = tmp_path / "docs" / "a.md"
    before = "# A\n\n<!-- begin noise -->\nold\n<!-- end noise -->\n\nafter\n"
    with pytest.raises(ValueError, match=r"noise\.csv does not exist"):
        fill.filled(before, tmp_path, target)
    full = {s: noise.repeat(replace(at, n=s.n // 20), None, 0) for s in noise.SETTINGS}
    summary = Results.of({(key(setting), 0): points for setting, points in full.items()}).summary()
    (tmp_path / "noise.csv").write_text(summary)
    text = fill.filled(before, tmp_path, target)
    assert "old" not in text
    assert text.endswith("<!-- end noise -->\n\nafter\n")
    assert "](../noise.png)" in text
    assert fill.filled(text, tmp_path, target) == text
