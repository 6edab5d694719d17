"""What is audited, how runs become a finding, and what a finding says."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpem._threads import at_most
from dpem._validation import ArgumentError
from dpem.audit.bounds import CONFIDENCE, lower_bound
from dpem.query import FloatArray

#: Runs between two reports of progress.
BATCH = 100


class Subject(Protocol):
    """A mechanism with a claim, and two neighbouring tables chosen to distinguish best."""

    @property
    def name(self) -> str: ...

    @property
    def epsilon(self) -> float: ...

    @property
    def delta(self) -> float: ...

    @property
    def adversaries(self) -> tuple[str, ...]:
        """Who looks, and at what: one column of scores each."""

    def scores(self, neighbour: bool, runs: int) -> FloatArray:
        """Scores of that many independent runs on D, or on its neighbour D′: a row for each run."""


@dataclass(frozen=True)
class Finding:
    """A claim (ε, δ), and the lower bound on ε that an audit found. ``note`` is what else was seen, ``seconds``
    are the processor's.

    >>> print(Finding("values", "every release", 1.0, 1e-5, 0.41, 2000, 3.0))
    values, every release: claimed 1, at least 0.41 with 99.9 % confidence: consistent
    """

    subject: str
    adversary: str
    epsilon: float
    delta: float
    lower: float
    runs: int
    seconds: float
    confidence: float = CONFIDENCE
    note: str = ""

    @property
    def consistent(self) -> bool:
        """Whether the claim survived. A violated one is wrong, up to what the confidence leaves."""
        return self.lower <= self.epsilon

    def __str__(self) -> str:
        verdict = "consistent" if self.consistent else "VIOLATED"
        what = ", ".join(part for part in (self.subject, self.adversary, self.note) if part)
        return (
            f"{what}: claimed {self.epsilon:g}, at least {self.lower:.2f} "
            f"with {self.confidence * 100:g} % confidence: {verdict}"
        )


def findings(subject: Subject, first: FloatArray, second: FloatArray, seconds: float) -> list[Finding]:
    """One finding for each adversary, from the scores on D and on its neighbour."""
    found = []
    for column, adversary in enumerate(subject.adversaries):
        bound = lower_bound(first[:, column], second[:, column], subject.delta)
        claim = (subject.name, adversary, subject.epsilon, subject.delta)
        found.append(Finding(*claim, bound.epsilon, bound.runs, seconds))
    return found


def audit(subject: Subject, runs: int, *, tick: Callable[[int], object] = lambda runs: None) -> list[Finding]:
    """Run a subject on both of its tables, half of the runs each, and bound its ε from below.

    ``tick`` is called with the number of runs that were finished since it was called before.
    """
    if runs < 40:
        raise ArgumentError("runs", f"must be at least 40, 20 on each table, got {runs!r}.")
    if not math.isfinite(subject.epsilon):
        raise ArgumentError("epsilon", "must be finite: without it nothing is claimed.")
    begun, scores = time.process_time(), []
    for neighbour in (False, True):
        parts = []
        for done in range(0, runs // 2, BATCH):
            with at_most(1):  # the tables are too small for a second thread
                parts.append(subject.scores(neighbour, min(BATCH, runs // 2 - done)))
            tick(len(parts[-1]))
        scores.append(np.concatenate(parts))
    return findings(subject, scores[0], scores[1], time.process_time() - begun)
