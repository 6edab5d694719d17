"""The table of plans and the page that shows it, in a real browser: by mouse and by keyboard, wide and narrow."""

import json
import re

import numpy as np
import pytest
from browsing import CUT, browser
from planned_models import DPFormula, DPSized, DPWithoutGroups, made

from dpem import Budget, registry
from dpem.planner import page
from dpem.privacy import largest_price
from studies import planner_grid as grid

AXES = (grid.FINE.groups, grid.FINE.columns, grid.FINE.rows, grid.FINE.epsilons)


@pytest.fixture(scope="module")
def table():
    return json.loads(json.dumps(made()))


class TestTable:
    def test_a_node_is_the_prediction_of_a_plan(self, table):
        plans = table["models"]["with-groups"]
        shape = tuple(map(len, AXES))
        for place in [(0, 0, 0, 0), (1, 2, 3, 4), (3, 5, 7, 7)]:
            K, d, n, e = (axis[i] for axis, i in zip(AXES, place, strict=True))
            predicted = DPFormula(K, epsilon=e, delta=grid.DELTA, bounds=(-1, 1)).plan(n, d).prediction
            median, low, high, failure = grid.decoded(plans["values"][np.ravel_multi_index(place, shape)])
            assert (median, low, high) == pytest.approx((predicted.median, predicted.low, predicted.high), rel=0.006)
            assert failure == pytest.approx(predicted.failure, abs=1e-3)

    def test_a_refused_plan_is_null(self, table):
        shape = tuple(map(len, AXES))
        assert table["models"]["with-groups"]["values"][np.ravel_multi_index((0, 5, 0, 0), shape)] is None

    def test_more_rows_or_epsilon_never_predict_worse(self):
        rng = np.random.default_rng(0)
        values = rng.uniform(1, 2, size=(1, 2, 8, 8, 4))
        values[0, 0, 0, 0] = np.nan
        better = grid.never_worse(values)
        assert np.isnan(better[0, 0, 0, 0]).all()
        for axis in (2, 3):
            assert not (np.diff(better[..., 0], axis=axis) > 1e-12).any()
        planned = ~np.isnan(better[..., 0])
        assert (better[..., 1] <= better[..., 0])[planned].all()
        assert (better[..., 2] >= better[..., 0])[planned].all()

    def test_the_argument_that_counts_groups(self):
        assert grid.counted(DPFormula) == "n_groups"
        assert grid.counted(DPWithoutGroups) is None

    @pytest.mark.parametrize("name", registry.general())
    def test_the_stored_table_agrees_with_plans(self, name):
        """The middle of the grid is planned again: where it differs, run `python -m studies.planner_grid`.

        Prices are the same on every machine. Predictions rehearse EM, which ends elsewhere after other
        roundings: between two machines they have differed by a tenth, with NumPy 2.5 and SciPy 1.18 by a factor of 3.
        """
        kind, stored = registry.estimator(name), grid.stored()["models"]
        if name not in stored:
            assert grid.estimator(kind, 5, 1.0, 2).plan(30_000, 5).prediction is None
            return
        plan, (median, *_) = grid.middle_plan(kind, stored[name])
        assert stored[name]["shares"] == pytest.approx([share for _, share in plan.shares()], rel=1e-3)
        assert stored[name]["quantity"] == plan.prediction.quantity
        assert median == pytest.approx(plan.prediction.median, rel=0.5)


class TestText:
    def test_it_loads_nothing(self, table):
        text = page(grid=table)
        assert not re.search(r"https?://|url\(|@import|\bsrc=|fetch\(|XMLHttpRequest", text)
        assert "script-src 'sha256-" in text
        assert not re.search(r"\son[a-z]+=", text)

    def test_wrong_starts_are_refused(self, table):
        with pytest.raises(ValueError, match="model must be one of with-groups, without, sized; got 'hat'"):
            page(grid=table, start={"model": "hat"})
        with pytest.raises(ValueError, match="at least one model that makes predictions"):
            page(grid={**table, "models": {}})


@pytest.fixture(scope="module")
def chromium():
    with browser() as driver:
        yield driver


@pytest.fixture
def shown(chromium, table, tmp_path):
    path = tmp_path / "planner.html"
    path.write_text(page(grid=table), encoding="utf-8")
    chromium.size(1280, 900)
    chromium.get(path.as_uri())
    return chromium


def js(browser, expression):
    return browser.execute_script(f"return {expression}")


def put(browser, name, value):
    script = "const f = document.getElementById(arguments[0]); f.value = arguments[1];"
    browser.execute_script(script + "f.dispatchEvent(new Event('input', {bubbles: true}))", name, str(value))


def choose(browser, name):
    script = "const f = document.getElementById('model'); f.value = arguments[0];"
    browser.execute_script(script + "f.dispatchEvent(new Event('change', {bubbles: true}))", name)


class TestBrowser:
    def test_it_opens_without_console_messages(self, shown, tmp_path):
        shown.picture(tmp_path / "planner-desk.png")
        assert shown.messages() == []
        assert js(shown, "document.getElementById('quantity').textContent") == "Share of rows in another group"

    @pytest.mark.parametrize(
        ("n", "d", "epsilon", "delta", "K"),
        [(20_000, 10, 1.0, 1e-6, 3), (5_000, 7, 0.3, 1e-5, 2), (500_000, 80, 4.0, 1e-8, 8), (1000, 5, 0.1, 1e-7, 6)],
    )
    def test_the_prediction_is_the_plan_s(self, shown, n, d, epsilon, delta, K):
        state = f"{{model: 'with-groups', n: {n}, d: {d}, epsilon: {epsilon}, delta: {delta}, groups: {K}}}"
        prediction = js(shown, f"predicted({state})")
        predicted = DPFormula(K, epsilon=epsilon, delta=delta, bounds=(-1, 1)).plan(n, d).prediction
        assert prediction["median"] == pytest.approx(predicted.median, rel=0.08)
        assert prediction["low"] <= prediction["median"] <= prediction["high"]

    def test_models_with_an_effect_have_a_slider_for_it(self, shown):
        visible = "!document.getElementById('effect-row').hidden"
        assert not js(shown, visible)
        choose(shown, "sized")
        assert js(shown, visible)
        assert js(shown, "document.querySelector('label[for=effect]').textContent") == "distance of the groups"
        assert js(shown, "Number(document.getElementById('effect').value)") == 2
        assert "--effect" not in js(shown, "document.getElementById('command').textContent")
        for value in (1.0, 3.0, 4.0):
            put(shown, "effect", value)
            predicted = DPSized(3, epsilon=1.0, delta=1e-6, bounds=(-1, 1)).plan(20_000, 10, effect=value).prediction
            assert js(shown, "predicted(read()).median") == pytest.approx(predicted.median, rel=0.1)
            assert js(shown, "document.getElementById('assumed').textContent") == predicted.assumed
            assert f"--effect {value:g}" in js(shown, "document.getElementById('command').textContent")
            assert f"effect={value:g})" in js(shown, "document.getElementById('python').textContent")
        put(shown, "effect-slider", 0)
        assert js(shown, "read().effect") == 1
        choose(shown, "with-groups")
        assert not js(shown, visible)
        assert js(shown, "document.getElementById('wrong').textContent") == ""

    def test_a_share_is_stated_as_a_number_of_people(self, shown):
        for median, people in (
            (0.031, "100 people about 3 are"),
            (0.01, "100 people about 1 is"),
            (0.0042, "1,000 people about 4 are"),
            (0.00001, "10,000 people less than one is"),
        ):
            message = js(shown, f"inWords(model(read()), read(), {{median: {median}}})")
            assert message == f"Of {people} assigned to another component than without privacy."

    @pytest.mark.parametrize(("epsilon", "delta"), [(0.03, 1e-9), (1.0, 1e-6), (3.3, 3e-7), (19.0, 1e-3)])
    def test_prices_are_those_of_the_accountant(self, shown, epsilon, delta):
        for gaussian in (True, False):
            exact = largest_price(epsilon, delta, gaussian=gaussian).rho
            assert js(shown, f"rho({epsilon}, {delta}, {str(gaussian).lower()})") == pytest.approx(exact, rel=0.01)

    def test_by_keyboard(self, shown):
        from selenium.webdriver.common.keys import Keys

        field = shown.find_element("id", "epsilon")
        before = js(shown, "document.getElementById('median').textContent")
        field.clear()
        field.send_keys("0.2")
        after = js(shown, "document.getElementById('median').textContent")
        assert before != after
        slider = shown.find_element("id", "n-slider")
        slider.send_keys(Keys.ARROW_RIGHT * 50)
        assert float(js(shown, "document.getElementById('n').value")) > 20_000
        reached = set()
        shown.execute_script("document.getElementById('model').focus()")
        for _ in range(20):
            reached.add(js(shown, "document.activeElement.id || document.activeElement.dataset.copies"))
            shown.switch_to.active_element.send_keys(Keys.TAB)
        assert {"model", "n", "n-slider", "epsilon", "delta", "groups", "fits", "command", "python", "print"} <= reached

    def test_remarks_appear_at_once(self, shown):
        message = "document.getElementById('remarks').textContent"
        assert js(shown, message) == ""
        put(shown, "delta", 1e-3)
        assert "one over the number of rows" in js(shown, message)
        put(shown, "epsilon", 15)
        assert "next to nothing" in js(shown, message)
        put(shown, "epsilon", "")
        assert "no number" in js(shown, "document.getElementById('wrong').textContent")

    def test_an_impossible_plan_is_named(self, shown):
        put(shown, "n", 300)
        put(shown, "d", 100)
        assert js(shown, "document.getElementById('median').textContent") == "not possible"

    def test_the_assumption_follows_the_sliders(self, shown):
        shown.execute_script("grid.models['with-groups'].assumed.fill('Assumed: {groups} round components.')")
        for count in (2, 3, 6):
            put(shown, "groups", count)
            assert js(shown, "document.getElementById('assumed').textContent") == f"Assumed: {count} round components."

    def test_labels_of_charts_lie_inside_and_do_not_overlap_the_bend(self, shown):
        outside = (
            "[...document.querySelectorAll('.charts text')].filter(t => { const b = t.getBBox(); "
            "return b.x < 0 || b.y < 0 || b.x + b.width > 460 || b.y + b.height > 250 }).map(t => t.textContent)"
        )
        over = (
            "(() => { const l = document.querySelector('.limit-label'); if (!l) return []; const a = l.getBBox(); "
            "return [...l.parentNode.querySelectorAll('text.quiet')].filter(t => { const b = t.getBBox(); "
            "return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height })"
            ".map(t => t.textContent) })()"
        )
        for epsilon in (0.1, 1, 8):
            put(shown, "epsilon", epsilon)
            assert js(shown, outside) == []
            assert js(shown, over) == []

    def test_a_model_without_groups_has_no_field_for_them(self, shown):
        assert js(shown, "document.getElementById('groups-row').hidden") is False
        shown.execute_script("document.getElementById('model').value = 'without'; draw()")
        assert js(shown, "document.getElementById('groups-row').hidden") is True
        assert "y_bounds=y_bounds" in js(shown, "document.getElementById('python').textContent")

    @pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.3, 1e-8), (8.0, 1e-5)])
    def test_a_split_budget_accepts_every_fit(self, shown, epsilon, delta):
        for fits in (2, 3, 7):
            epsilon_of_each = js(shown, f"eachOf({{...read(), epsilon: {epsilon}, delta: {delta}}}, {fits})")
            budget = Budget(epsilon, delta)
            for _ in range(fits):
                budget.charge(epsilon_of_each, delta, largest_price(epsilon_of_each, delta, gaussian=True))
            assert epsilon_of_each > epsilon / fits / 1.5

    def test_the_odds_are_those_of_the_report(self, shown):
        from dpem.report.facts import best_guess

        for epsilon in (0.1, 1.0, 5.0):
            assert js(shown, f"bestGuess({epsilon}, 1e-6)") == pytest.approx(best_guess(epsilon, 1e-6))
        assert js(shown, "document.querySelectorAll('#odds tr').length") == 6
        assert js(shown, "document.querySelector('#odds tr.here th').textContent") == "1"

    def test_command_and_python_are_copied(self, shown):
        shown.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
        for name, begins in (("command", "dpem plan with-groups --n 20000"), ("python", "from dpem import DPFormula")):
            button = shown.find_element("css selector", f"button[data-copies={name}]")
            shown.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", button)
            button.click()
            text = shown.execute_async_script(
                "navigator.clipboard.readText().then(arguments[0], e => arguments[0](''+e))"
            )
            assert text.startswith(begins)
            assert text == js(shown, f"document.getElementById('{name}').textContent")
        compile(js(shown, "document.getElementById('python').textContent"), "planner", "exec")

    @pytest.mark.parametrize("width", [360, 800, 1280])
    def test_nothing_is_cut_at_any_width(self, shown, tmp_path, width):
        shown.size(width, 900)
        assert shown.execute_script(CUT) == []
        shown.picture(tmp_path / f"planner-{width}.png")

    def test_it_prints_a_line_to_sign(self, shown):
        shown.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        assert js(shown, "getComputedStyle(document.querySelector('.sign')).display") == "grid"
        assert js(shown, "getComputedStyle(document.getElementById('print')).display") == "none"
        shown.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
