"""The script of a report: it sorts, filters and copies tables and switches units; without it the page is complete."""

import base64
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from browsing import CUT, browser

from dpem import DPGaussianMixture, DPLinearRegression, Ledger
from dpem.report import About, render

BOUNDS = {"age": (18, 100), "weight": (30, 200), "smoker": (0, 1)}


@pytest.fixture(scope="module")
def chromium():
    with browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Seeded fits: what the tests look at does not change."""
    rng = np.random.default_rng(0)
    n = 4000
    X = pd.DataFrame({"age": rng.normal(50, 14, n), "weight": rng.normal(78, 13, n), "smoker": rng.integers(0, 2, n)})
    y = 12 * X.age + 9 * X.weight + 310 * X.smoker + rng.normal(0, 250, n)
    price = {"epsilon": 2.0, "delta": 1e-6, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        line = DPLinearRegression(**price, bounds=BOUNDS, y_bounds=(0, 5000)).fit(X, y)
        groups = np.where(rng.random((n, 1)) < 0.4, 30.0, 60.0) + rng.normal(0, 6, (n, 2))
        mixture = DPGaussianMixture(2, **price, bounds=(0, 100)).fit(groups)
    return {"line": line, "mixture": mixture}


@pytest.fixture
def shown(chromium, models, tmp_path):
    def show(name="line", width=1280, **about):
        path = tmp_path / f"{name}.html"
        path.write_text(render(models[name], about=About(**about) if about else None), encoding="utf-8")
        chromium.size(width, 900)
        chromium.get(path.as_uri())
        return chromium

    return show


def column(page, number):
    cells = page.find_elements("css selector", "#estimates-table tbody tr")
    return [row.find_elements("css selector", "th, td")[number].text for row in cells]


def click(page, selector):
    page.execute_script("arguments[0].click()", page.find_element("css selector", selector))


def test_a_table_is_sorted_by_keyboard_and_announces_the_order(shown):
    page = shown()
    names = column(page, 0)
    heading = page.find_element("css selector", "#estimates-table thead th button")
    heading.send_keys("\n")
    assert column(page, 0) == sorted(names)
    assert page.execute_script("return document.activeElement.closest('th').getAttribute('aria-sort')") == "ascending"
    heading.send_keys("\n")
    assert column(page, 0) == sorted(names, reverse=True)


def test_numbers_are_sorted_as_numbers(shown, models):
    page = shown()
    click(page, "#estimates-table thead th:nth-child(2) button")
    order = np.argsort(models["line"].summary().estimate.to_numpy())
    assert column(page, 0) == models["line"].summary().index.to_numpy()[order].tolist()


def test_a_table_is_filtered(shown):
    page = shown("mixture")
    page.find_element("css selector", ".tools input[type=search]").send_keys("share")
    assert [name for name in column(page, 0) if name] == ["component 1: share", "component 2: share"]
    assert "2 of " in page.find_element("css selector", ".tools:has(input) [role=status]").text


def copied(page, number):
    page.execute_script(
        "Object.defineProperty(navigator, 'clipboard', {configurable: true, "
        "value: {writeText: (text) => { window.copied = text; return Promise.resolve(); }}})"
    )
    tools = page.execute_script(
        "return [...document.querySelector('#estimates-table').parentElement.previousElementSibling"
        ".querySelectorAll('button')]"
    )
    page.execute_script("arguments[0].click()", tools[number])
    return page.execute_script("return window.copied")


def test_a_table_is_copied_as_csv_and_latex(shown, models):
    page = shown()
    lines = copied(page, 0).splitlines()
    assert lines[0] == "parameter,estimate,95 % interval,standard error,error by source"
    assert [line.split(",")[0] for line in lines[1:]] == list(models["line"].summary().index)
    float(lines[1].split(",")[1])  # an ASCII minus, no thin spaces
    latex = copied(page, 1)
    assert latex.startswith("\\begin{tabular}{lrrrr}\n\\hline\nparameter & estimate & 95 \\% interval")
    assert latex.rstrip().endswith("\\end{tabular}")


def test_units_are_switched_in_the_picture_and_in_the_table(shown, models):
    page = shown()
    figures = "return [...document.querySelectorAll('figure[data-units]')].map(f => [f.dataset.units, f.hidden])"
    assert page.execute_script(figures) == [["units", False], ["standardised", True]]
    before = dict(zip(column(page, 0), column(page, 1), strict=True))
    click(page, "input[value=standardised]")
    assert page.execute_script(figures) == [["units", True], ["standardised", False]]
    after = dict(zip(column(page, 0), column(page, 1), strict=True))
    ratio = float(after["age"].replace(",", "")) / float(before["age"])
    assert ratio == pytest.approx(41.0, rel=0.05)  # half of 18 to 100
    assert after["intercept"] == before["intercept"]
    click(page, "input[value=units]")
    assert dict(zip(column(page, 0), column(page, 1), strict=True)) == before


def test_a_value_is_shown_under_the_pointer(shown):
    page = shown()
    page.execute_script(
        "document.querySelector('.plot-row[data-tip]').dispatchEvent(new PointerEvent('pointermove', {bubbles: true}))"
    )
    tip = page.find_element("css selector", "#tip")
    assert tip.is_displayed()
    assert re.match(r"intercept: .*, standard error .*; of its variance sampling .* %; privacy", tip.text)


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["line", "mixture"])
def test_a_page_is_complete_without_scripts(shown, chromium, name, width):
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = shown(name, width)
        assert page.execute_script(CUT) == []
        assert page.find_elements("css selector", ".tools, #tip, thead button") == []
        assert not any(s.is_displayed() for s in page.find_elements("css selector", ".switch"))
        assert all(f.is_displayed() for f in page.find_elements("css selector", "figure"))
    finally:
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["line", "mixture"])
def test_nothing_is_requested_and_nothing_is_cut(shown, name, width, tmp_path):
    page = shown(name, width)
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    page.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.execute_script(CUT) == []
    assert page.messages() == []
    page.picture(tmp_path / f"report-{name}-{width}.png")


def test_every_control_can_be_reached_by_keyboard(shown):
    page = shown()
    reach = (
        "return [...document.querySelectorAll('button, input, summary, a, .wide')]"
        ".filter(e => e.offsetParent && e.tabIndex < 0).length"
    )
    assert page.execute_script(reach) == 0


@pytest.mark.parametrize("name", ["line", "mixture"])
def test_it_prints_on_two_pages(shown, name, tmp_path):
    state = Ledger(f"sqlite:///{tmp_path}/budget.db").open("patients", 3.0, 1e-5).state()
    page = shown(name, dataset="patients", date="2031-01-31", purpose="table 3", state=state)
    paper = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True, "printBackground": True}
    document = base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", paper)["data"])
    assert len(re.findall(rb"/Type\s*/Page\b", document)) <= 2
    (tmp_path / "page.pdf").write_bytes(document)
