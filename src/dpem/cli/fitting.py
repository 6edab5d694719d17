"""A fit from a shell: refuse, quote, say, spend, write, in this order.

Everything that can be refused is refused before the debit: outputs, ledger, rows, settings, budget. Once the fit is
paid for, its model is written somewhere, whatever happens to the place that was named.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import click
import numpy as np

from dpem import DPStandardScaler
from dpem import _validation as arguments
from dpem.cli import inputs, outputs, spending
from dpem.cli.common import Exit, Refused, Session, refusing, wrapped
from dpem.cli.plan import unknown_sigma
from dpem.cli.spending import Quote
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.paper.estimators.base import SIGMA_SHARE, PrivateEM
from dpem.paper.planning import Plan
from dpem.privacy import Price, largest_price, together
from dpem.privacy.budget import checked_rows_per_person
from dpem.report import write_report
from dpem.sources import Source
from dpem.steps.scale import rows_for_sigma

ESTIMATORS: dict[str, type[PrivateEM]] = {
    kind._model_name: kind for kind in (DPSymmetricMixture, DPSymmetricRegression, DPMissingRegression)
}
#: How many coefficients are shown; all of them are in the model's file.
SHOWN = 20


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    model: str
    data: str
    epsilon: float
    delta: float
    rows_per_person: int
    sparsity: int | str | None
    max_sparsity: int | None
    sigma: float | None
    signal: float
    method: str
    start: str | None
    scaler: str | None
    target: str | None
    columns: list[str] | None
    out: str
    report: str | None
    force: bool
    url: str | None
    dataset: str | None
    scheduler: str | None
    anyway: bool
    dry_run: bool


def run(session: Session, asked: Request) -> None:
    """The whole command."""
    estimator = _estimator(asked)
    if not asked.dry_run:
        read = [path for path in (asked.data, asked.start, asked.scaler) if path is not None]
        outputs.check([asked.out, *([] if asked.report is None else [asked.report])], read, asked.force)
    ledger = spending.ledger_of(asked.url, asked.dataset, session)
    if asked.method == "tight":
        spending.refuse_at_any_price(ledger, asked.epsilon, asked.delta, asked.rows_per_person)
    scaler = inputs.scaler(asked.scaler)
    columns = inputs.columns_of(scaler) if asked.columns is None else asked.columns
    with inputs.table(session, asked.data, columns, asked.target, asked.scheduler, scaler) as source:
        estimator.set_params(start=inputs.start(asked.start, source), budget=ledger)
        plan = _planned(session, asked, estimator, source)
        price = plan.price if asked.sigma is not None else largest_price(asked.epsilon, asked.delta, gaussian=False)
        charge = (asked.epsilon, asked.delta, price, asked.rows_per_person)
        quote = None if ledger is None else spending.quoted(ledger, *charge)
        facts = _facts(asked, price, quote, source)
        if asked.dry_run:
            _show_dry_run(session, asked, plan, facts, quote)
            return
        _refuse_noise(asked, plan)
        session.say(f"{asked.data} has {source.n_rows:,} rows; {source.n_features:,} columns are used")
        spending.announce(session, asked.epsilon, asked.delta, quote)
        with spending.paying(session):
            estimator._fit(source, None)
    _write(asked, estimator, scaler)
    left = spending.left(session, ledger, asked.delta)
    _show(session, asked, estimator, facts, left, _with_scaler(estimator, scaler))


def _estimator(asked: Request) -> PrivateEM:
    kind = ESTIMATORS[asked.model]
    if kind._needs_y and asked.target is None:
        raise click.UsageError(f"{asked.model} needs --target: the column with the response.")
    if not kind._needs_y and asked.target is not None:
        raise click.UsageError(f"{asked.model} has no response: leave --target out and choose with --columns.")
    if asked.columns is not None and asked.target in asked.columns:
        raise click.UsageError("--columns must not hold the target.")
    if asked.scaler is not None and asked.scheduler is not None:
        raise click.UsageError("--scaler does not go with --scheduler: scale the table beforehand.")
    with refusing(Exit.USAGE):
        epsilon, _ = arguments.privacy_parameters(asked.epsilon, asked.delta)
        checked_rows_per_person("rows_per_person", asked.rows_per_person)
        arguments.positive("signal", asked.signal)
        arguments.optional_positive("sigma", asked.sigma)
    if math.isinf(epsilon):
        raise Refused(Exit.USAGE, "--epsilon must be finite: the command fits private models only.")
    if asked.method == "paper" and asked.sigma is None:
        raise click.UsageError("--method paper needs --sigma: the paper assumes that it is known.")
    names = ("epsilon", "delta", "sparsity", "max_sparsity", "sigma", "signal", "method", "rows_per_person")
    return kind(**{name: getattr(asked, name) for name in names})


def _planned(session: Session, asked: Request, estimator: PrivateEM, source: Source) -> Plan:
    """The plan the fit will use (where σ is to be estimated: would use, if it were half the signal), or a refusal."""
    n, d = source.n_rows, source.n_features
    with refusing(Exit.USAGE):
        arguments.rows_per_person(asked.rows_per_person, n)
        arguments.sparsity(asked.sparsity, asked.max_sparsity, d)
        estimator._start(d)
    if asked.sigma is None:
        rho = SIGMA_SHARE * largest_price(asked.epsilon, asked.delta, gaussian=False).rho
        needed = rows_for_sigma(d, of_response=estimator._needs_y, rho=rho, rows_per_person=asked.rows_per_person)
        if n < needed:
            raise Refused(
                Exit.PLAN,
                f"without --sigma about {needed} rows are needed at this epsilon, there are {n}; give --sigma.",
            )
    with session.waiting("choosing settings"), refusing(Exit.PLAN), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit says the same again
        sigma = asked.signal / 2 if asked.sigma is None else asked.sigma
        return estimator._plan(n, d, asked.epsilon, asked.delta, sigma)


def _refuse_noise(asked: Request, plan: Plan) -> None:
    """Refuse to spend on a fit that is expected to be useless, unless that is wanted."""
    if plan.feasible is False and not asked.anyway:
        raise Refused(
            Exit.PLAN,
            f"the predicted error ({plan.predicted_error:.2g}) is above half of the assumed signal ({plan.signal:g}), "
            f"little more than noise; {plan.advice}; --anyway fits all the same.",
        )


def _write(asked: Request, estimator: PrivateEM, scaler: DPStandardScaler | None) -> None:
    """The model, at all costs; then the report, which can be made again from the model."""
    outputs.save(estimator, asked.out, scaler)
    if asked.report is not None:
        try:
            write_report(estimator, asked.report, scaler)
        except (OSError, ValueError) as error:
            raise Refused(Exit.OUTPUT, f"{str(error).rstrip('.')}; the model is in {asked.out}.") from None


def _coefficients(estimator: PrivateEM) -> dict[str, float]:
    """Those that may be non-zero, largest first, by the name or the number of their column."""
    names = getattr(estimator, "feature_names_in_", None)
    order = estimator.support_[np.argsort(-np.abs(estimator.coef_[estimator.support_]), kind="stable")]
    return {str(j) if names is None else str(names[j]): float(estimator.coef_[j]) for j in order}


def _show(
    session: Session, asked: Request, estimator: PrivateEM, facts: dict[str, Any], left: float | None, whole: str | None
) -> None:
    found, statement = _coefficients(estimator), str(estimator.guarantee_)
    document = {
        **facts,
        "plan": _plain(estimator.plan_),
        "fitted": {"sigma": estimator.sigma_, "coefficients": found},
        "guarantee": statement,
        "with_scaler": whole,
        "left": left,
        "out": asked.out,
        "report": asked.report,
    }
    width = max(map(len, found), default=0)
    lines = [f"Fitted {asked.model}; column and coefficient:"]
    lines += [f"  {name:<{width}}  {value:+.4g}" for name, value in list(found.items())[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"  and {len(found) - SHOWN} more in {asked.out}")
    if asked.sigma is None:
        lines.append(f"sigma, estimated: {estimator.sigma_:.4g}")
    lines += ["", wrapped(statement)]
    if whole is not None:
        lines.append(wrapped(f"With the scaler, if it was fitted to the same rows, {whole}."))
    lines += ["", f"Wrote {asked.out}{f' and {asked.report}' if asked.report else ''}."]
    if left is not None:
        lines.append(f"At least epsilon = {left:.4g} is left of {asked.dataset} at this delta.")
    session.result(document, "\n".join(lines))


def _with_scaler(estimator: PrivateEM, scaler: DPStandardScaler | None) -> str | None:
    """What the model and the scaler it was fitted with promise together; ε is rounded up."""
    if scaler is None:
        return None
    both = together([scaler.guarantee_, estimator.guarantee_])
    promise = f"both together are ({math.ceil(1e4 * both.epsilon) / 1e4:g}, {both.delta:g})-differentially private"
    alone = both.rows_per_person == estimator.guarantee_.rows_per_person == 1
    return promise if alone else f"{promise} for {both.unit}"


def _show_dry_run(session: Session, asked: Request, plan: Plan, facts: dict[str, Any], quote: Quote | None) -> None:
    assumed = [unknown_sigma(asked.signal)] if asked.sigma is None else []
    said = [*assumed, spending.would(asked.epsilon, asked.delta, quote)]
    document = {**facts, "plan": _plain(plan), "assumed": assumed, "dry_run": True}
    session.result(document, "\n".join([str(plan), *map(wrapped, said)]))


def _facts(asked: Request, price: Price, quote: Quote | None, source: Source) -> dict[str, Any]:
    """What a fit and its rehearsal both tell a machine."""
    return {
        "model": asked.model,
        "data": {"path": asked.data, "rows": source.n_rows, "columns": source.n_features},
        "price": {"epsilon": asked.epsilon, "delta": asked.delta, "rho": price.rho},
        "ledger": None if quote is None else asdict(quote),
    }


def _plain(plan: Plan) -> dict[str, Any]:
    return {**plan.to_dict(), "feasible": plan.feasible}
