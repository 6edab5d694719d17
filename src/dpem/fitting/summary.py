"""What is shown of a fit in reports, pictures and notebooks: facts as fields, all of them released or public.

Renderers read this record alone and know nothing else about a model.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from dpem.fitting.uncertainty import Uncertainty
from dpem.query import FloatArray
from dpem.tables.schema import Schema

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
class Estimates:
    """Released parameters, in the table's units, and how far they may be off.

    ``sampling``, ``privacy`` and ``misfit`` are the parts of ``error``, whose squares add up. ``sampling`` is NaN where
    it is not known, and then ``low`` and ``high`` hold the privacy noise alone; ``error`` is 0 where nothing is known
    or nothing was added. ``scale`` brings the values to one unit for a picture, named by ``scaled``; without it every
    parameter is drawn on a scale of its own. ``limit`` is a size that is marked in the picture, in words ``limit_is``.
    """

    what: str
    names: tuple[str, ...]
    value: FloatArray
    low: FloatArray
    high: FloatArray
    error: FloatArray
    sampling: FloatArray
    privacy: FloatArray
    note: str = ""
    scale: FloatArray | None = None
    scaled: str = ""
    limit: float | None = None
    limit_is: str = ""
    misfit: FloatArray | None = None

    def parts(self, j: int) -> list[tuple[str, float]]:
        """The parts of a parameter's error as shares of its variance; none where they are not known."""
        misfit = 0.0 if self.misfit is None else float(self.misfit[j])
        values = (("sampling", float(self.sampling[j])), ("privacy", float(self.privacy[j])), ("misfit", misfit))
        if not self.error[j] > 0 or math.isnan(values[0][1]):
            return []
        whole = math.fsum(value**2 for _, value in values) or 1.0
        return [(name, value**2 / whole) for name, value in values]

    @classmethod
    def of(cls, found: Uncertainty, what: str = "parameter", **more: Any) -> Estimates:
        """The estimates with their 95 % intervals."""
        low, high = found.intervals(LEVEL).T
        error, sampling, privacy = (np.asarray(p, dtype=float) for p in (found.total, found.sampling, found.privacy))
        parts = (found.names, found.estimate, low, high, error, sampling, privacy, found.note)
        return cls(what, *parts, misfit=found.misfit if found.misfit.any() else None, **more)

    @classmethod
    def noisy(cls, names: tuple[str, ...], value: FloatArray, noise: float, **more: Any) -> Estimates:
        """Coefficients of which the privacy noise alone is known."""
        reach = float(ndtri(0.5 + LEVEL / 2)) * noise
        each = np.full(len(names), noise)
        return cls("coefficient", names, value, value - reach, value + reach, each, np.nan * each, each, **more)


@dataclass(frozen=True)
class Profile:
    """The components or classes that a model found: how large they are and what is typical of each, by column.

    ``centre`` has a row for each; ``spread`` likewise, or None. ``low`` and ``high`` are the public bounds of the
    columns. With ``bars`` the centres are probabilities, drawn from 0.
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


def of_regressions(weights: FloatArray, slopes: FloatArray, schema: Schema) -> Profile:
    """The components of a mixture of regressions: how the response changes over half of a column's bounds."""
    effect = slopes * schema.half
    reach = np.full(schema.width, float(np.abs(effect).max()) or 1.0)
    labels = tuple(f"component {k + 1}" for k in range(len(weights)))
    words = "The change of each component’s response over half of a column’s bounds. In the middle it is 0."
    return Profile(labels, weights, schema.names, effect, None, -reach, reach, words=words)


@dataclass(frozen=True)
class Calibration:
    """Predicted and observed means, with the standard errors of the observed ones, for a picture; ``words`` are what
    both are called.
    """

    words: tuple[str, str]
    predicted: FloatArray
    observed: FloatArray
    error: FloatArray


@dataclass(frozen=True)
class Extra:
    """One more table that a model wants shown: texts and numbers, and a picture of calibration where it has one."""

    heading: str
    lead: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]
    calibration: Calibration | None = None


@dataclass(frozen=True)
class FitSummary:
    """One fit, in the facts that are shown of it: ``released`` says in words what was."""

    name: str
    released: str
    estimates: Estimates | None
    profile: Profile | None
    settings: tuple[Setting, ...]
    extra: Extra | None = None


def from_estimator(model: FittedModel) -> FitSummary:
    """The summary of a fitted model, from its plan, its parameters and its hooks."""
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
    plan = model.plan_
    defaults = {name: own.default for name, own in inspect.signature(type(model).__init__).parameters.items()}

    def origin(name: str, value: Any) -> str:
        if value is not None and getattr(model, name, value) is None:
            return PAID if math.isfinite(plan.epsilon) else UNPAID
        return DEFAULT if defaults.get(name, math.nan) == value else GIVEN

    found = [
        Setting("rows n", plan.n, PUBLIC),
        Setting("columns d", plan.d, PUBLIC),
        Setting("ε", plan.epsilon, GIVEN),
        Setting("δ", plan.delta, GIVEN),
        Setting("rows that one person may have", plan.rows_per_person, origin("rows_per_person", plan.rows_per_person)),
    ]
    for name, value in plan.settings.items():
        shown = value if isinstance(value, (int, float)) and not isinstance(value, bool) else _word(value)
        found.append(Setting(name, shown, origin(name, value)))
    return (*found, *model._declared_settings())


def _word(value: Any) -> str:
    return {True: "yes", False: "no", None: "none"}.get(value, str(value))
