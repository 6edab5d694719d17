"""The demo fits a regression and latent classes to a public table, and prints its results."""

import json
import math

import pytest

from dpem import demo

pytest.importorskip("statsmodels")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    lines = []
    document = demo.main(tmp_path_factory.mktemp("demo"), lines.append)
    return document, "\n".join(lines)


def test_private_and_exact_agree_within_the_intervals(results):
    """Of seven coefficients and a spread, each within its interval in 19 of 20 fits, at most three are outside: a false
    alarm is rarer than one run in two thousand, and sampling error is common to both, so it is rarer still."""
    regression = results[0]["regression"]
    private, exact = regression["private"], regression["without_privacy"]
    outside = [name for name, row in private.items() if not row["lower"] <= exact[name] <= row["upper"]]
    assert len(outside) <= 3, outside
    assert private["diseases"]["lower"] > 0
    assert "better than" in regression["fit_check"]


def test_the_classes_are_those_without_privacy(results):
    private, exact = (results[0]["classes"][kind]["shares"] for kind in ("private", "without_privacy"))
    assert math.isclose(sum(private), 1.0)
    assert all(abs(share - other) < 0.2 for share, other in zip(private, exact, strict=True))


def test_every_bound_has_a_reason_and_both_fits_are_charged(results):
    document, printed = results
    for column in (*demo.COLUMNS, demo.RESPONSE):
        assert column.reason in printed
    assert document["spent"] <= demo.TOTAL_EPSILON
    assert "one person with up to 5 rows" in document["regression"]["guarantee"]
    assert "NOT PRIVATE" not in printed


def test_the_reports_are_written_and_the_results_are_plain_data(results):
    document, printed = results
    for path in document["reports"]:
        assert path in printed
        with open(path, encoding="utf-8") as page:
            assert "RAND Health Insurance Experiment" in page.read()
    json.dumps(document)
