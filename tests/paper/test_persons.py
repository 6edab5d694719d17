"""Estimators with rows_per_person: the guarantee, the noise, refusals and files."""

import json
import math

import numpy as np
import pytest
from persistence.forging import forge, put
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from together import together

from dpem import Budget, DPStandardScaler, pipeline_guarantee
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.paper.sigma import rows_for_sigma
from dpem.persistence import fingerprint, load_model, save_model
from dpem.report import render
from dpem.tables import ArraySource

N, D, M = 2000, 4, 3
PAPER = {"epsilon": 0.5, "delta": 1e-5, "method": "published", "sigma": 1.0, "start": "equal"}
IMPROVED = {"epsilon": 1.0, "delta": 1e-5, "sigma": 0.5, "start": "equal"}
MODELS = (DPSymmetricMixture, DPSymmetricRegression, DPMissingRegression)
rng = np.random.default_rng(0)
X = rng.standard_normal((N, D))
Y = X[:, 0] + 0.5 * rng.standard_normal(N)


def scaler(**changes):
    return DPStandardScaler(**{"epsilon": 0.5, "delta": 1e-5, "bounds": (-5, 5), **changes})


#: Every estimator, with settings whose plans are fast.
KINDS = {
    **{f"{kind.__name__}, paper, s={s}": (lambda kind=kind, s=s, **c: kind(**PAPER, sparsity=s, **c))
       for kind in MODELS for s in (2, None)},
    **{kind.__name__: (lambda kind=kind, **c: kind(**IMPROVED, **c)) for kind in MODELS},
    "DPStandardScaler": scaler,
}  # fmt: skip
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


@pytest.fixture
def labels(monkeypatch):
    """The labels of the queries that fits sent."""
    queries = []

    class Watched(ArraySource):
        def total(self, query):
            queries.append(query.label)
            return super().total(query)

        def split(self, parts):
            return [Watched(part._X, part._y) for part in super().split(parts)]

    monkeypatch.setattr("dpem.tables.inputs.ArraySource", Watched)
    return queries


@every_kind
def test_the_statement_and_the_noise_follow(make):
    """One row by default; with m rows the noise is m times larger at the same prices."""
    one, many = make().fit(X, Y), make(rows_per_person=M).fit(X, Y)
    assert (one.guarantee_.unit, one.guarantee_.rows_per_person) == ("one row", 1)
    assert many.guarantee_.unit == "one person with up to 3 rows"
    assert many.guarantee_.private
    assert (many.guarantee_.epsilon, many.guarantee_.delta) == (one.guarantee_.epsilon, one.guarantee_.delta)
    if make in (KINDS[name] for name in KINDS if "paper" in name or "Scaler" in name):  # nothing else changes
        same = 1 if isinstance(one, DPMissingRegression) else None  # its later bounds depend on the β before
        assert len(one.releases_) == len(many.releases_)
        for a, b in list(zip(one.releases_, many.releases_, strict=True))[:same]:
            assert b.scale == pytest.approx(M * a.scale, rel=1e-9)
            assert b.sensitivity == pytest.approx(M * a.sensitivity, rel=1e-9)
            assert b.price.rho == pytest.approx(a.price.rho, rel=1e-9)


@every_kind
@together(
    ("value", "words"),
    [(value, "a whole number of at least 1") for value in (0, -2, 2.5, 3.0, True, "3", None)]
    + [(N + 1, r"at most the number of rows \(2000\)")],
)
def test_what_is_no_count_of_rows_is_refused_before_anything_is_spent(make, value, words, labels):
    budget = Budget(10.0, 1e-3)
    with pytest.raises(ValueError, match=rf"^rows_per_person must be {words}, got .*\.$"):
        make(rows_per_person=value, budget=budget).fit(X, Y)
    assert labels == []
    assert budget.n_charges == 0


def test_estimating_sigma_takes_as_many_times_the_rows():
    needed = [rows_for_sigma(D, of_response=False, rho=0.001, rows_per_person=m) for m in (1, 5)]
    assert 5 * (needed[0] - 1) < needed[1] <= 5 * needed[0]
    given = {**IMPROVED, "sigma": None}
    DPSymmetricMixture(**given).fit(X)
    with pytest.raises(ValueError, match=r"sigma must be given: estimating it takes about \d+ rows, there are 2000"):
        DPSymmetricMixture(**given, rows_per_person=20).fit(X)


# ---------------------------------------------------------------------------------------------------------------- files


@every_kind
def test_a_file_keeps_it(make, tmp_path):
    model = make(rows_per_person=M).fit(X, Y)
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    assert loaded.rows_per_person == M
    assert loaded.guarantee_ == model.guarantee_
    assert getattr(loaded, "plan_", None) == getattr(model, "plan_", None)
    assert fingerprint(loaded) == fingerprint(model)


def edited(path, *change):
    """A file with a deliberate change and a correct checksum."""
    path.write_text(forge(put(json.loads(path.read_text()), *change)))
    return path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((["parameters", "rows_per_person"], 1), "plan.rows_per_person does not agree with parameters.rows_per_person"),
        ((["parameters", "rows_per_person"], 0), "rows_per_person must be a whole number of at least 1"),
        ((["parameters", "rows_per_person"], 2.0), "rows_per_person must be a whole number"),
        ((["plan", "rows_per_person"], 9), "plan.rows_per_person does not agree with parameters.rows_per_person"),
        ((["plan", "rows_per_person"], 10**6), "plan.rows_per_person does not agree"),
        ((["guarantee", "rows_per_person"], 9), "guarantee.rows_per_person does not agree with parameters"),
        ((["guarantee", "rows_per_person"], "everybody"), "guarantee.rows_per_person must be a whole number"),
        ((["guarantee", "rows_per_person"], 0), "guarantee.rows_per_person must be at least 1"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(change, words, tmp_path):
    save_model(DPSymmetricMixture(**PAPER, sparsity=2, rows_per_person=M).fit(X), tmp_path / "model.json")
    with pytest.raises(ValueError, match=rf"cannot be loaded: {words}.*\.$"):
        load_model(edited(tmp_path / "model.json", *change))


# --------------------------------------------------------------------------------------- models fitted behind scalers


@pytest.fixture(scope="module")
def pair():
    first = scaler().fit(X)
    return first, DPSymmetricMixture(**PAPER, sparsity=2).fit(first.transform(X))


def test_a_model_names_the_scaler_it_was_fitted_behind(pair, tmp_path):
    first, model = pair
    assert model.scaler_ is None
    save_model(model, tmp_path / "plain.json")
    save_model(model, tmp_path / "model.json", scaler=first)
    save_model(first, tmp_path / "scaler.json")
    assert load_model(tmp_path / "plain.json").scaler_ is None
    loaded = load_model(tmp_path / "model.json")
    assert loaded.scaler_ == fingerprint(load_model(tmp_path / "scaler.json")) == fingerprint(first)
    assert fingerprint(loaded) == fingerprint(model)  # what was fitted is the same
    save_model(loaded, tmp_path / "again.json")  # and the name survives a second time
    assert load_model(tmp_path / "again.json").scaler_ == loaded.scaler_
    save_model(loaded, tmp_path / "again.json", scaler=first)
    assert loaded.fit(X).scaler_ is None  # a new fit is to whatever rows it was given
    assert clone(loaded).get_params() == clone(model).get_params() | {"start": "equal"}


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("other", "scaler must be the one that the model was fitted with; the model.s file names another"),
        ("narrow", "scaler must be fitted to the columns that the model was fitted to"),
        ("model", "scaler must be the DPStandardScaler whose output the model was fitted to, or None"),
        ("text", "scaler must be the DPStandardScaler whose output the model was fitted to, or None"),
    ],
)
def test_another_scaler_is_refused(pair, which, words, tmp_path):
    first, model = pair
    save_model(model, tmp_path / "model.json", scaler=first)
    loaded = load_model(tmp_path / "model.json")
    wrong = {"other": scaler().fit(X), "narrow": scaler().fit(X[:, :2]), "model": model, "text": "scaler.json"}[which]
    before = (tmp_path / "model.json").read_bytes()
    with pytest.raises(ValueError, match=rf"^{words}\.$"):
        save_model(loaded, tmp_path / "model.json", scaler=wrong)
    assert (tmp_path / "model.json").read_bytes() == before


def test_a_scaler_stands_behind_nothing(pair, tmp_path):
    with pytest.raises(ValueError, match="scaler must be the DPStandardScaler whose output the model"):
        save_model(pair[0], tmp_path / "scaler.json", scaler=pair[0])
    save_model(pair[0], tmp_path / "scaler.json")
    path = edited(tmp_path / "scaler.json", ["scaler"], "sha256:" + "0" * 64)
    with pytest.raises(ValueError, match="scaler must be null for this estimator"):
        load_model(path)


@pytest.mark.parametrize("value", ["", "sha256:", "sha256:" + "0" * 63, "sha256:" + "G" * 64, 7, [], {}])
def test_a_name_that_is_no_fingerprint_is_refused(pair, value, tmp_path):
    save_model(pair[1], tmp_path / "model.json")
    with pytest.raises(ValueError, match=r"cannot be loaded: scaler must be .*\.$"):
        load_model(edited(tmp_path / "model.json", ["scaler"], value))


# ------------------------------------------------------------------------------------------------------------ reports


def test_a_report_says_whose_rows_are_protected():
    page = render(DPSymmetricMixture(**PAPER, sparsity=2, rows_per_person=5).fit(X))
    assert "any one person with up to 5 rows is protected within" in page
    assert "If the rows of any one person, up to 5, were replaced by others, any conclusion" in page
    assert "that differ in the rows of one person, at most 5 (replace-one neighbours)" in page
    assert "considers two candidates for these rows equally likely" in page
    assert "all batches together cost a person at most" in page
    assert "<strong>A person with more rows.</strong> The unit is one person with up to 5 rows" in page
    assert "rows that one person may have" in page
    page = render(DPSymmetricMixture(**PAPER, sparsity=2).fit(X))
    assert "any one row is protected within" in page
    assert "If any one row of the table were replaced by another, any conclusion" in page
    assert "that differ in one row (replace-one neighbours)" in page
    assert "a row is in one batch, and the other batches cost it nothing" in page
    assert "<strong>A person with several rows.</strong> The unit is one row" in page
    assert "one person with" not in page


def test_a_report_says_that_columns_were_scaled(pair, tmp_path):
    first, model = pair
    save_model(model, tmp_path / "model.json", scaler=first)
    loaded = load_model(tmp_path / "model.json")
    assert "The columns were scaled first" not in render(model)
    assert fingerprint(first) in render(loaded)
    whole = pipeline_guarantee(make_pipeline(first, model))
    stated = f"ε = {math.ceil(1e4 * whole.epsilon) / 1e4:g}, δ = "
    for page in (render(model, first), render(loaded, first)):
        assert "The columns were scaled first" in page
        assert stated in page
        assert "Coefficients are in scaled units" in page
    with pytest.raises(ValueError, match="its file names another"):
        render(loaded, scaler().fit(X))
