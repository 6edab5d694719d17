"""One fit of full size as its own audit: a thousand canaries, a coin for each, and guesses from what was released.

Thousands of fits of a small table say nothing about a fit of a large one, and thousands of large fits take too long. In
one fit, many rows can be canaries at once: each is one of two rows by the toss of a fair coin, and from what is
released the coins are guessed, as many as were settled beforehand. If more guesses are right than the claim allows by
chance (:func:`one_run_bound`), the claim is wrong.

The fit is that of a dense Gaussian mixture from a given start. Canary i lies far out along coordinate i, on one side
or on the other, and a quarter as far along the start, which fixes its component. So every step's contributions of the
canaries are as long as the clip allows and orthogonal to each other: each is hidden by its own coordinate of the noise
alone. In a sparse fit only the coordinates that stand out are released, and canaries that compete for places are not
independent; there is no such design for it.

Such a bound is weak where the claim is strong, since no single guess is right much more often than wrong: at ε = 1 the
right guesses of the best attack are hardly more than chance.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit, ndtri
from scipy.stats import binom

from dpem.audit.bounds import CONFIDENCE, Finding
from dpem.audit.tape import Tape, record
from dpem.fitting.step import run_steps
from dpem.paper import DPSymmetricMixture
from dpem.paper.models import SymmetricMixture
from dpem.paper.steps import PaperState
from dpem.privacy import Account, Curator, largest_price
from dpem.query import FloatArray
from dpem.tables import ArraySource

SIGMA = 0.5
FAR = 1e9
#: Confidences at which the bound is stated.
CONFIDENCES = (CONFIDENCE, 0.95)


def one_run_p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """How likely an (ε, δ)-private mechanism makes so many guesses right, at most.

    Each of m canaries is one row or another by the toss of a fair coin; from what is released, at most r coins are
    guessed, and v guesses are right.

    *Lemma* (Steinke, Nasr & Jagielski 2023, their main theorem). If the mechanism is (ε, δ)-private for replacing one
    canary by its other row, then P(W ≥ v) ≤ f(v) + 2mδ·max over i of (f(v − i) − f(v))/i, where f(v) = P(Binomial(r,
    e^ε/(1 + e^ε)) ≥ v). *Proof for δ = 0.* Fix the released outcome and the first coins. The next coin was fair, and
    either of its sides makes the outcome at most e^ε times as likely as the other, averaged over the coins to come; so
    by Bayes' rule a guess of it is right with probability at most e^ε/(1 + e^ε), whatever came before. A sum of such
    indicators is stochastically below the binomial. For δ > 0 see the paper. ∎ The number of guesses must not depend on
    the coins; here it is fixed beforehand.

    >>> one_run_p_value(correct=95, guesses=100, canaries=1000, epsilon=1.0, delta=1e-7) < 1e-5
    True
    """
    if not 0 <= correct <= guesses <= canaries:
        raise ValueError(f"there must be 0 <= correct <= guesses <= canaries, got {correct}, {guesses}, {canaries}.")
    right = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(correct - 1, guesses, right))
    below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, right))  # f(v − i) − f(v) for i = 1, …, v
    steepest = float(np.max(below / np.arange(1, correct + 1))) if correct else 0.0
    return min(1.0, tail + 2 * canaries * delta * steepest)


def one_run_bound(correct: int, guesses: int, canaries: int, delta: float, confidence: float = CONFIDENCE) -> float:
    """The smallest ε at which that many right guesses are not too unlikely: a lower bound with this confidence.

    *Lemma.* If the mechanism is (ε, δ)-private, the result exceeds ε with probability at most 1 − confidence. *Proof.*
    If it does, ε itself was found too unlikely. Let v be the least number of right guesses for which that happens: the
    p-value of v at ε is below 1 − confidence, and it bounds the probability of v or more of them. ∎

    >>> one_run_bound(correct=50, guesses=100, canaries=1000, delta=1e-5)
    0.0
    >>> 1.3 < one_run_bound(correct=92, guesses=100, canaries=1000, delta=1e-7) < math.log(92 / 8)
    True
    """

    def unlikely(epsilon: float) -> bool:
        return one_run_p_value(correct, guesses, canaries, epsilon, delta) < 1 - confidence

    if not unlikely(0.0):
        return 0.0
    step = 0.01
    high = next(step * i for i in range(1, 10_000) if not unlikely(step * i))
    low = high - step
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if unlikely(middle) else (low, middle)
    return low


class Silent:
    """No noise: what an adversary who knows the other rows expects of a fit."""

    private = False

    def gaussian(self, values: FloatArray, scale: float, sensitivity: float, rho: float) -> FloatArray:
        return values


@dataclass(frozen=True)
class Canaries:
    """A table of rows of the model, the first of them canaries, and the coins that made them."""

    rows: int
    columns: int
    seed: int = 0
    X: FloatArray = field(init=False, repr=False)
    coins: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 2 <= self.columns <= self.rows:
            raise ValueError(f"columns must lie between 2 and rows={self.rows}, got {self.columns}.")
        rng = np.random.default_rng(self.seed)
        X = SIGMA * rng.standard_normal((self.rows, self.columns), dtype=np.float32)
        X[:, 0] += rng.choice([-1.0, 1.0], size=self.rows)
        object.__setattr__(self, "coins", rng.choice([-1.0, 1.0], size=self.count))
        object.__setattr__(self, "X", X)
        self.place(self.coins)

    @property
    def count(self) -> int:
        return self.columns - 1

    @property
    def start(self) -> FloatArray:
        return np.eye(1, self.columns)[0]

    def place(self, coins: FloatArray) -> None:
        """Put the canaries of these coins into the table; a coin of 0 is a canary without a side."""
        i = np.arange(self.count)
        self.X[i] = 0.0
        self.X[i, 0] = FAR / 4
        self.X[i, i + 1] = FAR * coins


def settled_guesses(mu: float, canaries: int, delta: float, confidence: float = CONFIDENCE) -> int:
    """How many guesses give the largest bound if the claim is exact. From public numbers: the coins do not enter.

    If the loss is that of Gaussian noise, log-likelihood ratios are N(±μ²/2, μ²), and a guess with ratio l is right
    with probability 1/(1 + e^−|l|). The surest r of them are expected to be right that often.

    >>> 0 < settled_guesses(mu=1.0, canaries=1000, delta=1e-7) < 500
    True
    """
    ratios = np.sort(np.abs(mu**2 / 2 + mu * ndtri((np.arange(canaries) + 0.5) / canaries)))[::-1]
    right = np.cumsum(expit(ratios))
    choices = sorted({max(1, round(canaries * share)) for share in np.geomspace(0.005, 1.0, 24)})
    bounds = [one_run_bound(math.floor(right[r - 1]), r, canaries, delta, confidence) for r in choices]
    return max(zip(bounds, choices, strict=True))[1]


def right_guesses(scores: FloatArray, coins: FloatArray, guesses: int) -> int:
    """How many of the surest guesses are right."""
    surest = np.argsort(-np.abs(scores), kind="stable")[:guesses]
    return int(np.sum(np.sign(scores[surest]) == coins[surest]))


def one_run(canaries: Canaries, epsilon: float, delta: float) -> list[Finding]:
    """Fit once, guess the coins, and bound ε from below: by every release, and by the fitted model only.

    >>> found = one_run(Canaries(rows=2000, columns=50), epsilon=4.0, delta=1e-7)
    >>> [(f.adversary, f.consistent) for f in found if f.confidence == CONFIDENCE]
    [('every release', True), ('model only', True)]
    """
    begun = time.process_time()
    estimator = DPSymmetricMixture(epsilon=epsilon, delta=delta, sigma=SIGMA, start=canaries.start)
    canaries.place(canaries.coins)
    tape = record(estimator, canaries.X)
    canaries.place(np.zeros(canaries.count))
    try:
        by_releases = _from_releases(tape, record(estimator, canaries.X, frozen=tape))
        by_model = tape.model.coef_ - _expected(tape, canaries)
    finally:
        canaries.place(canaries.coins)
    mu = math.sqrt(2 * largest_price(epsilon, delta, gaussian=True).rho)
    guesses = settled_guesses(mu, canaries.count, delta)
    seconds = time.process_time() - begun
    name = f"one run, n = {canaries.rows:,}, d = {canaries.columns:,}"
    found = []
    for adversary, scores in (("every release", by_releases), ("model only", by_model)):
        right = right_guesses(scores[1:], canaries.coins, guesses)
        for confidence in CONFIDENCES:
            bound = one_run_bound(right, guesses, canaries.count, delta, confidence)
            seen = f"{right} of {guesses} guesses right"
            found.append(Finding(name, adversary, epsilon, delta, bound, 1, seconds, confidence, seen))
    return found


def _from_releases(tape: Tape, without: Tape) -> FloatArray:
    """For each coordinate, how the answers lie to what they would be around without sides, weighed by their noise."""
    total: FloatArray = np.zeros_like(tape.answers[0].answer)
    for one, base in zip(tape.answers, without.answers, strict=True):
        assert one.sensitivity is not None
        total = total + (one.answer - base.statistic) * one.sensitivity / one.scale**2
    return total


def _expected(tape: Tape, canaries: Canaries) -> FloatArray:
    """The coefficients of the same fit without noise and without the sides of the canaries."""
    plan = tape.model.plan_
    curator = Curator(ArraySource(canaries.X), Account(plan.epsilon, plan.delta, gaussian=True), Silent())  # type: ignore[arg-type]
    return run_steps(curator, SymmetricMixture(SIGMA), plan.steps, PaperState.at(canaries.start, plan.d)).beta
