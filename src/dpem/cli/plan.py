"""``dpem plan MODEL``: print the steps of a fit and its predicted error, without data."""

from __future__ import annotations

import csv
import inspect
import io
import itertools
import math
from typing import TYPE_CHECKING

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
    "--sweep", "Print a line for each value, such as epsilon=0.1,0.3,1.", str, multiple=True, metavar="NAME=V1,V2,..."
)
CSV = click.Option(["--csv", "as_csv"], is_flag=True, help="Print the lines of a sweep as CSV.")


def build(name: str, model_class: type[PrivateFit]) -> tuple[Sections, str]:
    """The options and the help of the command that plans a model."""
    arguments = inspect.signature(model_class).parameters
    target = [shared.target] if model_class._needs_y else []
    effect = [EFFECT] if "effect" in inspect.signature(model_class.plan).parameters else []
    sections: Sections = {
        "Privacy": (EPSILON, shared.delta, shared.rows_per_person),
        "Table": (*SIZES, *target, *(option for key, option in shared.declared.items() if key in arguments)),
        "Model": (*model_options(model_class), *effect),
        "Output": (SWEEP, CSV, shared.json),
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


def run(session: Session, name: str, model_class: type[PrivateFit], options: Options) -> None:
    """Print one plan, or a line for each plan of a sweep."""
    sweeps = dict(_sweep(text, options) for text in options["sweep"])
    if options["epsilon"] is None and "epsilon" not in sweeps:
        raise click.UsageError("--epsilon must be given, or --sweep epsilon=0.1,0.3,1.")
    if options["as_csv"] and not sweeps:
        raise click.UsageError("--csv needs --sweep: a single plan is not a table.")
    if sweeps:
        _print_sweep(session, model_class, options, sweeps)
        return
    with session.notice("choosing settings"):
        fit_plan = _plan(model_class, options)
    session.result(fit_plan.to_dict(), wrap(fit_plan))


def _plan(model_class: type[PrivateFit], options: Options) -> Plan:
    if options["epsilon"] == math.inf:
        raise Refused(Exit.USAGE, "--epsilon must be finite: only private fits are planned.")
    arguments = constructor_arguments(model_class, options)
    if options["d"] is not None and "bounds" in options:  # --d takes precedence over names in a settings file
        arguments |= {name: None for name in ("bounds", "levels") if name in arguments and is_from_settings(name)}
    if isinstance(arguments.get("levels"), str):
        from dpem.cli import files

        arguments["levels"] = files.levels(arguments["levels"])
    effect = {"effect": options["effect"]} if "effect" in options else {}
    with refusals(Exit.USAGE):
        return model_class(**arguments).plan(
            options["n"], options["d"], columns=options["columns"], target=options.get("target"), **effect
        )


def _sweep(text: str, options: Options) -> tuple[str, list[object]]:
    """The name of the option to vary, and its values."""
    name, _, values = text.partition("=")
    variable = [key for key in options if key not in ("sweep", "as_csv", "bounds", "levels", "columns")]
    name = name.strip().lstrip("-").replace("-", "_")
    if name not in variable or not values:
        names = ", ".join(key.replace("_", "-") for key in variable)
        raise click.UsageError(f"--sweep must be NAME=V1,V2,... where NAME is one of {names}.")
    kind: click.ParamType = Count() if name in ("n", "d", "rows_per_person") else Value()
    return name, [kind.convert(value.strip(), SWEEP, None) for value in values.split(",")]


def _print_sweep(
    session: Session, model_class: type[PrivateFit], options: Options, sweeps: dict[str, list[object]]
) -> None:
    """Print a table with a line for each combination of values."""
    from tqdm import tqdm

    combinations = [dict(zip(sweeps, values, strict=True)) for values in itertools.product(*sweeps.values())]
    with tqdm(combinations, unit="plan", delay=2.0, leave=False, disable=True if session.json else None) as progress:
        plans = [_plan(model_class, {**options, **values}) for values in progress]
    rows = [
        {**{name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in values.items()}, **cells}
        for values, cells in zip(combinations, (fit_plan.cells() for fit_plan in plans), strict=True)
    ]
    header = tuple(dict.fromkeys(key for row in rows for key in row))
    cells = [tuple(row.get(key, "") for key in header) for row in rows]
    if options["as_csv"]:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows([header, *cells])
        text = buffer.getvalue().rstrip("\n")
    else:
        text = aligned(header, cells, left=())
    session.result({"plans": [fit_plan.to_dict() for fit_plan in plans]}, text)


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
