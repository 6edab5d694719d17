"""The plan of a fit: sizes, steps, prices and the predicted error, all of them public."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_type_hints

from dpem._json import rebuild, record, without_infinity
from dpem._repr_html import plan_html
from dpem.fitting.step import Step, WrittenStep
from dpem.privacy import Price
from dpem.privacy.budget import unit


@dataclass(frozen=True)
class Prediction:
    """A predicted quantity: its median and the interval that holds nine fits of ten, if the rows are as ``assumed``.

    ``failure`` is the probability of a failed start or selection; ``meaning`` states the prediction in a sentence;
    ``detectable`` is the smallest coefficient that is found as often as not, where that is known.
    """

    quantity: str
    median: float
    low: float
    high: float
    failure: float = 0.0
    meaning: str = ""
    assumed: str = ""
    detectable: float | None = None


@dataclass(frozen=True)
class Plan:
    """The steps of a fit of ``model`` to n rows, and their prices.

    ``remarks`` are shown before anything is paid; ``feasible`` is False where little but noise is expected, and
    ``advice`` then names what would help. ``settings`` are the model's own, by name.
    """

    model: str
    n: int
    d: int
    epsilon: float
    delta: float
    rows_per_person: int
    steps: tuple[Step, ...]
    price: Price
    prediction: Prediction | None = None
    remarks: tuple[str, ...] = ()
    feasible: bool = True
    advice: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cost = math.fsum(step.rho for step in self.steps)
        if math.isfinite(self.price.rho) and cost > self.price.rho * (1 + 1e-9):
            raise ValueError(f"the steps of this plan cost rho={cost:.6g}, but its price is {self.price.rho:.6g}.")

    @property
    def passes(self) -> int:
        """How often the rows are read."""
        return sum(step.passes for step in self.steps)

    def shares(self) -> list[tuple[str, float]]:
        """Each step in words, and its part of the price."""
        whole = math.fsum(step.rho for step in self.steps)
        part = (lambda rho: rho / whole) if 0 < whole < math.inf else (lambda rho: math.nan)
        return [(step.describe(), part(step.rho)) for step in self.steps]

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data, for files and digests."""
        return without_infinity({**asdict(replace(self, steps=())), "steps": [step.to_dict() for step in self.steps]})

    @classmethod
    def from_dict(cls, document: Any, kinds: Collection[type[Step]] = ()) -> Plan:
        """The plan that :meth:`to_dict` wrote, or a ValueError that names the field.

        Steps of the given kinds are rebuilt; the others describe themselves and do not run.
        """
        hints = get_type_hints(cls)
        found = record(document, "plan", tuple(hints))
        if not isinstance(found["steps"], list) or not isinstance(found["settings"], dict):
            raise ValueError("plan.steps must be a list, and plan.settings an object")
        steps = tuple(_step(step, f"plan.steps[{i}]", kinds) for i, step in enumerate(found["steps"]))
        plain = {name: rebuild(hints[name], found[name], f"plan.{name}") for name in hints if name not in _BY_HAND}
        return cls(**plain, steps=steps, settings=found["settings"])

    def _repr_html_(self) -> str:
        return plan_html(self)

    def cells(self) -> dict[str, str]:
        """The plan in a few words, for a table of several plans."""
        p = self.prediction
        found = {} if p is None else {p.quantity: f"{p.median:.3g}", "9 of 10 within": f"{p.low:.3g} to {p.high:.3g}"}
        if p is not None and p.detectable is not None:
            found["detects"] = f"{p.detectable:.3g}"
        return {**found, "feasible": "yes" if self.feasible else "no"}

    def __str__(self) -> str:
        whole = f"epsilon={self.epsilon:g}, delta={self.delta:g}, {unit(self.rows_per_person)}"
        lines = [f"Plan for {self.model}: {self.n:,} rows, {self.d:,} columns; {whole}."]
        for words, share in self.shares():
            lines.append(f"  {'' if math.isnan(share) else f'{100 * share:5.1f} %  '}{words}")
        if "terms" in self.settings:
            lines.append(f"Terms: {self.settings['terms']}.")
        if self.prediction is not None:
            p = self.prediction
            lines.append(f"Expected: {p.quantity} {p.median:.3g} (nine fits of ten: {p.low:.3g} to {p.high:.3g}).")
            lines += [line for line in (p.meaning, p.assumed) if line]
            if p.failure >= 0.005:
                lines.append(f"About {100 * p.failure:.0f} fits of 100 fail to find the structure at all.")
        lines += list(self.remarks)
        if not self.feasible:
            lines.append(f"Not feasible as it is: {self.advice}.")
        return "\n".join(lines)


#: Fields that :meth:`Plan.from_dict` reads itself.
_BY_HAND = ("steps", "settings")


def _step(document: Any, where: str, kinds: Collection[type[Step]]) -> Step:
    own = ("kind", "rho", "passes", "says")
    if not isinstance(document, dict) or not set(own) <= set(document):
        raise ValueError(f"{where} must be an object with kind, rho, passes and says")
    for kind in kinds:
        if document["kind"] == kind.__name__:
            settings = {name: value for name, value in document.items() if name not in ("kind", "passes", "says")}
            step = rebuild(kind, settings, where)
            if step.to_dict() != document:
                raise ValueError(f"{where}.says does not agree with its settings")
            return step
    if kinds:
        raise ValueError(f"{where}.kind must be one of {', '.join(kind.__name__ for kind in kinds)}")
    name, says = (rebuild(str, document[key], f"{where}.{key}") for key in ("kind", "says"))
    rest = {key: value for key, value in document.items() if key not in own}
    rho, passes = rebuild(float, document["rho"], f"{where}.rho"), rebuild(int, document["passes"], f"{where}.passes")
    return WrittenStep(rho, kind=name, says=says, settings=rest, passes=passes)
