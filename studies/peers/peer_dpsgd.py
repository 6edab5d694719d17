"""DP-SGD on the negative log-likelihood of each model, with Opacus's accountant, in an environment of its own.

In each step the clipped gradients of a Poisson sample of rows are added with Gaussian noise. The noise multiplier is
the smallest for which Opacus's accountant (PRV) states (ε, δ) for adding or removing a row, a weaker guarantee than
replacing one. With ``standardise`` a share of the price is spent on noisy means and standard deviations of the columns,
in the same account: with wide bounds, scaled columns otherwise vary little. Optimiser, steps, learning rate, clip and
start are tuned on practice tables, among settings drawn at random. Missing values are replaced by the middle of the
bounds.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from functools import cache
from typing import Any

import numpy as np

from studies.peers import judge

#: The share of the price for means and standard deviations, and the number of settings that are tried.
SCALING, TRIED = 0.15, 16


@cache
def multiplier(epsilon: float, delta: float, rate: float, steps: int, scaling: float | None) -> float:
    """The smallest noise multiplier for which all releases are (ε, δ)-private by Opacus's accountant."""
    from opacus.accountants import PRVAccountant

    def spent(noise: float) -> float:
        accountant = PRVAccountant()
        accountant.history = [(noise, rate, steps)]
        if scaling is not None:
            accountant.history.append((scaling, 1.0, 1))
        return float(accountant.get_epsilon(delta, eps_error=0.01 * epsilon, delta_error=0.01 * delta))

    low, high = 0.3, 2000.0
    while high / low > 1.005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
    return high


def scaled(rows: Any, noise: float, rng: np.random.Generator) -> tuple[Any, Any]:
    """Noisy centre and spread of every column of rows within ±1: one Gaussian release of Σx and Σx².

    A row adds (x, x²), of length at most √(2d), so noise times that is the standard deviation in the account.
    """
    n, d = rows.shape
    sums = np.concatenate([rows.sum(axis=0), (rows**2).sum(axis=0)])
    mean, square = np.split((sums + noise * math.sqrt(2 * d) * rng.standard_normal(2 * d)) / n, 2)
    floor = (2 * noise * math.sqrt(2 * d) / n) ** 2 + 1e-4
    return mean, np.sqrt(np.maximum(square - mean**2, floor))


def loss(job: judge.Job) -> Any:
    """The negative log-likelihood of one row as a function of the parameters, in torch."""
    import torch

    def regression(p: dict[str, Any], row: Any) -> Any:
        return (row[-1] - p["intercept"] - row[:-1] @ p["coef"]) ** 2 / 2

    def logistic(p: dict[str, Any], row: Any) -> Any:
        return torch.nn.functional.softplus(-row[-1] * (p["intercept"] + row[:-1] @ p["coef"]))

    def mixture(log_density: Any, p: dict[str, Any]) -> Any:
        return -torch.logsumexp(torch.log_softmax(p["logits"], 0) + log_density, 0)

    def groups(p: dict[str, Any], row: Any) -> Any:
        e = (row - p["means"]) * torch.exp(-p["log_sigma"])
        return mixture(-(e**2 / 2 + p["log_sigma"]).sum(1), p)

    def lines(p: dict[str, Any], row: Any) -> Any:
        e = (row[-1] - p["intercept"] - p["coef"] @ row[:-1]) * torch.exp(-p["log_sigma"])
        return mixture(-(e**2) / 2 - p["log_sigma"], p)

    return {"regression": regression, "logistic": logistic, "groups": groups, "lines": lines}[job["model"]]


def start(job: judge.Job, d: int, spread: float, rng: np.random.Generator) -> dict[str, Any]:
    """The start: zero for one regression; for mixtures, centres or coefficients drawn without the data."""
    if job["model"] in ("regression", "logistic"):
        return {"coef": np.zeros(d), "intercept": np.zeros(())}
    K = job["K"]
    if job["model"] == "groups":
        return {
            "logits": np.zeros(K),
            "means": spread * rng.standard_normal((K, d)),
            "log_sigma": np.full((K, d), math.log(spread)),
        }
    return {
        "logits": np.zeros(K),
        "coef": spread * rng.standard_normal((K, d)),
        "intercept": spread * rng.standard_normal(K),
        "log_sigma": np.full(K, math.log(spread)),
    }


def descend(job: judge.Job, rows: Any, p: dict[str, Any], knobs: judge.Settings, noise: float, seed: int) -> Any:
    """The mean of the iterates of the second half of the noisy steps."""
    import torch
    from torch.func import grad, vmap

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rows = torch.as_tensor(rows, dtype=torch.float32)
    p = {name: torch.as_tensor(value, dtype=torch.float32).clone() for name, value in p.items()}
    make = torch.optim.Adam if knobs["optimiser"] == "Adam" else torch.optim.SGD
    optimiser = make(list(p.values()), lr=knobs["learning_rate"])
    of_rows, expected = vmap(grad(loss(job)), in_dims=(None, 0)), knobs["rate"] * len(rows)
    kept: list[dict[str, Any]] = []
    for step in range(knobs["steps"]):
        part = rows if knobs["rate"] == 1 else rows[torch.rand(len(rows)) < knobs["rate"]]
        gradients = {name: torch.nan_to_num(g) for name, g in of_rows(p, part).items()}
        length = torch.sqrt(sum((g.reshape(len(part), -1) ** 2).sum(1) for g in gradients.values()))
        cut = torch.clamp(knobs["clip"] / torch.clamp(length, min=1e-12), max=1.0)
        for name, g in gradients.items():
            total = torch.tensordot(cut, g, dims=([0], [0])) + noise * knobs["clip"] * torch.randn(p[name].shape)
            p[name].grad = total / expected
        optimiser.step()
        if 2 * step >= knobs["steps"]:
            kept.append({name: value.clone() for name, value in p.items()})
    return {name: torch.stack([k[name] for k in kept]).mean(0).numpy().astype(float) for name in p}


def fit(job: judge.Job, table: dict[str, Any], knobs: judge.Settings, seed: int) -> judge.Answer:
    """A fit in scaled or standardised coordinates, with its answer in the original units."""
    rng = np.random.default_rng(seed)
    X, y = judge.box(job, table["X"], table.get("y"))
    rows = X if y is None else np.column_stack([X, y])
    d, logistic = X.shape[1], job["model"] == "logistic"
    scaling = None
    mean, size = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
    if knobs["standardise"]:
        scaling = multiplier(job["epsilon"], job["delta"], 1.0, 1, None) / math.sqrt(SCALING)
        mean, size = scaled(rows, scaling, rng)
        if logistic:  # its response stays −1 or 1
            mean[-1], size[-1] = 0.0, 1.0
    noise = multiplier(job["epsilon"], job["delta"], knobs["rate"], knobs["steps"], scaling)
    p = descend(job, (rows - mean) / size, start(job, d, knobs["spread"], rng), knobs, noise, seed)
    if job["model"] == "groups":
        half = (np.array(job["high"]) - np.array(job["low"])) / 2
        v = np.exp(2 * np.clip(p["log_sigma"], -12, 6))
        if job["kind"] == "spherical":
            v = np.broadcast_to(v.mean(axis=1, keepdims=True), v.shape)
        weights = np.exp(p["logits"] - np.logaddexp.reduce(p["logits"]))
        return {
            "means": (judge.middle(job) + half * (mean + size * p["means"])).tolist(),
            "variances": ((half * size) ** 2 * v).tolist(),
            "weights": weights.tolist(),
        }
    if logistic:
        coef = p["coef"] / size[:-1]
        return judge.logistic_answer(job, coef, float(p["intercept"] - coef @ mean[:-1]))
    coef = p["coef"] * size[-1] / size[:-1]
    intercept = mean[-1] + size[-1] * p["intercept"] - coef @ mean[:-1]
    if job["model"] == "regression":
        return judge.linear_answer(job, coef, float(intercept))
    found = [judge.in_units(job, c, b) for c, b in zip(coef, intercept, strict=True)]
    bottom, top = job["y_bounds"]
    weights = np.exp(p["logits"] - np.logaddexp.reduce(p["logits"]))
    return {
        "coef": [c.tolist() for c, _ in found],
        "intercept": [float(b) for _, b in found],
        "sigma": (np.exp(np.clip(p["log_sigma"], -12, 6)) * size[-1] * (top - bottom) / 2).tolist(),
        "weights": weights.tolist(),
    }


def grid(job: judge.Job) -> list[judge.Settings]:
    """Settings drawn at random, the same for all problems. Long runs have small samples."""
    names = ("schedule", "optimiser", "learning_rate", "clip", "standardise", "spread")
    schedules = ((1.0, 10), (1.0, 30), (1.0, 100), (0.1, 200))
    spreads = (1.0,) if job["model"] in ("regression", "logistic") else (0.3, 0.6, 1.0)
    rates = {"SGD": (0.1, 0.3, 1.0), "Adam": (0.01, 0.03, 0.1, 0.3)}
    every = [
        dict(zip(names, chosen, strict=True))
        for optimiser in rates
        for chosen in itertools.product(
            schedules, (optimiser,), rates[optimiser], (0.3, 1.0, 3.0), (True, True, False), spreads
        )
    ]
    drawn = random.Random(0).sample(every, TRIED)
    return [{"rate": own["schedule"][0], "steps": own["schedule"][1], **own} for own in drawn]


def methods(job: judge.Job) -> dict[str, Any]:
    if job["model"] == "classes":
        return {}
    chosen = [{name: value for name, value in own.items() if name != "schedule"} for own in grid(job)]
    found = judge.run(job, fit, chosen, "(ε, δ), add or remove one", practice=2)
    return {"DP-SGD": found}


def versions() -> dict[str, str]:
    import opacus
    import torch

    return {"opacus": opacus.__version__, "torch": torch.__version__}


if __name__ == "__main__":
    judge.serve(methods, versions, sys.argv)
