"""Every general model as a user meets it: from a CSV file to a report, and predictions of odd rows."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cheaper import few_starts, no_predictions, small_designs, small_surrogate
from cli.running_dpem import dpem
from sklearn.base import clone

from dpem import DPGaussianMixture, DPLatentClass, load_model, read_table, registry

N = 1500
BOUNDS = {"age": [0, 100], "dose": [0, 4]}
LEVELS = {"sex": ["f", "m"], "ward": ["n", "s", "w"], "smoker": [0, 1]}
COST = ("--target", "cost", "--y-bounds", "0,200")
X = ("--columns", "age,dose,sex,ward,smoker")
ROWS = {
    "linear-regression": (*COST, *X),
    "logistic-regression": ("--target", "ill", "--classes", "no,yes", *X),
    "poisson-regression": ("--target", "visits", "--y-bounds", "0,30", *X),
    "mixture-regression": (*COST, "--columns", "age,dose"),
    "gaussian-mixture": ("--columns", "age,dose"),
    "latent-class": ("--columns", "sex,ward,smoker"),
}
FORMULAS = {
    "linear-regression": "cost ~ age * sex + I(dose**2)",
    "logistic-regression": "ill ~ poly(age, 2) + ward",
    "poisson-regression": "visits ~ dose + sex:ward",
}
#: Entries that new rows may have: beyond the bounds, missing, an undeclared level, not a number.
ODD = pd.DataFrame(
    {
        "note": ["plain", "missing", "far", "farther", "no level", "no number", "empty"],
        "ward": ["n", "", "s", "w", "moon", "s", ""],
        "smoker": ["0", "", "1", "0", "2", "1", ""],
        "dose": ["2.5", "", "1e9", "-inf", "2", "2,5", ""],
        "sex": ["f", "m", "f", "m", "x", "f", ""],
        "age": ["40", "", "-1e300", "inf", "50", "old", ""],
    }
)


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"age": rng.uniform(20, 90, N).round(1), "dose": rng.uniform(0, 4, N).round(2)})
    ill = rng.random(N) < 0.5
    for name, levels in LEVELS.items():
        rows[name] = np.where(ill, levels[-1], rng.choice(levels, N))
    rows["cost"] = (60 + 0.8 * rows.age + np.where(ill, 10, -10) * rows.dose + rng.normal(0, 5, N)).round(2)
    rows["visits"] = rng.poisson(np.exp(0.3 + 0.4 * rows.dose))
    rows["ill"] = np.where(ill, "yes", "no")
    rows.loc[::11, "age"] = np.nan
    return rows


@pytest.fixture
def folder(people, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPEM_LEDGER", raising=False)
    for cheaper in (few_starts, no_predictions, small_designs, small_surrogate):
        cheaper(monkeypatch)
    people.to_csv("people.csv", index=False)
    ODD.to_csv("odd.csv", index=False)
    Path("bounds.json").write_text(json.dumps(BOUNDS))
    Path("levels.json").write_text(json.dumps(LEVELS))


def fitted(name, *response):
    """The model of a fit from a shell."""
    declared = () if name == "latent-class" else ("--bounds", "bounds.json")
    declared += () if "mixture" in name else ("--levels", "levels.json")
    price = ("--epsilon", "8", "--delta", "1e-6", "--report", "report.html")
    done = dpem("fit", name, "people.csv", *response, *declared, *price)
    assert done.code == 0, done.err
    return load_model("model.json")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", registry.general())
def test_from_a_file_to_a_report_and_predictions_of_odd_rows(name):
    model = fitted(name, *ROWS[name])
    page = Path("report.html").read_text(encoding="utf-8")
    assert model.fit_check_.verdict in page
    assert all(str(term) in page for term in model.summary().index.get_level_values(-1))
    assert dpem("predict", "model.json", "odd.csv", "--out", "predicted.csv").code == 0
    written = pd.read_csv("predicted.csv").iloc[:, 0]
    odd = ODD[list(model.columns_)]
    alone = pd.Series([model.predict(odd[i : i + 1])[0] for i in range(len(odd))], name=written.name)
    if name == "logistic-regression":  # a class whose probability is unknown is missing
        alone = alone.where([not np.isnan(model.predict_proba(odd[i : i + 1])).any() for i in range(len(odd))])
    pd.testing.assert_series_equal(written, alone, check_dtype=False)
    assert written[[0, 2]].notna().all()  # an entry beyond the bounds is one at the bound


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_from_a_file_to_a_report(name):
    model = fitted(name, "--formula", FORMULAS[name], *ROWS[name][2:4])
    assert dpem("predict", "model.json", "odd.csv", "--out", "predicted.csv").code == 0
    assert pd.read_csv("predicted.csv").prediction[[0, 2]].notna().all()
    assert model.formula == FORMULAS[name]


@pytest.mark.parametrize("epsilon", [10.0, np.inf])
@pytest.mark.parametrize(
    "model",
    [
        DPGaussianMixture(2, delta=1e-6, bounds=(-5, 10), random_state=1),
        DPLatentClass(2, delta=1e-6, levels={name: [0, 1] for name in "abc"}, random_state=1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_response_in_the_table_changes_no_mixture(model, epsilon, tmp_path, monkeypatch):
    few_starts(monkeypatch)
    small_surrogate(monkeypatch)
    rng = np.random.default_rng(0)
    items = rng.random((N, 3)) < rng.choice([0.1, 0.9], (N, 1))  # two classes, which EM finds soon
    rows = pd.DataFrame(items.astype(float), columns=list("abc")).assign(y=rng.normal(size=N))
    rows.to_parquet(tmp_path / "rows.parquet")
    fits = [
        clone(model)
        .set_params(epsilon=epsilon)
        .fit(read_table(tmp_path / "rows.parquet", columns=list("abc"), **target))
        for target in ({}, {"target": "y"})
    ]
    assert fits[0].weights_.tolist() == fits[1].weights_.tolist()
