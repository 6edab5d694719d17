"""The problems: tables of the models' own studies, drawn by seed, and written as jobs for programs without dpem.

Seeds below 1000 are for practice tables. From seed 1000 on, a real table of the regression study has the same split
into fitted and held-out rows, so that only the noise varies; practice tables are other splits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from studies import gaussian_mixture, glm, latent_class, linear_regression, mixture_regression

DELTA, FIRST_SEED, PRACTICE = 1e-6, 1000, 5


@dataclass(frozen=True)
class Split:
    """Fitted and held-out rows as numbers (missing values are NaN), public facts, and dpem's arguments."""

    X: Any
    y: Any
    X_new: Any
    y_new: Any
    facts: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    frames: tuple[Any, Any] | None = None
    truth: Any = None


@dataclass(frozen=True)
class Problem:
    """A problem of the comparison: ``draw`` makes a split from a seed, the same from seed 1000 on if ``fixed``."""

    key: str
    title: str
    model: str
    measure: str
    epsilon: float
    draw: Callable[[int], Split]
    facts: dict[str, Any] = field(default_factory=dict)
    fixed: bool = False

    def job(self, reps: int, folder: Path) -> dict[str, Any]:
        """Write the tables below ``folder``; those of the comparison without their new rows."""
        common = {"problem": self.key, "model": self.model, "measure": self.measure, "epsilon": self.epsilon}
        tables, known = [], {}
        for seed in (*range(PRACTICE), *range(FIRST_SEED, FIRST_SEED + reps)):
            split, held_out = self.draw(seed), seed < FIRST_SEED
            token = (held_out, float(np.nansum(split.X)), None if split.y is None else float(np.sum(split.y)))
            if token not in known:
                known[token] = folder / f"{self.key}-{seed}.npz"
                names = ("X", "y", "X_new", "y_new") if held_out else ("X", "y")
                np.savez(known[token], **{n: getattr(split, n) for n in names if getattr(split, n) is not None})
            tables.append({"path": str(known[token]), "seed": seed, "facts": split.facts})
        return {**common, "delta": DELTA, **self.facts, "practice": tables[:PRACTICE], "tables": tables[PRACTICE:]}


# --- regression ------------------------------------------------------------------------------------------------------


def real(load: Callable[[], tuple[Any, Any, dict[str, Any]]], column: str | None = None) -> Callable[[int], Split]:
    """Splits of a real table; with ``column``, of the regression on that column alone."""
    kept: list[tuple[Any, Any, dict[str, Any]]] = []

    def draw(seed: int) -> Split:
        if not kept:
            X, y, settings = load()
            if column is not None:
                X, settings = X[[column]], {**settings, "bounds": {column: settings["bounds"][column]}, "levels": None}
            bounds = dict(settings["bounds"])
            y_bounds = settings.get("y_bounds") or bounds.pop(y.name)
            kept.append((X, y, {**settings, "bounds": bounds, "y_bounds": y_bounds}))
        X, y, settings = kept[0]
        first, last = train_test_split(np.arange(len(y)), random_state=0 if seed >= FIRST_SEED else 1 + seed)
        numbers, facts = encoded(X, settings)
        return Split(
            numbers[first],
            y.to_numpy(float)[first],
            numbers[last],
            y.to_numpy(float)[last],
            facts,
            settings,
            (X.iloc[first], X.iloc[last]),
        )

    return draw


def binary(name: str) -> Callable[[], tuple[Any, Any, dict[str, Any]]]:
    """A public table of the study of generalised linear models."""

    def load() -> tuple[Any, Any, dict[str, Any]]:
        frame, response, bounds, levels = next(rest for own, _, *rest in glm.public() if own == name)
        whole = frame[[*bounds, *levels, response]].dropna()
        settings = {"bounds": bounds, "levels": levels or None, "y_bounds": (0.0, 1.0)}
        return whole[[*bounds, *levels]], whole[response].astype(float), settings

    return load


def encoded(X: pd.DataFrame, settings: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Categorical columns as zeros and ones without their first level; bounds as lists; which columns belong together.

    ``dummies`` are the columns of one categorical answer, ``squares`` those that are the square of another.
    """
    levels = settings.get("levels") or {}
    columns: dict[str, Any] = {}
    bounds: list[tuple[float, float]] = []
    dummies: list[list[int]] = []
    answers: dict[str, list[int]] = {}
    for name in X:
        if name in levels:
            dummies.append(list(range(len(bounds), len(bounds) + len(levels[name]) - 1)))
            for level in levels[name][1:]:
                columns[f"{name}={level}"] = (X[name] == level).to_numpy(float)
                bounds.append((0.0, 1.0))
            continue
        if "=" in str(name):
            answers.setdefault(str(name).split("=")[0], []).append(len(bounds))
        columns[name] = X[name].to_numpy(float)
        bounds.append(settings["bounds"][name])
    dummies += answers.values()
    names = list(columns)
    squares = {names.index("experience2"): names.index("experience")} if "experience2" in names else {}
    low, high = np.array(bounds, dtype=float).T
    facts = {
        "low": low.tolist(),
        "high": high.tolist(),
        "y_bounds": [float(v) for v in settings["y_bounds"]],
        "dummies": dummies,
        "squares": {str(k): v for k, v in squares.items()},
    }
    return np.column_stack(list(columns.values())), facts


def drawn(seed: int, n: int = 5000, d: int = 10) -> Split:
    """Columns with correlation 0.7^|i − j|, two in five with coefficient 0; at least half of y's variance is noise."""
    rng = np.random.default_rng([seed, n + 5000, d])
    X = rng.standard_normal((n + 5000, d))
    for j in range(1, d):
        X[:, j] = 0.7 * X[:, j - 1] + math.sqrt(0.51) * X[:, j]
    y = 1 + X @ np.resize([0.5, -0.3, 0.0, 0.2, 0.0], d) + rng.standard_normal(len(X))
    settings = {"bounds": (np.full(d, -6.0), np.full(d, 8.0)), "y_bounds": (-8.0, 10.0)}
    facts = {"low": [-6.0] * d, "high": [8.0] * d, "y_bounds": [-8.0, 10.0], "dummies": [], "squares": {}}
    return Split(X[:n], y[:n], X[n:], y[n:], facts, settings, (X[:n], X[n:]))


# --- Mixtures, classes, mixtures of regressions ----------------------------------------------------------------------


def groups(setting: gaussian_mixture.Setting) -> Callable[[int], Split]:
    """Simulated components; the labels of the new rows are predicted."""

    def draw(seed: int) -> Split:
        X, _, X_new, label, centres = gaussian_mixture.rows_of(setting, np.random.default_rng(seed))
        bounds = gaussian_mixture.bounds_of(X)
        facts = {"low": bounds[0].tolist(), "high": bounds[1].tolist()}
        return Split(X, None, X_new, label, facts, {"bounds": bounds}, truth=centres)

    return draw


def real_groups(name: str) -> Callable[[int], Split]:
    """The study's split of a real table, a new one for every seed."""

    def draw(seed: int) -> Split:
        whole, bounds = next((rows, b) for title, rows, b in gaussian_mixture.real_tables() if title.startswith(name))
        low, high = np.array(bounds).T
        rows = np.clip(np.random.default_rng(seed).permutation(whole), low, high)
        X, X_new = rows[: min(20_000, len(rows) - 4900)], rows[-4900:]
        facts = {"low": low.tolist(), "high": high.tolist()}
        return Split(X, None, X_new, None, facts, {"bounds": (low, high)})

    return draw


def classes(setting: latent_class.Setting) -> Callable[[int], Split]:
    """Latent classes; as in their study the fitted rows are classified."""

    def draw(seed: int) -> Split:
        X, z, w, p = latent_class.table(setting, seed)
        facts = {"low": [0.0] * setting.items, "high": [1.0] * setting.items}
        levels = {"levels": {f"x{j}": [0, 1] for j in range(setting.items)}}
        return Split(X, None, X, z, facts, levels, truth=(w, p))

    return draw


def lines(setting: Any) -> Callable[[int], Split]:
    """Mixtures of regressions."""

    def draw(seed: int) -> Split:
        X, y, X_new, y_new, bounds, y_bounds, truth, _ = mixture_regression.table(setting, seed)
        facts = {
            "low": bounds[0].tolist(),
            "high": bounds[1].tolist(),
            "y_bounds": [float(v) for v in y_bounds],
            "dummies": [[j] for j in range(X.shape[1]) if j % 4 == 2],
            "squares": {},
        }
        return Split(X, y, X_new, y_new, facts, {"bounds": bounds, "y_bounds": y_bounds}, truth=truth)

    return draw


def _regression(key: str, title: str, draw: Callable[[int], Split], *epsilons: float) -> list[Problem]:
    fixed = draw is not drawn
    return [Problem(f"{key}-{e:g}", f"{title}, ε = {e:g}", "regression", "R²", e, draw, fixed=fixed) for e in epsilons]


def _logistic(key: str, name: str) -> list[Problem]:
    draw = real(binary(name))
    return [
        Problem(f"{key}-{e:g}", f"{name}, ε = {e:g}", "logistic", "log-likelihood", e, draw, fixed=True)
        for e in (0.5, 1.0)
    ]


def _groups(key: str, setting: gaussian_mixture.Setting) -> Problem:
    facts = {"K": setting.K, "kind": setting.kind}
    title = str(setting).replace("eps=", "ε = ")
    return Problem(key, title, "groups", "ARI", setting.epsilon, groups(setting), facts)


def _kept(key: str, name: str) -> Problem:
    title = f"{name}, K=4, diag, ε = 1"
    return Problem(key, title, "groups", "log-likelihood", 1.0, real_groups(name), {"K": 4, "kind": "diag"})


def _classes(key: str, setting: latent_class.Setting) -> Problem:
    title = f"latent classes, K={setting.K}, {setting.items} yes/no items, n={setting.n}, ε = {setting.epsilon:g}"
    return Problem(key, title, "classes", "ARI", setting.epsilon, classes(setting), {"K": setting.K})


def _lines(key: str, name: str) -> Problem:
    setting = mixture_regression.SETTINGS[name]
    title = name.replace("eps", "ε =")
    return Problem(key, title, "lines", "log-likelihood", setting[2], lines(setting), {"K": len(setting[3])})


SIMULATED = gaussian_mixture.SIMULATED
PROBLEMS = (
    *_regression("wages", "CPS1988, log wage", real(linear_regression.wage_table), 1.0, 0.5),
    *_regression(
        "pressure", "NHANES, blood pressure (missing values)", real(linear_regression.pressure_table), 1.0, 0.5
    ),
    *_regression("drawn", "simulated, 10 correlated columns, n = 5,000", drawn, 1.0),
    *_regression("questions", "NHANES, 290 columns (missing values)", real(linear_regression.question_table), 1.0),
    *_regression(
        "education", "CPS1988, log wage on education alone", real(linear_regression.wage_table, "education"), 1.0
    ),
    *_logistic("smoking", "SmokeBan"),
    *_logistic("default", "Default"),
    *_logistic("abortion", "gss_abortion"),
    *_logistic("work", "mroz"),
    _groups("groups-3", SIMULATED[0]),
    _groups("groups-5", SIMULATED[1]),
    _groups("groups-4", SIMULATED[4]),
    _kept("diamonds", "diamonds"),
    _kept("movies", "movies"),
    _classes("classes-4", latent_class.SETTINGS[0]),
    _classes("classes-3", latent_class.SETTINGS[2]),
    _lines("lines-10", "20,000 x 10, 2 lines, eps 0.5"),
    _lines("lines-5", "5,000 x 5, 2 lines, eps 1"),
)
