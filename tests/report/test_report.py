"""The report: its content, its escaping, and that it loads nothing and is accessible."""

import base64
import copy
import hashlib
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from dpem import DPStandardScaler
from dpem._html import _environment, number, round_to
from dpem.fitting import summary
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.paper.estimators.summary import coefficient_noise
from dpem.persistence import fingerprint, load_model, save_model
from dpem.privacy import total_price
from dpem.report import facts, render, write_report
from dpem.report.charts import estimate_pictures, ticks

N, D = 2500, 6
BETA = np.array([0.8, 0.6, 0, 0, 0, 0])
COMMON = {"epsilon": 1.0, "delta": 1e-5, "sparsity": 2, "sigma": 0.5}
rng = np.random.default_rng(0)
Y = rng.choice([-1.0, 1.0], size=(N, 1)) * BETA + 0.5 * rng.standard_normal((N, D))
X = rng.standard_normal((N, D))
RESPONSE = X @ BETA + 0.5 * rng.standard_normal(N)

FITS = {
    "private": lambda: DPSymmetricMixture(**COMMON).fit(Y),
    "seeded": lambda: DPSymmetricMixture(**COMMON, random_state=0).fit(Y),
    "auto": lambda: DPSymmetricMixture(**{**COMMON, "sparsity": "auto", "sigma": None}, max_sparsity=3).fit(Y),
    "paper": lambda: DPSymmetricMixture(**COMMON, method="published", start="equal").fit(Y),
    "low paper": lambda: DPMissingRegression(**{**COMMON, "sparsity": None}, method="published").fit(X, RESPONSE),
    "reference": lambda: DPSymmetricMixture(**{**COMMON, "epsilon": math.inf}).fit(Y),
    "lines": lambda: DPSymmetricRegression(**COMMON, start=BETA).fit(X, RESPONSE * rng.choice([-1, 1], N)),
    "missing": lambda: DPMissingRegression(**COMMON).fit(X, RESPONSE),
}


@pytest.fixture(scope="module")
def models():
    return {name: fit() for name, fit in FITS.items()}


@pytest.fixture(scope="module")
def pages(models):
    return {name: render(model) for name, model in models.items()}


@pytest.fixture(params=FITS)
def model(request, models):
    return models[request.param]


@pytest.fixture
def page(request, model, models, pages):
    return next(pages[name] for name in FITS if models[name] is model)


def each_page(test):
    """Try the pages of all fits in one case: they have one template."""

    def tried(self, pages):
        for name, page in pages.items():
            try:
                test(self, page)
            except AssertionError as error:
                error.add_note(f"on the page of {name!r}")
                raise

    return tried


class Outline(HTMLParser):
    """Elements in order with their attributes; fails if an element is opened and not closed."""

    VOID = frozenset({"meta", "link", "br", "input"})

    def __init__(self, page):
        super().__init__()
        self.elements, self.open, self.words = [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID or (tag == "rect" and ("class", "part measure") in attributes) or tag == "rect":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "title", "script"} & set(self.open):
            self.words.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def words(page):
    """What a reader sees, on one line."""
    return re.sub(r"\s+", " ", "".join(Outline(page).words))


class TestContent:
    def test_every_part_is_there(self, model, page):
        headings = re.findall("<h2>(.*?)</h2>", page)
        expected = ["Estimates", "Plan and outcome", "Queries and prices", "The guarantee"]
        expected += ["What the guarantee does not cover", "Settings", "How to cite"]
        assert [h for h in headings if h not in ("The two components", "Diagnostics")] == expected
        assert ("The two components" in headings) is not isinstance(model, DPMissingRegression)

    def test_the_statement_of_the_guarantee(self, model, page):
        assert str(model.guarantee_) in words(page)

    def test_every_query_and_its_price(self, model, page):
        shown = words(page)
        for release in model.releases_:
            assert release.query in shown
            assert number(release.price.rho) in shown

    def test_every_coefficient(self, model, page):
        for value in model.coef_[model.support_]:
            noise = coefficient_noise(model)
            assert (number(float(value), 5) if noise is None else round_to(float(value), noise)) in words(page)

    def test_the_prediction(self, model, page):
        prediction = model.plan_.prediction
        if prediction is None:
            assert "predicted accuracy" in words(page)
        else:
            for value in (prediction.median, prediction.low, prediction.high):
                assert number(value) in words(page)

    def test_the_fingerprint_is_the_model_file_s(self, model, page, tmp_path):
        save_model(model, tmp_path / "model.json")
        assert fingerprint(load_model(tmp_path / "model.json")) in page
        assert render(load_model(tmp_path / "model.json")) == page

    @pytest.mark.parametrize("name", FITS)
    def test_only_fits_that_are_not_private_have_a_banner(self, name, pages):
        alarm = name in ("seeded", "reference")
        assert ('class="banner"' in pages[name]) is alarm
        assert ("<title>NOT PRIVATE" in pages[name]) is alarm
        assert ("was paid for" in pages[name]) is not alarm

    @pytest.mark.parametrize(
        ("name", "setting", "origin"),
        [
            ("private", "ε", summary.GIVEN),
            ("private", "sigma", summary.GIVEN),
            ("private", "signal", summary.DEFAULT),
            ("private", "start", summary.DEFAULT),
            ("auto", "sigma", summary.PAID),
            ("paper", "start", summary.GIVEN),
        ],
    )
    def test_where_settings_came_from(self, models, name, setting, origin):
        assert {s.name: s.origin for s in models[name]._fit_summary().settings}[setting] == origin

    def test_a_given_step_size_is_listed_as_given(self):
        fitted = DPSymmetricMixture(**{**COMMON, "epsilon": math.inf}, n_iter=3, step_size=0.5).fit(Y)
        settings = {s.name: s for s in fitted._fit_summary().settings}
        assert settings["n_iter"] == summary.Setting("n_iter", 3, summary.GIVEN)
        assert settings["step_size"] == summary.Setting("step_size", 0.5, summary.GIVEN)

    def test_an_infeasible_plan_is_stated(self, models):
        poor = copy.deepcopy(models["seeded"])
        poor.plan_ = replace(poor.plan_, feasible=False, advice="a useful fit would take more")
        assert "expected little more than noise" in words(render(poor))
        assert "a useful fit would take more" in words(render(poor))

    def test_an_empty_support(self, models):
        empty = copy.deepcopy(models["seeded"])
        empty.support_, empty.coef_ = np.empty(0, dtype=np.intp), np.zeros(D)
        assert "No coefficient was larger" in render(empty)

    def test_many_coefficients(self, models):
        wide = copy.deepcopy(models["reference"])
        wide.n_features_in_, wide.support_, wide.coef_ = 60, np.arange(50), np.r_[np.linspace(1, 2, 50), np.zeros(10)]
        wide.plan_ = replace(wide.plan_, d=60)
        page = render(wide)
        assert page.count("<circle") == 40
        assert "The first 40 of 50 are drawn" in page
        assert "column 0</th>" in page

    @pytest.mark.parametrize("thing", [DPStandardScaler(), None, "model"])
    def test_other_objects_are_refused(self, thing):
        with pytest.raises(ValueError, match=r"^model must be a fitted model of dpem, got \w+\.$"):
            render(thing)

    def test_an_unfitted_model(self):
        with pytest.raises(NotFittedError):
            render(DPSymmetricMixture(**COMMON))

    def test_it_is_written_whole(self, models, tmp_path):
        write_report(models["private"], tmp_path / "report.html")
        assert (tmp_path / "report.html").read_text(encoding="utf-8") == render(models["private"])
        with pytest.raises(FileNotFoundError, match=r"its folder does not exist\.$"):
            write_report(models["private"], tmp_path / "no" / "report.html")


class TestFacts:
    def test_shares_add_up_to_the_whole_price(self, model):
        parts = facts.charged_queries(facts.queries(model))
        if math.isfinite(model.guarantee_.epsilon):
            spent = total_price(list(model.releases_)).rho / model.guarantee_.price.rho
            assert 0.5 < spent <= 1 + 1e-9
            assert math.fsum(part.share for part in parts) == pytest.approx(spent, rel=1e-12)

    def test_shares_count_one_batch(self, models):
        queries = facts.queries(models["paper"])
        assert len(queries) > 1
        assert len(facts.charged_queries(queries)) == 1

    @pytest.mark.parametrize(
        ("arguments", "count"),
        [
            ({"sparsity": None, "start": BETA, "n_iter": 1}, 60),
            ({"sparsity": None, "start": BETA, "n_iter": 1, "step_size": 0.5}, 60),
            ({"sparsity": None, "start": BETA, "n_iter": 1, "method": "published"}, 60),
            ({"sparsity": D, "start": BETA, "n_iter": 1, "method": "published"}, 120),
        ],
    )
    def test_the_noise_level_is_that_of_repeated_fits(self, arguments, count):
        """One step from a given start: refits of the same rows differ by its noise only. The ratio of the two standard
        deviations has one of 1/√(2m) for m normal draws and √5/√(4m) for Laplace ones; at five of them the false alarm
        rate for a seed not tried is below 1 in 10⁵ (the Laplace ratio is skewed, hence the longer run).
        """
        fits = [DPSymmetricMixture(**{**COMMON, **arguments}, random_state=seed).fit(Y) for seed in range(count)]
        coefficients = np.array([fitted.coef_ for fitted in fits])
        spread = math.sqrt(np.mean(coefficients.var(axis=0, ddof=1)))
        laplace = arguments["sparsity"] is not None
        tolerance = 5 * math.sqrt(5 / (4 * count * D) if laplace else 1 / (2 * count * D))
        assert spread / coefficient_noise(fits[0]) == pytest.approx(1.0, abs=tolerance)

    def test_without_noise_there_is_no_error(self, models):
        assert coefficient_noise(models["reference"]) is None

    @pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 0.01), (5.0, 0.1)])
    def test_randomised_response_attains_the_best_guess(self, epsilon, delta):
        """(ε, δ)-DP is attained by: tell the truth outright with probability δ, else randomised response."""
        expected = delta + (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
        assert facts.best_guess(epsilon, delta) == pytest.approx(expected)

    def test_the_best_guess_is_a_probability(self):
        assert facts.best_guess(1e4, 0.9) == 1.0


class TestEscaping:
    EVIL = '<script>alert("x")</script>&\'\x00\u202e\ud800'

    def test_names_of_columns(self, models):
        evil = copy.deepcopy(models["private"])
        evil.feature_names_in_ = np.array([self.EVIL] * D, dtype=object)
        page = render(evil)
        assert page.count("<script") == 1
        assert "&lt;script&gt;" in page
        assert not re.search("[\x00\u202e\ud800]", page)
        page.encode("utf-8")
        Outline(page)

    def test_text_of_the_plan_and_the_releases(self, models):
        evil = copy.deepcopy(models["private"])
        evil.plan_ = replace(evil.plan_, advice=self.EVIL, feasible=False)
        release = replace(evil.releases_[0], query=self.EVIL, mechanism=self.EVIL)
        evil.releases_ = (release, *evil.releases_[1:])
        evil.guarantee_ = replace(evil.guarantee_, mechanisms=evil.releases_, version=self.EVIL)
        page = render(evil)
        assert page.count("<script") == 1
        Outline(page)

    def test_text(self):
        shown = _environment().from_string("{{ name }}").render(name="a\x00<b>\u2066")
        assert shown == "a\N{REPLACEMENT CHARACTER}&lt;b&gt;\N{REPLACEMENT CHARACTER}"


class TestSelfContained:
    @each_page
    def test_nothing_is_loaded(self, page):
        outline = Outline(page)
        for tag, attributes in outline.elements:
            assert tag not in {"img", "iframe", "object", "embed", "audio", "video", "base", "form", "use"}
            assert not any(name.startswith("on") for name in attributes), attributes
            for name in ("src", "href", "xlink:href", "data", "action", "srcset", "poster"):
                assert attributes.get(name, "data:,") == "data:,", (tag, attributes)
        assert not re.search(r"@import|url\(", page)

    @each_page
    def test_no_address_but_the_name_of_svg(self, page):
        assert set(re.findall(r"https?://[^\"'\s<]+", page)) <= {"http://www.w3.org/2000/svg"}

    @each_page
    def test_the_policy_forbids_everything(self, page):
        policy = next(
            m["content"] for m in Outline(page).all("meta") if m.get("http-equiv") == "Content-Security-Policy"
        )
        assert policy.startswith("default-src 'none'")
        (script,) = re.findall("<script>(.*)</script>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert re.findall("script-src ([^;]*)", policy) == [f"'sha256-{digest}'"]
        assert not re.search(r"fetch|XMLHttp|import\(|eval|WebSocket|sendBeacon", script)


class TestReadableByEveryone:
    @each_page
    def test_language_title_and_one_first_heading(self, page):
        outline = Outline(page)
        assert outline.all("html") == [{"lang": "en"}]
        assert len(outline.all("h1")) == len(outline.all("main")) == 1
        assert len(re.findall("<title>[^<]+</title>", page.split("</head>")[0])) == 1

    @each_page
    def test_headings_skip_no_level(self, page):
        levels = [int(tag[1]) for tag, _ in Outline(page).elements if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))

    @each_page
    def test_pictures_have_a_title_and_a_description(self, page):
        pictures = [picture for _, picture in Outline(page).elements if picture.get("role") == "img"]
        assert len(pictures) == page.count("<figure") + page.count('class="parts"')
        for picture in pictures:
            assert picture.get("aria-label") or "aria-labelledby" in picture
            for name in picture.get("aria-labelledby", "").split():
                assert re.search(rf'id="{name}">[^<]+<', page)
        assert all(svg.get("aria-hidden") == "true" for svg in Outline(page).all("svg") if "role" not in svg)

    @each_page
    def test_ids_are_unique(self, page):
        ids = [attributes["id"] for _, attributes in Outline(page).elements if "id" in attributes]
        assert len(ids) == len(set(ids))

    @each_page
    def test_tables_have_captions_and_every_heading_a_scope(self, page):
        outline = Outline(page)
        assert len(outline.all("table")) == len(outline.all("caption")) > 0
        assert all(cell.get("scope") in ("row", "col") for cell in outline.all("th"))

    @each_page
    def test_figures_have_captions(self, page):
        assert page.count("<figure") == page.count("<figcaption>")


class TestPieces:
    def test_numbers(self):
        assert [number(v) for v in (0.0, 1.0, 12345.6, 99999.9, 0.001)] == ["0", "1", "12346", "100000", "0.001"]

    def test_ticks_cover_the_range(self):
        for low, high in [(-1e-9, 2e-9), (0, 1), (-3e5, 1), (0.1, 0.11)]:
            positions = ticks(low, high)
            assert 2 <= len(positions) <= 9
            assert all(low <= t <= high for t in positions)

    @pytest.mark.parametrize("values", [[0.0], [1e-300], [1e300, -1e300], [1.0] * 40])
    @pytest.mark.parametrize("scale", [None, True])
    def test_a_chart_of_any_values(self, values, scale):
        names = tuple("x" for _ in values)
        many = summary.Estimates.noisy(names, np.array(values), 0.1, scale=scale and np.ones(len(values)), limit=1e-3)
        for picture in estimate_pictures(many):
            assert len(picture.rows) == len(values)
            assert not re.search("nan|inf", repr(picture.rows))
