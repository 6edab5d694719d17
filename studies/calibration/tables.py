"""Four tables: coverage of intervals, what the fit check says, predicted against realised, failed starts.

    python -m studies.calibration [coverage] [checks] [predictions] [starts] [--fits 500] [--quick] [--model linear]
        [--workers 2] [--out results/calibration.csv] [--page results/calibration.md]

Seeds begin at 100,000: none of them was used while anything was tuned.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpem.models.linear_regression.clipping import normal_lengths, optimal_clip
from dpem.models.linear_regression.tuning import TUNING
from studies.calibration import simulations, typical
from studies.calibration.pictures import drawn
from studies.calibration.predictions import outcome
from studies.calibration.simulations import Simulation

FIRST_SEED = 100_000
#: Tables of a linear regression that are less than ideal.
OFF: tuple[dict[str, Any], ...] = (
    {"columns": "skewed"},
    {"columns": "binary"},
    {"missing": 0.05},
    {"missing": 0.3},
    {"errors": "skewed"},
    {"errors": "heavy"},
)


class Row(NamedTuple):
    """One line of the tables."""

    table: str
    model: str
    setting: str
    n: int
    epsilon: float
    fits: int
    value: float
    low: float
    high: float
    note: str = ""


class Task(NamedTuple):
    """A setting, named so that a process can make it again."""

    table: str
    simulation: str
    arguments: tuple[tuple[str, Any], ...]
    n: int
    epsilon: float
    fits: int


def simulation_of(task: Task) -> Simulation:
    module = typical if task.simulation.startswith("typical") else simulations
    made: Callable[..., Simulation] = getattr(module, task.simulation)
    return made(**dict(task.arguments))


# --- coverage ---------------------------------------------------------------------------------------------------------


def coverage(task: Task) -> list[Row]:
    """How often 95 % intervals hold the truth, over all parameters, and how wide they are over the least possible."""
    simulation, hits, ratios, widths = simulation_of(task), [], [], []
    for i in range(task.fits):
        model, rows = simulation.fit(task.n, task.epsilon, FIRST_SEED + i, check=False)
        ends, truth = model.conf_int(), simulation.truth(model)
        hits.append((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
        ratios.append(_width(model))
        if task.simulation == "linear" and not np.isnan(rows.X).any():
            widths.append(_over_best(model, rows.X, truth[-1]))
    rate = np.array(hits, dtype=float)
    mean, each = float(rate.mean()), rate.mean(axis=0)
    error = float(rate.mean(axis=1).std() / math.sqrt(len(rate)))
    note = f"single parameters {each.min():.3f} to {each.max():.3f}; privacy / sampling error {np.mean(ratios):.2f}"
    note += f"; width over best {np.median(widths):.2f}" if widths else ""
    return [_row(task, simulation, mean, mean - 1.96 * error, mean + 1.96 * error, note)]


def _width(model: Any) -> float:
    table = model._errors
    return float(np.median(table.privacy / np.maximum(table.sampling, 1e-300)))


def _over_best(model: Any, X: np.ndarray, sigma: float) -> float:
    """The median slope's standard error over the best possible: that of least squares on these rows, with the noise of
    one score at the truth that costs what all scores of the fit did, and nothing else.
    """
    steps = [step.to_dict() for step in model.plan_.steps]
    whole = math.fsum(step["rho"] for step in steps if step["kind"] == "TakeStep")
    clips = optimal_clip(len(X), whole, normal_lengths(X.shape[1]))
    noise = 2 * clips.norm / (len(X) * math.sqrt(2 * (1 - TUNING.size_share) * whole) * clips.kappa)
    inverse = np.diag(np.linalg.inv(np.cov(X.T)))
    return float(np.median(model._errors.total[1:-1] / (sigma * np.sqrt(inverse * (1 / len(X) + noise**2)))))


# --- fit checks -------------------------------------------------------------------------------------------------------


def checks(task: Task) -> list[Row]:
    """How often the fit check says that the model is no better than the simpler one."""
    simulation = simulation_of(task)
    warned = [not simulation.fit(task.n, task.epsilon, FIRST_SEED + i)[0].fit_check_.better for i in range(task.fits)]
    rate = float(np.mean(warned))
    error = math.sqrt(max(rate * (1 - rate), 1 / task.fits) / task.fits)
    setting = ", ".join(f"{name}={value}" for name, value in task.arguments) or "as assumed"
    return [_row(task, simulation, rate, max(0.0, rate - 1.96 * error), min(1.0, rate + 1.96 * error), setting)]


# --- predictions ------------------------------------------------------------------------------------------------------


def predictions(task: Task) -> list[Row]:
    """What the plan expects over what happened, for the quantity that the plan names."""
    simulation = simulation_of(task)
    found = outcome(simulation, task.n, task.epsilon, task.fits, FIRST_SEED)
    assert found is not None, f"{simulation.model} makes no prediction"
    kind = "as supposed" if task.simulation.startswith("typical") else "not as supposed"
    return [_row(task, simulation, found.ratio, found.low, found.high, f"{kind}; {found.note()}")]


def starts(task: Task) -> list[Row]:
    """The chance of a failed start: seen, beside what the plan says."""
    simulation = simulation_of(task)
    found = outcome(simulation, task.n, task.epsilon, task.fits, FIRST_SEED)
    assert found is not None, f"{simulation.model} makes no prediction"
    error = 1.96 * math.sqrt(max(found.failed * (1 - found.failed), 1 / task.fits) / task.fits)
    ends = max(0.0, found.failed - error), min(1.0, found.failed + error)
    note = f"predicted {100 * found.failure:.0f} %{'' if found.feasible else ', called infeasible'}"
    return [_row(task, simulation, found.failed, *ends, note)]


# --- the settings -----------------------------------------------------------------------------------------------------

KINDS: dict[str, Callable[[Task], list[Row]]] = {
    "coverage": coverage,
    "checks": checks,
    "predictions": predictions,
    "starts": starts,
}


#: Settings of the fit checks, at ε = 1: those in which the model is right come first.
CHECKED: tuple[tuple[str, int, int, dict[str, Any]], ...] = (
    ("linear", 5_000, 100, {}),
    ("linear", 5_000, 100, {"rho": 0.7}),
    ("linear", 5_000, 60, {"errors": "skewed"}),
    ("linear", 5_000, 60, {"errors": "heavy"}),
    ("linear", 5_000, 60, {"intercept": False}),
    ("linear", 5_000, 100, {"shuffled": True}),
    ("gaussian_mixture", 5_000, 200, {}),
    ("gaussian_mixture", 2_000, 200, {}),
    ("gaussian_mixture", 5_000, 200, {"weights": (0.7, 0.2, 0.1)}),
    ("gaussian_mixture", 5_000, 60, {"K": 4, "fitted": 2}),
    ("gaussian_mixture", 5_000, 60, {"K": 3, "fitted": 2}),
    ("gaussian_mixture", 5_000, 60, {"K": 3, "fitted": 5}),
    ("gaussian_mixture", 5_000, 100, {"shuffled": True}),
    ("latent_class", 5_000, 200, {}),
    ("latent_class", 2_000, 200, {}),
    ("latent_class", 5_000, 60, {"fitted": 2}),
    ("latent_class", 5_000, 60, {"fitted": 5}),
    ("latent_class", 5_000, 100, {"shuffled": True}),
    ("mixture_regression", 5_000, 200, {}),
    ("mixture_regression", 2_000, 200, {}),
    ("mixture_regression", 5_000, 60, {"errors": "skewed"}),
    ("mixture_regression", 5_000, 60, {"errors": "heavy"}),
    ("mixture_regression", 5_000, 100, {"groups": False}),
)

#: K, columns, n, ε: lines whose start may well fail, none of them among those that the plan's words were set by.
STARTED = (
    (2, 6, 2_500, 1.0),
    (2, 3, 2_000, 0.8),
    (2, 10, 4_000, 1.0),
    (2, 15, 10_000, 0.6),
    (3, 4, 5_000, 1.0),
    (3, 4, 7_000, 0.8),
    (3, 8, 9_000, 1.0),
    (3, 6, 14_000, 0.5),
    (3, 5, 8_000, 1.0),
)


def _predicted() -> Iterable[tuple[str, str, int, float, int, dict[str, Any]]]:
    """Settings of the predictions, as plans suppose them and otherwise, and how many fits each."""
    kind = "predictions"
    for n, repeats in ((2_000, 300), (5_000, 300), (20_000, 200)):
        for epsilon in (0.3, 1.0, 2.0):
            yield kind, "typical_linear", n, epsilon, repeats, {}
    for columns, n, epsilon in ((2, 2_000, 1.0), (10, 5_000, 1.0), (20, 2_000, 2.0), (20, 10_000, 0.5)):
        yield kind, "typical_linear", n, epsilon, 300, {"columns": columns}
    for K, d, n, epsilon in ((2, 2, 2_000, 1.0), (3, 2, 2_000, 1.0), (3, 3, 5_000, 0.5), (3, 2, 20_000, 1.0)):
        yield kind, "typical_mixture", n, epsilon, 80, {"K": K, "d": d}
    for K, d, n, epsilon in ((4, 5, 5_000, 1.0), (5, 5, 10_000, 0.5), (5, 10, 10_000, 1.0), (3, 5, 2_000, 2.0)):
        yield kind, "typical_mixture", n, epsilon, 60, {"K": K, "d": d}
    for K, items, n, epsilon in ((2, 6, 1_000, 1.0), (2, 8, 5_000, 0.3), (3, 8, 5_000, 0.5), (3, 8, 5_000, 1.0)):
        yield kind, "typical_classes", n, epsilon, 30, {"K": K, "items": items}
    for K, items, n, epsilon in ((3, 8, 20_000, 1.0), (4, 8, 5_000, 1.0), (4, 12, 20_000, 0.5), (5, 12, 20_000, 1.0)):
        yield kind, "typical_classes", n, epsilon, 20, {"K": K, "items": items}
    for K, d, n, epsilon in ((2, 2, 5_000, 1.0), (2, 2, 10_000, 0.5), (2, 5, 10_000, 1.0), (2, 5, 20_000, 0.5)):
        yield kind, "typical_lines", n, epsilon, 60, {"K": K, "d": d}
    for K, d, n, epsilon in ((2, 3, 5_000, 2.0), (2, 10, 20_000, 1.0), (3, 3, 20_000, 1.0), (3, 3, 20_000, 2.0)):
        yield kind, "typical_lines", n, epsilon, 40, {"K": K, "d": d}
    for arguments in ({}, {"rho": 0.7}, {"errors": "skewed"}, {"errors": "heavy"}):
        yield kind, "linear", 5_000, 1.0, 60, arguments
    yield kind, "linear", 2_000, 0.3, 60, {"rho": 0.7}
    yield kind, "gaussian_mixture", 5_000, 1.0, 20, {"weights": (0.7, 0.2, 0.1)}
    yield kind, "gaussian_mixture", 5_000, 1.0, 20, {"separation": 3.0}
    yield kind, "latent_class", 5_000, 1.0, 20, {}
    yield kind, "mixture_regression", 5_000, 1.0, 20, {"rho": 0.7}


PREDICTED = tuple(_predicted())


def tasks(kinds: Sequence[str], fits: int) -> list[Task]:
    """Every setting of the tables that are wanted."""
    found: list[Task] = []

    def add(table: str, simulation: str, n: int, epsilon: float, repeats: int, **arguments: Any) -> None:
        if table in kinds:
            found.append(Task(table, simulation, tuple(arguments.items()), n, epsilon, repeats))

    for n in (2_000, 20_000):
        for epsilon in (0.5, 1.0):
            for rho in (0.0, 0.7):
                add("coverage", "linear", n, epsilon, fits, rho=rho)
                add("coverage", "mixture_regression", max(n, 5_000), epsilon, fits, rho=rho)
            add("coverage", "selected", max(n, 5_000), epsilon, max(20, fits // 5))
            if epsilon == 1.0:
                for arguments in OFF:
                    add("coverage", "linear", n, epsilon, max(20, fits // 4), rho=0.3, **arguments)
            add("coverage", "latent_class", max(n, 5_000), epsilon, fits)
            add("coverage", "gaussian_mixture", n, epsilon, fits, weights=(0.5, 0.3, 0.2))
            full = {"weights": (0.5, 0.3, 0.2), "kind": "full", "rho": 0.5}
            add("coverage", "gaussian_mixture", n, epsilon, max(10, fits // (3 if n < 5_000 else 8)), **full)
    add("coverage", "gaussian_mixture", 2_000, 1.0, fits)
    for simulation, n, repeats, arguments in CHECKED:
        add("checks", simulation, n, 1.0, max(10, round(repeats * fits / 500)), **arguments)
    for K, d, n, epsilon in STARTED:
        add("starts", "typical_lines", n, epsilon, max(10, round(40 * fits / 500)), K=K, d=d)
    for table, simulation, n, epsilon, repeats, arguments in PREDICTED:
        add(table, simulation, n, epsilon, max(4, round(repeats * fits / 500)), **arguments)
    return found


def _row(task: Task, simulation: Simulation, value: float, low: float, high: float, note: str) -> Row:
    return Row(task.table, simulation.model, simulation.name, task.n, task.epsilon, task.fits, value, low, high, note)


def perform(task: Task) -> list[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KINDS[task.table](task)


def main(given: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m studies.calibration", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="TABLE", help=f"{', '.join(KINDS)}; all if none is named")
    parser.add_argument("--fits", type=int, default=500, help="fits of most settings of the coverage; others follow")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--model", default="", help="only this simulation: linear, gaussian_mixture, …")
    parser.add_argument("--out", type=Path, default=Path("results/calibration.csv"))
    parser.add_argument("--quick", action="store_true", help="a tenth of the fits: a look, not a figure")
    parser.add_argument("--page", type=Path, help="a page to fill with the tables, its pictures into img beside it")
    options = parser.parse_args(None if given is None else list(given))
    unknown = [kind for kind in options.kinds if kind not in KINDS]
    if unknown:
        parser.error(f"{unknown[0]!r} is no table; there are {', '.join(KINDS)}.")
    fits = max(10, options.fits // 10) if options.quick else options.fits
    wanted = [t for t in tasks(options.kinds or list(KINDS), fits) if options.model in ("", t.simulation)]
    rows: list[Row] = []
    begun = time.monotonic()
    with get_context("spawn").Pool(options.workers) as pool:
        for part in pool.imap_unordered(perform, wanted):
            rows += part
            for row in part:
                left = f"{row.table:<12} {row.model:<20} {row.setting:<28} n={row.n:<7} eps={row.epsilon:<4}"
                print(f"{left} {row.value:.3f} [{row.low:.3f}, {row.high:.3f}]  {row.note}", flush=True)
            _write(options.out, rows)  # so far: a long run may be cut short
    if options.page is not None:
        options.page.write_text(imputed(options.page.read_text(encoding="utf-8"), options.out), encoding="utf-8")
        drawn(options.out, options.page.parent / "img")
    print(f"{len(rows)} settings in {time.monotonic() - begun:.0f} s; {options.out}")
    return 0


#: What the column of numbers is called in each table of the page.
TITLES = {"coverage": "covered", "checks": "warns in", "predictions": "predicted / realised", "starts": "failed"}


def imputed(page: str, path: Path) -> str:
    """The page with each table put between its marks, from the file of results."""
    with path.open(encoding="utf-8") as file:
        found = [Row(*line) for line in list(csv.reader(file))[1:]]
    for table, value in TITLES.items():
        lines = [f"| model | setting | n | ε | fits | {value} | |", "|---|---|---|---|---|---|---|"]
        for row in (row for row in found if row.table == table):
            setting = row.note if table == "checks" else row.setting
            note = "" if table == "checks" else row.note
            number = f"{float(row.value):.2f}" if table == "predictions" else f"{100 * float(row.value):.1f} %"
            lines.append(
                f"| {row.model} | {setting} | {int(row.n):,} | {row.epsilon} | {row.fits} | {number} | {note} |"
            )
        marks = f"<!-- begin {table} -->", f"<!-- end {table} -->"
        before, _, rest = page.partition(marks[0])
        page = before + marks[0] + "\n\n" + "\n".join(lines) + "\n\n" + marks[1] + rest.partition(marks[1])[2]
    return page


def _write(path: Path, rows: list[Row]) -> None:
    """The table's file, with the lines of other settings that it already had."""
    kept: list[list[str]] = []
    if path.exists():
        with path.open(encoding="utf-8") as file:
            found = list(csv.reader(file))[1:]
        fresh = {(row.table, row.model, row.setting, str(row.n), f"{row.epsilon:.4g}", row.note[:20]) for row in rows}
        kept = [line for line in found if (*line[:5], line[-1][:20]) not in fresh]
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = [[f"{value:.4g}" if isinstance(value, float) else str(value) for value in row] for row in rows]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        writer.writerows(sorted(kept + numbers))
