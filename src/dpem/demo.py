"""A private regression and private latent classes on a table of real people, each with the same fit without privacy.

The table is that of the RAND Health Insurance Experiment, which statsmodels includes: 20,190 rows, one for each person
and year. A person has at most five rows, and all of them are protected together.
"""

from __future__ import annotations

import itertools
import math
import tempfile
import textwrap
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpem._html import wrap
from dpem._json import plain
from dpem.fitting.diagnostics import FitWarning
from dpem.fitting.sequence import PrivateFit
from dpem.privacy import Budget
from dpem.registry import estimator
from dpem.report import About, write_report

if TYPE_CHECKING:
    from pandas import DataFrame, Series

#: ε and δ of the regression and of the classes each, and the budget that both are charged to.
EPSILON, DELTA = 2.0, 1e-6
TOTAL_EPSILON, TOTAL_DELTA = 3.0, 1e-5
ROWS_PER_PERSON = 5


class Column(NamedTuple):
    """The public bounds of a column, and their reason."""

    name: str
    low: float
    high: float
    reason: str


#: The bounds follow from the meaning of the columns, not from the rows.
COLUMNS = (
    Column("coinsurance", 0.0, 4.62, "ln(1 + per cent paid by the patient): 0 to ln 101"),
    Column("deductible", 0.0, 1.0, "whether the plan has an individual deductible: 0 or 1"),
    Column("limitation", 0.0, 1.0, "whether there is a physical limitation: 0 or 1"),
    Column("diseases", 0.0, 60.0, "an index of chronic diseases: nobody has more than 60"),
    Column("good", 0.0, 1.0, "self-rated health good, against excellent: 0 or 1"),
    Column("fair or poor", 0.0, 1.0, "self-rated health fair or poor, against excellent: 0 or 1"),
)
RESPONSE = Column("visits", 0.0, 4.0, "ln(1 + visits to a doctor in the year): one a week is 3.97")
LEVELS = {
    "health": ["excellent", "good", "fair", "poor"],
    "limitation": ["no", "yes"],
    "diseases": ["up to 5", "up to 15", "more than 15"],
    "visits": ["none", "1 to 3", "4 or more"],
}


def table() -> tuple[DataFrame, Series, DataFrame]:
    """The columns and the response of the regression, and the items of the classes. The recoding depends on no row."""
    try:
        import pandas
        from statsmodels.datasets import randhie
    except ImportError:
        raise RuntimeError("the demo needs statsmodels and pandas: pip install 'dpem[demo]'.") from None
    raw = randhie.load_pandas().data
    poor = raw.hlthf + raw.hlthp
    values = (raw.lncoins, raw.idp, raw.physlm, raw.disea, raw.hlthg, poor)
    X = pandas.DataFrame({column.name: series for column, series in zip(COLUMNS, values, strict=True)})
    health = np.select([raw.hlthg == 1, raw.hlthf == 1, raw.hlthp == 1], ["good", "fair", "poor"], "excellent")
    items = pandas.DataFrame(
        {
            "health": health,
            "limitation": np.where(raw.physlm > 0.5, "yes", "no"),
            "diseases": np.select([raw.disea <= 5, raw.disea <= 15], LEVELS["diseases"][:2], LEVELS["diseases"][2]),
            "visits": np.select([raw.mdvis == 0, raw.mdvis <= 3], LEVELS["visits"][:2], LEVELS["visits"][2]),
        }
    )
    return X, np.log1p(raw.mdvis).rename("visits"), items


def main(out: str | Path | None = None, say: Callable[[str], None] = print) -> dict[str, object]:
    """Plan, fit and report; return the results as plain data.

    Parameters
    ----------
    out : path, optional
        A folder for the two reports; a new one among the temporary files if not given.
    say : function
        Receives the printed lines.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # diagnostics are printed
        return _run(out, say)


def _run(out: str | Path | None, say: Callable[[str], None]) -> dict[str, object]:
    start = time.monotonic()
    X, y, items = table()
    folder = Path(tempfile.mkdtemp(prefix="dpem-demo-") if out is None else out)
    folder.mkdir(parents=True, exist_ok=True)
    budget = Budget(TOTAL_EPSILON, TOTAL_DELTA, ROWS_PER_PERSON)
    say(
        f"The RAND Health Insurance Experiment: {len(X):,} rows, a person and a year each, at most "
        f"{ROWS_PER_PERSON} rows a person.\nAll rows of a person are protected together; a budget of "
        f"epsilon = {TOTAL_EPSILON:g}, delta = {TOTAL_DELTA:g} pays for everything below.\n\n"
        "1. Public bounds, and where they come from"
    )
    for column in (*COLUMNS, RESPONSE):
        say(f"   {column.name:<13} {column.low:>4g} to {column.high:<5g} {column.reason}")
    results = {
        "rows": len(X),
        "regression": _regression(X, y, budget, folder, say),
        "classes": _classes(items, budget, folder, say),
    }
    reports, seconds = [str(folder / name) for name in ("regression.html", "classes.html")], time.monotonic() - start
    say(
        f"\n5. What was spent\n   Two fits at epsilon = {EPSILON:g} cost epsilon = {budget.spent_epsilon:.2f} of "
        f"{TOTAL_EPSILON:g} together.\n"
        "   The fits without privacy are for comparison only: they must not be published.\n"
        f"\n6. The reports, after {seconds:.0f} seconds\n   {reports[0]}\n   {reports[1]}"
    )
    return {**results, "spent": budget.spent_epsilon, "reports": reports, "seconds": seconds}


def _regression(X: DataFrame, y: Series, budget: Budget, folder: Path, say: Callable[[str], None]) -> dict[str, object]:
    model_class = estimator("linear-regression")
    bounds = {column.name: (column.low, column.high) for column in COLUMNS}
    settings = {"bounds": bounds, "y_bounds": (RESPONSE.low, RESPONSE.high), "delta": DELTA}
    model = model_class(epsilon=EPSILON, rows_per_person=ROWS_PER_PERSON, budget=budget, **settings)
    plan = model.plan(len(X), columns=list(X.columns))
    say("\n2. The plan of a regression, before it is paid for\n" + textwrap.indent(wrap(plan), "   "))
    model.fit(X, y)
    reference = model_class(epsilon=math.inf, **settings).fit(X, y)
    private, exact = model.summary(), reference.summary()
    say("\n3. Coefficients: what goes with visits to a doctor")
    say(f"   {'':<13} {'private, with its 95 % interval':>34}   without privacy")
    for name in private.index:
        row = private.loc[name]
        interval = f"{row.estimate:.3f}  ({row.lower:.3f} to {row.upper:.3f})"
        say(f"   {name:<13} {interval:>34}   {exact.loc[name].estimate:15.3f}")
    return {
        "private": private[["estimate", "lower", "upper"]].to_dict("index"),
        "without_privacy": exact["estimate"].to_dict(),
        **_finish(model, "what goes with visits to a doctor", folder / "regression.html", say),
    }


def _classes(items: DataFrame, budget: Budget, folder: Path, say: Callable[[str], None]) -> dict[str, object]:
    model_class = estimator("latent-class")
    settings = {"levels": LEVELS, "delta": DELTA}
    model = model_class(2, epsilon=EPSILON, rows_per_person=ROWS_PER_PERSON, budget=budget, **settings).fit(items)
    reference = model_class(2, epsilon=math.inf, **settings).fit(items)
    order = _matching_order(model, reference)
    exact = {item: values[order] for item, values in reference.probabilities_.items()}
    rows = [("share of the rows", model.weights_, reference.weights_[order])]
    for item, levels in LEVELS.items():
        columns = zip(levels, model.probabilities_[item].T, exact[item].T, strict=True)
        rows += [(f"{item}: {level}", *shares) for level, *shares in columns]
    say(f"\n4. Classes of people who answer alike\n   {'':<24}{'private':>20}   {'without privacy':>20}")
    for label, *shares in rows:
        cells = ("  ".join(f"{100 * share:5.1f} %" for share in of_one_fit) for of_one_fit in shares)
        say("   {:<24}{:>20}   {:>20}".format(label, *cells))
    return {
        "private": plain({"shares": model.weights_, **model.probabilities_}),
        "without_privacy": plain({"shares": reference.weights_[order], **exact}),
        **_finish(model, "classes of people who answer alike", folder / "classes.html", say),
    }


def _matching_order(model: PrivateFit, reference: PrivateFit) -> list[int]:
    """The order of the reference's classes that matches the model's best: labels of classes are arbitrary."""
    private, exact = (np.hstack(list(fit.probabilities_.values())) for fit in (model, reference))
    orders = itertools.permutations(range(len(exact)))
    return list(min(orders, key=lambda order: float(np.sum((private - exact[list(order)]) ** 2))))


def _finish(model: PrivateFit, purpose: str, report: Path, say: Callable[[str], None]) -> dict[str, object]:
    """Print the diagnostics and write the report; return the fit check and the guarantee as texts."""
    say(textwrap.indent(wrap(f"Fit check: {model.fit_check_}"), "   "))
    for diagnostic in model._diagnostics():
        say(textwrap.indent(wrap(diagnostic), "   "))
    about = About("RAND Health Insurance Experiment", time.strftime("%Y-%m-%d"), purpose)
    write_report(model, report, about=about)
    return {"fit_check": str(model.fit_check_), "guarantee": str(model.guarantee_)}
