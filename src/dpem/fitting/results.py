"""What a fitted estimator can do without another look at the rows: be written to a file, say what it warns of, apply
itself, state intervals. All of it is made of what was released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Self

import array_api_compat.numpy as numpy_api
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dpem._repr_html import model_html
from dpem.fitting import serialization as content
from dpem.fitting.check import FitCheck
from dpem.fitting.derived import derived_pieces
from dpem.fitting.diagnostics import Diagnostic
from dpem.fitting.step import Step
from dpem.fitting.summary import GIVEN, Estimates, Extra, FitSummary, Profile, Setting, from_estimator
from dpem.fitting.uncertainty import Uncertainty, frame
from dpem.privacy import Guarantee
from dpem.query import FloatArray
from dpem.tables.entries import Levels
from dpem.tables.new_rows import beside, pieces


class Fitted(BaseEstimator):
    """What every fitted estimator of this package can do: be written to a file, and say that it is fitted.

    ``theta_`` holds the released parameters, a record that its module calls ``Parameters``.
    """

    #: Arguments that a file does not hold: the budget lives in its process, and seeded noise could be subtracted.
    _not_written: ClassVar[tuple[str, ...]] = ("budget", "random_state")
    #: Steps that are read from a file as what they are; the others describe themselves only.
    _step_kinds: ClassVar[tuple[type[Step], ...]] = ()

    def _features_written(self) -> dict[str, Any]:
        """What a file holds of the columns."""
        return content.features_written(self)

    @classmethod
    def _from_content(cls, found: Mapping[str, Any], guarantee: Guarantee) -> Self:
        """The fitted estimator that a file describes."""
        return content.read(cls, found, guarantee)

    def __sklearn_is_fitted__(self) -> bool:
        """A refused fit has counted the columns, but has released nothing."""
        return "theta_" in vars(self)

    def __getattr__(self, name: str) -> Any:
        """Before a fit, a fitted attribute that is missing is a NotFittedError, whichever method reads it."""
        of_a_fit = hasattr(type(self), name) or (name.endswith("_") and not name.startswith("_"))
        if of_a_fit and not self.__sklearn_is_fitted__():
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet: call fit first.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class FittedModel(Fitted):
    """A fitted model: what it warns of, and what reports, pictures and notebooks show of it."""

    # --- what a subclass may say ------------------------------------------------------------------------------------

    def _diagnostics(self) -> list[Diagnostic]:
        """What the released numbers warn of, beside the fit check."""
        return []

    def _estimates(self) -> Estimates | None:
        """The released parameters, and how far they may be off."""
        return None

    def _profile(self) -> Profile | None:
        """What is typical of each component, for mixtures and latent classes."""
        return None

    def _extra(self) -> Extra | None:
        """One more table for reports."""
        return None

    def _declared_settings(self) -> list[Setting]:
        """What was declared of the columns."""
        return []

    # --- after the fit ----------------------------------------------------------------------------------------------

    @property
    def diagnostics_(self) -> tuple[Diagnostic, ...]:
        """What the fit warns of, the fit check first: computed from released numbers, at no price."""
        check_is_fitted(self)
        check = self.fit_check_
        failed = [] if check is None or check.better else [Diagnostic("fit-check", "warning", str(check))]
        return (*failed, *self._diagnostics())

    def _fit_summary(self) -> FitSummary:
        """What reports and pictures show of the fit."""
        check_is_fitted(self)
        return from_estimator(self)

    def _repr_html_(self) -> str:
        return model_html(self)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        text = super().__repr__(N_CHAR_MAX)
        check: FitCheck | None = getattr(self, "fit_check_", None)
        return text if check is None else f"{text}\n{check}"


class UnitModel(FittedModel):
    """A fitted model in unit coordinates of declared columns, with standard errors of its parameters."""

    _not_written = (*Fitted._not_written, "bounds", "y_bounds", "levels")  # three are written column by column

    def _uncertainty(self) -> Uncertainty:
        """Estimates and their standard errors, from what was released; computed once, on first use."""
        raise NotImplementedError

    def _picture_scale(self) -> tuple[FloatArray, str] | None:
        """What brings the parameters of :meth:`summary` to one unit for a picture, and that unit in words."""
        return None

    def _declared_settings(self) -> list[Setting]:
        known = self.schema_
        numeric = known.level < 0
        ends = zip(np.array(known.names)[numeric], known.middle[numeric], known.half[numeric], strict=True)
        found = [Setting(f"bounds of {name}", f"{m - h:g} to {m + h:g}", GIVEN) for name, m, h in ends]
        found += [Setting(f"levels of {name}", ", ".join(own.labels), GIVEN) for name, own in self.levels_.items()]
        if self._needs_y:
            low, high = known.y_middle - known.y_half, known.y_middle + known.y_half
            found.append(Setting("bounds of the response", f"{low:g} to {high:g}", GIVEN))
        return found

    def _features_written(self) -> dict[str, Any]:
        return content.columns_written(self)

    @classmethod
    def _from_content(cls, found: Mapping[str, Any], guarantee: Guarantee) -> Self:
        return content.read_columns(cls, found, guarantee)

    def _each(self, function: Callable[..., Any], X: Any, y: Any = None) -> Any:
        """``function(xp, theta, x, y)`` of new rows in unit coordinates, piece by piece, stacked."""
        check_is_fitted(self)
        return np.concatenate([np.asarray(function(numpy_api, self.theta_, *piece)) for piece in self._units(X, y)])

    def _table_levels(self) -> Mapping[str, Levels]:
        """Levels of the columns of the table that the model is applied to."""
        formula = getattr(self, "_formula_", None)
        return self.levels_ if formula is None else formula.covariate_levels

    def _units(self, X: Any, y: Any) -> Iterator[tuple[FloatArray, FloatArray | None]]:
        schema = self.schema_ if self.chosen_ is None else self.schema_.take(self.chosen_)
        formula = getattr(self, "_formula_", None)
        rows = pieces(self, X, self.levels_) if formula is None else derived_pieces(self, formula, X)
        pairs = ((piece, None) for piece in rows) if y is None else beside(rows, y)
        with np.errstate(all="ignore"):
            for piece, part in pairs:
                x = schema.coordinates(numpy_api, np.asarray(piece[:, schema.reads], dtype=float))
                yield x, None if part is None else schema.response(numpy_api, part)

    @property
    def _errors(self) -> Uncertainty:
        check_is_fitted(self)
        if not hasattr(self, "_uncertainty_"):
            self._uncertainty_ = self._uncertainty()
        return self._uncertainty_

    @property
    def standard_errors_(self) -> FloatArray:
        """Standard error of each parameter, in the order of :meth:`summary`: sampling and privacy noise together."""
        return self._errors.total

    def conf_int(self, level: float = 0.95) -> FloatArray:
        """Lower and upper end of an interval for each parameter, in the order of :meth:`summary`.

        Parameters
        ----------
        level : float
            How often such intervals hold the truth, if the rows follow the model.

        Returns
        -------
        array of shape (parameters, 2)
        """
        return self._errors.intervals(level)

    def summary(self, level: float = 0.95) -> Any:
        """A DataFrame with a row for each parameter: estimate, standard error, its parts (sampling, privacy, misfit),
        the interval, and the size that would be detected. The fit check and a note on the
        errors are in its ``attrs``.
        """
        table = frame(self._errors.rows(level))
        table.attrs["note"] = self._errors.note
        table.attrs["fit_check"] = None if self.fit_check_ is None else str(self.fit_check_)
        return table

    def _estimates(self) -> Estimates | None:
        try:
            found = self._errors
        except NotImplementedError:
            return None
        picture = self._picture_scale()
        return Estimates.of(found) if picture is None else Estimates.of(found, scale=picture[0], scaled=picture[1])
