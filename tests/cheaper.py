"""Smaller planning and fitting problems, for tests that do not depend on their result."""

from dataclasses import replace
from typing import Any

from dpem.fitting.model import Model
from dpem.models._glm import families, surrogate
from dpem.models.gaussian_mixture import state
from dpem.models.latent_class import family as latent_class
from dpem.models.mixture_regression import planning
from dpem.models.mixture_regression import tuning as mixture_regression


def small_designs(patch: Any) -> None:
    """Scores of logistic and Poisson regressions are expected over few rows; counts have a Poisson distribution at any
    dispersion.
    """
    patch.setattr(surrogate, "LEAST_ROWS", 256)
    count_cdf = families.count_cdf
    patch.setattr(families, "count_cdf", lambda k, mu, dispersion, added_size=0.0: count_cdf(k, mu, 1.0))


def small_surrogate(patch: Any) -> None:
    """Gaussian mixtures are fitted to few surrogate rows, from few starts."""
    few = {"rows": 300, "queries": 2, "restarts": 0, "last_restarts": 0, "more": 1}
    few |= {"margin_components": 10, "score_components": 20}
    for name, value in vars(replace(state.TUNING, **few)).items():
        patch.setitem(vars(state.TUNING), name, value)


def few_starts(patch: Any) -> None:
    """Latent classes and mixtures of regressions are fitted from few starts, with few scores."""
    for tuning, few in (
        (latent_class.TUNING, {"restarts": 1}),
        (mixture_regression.TUNING, {"scores": 3, "starts": 2}),
    ):
        for name, value in few.items():
            patch.setitem(vars(tuning), name, value)


def no_predictions(patch: Any, kind: type[Model] = Model) -> None:
    """Plans predict nothing, and the stability of a mixture of regressions is estimated from few rows."""
    patch.setattr(planning, "WATCHED", 500)
    for model in kind.__subclasses__():
        patch.setattr(model, "predict_fit", Model.predict_fit)
        no_predictions(patch, model)
