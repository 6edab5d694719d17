"""A refusal is one sentence without any entry of the data; no budget is charged and no query sent."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from together import together

from dpem import Budget
from dpem._validation import ArgumentError
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.tables import ArraySource

ALL = (DPSymmetricMixture, DPSymmetricRegression, DPMissingRegression)
MIXTURES = (DPSymmetricMixture, DPSymmetricRegression)
REGRESSIONS = (DPSymmetricRegression, DPMissingRegression)
N, D = 60, 4
#: Valid arguments without free settings, so that a refusal is due to what a test changes.
VALID = {"epsilon": 0.5, "delta": 1e-5, "method": "published", "sparsity": 2, "sigma": 1.0, "start": "equal"}


class Untouchable(ArraySource):
    """The table of a refused fit. The planner's simulated tables are other objects."""

    def total(self, query):
        pytest.fail("the data were queried")

    def split(self, parts):
        return [Untouchable(part._X, part._y) for part in super().split(parts)]


@pytest.fixture(autouse=True)
def _data_may_not_be_queried(monkeypatch):
    monkeypatch.setattr("dpem.tables.inputs.ArraySource", Untouchable)


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((N, D))


@pytest.fixture
def y():
    return np.random.default_rng(1).standard_normal(N)


def refused(estimator, X, y, *, kind=ValueError, ours=True, valid=VALID, **changes):
    """The message of a refusal, after the checks that hold for all refusals."""
    budget = changes.pop("budget", Budget(epsilon=100.0, delta=0.5))
    model = estimator(**{**valid, "budget": budget, **changes})
    with pytest.raises(kind) as refusal:
        model.fit(X, y)
    assert type(refusal.value) in (ArgumentError, ValueError, TypeError)  # no accident in a library
    message = str(refusal.value)
    if ours:
        assert "\n" not in message
        assert message.endswith(".")
        assert ". " not in message
    if isinstance(budget, Budget):
        assert budget.n_charges == 0
    assert not hasattr(model, "coef_")
    return message


@pytest.mark.parametrize("estimator", ALL)
def test_the_valid_fit_is_not_refused(estimator, X, y):
    """Without the change that other tests make, the data are queried and the budget is charged."""
    budget = Budget(epsilon=100.0, delta=0.5)
    with pytest.raises(pytest.fail.Exception, match="the data were queried"):
        estimator(**VALID, budget=budget).fit(X, y)
    assert budget.n_charges == 1


NOT_POSITIVE = [0, -1.0, math.nan, math.inf, "1", True]
#: Values of each argument that are refused, and their messages.
WRONG = {
    "epsilon": ([0, -1.0, -math.inf, math.nan, "1", True, [1.0], 1j], "epsilon must be a positive number"),
    "delta": ([0, 1, 2, -0.1, math.nan, math.inf, "1e-5", True], "delta must lie strictly between 0 and 1"),
    "sparsity": ([0, -1, 1.5, 2.0, math.nan, True, False, "2", D + 1], "sparsity must be"),
    "sigma": (NOT_POSITIVE, "sigma must be a positive finite number"),
    "signal": ([*NOT_POSITIVE, None], "signal must be a positive finite number"),
    "step_size": (NOT_POSITIVE, "step_size must be a positive finite number"),
    "clip": (NOT_POSITIVE, "clip must be a positive finite number"),
    "n_iter": ([0, -3, 2.0, True, "3"], "n_iter must be a positive whole number"),
    "method": (["Improved", "", None, 3, ["improved"], "paper"], "method must be one of 'improved', 'published'"),
    "budget": ([1.0, (1.0, 1e-5), "1", Budget], "budget must be a dpem.Budget, a dpem.Ledger or None"),
    "start": ([np.ones(D + 1)], f"start must be a vector of length {D}"),
}


@pytest.mark.parametrize("estimator", ALL)
class TestArguments:
    @together("missing", [("epsilon",), ("delta",), ("epsilon", "delta")])
    def test_privacy_must_be_stated(self, estimator, missing, X, y):
        message = refused(estimator, X, y, **dict.fromkeys(missing))
        assert message == "epsilon and delta must both be given: a privacy guarantee has no default."
        rest = {name: value for name, value in VALID.items() if name not in missing}
        assert refused(estimator, X, y, valid=rest) == message

    @together("method", ["improved", "published"])
    @together("name", WRONG)
    def test_a_wrong_one_is_refused_before_anything_is_planned(self, estimator, name, method, X, y, monkeypatch):
        for planned in ("improved_plan", "published_plan", "reference_plan"):
            monkeypatch.setattr(
                f"dpem.paper.estimators.planning.{planned}", lambda *_, **__: pytest.fail("a fit was planned")
            )
        values, words = WRONG[name]
        for value in values:
            assert words in refused(estimator, X, y, **{"method": method, name: value})

    def test_the_paper_needs_sigma(self, estimator, X, y):
        assert "method='published' needs sigma" in refused(estimator, X, y, sigma=None)

    def test_seeded_noise_is_not_charged(self, estimator, X, y):
        """A ledger would show it as a private fit."""
        message = refused(estimator, X, y, random_state=0)
        assert "budget and random_state must not both be given" in message


@pytest.mark.parametrize("estimator", ALL)
class TestStart:
    def test_of_the_wrong_shape(self, estimator, X, y):
        for start in (np.ones((1, D)), np.ones((D, 1)), 1.0):
            assert f"start must be a vector of length {D}" in refused(estimator, X, y, start=start)

    @together("bad", [math.inf, -math.inf, math.nan])
    def test_not_finite(self, estimator, bad, X, y):
        assert "start must hold finite numbers only" in refused(estimator, X, y, start=[1.0, bad, 0.0, 0.0])

    def test_text(self, estimator, X, y):
        assert "start must be one of 'equal'" in refused(estimator, X, y, start="zero")
        for start in (["a", "b", "c", "d"], [None, {}, 1, 2], [[1.0], [2.0, 3.0]]):
            assert "start must be a vector of numbers" in refused(estimator, X, y, start=start)


@pytest.mark.parametrize("method", ["improved", "published"])
@pytest.mark.parametrize("estimator", MIXTURES)
def test_a_mixture_cannot_start_at_zero(estimator, method, X, y):
    assert "start must not be zero" in refused(estimator, X, y, start=np.zeros(D), method=method)


def test_the_regression_with_missing_entries_can(X, y):
    with pytest.raises(pytest.fail.Exception, match="the data were queried"):
        DPMissingRegression(**{**VALID, "start": np.zeros(D)}).fit(X, y)


@pytest.mark.parametrize("estimator", MIXTURES)
def test_the_paper_needs_a_start(estimator, X, y):
    assert "method='published' needs start" in refused(estimator, X, y, start=None)


#: Tables of a wrong shape, and what is said; without a mark in scikit-learn's words.
SHAPES = {
    "one row": (lambda X, y: (X[:1], y[:1]), "minimum of 2"),
    "no row": (lambda X, y: (X[:0], y[:0]), "0 sample(s)"),
    "no column": (lambda X, y: (X[:, :0], y), "0 feature(s)"),
    "three dimensions": (lambda X, y: (X[:, :, None], y), "dim 3"),
    "a vector": (lambda X, y: (X[:, 0], y), "X must be a table"),
    "a list": (lambda X, y: (X[:, 0].tolist(), y), "X must be a table"),
    "a number": (lambda X, y: (X[0, 0], y), "X must hold rows"),
    "unequal rows": (lambda X, y: ([[1.0, 2.0], [3.0]], y[:2]), "rows have equally many entries"),
}
RESPONSES = {
    "none": (lambda X, y: (X, None), "requires y"),
    "another length": (lambda X, y: (X, y[:-1]), "inconsistent"),
    "two columns": (lambda X, y: (X, np.column_stack([y, y])), "1d array"),
    "a number": (lambda X, y: (X, 12345.678), ""),
}


@pytest.mark.parametrize("estimator", ALL)
class TestSizes:
    def test_fewer_rows_than_batches(self, estimator, X, y):
        message = refused(estimator, X, y, n_iter=N + 1)
        assert f"got {N + 1} batches" in message
        assert f"number of rows ({N})" in message

    @together("shape", [*SHAPES, *(f"y: {shape}" for shape in RESPONSES)])
    def test_of_a_table(self, estimator, shape, X, y):
        """scikit-learn's own message for a vector would print the entries."""
        X[0, 0] = 12345.678
        of_response = shape.startswith("y: ")
        if of_response and estimator not in REGRESSIONS:
            return
        change, words = RESPONSES[shape[3:]] if of_response else SHAPES[shape]
        message = refused(estimator, *change(X, y), ours=False)
        assert words in message
        assert "12345" not in message


@pytest.mark.parametrize("estimator", ALL)
class TestEntries:
    @together("kind", ["S", "string", "category"])
    def test_columns_of_text(self, estimator, kind, X, y):
        text = X.astype(object)
        text[5, 1] = "secret-diagnosis"
        frame = pd.DataFrame(X, columns=list("abcd"))
        table = text.astype("S") if kind == "S" else frame.assign(a=pd.Series(text[:, 1].astype(str), dtype=kind))
        message = refused(estimator, table, y)
        assert message.startswith("X must hold numbers")
        assert "secret" not in message

    def test_complex(self, estimator, X, y):
        message = refused(estimator, X + 12345.678j, y)
        assert "Complex data not supported" in message
        assert "12345" not in message

    def test_a_path_is_not_a_table(self, estimator, X, y):
        assert "dpem.read_table" in refused(estimator, "patients.csv", y)


@pytest.mark.parametrize("estimator", REGRESSIONS)
@pytest.mark.parametrize("kind", ["S", "string", "category"])
def test_text_responses(estimator, kind, X, y):
    text = y.astype(object)
    text[5] = "secret-diagnosis"
    message = refused(estimator, X, text.astype("S") if kind == "S" else pd.Series(text.astype(str), dtype=kind))
    assert message.startswith("y must hold numbers")
    assert "secret" not in message


@pytest.mark.parametrize("estimator", REGRESSIONS)
def test_complex_responses(estimator, X, y):
    message = refused(estimator, X, y + 12345.678j)
    assert "Complex data not supported" in message
    assert "12345" not in message


@pytest.mark.parametrize("estimator", ALL)
class TestPaperNoise:
    """Errata E5 and E6: beyond some ε the printed noise does not satisfy (ε, δ)."""

    @together("sparsity", [None, 1, 2, D])
    @together("epsilon", [20.0, 1e3])
    def test_large_epsilon(self, estimator, sparsity, epsilon, X, y):
        message = refused(estimator, X, y, sparsity=sparsity, epsilon=epsilon)
        assert f"noise is not private at epsilon={epsilon:g}, delta=1e-05" in message
        assert "method='improved'" in message

    @together("sparsity", [None, 2])
    def test_small_epsilon_is_accepted(self, estimator, sparsity, X, y):
        with pytest.raises(pytest.fail.Exception, match="the data were queried"):
            estimator(**{**VALID, "sparsity": sparsity, "epsilon": 1.0}).fit(X, y)


@pytest.mark.parametrize("sparsity", [3, None])
def test_mixture_regression_without_start_says_how_many_rows_it_needs(sparsity):
    X = np.random.default_rng(0).standard_normal((50, 4))
    improved = {"epsilon": 1.0, "delta": 1e-5, "sigma": 0.5, "sparsity": sparsity}
    message = refused(DPSymmetricRegression, X, X[:, 0], valid=improved)
    assert message.startswith("start must be given: a private one is predicted to fail at n=50;")
    rows = int(message.split("about n = ")[1].split()[0].rstrip(".").replace(",", ""))
    assert 100 <= rows <= 5000


@pytest.mark.parametrize("estimator", ALL)
def test_delta_that_protects_no_one_is_warned_about(estimator, X, y, monkeypatch):
    monkeypatch.setattr("dpem.tables.inputs.ArraySource", ArraySource)
    for delta in (1 / N, 0.1, 0.5):
        with pytest.warns(UserWarning, match="is not below 1/n") as caught:
            estimator(**{**VALID, "delta": delta}).fit(X, y)
        assert len(caught) == 1
        assert caught[0].filename == __file__  # points at the caller's line
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator(**{**VALID, "delta": 0.99 / N}).fit(X, y)


@pytest.mark.parametrize("estimator", ALL)
def test_rows_to_predict(estimator, X, y, monkeypatch):
    monkeypatch.setattr("dpem.tables.inputs.ArraySource", ArraySource)
    model = estimator(**VALID).fit(X, y)
    X[0, 0] = 12345.678
    text = X.astype(object)
    text[5, 1] = "secret-diagnosis"
    for table in (X[:, 0], X[0], text.astype("S"), X + 1j, X[:, :3]):
        with pytest.raises(ValueError) as refusal:  # noqa: PT011 each has its own message
            model.predict(table)
        assert "12345" not in str(refusal.value)
        assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("estimator", REGRESSIONS)
def test_responses_to_judge(estimator, X, y, monkeypatch):
    monkeypatch.setattr("dpem.tables.inputs.ArraySource", ArraySource)
    model = estimator(**VALID).fit(X, y)
    text = y.astype(object)
    text[5] = "secret-diagnosis"
    y[3] = 12345.678
    for response in (text, text.astype(str), y[:-1], y[:, None], y + 1j, y * math.inf, 12345.678):
        with pytest.raises(ValueError) as refusal:  # noqa: PT011 each has its own message
            model.score_samples(X, response)
        assert "12345" not in str(refusal.value)
        assert "secret" not in str(refusal.value)
