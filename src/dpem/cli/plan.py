"""``dpem plan MODEL``: what a fit would do and how well, before there are data."""

from __future__ import annotations

import csv
import inspect
import io
import itertools
from typing import Any

import click

from dpem.cli.common import Exit, Refused, Session, aligned, refusing
from dpem.cli.models import Models, given_to, model_options
from dpem.cli.options import (
    Count,
    Names,
    Value,
    delta_option,
    json_option,
    parameters_of,
    rows_per_person_option,
    target_option,
)
from dpem.cli.settings import is_a_setting

n_option = click.option("--n", type=Count(), required=True, metavar="N", help="Rows, such as 8000 or 1e6.")
d_option = click.option("--d", type=Count(), metavar="N", help="Columns, without the response.")
columns_option = click.option("--columns", type=Names(), help="Their names, where bounds or levels are by name.")
epsilon_option = click.option("--epsilon", type=float, help="Privacy loss of one person, such as 1.")
effect_option = click.option(
    "--effect", type=float, help="How strong effects are assumed to be, in the measure that the plan names."
)
sweep_option = click.option(
    "--sweep", multiple=True, metavar="NAME=V1,V2,...", help="One line for each value, such as epsilon=0.1,0.3,1."
)
csv_option = click.option("--csv", "as_csv", is_flag=True, help="The lines of a sweep as CSV.")


def build(name: str, kind: type[Any]) -> click.Command:
    """The subcommand of a model."""
    from dpem.cli.fit import bound_options

    known = inspect.signature(kind).parameters

    @click.pass_obj
    def run_it(session: Session, /, **asked: Any) -> None:
        run(session, kind, asked)

    parameters = [
        *parameters_of(n_option, d_option, columns_option, epsilon_option, delta_option, rows_per_person_option),
        *parameters_of(*(option for key, option in bound_options.items() if key in known)),
        *parameters_of(*([target_option] if kind._needs_y else [])),
        *model_options(kind, planning=True),
        *parameters_of(*([effect_option] if "effect" in inspect.signature(kind.plan).parameters else [])),
        *parameters_of(sweep_option, csv_option, json_option),
    ]
    text = f"""What a fit of {name} will ask, at what price, and what to expect of it. Nothing is read or spent.

    \b
    Examples:
      dpem plan {name} --n 8000 --d 6 --epsilon 1 --delta 1e-6
      dpem plan {name} --n 8000 --d 6 --delta 1e-6 --sweep epsilon=0.1,0.3,1
      dpem plan {name} --d 6 --delta 1e-6 --epsilon 1 --n 1e4 --sweep n=1e4,1e5 --csv

    What is assumed of the data is printed with the prediction. A wrong assumption costs accuracy, never privacy.
    """
    return click.Command(name, params=parameters, callback=run_it, help=inspect.cleandoc(text))


@click.group(cls=Models, build=build, subcommand_metavar="MODEL [OPTIONS]...")
def plan() -> None:
    """Choose every setting of a fit and predict how well it will do. No data are read, nothing is spent.

    \b
    Examples:
      dpem plan linear-regression --n 8000 --d 6 --epsilon 1 --delta 1e-6
      dpem plan gaussian-mixture --n 1e5 --d 4 --delta 1e-6 --sweep epsilon=0.1,0.3,1
      dpem plan symmetric-mixture --n 4000 --d 1000 --epsilon 0.5 --delta 1e-4 --sparsity 10

    A fit does what its plan says, and is refused where its plan is.
    """


def run(session: Session, kind: type[Any], asked: dict[str, Any]) -> None:
    """The whole command."""
    sweeps = [_sweep(text, asked) for text in asked["sweep"]]
    if asked["epsilon"] is None and not any(name == "epsilon" for name, _ in sweeps):
        raise click.UsageError("Give --epsilon, or --sweep epsilon=0.1,0.3,1.")
    if asked["as_csv"] and not sweeps:
        raise click.UsageError("--csv goes with --sweep.")
    if not sweeps:
        with session.waiting("choosing settings"):
            made = _plan(kind, asked)
        session.result(made.to_dict(), str(made))
        return
    _show_sweep(session, kind, asked, sweeps)


def _plan(kind: type[Any], asked: dict[str, Any]) -> Any:
    with refusing(Exit.USAGE):
        if asked["epsilon"] == float("inf"):
            raise Refused(Exit.USAGE, "--epsilon must be finite: the command plans private fits only.")
        arguments = given_to(kind, asked)
        if asked["d"] is not None and "bounds" in arguments:  # a number that is given wins over a settings file's names
            arguments |= {name: None for name in ("bounds", "levels") if name in arguments and is_a_setting(name)}
        if isinstance(arguments.get("levels"), str):
            from dpem.cli import inputs

            arguments["levels"] = inputs.levels(arguments["levels"])
        estimator = kind(**arguments)
        more = {"effect": asked["effect"]} if "effect" in asked else {}
        return estimator.plan(asked["n"], asked["d"], columns=asked["columns"], target=asked.get("target"), **more)


def _sweep(text: str, asked: dict[str, Any]) -> tuple[str, list[Any]]:
    """A name and its values; the name is an option's."""
    name, _, values = text.partition("=")
    known = [key for key in asked if key not in ("sweep", "as_csv", "bounds", "levels", "columns")]
    name = name.strip().lstrip("-").replace("-", "_")
    if name not in known or not values:
        shown = ", ".join(key.replace("_", "-") for key in known)
        raise click.UsageError(f"--sweep must be NAME=V1,V2 with commas between values; NAME is one of {shown}.")
    kind: Any = Count() if name in ("n", "d", "rows_per_person") else Value()
    return name, [kind.convert(value.strip(), None, None) for value in values.split(",")]


def _show_sweep(session: Session, kind: type[Any], asked: dict[str, Any], sweeps: list[tuple[str, list[Any]]]) -> None:
    """A small table, one line for each combination of values."""
    from tqdm import tqdm

    names = [name for name, _ in sweeps]
    every = list(itertools.product(*(values for _, values in sweeps)))
    with tqdm(every, unit="plan", delay=2.0, leave=False, disable=True if session.json else None) as each:
        plans = [(values, _plan(kind, {**asked, **dict(zip(names, values, strict=True))})) for values in each]
    rows = [{**dict(zip(names, map(_shown, values), strict=True)), **made.cells()} for values, made in plans]
    header = tuple(dict.fromkeys(key for row in rows for key in row))
    cells = [tuple(row.get(key, "") for key in header) for row in rows]
    document = {"plans": [made.to_dict() for _, made in plans]}
    if asked["as_csv"]:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([header, *cells])
        session.result(document, text.getvalue().rstrip("\n"))
        return
    session.result(document, aligned(header, cells, left=()))


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
