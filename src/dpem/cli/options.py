"""Options of several commands, and the types of their values."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

#: A file or a folder; shells complete it.
PATH = click.Path()


class Count(click.ParamType):
    """A whole number; 1e6 and 1_000_000 are allowed."""

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
    """A number or a text, or several separated by commas."""

    name = "VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return tuple(value) if isinstance(value, list) else value
        parts = [_number(part.strip()) for part in value.split(",")]
        return tuple(parts) if len(parts) > 1 else parts[0]


class Names(click.ParamType):
    """Names separated by commas; one that contains a comma is put in double quotes."""

    name = "A,B,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        if isinstance(value, list) and all(isinstance(name, str) and name for name in value):
            return value
        names = [name.strip() for name in next(csv.reader([str(value)], skipinitialspace=True), [])]
        if not names or not all(names):
            self.fail("give names with commas between them, such as age,height.", param, ctx)
        return names


class Bounds(click.ParamType):
    """Two numbers, or a file with two numbers for each column; in a settings file also a table."""

    name = "LOW,HIGH|FILE"
    expected = "give two numbers such as 0,100, or a .json or .csv file."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return tuple(value) if isinstance(value, list) else value
        parts = [_number(part.strip()) for part in value.split(",")]
        if len(parts) == 2 and not any(isinstance(part, str) for part in parts):
            return tuple(parts)
        if value.lower().endswith((".json", ".csv")):
            return value
        self.fail(self.expected, param, ctx)


class Levels(click.Path):
    """A file of levels; in a settings file also a table."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if isinstance(value, dict) else super().convert(value, param, ctx)


class Pair(Bounds):
    """Two numbers."""

    name = "LOW,HIGH"
    expected = "give two numbers such as 0,100."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        pair = super().convert(value, param, ctx)
        return pair if isinstance(pair, tuple) and len(pair) == 2 else self.fail(self.expected, param, ctx)


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


epsilon = click.option("--epsilon", type=float, required=True, help="The privacy loss of one person, such as 1.")
delta = click.option(
    "--delta",
    type=float,
    required=True,
    help="The additive term of the guarantee, well below one over the number of rows.",
)
rows_per_person = click.option(
    "--rows-per-person",
    type=Count(),
    default=1,
    show_default=True,
    metavar="M",
    help="The largest number of rows of one person; all of them are protected together.",
)
json = click.option("--json", "as_json", is_flag=True, expose_value=False, help="Print one JSON object.")
ledger = click.option(
    "--ledger",
    "url",
    envvar="DPEM_LEDGER",
    metavar="URL",
    help="sqlite:///budget.db or postgresql://user@host/database; DPEM_LEDGER if not given.",
)
dataset = click.option("--dataset", metavar="NAME", help="The dataset's name in the ledger.")
purpose = click.option("--purpose", metavar="TEXT", default="", help="The purpose of the fit, for the ledger.")
scaler = click.option(
    "--scaler", type=PATH, metavar="FILE", help="A file of dpem scale, which centres and scales the columns."
)
force = click.option("--force", is_flag=True, help="Replace existing files.")
target = click.option("--target", metavar="COLUMN", help="The response.")
scheduler = click.option(
    "--scheduler", metavar="URL", help="tcp://host:port of the Dask cluster that reads DATA, a Parquet table."
)


def parameters_of(*options: Callable[[Any], Any]) -> list[click.Parameter]:
    """The parameters that these decorators add, in order."""

    def nothing() -> None: ...

    decorated: Any = combined(*options)(nothing)
    return list(reversed(getattr(decorated, "__click_params__", [])))


def combined(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in the order of the help text."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


#: The format of a text file.
text = combined(
    click.option("--sep", metavar="CHAR", help="The separator of a .csv; a comma if not given."),
    click.option("--decimal", metavar="CHAR", default=".", help="The decimal mark of a .csv; a point if not given."),
    click.option("--thousands", metavar="CHAR", help="The thousands separator of a .csv; none if not given."),
    click.option(
        "--encoding", metavar="NAME", default="utf-8", help="The encoding of a .csv: utf-8, cp1252, latin-1, ..."
    ),
)
#: The columns of a table and its format.
table = combined(
    click.option("--columns", type=Names(), help="Columns to use; all (but the target) if not given."),
    click.option("--exclude", type=Names(), help="Columns not to use, such as a name or a date."),
    click.option(
        "--person",
        metavar="NAME",
        help="The column that identifies the person of each row; the guarantee then protects a person.",
    ),
    text,
    click.option(
        "--strict", is_flag=True, help="Refuse a .csv with unreadable cells, and show them: this is not private."
    ),
)
