"""Arguments and options of several commands, and the types of their values."""

from __future__ import annotations

import csv
from contextlib import suppress
from typing import Any

import click
from click import Option

#: A file or a folder; shells complete it.
PATH = click.Path()


class PathOrTable(click.Path):
    """A file; in a settings file also a table."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if isinstance(value, dict) else super().convert(value, param, ctx)


class Number(click.ParamType):
    """A number."""

    name = "NUMBER"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        with suppress(ValueError):
            return float(str(value))
        self.fail(f"must be a number, got {value!r}.", param, ctx)


class Count(click.ParamType):
    """A whole number; 1e6 and 1_000_000 are allowed."""

    name = "N"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = _number(str(value))
        if isinstance(number, int) or (isinstance(number, float) and number.is_integer()):
            return int(number)
        self.fail(f"must be a whole number, got {value!r}.", param, ctx)


class Value(click.ParamType):
    """A number or a text, or several separated by commas; a settings file also has lists."""

    name = "VALUE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return tuple(value) if isinstance(value, list) else value
        parts = tuple(_number(part.strip()) for part in value.split(","))
        return parts if len(parts) > 1 else parts[0]


class Names(click.ParamType):
    """Names separated by commas; one that contains a comma is put in double quotes."""

    name = "A,B,..."

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        if isinstance(value, list) and all(isinstance(name, str) and name for name in value):
            return value
        names = [name.strip() for name in next(csv.reader([str(value)], skipinitialspace=True), [])]
        if not names or not all(names):
            self.fail("must be names with commas between them, such as age,height.", param, ctx)
        return names


class Pair(Value):
    """Two numbers."""

    name = "LOW,HIGH"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        pair = super().convert(value, param, ctx)
        return pair if _is_pair(pair) else self.fail("must be two numbers such as 0,100.", param, ctx)


class Bounds(Value):
    """Two numbers, or a file with two numbers for each column; in a settings file also a table."""

    name = "LOW,HIGH|FILE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        bounds = super().convert(value, param, ctx)
        if not isinstance(value, str) or _is_pair(bounds):
            return bounds
        if value.lower().endswith((".json", ".csv")):
            return value
        self.fail("must be two numbers such as 0,100, or a .json or .csv file.", param, ctx)


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and not any(isinstance(part, str) for part in value)


def _number(text: str) -> int | float | str:
    """The text as a number if it is one."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def option(name: str, description: str, kind: click.ParamType | type | None = None, **more: Any) -> Option:
    """An option ``--name``; a flag if ``kind`` is bool, a file if it is :data:`PATH`."""
    if kind is bool:
        return Option([name], is_flag=True, help=description, **more)
    if kind is PATH:
        more = {"metavar": "FILE", **more}
    return Option([name], type=kind, help=description, show_default="default" in more, **more)


data = click.Argument(["data"], type=PATH)
epsilon = option("--epsilon", "The privacy loss of one person, such as 1.", Number(), required=True)
delta = option(
    "--delta", "The additive term of the guarantee, well below one over the number of rows.", Number(), required=True
)
rows_per_person = option(
    "--rows-per-person",
    "The largest number of rows of one person; all of them are protected together.",
    Count(),
    default=1,
    metavar="M",
)
#: The public facts about columns, by the arguments of estimators.
declared = {
    "bounds": option("--bounds", "The public bounds of every numeric column, or a file of them.", Bounds()),
    "y_bounds": option("--y-bounds", "The public bounds of the response.", Pair()),
    "levels": option(
        "--levels", "A .json file with the levels of each categorical column.", PathOrTable(), metavar="FILE"
    ),
}
json = Option(["--json", "as_json"], is_flag=True, expose_value=False, help="Print one JSON object.")
ledger = Option(
    ["--ledger", "url"],
    envvar="DPEM_LEDGER",
    metavar="URL",
    help="The ledger: sqlite:///budget.db or postgresql://user@host/database; DPEM_LEDGER if not given.",
)
dataset = option("--dataset", "The dataset's name in the ledger.", metavar="NAME")
purpose = Option(["--purpose"], metavar="TEXT", default="", help="The purpose of the fit, for ledger and report.")
scaler = option("--scaler", "A file of dpem scale, which centres and scales the columns.", PATH)
force = option("--force", "Replace existing files.", bool)
target = option("--target", "The response.", metavar="COLUMN")
dry_run = option("--dry-run", "Show the plan and the price; spend nothing, write nothing.", bool)

encoding = Option(
    ["--encoding"], metavar="NAME", default="utf-8", help="The encoding of a .csv: utf-8, cp1252, latin-1, ..."
)
#: The format of a text file.
text = (
    Option(["--sep"], metavar="CHAR", help="The separator of a .csv; a comma if not given."),
    Option(["--decimal"], metavar="CHAR", default=".", help="The decimal mark of a .csv; a point if not given."),
    Option(["--thousands"], metavar="CHAR", help="The thousands separator of a .csv; none if not given."),
    encoding,
)
#: The columns of a table and its format.
table = (
    option("--columns", "Columns to use; all (but the target) if not given.", Names()),
    option("--exclude", "Columns not to use, such as a name or a date.", Names()),
    option("--person", "The column that identifies the person of each row, who is then protected.", metavar="NAME"),
    *text,
)
