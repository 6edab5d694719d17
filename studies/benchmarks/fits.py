"""Whole fits timed with the alternatives a user has, and with reading the file."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.mixture import GaussianMixture

from dpem.fitting.surrogate import ScoreQuery
from dpem.models.gaussian_mixture.covariance_types import TYPES
from dpem.models.gaussian_mixture.estimator import DPGaussianMixture
from dpem.models.gaussian_mixture.family import GaussianFamily
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.linear_regression.estimator import DPLinearRegression
from dpem.tables import read_table
from dpem.tables.schema import Schema
from studies.benchmarks.timing import Line, Work, in_turns

try:
    import statsmodels.api as statsmodels
except ImportError:  # of the extra "demo"
    statsmodels = None


def regression_rows(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal columns, two of which the response depends on."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    return X, X @ np.r_[0.5, 0.3, np.zeros(d - 2)] + 0.5 * rng.standard_normal(n)


def component_rows(n: int, d: int, K: int) -> np.ndarray:
    """Rows of K components that overlap little."""
    rng = np.random.default_rng(0)
    return rng.uniform(-2.0, 2.0, (K, d))[rng.integers(K, size=n)] + 0.5 * rng.standard_normal((n, d))


def score_query(kind: str, mixture: Gaussians, bound: float) -> ScoreQuery:
    """The score query of a mixture of columns between −bound and bound, not whitened."""
    K, d = mixture.means.shape
    names = [f"x{j}" for j in range(d)]
    schema = Schema.of(names, dict.fromkeys(names, (-bound, bound)), {})
    family = GaussianFamily(K, TYPES[kind], np.full(d, 1e-9), np.ones(d))
    return ScoreQuery(schema, family, mixture, np.eye(family.count), 4.0)


#: The first fit of a process: seconds by the clock and of the processor, without importing and drawing the table.
FIRST = """
import sys, time, warnings
import numpy as np
from dpem import DPLinearRegression
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.standard_normal((20_000, 10))
y = X[:, 0] + rng.standard_normal(20_000)
model = DPLinearRegression(epsilon=1.0, delta=1e-7, bounds=(-4.0, 4.0), y_bounds=(-5.0, 5.0))
clock, busy = time.perf_counter(), time.process_time()
model.fit(X, y)
print(time.perf_counter() - clock, time.process_time() - busy)
"""


def fits(repeats: int) -> Iterator[Line]:
    """Fits of dpem and of alternatives to the same table in turns; and the first fit of a process."""
    command = [sys.executable, "-c", FIRST]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(min(repeats, 4))]
    first = np.min([[float(part) for part in run.split()] for run in runs], axis=0)
    yield Line("fit: linear regression, 20,000 x 10, first of a process", "seconds", *first, "<= 0.2")
    for n, d, goal in ((1_000_000, 20, "<= 1.2"), (20_000, 10, "<= 5")):
        X, y = regression_rows(n, d)
        own = DPLinearRegression(epsilon=1.0, delta=1e-7, bounds=(-4.0, 4.0), y_bounds=(-5.0, 5.0))
        work: dict[str, Work] = {"own": lambda: own.fit(X, y), "theirs": lambda: LinearRegression().fit(X, y)}  # noqa: B023
        yield _compared(f"fit: linear regression, {n:,} x {d}", "scikit-learn's LinearRegression", work, repeats, goal)
        if statsmodels is not None:
            work["theirs"] = lambda: statsmodels.OLS(y, np.column_stack([np.ones(n), X])).fit().summary()  # noqa: B023
            yield _compared(f"fit: linear regression, {n:,} x {d}", "statsmodels' OLS with summary", work, 3, "")
    for n, d, K, goal in ((500_000, 10, 5, "<= 0.5"), (10_000, 5, 4, "<= 1")):
        rows = component_rows(n, d, K)
        mixture = DPGaussianMixture(K, epsilon=1.0, delta=1e-7, bounds=(-4.0, 4.0))
        theirs = GaussianMixture(K, n_init=5, random_state=0)
        work = {"own": lambda: mixture.fit(rows), "theirs": lambda: theirs.fit(rows)}  # noqa: B023
        figure = f"fit: Gaussian mixture, {n:,} x {d}, K = {K}"
        yield _compared(figure, "scikit-learn's GaussianMixture(n_init=5)", work, min(repeats, 3), goal)


def _compared(figure: str, floor: str, work: dict[str, Work], repeats: int, goal: str) -> Line:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        taken = in_turns(work, repeats)
    return Line.of(figure, floor, taken["own"], taken["theirs"], goal)


def csv_fits(repeats: int) -> Iterator[Line]:
    """Whole fits of a CSV file against Arrow reading it."""
    import pyarrow as pa
    import pyarrow.csv

    X, y = regression_rows(1_000_000, 20)
    columns = {f"x{j}": X[:, j] for j in range(20)} | {"y": y}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        pa.csv.write_csv(pa.table(columns), path)
        known = {"epsilon": 1.0, "delta": 1e-7, "bounds": {f"x{j}": (-4.0, 4.0) for j in range(20)}}
        model, mixture = DPLinearRegression(**known, y_bounds=(-5.0, 5.0)), DPGaussianMixture(3, **known)  # type: ignore[arg-type]
        arrow: dict[str, Work] = {"arrow": lambda: pa.csv.read_csv(path)}
        regression: dict[str, Work] = {
            "opened": lambda: read_table(path, target="y"),
            "linear regression, whole fit": lambda: model.fit(read_table(path, target="y")),
        }
        components: dict[str, Work] = {
            "three components, whole fit": lambda: mixture.fit(read_table(path, exclude=["y"]))
        }
        for work, goal in ((regression, "<= 1.5"), (components, "<= 2.5")):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # there are no components
                taken = in_turns(arrow | work, min(repeats, 3))
            for name in work:
                yield Line.of(f"CSV: 1,000,000 x 20, {name}", "Arrow reading it", taken[name], taken["arrow"], goal)
