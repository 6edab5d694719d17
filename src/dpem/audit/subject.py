"""What is audited, how runs become a finding, and what a finding says."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dpem._threads import at_most
from dpem._validation import ArgumentError
from dpem.audit.bounds import CONFIDENCE, lower_bound
from dpem.query import FloatArray

#: Runs of one task: enough to forget what it costs to start one.
BATCH = 2000


class Subject(Protocol):
    """A mechanism with a claim, and two neighbouring tables chosen to tell the most."""

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


Task = tuple[Subject, bool, int]


def tasks(subject: Subject, runs: int) -> list[Task]:
    """The runs of an audit, half of them on each table, in batches that can be computed anywhere."""
    each = runs // 2
    sizes = [BATCH] * (each // BATCH) + ([each % BATCH] if each % BATCH else [])
    return [(subject, neighbour, size) for size in sizes for neighbour in (False, True)]


def perform(task: Task) -> tuple[Task, FloatArray, float]:
    """The task, its scores, and the processor's seconds they took."""
    subject, neighbour, runs = task
    begun = time.process_time()
    with at_most(1):  # the tables are too small for a second
        scores = subject.scores(neighbour, runs)
    return task, scores, time.process_time() - begun


def conclude(subject: Subject, done: Iterable[tuple[Task, FloatArray, float]]) -> list[Finding]:
    """One finding for each adversary, from tasks that were performed."""
    parts: dict[bool, list[FloatArray]] = {False: [], True: []}
    seconds = 0.0
    for (_, neighbour, _), scores, took in done:
        parts[neighbour].append(scores)
        seconds += took
    first, second = (np.concatenate(parts[neighbour]) for neighbour in (False, True))
    found = []
    for column, adversary in enumerate(subject.adversaries):
        bound = lower_bound(first[:, column], second[:, column], subject.delta)
        claim = (subject.name, adversary, subject.epsilon, subject.delta)
        found.append(Finding(*claim, bound.epsilon, bound.runs, seconds))
    return found


def audit(
    subject: Subject,
    runs: int,
    *,
    parallel: Callable[[Callable[[Any], Any], list[Any]], Iterator[Any]] = map,
    tick: Callable[[int], object] = lambda runs: None,
) -> list[Finding]:
    """Run a subject on both of its tables, half of the runs each, and bound its ε from below.

    ``parallel`` is a ``map``, perhaps over processes; ``tick`` is told how many runs were finished.

    >>> from dpem.audit.mechanisms import Values
    >>> [finding] = audit(Values(epsilon=4.0, delta=1e-5), runs=400)
    >>> finding.consistent, finding.runs
    (True, 400)
    """
    if runs < 40:
        raise ArgumentError("runs", f"must be at least 40, 20 on each table, got {runs!r}.")
    if not math.isfinite(subject.epsilon):
        raise ValueError("an audit needs a finite epsilon: without one nothing is claimed.")

    def watched() -> Iterator[tuple[Task, FloatArray, float]]:
        for task, scores, took in parallel(perform, tasks(subject, runs)):
            tick(len(scores))
            yield task, scores, took

    return conclude(subject, watched())
