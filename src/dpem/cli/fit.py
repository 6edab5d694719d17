"""``dpem fit MODEL DATA``: check everything, print the price, charge it, fit and write, in this order.

All refusals come before the charge: those of outputs, ledger, rows, settings and budget. If the model cannot be written
to its file after the charge, it is written to a temporary folder. A model's options are its estimator's arguments
(:mod:`dpem.cli.models`).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from dpem._html import round_to, wrap
from dpem.cli import options as shared
from dpem.cli.common import EXIT_CODES, Exit, Options, Refused, Session, first_lines, refusals
from dpem.cli.models import Models, Sections, constructor_arguments, model_options
from dpem.cli.options import PATH, option
from dpem.cli.settings import NAME, columns_in_settings, is_from_settings, levels_in_settings

if TYPE_CHECKING:
    from dpem.cli.spending import SessionLedger
    from dpem.fitting.plan import Plan
    from dpem.fitting.scaler import DPStandardScaler
    from dpem.fitting.sequence import PrivateFit
    from dpem.fitting.summary import Estimates
    from dpem.privacy import DatasetState
    from dpem.tables import ChunkedSource

EXAMPLES = """\b
Examples:
  dpem fit {fit} \\
      --epsilon 1 --delta 1e-6 --dry-run
  dpem fit {fit} \\
      --epsilon 1 --delta 1e-6 \\
      --ledger sqlite:///budget.db --dataset people --report report.html
"""
OUTPUTS = (
    option("--out", "The model file to write.", PATH, default="model.json"),
    option("--report", "The report to write, such as report.html.", PATH),
    shared.force,
    option("--anyway", "Fit even if the plan predicts little more than noise.", bool),
    shared.dry_run,
    shared.json,
)
#: The largest number of columns whose names are printed before a fit.
MOST_NAMES = 12


def build(name: str, model_class: type[PrivateFit]) -> tuple[Sections, str]:
    """The options and the help of the command that fits a model."""
    arguments = inspect.signature(model_class).parameters
    summary = (model_class.__doc__ or "").strip().split("\n\n")[0].replace("``", "")
    target = [shared.target] if model_class._needs_y else []
    declared = next((f" --{key} {key}.json" for key in ("bounds", "levels") if key in arguments), "")
    examples = EXAMPLES.format(fit=f"{name} people.csv{' --target cost' if target else ''}{declared}")
    sections: Sections = {
        "Privacy": (shared.data, shared.epsilon, shared.delta, shared.rows_per_person),
        "Table": (*target, *(option for key, option in shared.declared.items() if key in arguments), *shared.table),
        "Model": (*model_options(model_class), *([shared.scaler] if model_class._takes_scaler else [])),
        "Ledger": (shared.ledger, shared.dataset, shared.purpose),
        "Run and output": OUTPUTS,
    }
    return sections, f"{summary}\n\n{examples}"


class ChargedFit(NamedTuple):
    """A fit that was charged: its facts for JSON, its scaler, its ledger, and the state of the dataset after it."""

    document: dict[str, object]
    scaler: DPStandardScaler | None
    ledger: SessionLedger | None
    state: DatasetState | None

    def result(self, estimator: PrivateFit, out: str, **details: object) -> dict[str, object]:
        """The JSON object of the command."""
        left, head = (None, None) if self.state is None else (self.state.left, self.state.head)
        guarantee = str(estimator.guarantee_)
        return {**self.document, **details, "guarantee": guarantee, "left": left, "head": head, "out": out}


def run(session: Session, name: str, model_class: type[PrivateFit], options: Options) -> None:
    """Fit a model, write its file and its report, and print the result."""
    from dpem.cli import files

    estimator = unfitted(name, model_class, options)
    charged = charge_and_fit(session, name, estimator, options)
    if charged is not None:
        files.save(estimator, options["out"], charged.scaler)
        if options["report"] is not None:
            _write_report(options, estimator, charged)
        _print_fit(session, options, estimator, charged)


def unfitted(name: str, model_class: type[PrivateFit], options: Options) -> PrivateFit:
    """The estimator with these options, after the checks that need no rows."""
    from dpem.cli import files

    target, formula = options.get("target"), options.get("formula")
    if formula is not None:
        _use_formula(model_class, options)
    elif model_class._needs_y and target is None:
        raise click.UsageError(f"--target must be given, here or in {NAME}: {name} needs a response.")
    if options["columns"] is not None and options.get("target") in options["columns"]:
        raise click.UsageError("--columns must not contain the target.")
    if not 0 < options["epsilon"] < math.inf:
        raise Refused(Exit.USAGE, f"--epsilon must be a positive finite number, got {options['epsilon']:g}.")
    arguments = constructor_arguments(model_class, options)
    if "levels" in arguments:
        arguments["levels"] = files.levels(arguments["levels"])
    if isinstance(classes := arguments.get("classes"), tuple):  # as levels, they are read from texts as well
        response = target or (options["columns"] or [""])[-1]  # a formula names the response last
        arguments["levels"] = {**arguments.get("levels", {}), response: list(classes)}
    weights = arguments.get("weights")
    if weights is not None and options["columns"] is not None and weights not in options["columns"]:
        options["columns"] = [*options["columns"], weights]
    estimator = model_class(**arguments)
    with refusals(Exit.USAGE):
        estimator._check_arguments()
    return estimator


def _use_formula(model_class: type[PrivateFit], options: Options) -> None:
    """Read the columns that the formula names, and no others. It takes precedence over the columns of dpem.toml."""
    from dpem.fitting.formula_text import raw_columns

    names = ("target", "columns", "exclude")
    options.update({name: None for name in names if is_from_settings(name)})
    conflicting = [name for name in names if options.get(name) is not None]
    if conflicting:
        raise click.UsageError(f"--{conflicting[0]} cannot be used with --formula, which names the columns.")
    with refusals(Exit.USAGE):
        options["columns"] = list(raw_columns(options["formula"], needs_y=model_class._needs_y))


def charge_and_fit(
    session: Session,
    name: str,
    estimator: PrivateFit,
    options: Options,
    prepare: Callable[[ChunkedSource], Options] = lambda source: {},
) -> ChargedFit | None:
    """Check everything, print the price, charge it and fit; None after a dry run.

    ``prepare`` returns the arguments of the estimator that depend on the table's columns.
    """
    from dpem.cli import files, spending

    data, dry_run = options["data"], options["dry_run"]
    if not Path(data).exists():
        raise Refused(Exit.DATA, f"{data} cannot be read: there is no such file or folder.")
    if not dry_run:
        written, read = (
            [path for option in names if isinstance(path := options.get(option), str)]
            for names in (("out", "report"), ("data", "scaler", "bounds"))
        )
        files.check_outputs(written, read, options["force"])
    ledger = spending.ledger_of(options["url"], options["dataset"], session, options["purpose"])
    scaler = files.scaler(options.get("scaler"))
    source = _table(session, estimator, options, scaler)
    estimator.set_params(budget=ledger, **prepare(source))
    plan = _checked_plan(session, estimator, source)
    quote = None if ledger is None else spending.quote_of(ledger, plan, record_refusal=not dry_run)
    session.say(_table_summary(data, source.n_rows, files.feature_names(source)))
    if getattr(estimator, "classes", ()) is None and options.get("target") not in (estimator.levels or {}):
        session.say("the response is read as 0 and 1; --classes names other values")
    document: dict[str, object] = {
        "data": {"path": data, "rows": source.n_rows, "columns": source.n_features},
        "price": {"epsilon": plan.epsilon, "delta": plan.delta, "rho": plan.price.rho},
        "ledger": quote,
        "model": name,
        "plan": plan.to_dict(),
    }
    if dry_run:
        price = wrap(spending.dry_run_price(plan, quote))
        session.result({**document, "dry_run": True}, f"{wrap(plan)}\n{price}")
        return None
    if not plan.feasible and not options["anyway"]:
        raise Refused(Exit.PLAN, f"the plan predicts little more than noise: {plan.advice}; --anyway overrides this.")
    spending.announce(session, plan, quote)
    with spending.fit_context(session):
        estimator.fit(source)
    return ChargedFit(document, scaler, ledger, spending.state(session, ledger))


def _table(session: Session, estimator: PrivateFit, options: Options, scaler: DPStandardScaler | None) -> ChunkedSource:
    """The table with the columns that the options, the scaler or the settings file name."""
    from dpem.cli import files

    if options["columns"] is None and scaler is not None:
        options["columns"] = files.columns_of(scaler)
    if (columns := columns_in_settings(session, type(estimator), options)) is not None:
        options["columns"], options["exclude"] = columns, None
    estimator.set_params(**levels_in_settings(options, estimator))
    return files.table(session, options, scaler=scaler, levels=getattr(estimator, "levels", None))


def _checked_plan(session: Session, estimator: PrivateFit, source: ChunkedSource) -> Plan:
    with refusals(Exit.USAGE):
        estimator._check_columns(source)
    with session.notice("choosing settings"), refusals(Exit.PLAN):
        return estimator._preview_plan(source)


def _table_summary(data: str, rows: int, names: Sequence[str]) -> str:
    """The size of a table, and the columns that are used."""
    first = ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")
    used = "1 column is used" if len(names) == 1 else f"{len(names):,} columns are used"
    return f"{data} has {rows:,} rows; {used}: {first}"


def _write_report(options: Options, estimator: PrivateFit, charged: ChargedFit) -> None:
    from dpem.report import About, write_report

    day, purpose = f"{datetime.now(UTC):%Y-%m-%d}", options["purpose"] or None
    where = None if charged.ledger is None else charged.ledger.where
    try:
        about = About(options["dataset"], day, purpose, where, charged.state)
        write_report(estimator, options["report"], charged.scaler, about)
    except (OSError, ValueError) as error:
        raise Refused(Exit.OUTPUT, f"{str(error).rstrip('.')}; the model is in {options['out']}.") from None


def _print_fit(session: Session, options: Options, estimator: PrivateFit, charged: ChargedFit) -> None:
    """Print the estimates of a fit, its diagnostics, its guarantee and what it spent."""
    from dpem.cli.spending import joint_guarantee, spent_and_left

    estimates: Estimates | None = estimator._fit_summary().estimates
    check, diagnostics, joint = estimator.fit_check_, estimator.diagnostics_, joint_guarantee(estimator, charged.scaler)
    out, report = options["out"], options["report"]
    lines, intervals = [f"Fitted {charged.document['model']}."], {}
    if estimates is not None:
        rows = []
        columns = zip(estimates.names, estimates.estimate, *estimates.ends, estimates.total, strict=True)
        for parameter, *values, error in columns:
            intervals[parameter] = [float(value) for value in values]
            rows.append((parameter, *(ascii_number(float(value), float(error)) for value in values)))
        if rows:
            lines += first_lines((estimates.what, "estimate", "lower", "upper"), rows, out)
    if check is not None:
        lines.append(wrap(check))
    # Diagnostics of severity "warning" have been issued as warnings, and the fit check is printed above.
    lines += [wrap(f"Note: {one}") for one in diagnostics if one.severity == "note" and str(one) != str(check)]
    lines += ["", wrap(estimator.guarantee_)]
    if joint is not None:
        lines.append(wrap(f"With the scaler, if it was fitted to the same rows, {joint}."))
    lines += ["", f"This fit spent epsilon = {options['epsilon']:g}, delta = {options['delta']:g}."]
    lines += [*spent_and_left(charged.state), f"The model is in {out}."]
    lines.append(f"The report is in {report}." if report else f"dpem report {out} makes a page.")
    details = {"fitted": intervals, "fit_check": check, "diagnostics": diagnostics, "with_scaler": joint}
    session.result(charged.result(estimator, out, **details, report=report), "\n".join(lines))


def ascii_number(value: float, error: float) -> str:
    """A number to two digits of its standard error, in ASCII without separators, for other programs to read."""
    return round_to(value, error).replace("−", "-").replace(",", "") if error > 0 else f"{value:.4g}"


@click.group(cls=Models, build=build, run=run, epilog=EXIT_CODES, subcommand_metavar="MODEL DATA [OPTIONS]...")
def fit() -> None:
    """Fit MODEL to the rows of DATA under differential privacy, and write model.json.

    DATA is a CSV, TSV, Parquet or Arrow file with one row for each person, or up to --rows-per-person of them.
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
