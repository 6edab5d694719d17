"""The reproduction: what it runs is what the package runs, its files survive interruptions, its numbers come from
them.
"""

import math
import runpy
import sys
from dataclasses import replace

import numpy as np
import pytest

from dpem.paper.models import MODELS
from dpem.paper.published import PublishedEM
from dpem.paper.steps import PaperState
from dpem.privacy import Account, Curator
from dpem.privacy.noise import SeededNoise
from dpem.tables import ArraySource
from studies.paper import reproduce as package
from studies.paper.reproduce import EXPERIMENTS, curves, figures, fill, noise, rates, reproduce, runner, table1
from studies.paper.reproduce.__main__ import main
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


def test_a_table_depends_on_its_seed_alone():
    first, again, other = (Table("test", SMALL, rep) for rep in (0, 0, 1))
    np.testing.assert_array_equal(first.start, again.start)
    assert not np.array_equal(first.start, other.start)


def test_the_printed_weight_has_another_fixed_point():
    """Non-private EM with the printed weight settles away from the truth, with the right one at it. At n = 900 the
    latter's error is about σ√(s/n) = 0.03; 0.1 is far beyond.
    """
    at = replace(SMALL, n=4000, sigma=1.0)
    table = Table("test", at, 0)
    right = at.error(table.reference()[-1])
    wrong = at.error(table.reference(as_printed=True)[-1])
    assert right < 0.1 < 0.3 < wrong


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


def test_a_repetition_that_lacks_whole_lines_is_noticed(tmp_path):
    whole = run(tmp_path, 3)
    (tmp_path / "toy.csv").write_text("".join(whole.splitlines(keepends=True)[:-1]))
    assert run(tmp_path, 3) == whole
    assert COUNTED == [(901, 2)]


def test_an_interruption_loses_what_was_in_flight(tmp_path):
    def interrupted(function, tasks):
        for i, task in enumerate(tasks):
            if i == 3:
                raise KeyboardInterrupt
            yield function(task)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, 3, parallel=interrupted)
    run(tmp_path, 3)
    assert len(COUNTED) == 6 - 3


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


def test_processes_give_the_same_file(tmp_path):
    """Two spawned processes; the experiment is one of the real ones, on small settings."""
    at = replace(figures.DENSE, n=300, d=4, s=4)
    small = replace(noise.NOISE, settings=(at,))
    texts = []
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        folder.mkdir()
        store = Store(folder / "noise.csv", "noise", small.protocol)
        with runner.processes(workers) as parallel:
            runner.run(small, store, 2, parallel, progress=False)
        texts.append((folder / "noise.csv").read_text())
    assert texts[0] == texts[1]


# The command ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["fig3"], "fig3", ["fig1", "fig3"], []])
def test_an_unknown_name_lists_the_known_ones(names, tmp_path):
    with pytest.raises(ValueError, match="known are fig1, figS1, missing, fig2, table1, rates, noise, all") as refusal:
        reproduce(names, out=tmp_path / "new", raw=tmp_path / "new")
    assert ("fig3" in str(refusal.value)) == bool(names)
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_written_is_refused_before_computing(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "run", lambda *args: pytest.fail("something was computed"))
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"out=.*cannot be written to: Not a directory\.$"):
        reproduce(["fig1"], out=tmp_path / "file" / "results", raw=tmp_path)


@pytest.mark.parametrize("argument", ["reps", "workers"])
def test_counts_must_be_positive(argument, tmp_path):
    with pytest.raises(ValueError, match=f"{argument} must be at least 1, got 0"):
        reproduce(["fig1"], out=tmp_path, raw=tmp_path, **{argument: 0})


def test_the_command_says_so_in_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["reproduce", "fig9", "--out", str(tmp_path)])
    assert main() == 2
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setattr("studies.paper.reproduce.__main__.reproduce", _interrupt)
    assert main() == 130
    assert "continues" in capsys.readouterr().err


def _interrupt(*args, **kwargs):
    raise KeyboardInterrupt


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


def test_progress_is_shown_without_a_terminal_too(tmp_path, capsys):
    store = Store(tmp_path / "toy.csv", "toy", {})
    runner.run(toy(), store, 1, map, progress=False)
    assert capsys.readouterr().err == ""
    runner.run(toy(), store, 2, map)
    assert "toy: 100%" in capsys.readouterr().err


def test_fewer_repetitions_never_replace_more(tmp_path, monkeypatch):
    panels = figures.three_panels(SMALL, (900,) * 3, (3,) * 3, (1.0,) * 3)
    monkeypatch.setitem(EXPERIMENTS, "tiny", figures.high_dimensional("tiny", "a small figure", [panels]))
    common = {"out": tmp_path / "out", "workers": 1, "progress": False}
    reproduce(["tiny"], reps=2, raw=tmp_path / "raw", **common)
    before = (tmp_path / "out/tiny.csv").read_bytes()
    monkeypatch.setattr(runner, "run", lambda *args: pytest.fail("something was computed"))
    with pytest.raises(ValueError, match=r"tiny\.csv rests on 2 repetitions; 1 would replace it"):
        reproduce(["tiny"], reps=1, raw=tmp_path / "other", **common)
    assert (tmp_path / "out/tiny.csv").read_bytes() == before


def test_quick_writes_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "run", lambda *args: pytest.skip(str(list(tmp_path.rglob("*")))))
    with pytest.raises(pytest.skip.Exception) as stopped:
        reproduce(["fig1"], quick=True, workers=1)
    assert "build/quick" in str(stopped.value)
    assert "results" not in str(stopped.value)


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # a fresh process would not have it there
def test_module_runs_as_a_program(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["reproduce", "nonsense"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module(package.__name__, run_name="__main__")
    printed, errors = capsys.readouterr()
    assert (stopped.value.code, printed) == (2, "")
    assert "'nonsense' is not a figure or table" in errors


# Verdicts ------------------------------------------------------------------------------------------------------------


def results_of(errors: dict[Setting, dict[str, list[float]]]) -> Results:
    """Results with one iteration; a list holds the repetitions."""
    found = {}
    for at, methods in errors.items():
        for rep in range(len(next(iter(methods.values())))):
            found[key(at), rep] = [Point(m, 0, values[rep]) for m, values in methods.items()]
    return Results.of(found)


def test_a_refusal_is_called_one():
    panels = figures.three_panels(SMALL, (900,) * 3, (3,) * 3, (1.0,) * 3)
    errors = {m: [0.5, 0.7] for m in (*figures.METHODS, curves.PRINTED_REFERENCE)}
    errors[IMPROVED] = [math.nan, math.nan]
    found = figures.verdict(results_of({SMALL: errors}), (SMALL,), panels)
    assert any("refuses to fit in 1 of 1 settings" in sentence for sentence in found.sentences)
    assert "refused" in found.rows[0]
    assert not any("nan" in part for part in (*found.sentences, *found.rows[0]))


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


def test_a_cost_that_cannot_be_distinguished_from_zero_does_not_count():
    errors = {REFERENCE: [0.02, 0.03, 0.02], IMPROVED: [0.02, 0.02, 0.03]}
    assert not rates.cost(results_of({SMALL: errors}), SMALL, IMPROVED).counts
    assert not rates.cost(results_of({SMALL: {**errors, IMPROVED: [2.0, 2.1, 2.0]}}), SMALL, IMPROVED).counts
    assert rates.cost(results_of({SMALL: {**errors, IMPROVED: [0.2, 0.21, 0.2]}}), SMALL, IMPROVED).counts


def test_table1_methods_without_data(tmp_path):
    split = table1.breast_cancer.as_in_the_paper(0)
    assert len(split.train) == table1.N
    assert 0.05 < table1.wrong_side(table1.equal(), split) < 0.2
    assert table1.wrong_side(table1.equal(), split) == table1.wrong_side(-table1.equal(), split)


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
