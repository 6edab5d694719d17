"""Poisson regression of counts: coefficients, rate ratios, offsets and overdispersion."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import nbinom

from dpem._validation import ArgumentError
from dpem.fitting.diagnostics import Diagnostic
from dpem.fitting.results import Regressor
from dpem.fitting.sequence import keeps_arguments
from dpem.fitting.step import Step, prices
from dpem.models._glm.estimator import GeneralisedLinearEstimator
from dpem.models._glm.families import Family, Poisson
from dpem.models._glm.model import GeneralisedLinearModel, Parameters
from dpem.models.poisson_regression.dispersion import FindDispersion
from dpem.queries.histograms import BINS
from dpem.query import FloatArray
from dpem.tables.bounds import Pair
from dpem.tables.schema import Schema

__all__ = ["DPPoissonRegression", "Parameters"]

#: Shares of the scores' price for the dispersion, after the first score and at the end.
FIRST_DISPERSION, LAST_DISPERSION = 0.03, 0.05
#: Counts are overdispersed if the dispersion exceeds this number and is this number of standard errors above 1. Above
#: the third number a few large counts decide the fit, which is a warning.
OVERDISPERSED, STANDARD_ERRORS, EXTREME = 1.2, 2.0, 25.0
#: The least and largest dispersion that is assumed before one is measured.
LEAST_DISPERSION, MOST_DISPERSION = 1.5, 100.0
#: Counts are at the bound if the last bin has a larger share than this.
AT_BOUND = 0.05
#: The upper bound is too wide if it exceeds this multiple of the mean count and this number. On simulated counts half
#: of the intervals missed at a multiple of 1,500, and none at 150.
WIDE, LARGE = 256.0, 128.0
#: A bin of the response is taken as occupied beyond this number of standard deviations of noise; the least mean count.
OCCUPIED, LEAST_MEAN = 3.0, 0.05


@dataclass(frozen=True)
class PoissonRegression(GeneralisedLinearModel):
    """log E y = intercept + coef·u + offset."""

    def response_of(self, shares: FloatArray, noise: float) -> tuple[float, Family]:
        """The mean count, and the family with the dispersion of all counts around their mean."""
        assert isinstance(self.family, Poisson)
        occupied = np.where(shares > OCCUPIED * noise, shares, 0.0)
        occupied = occupied / occupied.sum() if occupied.sum() > 0 else np.full(BINS, 1 / BINS)
        counts = self.family.middle + self.family.half * ((np.arange(BINS) + 0.5) * 2 / BINS - 1)
        mean = max(float(occupied @ counts), LEAST_MEAN)
        total_dispersion = float(occupied @ (counts - mean) ** 2) / mean
        dispersion = min(max(total_dispersion, LEAST_DISPERSION), MOST_DISPERSION)
        return mean, replace(self.family, dispersion=dispersion)

    def score_steps(self, rho: float) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        shares = (FIRST_DISPERSION, LAST_DISPERSION, 1 - FIRST_DISPERSION - LAST_DISPERSION)
        first_price, last_price, score_price = prices(rho, shares)
        first, others = super().score_steps(score_price)
        return (*first, FindDispersion(first_price)), (*others, FindDispersion(last_price, final=True))


class DPPoissonRegression(Regressor, GeneralisedLinearEstimator):
    """Poisson regression of counts under differential privacy: rate ratios with intervals, offsets, overdispersion.

    Besides ε and δ it needs public bounds of every column, or levels, and of the response. Rows with a missing value
    contribute nothing, as in R's ``glm``. Standard errors are those of quasi-Poisson: they are widened by the measured
    dispersion where that is above 1.

    Parameters
    ----------
    y_bounds : pair, optional
        Public limits of the response, the lower one not negative; larger counts are clipped.
    offset : str, optional
        The column that is added to the linear predictor as it is, such as a logarithm of an exposure.
    exposure : str, optional
        The column whose logarithm is added to the linear predictor, such as person-years; its bounds are positive.
    {glm}
    {shared}

    Attributes
    ----------
    coef_, intercept_ : array, float
        Changes of the log-rate for one unit of each column, and the intercept. ``coef_names_`` says what each
        coefficient belongs to, a column or a level of one; that of an offset is 1, that of an exposure 0.
    rate_ratios_ : array
        ``exp(coef_)``.
    dispersion_ : float
        The variance of counts around their mean, divided by the mean: 1 for Poisson counts.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age = rng.uniform(20, 80, 20000)
    >>> visits = rng.poisson(np.exp(-1 + 0.03 * age))
    >>> model = DPPoissonRegression(epsilon=1.0, delta=1e-6, bounds=(18, 90), y_bounds=(0, 50))
    >>> bool(abs(model.fit(age[:, None], visits).coef_[0] - 0.03) < 0.01)
    True
    """

    _ratio = "rate_ratio"
    _mean_words = ("predicted mean", "observed mean")

    @keeps_arguments
    def __init__(
        self,
        *,
        sparsity: int | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        bounds: Any = None,
        y_bounds: Any = None,
        levels: Any = None,
        offset: str | None = None,
        exposure: str | None = None,
        formula: str | None = None,
        weights: str | None = None,
        max_weight: float | None = None,
        person: str | None = None,
        rows_per_person: int = 1,
        budget: Any = None,
        check: bool = True,
        random_state: Any = None,
    ) -> None: ...

    def _model(self, schema: Schema) -> PoissonRegression:
        family = Poisson(schema.y_middle, schema.y_half)
        return PoissonRegression(schema, family=family, **self._shared(schema))

    def _response_limits(self, y_name: str | None) -> Pair:
        low, high = super()._response_limits(y_name)
        if low < 0:
            raise ArgumentError("y_bounds", f"must not be negative: counts are at least 0, got {low:g}.")
        return low, high

    def _attributes(self, theta: Parameters, schema: Schema) -> dict[str, Any]:
        attributes = super()._attributes(theta, schema)
        dispersion = theta.dispersion[0] if theta.dispersion else math.nan
        return {**attributes, "rate_ratios_": np.exp(attributes["coef_"]), "dispersion_": dispersion}

    def _diagnostics(self) -> list[Diagnostic]:
        diagnostics = super()._diagnostics()
        high = self.schema_.y_middle + self.schema_.y_half
        if self.theta_.response_end > AT_BOUND and high > 1:
            diagnostics.append(
                Diagnostic(
                    "response-at-bound",
                    "warning",
                    f"About {100 * self.theta_.response_end:.0f} % of the counts are at the upper bound {high:g}, or "
                    "were clipped to it: the fitted means are those of clipped counts.",
                    "Larger y_bounds would help.",
                )
            )
        mean = self.theta_.response
        if math.isfinite(self.plan_.epsilon) and high > max(WIDE * mean, LARGE):
            message = (
                f"The upper bound {high:g} is more than {WIDE:g} times the mean count, about {mean:.2g}: coefficients "
                "and the dispersion may be far off."
            )
            advice = "Narrower y_bounds would help: larger counts are clipped."
            diagnostics.append(Diagnostic("wide-bounds", "warning", message, advice))
        phi, error = self.theta_.dispersion
        if phi > OVERDISPERSED and phi - 1 > STANDARD_ERRORS * error:
            large_counts = " A few large counts may decide the coefficients, whose intervals may be too short."
            message = (
                f"The variance of the counts is {phi:.2g} times that of Poisson counts (standard error {error:.2g}). "
                f"Standard errors are widened accordingly.{large_counts if phi > EXTREME else ''}"
            )
            other = " Linear regression of log(y + 1) depends less on large counts." if phi > EXTREME else ""
            advice = f"A column that explains the excess may be missing.{other}"
            diagnostics.append(Diagnostic("overdispersion", "warning" if phi > EXTREME else "note", message, advice))
        return diagnostics

    def _inverse_link(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The mean, clipped at the upper bound of the counts, and the variance."""
        mean = np.minimum(super()._inverse_link(eta)[0], self.schema_.y_middle + self.schema_.y_half)
        return mean, mean

    def _new_responses(self, eta: FloatArray, error: FloatArray, alpha: float) -> tuple[FloatArray, FloatArray]:
        """Quantiles of negative binomial counts with the measured dispersion at the ends of the mean's interval."""
        z, phi = float(ndtri(1 - alpha / 2)), max(self.dispersion_, 1.0 + 1e-6)
        lower_mean, upper_mean = (self._inverse_link(eta + sign * z * error)[0] for sign in (-1, 1))
        ends = ((lower_mean, alpha / 2), (upper_mean, 1 - alpha / 2))
        lower, upper = (np.asarray(nbinom.ppf(q, mean / (phi - 1), 1 / phi)) for mean, q in ends)
        return lower, upper

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The expected count of each row, given its offset or exposure, clipped at the upper bound of the counts.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix, source, Dask collection or array on a device
            Rows with the columns that were fitted.

        Returns
        -------
        array of shape (rows,)
            NaN where a covariate is missing.
        """
        return self._inverse_link(self._predictors(X))[0]
