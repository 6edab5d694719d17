"""The plan of a fit: sizes, steps, prices and the predicted error, all of them public."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from dpem._json import rebuild, record, without_infinity
from dpem._repr_html import plan_html
from dpem.fitting.step import Step, WrittenStep
from dpem.privacy import Price
from dpem.privacy.budget import unit


@dataclass(frozen=True)
class Prediction:
    """A predicted quantity: its median and the interval that holds nine fits of ten, if the rows are as ``assumed``.

    ``failure`` is the probability of a failed start or selection; ``meaning`` states the prediction in a sentence.
    """

    quantity: str
    median: float
    low: float
    high: float
    failure: float = 0.0
    meaning: str = ""
    assumed: str = ""


@dataclass(frozen=True)
class Plan:
    """The steps of a fit of ``model`` to n rows, and their prices.

    ``remarks`` are shown before anything is paid; ``feasible`` is False where little but noise is expected, and
    ``advice`` then names what would help.
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
        prediction = None if self.prediction is None else asdict(self.prediction)
        return without_infinity(
            {
                "model": self.model,
                "n": self.n,
                "d": self.d,
                "epsilon": self.epsilon,
                "delta": self.delta,
                "rows_per_person": self.rows_per_person,
                "settings": self.settings,
                "steps": [step.to_dict() for step in self.steps],
                "price": asdict(self.price),
                "prediction": prediction,
                "remarks": list(self.remarks),
                "feasible": self.feasible,
                "advice": self.advice,
            }
        )

    @classmethod
    def from_dict(cls, document: Any) -> Plan:
        """The plan that :meth:`to_dict` wrote, or a ValueError that names the field. Its steps describe themselves and
        do not run.
        """
        keys = ("model", "n", "d", "epsilon", "delta", "rows_per_person", "settings", "steps", "price", "prediction")
        found = record(document, "plan", (*keys, "remarks", "feasible", "advice"))
        hints: dict[str, Any] = {
            "model": str,
            "n": int,
            "d": int,
            "epsilon": float,
            "delta": float,
            "rows_per_person": int,
        }
        plain: dict[str, Any] = {name: rebuild(hint, found[name], f"plan.{name}") for name, hint in hints.items()}
        prediction = found["prediction"]
        return cls(
            **plain,
            steps=tuple(_written(step, f"plan.steps[{i}]") for i, step in enumerate(_list(found["steps"]))),
            price=rebuild(Price, found["price"], "plan.price"),
            prediction=None if prediction is None else rebuild(Prediction, prediction, "plan.prediction"),
            remarks=rebuild(tuple[str, ...], found["remarks"], "plan.remarks"),
            feasible=rebuild(bool, found["feasible"], "plan.feasible"),
            advice=rebuild(str, found["advice"], "plan.advice"),
            settings=found["settings"],
        )

    def _repr_html_(self) -> str:
        return plan_html(self)

    def cells(self) -> dict[str, str]:
        """The plan in a few words, for a table of several plans."""
        p = self.prediction
        found = {} if p is None else {p.quantity: f"{p.median:.3g}", "9 of 10 within": f"{p.low:.3g} to {p.high:.3g}"}
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


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("plan.steps must be a list")
    return value


def _written(document: Any, where: str) -> WrittenStep:
    own = ("kind", "rho", "passes", "says")
    if not isinstance(document, dict) or not set(own) <= set(document):
        raise ValueError(f"{where} must be an object with kind, rho, passes and says")
    kind, says = (rebuild(str, document[name], f"{where}.{name}") for name in ("kind", "says"))
    rest = {name: value for name, value in document.items() if name not in own}
    rho, passes = rebuild(float, document["rho"], f"{where}.rho"), rebuild(int, document["passes"], f"{where}.passes")
    return WrittenStep(rho, kind=kind, says=says, settings=rest, passes=passes)
