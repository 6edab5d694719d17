"""``dpem plan MODEL``: print the steps of a fit and its predicted error, without data."""

from __future__ import annotations

import csv
import inspect
import io
import itertools
from typing import TYPE_CHECKING, Any

import click

from dpem._html import wrap
from dpem.cli import options as shared
from dpem.cli.common import Exit, Options, Refused, Session, aligned, refusals
from dpem.cli.models import Models, Sections, constructor_arguments, model_options
from dpem.cli.options import Count, Names, Number, Value, option
from dpem.cli.settings import is_from_settings

if TYPE_CHECKING:
    from dpem.fitting.plan import Plan
    from dpem.fitting.sequence import PrivateFit

SIZES = (
    option("--n", "The number of rows, such as 8000 or 1e6.", Count(), required=True),
    option("--d", "The number of columns, without the response.", Count()),
    option("--columns", "The names of the columns, if bounds or levels are by name.", Names()),
)
EPSILON = option("--epsilon", "The privacy loss of one person, such as 1.", Number())
EFFECT = option("--effect", "The assumed strength of effects, in the measure that the plan names.", Number())
SWEEP = option(
    "--sweep",
    "Print a line for each value, such as epsilon=0.1,0.3,1.",
    str,
    multiple=True,
    metavar="NAME=V1,V2,...",
)


def build(name: str, kind: type[PrivateFit]) -> tuple[Sections, str]:
    arguments = inspect.signature(kind).parameters
    target = [shared.target] if kind._needs_y else []
    effect = [EFFECT] if "effect" in inspect.signature(kind.plan).parameters else []
    table_csv = click.Option(["--csv", "as_csv"], is_flag=True, help="Print the lines of a sweep as CSV.")
    sections: Sections = {
        "Privacy": (EPSILON, shared.delta, shared.rows_per_person),
        "Table": (*SIZES, *target, *(one for key, one in shared.declared.items() if key in arguments)),
        "Model": (*model_options(kind), *effect),
        "Output": (SWEEP, table_csv, shared.json),
    }
    text = f"""Print the steps of a fit of {name}, their prices and the predicted error. Nothing is read or spent.

    \b
    Examples:
      dpem plan {name} --n 8000 --d 6 --epsilon 1 --delta 1e-6
      dpem plan {name} --n 8000 --d 6 --delta 1e-6 --sweep epsilon=0.1,0.3,1
      dpem plan {name} --d 6 --delta 1e-6 --epsilon 1 --n 1e4 --sweep n=1e4,1e5 --csv

    The assumptions about the data are printed with the prediction. A wrong assumption costs accuracy, never privacy.
    """
    return sections, inspect.cleandoc(text)


def run(session: Session, name: str, kind: type[PrivateFit], options: Options) -> None:
    sweeps = [_sweep(text, options) for text in options["sweep"]]
    if options["epsilon"] is None and not any(name == "epsilon" for name, _ in sweeps):
        raise click.UsageError("--epsilon must be given, or --sweep epsilon=0.1,0.3,1.")
    if options["as_csv"] and not sweeps:
        raise click.UsageError("--csv needs --sweep: a single plan is not a table.")
    if not sweeps:
        with session.notice("choosing settings"):
            fit_plan = _plan(kind, options)
        session.result(fit_plan.to_dict(), wrap(fit_plan))
        return
    _show_sweep(session, kind, options, sweeps)


def _plan(kind: type[PrivateFit], options: Options) -> Plan:
    with refusals(Exit.USAGE):
        if options["epsilon"] == float("inf"):
            raise Refused(Exit.USAGE, "--epsilon must be finite: the command plans private fits only.")
        arguments = constructor_arguments(kind, options)
        if options["d"] is not None and "bounds" in arguments:  # --d takes precedence over names in a settings file
            arguments |= {name: None for name in ("bounds", "levels") if name in arguments and is_from_settings(name)}
        if isinstance(arguments.get("levels"), str):
            from dpem.cli import files

            arguments["levels"] = files.levels(arguments["levels"])
        estimator = kind(**arguments)
        more = {"effect": options["effect"]} if "effect" in options else {}
        return estimator.plan(
            options["n"], options["d"], columns=options["columns"], target=options.get("target"), **more
        )


def _sweep(text: str, options: Options) -> tuple[str, list[object]]:
    """The name of the option to vary, and its values."""
    name, _, values = text.partition("=")
    variable = [key for key in options if key not in ("sweep", "as_csv", "bounds", "levels", "columns")]
    name = name.strip().lstrip("-").replace("-", "_")
    if name not in variable or not values:
        names = ", ".join(key.replace("_", "-") for key in variable)
        raise click.UsageError(f"--sweep must be NAME=V1,V2,... where NAME is one of {names}.")
    kind: Any = Count() if name in ("n", "d", "rows_per_person") else Value()
    sweep = click.Option(["--sweep"])
    return name, [kind.convert(value.strip(), sweep, None) for value in values.split(",")]


def _show_sweep(
    session: Session, kind: type[PrivateFit], options: Options, sweeps: list[tuple[str, list[object]]]
) -> None:
    """Print a table with a line for each combination of values."""
    from tqdm import tqdm

    names = [name for name, _ in sweeps]
    combinations = list(itertools.product(*(values for _, values in sweeps)))
    with tqdm(combinations, unit="plan", delay=2.0, leave=False, disable=True if session.json else None) as progress:
        plans = [_plan(kind, {**options, **dict(zip(names, values, strict=True))}) for values in progress]
    rows = []
    for values, fit_plan in zip(combinations, plans, strict=True):
        rows.append({**dict(zip(names, map(_text, values), strict=True)), **fit_plan.cells()})
    header = tuple(dict.fromkeys(key for row in rows for key in row))
    cells = [tuple(row.get(key, "") for key in header) for row in rows]
    document = {"plans": [fit_plan.to_dict() for fit_plan in plans]}
    if options["as_csv"]:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([header, *cells])
        session.result(document, text.getvalue().rstrip("\n"))
        return
    session.result(document, aligned(header, cells, left=()))


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


@click.group(cls=Models, build=build, run=run, subcommand_metavar="MODEL [OPTIONS]...")
def plan() -> None:
    """Choose every setting of a fit and predict its error. No data are read, nothing is spent.

    \b
    Examples:
      dpem plan linear-regression --n 8000 --d 6 --epsilon 1 --delta 1e-6
      dpem plan gaussian-mixture --n 1e5 --d 4 --delta 1e-6 --sweep epsilon=0.1,0.3,1
      dpem plan symmetric-mixture --n 4000 --d 1000 --epsilon 0.5 --delta 1e-4 --sparsity 10

    A fit follows its plan. If a plan is refused, so is the fit.
    """
