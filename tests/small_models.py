"""The smallest models: the mean of every column, and the same as one of two components."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpem.fitting.check import Check
from dpem.fitting.estimator import PrivateEstimator
from dpem.fitting.model import Model, PredictedFit
from dpem.fitting.plan import Prediction
from dpem.fitting.step import Step, prices
from dpem.fitting.summary import Profile
from dpem.fitting.uncertainty import Uncertainty
from dpem.queries.narrow import NarrowQuery, into_ball, rounded, zero_nonfinite
from dpem.query import Bound


@dataclass(frozen=True)
class MeanQuery(NarrowQuery):
    label: str = "mean of every column"

    @property
    def bound(self):
        return rounded(Bound.symmetric(l2=self.schema.width**0.5), self.schema.width)

    def contributions(self, xp, x, y):
        return xp.sum(into_ball(xp, zero_nonfinite(xp, x), self.schema.width**0.5), axis=0)


@dataclass(frozen=True)
class Parameters:
    mean: NDArray[np.float64]


@dataclass(frozen=True)
class MeasureMeans(Step):
    def describe(self):
        return "mean of every column"

    def run(self, curator, model, state):
        return replace(state, theta=Parameters(curator.measure(MeanQuery(model.schema), self.rho)))


class Means(Model):
    def steps(self, sizes):
        measure, check = prices(sizes.rho, (0.9, 0.1))
        return (MeasureMeans(measure), Check(check, against="a mean of zero", advice="Ask for more rows."))

    def log_density(self, xp, theta, x, y):
        return -8.0 * xp.sum(zero_nonfinite(xp, (x - theta.mean) ** 2), axis=1)

    def simpler(self, theta):
        return replace(theta, mean=0 * theta.mean)

    def draw(self, theta, n, rng):
        return theta.mean + 0.25 * rng.standard_normal((n, len(theta.mean))), None

    def predict_fit(self, sizes, steps):
        prediction = Prediction("width of an interval", 0.1, 0.05, 0.2, 0.01, "One in ten.", "Columns are independent.")
        return PredictedFit(prediction)


class DPMeans(PrivateEstimator):
    def __init__(
        self, *, epsilon=None, delta=None, bounds=None, levels=None, rows_per_person=1, budget=None, check=True,
        random_state=None,
    ):  # fmt: skip
        self.epsilon, self.delta, self.bounds, self.levels = epsilon, delta, bounds, levels
        self.rows_per_person, self.budget, self.check, self.random_state = rows_per_person, budget, check, random_state

    def _model(self, schema):
        return Means(schema)

    def _attributes(self, theta, schema):
        return {"means_": schema.middle + schema.half * theta.mean}

    def _uncertainty(self):
        noise = self.schema_.half * self.releases_[0].scale
        return Uncertainty.of(self.schema_.names, self.means_, 0.5 * noise, noise)


class DPTwoComponents(DPMeans):
    """Two components, of which one is the other mirrored: enough to draw."""

    bars = False

    def _profile(self):
        schema = self.schema_
        low, high = schema.middle - schema.half, schema.middle + schema.half
        centre = np.stack([self.means_, low + high - self.means_])
        spread = None if self.bars else np.stack([schema.half / 4, schema.half / 5])
        components = ("component 1", "component 2")
        return Profile(
            components, np.array([0.7, 0.3]), schema.names, centre, spread, low, high, self.bars, "Two of them."
        )


class DPTwoClasses(DPTwoComponents):
    bars = True


BOUNDS = {"age": (0, 100), "dose, in milligrams a day": (0, 4), "visits": (0, 50)}


def people(n=3000):
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(60, 10, n), rng.normal(3, 0.3, n), rng.normal(40, 4, n)])
    return pd.DataFrame(rows, columns=list(BOUNDS))
