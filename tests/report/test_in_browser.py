"""The report in a real browser, at the width of a desk and of a phone."""

import pytest
from browsing import CUT, browser
from small_models import BOUNDS, DPTwoClasses, DPTwoComponents, people

from dpem import Ledger
from dpem.paper import DPMissingRegression
from dpem.privacy import largest_price
from dpem.report import About, render
from dpem.report.ledger_page import PublishedModel, ledger_page

pytestmark = pytest.mark.usefixtures("chromium")


@pytest.fixture(scope="module")
def chromium():
    with browser() as driver:
        yield driver


def made(kind):
    import numpy as np

    if kind == "paper":
        rng = np.random.default_rng(0)
        X = rng.standard_normal((2500, 6))
        y = X @ [0.8, 0.6, 0, 0, 0, 0] + 0.5 * rng.standard_normal(2500)
        return DPMissingRegression(epsilon=1.0, delta=1e-5, sigma=0.5).fit(X, y)
    kinds = DPTwoComponents if kind == "groups" else DPTwoClasses
    return kinds(epsilon=1.0, delta=1e-6, bounds=BOUNDS).fit(people())


@pytest.mark.parametrize("kind", ["paper", "groups", "answers"])
def test_nothing_is_cut_at_any_width(chromium, tmp_path, kind):
    path = tmp_path / "report.html"
    state = Ledger(f"sqlite:///{tmp_path}/budget.db").open("patients", 1.0, 1e-5).state()
    where = "sqlite:///a/rather/long/name/of/a/folder/budget.db"
    about = About("patients", "2031-01-31", "annual survey", where, state)
    path.write_text(render(made(kind), about=about), encoding="utf-8")
    for width in (360, 800, 1280):
        chromium.size(width, 800)
        chromium.get(path.as_uri())
        chromium.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert chromium.execute_script(CUT) == [], width
    assert chromium.messages() == []


def test_guarantee_check_and_purpose_fit_on_the_first_screen(chromium, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(render(made("groups"), about=About("patients", "2031-01-31")), encoding="utf-8")
    chromium.size(1280, 800)
    chromium.get(path.as_uri())
    bottom = "return document.querySelector('{}').getBoundingClientRect().bottom"
    for part in (".verdict", ".figures", ".check", ".about"):
        assert chromium.execute_script(bottom.format(part)) < 800


def test_the_page_of_a_dataset_at_any_width(chromium, tmp_path):
    """What one person spent fills its part of the bar; every fit has its check and its links; nothing is cut."""
    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db").open("people", 3.0, 1e-5)
    model = DPTwoComponents(epsilon=1.0, delta=1e-6, bounds=BOUNDS, budget=ledger).fit(people())
    (charge,) = ledger.history()
    page = ledger_page(
        "sqlite:///budget.db", [ledger.state()], {charge.model: PublishedModel(model, "./a.json", "./a%20b.html")}
    )
    path = tmp_path / "book.html"
    path.write_text(page, encoding="utf-8")
    for width in (360, 800, 1280):
        chromium.size(width, 800)
        chromium.get(path.as_uri())
        chromium.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert chromium.execute_script(CUT) == [], width
        part = "const bar = document.querySelector('.budget'); return bar.firstChild.offsetWidth / bar.offsetWidth"
        whole = largest_price(3.0, 1e-5, gaussian=False).rho
        assert chromium.execute_script(part) == pytest.approx(charge.rho / whole, abs=0.02)
    assert [link.get_attribute("href").rpartition("/")[2] for link in chromium.find_elements("css selector", "a")] == [
        "a%20b.html",
        "a.json",
    ]
    assert chromium.messages() == []
