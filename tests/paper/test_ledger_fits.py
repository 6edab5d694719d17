"""Every fit is charged to a ledger before its first query, also in clones, pickles and worker processes."""

import getpass
import warnings

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from dpem import BudgetExceeded, DPStandardScaler, Ledger, LedgerError
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.privacy import Curator, digest, largest_price

#: A fit whose plan has no free settings.
QUICK = {
    "epsilon": 0.5,
    "delta": 1e-5,
    "method": "published",
    "sparsity": 2,
    "sigma": 1.0,
    "start": "equal",
    "n_iter": 2,
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    return X, X[:, 0] + 0.5 * rng.standard_normal(300)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(f"sqlite:///{tmp_path}/budget.db").open("patients", epsilon=20.0, delta=1e-3)


@pytest.mark.parametrize("estimator", [DPSymmetricMixture, DPSymmetricRegression, DPMissingRegression])
def test_a_fit_is_charged_and_answered(estimator, data, ledger):
    model = estimator(**QUICK, budget=ledger).fit(*data)
    (charge,) = ledger.history()
    assert (charge.epsilon, charge.delta, charge.rho) == (0.5, 1e-5, model.plan_.price.rho)
    assert charge.gaussian is model.plan_.price.gaussian
    assert charge.purpose == f"{estimator.__name__}.fit, n=300, d=4"
    assert charge.digest == digest(model.plan_.to_dict())
    assert charge.outcome == "answered"


def test_a_model_whose_sigma_was_estimated_still_gives_the_digest_of_the_charged_plan(ledger):
    rng = np.random.default_rng(0)
    Y = rng.choice([-1.0, 1.0], size=(4000, 1)) * [1.0, 0.0] + 0.5 * rng.standard_normal((4000, 2))
    model = DPSymmetricMixture(epsilon=2.0, delta=1e-5, start="equal", n_iter=1, budget=ledger).fit(Y)
    (charge,) = ledger.history()
    assert charge.digest == digest(model._charged_plan().to_dict())
    assert charge.digest != digest(model.plan_.to_dict())


def test_a_scaler_is_charged_and_answered(data, ledger):
    DPStandardScaler(epsilon=0.5, delta=1e-5, bounds=(-5, 5), budget=ledger).fit(data[0])
    (charge,) = ledger.history()
    price = largest_price(0.5, 1e-5, gaussian=True)
    assert (charge.epsilon, charge.delta, charge.rho, charge.gaussian) == (0.5, 1e-5, price.rho, True)
    assert (charge.purpose, charge.outcome) == ("DPStandardScaler.fit, n=300, d=4", "answered")
    assert len(charge.digest) == 16


either = pytest.mark.parametrize(
    "model",
    [DPSymmetricMixture(**QUICK), DPStandardScaler(epsilon=0.5, delta=1e-5, bounds=(-5, 5))],
    ids=["mixture", "scaler"],
)


@either
def test_the_charge_is_in_the_ledger_before_the_first_query(model, data, ledger, monkeypatch):
    class Refusing(Curator):
        def __init__(self, *args, **kwargs):
            assert [charge.outcome for charge in ledger.history()] == ["no answer"]
            raise ZeroDivisionError

    monkeypatch.setattr("dpem.fitting.sequence.Curator", Refusing)
    with pytest.raises(ZeroDivisionError):
        clone(model).set_params(budget=ledger).fit(data[0])
    assert [charge.outcome for charge in ledger.history()] == ["failed"]  # and stays charged
    assert len(ledger.history()) == 1
    assert ledger.state().spent_epsilon > 0


@either
def test_nothing_is_asked_if_the_ledger_refuses_or_fails(model, data, tmp_path, monkeypatch):
    model = clone(model)

    def refuse(*_):
        raise AssertionError("data were queried")

    monkeypatch.setattr("dpem.fitting.sequence.Curator", refuse)
    small = Ledger(f"sqlite:///{tmp_path}/budget.db").open("patients", epsilon=0.4, delta=1e-6)
    with pytest.raises(BudgetExceeded, match=r"dataset 'patients' \(epsilon=0\.4, .* Nothing was computed"):
        model.set_params(budget=small).fit(data[0])
    assert small.history() == []
    with pytest.raises(LedgerError, match="dataset 'others' is not open"):
        model.set_params(budget=small.dataset("others")).fit(data[0])
    with pytest.raises(LedgerError, match="no such file"):
        model.set_params(budget=Ledger(f"sqlite:///{tmp_path}/other.db", "patients")).fit(data[0])
    with pytest.raises(ValueError, match="bound to no dataset"):
        model.set_params(budget=Ledger(f"sqlite:///{tmp_path}/budget.db")).fit(data[0])
    assert not hasattr(model, "guarantee_")


def test_workers_cannot_overspend(data, tmp_path):
    one = DPSymmetricMixture(**QUICK).fit(data[0]).plan_.price
    room = type(one)(one.rho * 4).epsilon(1e-5) * (1 + 1e-6)
    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db").open("patients", epsilon=room, delta=1e-5)
    model = DPSymmetricMixture(**QUICK, budget=ledger)
    with joblib.parallel_config(backend="loky", n_jobs=2), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of folds that failed
        search = GridSearchCV(model, {"step_size": [0.3, 0.6]}, cv=3, n_jobs=2, refit=False).fit(data[0])
    failed = sum(np.isnan(search.cv_results_[f"split{fold}_test_score"]).sum() for fold in range(3))
    assert failed == 2
    assert [charge.outcome for charge in ledger.history()] == ["answered"] * 4
    with pytest.raises(BudgetExceeded):
        model.fit(data[0])


@either
def test_the_book_names_the_model_that_a_fit_became(model, data, ledger):
    from dpem.persistence import fingerprint

    fitted = clone(model).set_params(budget=ledger).fit(data[0])
    (charge,) = ledger.history()
    assert charge.model == fingerprint(fitted)
    assert charge.private
    assert charge.who == getpass.getuser()
    assert charge.host


def test_a_refused_fit_is_written_down(data, ledger):
    with pytest.warns(UserWarning, match="above 10"), pytest.raises(BudgetExceeded):
        DPStandardScaler(epsilon=50.0, delta=1e-5, bounds=(-5, 5), budget=ledger).fit(data[0])
    (refusal,) = ledger.state().refusals
    assert (refusal.epsilon, refusal.reason) == (50.0, "budget")
    assert refusal.purpose.startswith("DPStandardScaler.fit")
    assert ledger.history() == []
