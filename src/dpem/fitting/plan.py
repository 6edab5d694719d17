"""The plan of a fit: sizes, steps, prices and the predicted error, all public."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import get_type_hints

from dpem._html import notebook
from dpem._json import plain, rebuild, record
from dpem.fitting.step import Step, WrittenStep
from dpem.privacy import Price
from dpem.privacy.budget import unit


@dataclass(frozen=True)
class Prediction:
    """The predicted median of a quantity and the interval of 90 % of fits, if the rows are as ``assumed``.

    ``failure`` is the probability that the start or the selection of columns fails, ``meaning`` the prediction in a
    sentence, ``detectable`` the size below which a coefficient is usually missed (None: not known).
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

    ``remarks`` are shown before the charge. If ``feasible`` is False, little more than noise is expected, and
    ``advice`` says what would help. ``settings`` are the model's arguments by name.
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
    settings: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cost = math.fsum(step.rho for step in self.steps)
        if not all(step.rho >= 0 for step in self.steps):
            raise ValueError("the price of a step must not be negative.")
        if cost > self.price.rho * (1 + 1e-9):
            raise ValueError(f"the steps of this plan cost rho={cost:.6g}, but its price is {self.price.rho:.6g}.")

    @property
    def passes(self) -> int:
        """The number of times that the rows are read."""
        return sum(step.passes for step in self.steps)

    def shares(self) -> list[tuple[str, float]]:
        """The description of each step and its share of the price; NaN where the price is infinite."""
        total = math.fsum(step.rho for step in self.steps)
        return [(step.describe(), step.rho / total if 0 < total < math.inf else math.nan) for step in self.steps]

    def to_dict(self) -> dict[str, object]:
        """The plan as plain data, for files and digests."""
        return {**plain(replace(self, steps=())), "steps": [step.to_dict() for step in self.steps]}

    @classmethod
    def from_dict(cls, document: object, kinds: Collection[type[Step]] = ()) -> Plan:
        """The plan that :meth:`to_dict` wrote, or a ValueError that names the field.

        Steps are instances of one of the classes ``kinds``; without ``kinds``, they are :class:`WrittenStep`.
        """
        hints = get_type_hints(cls)
        values = record(document, "plan", tuple(hints))
        if not isinstance(values["steps"], list) or not isinstance(values["settings"], dict):
            raise ValueError("plan.steps must be a list, and plan.settings an object")
        steps = tuple(_step(step, f"plan.steps[{i}]", kinds) for i, step in enumerate(values["steps"]))
        others = [name for name in hints if name not in ("steps", "settings")]
        rest = {name: rebuild(hints[name], values[name], f"plan.{name}") for name in others}
        return cls(**rest, steps=steps, settings=values["settings"])

    def _repr_html_(self) -> str:
        return notebook("plan", self)

    def cells(self) -> dict[str, str]:
        """The cells of this plan in a table of several plans, by column."""
        cells = {}
        if (p := self.prediction) is not None:
            cells = {p.quantity: f"{p.median:.3g}", "9 of 10 within": f"{p.low:.3g} to {p.high:.3g}"}
            if p.detectable is not None:
                cells["detects"] = f"{p.detectable:.3g}"
        return {**cells, "feasible": "yes" if self.feasible else "no"}

    def __str__(self) -> str:
        privacy = f"epsilon={self.epsilon:g}, delta={self.delta:g}, {unit(self.rows_per_person)}"
        lines = [f"Plan for {self.model}: {self.n:,} rows, {self.d:,} column{'s' * (self.d != 1)}; {privacy}."]
        for words, share in self.shares():
            lines.append(f"  {'' if math.isnan(share) else f'{100 * share:5.1f} %  '}{words}")
        if "terms" in self.settings:
            lines.append(f"Terms: {self.settings['terms']}.")
        if (p := self.prediction) is not None:
            lines.append(f"Expected: {p.quantity} {p.median:.3g} (nine fits of ten: {p.low:.3g} to {p.high:.3g}).")
            lines += [line for line in (p.meaning, p.assumed) if line]
            if p.failure >= 0.005:
                lines.append(f"About {100 * p.failure:.0f} fits of 100 fail to find the structure at all.")
        lines += list(self.remarks)
        if not self.feasible:
            lines.append(f"Not feasible as it is: {self.advice}.")
        return "\n".join(lines)


def _step(document: object, where: str, kinds: Collection[type[Step]]) -> Step:
    if not isinstance(document, dict) or not {"kind", "rho", "passes", "says"} <= set(document):
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
    types = {"kind": str, "rho": float, "passes": int, "says": str}
    values = {name: rebuild(hint, document[name], f"{where}.{name}") for name, hint in types.items()}
    return WrittenStep(**values, settings={name: value for name, value in document.items() if name not in types})
