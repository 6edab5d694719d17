"""Comparison of a recorded fit with its replay on a neighbouring table.

*Lemma.* Suppose that for every pair of neighbours and every sequence of answers the two recordings have equal events,
that each statistic differs by no more than the sensitivity that its noise was calibrated to, and that the prices that
follow from noise and sensitivity convert to (ε, δ). Then the fit is (ε, δ)-private. *Proof.* Given the answers so far,
the next query, its noise and its price are the same for both tables, so the next answer is a mechanism of that
price applied to neighbouring statistics, and mechanisms compose adaptively. The fitted model is a function of the
answers. ∎ A replay checks one pair and one sequence of answers: it can find faults, and proves nothing.

Checked is that (1) events and outcome are equal; (2) the budget is charged before anything else, and each total is
computed after a charge of its own; (3) totals change by at most the query's bound and its rounding; (4) the statistic
given to a sampler changes by at most the sensitivity that the sampler and the release state; (5) no more batches of a
split change than the person has rows; (6) the price of the noise, computed again from scale and sensitivity by this
module's own formulas, converts to (ε, δ).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr
from sklearn.base import BaseEstimator

from dpem.audit.neighbours import Table, neighbours
from dpem.audit.tape import Answered, BudgetCharged, Event, ReleaseCharged, Tape, Totalled, record
from dpem.privacy import Release

#: Tolerance for rounding in the comparison itself.
_ROUNDING = 1 + 1e-12


@dataclass
class Verdict:
    """The result of comparisons: the faults, and for each query the largest change relative to its sensitivity."""

    faults: list[str] = field(default_factory=list)
    used: dict[str, float] = field(default_factory=dict)
    neighbours: int = 0

    def merge(self, other: Verdict, name: str = "") -> None:
        self.faults += [f"{name}: {fault}" if name else fault for fault in other.faults]
        self.neighbours += other.neighbours
        for query, used_share in other.used.items():
            self.used[query] = max(used_share, self.used.get(query, 0.0))


def compare(first: Tape, second: Tape, *, rows: int = 1) -> Verdict:
    """The verdict on a fit and its replay on a table that differs in at most ``rows`` rows."""
    verdict = Verdict(neighbours=1)
    verdict.faults += differences(first, second)
    verdict.faults += unpaid_events(second.events)
    changed_batches: set[int] = set()
    release: Release | None = None
    for one, two in zip(first.events, second.events, strict=False):
        if isinstance(one, ReleaseCharged):
            release = one.release
        elif isinstance(one, Totalled) and isinstance(two, Totalled):
            if one.batch is not None and not np.array_equal(one.total, two.total):
                changed_batches.add(one.batch)
            verdict.faults += _beyond_bound(one, two, rows)
        elif isinstance(one, Answered) and isinstance(two, Answered) and release is not None:
            used_share = _used_share(one, two, release)
            verdict.used[release.query] = max(used_share, verdict.used.get(release.query, 0.0))
            if used_share > _ROUNDING:
                verdict.faults.append(f"'{release.query}' moved by {used_share:.4g} of its stated sensitivity")
    if len(changed_batches) > rows:
        verdict.faults.append(f"{len(changed_batches)} batches moved, but {rows} row(s) were replaced: they overlap")
    return verdict


def differences(first: Tape, second: Tape) -> Iterator[str]:
    """The first difference between the events of two fits, and all differences between their outcomes."""
    for place, (one, two) in enumerate(zip(first.events, second.events, strict=False)):
        if one != two:
            yield f"event {place} differs: {one} became {two}"
            return
    if len(first.events) != len(second.events):
        yield f"{len(first.events)} events became {len(second.events)}"
    for name in first.outcome.keys() | second.outcome.keys():
        if first.outcome.get(name) != second.outcome.get(name):
            yield f"the public outcome {name!r} differs although every answer was the same"


def unpaid_events(events: list[Event]) -> Iterator[str]:
    """The totals and answers that were not charged beforehand."""
    if events and not isinstance(events[0], BudgetCharged):
        yield f"the first event is {type(events[0]).__name__}, not the charge of the budget"
    paid = answerable = 0
    for event in events:
        if isinstance(event, ReleaseCharged):
            paid += 1
            answerable += 1
        elif isinstance(event, Totalled):
            if paid == 0:
                yield f"'{event.query}' was computed before it was charged"
            paid = max(0, paid - 1)
        elif isinstance(event, Answered) and event.kind != "laplace":  # peeling has s + 1 answers for one charge
            if answerable == 0:
                yield f"a {event.kind} answer was given that was not charged"
            answerable = max(0, answerable - 1)


def excess_cost(tape: Tape, epsilon: float, delta: float) -> Iterator[str]:
    """A fault if the noise that was drawn costs more than (ε, δ).

    Its price is ρ = Δ²/(2τ²) for Gaussian noise and k·λ²/(2b²) for a selection of k; in peeling, 2(λ/b)² for each noisy
    arg-max and k·(λ/b)²/2 for k released values. The sum is converted to (ε, δ) by the zCDP bound, or exactly if all
    noise is Gaussian.
    """
    unsplit, gaussian = 0.0, True
    batches: dict[int, float] = {}
    release: Release | None = None
    for event in tape.events:
        if isinstance(event, ReleaseCharged):
            release = event.release
        elif isinstance(event, Answered) and release is not None:
            gaussian &= event.kind == "gaussian"
            rho = _price(event, release)
            if release.batch is None:
                unsplit += rho
            else:
                batches[release.batch] = batches.get(release.batch, 0.0) + rho
    rho = unsplit + max(batches.values(), default=0.0)
    spent_delta = _gaussian_delta(rho, epsilon) if gaussian else _zcdp_delta(rho, epsilon)
    if spent_delta > delta * (1 + 1e-6):
        cost = f"delta={spent_delta:.3g} at epsilon={epsilon:g}"
        yield f"the noise that was drawn costs {cost}, but {delta:.3g} was stated"


def replay(
    estimator: BaseEstimator,
    table: Table,
    *,
    hold: Callable[[Table], tuple[object, ...]] | None = None,
    missing: bool = False,
    where: NDArray[np.intp] | None = None,
    from_neighbours: bool = True,
) -> Verdict:
    """Record a fit to the table and replay it on every kind of neighbour; unless ``from_neighbours`` is False, do the
    same from three extreme neighbours.

    ``hold`` makes the arguments of ``fit`` from a table: ``(X,)`` or ``(X, y)``, by default its arrays. For an
    estimator with ``person=``, ``where`` are all rows of one person, and ``hold`` adds the column of persons.

    >>> from dpem.paper import DPSymmetricMixture
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = DPSymmetricMixture(epsilon=1.0, delta=1e-4, sigma=1.0, start=[1.0, 0.0], n_iter=2)
    >>> verdict = replay(model, Table("as drawn", X, None))
    >>> verdict.faults, verdict.neighbours
    ([], 76)
    """
    hold = hold or in_memory
    verdict = Verdict()
    where = np.array([len(table.X) // 2]) if where is None else np.asarray(where)
    has_person = getattr(estimator, "person", None) is not None
    used_rows = min(len(where), estimator.rows_per_person) if has_person else len(where)
    start = getattr(estimator, "start", None)
    beta = np.asarray(start, dtype=float) if isinstance(start, list | np.ndarray) else np.ones(table.X.shape[1])
    kinds = list(neighbours(table, beta, missing=missing, broken=True, where=where))
    extreme = ("outlier above", "along the fit", "against the fit") if from_neighbours else ()
    for origin in [table, *(kind for kind in kinds if kind.name in extreme)]:
        first = record(estimator, *hold(origin))
        model = first.model
        if "refused" not in first.outcome:
            verdict.faults += excess_cost(first, float(model.epsilon), float(model.delta))
        for kind in kinds:
            second = record(estimator, *hold(kind), frozen=first)
            verdict.merge(compare(first, second, rows=used_rows), f"{origin.name} → {kind.name}")
    return verdict


def in_memory(table: Table) -> tuple[object, ...]:
    return (table.X,) if table.y is None else (table.X, table.y)


def _beyond_bound(one: Totalled, two: Totalled, rows: int) -> Iterator[str]:
    change = two.total - one.total
    if not np.isfinite(change).all():
        yield f"the total of '{one.query}' is not finite"
        return
    bound = one.bound
    for norm, distance, limit, size in (
        ("largest entry", float(np.max(np.abs(change))), bound.linf, bound.size_linf),
        ("length", float(np.linalg.norm(change)), bound.l2, bound.size_l2),
    ):
        if math.isfinite(limit) and distance > rows * (limit + one.slack * size) * _ROUNDING:
            yield f"the total of '{one.query}' moved by {distance:.6g} ({norm}), its bound is {limit:.6g}"


def _used_share(one: Answered, two: Answered, release: Release) -> float:
    """The change of a statistic, relative to the sensitivity given to the sampler and stated in the release."""
    change = two.statistic - one.statistic
    distance = float(np.linalg.norm(change)) if one.kind == "gaussian" else float(np.max(np.abs(change)))
    allowed = release.sensitivity if one.sensitivity is None else one.sensitivity
    if one.kind == "gaussian":
        allowed = min(allowed, release.sensitivity)
    return 0.0 if distance == 0 else distance / allowed if allowed > 0 else math.inf


def _price(event: Answered, release: Release) -> float:
    stated = release.sensitivity if event.sensitivity is None else event.sensitivity
    ratio = stated / event.scale
    if event.kind == "gaussian":
        return ratio**2 / 2
    if event.kind == "top_k":
        return (event.k or 0) * ratio**2 / 2
    values = event.statistic.size
    picked = int(release.mechanism.split(",")[1].split()[0])  # "Laplace peeling, s of d"
    return picked * ratio**2 / 2 if values == picked else 2 * ratio**2


def _zcdp_delta(rho: float, epsilon: float) -> float:
    """δ of ρ-zCDP: min over a grid of α of exp((α−1)(αρ−ε))·(1−1/α)^α/(α−1) (Canonne et al. 2020, Prop. 12)."""
    if rho <= 0:
        return 0.0
    alpha = 1 + np.geomspace(1e-6, 1e6, 200_001)
    log_delta = (alpha - 1) * (alpha * rho - epsilon) + alpha * np.log1p(-1 / alpha) - np.log(alpha - 1)
    return float(math.exp(min(0.0, float(np.min(log_delta)))))


def _gaussian_delta(rho: float, epsilon: float) -> float:
    """δ of Gaussian noise: Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ) with μ² = 2ρ (Balle & Wang 2018)."""
    mu = math.sqrt(2 * rho)
    if mu == 0:
        return 0.0
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))))
