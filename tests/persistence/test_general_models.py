"""A general model in a file: nothing but its own file knows it, and it comes back to the bit or not at all."""

import json
import math
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import small_models
from forging import VALUES, forge, paths, put, refusal
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from typing_extensions import TypeAliasType, TypeVar

from dpem import load_model, registry, save_model
from dpem._json import plain, rebuild, refuse_undeclared
from dpem.persistence import fingerprint
from dpem.queries.narrow import zero_nonfinite
from dpem.query import FloatArray


@dataclass(frozen=True)
class Parameters:
    mean: FloatArray
    noise: float
    counts: NDArray[np.intp]
    path: tuple[FloatArray, ...]


@dataclass(frozen=True)
class MeasureMeans(small_models.MeasureMeans):
    passes = 3

    def run(self, curator, model, state):
        query = small_models.MeanQuery(model.schema)
        mean, noise = curator.measure(query, self.rho), curator.noise_scale(query, self.rho)
        return replace(state, theta=Parameters(mean, noise, np.arange(2), (mean[:, None], np.empty((0, 3)))))


class Means(small_models.Means):
    """The same with a record of parameters, as every model has that is written to a file."""

    def steps(self, sizes):
        measure, check = super().steps(sizes)
        return (MeasureMeans(measure.rho), check)


class DPMeans(small_models.DPMeans):
    _every_level = True

    def __init__(
        self, *, powers=(1, 2), epsilon=None, delta=None, bounds=None, levels=None, rows_per_person=1, budget=None,
        check=True, random_state=None,
    ):  # fmt: skip
        self.powers, self.epsilon, self.delta, self.bounds, self.levels = powers, epsilon, delta, bounds, levels
        self.rows_per_person, self.budget, self.check, self.random_state = rows_per_person, budget, check, random_state

    def _model(self, schema):
        return Means(schema)

    def _attributes(self, theta, schema) -> dict[str, Any]:
        return super()._attributes(theta, schema)

    def distances(self, X):
        return self._each(lambda xp, theta, x, y: xp.sum(zero_nonfinite(xp, (x - theta.mean) ** 2), axis=1), X)


def people(n=3000):
    rng = np.random.default_rng(0)
    rows = {"age": rng.normal(60, 10, n), "dose": rng.normal(3, 0.3, n), "smoker": rng.integers(0, 2, n)}
    frame = pd.DataFrame({**rows, "region": rng.choice(["north", "süd"], n)})
    frame.iloc[::7, 0] = np.nan
    return frame


SETTINGS = {
    "epsilon": 1,
    "delta": 1e-6,
    "bounds": {"age": (0, 100), "d*": (0, 0.1 + 0.2)},
    "levels": {"smoker": [0, 1], "region": ["north", "süd"]},
}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    classes = {**registry.classes(), "DPMeans": __name__}
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    monkeypatch.setattr(registry, "classes", lambda: classes)


@pytest.fixture(scope="module")
def model():
    return DPMeans(**SETTINGS).fit(people())


@pytest.fixture
def text(model, tmp_path):
    save_model(model, tmp_path / "model.json")
    return (tmp_path / "model.json").read_text()


def test_a_loaded_model_equals_the_saved_one_bit_for_bit(model, tmp_path):
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    assert type(loaded) is DPMeans
    assert loaded.distances(people()).tobytes() == model.distances(people()).tobytes()
    assert loaded.means_.tobytes() == model.means_.tobytes()
    assert fingerprint(loaded) == fingerprint(model)
    assert (loaded.guarantee_, loaded.fit_check_) == (model.guarantee_, model.fit_check_)
    assert str(loaded.plan_) == str(model.plan_)
    assert loaded.plan_.passes == model.plan_.passes
    assert loaded.summary().equals(model.summary())
    assert (loaded.bounds_, loaded.levels_) == (model.bounds_, model.levels_)
    assert loaded.theta_.path[1].shape == (0, 3)


def test_a_loaded_model_can_be_fitted_again(model, tmp_path):
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    assert loaded.fit(people()).plan_.price == model.plan_.price


def test_computed_errors_are_saved_and_change_no_fingerprint(tmp_path):
    fitted = DPMeans(**SETTINGS).fit(people())
    before = fingerprint(fitted)
    save_model(fitted, tmp_path / "before.json")
    fitted.summary()
    assert fingerprint(fitted) == before
    save_model(fitted, tmp_path / "after.json")
    assert json.loads((tmp_path / "before.json").read_text())["uncertainty"] is None
    assert "_uncertainty_" in vars(load_model(tmp_path / "after.json"))


def test_a_non_private_fit_and_a_seeded_one(tmp_path):
    for changed in ({"epsilon": math.inf}, {"random_state": 0}):
        fitted = DPMeans(**{**SETTINGS, **changed}).fit(people())
        save_model(fitted, tmp_path / "m.json")
        assert "random_state" not in (tmp_path / "m.json").read_text()
        assert load_model(tmp_path / "m.json").guarantee_.private is False


def test_an_unregistered_class_is_neither_written_nor_looked_up(model, text, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "classes", lambda: {"DPStandardScaler": "dpem.fitting.scaler"})
    with pytest.raises(ValueError, match="model must be one of DPStandardScaler; got DPMeans"):
        save_model(model, tmp_path / "other.json")
    assert "estimator must be one of DPStandardScaler" in refusal(tmp_path / "m.json", text)


def test_a_theta_of_another_shape_is_refused(model, tmp_path):
    broken = DPMeans(**SETTINGS)
    broken.__dict__ = {**vars(model), "theta_": replace(model.theta_, mean=np.zeros(2))}
    with pytest.raises(ValueError, match=r"theta does not agree with features"):
        save_model(broken, tmp_path / "m.json")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["fitted", "theta", "mean"], [0.0, 1.0], "fitted.theta does not agree"),
        (["fitted", "theta", "mean"], [[0.0], [1.0, 2.0]], "lists of equal lengths"),
        (["fitted", "theta", "mean", 0], "a", "fitted.theta.mean must be a list of numbers"),
        (["fitted", "theta", "mean", 0], True, "fitted.theta.mean must be a list of numbers"),
        (["fitted", "theta", "counts", 0], 0.5, "fitted.theta.counts must be a list of whole numbers"),
        (["fitted", "theta", "noise"], "inf", "fitted.theta.noise must be finite"),
        (["fitted", "theta", "extra"], 1, "unknown key 'extra'"),
        (["fitted", "theta", "path", 1], {"shape": [2, 3]}, "shape must be that of an empty array"),
        (["fitted", "chosen"], [0, 99], "fitted.chosen must be a list of different coordinates"),
        (["fitted", "check", "better"], 1, "fitted.check.better must be true or false"),
        (["features", "columns", 0, "bounds"], [1, 0], "low below high"),
        (["features", "columns", 0, "bounds"], [0, "x"], "features.columns[0].bounds[1] must be a number"),
        (["features", "columns", 0, "name"], "dose", "is given twice"),
        (["features", "columns", 3, "levels"], ["north"], "at least two different levels"),
        (["features", "columns", 3, "levels"], ["north", 3], "texts or of numbers"),
        (["features", "response"], {"name": None, "bounds": [0, 1]}, "features.response"),
        (["parameters", "powers"], {"a": 1}, "parameters.powers must be a number"),
        (["parameters", "check"], False, "plan.settings does not agree with parameters"),
        (["parameters", "epsilon"], 0.5, "state different epsilon"),
        (["plan", "n"], 10, "plan.n does not agree with guarantee.mechanisms"),
        (["plan", "model"], "other", "plan.model does not agree with estimator"),
        (["plan", "steps", 0, "rho"], 1e9, "the steps of this plan cost"),
        (["uncertainty"], {}, "uncertainty lacks 'names'"),
        (["scaler"], "sha256:" + 64 * "0", "scaler must be null for this estimator"),
    ],
)
def test_a_forged_field_is_named(text, path, value, words, tmp_path):
    assert words in refusal(tmp_path / "m.json", forge(put(json.loads(text), path, value)))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_forged_file_gives_a_whole_model_or_a_refusal(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp()
    source = folder / "source.json"
    if not source.exists():
        save_model(DPMeans(**SETTINGS, random_state=0).fit(people()), source)
    document = json.loads(source.read_text())
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([path for path in paths(document) if path != ["checksum"]]))
        document = put(document, path, data.draw(VALUES | st.just(...)))
    file = folder / "forged.json"
    file.write_text(forge(document))
    try:
        loaded = load_model(file)
    except ValueError as error:
        message = str(error)
        assert "\n" not in message
        return
    save_model(loaded, file)
    assert fingerprint(load_model(file)) == fingerprint(loaded)


@given(shape=st.lists(st.integers(0, 3), min_size=1, max_size=4), floats=st.booleans(), seed=st.integers(0, 2**20))
def test_arrays_keep_shape_and_bits(shape, floats, seed):
    rng = np.random.default_rng(seed)
    array = rng.standard_normal(shape) if floats else rng.integers(-9, 9, shape).astype(np.intp)
    rebuilt = rebuild(FloatArray if floats else NDArray[np.intp], json.loads(json.dumps(plain(array))), "here")
    assert (rebuilt.shape, rebuilt.dtype) == (array.shape, array.dtype)
    assert rebuilt.tobytes() == array.tobytes()


def test_an_array_may_be_declared_by_an_alias():
    """From NumPy 2.5 on, ``NDArray`` is an alias made by the statement ``type``."""
    scalar = TypeVar("scalar", bound=np.generic)
    alias = TypeAliasType("NDArray", np.ndarray[tuple[int, ...], np.dtype[scalar]], type_params=(scalar,))
    refuse_undeclared(alias[np.float64] | None, "here")
    assert rebuild(alias[np.float64] | None, [1, 2], "here").dtype == np.float64
    assert rebuild(alias[np.intp], [1, 2], "here").dtype == np.intp
    with pytest.raises(ValueError, match="whole numbers"):
        rebuild(alias[np.intp], [0.5], "here")
