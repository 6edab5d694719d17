"""model.json: what is loaded is what was saved, and whatever else the file may be, a sentence and nothing worse."""

import copy
import inspect
import json
import math
import re
import sys
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from forging import VALUES, forge, paths, put, refusal
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from dpem import Budget, DPGaussianMixture, DPStandardScaler, Plan, persistence
from dpem._files import read_text
from dpem._json import parse_json
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.persistence import fingerprint, load_model, save_model

N, D = 2500, 6
COMMON = {"epsilon": 1.0, "delta": 1e-5, "sparsity": 2, "sigma": 0.5}


def tables():
    rng = np.random.default_rng(0)
    beta = np.array([0.8, 0.6, 0, 0, 0, 0])
    sign = rng.choice([-1.0, 1.0], size=N)
    X = rng.standard_normal((N, D))
    y = X @ beta + 0.5 * rng.standard_normal(N)
    incomplete = np.where(rng.random(X.shape) < 0.2, math.nan, X)
    return sign[:, None] * beta + 0.5 * rng.standard_normal((N, D)), X, sign * y, incomplete, y


Y, X, MIXED, PARTIAL, RESPONSE = tables()
NAMES = ["a", "b", "ç", "<b>&", "年", ""]
FITS = {
    "named columns": lambda: DPSymmetricMixture(**COMMON).fit(pd.DataFrame(Y, columns=NAMES)),
    "seeded": lambda: DPSymmetricMixture(**COMMON, random_state=0).fit(Y),
    "auto": lambda: DPSymmetricMixture(**{**COMMON, "sparsity": "auto", "sigma": None}, max_sparsity=3).fit(Y),
    "paper": lambda: DPSymmetricMixture(**COMMON, method="published", start="equal").fit(Y),
    "reference": lambda: DPSymmetricMixture(**{**COMMON, "epsilon": math.inf}, n_iter=5, step_size=1.0).fit(Y),
    "two lines": lambda: DPSymmetricRegression(**COMMON, start=[0.5, 0.5, 0, 0, 0, 0]).fit(X, MIXED),
    "budget": lambda: DPMissingRegression(**COMMON, budget=Budget(1.0, 1e-5)).fit(PARTIAL, RESPONSE),
    "low paper": lambda: DPMissingRegression(**{**COMMON, "sparsity": None}, method="published").fit(PARTIAL, RESPONSE),
    "scaler": lambda: DPStandardScaler(epsilon=1.0, delta=1e-5, bounds=(-5, [5.0] * D)).fit(X),
}  # fmt: skip


@pytest.fixture(scope="module")
def models():
    return {name: fit() for name, fit in FITS.items()}


@pytest.fixture(scope="module")
def folder(models, tmp_path_factory):
    """One file for each model."""
    path = tmp_path_factory.mktemp("models")
    for name, model in models.items():
        save_model(model, path / f"{name}.json")
    return path


def same(one, other):
    """Whether two fitted estimators say the same, to the bit."""
    if isinstance(one, DPStandardScaler):
        numbers = [(one.mean_, other.mean_), (one.scale_, other.scale_), (one.transform(X), other.transform(X))]
    else:
        assert (one.plan_, one.n_iter_, one.sigma_) == (other.plan_, other.n_iter_, other.sigma_)
        rows = PARTIAL if isinstance(one, DPMissingRegression) else X
        numbers = [(one.coef_, other.coef_), (one.support_, other.support_), (one.predict(rows), other.predict(rows))]
    assert one.guarantee_ == other.guarantee_
    assert one.releases_ == other.releases_
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in numbers)


class TestRoundTrip:
    @pytest.fixture(params=FITS)
    def pair(self, request, models, folder):
        return models[request.param], load_model(folder / f"{request.param}.json")

    @pytest.mark.filterwarnings("ignore:X does not have valid feature names")
    def test_predictions_are_the_same_bit_for_bit(self, pair):
        assert type(pair[0]) is type(pair[1])
        assert same(*pair)

    def test_arguments_are_the_same_except_budget_and_seed(self, pair):
        saved, loaded = (estimator.get_params() for estimator in pair)
        assert set(saved) == set(loaded)
        for name in set(saved) - {"budget", "random_state", "start", "bounds"}:
            assert saved[name] == loaded[name], name
        assert loaded["budget"] is loaded["random_state"] is None

    def test_the_same_fingerprint(self, pair):
        assert fingerprint(pair[0]) == fingerprint(pair[1])

    def test_the_same_plan_from_plain_numbers(self, pair):
        plain = json.loads(json.dumps(pair[0].plan_.to_dict()))
        assert Plan.from_dict(plain, type(pair[0])._step_kinds).to_dict() == plain

    def test_column_names(self, models, folder):
        loaded = load_model(folder / "named columns.json")
        assert loaded.feature_names_in_.tolist() == models["named columns"].feature_names_in_.tolist()
        assert not hasattr(load_model(folder / "seeded.json"), "feature_names_in_")

    def test_a_start_and_bounds_are_saved(self, folder):
        assert load_model(folder / "two lines.json").start == (0.5, 0.5, 0, 0, 0, 0)
        assert load_model(folder / "paper.json").start == "equal"
        low, high = load_model(folder / "scaler.json").bounds
        assert low == -5
        assert list(high) == [5.0] * D

    def test_no_seed_in_the_file(self, folder):
        assert "random_state" not in (folder / "seeded.json").read_text()
        assert load_model(folder / "seeded.json").guarantee_.private is False

    @pytest.mark.filterwarnings("ignore:random_state makes:UserWarning")
    def test_a_model_with_numbers_of_numpy_can_be_saved(self, tmp_path):
        rows = np.random.default_rng(0).standard_normal((300, 2))
        components, bounds = np.int64(1), (np.float32(-3.0), np.float64(3.0))
        model = DPGaussianMixture(n_components=components, epsilon=1.0, delta=1e-4, bounds=bounds, random_state=0)
        save_model(model.fit(rows), tmp_path / "numpy.json")
        assert load_model(tmp_path / "numpy.json").plan_.settings["n_components"] == 1

    def test_a_wide_model_is_a_short_file(self, tmp_path):
        """d = 100,000 columns of which two are on the support: the file must not grow with d."""
        wide = copy.deepcopy(FITS["reference"]())
        wide.n_features_in_ = d = 100_000
        wide.coef_ = np.concatenate([wide.coef_, np.zeros(d - D)])
        wide.plan_ = replace(wide.plan_, d=d)
        save_model(wide, tmp_path / "wide.json")
        assert (tmp_path / "wide.json").stat().st_size < 20_000
        assert load_model(tmp_path / "wide.json").coef_.tobytes() == wide.coef_.tobytes()


class TestWhatIsNotSaved:
    @pytest.mark.parametrize(
        ("model", "words"),
        [
            (make_pipeline(DPStandardScaler()), "model must be one of DPStandardScaler, .*DPSymmetricMixture"),
            (3, "got int"),
        ],
    )
    def test_other_objects_are_refused(self, model, words, tmp_path):
        with pytest.raises(ValueError, match=words):
            save_model(model, tmp_path / "m.json")
        assert not list(tmp_path.iterdir())

    def test_an_unfitted_model(self, tmp_path):
        with pytest.raises(NotFittedError):
            save_model(DPSymmetricMixture(**COMMON), tmp_path / "m.json")

    @pytest.mark.parametrize(
        "change", [{"signal": 2.0}, {"epsilon": 0.1}, {"sparsity": 3}, {"sigma": 1.0}, {"n_iter": 9}]
    )
    def test_arguments_changed_after_the_fit(self, models, change, tmp_path):
        model = copy.deepcopy(models["seeded"]).set_params(**change)
        with pytest.raises(ValueError, match="it was changed after the fit"):
            save_model(model, tmp_path / "m.json")

    def test_coefficients_changed_after_the_fit(self, models, tmp_path):
        """A file holds what was released, whatever became of the attributes."""
        model = copy.deepcopy(models["seeded"])
        model.coef_ = np.ones(D)
        save_model(model, tmp_path / "m.json")
        assert load_model(tmp_path / "m.json").coef_.tobytes() == models["seeded"].coef_.tobytes()

    def test_a_model_too_long_to_load(self, models, tmp_path, monkeypatch):
        monkeypatch.setattr(persistence, "LARGEST_FILE", 100)
        with pytest.raises(ValueError, match="must take at most 100 bytes in a file"):
            save_model(models["seeded"], tmp_path / "m.json")


@pytest.fixture(scope="module")
def texts(folder):
    return [(folder / f"{name}.json").read_text() for name in FITS]


@pytest.fixture(scope="module")
def document(folder):
    return json.loads((folder / "named columns.json").read_text())


class TestRefusals:
    def test_a_manual_edit_is_refused(self, folder, tmp_path):
        text = (folder / "two lines.json").read_text().replace('"sigma": 0.5', '"sigma": 0.6')
        assert "was changed after it was written (its checksum does not match)" in refusal(tmp_path / "m.json", text)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "not valid JSON"),
            ("[]", "not a model file"),
            ('{"format": "dpem-model"}', "format_version must be a whole number"),
            ('{"format": "dpem-model", "format_version": 9}', "format version 9, and dpem .* reads 4; update dpem"),
            ('{"format": "dpem-model", "format_version": 0}', "save the model again"),
            ('{"format": "dpem-model", "format_version": true}', "format_version must be a whole number"),
            ('{"a": 1, "a": 1}', "'a' is given twice"),
            ('{"a": NaN}', "NaN"),
            ('{"a": -Infinity}', "-Infinity"),
            ('{"a": 1e999}', "too large"),
            (f'{{"a": {"9" * 5000}}}', "53 bits"),
            ("[" * 100_000, "nested too deeply|not valid JSON"),
            ('{"a":' * 100_000, "nested too deeply|not valid JSON"),
            ("[" * 500 + "]" * 500, "not a model file"),
            ('"\\ud800', "not valid JSON"),
            ("\ufeff{}", "not valid JSON"),
        ],
    )
    def test_no_model_file(self, text, words, tmp_path):
        assert re.search(words, refusal(tmp_path / "m.json", text))

    def test_deep_nesting_inside_a_model(self, document, tmp_path):
        depth = sys.getrecursionlimit() - 150
        text = json.dumps(document)[:-1] + ', "deep": ' + "[" * depth + "]" * depth + "}"
        refusal(tmp_path / "m.json", text)

    @pytest.mark.parametrize(
        ("path", "value", "words"),
        [
            (["estimator"], "DPSomething", "estimator must be one of"),
            (["estimator"], "DPSymmetricRegression", "plan.model does not agree with estimator"),
            (["estimator"], "DPStandardScaler", "parameters has the unknown key"),
            (["created"], "yesterday", "created must be a time"),
            (["dpem_version"], 1, "dpem_version must be text"),
            (["parameters", "surprise"], 1, "parameters has the unknown key 'surprise'"),
            (["parameters", "signal"], ..., "parameters lacks 'signal'"),
            (["parameters", "sparsity"], True, "sparsity must be a positive whole number"),
            (["parameters", "sparsity"], "automatic", "sparsity must be"),
            (["parameters", "start"], "near", "start must be one of"),
            (["parameters", "method"], "published", "plan.settings does not agree with parameters"),
            (["parameters", "step_size"], 0.123, "plan.settings does not agree with parameters"),
            (["features", "count"], 5, "plan.d does not agree|fitted.theta.support|features"),
            (["features", "count"], 10**15, "features.count must be at most"),
            (["features", "names"], ["a"], "features.names must have 6 entries"),
            (["features", "names", 2], 7, "features.names[2] must be text"),
            (["fitted", "theta", "support"], [1, 0], "fitted.theta.support must name columns in order"),
            (["fitted", "theta", "support"], [0, 6], "fitted.theta.support must name columns in order"),
            (["fitted", "theta", "support"], [0.0, 1.0], "fitted.theta.support must be a list of whole numbers"),
            (["fitted", "theta", "values"], [1.0], "fitted.theta.support must name columns"),
            (["fitted", "theta", "values", 0], "inf", "fitted.theta.values must be a list of numbers"),
            (["fitted", "theta", "sigma"], 0, "fitted.theta.sigma does not agree with parameters.sigma"),
            (["plan"], None, "plan must be an object"),
            (["plan", "n"], 10, "plan.n does not agree"),
            (["plan", "model"], "symmetric-regression", "plan.model does not agree"),
            (["plan", "settings", "method"], "magic", "plan.settings does not agree with parameters"),
            (["plan", "steps", 0, "says"], "more", "plan.steps[0].says does not agree with its settings"),
            (["plan", "steps", 0, "kind"], "os.system", "plan.steps[0].kind must be one of Screen, Start"),
            (["plan", "steps", 0, "rho"], -1.0, "plan.steps[0].rho must be not negative"),
            (["plan", "steps", 2, "clip"], [1.0], "plan.steps[2].clip must have 3 entries"),
            (["plan", "steps", 2, "clip", 1], "big", "plan.steps[2].clip.residual must be a number"),
            (["plan", "delta"], 1.5, "plan.delta must be strictly between 0 and 1"),
            (["guarantee", "private"], 1, "guarantee.private must be true or false"),
            (["guarantee", "neighbours"], "none", "guarantee.neighbours must be replace-one"),
            (["guarantee", "mechanisms", 1, "n_rows"], 0, "guarantee.mechanisms[1].n_rows must be at least 1"),
            (["guarantee", "mechanisms", 1, "price", "rho"], 9.0, "cost more than guarantee.price"),
            (["guarantee", "mechanisms", 1, "price", "rho"], 1e-320, None),
        ],
    )  # fmt: skip
    def test_a_forged_field_is_named(self, document, path, value, words, tmp_path):
        text = forge(put(document, path, value))
        if words is None:
            (tmp_path / "m.json").write_text(text)
            load_model(tmp_path / "m.json")
        else:
            message = refusal(tmp_path / "m.json", text)
            assert any(part in message for part in words.split("|")), message

    @pytest.mark.parametrize("epsilon", [0.5, 0.999])
    def test_a_guarantee_better_than_the_price_is_refused(self, document, epsilon, tmp_path):
        for part in ("parameters", "plan", "guarantee"):
            document = put(document, [part, "epsilon"], epsilon)
        assert "cost more than" in refusal(tmp_path / "m.json", forge(document))

    def test_an_infinite_epsilon_is_not_private(self, folder, tmp_path):
        document = put(json.loads((folder / "reference.json").read_text()), ["guarantee", "private"], True)
        assert "guarantee.private must be false" in refusal(tmp_path / "m.json", forge(document))

    @pytest.mark.parametrize(
        ("path", "value", "words"),
        [
            (["fitted", "theta", "scale", 0], 0.0, "a positive scale for each column"),
            (["parameters", "bounds"], [5, -5], "low below high"),
            (["parameters", "bounds"], 5, "bounds must be (low, high)"),
            (["plan"], {}, "plan lacks"),
        ],
    )
    def test_a_forged_scaler(self, folder, path, value, words, tmp_path):
        document = put(json.loads((folder / "scaler.json").read_text()), path, value)
        assert words in refusal(tmp_path / "m.json", forge(document))

    def test_a_file_that_is_too_long(self, tmp_path):
        (tmp_path / "m.json").write_bytes(b" " * 100)
        with pytest.raises(ValueError, match="longer than 99 bytes"):
            read_text(tmp_path / "m.json", 99)

    def test_a_file_that_is_not_text(self, tmp_path):
        (tmp_path / "m.json").write_bytes(b"\x80\x04\x95pickle")
        with pytest.raises(ValueError, match="not UTF-8"):
            load_model(tmp_path / "m.json")

    def test_a_path_that_is_not_a_file(self, tmp_path):
        with pytest.raises(OSError, match=r"it is not a file\.$"):
            load_model(tmp_path)
        with pytest.raises(FileNotFoundError, match=r"there is no such file\.$"):
            load_model(tmp_path / "nothing.json")


#: Bytes that mean something in JSON.
PIECES = [b" ", b"\n", b"0", b",", b'"', b"}", b"[", b"e9", b"-"]


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
class TestFuzz:
    """A changed file gives an equal model or a ValueError, never another exception."""

    def loads_or_says_why(self, path, text):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        try:
            return load_model(path)
        except ValueError as error:
            message = str(error)
        assert re.fullmatch(r"'[^\n]*' cannot be loaded: [^\n]*\.", message), message
        return None

    @settings(max_examples=250, deadline=None, derandomize=True)
    @given(data=st.data())
    def test_mutated_bytes(self, texts, models, data, tmp_path_factory):
        names = list(FITS)
        which = data.draw(st.integers(0, len(texts) - 1))
        content = bytearray(texts[which].encode())
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, len(content) - 1))
            piece = data.draw(st.binary(max_size=3) | st.sampled_from(PIECES))
            content[place : place + data.draw(st.integers(0, 3))] = piece
        loaded = self.loads_or_says_why(tmp_path_factory.getbasetemp() / "bytes.json", bytes(content))
        if loaded is not None:
            assert same(models[names[which]], loaded)

    @settings(max_examples=400, deadline=None, derandomize=True)
    @given(data=st.data())
    def test_forged_fields(self, texts, data, tmp_path_factory):
        """With a matching checksum, a forged file gives a complete model or a ValueError."""
        document = json.loads(data.draw(st.sampled_from(texts)))
        for _ in range(data.draw(st.integers(1, 3))):
            places = [path for path in paths(document) if path != ["checksum"]]
            path = data.draw(st.sampled_from(places))
            document = put(document, path, data.draw(VALUES | st.just(...)))
        file = tmp_path_factory.getbasetemp() / "forged.json"
        loaded = self.loads_or_says_why(file, forge(document))
        if loaded is not None:
            save_model(loaded, file)
            assert fingerprint(load_model(file)) == fingerprint(loaded)

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(st.recursive(VALUES, lambda inner: st.dictionaries(st.text(max_size=4), inner, max_size=3), max_leaves=9))
    def test_any_json(self, tmp_path_factory, value):
        assert self.loads_or_says_why(tmp_path_factory.getbasetemp() / "any.json", json.dumps(value)) is None


def test_loading_cannot_run_code():
    """The modules that read a file import nothing that can run code."""
    from dpem import _files, _json
    from dpem.fitting import plan, serialization

    for module in (persistence, _files, _json, serialization, plan):
        source = inspect.getsource(module)
        for word in ("pickle", "eval(", "exec(", "importlib", "__import__", "globals(", "getattr(model, plain"):
            assert word not in source, (module.__name__, word)


def test_every_field_of_a_plan_has_a_range_or_is_checked():
    """A new number in a plan must have a range."""
    from dpem._json import RANGES

    checked = {"model", "settings", "steps", "price", "prediction", "feasible", "advice", "remarks"}
    assert {field.name for field in fields(Plan)} - checked <= set(RANGES)


def test_parse_json_is_exact():
    numbers = [0.1, 1 / 3, 5e-324, -0.0, 1.7976931348623157e308]
    assert [x.hex() for x in parse_json(json.dumps(numbers))] == [x.hex() for x in numbers]
