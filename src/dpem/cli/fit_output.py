"""What ``dpem fit`` prints: the estimates, the guarantee and what is left, or the plan of a dry run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dpem._html import measured
from dpem.cli import spending
from dpem.cli.common import Session, aligned, wrapped

if TYPE_CHECKING:
    from dpem.cli.spending import Quote
    from dpem.fitting.plan import Plan
    from dpem.fitting.summary import Estimates
    from dpem.privacy import DatasetState
    from dpem.tables import Source

#: How many parameters are shown; all of them are in the model's file.
SHOWN = 20


def facts(model: str, options: dict[str, Any], plan: Plan, quote: Quote | None, source: Source) -> dict[str, Any]:
    """The fields that the JSON of a fit and of its dry run have in common."""
    return {
        "model": model,
        "data": {"path": options["data"], "rows": source.n_rows, "columns": source.n_features},
        "price": {"epsilon": plan.epsilon, "delta": plan.delta, "rho": plan.price.rho},
        "plan": plan.to_dict(),
        "ledger": None if quote is None else asdict(quote),
    }


def show_fit(
    session: Session,
    options: dict[str, Any],
    estimator: Any,
    document: dict[str, Any],
    state: DatasetState | None,
    joint_guarantee: str | None,
) -> None:
    """Print a finished fit; ``joint_guarantee`` is that of the model and its scaler."""
    estimates: Estimates | None = estimator._fit_summary().estimates
    guarantee = str(estimator.guarantee_)
    check, diagnostics = getattr(estimator, "fit_check_", None), getattr(estimator, "diagnostics_", ())
    out, report = options["out"], options["report"]
    result = {
        **document,
        "fitted": _intervals(estimates),
        "fit_check": None if check is None else asdict(check),
        "diagnostics": [asdict(diagnostic) for diagnostic in diagnostics],
        "guarantee": guarantee,
        "with_scaler": joint_guarantee,
        "left": None if state is None else state.left,
        "head": None if state is None else state.head,
        "out": out,
        "report": report,
    }
    lines = [f"Fitted {document['model']}.", *_table(estimates, out)]
    if check is not None:
        lines.append(wrapped(str(check)))
    # Diagnostics of severity "warning" have been issued as warnings.
    lines += [wrapped(f"Note: {diagnostic}") for diagnostic in diagnostics if diagnostic.severity == "note"]
    lines += ["", wrapped(guarantee)]
    if joint_guarantee is not None:
        lines.append(wrapped(f"With the scaler, if it was fitted to the same rows, {joint_guarantee}."))
    lines += ["", f"This fit spent epsilon = {options['epsilon']:g}, delta = {options['delta']:g}."]
    if state is not None:
        lines += [spending.left_in_words(state), f"Head of the ledger: {state.head}"]
    lines.append(f"The model is in {out}.")
    lines.append(f"The report is in {report}." if report else f"dpem report {out} makes a page.")
    session.result(result, "\n".join(lines))


def _intervals(estimates: Estimates | None) -> dict[str, list[float]]:
    """The estimate and the ends of the interval of each parameter."""
    if estimates is None:
        return {}
    columns = zip(estimates.names, estimates.value, estimates.low, estimates.high, strict=True)
    return {name: [float(value), float(low), float(high)] for name, value, low, high in columns}


def _table(estimates: Estimates | None, out: str) -> list[str]:
    """The first estimates as lines of a table, and where the others are."""
    if estimates is None or not estimates.names:
        return []
    rows = []
    for j, name in enumerate(estimates.names[:SHOWN]):
        error = float(estimates.error[j])
        rows.append(
            (name, *(rounded(float(part[j]), error) for part in (estimates.value, estimates.low, estimates.high)))
        )
    lines = [aligned((estimates.what, "estimate", "lower", "upper"), rows)]
    if len(estimates.names) > SHOWN:
        lines.append(f"and {len(estimates.names) - SHOWN} more in {out}")
    return lines


def rounded(value: float, error: float) -> str:
    """A number to two digits of its standard error, in ASCII without separators, for other programs to read."""
    return measured(value, error).replace("−", "-").replace(",", "") if error > 0 else f"{value:.4g}"
