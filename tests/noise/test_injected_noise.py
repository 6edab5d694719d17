"""Injected noise depends on the test alone and counts as private; marked tests draw real noise."""

import re
import subprocess
import sys
from pathlib import Path

import injected_noise
import numpy as np
import pytest
from sklearn.base import clone

from dpem import DPLinearRegression
from dpem.privacy import PrivateNoise, mechanisms

PROGRAM = "import numpy; from dpem.privacy import PrivateNoise as P; print(P().gaussian(numpy.zeros(3), 1.0, 1.0, 0.5))"


def draws() -> list[float]:
    noise = PrivateNoise()
    drawn = (
        noise.gaussian(np.zeros(4), 1.0, 1.0, 0.5),
        noise.laplace(np.zeros(4), 1.0),
        noise.top_k(np.zeros(9), 4, 1, 2),
    )
    return np.concatenate(drawn).tolist()


def test_noise_depends_on_the_text_only():
    with injected_noise.seeded("a"):
        first = draws()
    draws()
    with injected_noise.seeded("a"):
        assert draws() == first
    with injected_noise.seeded("b"):
        assert draws() != first


def test_a_fit_repeats_and_says_that_it_is_private():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(500, 2)), rng.uniform(size=500)
    model = DPLinearRegression(epsilon=9.0, delta=1e-4, bounds=(0, 1), y_bounds=(0, 1), check=False)
    fits = []
    for _ in range(2):
        with injected_noise.seeded("a fit"):
            fits.append(clone(model).fit(X, y))
    assert np.array_equal(fits[0].coef_, fits[1].coef_)
    assert fits[0].guarantee_.private


def test_the_price_is_still_checked():
    with pytest.raises(RuntimeError, match="cost more than was charged"):
        PrivateNoise().gaussian(np.zeros(1), 1.0, 1.0, 0.4)


def test_on_a_grid_sums_are_exact():
    grid = mechanisms.peeling_grid(3.0, 0.1)
    sums = PrivateNoise().laplace(np.random.default_rng(0).uniform(0, 3, 200), 0.1, grid) / grid
    assert np.array_equal(sums, np.rint(sums))


def printed() -> str:
    return subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout


def test_a_process_that_a_test_starts_repeats_too():
    assert printed() == printed()


@pytest.mark.real_noise
def test_marked_tests_draw_real_noise():
    """Two answers are equal with probability below 2⁻¹⁵⁰."""
    with injected_noise.seeded("a"):
        first = draws()
    with injected_noise.seeded("a"):
        assert draws() != first
    assert printed() != printed()


@pytest.fixture(scope="module", params=["x", "y"])
def shared(request):
    return PrivateNoise().gaussian(np.zeros(2), 1.0, 1.0, 0.5).tolist()


def test_a_shared_fixture_does_not_take_its_noise_from_the_first_test(shared):
    index = {"x": 0, "y": 1}
    made = []
    for number in index.values():
        with injected_noise.seeded(f"tests/noise/test_injected_noise.py::shared[{number}]"):
            made.append(PrivateNoise().gaussian(np.zeros(2), 1.0, 1.0, 0.5).tolist())
    assert made[0] != made[1]
    assert shared in made


def test_the_list_of_statistical_tests_is_complete():
    root = Path(__file__).parents[2]
    marked = {
        f"tests/{p.relative_to(root / 'tests')}" for p in (root / "tests").rglob("test_*.py") if MARK in p.read_text()
    }
    page = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert marked == set(re.findall(r"^\| `(tests/\S+\.py)` \|", page, re.MULTILINE))


MARK = "pytest.mark.real_noise"
