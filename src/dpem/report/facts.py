"""What a report states, worked out from what a fit released and from public numbers alone."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpem.paper.estimators.base import PrivateEM
from dpem.paper.published import PaperEM
from dpem.paper.tight import Refine, Screen, Select, Start, Trim
from dpem.privacy import Release

GIVEN = "given by the user"
DEFAULT = "default"
PLANNED = "chosen by the plan before the data were read"
PLANNED_LATER = "chosen by the plan from public numbers and the released σ"
PAID = "estimated privately and paid for"
UNPAID = "computed from the data without noise: not private"
PUBLIC = "size of the table, public"

MODELS = {
    "symmetric-mixture": "Gaussian mixture",
    "symmetric-regression": "mixture of two regressions",
    "missing-regression": "regression with missing covariates",
}


class Question(NamedTuple):
    """A release, its place in the order of asking, and its part of the price of the fit."""

    place: int
    release: Release
    share: float

    @property
    def kind(self) -> str:
        """Whether it released values ("measure") or only places ("select")."""
        return "select" if self.release.mechanism.startswith("Gumbel") else "measure"


class Setting(NamedTuple):
    """A setting of the fit and where it came from."""

    name: str
    value: str | float | int
    origin: str


class Unit(NamedTuple):
    """Words about the rows that the guarantee protects together."""

    taken: str
    others: str
    these: str
    differs: str
    pays: str


def unit_in_words(model: PrivateEM) -> Unit:
    """What is replaced between neighbours, in the forms that sentences need."""
    rows = model.plan_.rows_per_person
    if rows == 1:
        pays = "a row is in one of them and pays there only"
        return Unit("any one row of the table", "another in its", "this one", "one row", pays)
    return Unit(
        f"the rows of any one person, up to {rows:,},",
        "others in their",
        "these",
        f"the rows of one person, at most {rows:,}",
        "a person’s rows may be in several of them, and pay together at most what they would in the dearest alone",
    )


def questions(model: PrivateEM) -> list[Question]:
    """Everything asked, with its part of the ρ that was charged. Batches are disjoint, so each is weighed against the
    whole: all batches together cost one person no more than the dearest (:func:`dpem.privacy.total_price`).
    """
    releases = list(model.releases_)
    whole = model.guarantee_.price.rho
    shares = [r.price.rho / whole if 0 < whole < math.inf else math.nan for r in releases]
    return [Question(i, r, share) for i, (r, share) in enumerate(zip(releases, shares, strict=True), start=1)]


def bill(asked: list[Question]) -> list[Question]:
    """What one person pays at most: every question about the whole table, and those of the dearest batch."""
    batches = {q.release.batch for q in asked if q.release.batch is not None}
    cost = {b: math.fsum(q.share for q in asked if q.release.batch == b) for b in batches}
    dearest = max(cost, key=lambda b: (round(cost[b], 9), -b)) if cost else None
    return [q for q in asked if q.release.batch is None or q.release.batch == dearest]


def coefficient_noise(model: PrivateEM) -> float | None:
    """Standard deviation of the privacy noise that the last step put on each coefficient; None if there was none.

    *Lemma.* Given what was released before, a coefficient on the support is a function of the data plus noise of this
    standard deviation. *Proof.* The last refining step is β + η·(mean + N(0, τ²)) with β released before and τ the
    release's scale: η·τ. The paper's low-dimensional step is the same, with a public shift. Its NoisyHT adds Laplace(b)
    to the values themselves, of standard deviation √2·b. Trimming keeps a value or drops it. ∎ The noise of earlier
    steps enters through the mean, damped by EM's contraction; it is not counted here, but in the predicted error.
    """
    last = next(step for step in reversed(model.plan_.steps) if not isinstance(step, Trim))
    if math.isinf(last.rho):
        return None
    scale = model.releases_[-1].scale
    if isinstance(last, PaperEM) and last.s is not None:
        return math.sqrt(2) * scale
    assert isinstance(last, Refine | PaperEM)
    return last.step * scale


def best_guess(epsilon: float, delta: float) -> float:
    """The most often that a guess which of two neighbouring tables was used is right, both equally likely before.

    *Lemma.* At most (e^ε + δ)/(1 + e^ε). *Proof.* Let a test say D′ with probability p under D and q under D′. Then q ≤
    e^ε·p + δ and 1 − p ≤ e^ε·(1 − q) + δ. Adding them, (1 + e^ε)(q − p) ≤ e^ε − 1 + 2δ, and the guess is right with
    probability (1 + q − p)/2. ∎

    >>> round(best_guess(1.0, 1e-5), 3)
    0.731
    """
    return min(1.0, 1 / (1 + math.exp(-epsilon)) + delta / (1 + math.exp(min(epsilon, 700.0))))


def column_name(model: PrivateEM, j: int) -> str:
    """The name of column j, or "column j" where columns have none."""
    names = getattr(model, "feature_names_in_", None)
    return f"column {j}" if names is None else str(names[j])


def largest_first(model: PrivateEM) -> np.ndarray:
    """The support, the largest coefficients first."""
    return model.support_[np.argsort(-np.abs(model.coef_[model.support_]), kind="stable")]


def settings(model: PrivateEM) -> list[Setting]:
    """Every setting, and who chose it when."""
    plan = model.plan_
    auto = model.sparsity == "auto"
    size = f"at most {plan.sparsity}, then trimmed" if auto else "all" if plan.sparsity is None else str(plan.sparsity)
    found = [
        Setting("rows n", plan.n, PUBLIC),
        Setting("columns d", plan.d, PUBLIC),
        Setting("ε", plan.epsilon, GIVEN),
        Setting("δ", plan.delta, GIVEN),
        Setting("rows that one person may have", plan.rows_per_person, DEFAULT if plan.rows_per_person == 1 else GIVEN),
        Setting("coefficients that may be non-zero", size, DEFAULT if model.sparsity is None else GIVEN),
        Setting("noise level σ of the model", model.sigma_, GIVEN if model.sigma is not None else _asked(model)),
        Setting("assumed length of β", plan.signal, DEFAULT if plan.signal == 1.0 else GIVEN),
        Setting("method", model.method, DEFAULT if model.method == "tight" else GIVEN),
        Setting("start", *_start(model)),
    ]
    if plan.model == "missing-regression" and plan.missing:
        found.append(Setting("part of the entries assumed missing", plan.missing, DEFAULT))
    return found + _steps(model)


def _asked(model: PrivateEM) -> str:
    return PAID if math.isfinite(model.guarantee_.epsilon) else UNPAID


def planned(model: PrivateEM) -> str:
    """What the plan was made from."""
    return PLANNED if model.sigma is not None else PLANNED_LATER


def _start(model: PrivateEM) -> tuple[str, str]:
    if model.start is not None:
        return ("equal entries" if isinstance(model.start, str) else "a vector"), GIVEN
    if any(isinstance(step, Screen | Start) and math.isfinite(step.rho) for step in model.plan_.steps):
        return "found in the data", PAID
    return ("zero", DEFAULT) if model._model_name == "missing-regression" else ("found in the data", UNPAID)


def _steps(model: PrivateEM) -> list[Setting]:
    """The settings of the plan's steps, and which of them the user pinned."""

    by_plan = planned(model)

    def origin(argument: object) -> str:
        return by_plan if argument is None else GIVEN

    found = []
    refine = [step for step in model.plan_.steps if isinstance(step, Refine)]
    for step in model.plan_.steps:
        if isinstance(step, Screen):
            found.append(Setting("columns screened for a start", step.k, by_plan))
        elif isinstance(step, Start):
            found.append(Setting("clip of a row’s length, start", step.radius, by_plan))
        elif isinstance(step, Select):
            found.append(Setting("clip T of an entry, selection", step.clip.entry, origin(model.clip)))
            if math.isfinite(step.clip.residual):
                found.append(Setting("clip of a residual, selection", step.clip.residual, by_plan))
        elif isinstance(step, Trim):
            found.append(Setting("coefficients dropped up to", step.threshold, by_plan))
        elif not isinstance(step, Refine):
            found.append(Setting("steps N₀", step.n_iter, origin(model.n_iter)))
            found.append(Setting("step size η", step.step, origin(model.step_size)))
            if isinstance(step, PaperEM):
                found.append(Setting("clip T", step.T, origin(model.clip)))
    if refine:
        found.append(Setting("refining steps", len(refine), origin(model.n_iter)))
        found.append(Setting("step size η", refine[0].step, origin(model.step_size)))
        found.append(Setting("clip of a contribution’s length, last step", refine[-1].radius, by_plan))
    return found
