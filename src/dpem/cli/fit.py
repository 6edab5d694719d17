"""``dpem fit MODEL DATA``: check everything, quote the price, print it, charge it, fit, write, in this order.

All refusals come before the charge: those of outputs, ledger, rows, settings and budget. If the model cannot be written
to its file after the charge, it is written to a temporary folder. A model's options are its estimator's arguments
(:mod:`dpem.cli.models`).
"""

from __future__ import annotations

import inspect
import math
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from dpem._html import measured
from dpem.cli import options
from dpem.cli.common import EXIT_CODES, Exit, Refused, Session, first_lines, refusing, wrapped, wrapped_lines
from dpem.cli.models import Models, constructor_arguments, model_options
from dpem.cli.options import PATH, Bounds, Levels, Pair, parameters_of

if TYPE_CHECKING:
    from dpem.fitting.plan import Plan
    from dpem.fitting.summary import Estimates
    from dpem.privacy import DatasetState, Ledger

EXAMPLES = """\b
Examples:
  dpem fit {fit} \\
      --epsilon 1 --delta 1e-6 --dry-run
  dpem fit {fit} \\
      --epsilon 1 --delta 1e-6 \\
      --ledger sqlite:///budget.db --dataset people --report report.html
"""


def build(name: str, kind: type[Any]) -> click.Command:
    arguments = inspect.signature(kind).parameters
    summary = (kind.__doc__ or "").strip().split("\n\n")[0].replace("``", "")
    target = " --target cost" if kind._needs_y else ""
    declared = next((f" --{key} {key}.json" for key in ("bounds", "levels") if key in arguments), "")
    examples = EXAMPLES.format(fit=f"{name} people.csv{target}{declared}")

    @click.pass_obj
    def command(session: Session, /, **options: Any) -> None:
        run(session, name, kind, options)

    parameters = [
        *parameters_of(click.argument("data", type=PATH), options.epsilon, options.delta, options.rows_per_person),
        *parameters_of(*(option for key, option in bound_options.items() if key in arguments)),
        *parameters_of(*([options.target] if kind._needs_y else []), options.table),
        *model_options(kind),
        *parameters_of(*([options.scaler] if getattr(kind, "_takes_scaler", False) else [])),
        *parameters_of(out_option, report_option, options.force, options.ledger, options.dataset, options.purpose),
        *parameters_of(options.scheduler, anyway_option, dry_run_option, options.json),
    ]
    return click.Command(name, params=parameters, callback=command, help=f"{summary}\n\n{examples}", epilog=EXIT_CODES)


bound_options = {
    "bounds": click.option("--bounds", type=Bounds(), help="The public bounds of every column, or a file of them."),
    "y_bounds": click.option("--y-bounds", type=Pair(), help="The public bounds of the response."),
    "levels": click.option(
        "--levels", type=Levels(), metavar="FILE", help="A .json file with the levels of each categorical column."
    ),
}
out_option = click.option(
    "--out", default="model.json", show_default=True, type=PATH, metavar="FILE", help="The model file to write."
)
report_option = click.option("--report", type=PATH, metavar="FILE", help="The report to write, such as report.html.")
anyway_option = click.option("--anyway", is_flag=True, help="Fit even if the plan predicts little more than noise.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show the plan and the price; spend nothing, write nothing."
)


@click.group(cls=Models, build=build, epilog=EXIT_CODES, subcommand_metavar="MODEL DATA [OPTIONS]...")
def fit() -> None:
    """Fit MODEL to the rows of DATA under differential privacy, and write model.json.

    DATA is a CSV, TSV, Parquet, Arrow or .npy file with one row for each person, or up to --rows-per-person of them.
    dpem fit MODEL --help shows the options of a model.

    \b
    Examples:
      dpem fit linear-regression people.csv --target cost --bounds bounds.json \\
          --epsilon 1 --delta 1e-6 --dry-run
      dpem fit gaussian-mixture people.csv --bounds bounds.json --exclude id \\
          --epsilon 1 --delta 1e-6 --ledger sqlite:///budget.db --dataset people --report report.html

    All checks come before anything is spent. The command then prints what it spends, from which ledger, and what is
    left. Without a ledger the fit is recorded nowhere, and you must add up what was spent. --epsilon and --delta have
    no default. Bounds, levels and assumptions must be public knowledge, not computed from these rows.
    """


def run(session: Session, name: str, kind: type[Any], options: dict[str, Any]) -> None:
    from dpem.cli import files, spending
    from dpem.cli.settings import columns_in_settings, levels_of_used
    from dpem.privacy import Charge

    estimator = _estimator(name, kind, options)
    read = [path for path in (options["data"], options.get("start"), options.get("scaler")) if isinstance(path, str)]
    if not options["dry_run"]:
        files.check_outputs(
            [options["out"], *([] if options["report"] is None else [options["report"]])], read, options["force"]
        )
    ledger = spending.ledger_of(options["url"], options["dataset"], session, options["purpose"])
    epsilon, delta = options["epsilon"], options["delta"]
    if getattr(estimator, "_spends_in_full", True):
        spending.refuse_early(ledger, epsilon, delta, options["rows_per_person"], record_refusal=not options["dry_run"])
    scaler = files.scaler(options.get("scaler"))
    if options["columns"] is None and scaler is not None:
        options["columns"] = files.columns_of(scaler)
    if (columns := columns_in_settings(session, kind, options)) is not None:
        options["columns"], options["exclude"] = columns, None
    estimator.set_params(**levels_of_used(options, estimator))
    with files.table(session, options, scaler=scaler, levels=getattr(estimator, "levels", None)) as source:
        estimator.set_params(budget=ledger, **files.start(options.get("start"), source))
        with refusing(Exit.USAGE):
            estimator._check_columns(source)
        with session.waiting("choosing settings"), refusing(Exit.PLAN):
            plan: Plan = estimator._preview_plan(source)
        quote = None
        if ledger is not None:
            charge = Charge(epsilon, delta, plan.price, rows_per_person=plan.rows_per_person)
            record = not options["dry_run"]
            quote = spending.quote_of(ledger, charge, fit=(plan.model, plan.n), record_refusal=record)
        document = spending.common_fields(options, plan.price, quote, source) | {"model": name, "plan": plan.to_dict()}
        if options["dry_run"]:
            price = wrapped(spending.dry_run_price(epsilon, delta, quote))
            session.result({**document, "dry_run": True}, f"{wrapped_lines(plan)}\n{price}")
            return
        if not plan.feasible and not options["anyway"]:
            raise Refused(
                Exit.PLAN, f"the plan predicts little more than noise: {plan.advice}; --anyway fits all the same."
            )
        used = "1 column is" if source.n_features == 1 else f"{source.n_features:,} columns are"
        session.say(f"{options['data']} has {source.n_rows:,} rows; {used} used")
        spending.announce(session, epsilon, delta, quote)
        with spending.paying(session):
            estimator.fit(source)
    state = spending.state(session, ledger)
    _write(options, estimator, scaler, ledger, state)
    _show(session, options, estimator, document, state, spending.joint_guarantee(estimator, scaler))


def _estimator(name: str, kind: type[Any], options: dict[str, Any]) -> Any:
    """The estimator with these options, after the checks that need no rows."""
    from dpem.cli import files

    if options.get("formula") is not None:
        _use_formula(kind, options)
    target = options.get("target")
    if kind._needs_y and target is None and options.get("formula") is None:
        raise click.UsageError(f"{name} needs --target: the column with the response.")
    if options["columns"] is not None and target in options["columns"]:
        raise click.UsageError("--columns must not contain the target.")
    if options.get("scaler") is not None and options["scheduler"] is not None:
        raise click.UsageError("--scaler cannot be used with --scheduler: scale the table beforehand.")
    if math.isinf(options["epsilon"]):
        raise Refused(Exit.USAGE, "--epsilon must be finite: the command fits private models only.")
    arguments = constructor_arguments(kind, {key: value for key, value in options.items() if key != "start"})
    if "levels" in arguments:
        arguments["levels"] = files.levels(arguments["levels"])
    if arguments.get("classes") is not None:  # as levels, they are read from texts as well
        response = target or (options["columns"] or [])[-1 - bool(options.get("weights"))]  # the last of a formula
        arguments["levels"] = {**(arguments.get("levels") or {}), response: list(arguments["classes"])}
    estimator = kind(**arguments)
    with refusing(Exit.USAGE):
        estimator._check_arguments()
    return estimator


def _use_formula(kind: type[Any], options: dict[str, Any]) -> None:
    """Read the columns that the formula names, and no others."""
    from dpem.cli.settings import is_a_setting
    from dpem.fitting.formula_text import raw_columns

    names = ("target", "columns", "exclude")
    options.update({name: None for name in names if is_a_setting(name)})  # the formula takes precedence over dpem.toml
    extra = [name for name in names if options.get(name) is not None]
    if extra:
        raise click.UsageError(f"--{extra[0]} cannot be used with --formula, which names the columns: leave it out.")
    with refusing(Exit.USAGE):
        weights = [] if options.get("weights") is None else [options["weights"]]
        options["columns"] = [*raw_columns(options["formula"], needs_y=kind._needs_y), *weights]


def _write(
    options: dict[str, Any], estimator: Any, scaler: Any, ledger: Ledger | None, state: DatasetState | None
) -> None:
    """Write the model, then the report, which dpem report can write again from the model."""
    from dpem.cli import files
    from dpem.report import About, write_report

    files.save(estimator, options["out"], scaler)
    if options["report"] is None:
        return
    day, purpose = f"{datetime.now(UTC):%Y-%m-%d}", options["purpose"] or None
    try:
        about = About(options["dataset"], day, purpose, None if ledger is None else ledger.where, state)
        write_report(estimator, options["report"], scaler, about)
    except (OSError, ValueError) as error:
        raise Refused(Exit.OUTPUT, f"{str(error).rstrip('.')}; the model is in {options['out']}.") from None


def _show(
    session: Session,
    options: dict[str, Any],
    estimator: Any,
    document: dict[str, Any],
    state: DatasetState | None,
    joint_guarantee: str | None,
) -> None:
    """Print a finished fit; ``joint_guarantee`` is that of the model and its scaler."""
    from dpem.cli.spending import spent_and_left

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
    # Diagnostics of severity "warning" have been issued as warnings, and the fit check is printed above.
    notes = [one for one in diagnostics if one.severity == "note" and one.code != "fit-check"]
    lines += [wrapped(f"Note: {note}") for note in notes]
    lines += ["", wrapped(guarantee)]
    if joint_guarantee is not None:
        lines.append(wrapped(f"With the scaler, if it was fitted to the same rows, {joint_guarantee}."))
    lines += ["", f"This fit spent epsilon = {options['epsilon']:g}, delta = {options['delta']:g}."]
    lines += [*spent_and_left(state), f"The model is in {out}."]
    lines.append(f"The report is in {report}." if report else f"dpem report {out} makes a page.")
    session.result(result, "\n".join(lines))


def _intervals(estimates: Estimates | None) -> dict[str, list[float]]:
    """The estimate and the ends of the interval of each parameter."""
    if estimates is None:
        return {}
    columns = zip(estimates.names, estimates.value, estimates.low, estimates.high, strict=True)
    return {name: [float(value), float(low), float(high)] for name, value, low, high in columns}


def _table(estimates: Estimates | None, out: str) -> list[str]:
    """The lines of a table of the first estimates, and the file that has the others."""
    if estimates is None or not estimates.names:
        return []
    columns = zip(estimates.names, estimates.value, estimates.low, estimates.high, estimates.error, strict=True)
    rows = [(name, *(rounded(float(part), float(error)) for part in parts)) for name, *parts, error in columns]
    return first_lines((estimates.what, "estimate", "lower", "upper"), rows, out)


def rounded(value: float, error: float) -> str:
    """A number to two digits of its standard error, in ASCII without separators, for other programs to read."""
    return measured(value, error).replace("−", "-").replace(",", "") if error > 0 else f"{value:.4g}"
