"""dpem predict: the file of predictions is what the estimator predicts, row by row."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, ipc, parquet
from running_dpem import NAMES, N, dpem

from dpem import DPGaussianMixture
from dpem.paper import DPSymmetricMixture
from dpem.persistence import load_model, save_model
from dpem.tables import read_table

FIT = ("--epsilon", "1", "--delta", "1e-3", "--sigma", "0.5")

pytestmark = pytest.mark.usefixtures("folder")


def read(path: str) -> pa.Table:
    if path.endswith(".parquet"):
        return parquet.read_table(path)
    return csv.read_csv(path) if path.endswith(".csv") else ipc.open_file(path).read_all()


def rows(stem: str) -> tuple[np.ndarray, pa.Table]:
    table = parquet.read_table(f"{stem}.parquet")
    return np.column_stack([table[name].to_numpy() for name in NAMES]), table


@pytest.fixture
def mixture():
    assert dpem("fit", "symmetric-mixture", "patients.csv", *FIT).code == 0
    return load_model("model.json")


@pytest.mark.parametrize(
    ("data", "suffix"), [("patients.csv", "parquet"), ("patients.parquet", "arrow"), ("patients.arrow", "csv")]
)
def test_a_mixture_gives_components(mixture, data, suffix):
    done = dpem("predict", "model.json", data, "--out", f"p.{suffix}")
    assert done.code == 0, done.err
    assert done.out == f"Wrote 600 rows to p.{suffix}: component, probability_0, probability_1.\n"
    assert "guarantee does not cover predictions" in done.err
    found, table = read(f"p.{suffix}"), parquet.read_table("patients.parquet").to_pandas()
    np.testing.assert_array_equal(found["component"].to_numpy(), mixture.predict(table))
    np.testing.assert_array_equal(found["probability_1"].to_numpy(), mixture.predict_proba(table)[:, 1])


def test_a_note_says_that_components_are_numbered_from_0():
    table = parquet.read_table("patients.parquet").to_pandas()[list(NAMES)]
    model = DPGaussianMixture(2, epsilon=np.inf, delta=1e-3, bounds=(-5, 5)).fit(table)
    save_model(model, "model.json")
    assert "component 1: share" in model.summary().index
    done = dpem("predict", "model.json", "patients.csv", "--out", "p.csv")
    assert "numbered from 0 here, and from 1 in the summary" in done.err
    assert set(read("p.csv")["component"].to_pylist()) <= {0, 1}


def test_standard_output_is_csv(mixture):
    done = dpem("predict", "model.json", "patients.csv")
    lines = done.out.splitlines()
    assert lines[0] == "component,probability_0,probability_1"
    assert len(lines) == N + 1


def test_columns_are_found_by_name_whatever_their_order(mixture):
    table = parquet.read_table("patients.parquet")
    parquet.write_table(table.select(["dose", "age", "height"]).append_column("more", table["age"]), "other.parquet")
    dpem("predict", "model.json", "patients.parquet", "--out", "a.csv")
    dpem("predict", "model.json", "other.parquet", "--out", "b.csv")
    assert read("a.csv") == read("b.csv")


def test_rows_keep_their_order_over_many_chunks(monkeypatch):
    assert dpem("fit", "symmetric-mixture", "patients.parquet", *FIT).code == 0
    assert dpem("predict", "model.json", "patients.parquet", "--out", "whole.csv").code == 0
    monkeypatch.setattr("dpem.tables.parquet.CHUNK_ROWS", 7)
    assert sum(1 for _ in read_table("patients.parquet").chunks()) > 50
    assert dpem("predict", "model.json", "patients.parquet", "--out", "parts.csv").code == 0
    assert read("whole.csv")["component"] == read("parts.csv")["component"]


def test_a_mixture_of_regressions_with_and_without_the_response():
    assert dpem("fit", "symmetric-regression", "mixed.csv", "--target", "outcome", *FIT).code == 0
    model, (X, table) = load_model("model.json"), rows("mixed")
    del model.feature_names_in_
    without = dpem("predict", "model.json", "mixed.csv", "--out", "a.csv", "--json").json
    assert without == {"out": "a.csv", "rows": N, "columns": ["prediction"], "warnings": []}
    np.testing.assert_allclose(read("a.csv")["prediction"].to_numpy(), model.predict(X), rtol=1e-12)
    assert dpem("predict", "model.json", "mixed.csv", "--target", "outcome", "--out", "b.csv").code == 0
    expected = model.predict_proba(X, table["outcome"].to_numpy())[:, 1]
    np.testing.assert_allclose(read("b.csv")["probability_1"].to_numpy(), expected, rtol=1e-9)


def test_missing_covariates():
    assert dpem("fit", "missing-regression", "missing.csv", "--target", "outcome", *FIT).code == 0
    model, (X, _) = load_model("model.json"), rows("missing")
    del model.feature_names_in_
    assert dpem("predict", "model.json", "missing.parquet", "--out", "p.parquet").code == 0
    np.testing.assert_allclose(read("p.parquet")["prediction"].to_numpy(), model.predict(X), rtol=1e-12)


def test_the_class_of_an_incomplete_row_is_missing():
    price = ("--epsilon", "5", "--delta", "1e-3", "--bounds", "-3,3", "--columns", "age,dose")
    assert dpem("fit", "logistic-regression", "missing.csv", "--target", "outcome", *price).code == 0
    assert dpem("predict", "model.json", "missing.csv", "--out", "p.csv").code == 0
    complete = ~np.isnan(rows("missing")[0][:, [0, 2]]).any(axis=1)
    for column in ("prediction", "probability_0", "probability_1"):
        assert (read("p.csv")[column].is_valid().to_numpy() == complete).all()


def test_a_refusal_leaves_no_file(mixture):
    Path("short.csv").write_text("age\n1\n")
    done = dpem("predict", "model.json", "short.csv", "--out", "p.csv")
    assert done.code == 3
    assert not [name for name in os.listdir() if name.startswith("p.") or name.endswith(".tmp")]


def test_a_model_without_names_takes_the_columns_as_they_come():
    rows = np.loadtxt("patients.csv", delimiter=",", skiprows=1)
    model = DPSymmetricMixture(epsilon=1, delta=1e-3, sigma=0.5).fit(rows)
    save_model(model, "model.json")
    assert dpem("predict", "model.json", "patients.csv", "--out", "p.csv").code == 0
    np.testing.assert_array_equal(read("p.csv")["component"].to_numpy(), model.predict(rows))
    Path("wide.csv").write_text("a,b,c,d\n" + "0,0,0,0\n" * 5)
    done = dpem("predict", "model.json", "wide.csv", "--out", "q.csv")
    assert done.code == 3
    assert "the rows have 4 columns, but 'model.json' was fitted to 3" in done.err


def test_existing_predictions_are_kept_unless_forced(mixture):
    assert dpem("predict", "model.json", "patients.csv", "--out", "p.csv").code == 0
    assert dpem("predict", "model.json", "patients.csv", "--out", "p.csv").code == 6
    assert dpem("predict", "model.json", "patients.csv", "--out", "p.csv", "--force").code == 0
    assert dpem("predict", "model.json", "patients.csv", "--out", "model.json", "--force").code == 2


def test_an_error_of_reading_is_not_one_of_writing(mixture, monkeypatch):
    def changed(self):
        raise OSError("patients.parquet has changed or vanished since it was opened.")

    monkeypatch.setattr("dpem.tables.dataset._File.check_unchanged", changed)
    done = dpem("predict", "model.json", "patients.parquet", "--out", "p.csv")
    assert (done.code, "has changed" in done.err, os.path.exists("p.csv")) == (3, True, False)
