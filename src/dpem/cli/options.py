"""Options that several commands have, and the kinds of values they take."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

#: A file or a folder; shells complete it.
PATH = click.Path()


class Count(click.ParamType):
    """A whole number, which may be written 1e6 or 1_000_000."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = float(value)
            if number != int(number) or isinstance(value, bool):
                raise ValueError
            return int(value) if isinstance(value, int) or str(value).lstrip("-").isdigit() else int(number)
        except (TypeError, ValueError, OverflowError):
            self.fail(f"{value!r} is not a whole number.", param, ctx)


class Value(click.ParamType):
    """A number if it is one, a list of numbers with commas, or else a word."""

    name = "VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return tuple(value) if isinstance(value, list) else value
        parts = [_number(part.strip()) for part in value.split(",")]
        if len(parts) > 1 and not any(isinstance(part, str) for part in parts):
            return tuple(parts)
        return _number(value)


class Names(click.ParamType):
    """Names with commas between them; one that holds a comma stands in double quotes."""

    name = "A,B,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        if isinstance(value, list) and all(isinstance(name, str) and name for name in value):
            return value
        found = [name.strip() for name in next(csv.reader([str(value)], skipinitialspace=True), [])]
        if not found or not all(found):
            self.fail("give names with commas between them, such as age,height.", param, ctx)
        return found


class Bounds(click.ParamType):
    """Two numbers, or a file of them by column; of a settings file also a table."""

    name = "LOW,HIGH|FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return tuple(value) if isinstance(value, list) else value
        parts = [_number(part.strip()) for part in value.split(",")]
        if len(parts) == 2 and not any(isinstance(part, str) for part in parts):
            return tuple(parts)
        if value.lower().endswith((".json", ".yaml", ".yml", ".csv")):
            return value
        self.fail("give two numbers such as 0,100, or a .json, .yaml or .csv file.", param, ctx)


class Levels(click.Path):
    """A file of levels; of a settings file also a table."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if isinstance(value, dict) else super().convert(value, param, ctx)


class Pair(Bounds):
    """Two numbers."""

    name = "LOW,HIGH"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not isinstance(found, tuple) or len(found) != 2:
            self.fail("give two numbers such as 0,100.", param, ctx)
        return found


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


epsilon_option = click.option("--epsilon", type=float, required=True, help="Privacy loss of one person, such as 1.")
delta_option = click.option(
    "--delta", type=float, required=True, help="Additive term of the guarantee: well below one over the number of rows."
)
rows_per_person_option = click.option(
    "--rows-per-person",
    type=Count(),
    default=1,
    show_default=True,
    metavar="M",
    help="The most rows that one person has: all of them are protected together.",
)
json_option = click.option("--json", "as_json", is_flag=True, expose_value=False, help="One JSON object, for machines.")
ledger_option = click.option(
    "--ledger",
    "url",
    envvar="DPEM_LEDGER",
    metavar="URL",
    help="sqlite:///budget.db or postgresql://user@host/database; DPEM_LEDGER if not given.",
)
dataset_option = click.option("--dataset", metavar="NAME", help="The dataset's name in the ledger.")
purpose_option = click.option("--purpose", metavar="TEXT", default="", help="What it is for; the ledger keeps it.")
scaler_option = click.option(
    "--scaler", type=PATH, metavar="FILE", help="Centre and scale columns by what dpem scale wrote."
)
force_option = click.option("--force", is_flag=True, help="Replace files that are there already.")
target_option = click.option("--target", metavar="COLUMN", help="The response.")
scheduler_option = click.option(
    "--scheduler", metavar="URL", help="tcp://host:port of a Dask cluster that reads the Parquet DATA."
)


def parameters_of(*options: Callable[[Any], Any]) -> list[click.Parameter]:
    """The parameters that decorators would add, in their order."""

    def nothing() -> None: ...

    decorated: Any = stacked(*options)(nothing)
    return list(reversed(getattr(decorated, "__click_params__", [])))


def stacked(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in the order in which help shows them."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


#: How a text file is written.
text_options = stacked(
    click.option("--sep", metavar="CHAR", help="What stands between the entries of a .csv; a comma if not given."),
    click.option("--decimal", metavar="CHAR", default=".", help="What stands before decimals in a .csv: a point."),
    click.option("--thousands", metavar="CHAR", help="What stands between thousands in a .csv: nothing."),
    click.option("--encoding", metavar="NAME", default="utf-8", help="Of a .csv: utf-8, cp1252, latin-1, ..."),
)
#: How a table is read.
table_options = stacked(
    click.option("--columns", type=Names(), help="Columns to use; all (but the target) if not given."),
    click.option("--exclude", type=Names(), help="Columns not to use, such as a name or a date."),
    click.option("--person", metavar="NAME", help="The column that says whose row it is: the unit is then a person."),
    text_options,
    click.option("--strict", is_flag=True, help="Look at a .csv and refuse unreadable cells; not private."),
)
