"""If up to m rows of one person may be identical, the sampling variance is multiplied by m."""

import math

import numpy as np
import pandas as pd
import pytest

from dpem import (
    DPGaussianMixture,
    DPLatentClass,
    DPLinearRegression,
    DPLogisticRegression,
    DPMixtureRegression,
    DPPoissonRegression,
)

COPIES = 4


def table(n=600):
    rng = np.random.default_rng(3)
    group = rng.random(n) < 0.5
    x, z = rng.normal(size=n), rng.normal(size=n) + 3 * group
    eta = 0.3 + 0.5 * x
    rows = {"x": x, "z": z, "w": np.where(group, 1 + x, -1 - x) + 0.2 * rng.normal(size=n)}
    rows |= {"class": rng.random(n) < 1 / (1 + np.exp(-eta)), "count": rng.poisson(np.exp(eta))}
    rows |= {name: rng.random(n) < np.where(group, 0.8, 0.2) for name in "abc"}
    return pd.DataFrame(rows).astype(float)


MODELS = [
    (DPLinearRegression, ["x", "z"], "w", {}),
    (DPLogisticRegression, ["x", "z"], "class", {}),
    (DPPoissonRegression, ["x", "z"], "count", {}),
    (DPGaussianMixture, ["x", "z"], None, {"n_components": 2}),
    (DPMixtureRegression, ["x"], "w", {}),
    (DPLatentClass, ["a", "b", "c"], None, {"levels": {name: [0.0, 1.0] for name in "abc"}}),
]


@pytest.mark.parametrize(("model", "columns", "response", "options"), MODELS)
def test_copies_of_rows_do_not_shorten_intervals(model, columns, response, options):
    """Copies of a person's row add no information. The fits have no privacy, so standard errors are sampling errors."""
    rows = table()
    options |= {} if "levels" in options else {"bounds": dict.fromkeys(columns, (-6, 8))}
    if model in (DPLinearRegression, DPMixtureRegression, DPPoissonRegression):
        options |= {"y_bounds": (0, 30) if response == "count" else (-8, 8)}

    def errors(rows, **more):
        y = () if response is None else (rows[response],)
        X = rows[[*columns, "person"]] if more else rows[columns]
        return model(epsilon=math.inf, delta=1e-6, **options, **more).fit(X, *y).standard_errors_

    copied = pd.concat([rows.assign(person=np.arange(len(rows)))] * COPIES)
    once, often = errors(rows), errors(copied, person="person", rows_per_person=COPIES)
    np.testing.assert_allclose(often, once, rtol=0.25)  # without the factor they would be half
