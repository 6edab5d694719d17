"""The general models at the curator's door: whatever one row holds, the same questions, prices, words, attributes."""

import numpy as np
import pytest

import dpem
from dpem.audit.neighbours import Table, neighbours
from dpem.audit.replay import compare, in_memory, overspent
from dpem.audit.tape import record

pytestmark = pytest.mark.filterwarnings("ignore")

N, D = 200, 3
PRICE = {"epsilon": 4.0, "delta": 1e-4}
#: Of the kinds of neighbours, those that have broken libraries.
ODD = (
    *("outlier with both signs", "the largest numbers", "subnormal", "nothing observed, far response"),
    *("not a number", "infinite", "infinite with both signs"),
)
ITEMS = {f"x{j}": [0, 1] for j in range(D)}
MODELS = {
    "linear regression": dpem.DPLinearRegression(**PRICE, bounds=(-4, 4), y_bounds=(-8, 8)),
    "Gaussian mixture": dpem.DPGaussianMixture(2, **PRICE, bounds=(-4, 4)),
    "mixture of regressions": dpem.DPMixtureRegression(2, **PRICE, bounds=(-4, 4), y_bounds=(-8, 8)),
    "latent classes": dpem.DPLatentClass(2, **PRICE, levels=ITEMS),
}


def table(name: str) -> Table:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    if name == "latent classes":
        return Table("as drawn", (X > 0).astype(float), None)
    y = None if name == "Gaussian mixture" else X @ [1.0, -0.5, 0.0] + 0.5 * rng.normal(size=N)
    return Table("as drawn", X, y)


@pytest.mark.parametrize("name", MODELS)
def test_an_odd_row_shows_in_no_question_and_no_word(name):
    rows = table(name)
    first = record(MODELS[name], *in_memory(rows))
    assert "refused" not in first.outcome
    assert list(overspent(first, **PRICE)) == []
    kinds = [kind for kind in neighbours(rows, np.ones(D), missing=True, broken=True) if kind.name in ODD]
    assert len(kinds) == len(ODD)
    used = 0.0
    for kind in kinds:
        verdict = compare(first, record(MODELS[name], *in_memory(kind), frozen=first))
        assert verdict.faults == [], kind.name
        used = max(used, *verdict.used.values())
    assert used > 0.3
