"""The plan: every setting of a fit, chosen before the data are read, and what to expect of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np

from dpem import _validation as arguments
from dpem._json import rebuild, without_infinity
from dpem._threads import single_blas
from dpem.paper.improved.planning.candidates import Pipeline
from dpem.paper.improved.planning.detection import detectable, trim_threshold
from dpem.paper.improved.planning.search import choose, estimate, rough_error
from dpem.paper.improved.planning.simulate import Model, Problem
from dpem.paper.improved.steps import Step, Trim
from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.published import PublishedEM
from dpem.paper.reference import ReferenceEM
from dpem.privacy import Price, largest_price
from dpem.privacy.budget import unit

MODELS: dict[str, Callable[[float], Model]] = {
    "symmetric-mixture": SymmetricMixture,
    "symmetric-regression": SymmetricRegression,
    "missing-regression": MissingRegression,
}

#: How settings come about: by :func:`plan`, by the paper's prescription, or for the non-private reference.
METHODS = ("improved", "published", "reference")

#: A fit is called feasible if its predicted error is below this part of the signal.
USEFUL = 0.5
#: Dense tables wider than this are not rehearsed column by column; the plan is scaled from one of this width.
WIDEST_DENSE = 30


@dataclass(frozen=True)
class Plan:
    """Frozen, printable, serialisable, complete: the plan and the data determine a fit up to its noise.

    ``predicted_error`` is the mean of ‖β̂ − β‖ over rehearsals on invented data that follow the assumptions,
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


def plan(
    model: str,
    *,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    sparsity: int | None = None,
    sigma: float = 1.0,
    signal: float = 1.0,
    missing: float = 0.2,
    start_distance: float | None = None,
    fixed: tuple[tuple[str, float], ...] = (),
    trim: bool = False,
    spent: float = 0.0,
    rows_per_person: int = 1,
) -> Plan:
    """Choose every setting of the improved method from public numbers, and predict the error. No data are read.

    ``start_distance`` says how far a given start may be from the truth; None means that no start is given. ``fixed``
    sets some of :class:`~dpem.paper.improved.planning.candidates.Knobs` by name; the search chooses the others.
    ``trim`` drops small coefficients at the end (``sparsity`` is then the most there may be); ``spent`` is the part
    of ρ already paid, for σ. ``rows_per_person`` is the most rows that one person has: noise grows in proportion to it.
    The same question gives the same plan.

    >>> p = plan("symmetric-mixture", n=4000, d=1000, epsilon=0.5, delta=1e-4, sparsity=10, sigma=0.5)
    >>> p.feasible, p.predicted_error < 0.06
    (True, True)
    """
    model = arguments.one_of("model", model, tuple(MODELS))
    epsilon, delta = arguments.privacy_parameters(epsilon, delta)
    n, d = arguments.count("n", n), arguments.count("d", d)
    missing = arguments.fraction("missing", missing)
    return _chosen(
        model,
        n,
        d,
        epsilon,
        delta,
        arguments.sparsity_within(sparsity, d),
        arguments.positive("sigma", sigma),
        arguments.positive("signal", signal),
        missing if model == "missing-regression" else 0.0,
        arguments.optional_distance("start_distance", start_distance),
        fixed,
        trim,
        arguments.optional_distance("spent", spent) or 0.0,
        arguments.rows_per_person(rows_per_person, n),
    )


@lru_cache(maxsize=64)
def _chosen(
    model: str,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    sparsity: int | None,
    sigma: float,
    signal: float,
    missing: float,
    start_distance: float | None,
    fixed: tuple[tuple[str, float], ...],
    trim: bool,
    spent: float,
    rows_per_person: int,
) -> Plan:
    problem = Problem(
        MODELS[model](sigma), n, d, sparsity or d, signal, missing, start_distance, rows_per_person=rows_per_person
    )
    private_start = model != "missing-regression" and start_distance is None
    sparse = sparsity is not None and sparsity < d
    price = largest_price(epsilon, delta, gaussian=not sparse and spent == 0)
    rho = price.rho - spent
    if not rho > 0:
        raise ValueError(f"spent must be below the price that epsilon and delta buy (rho = {price.rho:.3g}).")
    pipeline = Pipeline(problem, private_start, sparse, fixed)
    draft = Plan(model, "improved", n, d, epsilon, delta, sparsity, sigma, signal, missing, (), price, rows_per_person)
    with single_blas(), np.errstate(all="ignore"):  # rehearsals are too short to be worth a second thread
        stand_in = _narrowed(pipeline)
        knobs = choose(stand_in, rho)
        errors = estimate(stand_in, knobs, rho)
        steps = pipeline.steps(knobs, rho)
        mean = float(np.mean(errors))
        low, high = np.quantile(errors, [0.1, 0.9])
        done = replace(
            draft,
            steps=(*steps, Trim(0.0, trim_threshold(problem, steps))) if trim else steps,
            predicted_error=mean,
            interval=(float(low), float(high)),
            detectable=detectable(problem, steps),
        )
        if done.feasible:
            return done
        return replace(
            done, needs_start=private_start and model == "symmetric-regression", advice=_advice(pipeline, done)
        )


def _narrowed(pipeline: Pipeline) -> Pipeline:
    """A wide dense problem as a narrower one with the same error.

    Dense contributions are σ√d long and d numbers are released, so the norm of the noise grows as d and the sampling
    error as √d: with f times fewer columns and f times fewer rows both stay what they were, at the same number of rows
    per person.
    """
    p = pipeline.problem
    if pipeline.sparse or p.d <= WIDEST_DENSE:
        return pipeline
    n = max(2, round(p.n * WIDEST_DENSE / p.d))
    return replace(pipeline, problem=replace(p, d=WIDEST_DENSE, s=WIDEST_DENSE, n=n))


def _advice(pipeline: Pipeline, done: Plan) -> str:
    """The smallest n, and the smallest ε, on a grid of factors √2, at which the default knobs would do.

    (Those chosen where nothing works are no guide to where something does.)
    """

    def useful(problem: Problem, epsilon: float) -> bool:
        rho = largest_price(epsilon, done.delta, gaussian=done.price.gaussian).rho
        trial = _narrowed(replace(pipeline, problem=problem))
        return rough_error(trial, trial.first(), rho) <= USEFUL * done.signal

    def smallest(works: Callable[[float], bool]) -> float | None:
        """The smallest factor 2^(i/2), i ≤ 24, at which it works, by bisection."""
        low, high = 0, 24
        if not works(2.0 ** (high / 2)):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if works(2.0 ** (middle / 2)) else (middle, high)
        return float(2.0 ** (high / 2))

    p = pipeline.problem
    more_rows = smallest(lambda factor: useful(replace(p, n=round(p.n * factor)), done.epsilon))
    more_epsilon = smallest(lambda factor: useful(p, done.epsilon * factor))
    parts = []
    if more_rows is not None:
        parts.append(f"about n = {float(f'{p.n * more_rows:.2g}'):,.0f}")
    if more_epsilon is not None:
        parts.append(f"about epsilon = {done.epsilon * more_epsilon:.2g}")
    if not parts:
        return "more rows or a larger epsilon alone would not help"
    return f"a useful fit would take {' or '.join(parts)}"
