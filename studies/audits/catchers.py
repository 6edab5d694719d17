"""Who notices a bug: record and replay, the law of the noise, the library's own checks, the black-box audit, the tests.

A catcher is a generator of complaints about the library as it is now. On the library as it should be all are silent;
a planted bug is caught by those that complain.
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

from dpem import DPStandardScaler
from dpem.audit import fits
from dpem.audit.mechanisms import Peeling, Selection, Values
from dpem.audit.neighbours import Table, neighbours
from dpem.audit.noise_law import noise_faults
from dpem.audit.replay import in_memory, replay
from dpem.audit.subject import Subject, audit
from dpem.audit.tape import record
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.paper.models import SymmetricMixture
from dpem.query import Chunk

N, D = 300, 6
#: Of a short black-box audit: enough to see half the noise in a mechanism, and worse in a fit.
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


@cache
def cases() -> list[Case]:
    """Between them these fits ask every kind of question."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(N, D))
    mixture = Table("as drawn", X + np.outer(rng.choice([-1, 1], N), BETA), None)
    single = mixture._replace(X=mixture.X.astype(np.float32))
    y = X @ BETA + 0.5 * rng.normal(size=N)
    regression = Table("as drawn", X, rng.choice([-1, 1], N) * y)
    holes = Table("as drawn", np.where(rng.random(X.shape) < 0.2, np.nan, X), y)
    paper: dict[str, Any] = {**PRICE, **STEPS, "method": "paper"}
    steep = {**paper, "start": list(60 * BETA), "clip": 1.0, "signal": 60.0}
    return [
        Case(DPSymmetricMixture(**PRICE, **STEPS, sigma=1.0), mixture),
        Case(DPSymmetricMixture(**PRICE, sparsity=3, sigma=1.0), single),
        Case(DPSymmetricMixture(**paper, sigma=1.0, sparsity=2), mixture),
        Case(DPSymmetricMixture(**PRICE, **STEPS, sigma=1.0, rows_per_person=2), mixture, where=[20, 150]),
        Case(DPSymmetricRegression(**paper, sigma=0.5, sparsity=2), regression),
        Case(DPMissingRegression(**PRICE, sigma=0.5, sparsity=3), holes, missing=True),
        Case(DPMissingRegression(**steep, sigma=0.5, sparsity=2), holes, missing=True),
        Case(DPStandardScaler(**PRICE, bounds=(-3, 3)), mixture),
    ]


def replaying() -> Iterator[str]:
    """Record and replay on every kind of neighbour, and one clipped sum over rows that are not numbers."""
    for case in cases():
        yield from replay(case.estimator, case.table, missing=case.missing, where=case.where).faults
    rows = next(case.table for case in cases())
    query = SymmetricMixture(1.0).on_support(BETA, np.arange(D), 1.0)
    for broken in neighbours(rows, BETA, broken=True):
        if not np.isfinite(query.sum(Chunk(broken.X, None))).all():
            yield f"a sum over rows is not finite ({broken.name})"


def noise_law() -> Iterator[str]:
    """The noise of repeated fits: its law, its independence, its freshness."""
    for place, times in ((0, 25), (1, 100), (2, 25)):
        case = cases()[place]
        yield from noise_faults([record(case.estimator, *in_memory(case.table)) for _ in range(times)])


def refusal() -> Iterator[str]:
    """The library's own checks: a release that would cost more than its debit, an account that is exhausted."""
    for case in cases():
        outcome = record(case.estimator, *in_memory(case.table)).outcome
        if "refused" in outcome:
            yield outcome["refused"]


def black_box() -> Iterator[str]:
    """Short black-box audits of the mechanisms and of fits: a lower bound on ε that exceeds the claim."""
    alone: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5}
    claim: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}
    subjects: list[tuple[Subject, int]] = [
        *((kind(**alone), RUNS) for kind in (Values, Selection)),
        (Peeling(**alone), FITS),
        (fits.case("symmetric-mixture", **claim), FITS),
        (fits.case("symmetric-mixture", **claim, columns=16, sparsity=4), FITS),
        (fits.case("missing-regression", **claim), FITS),
        (fits.case("symmetric-regression", **claim, method="paper"), FITS),
    ]
    for subject, runs in subjects:
        yield from (str(finding) for finding in audit(subject, runs) if not finding.consistent)


Catcher = Callable[[], Iterator[str]]

QUICK: dict[str, Catcher] = {"record and replay": replaying, "law of the noise": noise_law, "refusal": refusal}

#: Tests of the parts; none of them knows of the planted bugs.
TESTS = (
    *("tests/paper/test_sensitivity.py", "tests/privacy/test_curator.py", "tests/paper/test_budgets.py"),
    *("tests/sources/test_array.py", "tests/privacy/test_rows_per_person.py", "tests/privacy/test_mechanisms.py"),
    *("tests/privacy/test_gumbel.py", "tests/privacy/test_selection.py"),
)


def failing_test(bug: str | None) -> str | None:
    """The first test of the parts that fails with the bug planted (or none), in a process of its own; None if all
    pass.
    """
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:xdist", "-p", "studies.audits.planting", *TESTS]
    environment = os.environ | {"DPEM_PLANTED": bug or "", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split()[1] if failed else None


def caught_by(catcher: Catcher) -> str | None:
    """The catcher's first complaint. An exception that a user would see is a complaint too."""
    try:
        return next(catcher(), None)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
