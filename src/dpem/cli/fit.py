"""``dpem fit MODEL DATA``: refuse, quote, say, spend, write, in this order.

Everything that can be refused is refused before the charge: outputs, ledger, rows, settings, budget. Once the fit is
paid for, its model is written somewhere, whatever happens to the place that was named. A model's options are its
estimator's arguments (:mod:`dpem.cli.models`).
"""

from __future__ import annotations

import inspect
import math
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from dpem.cli.common import EXIT_CODES, Exit, Refused, Session, refusing, wrapped
from dpem.cli.models import Models, given_to, model_options
from dpem.cli.options import (
    PATH,
    Bounds,
    Levels,
    Pair,
    dataset_option,
    delta_option,
    epsilon_option,
    force_option,
    json_option,
    ledger_option,
    parameters_of,
    purpose_option,
    rows_per_person_option,
    scaler_option,
    scheduler_option,
    table_options,
    target_option,
)

if TYPE_CHECKING:
    from dpem.cli.spending import Quote
    from dpem.privacy import DatasetState, Ledger

#: How many parameters are shown; all of them are in the model's file.
SHOWN = 20

EXAMPLES = """\b
Examples:
  dpem fit {name} {data}{target}{bounds} \\
      --epsilon 1 --delta 1e-6 --dry-run
  dpem fit {name} {data}{target}{bounds} \\
      --epsilon 1 --delta 1e-6 \\
      --ledger sqlite:///budget.db --dataset people --report report.html
"""


def build(name: str, kind: type[Any]) -> click.Command:
    """The subcommand of a model."""
    known = inspect.signature(kind).parameters
    about = (kind.__doc__ or "").strip().split("\n\n")[0].replace("``", "")
    examples = EXAMPLES.format(
        name=name,
        data="people.csv",
        target=" --target cost" if kind._needs_y else "",
        bounds=" --bounds bounds.json" if "bounds" in known else " --levels levels.json" if "levels" in known else "",
    )

    @click.pass_obj
    def run_it(session: Session, /, **asked: Any) -> None:
        run(session, name, kind, asked)

    parameters = [
        *parameters_of(click.argument("data", type=PATH), epsilon_option, delta_option, rows_per_person_option),
        *parameters_of(*(option for key, option in bound_options.items() if key in known)),
        *parameters_of(*([target_option] if kind._needs_y else []), table_options),
        *model_options(kind),
        *parameters_of(*([scaler_option] if getattr(kind, "_takes_scaler", False) else [])),
        *parameters_of(out_option, report_option, force_option, ledger_option, dataset_option, purpose_option),
        *parameters_of(scheduler_option, anyway_option, dry_run_option, json_option),
    ]
    return click.Command(name, params=parameters, callback=run_it, help=f"{about}\n\n{examples}", epilog=EXIT_CODES)


bound_options = {
    "bounds": click.option("--bounds", type=Bounds(), help="Public limits of every column, or a file with them."),
    "y_bounds": click.option("--y-bounds", type=Pair(), help="Public limits of the response."),
    "levels": click.option("--levels", type=Levels(), metavar="FILE", help="A .json of what texts and codes can be."),
}
out_option = click.option(
    "--out", default="model.json", show_default=True, type=PATH, metavar="FILE", help="Where the model is written."
)
report_option = click.option(
    "--report", type=PATH, metavar="FILE", help="Where a page to read in a browser is written, such as report.html."
)
anyway_option = click.option("--anyway", is_flag=True, help="Fit even where the plan expects little more than noise.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show the plan and the price; spend and write nothing.")


@click.group(cls=Models, build=build, epilog=EXIT_CODES, subcommand_metavar="MODEL DATA [OPTIONS]...")
def fit() -> None:
    """Fit MODEL to the rows of DATA under differential privacy, and write model.json.

    DATA is a CSV, TSV, Parquet, Arrow or .npy file, one row per person, or up to --rows-per-person. dpem fit MODEL
    --help shows what a model needs and its options.

    \b
    Examples:
      dpem fit linear-regression people.csv --target cost --bounds bounds.json \\
          --epsilon 1 --delta 1e-6 --dry-run
      dpem fit gaussian-mixture people.csv --bounds bounds.json --exclude id \\
          --epsilon 1 --delta 1e-6 --ledger sqlite:///budget.db --dataset people --report report.html

    Everything that can be refused is refused before anything is spent. Before it spends, the command says what, on
    which ledger, and what is left. Without a ledger nothing remembers the fit, and it is for you to add up. Privacy has
    no default: choose --epsilon and --delta. Bounds, levels and assumptions must be public knowledge, not taken from
    these rows.
    """


def run(session: Session, name: str, kind: type[Any], asked: dict[str, Any]) -> None:
    """The whole command."""
    from dpem.cli import inputs, outputs, spending
    from dpem.cli.columns import levels_of_used, settled

    estimator = _estimator(name, kind, asked)
    read = [path for path in (asked["data"], asked.get("start"), asked.get("scaler")) if isinstance(path, str)]
    if not asked["dry_run"]:
        outputs.check([asked["out"], *([] if asked["report"] is None else [asked["report"]])], read, asked["force"])
    ledger = spending.ledger_of(asked["url"], asked["dataset"], session, asked["purpose"])
    epsilon, delta = asked["epsilon"], asked["delta"]
    if getattr(estimator, "_spends_in_full", True):
        spending.refuse_at_any_price(ledger, epsilon, delta, asked["rows_per_person"], noting=not asked["dry_run"])
    scaler = inputs.scaler(asked.get("scaler"))
    if asked["columns"] is None and scaler is not None:
        asked["columns"] = inputs.columns_of(scaler)
    if (used := settled(session, kind, asked)) is not None:
        asked["columns"], asked["exclude"] = used, None
    estimator.set_params(**levels_of_used(asked))
    with inputs.table(session, asked, scaler=scaler, levels=getattr(estimator, "levels", None)) as source:
        estimator.set_params(budget=ledger, **inputs.start(asked.get("start"), source))
        plan = _planned(session, estimator, source)
        quote = None
        if ledger is not None:
            real = not asked["dry_run"]
            fit = (plan.model, plan.n)
            quote = spending.quoted(ledger, epsilon, delta, plan.price, plan.rows_per_person, fit=fit, noting=real)
        facts = _facts(name, asked, plan, quote, source)
        if asked["dry_run"]:
            _show_dry_run(session, plan, facts, quote)
            return
        _refuse_noise(plan, asked["anyway"])
        session.say(f"{asked['data']} has {source.n_rows:,} rows; {source.n_features:,} columns are used")
        spending.announce(session, epsilon, delta, quote)
        with spending.paying(session):
            estimator.fit(source)
    state = spending.state(session, ledger)
    _write(asked, estimator, scaler, ledger, state)
    _show(session, name, asked, estimator, facts, state, spending.with_scaler(estimator, scaler))


def _estimator(name: str, kind: type[Any], asked: dict[str, Any]) -> Any:
    """The estimator that the options describe, checked as far as it can be without the rows."""
    from dpem.cli import inputs

    target = asked.get("target")
    if asked.get("formula") is not None:
        _use_formula(kind, asked)
    elif kind._needs_y and target is None:
        raise click.UsageError(f"{name} needs --target: the column with the response.")
    if asked["columns"] is not None and target in asked["columns"]:
        raise click.UsageError("--columns must not hold the target.")
    if asked.get("scaler") is not None and asked["scheduler"] is not None:
        raise click.UsageError("--scaler does not go with --scheduler: scale the table beforehand.")
    if math.isinf(asked["epsilon"]):
        raise Refused(Exit.USAGE, "--epsilon must be finite: the command fits private models only.")
    arguments = given_to(kind, {key: value for key, value in asked.items() if key != "start"})
    if "levels" in arguments:
        arguments["levels"] = inputs.levels(arguments["levels"])
    estimator = kind(**arguments)
    with refusing(Exit.USAGE):
        estimator._check_arguments()
    return estimator


def _use_formula(kind: type[Any], asked: dict[str, Any]) -> None:
    """Read the columns that the formula names, and no others."""
    from dpem.fitting.formula import raw_columns

    beside = [key for key in ("target", "columns", "exclude") if asked.get(key) is not None]
    if beside:
        raise click.UsageError(f"--{beside[0]} does not go with --formula, which names the columns: leave it out.")
    with refusing(Exit.USAGE):
        weights = [] if asked.get("weights") is None else [asked["weights"]]
        asked["columns"] = [*raw_columns(asked["formula"], needs_y=kind._needs_y), *weights]


def _planned(session: Session, estimator: Any, source: Any) -> Any:
    """The plan that the fit will use, once everything that it would refuse has been."""
    with refusing(Exit.USAGE):
        estimator._check_columns(source)
    with session.waiting("choosing settings"), refusing(Exit.PLAN):
        return estimator._preview_plan(source)


def _refuse_noise(plan: Any, anyway: bool) -> None:
    """Refuse to spend on a fit that is expected to be useless, unless that is wanted."""
    if not plan.feasible and not anyway:
        raise Refused(
            Exit.PLAN, f"little more than noise is expected of this fit; {plan.advice}; --anyway fits all the same."
        )


def _write(
    asked: dict[str, Any], estimator: Any, scaler: Any, ledger: Ledger | None, state: DatasetState | None
) -> None:
    """The model, at all costs; then the report, which can be made again from the model."""
    from dpem.cli import outputs
    from dpem.report import About, write_report

    outputs.save(estimator, asked["out"], scaler)
    if asked["report"] is None:
        return
    day, purpose = f"{datetime.now(UTC):%Y-%m-%d}", asked["purpose"] or None
    try:
        about = About(asked["dataset"], day, purpose, None if ledger is None else ledger.where, state)
        write_report(estimator, asked["report"], scaler, about)
    except (OSError, ValueError) as error:
        raise Refused(Exit.OUTPUT, f"{str(error).rstrip('.')}; the model is in {asked['out']}.") from None


def _show(
    session: Session,
    name: str,
    asked: dict[str, Any],
    estimator: Any,
    facts: dict[str, Any],
    state: DatasetState | None,
    whole: str | None,
) -> None:
    from dpem.cli import spending
    from dpem.cli.common import aligned

    found, statement = estimator._fit_summary().estimates, str(estimator.guarantee_)
    check, diagnostics = getattr(estimator, "fit_check_", None), getattr(estimator, "diagnostics_", ())
    rows = [] if found is None else list(zip(found.names, found.value, found.low, found.high, strict=True))
    document = {
        **facts,
        "fitted": {name: [float(value), float(low), float(high)] for name, value, low, high in rows},
        "fit_check": None if check is None else asdict(check),
        "diagnostics": [asdict(one) for one in diagnostics],
        "guarantee": statement,
        "with_scaler": whole,
        "left": None if state is None else state.left,
        "head": None if state is None else state.head,
        "out": asked["out"],
        "report": asked["report"],
    }
    lines = [f"Fitted {name}."]
    if rows:
        errors = [] if found is None else found.error.tolist()
        shown = [(row[0], *(_known(end, errors[j]) for end in row[1:])) for j, row in enumerate(rows[:SHOWN])]
        lines.append(aligned((str(found and found.what), "estimate", "lower", "upper"), shown))
    if len(rows) > SHOWN:
        lines.append(f"and {len(rows) - SHOWN} more in {asked['out']}")
    if check is not None:
        lines.append(wrapped(str(check)))
    lines += [wrapped(f"Note: {one}") for one in diagnostics if one.severity == "note"]  # warnings were said before
    lines += ["", wrapped(statement)]
    if whole is not None:
        lines.append(wrapped(f"With the scaler, if it was fitted to the same rows, {whole}."))
    lines += ["", f"This fit spent epsilon = {asked['epsilon']:g}, delta = {asked['delta']:g}."]
    if state is not None:
        lines += [spending.left_in_words(state), f"Head of the ledger: {state.head}"]
    lines.append(f"The model is in {asked['out']}.")
    lines.append(
        f"The report is in {asked['report']}." if asked["report"] else f"dpem report {asked['out']} makes a page."
    )
    session.result(document, "\n".join(lines))


def _known(value: float, error: float) -> str:
    """A number as precisely as it is known, in the signs that a shell's tools read."""
    from dpem._html import measured

    return measured(value, error).replace("−", "-").replace(",", "") if error > 0 else f"{value:.4g}"


def _show_dry_run(session: Session, plan: Any, facts: dict[str, Any], quote: Quote | None) -> None:
    from dpem.cli import spending

    said = spending.would(plan.epsilon, plan.delta, quote)
    session.result({**facts, "dry_run": True}, "\n".join([str(plan), wrapped(said)]))


def _facts(name: str, asked: dict[str, Any], plan: Any, quote: Quote | None, source: Any) -> dict[str, Any]:
    """What a fit and its dry run both put into JSON."""
    return {
        "model": name,
        "data": {"path": asked["data"], "rows": source.n_rows, "columns": source.n_features},
        "price": {"epsilon": plan.epsilon, "delta": plan.delta, "rho": plan.price.rho},
        "plan": plan.to_dict(),
        "ledger": None if quote is None else asdict(quote),
    }
