"""What is shown of a fit in reports, pictures and notebooks: facts as fields, all of them released or public.

Renderers read this record alone and know nothing else about a model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from dpem.fitting.sequence import PrivateFit
from dpem.fitting.uncertainty import Uncertainty
from dpem.query import FloatArray
from dpem.tables.schema import Schema

GIVEN = "given by the user"
DEFAULT = "default"
PLANNED = "chosen by the plan before the data were read"
PLANNED_LATER = "chosen by the plan from public numbers and the released σ"
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
class Predicted:
    """What was predicted before the fit: ``cases`` says how many fits the interval holds, ``when`` from what."""

    quantity: str
    middle: float
    low: float
    high: float
    cases: str
    when: str
    meaning: str = ""
    assumed: str = ""
    failure: float = 0.0


@dataclass(frozen=True)
class Extra:
    """One more table that a model wants shown: texts and numbers."""

    heading: str
    lead: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]


@dataclass(frozen=True)
class FitSummary:
    """One fit, in the facts that are shown of it. ``useful`` is False where little more than noise was predicted."""

    name: str
    released: str
    estimates: Estimates | None
    profile: Profile | None
    predicted: Predicted | None
    no_prediction: str
    settings: tuple[Setting, ...]
    useful: bool = True
    advice: str = ""
    extra: Extra | None = None


def from_estimator(model: PrivateFit) -> FitSummary:
    """The summary of a fitted general model, from its plan, its uncertainty and its hooks."""
    plan = model.plan_
    estimates = _estimates(model)
    predicted = None
    if plan.prediction is not None:
        p = plan.prediction
        parts = (p.quantity, p.median, p.low, p.high, "nine fits of ten", "before the data were read")
        predicted = Predicted(*parts, p.meaning, p.assumed, p.failure)
    count = 0 if estimates is None else len(estimates.names)
    return FitSummary(
        name=f"{plan.model.replace('-', ' ')} model",
        released=f"{count:,} parameter{'' if count == 1 else 's'}" if count else "its parameters",
        estimates=estimates,
        profile=model._profile(),
        predicted=predicted,
        no_prediction="this model makes no prediction",
        settings=_settings(model),
        useful=plan.feasible,
        advice=plan.advice,
    )


def _estimates(model: PrivateFit) -> Estimates | None:
    try:
        found = model._errors
    except NotImplementedError:
        return None
    picture = model._picture_scale()
    return Estimates.of(found) if picture is None else Estimates.of(found, scale=picture[0], scaled=picture[1])


def _settings(model: PrivateFit) -> tuple[Setting, ...]:
    plan = model.plan_
    known = model.schema_
    defaults = {name: p.default for name, p in _arguments(model).items()}

    def origin(name: str, value: Any) -> str:
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
    numeric = known.level < 0
    ends = zip(np.array(known.names)[numeric], known.middle[numeric], known.half[numeric], strict=True)
    found += [Setting(f"bounds of {name}", f"{m - h:g} to {m + h:g}", GIVEN) for name, m, h in ends]
    found += [Setting(f"levels of {name}", ", ".join(own.labels), GIVEN) for name, own in model.levels_.items()]
    if model._needs_y:
        low, high = known.y_middle - known.y_half, known.y_middle + known.y_half
        found.append(Setting("bounds of the response", f"{low:g} to {high:g}", GIVEN))
    return tuple(found)


def _arguments(model: PrivateFit) -> Any:
    import inspect

    return inspect.signature(type(model).__init__).parameters


def _word(value: Any) -> str:
    return {True: "yes", False: "no", None: "none"}.get(value, str(value))
