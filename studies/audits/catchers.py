"""Detectors of bugs: record and replay, tests of the noise, the library's own checks, the black-box audit, the tests.

A catcher is a generator of complaints about the library. On the correct library all are silent; a planted bug is caught
by those that complain.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dpem import Budget, DPStandardScaler
from dpem.audit.bounds import Subject, audit
from dpem.audit.neighbours import Table, neighbours
from dpem.audit.replay import in_memory, replay
from dpem.audit.tape import record
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.paper.models import MissingRegression, SymmetricMixture
from dpem.privacy import largest_price
from dpem.query import Chunk
from dpem.tables import ChunkedSource
from studies.audits import canaries
from studies.audits.hostile_rows import cancelling
from studies.audits.mechanisms import Peeling, Selection, Values
from studies.audits.noise_law import noise_faults

N, D = 300, 6
#: Runs of a short black-box audit, which can detect half of the noise in a mechanism, and larger faults in a fit.
RUNS, FITS = 3000, 400
BETA = np.array([1.0, -0.8, 0.4, 0.0, 0.0, 0.0])
PRICE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-4}
STEPS: dict[str, Any] = {"start": list(BETA), "n_iter": 3}


@dataclass(frozen=True)
class Case:
    """A fit to be recorded and replayed."""

    estimator: Any
    table: Table
    missing: bool = False
    where: list[int] = field(default_factory=lambda: [N // 2])
    hold: Callable[[Table], tuple[Any, ...]] = in_memory


class Sorting(ChunkedSource):
    """A table that is sorted by a private column, so that a changed row moves and shifts others."""

    has_response, dtype = False, np.dtype(np.float64)

    def __init__(self, rows: Any) -> None:
        self._rows, self.n_features = rows[np.argsort(rows[:, 0], kind="stable")], rows.shape[1]

    @property
    def n_rows(self) -> int:
        return len(self._rows)

    def chunks(self) -> Iterator[Chunk]:
        return (Chunk(rows, None) for rows in np.array_split(self._rows, 7))

    def split(self, parts: int) -> list[Sorting]:
        return [Sorting(self._rows[t::parts]) for t in range(parts)]


def sorting(table: Table) -> tuple[Any, ...]:
    return (Sorting(table.X),)


@cache
def cases() -> list[Case]:
    """Fits that together send every kind of query."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(N, D))
    mixture = Table("as drawn", X + np.outer(rng.choice([-1, 1], N), BETA), None)
    single = mixture._replace(X=mixture.X.astype(np.float32))
    y = X @ BETA + 0.5 * rng.normal(size=N)
    regression = Table("as drawn", X, rng.choice([-1, 1], N) * y)
    gaps = Table("as drawn", np.where(rng.random(X.shape) < 0.2, np.nan, X), y)
    paper: dict[str, Any] = {**PRICE, **STEPS, "method": "published"}
    steep = {**paper, "start": list(60 * BETA), "clip": 1.0, "signal": 60.0}
    return [
        Case(DPSymmetricMixture(**PRICE, **STEPS, sigma=1.0), mixture),
        Case(DPSymmetricMixture(**PRICE, sparsity=3, sigma=1.0), single),
        Case(DPSymmetricMixture(**paper, sigma=1.0, sparsity=2), mixture),
        Case(DPSymmetricMixture(**PRICE, **STEPS, sigma=1.0, rows_per_person=2), mixture, where=[20, 150]),
        Case(DPSymmetricRegression(**paper, sigma=0.5, sparsity=2), regression),
        Case(DPMissingRegression(**PRICE, sigma=0.5, sparsity=3), gaps, missing=True),
        Case(DPMissingRegression(**steep, sigma=0.5, sparsity=2), gaps, missing=True),
        Case(DPStandardScaler(**PRICE, bounds=(-3, 3)), mixture),
        Case(DPStandardScaler(**PRICE, bounds=(-3, 3)), single, hold=sorting),
        Case(DPSymmetricMixture(**paper, sigma=1.0, sparsity=2), mixture, hold=sorting),
    ]


def replaying() -> Iterator[str]:
    """Record and replay on every kind of neighbour, and one clipped sum over rows that are not numbers."""
    for case in cases():
        yield from replay(case.estimator, case.table, hold=case.hold, missing=case.missing, where=case.where).faults
    yield from _cancelled()
    rows = next(case.table for case in cases())
    query = SymmetricMixture(1.0).on_support(BETA, np.arange(D), 1.0)
    for broken in neighbours(rows, BETA, broken=True):
        if not np.isfinite(query.sum(Chunk(broken.X, None))).all():
            yield f"a sum over rows is not finite ({broken.name})"


def _cancelled() -> Iterator[str]:
    """Whether rows with huge entries that cancel contribute more than the bound."""
    query = MissingRegression(0.5).truncated(np.full(D, 1.6), 1.0)
    X, y = cancelling(D, 5000, seed=0)
    found = np.array([query.sum(Chunk(X[i : i + 1], y[i : i + 1])) for i in range(len(X))])
    width = max(float(found.max()), 2.0) - min(float(found.min()), -2.0)
    if width > query.bound.linf:
        yield f"rows that cancel reach {width / query.bound.linf:.3g} of the bound of '{query.label}'"


def bookkeeping() -> Iterator[str]:
    """Whether a forked process can spend the budget again, whether seeded noise can be charged, and whether a guarantee
    states the price that was charged.
    """
    budget = Budget(1.0, 1e-5)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            budget.charge(0.8, 1e-6, largest_price(0.8, 1e-6, gaussian=False))
            os.write(writing, b"spent")
        finally:
            os._exit(0)
    os.close(writing)
    if os.read(reading, 5) == b"spent":
        yield "a forked child spent a copy of the budget"
    os.close(reading)
    os.waitpid(child, 0)
    case, budget = cases()[2], Budget(1.0, 1e-3)
    try:
        type(case.estimator)(**{**case.estimator.get_params(), "random_state": 0, "budget": budget}).fit(case.table.X)
        yield "a seeded fit was charged like a private one"
    except ValueError:
        pass
    missing, budget = cases()[6], Budget(1.0, 1e-3)
    fitted = type(missing.estimator)(**{**missing.estimator.get_params(), "clip": 9.0, "budget": budget})
    fitted.fit(missing.table.X, missing.table.y)
    if fitted.guarantee_.price != budget._charges[0].price:
        yield "a guarantee states another price than was charged"


def noise_tests() -> Iterator[str]:
    """Whether the noise of repeated fits has the right distribution, is independent and is never used twice."""
    for place, times in ((0, 25), (1, 100), (2, 25)):
        case = cases()[place]
        yield from noise_faults([record(case.estimator, *in_memory(case.table)) for _ in range(times)])


def refusal() -> Iterator[str]:
    """Whether the library itself refuses a fit, since a release exceeds its charge or the account is exhausted."""
    for case in cases():
        if case.hold is not in_memory:  # a sorted table must be refused
            continue
        outcome = record(case.estimator, *in_memory(case.table)).outcome
        if "refused" in outcome:
            yield outcome["refused"]


def black_box() -> Iterator[str]:
    """Short black-box audits of mechanisms and fits whose lower bound on ε exceeds the claim."""
    alone: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5}
    claim: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}
    subjects: list[tuple[Subject, int]] = [
        *((kind(**alone), RUNS) for kind in (Values, Selection)),
        (Peeling(**alone), FITS),
        (canaries.case("symmetric-mixture", **claim), FITS),
        (canaries.case("symmetric-mixture", **claim, columns=16, sparsity=4), FITS),
        (canaries.case("missing-regression", **claim), FITS),
        (canaries.case("symmetric-regression", **claim, method="published"), FITS),
    ]
    for subject, runs in subjects:
        yield from (str(finding) for finding in audit(subject, runs) if not finding.consistent)


Catcher = Callable[[], Iterator[str]]

QUICK: dict[str, Catcher] = {
    "record and replay": replaying,
    "noise": noise_tests,
    "refusal": refusal,
    "budget and ledger": bookkeeping,
}

#: Tests of single parts, which were not written for the planted bugs.
TESTS = (
    *("tests/paper/test_sensitivity.py", "tests/privacy/test_curator.py", "tests/paper/test_budgets.py"),
    *("tests/tables/test_array.py", "tests/privacy/test_rows_per_person.py", "tests/privacy/test_mechanisms.py"),
    *("tests/privacy/test_curator_batches.py", "tests/privacy/test_gumbel.py", "tests/privacy/test_selection.py"),
)


def failing_test(bug: str | None) -> str | None:
    """The first of these tests that fails with the bug planted, in a process of its own; None if all pass."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:xdist", "-p", "studies.audits.planting", *TESTS]
    environment = os.environ | {"DPEM_PLANTED": bug or "", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split()[1] if failed else None


def caught_by(catcher: Catcher) -> str | None:
    """The catcher's first complaint. Exceptions that users would see count as complaints; those that show that a bug no
    longer fits the code are raised.
    """
    try:
        return next(catcher(), None)
    except (AttributeError, NameError, TypeError):
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"
