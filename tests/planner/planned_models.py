"""Models whose predictions are formulas, with which the page's interpolation is compared."""

import math

from small_models import DPMeans, Means

from dpem.fitting.model import Effect, PredictedFit
from dpem.fitting.plan import Prediction
from studies import planner_grid as grid


class Formula(Means):
    def predict_fit(self, sizes, steps):
        if self.schema.width > sizes.n / 10:
            raise ValueError("n is too small.")
        median = self.K * (1 / math.sqrt(sizes.n) + self.schema.width / (sizes.n * math.sqrt(2 * sizes.rho)))
        return PredictedFit(
            Prediction("share of rows in another group", median, median / 2, 2 * median, 0.02, "", "As is.")
        )


class DPFormula(DPMeans):
    def __init__(
        self, n_groups=2, *, epsilon=None, delta=None, bounds=None, levels=None, rows_per_person=1, budget=None,
        check=True, random_state=None,
    ):  # fmt: skip
        super().__init__(
            epsilon=epsilon, delta=delta, bounds=bounds, levels=levels, rows_per_person=rows_per_person, budget=budget,
            check=check, random_state=random_state,
        )  # fmt: skip
        self.n_groups = n_groups

    def _model(self, schema):
        made = Formula(schema)
        object.__setattr__(made, "K", self.n_groups)
        return made


class DPWithoutGroups(DPFormula):
    _needs_y = True

    def __init__(
        self, *, epsilon=None, delta=None, bounds=None, y_bounds=None, levels=None, rows_per_person=1, budget=None,
        check=True, random_state=None,
    ):  # fmt: skip
        super().__init__(
            1, epsilon=epsilon, delta=delta, bounds=bounds, levels=levels, rows_per_person=rows_per_person,
            budget=budget, check=check, random_state=random_state,
        )  # fmt: skip
        self.y_bounds = y_bounds


class Sized(Formula):
    effect = Effect("distance of the groups", 2.0, (1.0, 2.0, 4.0))

    def predict_fit(self, sizes, steps):
        apart = sizes.effect or self.effect.usual
        median = self.K / (apart * math.sqrt(sizes.n * sizes.rho))
        predicted = Prediction(
            "share of rows in another group", median, median / 2, 2 * median, 0.0, "", f"{apart:g} apart."
        )
        return PredictedFit(predicted)


class DPSized(DPFormula):
    def _model(self, schema):
        made = Sized(schema)
        object.__setattr__(made, "K", self.n_groups)
        return made


def made():
    """A grid of three models."""
    whole = grid.made([])
    models = {"with-groups": grid.tabled(DPFormula), "without": grid.tabled(DPWithoutGroups)}
    models["sized"] = grid.tabled(DPSized)
    return {**whole, "models": models}
