"""The base classes of fitted estimators: files, diagnostics, intervals and new rows, from released numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import array_api_compat.numpy as numpy_api
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dpem._html import notebook
from dpem.fitting import serialization
from dpem.fitting.check import FitCheck
from dpem.fitting.derived import derived_pieces
from dpem.fitting.diagnostics import Diagnostic
from dpem.fitting.plan import Plan
from dpem.fitting.step import Step
from dpem.fitting.summary import GIVEN, Estimates, Extra, FitSummary, Profile, Setting, from_estimator
from dpem.fitting.uncertainty import Uncertainty
from dpem.privacy import Guarantee
from dpem.query import Array, FloatArray
from dpem.tables.entries import Levels
from dpem.tables.inputs import response_of
from dpem.tables.new_rows import pieces, with_responses
from dpem.tables.schema import Schema

if TYPE_CHECKING:
    from pandas import DataFrame


class Fitted(BaseEstimator):
    """A fitted estimator that can be written to a file.

    ``theta_`` holds the released parameters: a dataclass ``Parameters`` in the estimator's module.
    """

    #: Arguments that a file leaves out: a budget belongs to its process, and whoever knows a seed can subtract noise.
    _not_written: ClassVar[tuple[str, ...]] = ("budget", "random_state")
    #: The classes of steps that are restored from a file; without any, steps are read as descriptions.
    _step_kinds: ClassVar[tuple[type[Step], ...]] = ()

    def _features_written(self) -> dict[str, object]:
        """The columns as a file stores them."""
        names = getattr(self, "feature_names_in_", None)
        return {"count": self.n_features_in_, "names": None if names is None else list(map(str, names))}

    @classmethod
    def _from_content(cls, content: Mapping[str, object], guarantee: Guarantee) -> Self:
        """The fitted estimator that a file describes."""
        return serialization.read(cls, content, guarantee)

    def __sklearn_is_fitted__(self) -> bool:
        """Whether parameters were released; ``n_features_in_`` alone may come from a refused fit."""
        return "theta_" in vars(self)

    def __getattr__(self, name: str) -> Any:
        """Raise NotFittedError for a fitted attribute that is read before the fit."""
        is_fitted_attribute = hasattr(type(self), name) or (name.endswith("_") and not name.startswith("_"))
        if is_fitted_attribute and not self.__sklearn_is_fitted__():
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet: call fit first.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


#: The diagnostic of a fit with several rows per person; see ``Curator.effective_rows``.
REPEATED_ROWS = Diagnostic(
    "repeated-rows",
    "note",
    "The sampling variance is multiplied by rows_per_person, so that intervals hold even if all rows of a person are "
    "identical; where they differ, intervals are too wide.",
    "Set rows_per_person no higher than the analysis needs.",
)


class FittedModel(Fitted):
    """A fitted model: its diagnostics, and the facts that reports, figures and notebooks show.

    Subclasses override the methods before :attr:`_products_with_levels`.
    """

    def _diagnostics(self) -> list[Diagnostic]:
        """Diagnostics other than the fit check."""
        return []

    def _failed_check(self, check: FitCheck) -> Diagnostic:
        """The diagnostic of a fit check that found no improvement."""
        return Diagnostic("fit-check", "warning", str(check))

    def _estimates(self) -> Estimates | None:
        """The released parameters and their errors."""
        return None

    def _profile(self) -> Profile | None:
        """The components of a mixture, or the latent classes."""
        return None

    def _extra(self) -> Extra | None:
        """A further table for the report."""
        return None

    def _declared_settings(self) -> list[Setting]:
        """The declared bounds and levels."""
        return []

    @property
    def _products_with_levels(self) -> tuple[str, ...]:
        """The columns of a formula that are products with levels."""
        formula = getattr(self, "_formula_", None)
        return () if formula is None else formula.products_with_levels

    def _table_levels(self) -> Mapping[str, Levels]:
        """The levels of the columns that new rows have."""
        return {}

    def _charged_plan(self) -> Plan:
        """The plan whose digest the ledger recorded at the charge."""
        return self.plan_

    @property
    def diagnostics_(self) -> tuple[Diagnostic, ...]:
        """Diagnostics of the fit, a failed fit check first. They are computed from released numbers, at no price."""
        check_is_fitted(self)
        check = self.fit_check_
        failed = [] if check is None or check.better else [self._failed_check(check)]
        repeated = [REPEATED_ROWS] if self.guarantee_.rows_per_person > 1 and hasattr(self, "conf_int") else []
        return (*failed, *self._diagnostics(), *repeated)

    def _fit_summary(self) -> FitSummary:
        """The facts that reports, figures and notebooks show."""
        check_is_fitted(self)
        return from_estimator(self)

    def _repr_html_(self) -> str:
        return notebook("model", self)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        text = super().__repr__(N_CHAR_MAX)
        check: FitCheck | None = getattr(self, "fit_check_", None)
        return text if check is None else f"{text}\n{check}"


class UnitModel(FittedModel):
    """A fitted model in the unit coordinates of declared columns, with standard errors of its parameters."""

    _not_written = (*Fitted._not_written, "bounds", "y_bounds", "levels")  # a file has the last three column by column

    def _uncertainty(self) -> Uncertainty:
        """Estimates and their standard errors from the released numbers, computed on first use."""
        raise NotImplementedError

    def _picture_scale(self) -> tuple[FloatArray, str] | None:
        """Factors that convert the parameters of :meth:`summary` to a common unit for figures, and the unit's name."""
        return None

    def _declared_settings(self) -> list[Setting]:
        schema = self.schema_
        settings = []
        for name, middle, half, level in zip(schema.names, schema.middle, schema.half, schema.level, strict=True):
            if level < 0:  # a numeric column
                settings.append(Setting(f"bounds of {name}", f"{middle - half:g} to {middle + half:g}", GIVEN))
        for name, levels in self.levels_.items():
            settings.append(Setting(f"levels of {name}", ", ".join(levels.labels), GIVEN))
        if self._needs_y:
            low, high = schema.y_middle - schema.y_half, schema.y_middle + schema.y_half
            settings.append(Setting("bounds of the response", f"{low:g} to {high:g}", GIVEN))
        return settings

    def _features_written(self) -> dict[str, object]:
        return serialization.columns_written(self)

    @classmethod
    def _from_content(cls, content: Mapping[str, object], guarantee: Guarantee) -> Self:
        return serialization.read_columns(cls, content, guarantee)

    def _each(self, function: Callable[..., Array], X: object, y: object = None) -> FloatArray:
        """Apply ``function(xp, theta, x, y)`` to new rows in unit coordinates, and stack the results."""
        check_is_fitted(self)
        return np.concatenate([np.asarray(function(numpy_api, self.theta_, *piece)) for piece in self._unit_rows(X, y)])

    def _table_levels(self) -> Mapping[str, Levels]:
        formula = getattr(self, "_formula_", None)
        return self.levels_ if formula is None else formula.covariate_levels

    @property
    def _parameter_schema(self) -> Schema:
        """The schema of the coordinates that the parameters describe."""
        return self.schema_ if self.chosen_ is None else self.schema_.take(self.chosen_)

    def _unit_rows(self, X: object, y: object) -> Iterator[tuple[FloatArray, FloatArray | None]]:
        """New rows, and their responses if given, in unit coordinates, piece by piece."""
        schema = self._parameter_schema
        formula = getattr(self, "_formula_", None)
        rows = pieces(self, X, self.levels_) if formula is None else derived_pieces(self, formula, X)
        pairs = ((piece, None) for piece in rows) if y is None else with_responses(rows, y)
        with np.errstate(all="ignore"):
            for piece, part in pairs:
                x = schema.coordinates(numpy_api, np.asarray(piece[:, schema.reads], dtype=float))
                yield x, None if part is None else schema.response(numpy_api, part)

    @property
    def _errors(self) -> Uncertainty:
        """The cached result of :meth:`_uncertainty`."""
        check_is_fitted(self)
        if not hasattr(self, "_uncertainty_"):
            self._uncertainty_ = self._uncertainty()
        return self._uncertainty_

    @property
    def standard_errors_(self) -> FloatArray:
        """The standard error of each parameter, in the order of :meth:`summary`, by sampling and privacy noise."""
        return self._errors.total

    def conf_int(self, level: float = 0.95) -> FloatArray:
        """The confidence interval of each parameter, in the order of :meth:`summary`.

        Parameters
        ----------
        level : float
            The coverage of the intervals if the rows follow the model.

        Returns
        -------
        array of shape (parameters, 2)
        """
        return self._errors.intervals(level)

    def summary(self, level: float = 0.95) -> DataFrame:
        """A DataFrame with a row for each parameter: the estimate, the standard error and its parts (sampling, privacy,
        misfit), the interval, and the detectable size. Its ``attrs`` hold the fit check and a note on the errors.
        """
        table = self._errors.frame(level)
        table.attrs["note"] = self._errors.note
        table.attrs["fit_check"] = None if self.fit_check_ is None else str(self.fit_check_)
        return table

    def _estimates(self) -> Estimates | None:
        try:
            errors = self._errors
        except NotImplementedError:
            return None
        scale, scaled = self._picture_scale() or (None, "")
        return Estimates(**vars(errors), scale=scale, scaled=scaled)


class Regressor(RegressorMixin):
    """A scikit-learn regressor whose score reads responses as a fit does, entry by entry."""

    def score(self, X: object, y: object, sample_weight: object = None) -> float:
        """R² of the predictions, over the rows that have a response.

        Parameters
        ----------
        X : array, DataFrame or CSR matrix
            Rows that were not used for the fit: their score is not private.
        y : array
            Their responses. An entry that is no number is missing.
        sample_weight : array, optional
            Weights of the rows.

        Returns
        -------
        float
        """
        from sklearn.metrics import r2_score  # here, since it imports SciPy's statistics

        response, predicted = np.asarray(response_of(y), dtype=float), self.predict(X)
        present = np.isfinite(response)
        weights = None if sample_weight is None else np.asarray(sample_weight)[present]
        return float(r2_score(response[present], predicted[present], sample_weight=weights))
