"""The plan of a fit of one of the paper's models: every setting, its price, and what to expect of the answer."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from dpem._json import rebuild, without_infinity
from dpem.paper.improved.steps import Step
from dpem.paper.models import MODELS
from dpem.paper.published import PublishedEM
from dpem.paper.reference import ReferenceEM
from dpem.privacy import Price
from dpem.privacy.budget import unit

#: How settings come about: chosen for the improved method, by the paper's prescription, or for the non-private one.
METHODS = ("improved", "published", "reference")

#: A fit is called feasible if its predicted error is below this part of the signal.
USEFUL = 0.5


@dataclass(frozen=True)
class Plan:
    """Frozen, printable, serialisable, complete: the plan and the data determine a fit up to its noise.

    ``predicted_error`` is the mean of ‖β̂ − β‖ over rehearsals on simulated data that follow the assumptions,
    ``interval`` holds the middle 80 % of them. ``detectable`` is the smallest coefficient that the fit finds as often
    as not. ``remarks`` are said before anything is paid, ``assumed`` is what stands in for what is not known yet. A
    wrong assumption costs accuracy, never privacy. ``rows_per_person`` is how many rows of one person are
    protected together; the prediction takes all rows for independent.
    """

    model: str
    method: str
    n: int
    d: int
    epsilon: float
    delta: float
    sparsity: int | None
    sigma: float
    signal: float
    missing: float
    steps: tuple[Step | PublishedEM | ReferenceEM, ...]
    price: Price
    rows_per_person: int = 1
    needs_start: bool = False
    predicted_error: float | None = None
    interval: tuple[float, float] | None = None
    detectable: float | None = None
    advice: str = field(default="", repr=False)
    remarks: tuple[str, ...] = ()
    assumed: str = ""

    @property
    def feasible(self) -> bool | None:
        """Whether the predicted error is below half of the assumed signal; None where no error was predicted."""
        return None if self.predicted_error is None else self.predicted_error <= USEFUL * self.signal

    @property
    def passes(self) -> int:
        """How often the rows are read."""
        return sum(step.passes for step in self.steps)

    @property
    def em_steps(self) -> int:
        """How many gradients are taken."""
        return sum(step.em_steps for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for a file or a report; an infinite number is the string "inf", as in JSON there
        is none.
        """
        out = asdict(self)
        out["steps"] = [{"kind": type(step).__name__, **asdict(step)} for step in self.steps]
        plain: dict[str, Any] = without_infinity(out)
        return plain

    @classmethod
    def from_dict(cls, plain: Any, where: str = "plan") -> Self:
        """The plan that :meth:`to_dict` made plain, or a ValueError that names the field, called ``where`` and so on.

        >>> from dpem.paper import plan
        >>> p = plan("symmetric-mixture", n=500, d=3, epsilon=1.0, delta=1e-4, sigma=0.5)
        >>> Plan.from_dict(p.to_dict()) == p
        True
        """
        made = rebuild(cls, plain, where)
        if made.model not in MODELS:
            raise ValueError(f"{where}.model must be one of {', '.join(MODELS)}")
        if made.method not in METHODS:
            raise ValueError(f"{where}.method must be one of {', '.join(METHODS)}")
        if made.sparsity is not None and made.sparsity > made.d:
            raise ValueError(f"{where}.sparsity must be at most the number of columns")
        if made.rows_per_person > made.n:
            raise ValueError(f"{where}.rows_per_person must be at most the number of rows")
        if made.interval is not None and not made.interval[0] <= made.interval[1]:
            raise ValueError(f"{where}.interval must be in increasing order")
        return made

    def __str__(self) -> str:
        size = "all coordinates" if self.sparsity is None else f"{self.sparsity} of {self.d} coordinates"
        lines = [
            f"Plan for {self.model}, method {self.method!r}: n = {self.n:,}, {size}",
            f"  privacy     epsilon = {self.epsilon:g}, delta = {self.delta:g} (zCDP rho = {self.price.rho:.4g})",
            f"  assumed     sigma = {self.sigma:g}, signal = {self.signal:g}"
            + (f", missing = {self.missing:.0%}" if self.model == "missing-regression" else ""),
        ]
        if self.rows_per_person > 1:
            lines.insert(2, f"  protects    {unit(self.rows_per_person)}")
        for step in self.steps:
            part, _, text = step.describe().partition(": ")
            price = f", rho = {step.rho:.3g}" if 0 < step.rho < math.inf else ""
            lines.append(f"  {part:<10}  {text}{price}")
        if self.predicted_error is not None and self.interval is not None:
            low, high = self.interval
            lines.append(f"  error       {self.predicted_error:.3g} expected, {low:.3g} to {high:.3g} in 8 of 10 cases")
        if self.detectable is not None:
            least = f"coefficients of {self.detectable:.3g} and more" if math.isfinite(self.detectable) else "nothing"
            lines.append(f"  detects     {least}")
        if self.feasible is not None:
            lines.append(f"  feasible    {'yes' if self.feasible else 'no'}{'; ' + self.advice if self.advice else ''}")
        return "\n".join([*lines, *filter(None, (self.assumed, *self.remarks))])

    def cells(self) -> dict[str, str]:
        """The plan in a few words, for a table of several plans."""
        low, high = self.interval or (math.nan, math.nan)
        found = {
            "predicted error": "" if self.predicted_error is None else f"{self.predicted_error:.3g}",
            "8 of 10 within": "" if self.interval is None else f"{low:.3g} to {high:.3g}",
            "detects": "" if self.detectable is None else f"{self.detectable:.3g}",
        }
        return {**found, "feasible": {True: "yes", False: "no", None: ""}[self.feasible]}
