"""The facts of a fit that reports, figures and notebooks show: records of released or public numbers."""

from __future__ import annotations

import functools
import inspect
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpem.fitting.uncertainty import Uncertainty
from dpem.query import FloatArray

if TYPE_CHECKING:
    from dpem.fitting.results import FittedModel

GIVEN = "given by the user"
DEFAULT = "default"
PAID = "estimated privately and paid for"
UNPAID = "computed from the data without noise: not private"
PUBLIC = "size of the table, public"

LEVEL = 0.95


@dataclass(frozen=True)
class Setting:
    """A setting of the fit and where it came from."""

    name: str
    value: str | float | int
    origin: str


@dataclass(frozen=True)
class Estimates(Uncertainty):
    """Released parameters in the table's units with their errors, and how figures show them.

    ``what`` names the kind of parameter. Where ``sampling`` is unknown (NaN), ``total`` and the intervals cover the
    privacy noise alone; ``total`` is 0 where no noise was added or the error is unknown. ``scale`` converts the
    parameters to a common unit, which ``scaled`` names; without it a figure has one scale for each parameter.
    ``limit`` is a size that figures mark, and ``limit_is`` its meaning.
    """

    what: str = "parameter"
    scale: FloatArray | None = None
    scaled: str = ""
    limit: float | None = None
    limit_is: str = ""

    @classmethod
    def noisy(cls, names: tuple[str, ...], estimate: FloatArray, noise: float, **more: Any) -> Estimates:
        """Coefficients for which only the standard deviation of the privacy ``noise`` is known."""
        total = np.full(len(names), noise)
        return cls(names, estimate, np.nan * total, total, total, misfit=0 * total, what="coefficient", **more)

    @functools.cached_property
    def ends(self) -> FloatArray:
        """The lower ends and the upper ends of the 95 % intervals."""
        return self.intervals(LEVEL).T

    def parts(self, j: int) -> list[tuple[str, float]]:
        """The shares of sampling, privacy and misfit in the error variance of parameter j; empty where unknown."""
        values = [(kind, float(getattr(self, kind)[j])) for kind in ("sampling", "privacy", "misfit")]
        if not self.total[j] > 0 or math.isnan(values[0][1]):
            return []
        variance = math.fsum(value**2 for _, value in values) or 1.0
        return [(kind, value**2 / variance) for kind, value in values]


@dataclass(frozen=True)
class Profile:
    """The components or classes of a model: their shares, and their centres and spreads by column.

    ``centre`` and ``spread`` (or None) have a row for each component. ``low`` and ``high`` are the public bounds of the
    columns. With ``bars``, the centres are probabilities, drawn as bars from 0. ``words`` explain the figure.
    """

    labels: tuple[str, ...]
    share: FloatArray
    columns: tuple[str, ...]
    centre: FloatArray
    spread: FloatArray | None
    low: FloatArray
    high: FloatArray
    bars: bool = False
    words: str = ""


@dataclass(frozen=True)
class Calibration:
    """Predicted and observed means and the standard errors of the observed ones; ``words`` name both kinds of means."""

    words: tuple[str, str]
    predicted: FloatArray
    observed: FloatArray
    error: FloatArray


@dataclass(frozen=True)
class Extra:
    """A further table that a model adds to its report, with a calibration plot if it has one."""

    heading: str
    lead: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]
    calibration: Calibration | None = None


@dataclass(frozen=True)
class FitSummary:
    """The facts of one fit, which are all that renderers read; ``released`` says in words what was released."""

    name: str
    released: str
    estimates: Estimates | None
    profile: Profile | None
    settings: tuple[Setting, ...]
    extra: Extra | None = None


def from_estimator(model: FittedModel) -> FitSummary:
    """The summary of a fitted model."""
    estimates = model._estimates()
    count = 0 if estimates is None else len(estimates.names)
    return FitSummary(
        name=f"{model.plan_.model.replace('-', ' ')} model",
        released=f"{count:,} parameter{'' if count == 1 else 's'}" if count else "its parameters",
        estimates=estimates,
        profile=model._profile(),
        settings=_settings(model),
        extra=model._extra(),
    )


def _settings(model: FittedModel) -> tuple[Setting, ...]:
    plan, parameters = model.plan_, inspect.signature(type(model).__init__).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}

    def origin(name: str, value: object) -> str:
        if value is not None and getattr(model, name, value) is None:
            return PAID if math.isfinite(plan.epsilon) else UNPAID
        return DEFAULT if defaults.get(name, math.nan) == value else GIVEN

    settings = [
        Setting("rows n", plan.n, PUBLIC),
        Setting("columns d", plan.d, PUBLIC),
        Setting("ε", plan.epsilon, GIVEN),
        Setting("δ", plan.delta, GIVEN),
        Setting("rows that one person may have", plan.rows_per_person, origin("rows_per_person", plan.rows_per_person)),
    ]
    for name, value in plan.settings.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        words = {"True": "yes", "False": "no", "None": "none"}.get(str(value), str(value))
        settings.append(Setting(name, value if number else words, origin(name, value)))
    return (*settings, *model._declared_settings())
