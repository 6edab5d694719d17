"""Short versions of the black-box audits.

If a bound must be large enough, or a planted fault must be caught, the noise is seeded, so that the outcome is always
the same; runs with private noise are only checked for consistency.
"""

import dataclasses
import itertools
import json

import numpy as np
import pytest
from cheaper import few_starts, small_designs, small_surrogate
from click.testing import CliRunner
from scipy.stats import norm

from dpem import registry
from dpem.audit.bounds import Finding, audit
from dpem.audit.general import (
    Fit,
    estimator_of,
    gaussian_ratio,
    plackett_luce,
    replay_model,
    simulated_table,
    subject,
    transcript_ratio,
)
from dpem.audit.replay import Verdict, compare, excess_cost, in_memory
from dpem.audit.tape import record
from dpem.cli.audit import SUBJECTS
from dpem.cli.audit import audit as command
from dpem.cli.common import Session
from dpem.paper import DPSymmetricRegression
from dpem.privacy import PrivateNoise, SeededNoise, gumbel
from studies.audits import campaign, one_run
from studies.audits.campaign import PARTS, audit_all, write
from studies.audits.canaries import METHODS, MODELS, CanaryFit, case
from studies.audits.mechanisms import GaussianSampler, GumbelSampler, Peeling, Selection, Values
from studies.audits.one_run import Canaries, number_of_guesses, right_guesses

EPSILON, DELTA = 4.0, 1e-5


class HalfTheNoise(SeededNoise):
    """A sampler with half of the noise."""

    def gaussian(self, values, scale, sensitivity, rho):
        return super().gaussian(values, scale / 2, sensitivity, rho)

    def top_k(self, scores, k, sensitivity, rho):
        return super().top_k(2 * scores, k, sensitivity, rho)

    def laplace(self, values, scale, grid=None):
        return super().laplace(values, scale / 2, grid)


class TestLikelihood:
    def test_gaussian(self):
        rng = np.random.default_rng(0)
        answer, first, second = rng.normal(size=(3, 5))
        expected = norm.logpdf(answer, first, 0.7).sum() - norm.logpdf(answer, second, 0.7).sum()
        assert gaussian_ratio(answer, first, second, 0.7) == pytest.approx(expected)

    @pytest.mark.parametrize("k", [1, 2, 4])
    def test_chances_of_all_sequences_add_up_to_one(self, k):
        scores = np.array([0.3, -1.0, 2.0, 700.0])
        orders = itertools.permutations(range(4), k)
        assert sum(np.exp(plackett_luce(scores, np.array(order))) for order in orders) == pytest.approx(1.0)

    def test_sequences_come_as_often_as_it_says(self):
        """6000 draws by the private sampler, with probability 0.41: a deviation of 0.04 has probability below 1e-9."""
        scores = np.array([1.0, 0.0, 0.5])
        chance = np.exp(plackett_luce(scores, np.array([0, 2])))
        seen = np.mean([gumbel.top_k(scores, 2).tolist() == [0, 2] for _ in range(6000)])
        assert abs(seen - chance) < 0.04

    def test_peeling_has_no_transcript(self):
        fit = case("symmetric-mixture", epsilon=1.0, delta=DELTA, sparsity=2, method="published")
        tape = record(fit.estimator, *in_memory(fit.tables[0]))
        with pytest.raises(ValueError, match="answers of a laplace sampler are not released"):
            transcript_ratio(tape, tape)


class TestMechanisms:
    def test_the_bound_of_a_selection_is_a_third_of_the_claim(self):
        [found] = audit(Selection(EPSILON, DELTA, SeededNoise(0)), 10_000)
        assert 0.3 * EPSILON < found.lower < EPSILON

    @pytest.mark.parametrize("kind", [Values, Selection])
    def test_half_the_noise_is_caught(self, kind):
        [found] = audit(kind(1.0, 0.05, HalfTheNoise(0)), 3000)
        assert found.lower > 1.0
        assert not found.consistent
        assert str(found).endswith("VIOLATED")

    @pytest.mark.parametrize("kind", [Values, Selection, Peeling, GaussianSampler, GumbelSampler])
    def test_private_noise_keeps_its_claim(self, kind):
        """A false alarm has probability below 0.001, and far below: so few runs show a third of the claim."""
        runs = {Peeling: 100, GaussianSampler: 4000, GumbelSampler: 2000}.get(kind, 400)
        [found] = audit(kind(EPSILON, DELTA), runs)
        assert found.consistent
        assert found.runs == runs

    def test_the_bound_of_values_is_a_third_of_the_claim_with_and_without_the_curator(self):
        [alone] = audit(GaussianSampler(EPSILON, DELTA, SeededNoise(0)), 20_000)
        [whole] = audit(Values(EPSILON, DELTA, SeededNoise(1)), 20_000)
        assert 0.35 * EPSILON < whole.lower < EPSILON
        assert alone.lower == pytest.approx(whole.lower, abs=0.15 * EPSILON)

    def test_peeling_is_priced_above_what_it_loses(self):
        [found] = audit(Peeling(EPSILON, DELTA, SeededNoise(0)), 5000)
        assert 0.1 * EPSILON < found.lower < 0.5 * EPSILON

    def test_the_canary_moves_all_that_the_curator_allows(self):
        """By half of the sensitivity in either direction, up to a millionth."""
        subject = Selection(EPSILON, DELTA)
        first, second = subject._statistics()
        [curator] = subject._curators(False, 1)
        assert np.abs(first - second)[1:] == pytest.approx(curator.sensitivity(subject._query, "linf"), rel=1e-6)


CASES = [
    *(
        (model, method, sparsity)
        for model in MODELS
        for method in METHODS
        for sparsity in (None, 2)
        if model != "scaler"
    ),
    ("scaler", "improved", None),
]


class TestFits:
    @pytest.mark.parametrize(("model", "method", "sparsity"), CASES)
    def test_the_canary_reverses_in_every_step(self, model, method, sparsity):
        """Every statistic changes by nearly its whole sensitivity, whatever was released before."""
        fit = case(model, epsilon=EPSILON, delta=DELTA, sparsity=sparsity, method=method)
        tape = record(fit.estimator, *in_memory(fit.tables[0]))
        assert "refused" not in tape.outcome
        other = record(fit.estimator, *in_memory(fit.tables[1]), frozen=tape)
        if fit.peels:
            assert fit.adversaries == ("model only",)
            return
        for one, two, release in zip(tape.answers, other.answers, tape.releases, strict=True):
            change = one.statistic - two.statistic
            moved = np.linalg.norm(change) if one.kind == "gaussian" else np.max(np.abs(change))
            assert 0.7 < moved / (one.sensitivity or release.sensitivity) <= 1 + 1e-9

    @pytest.mark.parametrize(("model", "method", "sparsity"), CASES)
    def test_private_fits_keep_their_claim(self, model, method, sparsity):
        for found in audit(case(model, epsilon=EPSILON, delta=DELTA, sparsity=sparsity, method=method), 40):
            assert found.consistent

    @pytest.mark.parametrize("planted", [False, True])
    def test_half_the_noise_is_caught_in_a_fit(self, planted):
        noise = HalfTheNoise(0) if planted else SeededNoise(0)

        class Regression(DPSymmetricRegression):
            def _noise(self):
                return noise

        fit = case("symmetric-regression", epsilon=1.0, delta=0.1)
        estimator = Regression(**{**fit.estimator.get_params(), "budget": None})
        found, _ = audit(CanaryFit("planted", estimator, fit.tables, fit.direction), 300)
        assert found.consistent is not planted

    def test_refusals(self):
        with pytest.raises(ValueError, match="columns must be at least 2"):
            case("scaler", epsilon=1.0, delta=DELTA, columns=1)
        with pytest.raises(ValueError, match="the fit to be audited was refused: epsilon must be smaller"):
            audit(case("symmetric-mixture", epsilon=30.0, delta=DELTA, method="published"), 40)
        with pytest.raises(ValueError, match="runs must be at least 40"):
            audit(Values(1.0, DELTA), 20)
        with pytest.raises(ValueError, match="epsilon must be finite"):
            audit(Values(float("inf"), DELTA), 40)


class TestOneRun:
    def test_the_claim_is_kept(self):
        found = one_run.one_run(Canaries(rows=3000, columns=60, seed=1), 8.0, 1e-7)
        assert [f.adversary for f in found] == ["every release"] * 2 + ["model only"] * 2
        assert all(f.consistent and f.runs == 1 for f in found)

    def test_a_fit_without_noise_is_caught(self, monkeypatch):
        monkeypatch.setattr(PrivateNoise, "gaussian", lambda self, values, *rest: values)
        found = one_run.one_run(Canaries(rows=3000, columns=200, seed=1), 2.0, 1e-7)
        assert not any(f.consistent for f in found)

    def test_the_table_holds_the_coins_again_afterwards(self):
        canaries = Canaries(rows=500, columns=20)
        before = canaries.X.copy()
        one_run.one_run(canaries, 4.0, 1e-7)
        assert np.array_equal(before, canaries.X)

    def test_guesses(self):
        assert right_guesses(np.array([3.0, -2.0, 1.0, -0.5]), np.array([1.0, 1.0, 1.0, -1.0]), 3) == 2
        assert number_of_guesses(0.2, 500, 1e-7) > number_of_guesses(2.0, 500, 1e-7) > 0


class TestRunning:
    def test_everything_is_audited(self, monkeypatch):
        monkeypatch.setattr(campaign, "model_fit", lambda name, **claim: Fit(name, None, ()))
        names = {subject.name.split(",")[0] for part in PARTS.values() for subject, _ in part()}
        assert names == {"values", "selection", "peeling", "search", *MODELS, *registry.general()}

    def test_files(self, tmp_path):
        chosen = [(GaussianSampler(4.0, DELTA), 400), (case("scaler", epsilon=4.0, delta=DELTA), 60)]
        findings = [finding for found in audit_all(chosen) for finding in found]
        findings.append(Finding("values", "every release", 1.0, DELTA, 1.5, 10, 0.0))
        paths = write(findings, tmp_path / "new", "the command", 5.0, 1)
        table, page = (path.read_text(encoding="utf-8") for path in paths)
        assert len(table.splitlines()) == 1 + len(findings)
        assert "1 of the claims are VIOLATED." in page
        assert page.count("\n| ") == 1 + len(findings)


@pytest.fixture(scope="module")
def linear_fit():
    return subject("linear-regression", epsilon=0.3, delta=0.05, rows=30, columns=2)


class TestGeneral:
    """Every registered model and the search: found by the registry, with tables from the estimator's signature."""

    @pytest.mark.parametrize("model", [name for name in SUBJECTS if name != "gaussian-mixture"])
    def test_a_replay_finds_nothing(self, model, monkeypatch):
        """The candidates of the search are Gaussian mixtures, with and without a fit check."""
        small_designs(monkeypatch)
        small_surrogate(monkeypatch)
        few_starts(monkeypatch)
        columns = 2 if model in ("search", "mixture-regression") else 3
        verdict = replay_model(model, epsilon=4.0, delta=DELTA, rows=100, columns=columns)
        assert verdict.faults == []
        assert verdict.neighbours == 23
        assert max(verdict.used.values()) > 0.8

    @pytest.mark.parametrize("model", ["scaler", "symmetric-mixture", "symmetric-regression", "missing-regression"])
    def test_the_two_tables_differ_by_most_of_what_one_row_may_change(self, model):
        fit = subject(model, epsilon=EPSILON, delta=DELTA, rows=50)
        tape = fit.run(False)
        other = record(fit.estimator, *in_memory(fit.tables[1]), frozen=tape)
        assert max(compare(tape, other).used.values()) > 0.7

    @pytest.mark.parametrize("noise", [1.0, 0.0])
    def test_a_claim_is_kept_with_noise_and_violated_without(self, noise, linear_fit, monkeypatch):
        right = PrivateNoise.gaussian

        def part(self, values, *rest):
            return values + noise * (right(self, values, *rest) - values)

        monkeypatch.setattr(PrivateNoise, "gaussian", part)
        [found] = audit(linear_fit, 60)
        assert found.adversary == "every release"
        assert found.consistent == (noise == 1.0)

    def test_the_totals_of_both_tables_score_a_fit_as_a_replay_does(self, linear_fit):
        assert linear_fit.sources is not None
        for neighbour in (False, True):
            tape = linear_fit.run(neighbour)
            replayed = dataclasses.replace(linear_fit, sources=None).ratio(tape, neighbour)
            assert linear_fit.ratio(tape, neighbour) == pytest.approx(replayed, rel=1e-9)

    def test_a_search_is_recorded_with_its_candidates(self):
        table = simulated_table("search", 100, 3)
        tape = record(estimator_of("search", EPSILON, DELTA, 3), *in_memory(table))
        assert [answer.kind for answer in tape.answers].count("top_k") == 1
        assert len(tape.answers) == len(tape.model.releases_) > 2 * 4
        assert list(excess_cost(tape, EPSILON, DELTA)) == []


def dpem_audit(*arguments):
    session = Session(json="--json" in arguments)
    return CliRunner().invoke(command, arguments, obj=session, standalone_mode=False)


class TestCommand:
    def test_a_general_model_is_replayed_and_bounded(self):
        result = dpem_audit("linear-regression", "--epsilon", "4", "--runs", "40", "--rows", "50", "--columns", "2")
        assert result.return_value == 0
        replayed, bounded = result.stdout.splitlines()
        assert replayed.startswith(
            "linear-regression, replayed on 23 neighbours: no fault; the largest change was 100 % of"
        )
        assert bounded.startswith("linear-regression, every release: claimed 4, at least")

    def test_every_registered_model_can_be_audited(self):
        assert set(SUBJECTS) == {*registry.modules(), "search", "scaler"}

    def test_json(self):
        found = json.loads(dpem_audit("scaler", "--epsilon", "4", "--runs", "60", "--json").stdout)
        assert [(row["subject"], row["adversary"]) for row in found["findings"]] == [("scaler", "every release")]
        assert found["consistent"] is True

    def test_a_violated_claim_fails(self, monkeypatch):
        """A fit that releases the row itself."""
        monkeypatch.setattr(Fit, "scores", lambda self, neighbour, runs: np.full((runs, 1), float(neighbour)))
        result = dpem_audit("symmetric-regression", "--epsilon", "1", "--runs", "1000")
        assert result.return_value == 1
        assert result.stdout.count("VIOLATED") == 1

    def test_a_replay_with_a_fault_fails(self, monkeypatch):
        verdict = Verdict(["infinite: the public outcome 'coef_' differs"], {"a mean": 1.0}, 23)
        monkeypatch.setattr("dpem.audit.general.replay_model", lambda *a, **k: verdict)
        monkeypatch.setattr("dpem.audit.general.subject", lambda *a, **k: Values(1.0, DELTA))
        result = dpem_audit("latent-class", "--runs", "40")
        assert result.return_value == 1
        assert "1 FAULTS" in result.stdout
        assert "infinite: the public outcome" in result.stdout

    def test_refusals(self):
        assert "--epsilon must be a positive number" in str(dpem_audit("scaler", "--epsilon", "-1").exception)
        assert "mechanisms" in dpem_audit("mechanisms").exception.format_message()
