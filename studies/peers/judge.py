"""Scores of fitted models on held-out rows, and the choice of settings by them. It imports NumPy only.

An answer is a dictionary of lists. Linear and logistic regression: ``coef``, ``intercept`` and ``fill``, the values
that replace missing ones. Gaussian mixtures ("groups"): ``means`` and, if the method has them, ``weights`` and
``variances``. Latent classes: ``weights`` and ``chances``, the probabilities of 1. Mixtures of regressions ("lines"):
``coef``, ``intercept``, ``sigma`` and ``weights``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

Job = dict[str, Any]
Answer = dict[str, Any]
Settings = dict[str, Any]
Fit = Callable[[Job, dict[str, Any], Settings, int], Answer]

#: The score of an answer that is not finite, when settings are chosen.
WORST = -1e9


def load(path: str) -> dict[str, Any]:
    """The arrays of one table: X, y (or labels), and the held-out rows of a practice table."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def middle(job: Job) -> Any:
    """The middle of the public bounds of every column, which replaces missing values."""
    return (np.array(job["low"]) + np.array(job["high"])) / 2


def filled(job: Job, X: Any) -> Any:
    """Rows clipped to the bounds, with the middle of the bounds for missing values."""
    return np.clip(np.where(np.isnan(X), middle(job), X), job["low"], job["high"])


def box(job: Job, X: Any, y: Any = None) -> tuple[Any, Any]:
    """Filled rows and response, scaled from their public bounds to [−1, 1]."""
    low, high = np.array(job["low"]), np.array(job["high"])
    Z = 2 * (filled(job, X) - low) / (high - low) - 1
    if y is None:
        return Z, None
    bottom, top = job["y_bounds"]
    return Z, 2 * (np.clip(y, bottom, top) - bottom) / (top - bottom) - 1


def in_units(job: Job, coef: Any, intercept: Any) -> tuple[Any, Any]:
    """Coefficients and intercept in the original units, from those in :func:`box`'s coordinates."""
    half = (np.array(job["high"]) - np.array(job["low"])) / 2
    bottom, top = job["y_bounds"]
    slope = np.asarray(coef) * (top - bottom) / 2 / half
    return slope, (top + bottom) / 2 + (top - bottom) / 2 * np.asarray(intercept) - slope @ middle(job)


def linear_answer(job: Job, coef: Any, intercept: float) -> Answer:
    """An answer from coefficients of :func:`box`'s coordinates."""
    slope, constant = in_units(job, coef, intercept)
    return {"coef": slope.tolist(), "intercept": float(constant), "fill": middle(job).tolist()}


def logistic_answer(job: Job, coef: Any, intercept: float) -> Answer:
    """An answer from coefficients of the log-odds in :func:`box`'s coordinates."""
    slope = 2 * np.asarray(coef) / (np.array(job["high"]) - np.array(job["low"]))
    return {"coef": slope.tolist(), "intercept": float(intercept - slope @ middle(job)), "fill": middle(job).tolist()}


# --- scores: larger is better ----------------------------------------------------------------------------------------


def r_squared(answer: Answer, X: Any, y: Any) -> float:
    """R², with missing values replaced by the answer's ``fill``."""
    X = np.where(np.isnan(X), np.array(answer["fill"]), X)
    residual = y - X @ np.array(answer["coef"]) - answer["intercept"]
    return float(1 - np.sum(residual**2) / np.sum((y - y.mean()) ** 2))


def log_odds_likelihood(answer: Answer, X: Any, y: Any) -> float:
    """The mean log-likelihood of responses 0 and 1."""
    X = np.where(np.isnan(X), np.array(answer["fill"]), X)
    eta = X @ np.array(answer["coef"]) + answer["intercept"]
    return float(np.mean(y * eta - np.logaddexp(0, eta)))


def joint_groups(answer: Answer, X: Any) -> Any:
    """log(weight × density) of each row and component; if there are no variances, −distance²/2."""
    apart = X[:, None] - np.array(answer["means"])[None]
    if "variances" not in answer:
        return -0.5 * np.sum(apart**2, axis=2)
    v = np.array(answer["variances"])
    return np.log(answer["weights"]) - 0.5 * np.sum(apart**2 / v + np.log(2 * np.pi * v), axis=2)


def joint_classes(answer: Answer, X: Any) -> Any:
    """log(weight × probability) of each row and class."""
    p = np.clip(np.array(answer["chances"]), 1e-6, 1 - 1e-6)
    return np.log(np.maximum(answer["weights"], 1e-12)) + X @ np.log(p).T + (1 - X) @ np.log(1 - p).T


def joint_lines(answer: Answer, X: Any, y: Any) -> Any:
    """log(weight × density) of each row and regression."""
    s = np.array(answer["sigma"])
    e = (y[:, None] - np.array(answer["intercept"]) - X @ np.array(answer["coef"]).T) / s
    return np.log(answer["weights"]) - np.log(s) - 0.5 * e**2 - 0.5 * np.log(2 * np.pi)


def likelihood(joint: Any) -> float:
    """The mean log-likelihood of rows."""
    return float(np.logaddexp.reduce(joint, axis=1).mean())


def adjusted_rand(a: Any, b: Any) -> float:
    """The adjusted Rand index of two partitions: 1 if they are equal, 0 on average if they are independent."""
    a, b = (np.unique(labels, return_inverse=True)[1] for labels in (a, b))
    counts = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(counts, (a, b), 1)
    both, rows, columns = (np.sum(m * (m - 1) / 2) for m in (counts, counts.sum(axis=1), counts.sum(axis=0)))
    chance = rows * columns / (len(a) * (len(a) - 1) / 2)
    most = (rows + columns) / 2
    return 1.0 if most == chance else float((both - chance) / (most - chance))


def score(job: Job, answer: Answer, table: dict[str, Any]) -> float:
    """The score of an answer on a table's held-out rows, by the job's measure."""
    X, y = table["X_new"], table.get("y_new")
    if job["model"] == "regression":
        return r_squared(answer, X, y)
    if job["model"] == "logistic":
        return log_odds_likelihood(answer, X, y)
    if job["model"] == "lines":
        return likelihood(joint_lines(answer, X, y))
    joint = joint_classes(answer, X) if job["model"] == "classes" else joint_groups(answer, X)
    return adjusted_rand(y, np.argmax(joint, axis=1)) if job["measure"] == "ARI" else likelihood(joint)


# --- choosing and fitting --------------------------------------------------------------------------------------------


def run(
    job: Job,
    fit: Fit,
    grid: Iterable[Settings],
    guarantee: str,
    reps: int | None = None,
    practice: int | None = None,
    draws: int = 1,
) -> dict[str, Any]:
    """The settings with the best median score over practice tables, then an answer for every table.

    Each practice table is fitted ``draws`` times with other noise, since with few scores the best setting is chance.
    """
    candidates = list(grid)
    started = time.process_time()
    best = candidates[0] if len(candidates) == 1 else _best(job, fit, candidates, practice, draws)
    tuning = time.process_time() - started
    answers, seconds = [], []
    for given in job["tables"][:reps]:
        table = load(given["path"])
        started = time.process_time()
        answers.append(fit(job | given["facts"], table, best, given["seed"]))
        seconds.append(time.process_time() - started)
    return {"guarantee": guarantee, "answers": answers, "seconds": seconds, "tuning_seconds": tuning, "settings": best}


def _best(job: Job, fit: Fit, candidates: list[Settings], practice: int | None, draws: int) -> Settings:
    tables = [(job | given["facts"], load(given["path"]), given["seed"]) for given in job["practice"][:practice]]

    def middling(settings: Settings) -> float:
        scores = [
            score(own, fit(own, table, settings, seed + 100 * draw), table)
            for own, table, seed in tables
            for draw in range(draws)
        ]
        return float(np.median(np.nan_to_num(scores, nan=WORST, posinf=WORST, neginf=WORST)))

    return max(candidates, key=middling)


def serve(methods: Callable[[Job], dict[str, Any]], versions: Callable[[], dict[str, str]], argv: list[str]) -> None:
    """The main function of a peer's script: read a job, run its methods, write their answers."""
    job = json.loads(Path(argv[1]).read_text())
    with np.errstate(all="ignore"):
        answer = {"versions": versions(), "methods": methods(job)}
    Path(argv[2]).write_text(json.dumps(answer))
