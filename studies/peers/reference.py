"""dpem with its defaults, the baseline of noisy moments, and the models without privacy."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LassoCV, LinearRegression, LogisticRegression
from sklearn.mixture import GaussianMixture

from dpem import DPGaussianMixture, DPLatentClass, DPLinearRegression, DPLogisticRegression, DPMixtureRegression
from studies import mixture_regression
from studies.peers import judge, moments, objective
from studies.peers.tables import DELTA, FIRST_SEED, Problem, Split


class Outcome(NamedTuple):
    """Scores of one method on the tables of one problem, in the problem's measure."""

    scores: list[float]
    seconds: list[float]
    guarantee: str
    settings: dict[str, Any]
    tuning_seconds: float = 0.0


def dpem_score(problem: Problem, split: Split, seed: int) -> float:
    """A fit by default settings, and its score on the new rows."""
    given = {"epsilon": problem.epsilon, "delta": DELTA, "random_state": seed, **split.settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if problem.model == "regression":
            X, X_new = split.frames or (split.X, split.X_new)
            return float(DPLinearRegression(**given).fit(X, split.y).score(X_new, split.y_new))
        if problem.model == "logistic":
            known = {name: value for name, value in given.items() if name != "y_bounds"}
            X, X_new = split.frames or (split.X, split.X_new)
            eta = DPLogisticRegression(**known).fit(X, split.y).decision_function(X_new)
            return float(np.mean(split.y_new * eta - np.logaddexp(0, eta)))
        if problem.model == "lines":
            model = DPMixtureRegression(problem.facts["K"], **given).fit(split.X, split.y)
            return float(model.score(split.X_new, split.y_new))
        if problem.model == "classes":
            found = DPLatentClass(problem.facts["K"], **given).fit(split.X).predict(split.X_new)
            return judge.adjusted_rand(split.y_new, found)
        mixture = DPGaussianMixture(problem.facts["K"], problem.facts["kind"], **given).fit(split.X)
        if problem.measure == "ARI":
            return judge.adjusted_rand(split.y_new, mixture.predict(split.X_new))
        return float(mixture.score(split.X_new))


def free_score(problem: Problem, split: Split, seed: int) -> float:
    """The model without privacy: least squares or lasso, scikit-learn's mixture, EM."""
    if problem.model == "regression":
        facts = {"low": split.facts["low"], "high": split.facts["high"]}
        X, X_new = judge.filled(facts, split.X), judge.filled(facts, split.X_new)
        if X.shape[1] < 100:
            return float(LinearRegression().fit(X, split.y).score(X_new, split.y_new))
        centre, spread = X.mean(axis=0), X.std(axis=0) + 1e-12
        lasso = LassoCV(cv=3, alphas=15).fit((X - centre) / spread, split.y)
        return float(lasso.score((X_new - centre) / spread, split.y_new))
    if problem.model == "logistic":
        known = LogisticRegression(C=np.inf, max_iter=10_000)
        box = [judge.box(split.facts, X)[0] for X in (split.X, split.X_new)]
        eta = known.fit(box[0], split.y).decision_function(box[1])
        return float(np.mean(split.y_new * eta - np.logaddexp(0, eta)))
    if problem.model == "lines":
        best = mixture_regression.best_em(split.X, split.y, problem.facts["K"], seed, split.truth)
        return mixture_regression.score(split.X_new, split.y_new, best)
    if problem.model == "classes":
        model = DPLatentClass(problem.facts["K"], epsilon=math.inf, delta=DELTA, check=False, **split.settings)
        return judge.adjusted_rand(split.y_new, model.fit(split.X).predict(split.X_new))
    known = _mixture(problem, split, seed)
    if problem.measure == "ARI":
        return judge.adjusted_rand(split.y_new, known.predict(split.X_new))
    spread = split.X.std(axis=0)
    return float(known.score(split.X_new / spread) - np.log(spread).sum())


def _mixture(problem: Problem, split: Split, seed: int) -> GaussianMixture:
    """scikit-learn's mixture, the best of five starts and of the true centres if they are known."""
    K, kind = problem.facts["K"], problem.facts["kind"]
    rows = split.X if split.truth is not None else split.X / split.X.std(axis=0)
    known = GaussianMixture(K, covariance_type=kind, n_init=5, random_state=seed).fit(rows)
    if split.truth is None:
        return known
    truth = GaussianMixture(K, covariance_type=kind, means_init=split.truth).fit(rows)
    return max(known, truth, key=lambda model: model.score(rows))


def simple_score(problem: Problem, split: Split, seed: int) -> float:
    """One component without privacy, the baseline of gains in log-likelihood."""
    if problem.model == "lines":
        return mixture_regression.score(split.X_new, split.y_new, mixture_regression.one_line(split.X, split.y))
    if problem.model == "logistic":
        share, new = split.y.mean(), split.y_new.mean()
        return float(new * np.log(share) + (1 - new) * np.log(1 - share))
    spread = split.X.std(axis=0)
    one = GaussianMixture(1, covariance_type="diag").fit(split.X / spread)
    return float(one.score(split.X_new / spread) - np.log(spread).sum())


#: By their names on the command line: the name in the table, the score of a fit, and the guarantee.
METHODS: dict[str, tuple[str, Callable[[Problem, Split, int], float], str]] = {
    "dpem": ("dpem", dpem_score, "(ε, δ), replace one"),
    "free": ("not private", free_score, "none"),
    "simple": ("one group or line, not private", simple_score, "none"),
}


def run(problem: Problem, name: str, reps: int) -> Outcome:
    """One of :data:`METHODS` on every table of the comparison."""
    _, score, guarantee = METHODS[name]
    scores, seconds = [], []
    once = problem.fixed and name != "dpem"  # without noise the same table gives the same score
    for seed in range(FIRST_SEED, FIRST_SEED + (1 if once else reps)):
        split = problem.draw(seed)
        started = time.process_time()
        scores.append(score(problem, split, seed))
        seconds.append(time.process_time() - started)
    return Outcome(scores, seconds, guarantee, {})


def run_objective(job: judge.Job) -> dict[str, Any]:
    """The baseline of objective perturbation, tuned as the peers are."""
    return judge.run(job, objective.fit, objective.GRID, "(ε, δ), as published", draws=4)


def run_moments(job: judge.Job) -> dict[str, Any]:
    """The baseline of noisy moments, tuned as the peers are."""
    wide = len(job["tables"][0]["facts"]["low"]) > 100
    return judge.run(job, moments.fit, moments.GRID, "(ε, δ), replace one", draws=1 if wide else 8)
