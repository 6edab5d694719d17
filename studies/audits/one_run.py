"""Audit of one large fit with a thousand canaries.

Many fits of a small table show nothing about a fit of a large one, and many large fits take too long. In one fit, many
rows can be canaries: each is one of two rows, by the toss of a fair coin. The adversary guesses a fixed number of coins
from the releases. If more guesses are right than the claim allows by chance (:func:`one_run_bound`), the claim is
wrong.

The fit is that of a dense Gaussian mixture from a given start. Canary i is far out along coordinate i, on one side or
the other, and a quarter as far along the start, which fixes its component. So in every step the canaries' contributions
are as long as the clip allows and orthogonal to each other: each is hidden by one coordinate of the noise. A sparse fit
releases selected coordinates only, so that canaries are not independent: there is no such audit of it.

The bound is weak at small ε: at ε = 1 the best attack guesses hardly better than chance.
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
#: The confidences of the stated bounds.
CONFIDENCES = (CONFIDENCE, 0.95)


def one_run_p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """An upper bound on the probability of v = ``correct`` or more right guesses, under (ε, δ)-privacy.

    Each of m canaries is one of two rows by the toss of a fair coin; r coins are guessed from the releases.

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
    """A lower bound on ε: the smallest ε whose p-value for the number of right guesses is at least 1 − confidence.

    *Lemma.* If the mechanism is (ε, δ)-private, the result exceeds ε with probability at most 1 − confidence. *Proof.*
    If it exceeds ε, the p-value at ε is below 1 − confidence. Let v be the least number of right guesses with such a
    p-value: it bounds the probability of v or more right guesses. ∎

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
    """A sampler without noise, for the fit that an adversary expects who knows the other rows."""

    private = False

    def gaussian(self, values: FloatArray, scale: float, sensitivity: float, rho: float) -> FloatArray:
        return values


@dataclass(frozen=True)
class Canaries:
    """A table of rows of the model, of which the first are canaries, and their coins."""

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
        """Put the canaries with these coins into the table; a coin of 0 has no part along its coordinate."""
        i = np.arange(self.count)
        self.X[i] = 0.0
        self.X[i, 0] = FAR / 4
        self.X[i, i + 1] = FAR * coins


def number_of_guesses(mu: float, canaries: int, delta: float, confidence: float = CONFIDENCE) -> int:
    """The number of guesses with the largest expected bound if the claim is exact. It does not depend on the coins.

    With Gaussian noise log-likelihood ratios are N(±μ²/2, μ²), and a guess with ratio l is right with probability
    1/(1 + e^−|l|). The r guesses with the largest |l| are made.

    >>> 0 < number_of_guesses(mu=1.0, canaries=1000, delta=1e-7) < 500
    True
    """
    ratios = np.sort(np.abs(mu**2 / 2 + mu * ndtri((np.arange(canaries) + 0.5) / canaries)))[::-1]
    right = np.cumsum(expit(ratios))
    choices = sorted({max(1, round(canaries * share)) for share in np.geomspace(0.005, 1.0, 24)})
    bounds = [one_run_bound(math.floor(right[r - 1]), r, canaries, delta, confidence) for r in choices]
    return max(zip(bounds, choices, strict=True))[1]


def right_guesses(scores: FloatArray, coins: FloatArray, guesses: int) -> int:
    """The number of right guesses among those with the largest scores."""
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
    guesses = number_of_guesses(mu, canaries.count, delta)
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
    """The deviation of the answers from their means without the coins, weighted by 1/noise variance, by coordinate."""
    total: FloatArray = np.zeros_like(tape.answers[0].answer)
    for one, base in zip(tape.answers, without.answers, strict=True):
        assert one.sensitivity is not None
        total = total + (one.answer - base.statistic) * one.sensitivity / one.scale**2
    return total


def _expected(tape: Tape, canaries: Canaries) -> FloatArray:
    """The coefficients of the same fit without noise and without the coins."""
    plan = tape.model.plan_
    curator = Curator(ArraySource(canaries.X), Account(plan.epsilon, plan.delta, gaussian=True), Silent())  # type: ignore[arg-type]
    return run_steps(curator, SymmetricMixture(SIGMA), plan.steps, PaperState.at(canaries.start, plan.d)).beta
