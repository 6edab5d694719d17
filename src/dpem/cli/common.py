"""What all commands share: exit statuses, errors of one sentence, and the two output streams.

Results go to standard output and everything else to standard error, one line each. With ``--json``, standard output has
one JSON object, for success and for failure, and standard error stays empty. No message quotes a row: those of the
library do not, and of an unexpected error only the type and the line of code are printed. Commands import the rest of
the package when they run, so that ``--help`` is fast.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

import click

from dpem._validation import Argument, ArgumentError


class Exit(IntEnum):
    """Exit statuses; in JSON their names in lower case are the kinds of errors."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    DATA = 3
    BUDGET = 4
    LEDGER = 5
    OUTPUT = 6
    PLAN = 7
    INTERRUPTED = 130


#: The values of a command's options, by name, as click converted them.
Options = dict[str, Any]
#: For ``dpem --help``. A backspace character keeps click from joining the lines.
EXIT_CODES = """\b
Exit status:
    0  done
    1  failed for another reason
    2  the command line is wrong
    3  the data or a model file was refused
    4  the budget does not allow it
    5  the ledger cannot be used
    6  the output cannot be written
    7  the plan predicts little more than noise
  130  interrupted
"""
#: The largest number of parameters or columns that are printed; the written file has all of them.
MOST_PRINTED = 20
#: Seconds after which a command says what it is doing.
PROGRESS_AFTER = 2.0
#: The effect of a failure on the budget, by :attr:`Session.charged`.
BUDGET_AFTER_FAILURE = {
    False: "Nothing was spent.",
    True: "The fit stays charged, and nothing was released.",
    None: "dpem ledger history shows whether it was charged.",
}


class Refused(Exception):
    """A refusal: an exit status and one sentence."""

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(message)
        self.code = code


class Group(click.Group):
    """A group that lists its commands in the order of their definition, suggests a similar name for an unknown one, and
    prints its help without a command.
    """

    #: The noun for a command of this group in messages.
    noun = "command"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            beginnings = [name for name in names if name.startswith(args[0])]
            similar = beginnings or difflib.get_close_matches(args[0], names, n=1)
            hint = f"did you mean {similar[0]}?" if similar else f"{self.noun}s are {', '.join(names)}."
            raise click.UsageError(f"There is no {self.noun} {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


@dataclass
class Session:
    """One run of a command: its output, and whether it has spent anything."""

    json: bool = False
    quiet: bool = False
    warnings: list[str] = field(default_factory=list)
    #: False: nothing was charged. True: charged. None: interrupted during the charge; the ledger shows which.
    charged: bool | None = False

    def say(self, text: str) -> None:
        """Print a line about progress on standard error."""
        if not self.json and not self.quiet:
            _echo(f"dpem: {text}", err=True)

    def warn(self, text: str) -> None:
        """Print a warning, once."""
        if text not in self.warnings:
            self.warnings.append(text)
            if not self.json:
                _echo(f"dpem: {_coloured('warning:', 'yellow')} {text}", err=True)

    def result(self, document: Mapping[str, object], text: str) -> None:
        """Print the result: the document with --json, otherwise the text."""
        if self.json:
            from dpem._json import plain

            text = json.dumps(plain({**document, "warnings": self.warnings}), indent=2, ensure_ascii=False)
        _echo(text)

    def fail(self, code: Exit, message: str) -> int:
        """Print why the command failed; return the exit status."""
        if self.json:
            error = {"code": int(code), "kind": code.name.lower(), "message": message, "charged": self.charged}
            _echo(json.dumps({"error": error, "warnings": self.warnings}, indent=2, ensure_ascii=False))
        else:
            _echo(f"dpem: {_coloured('error:', 'red')} {message}", err=True)
        return int(code)

    @contextmanager
    def print_warnings(self) -> Iterator[None]:
        """Print this package's warnings as lines; other packages' may depend on rows and are not shown."""

        def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
            if category is UserWarning or category.__module__.startswith("dpem."):
                self.warn(str(message).rstrip("."))

        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = show
            yield

    @contextmanager
    def notice(self, work: str) -> Iterator[None]:
        """Print the name of the work if it takes long."""
        timer = threading.Timer(PROGRESS_AFTER, self.say, [f"{work} ..."])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


@contextmanager
def refusals(code: Exit) -> Iterator[None]:
    """Raise a ValueError or OSError of the library as a refusal with this exit status."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        raise Refused(code, option_message(error)) from None


def option_message(error: Exception) -> str:
    """The message of an error of the library, with arguments written as options of the running command."""
    if not isinstance(error, ArgumentError):
        return str(error)
    context = click.get_current_context(silent=True)
    parameters = {} if context is None else {parameter.name: parameter for parameter in context.command.params}

    def option_text(argument: Argument) -> str:
        option = parameters.get(argument.name)
        return f"{option.opts[0]} {argument.value}".rstrip() if isinstance(option, click.Option) else str(argument)

    return error.render(option_text)


def unexpected_message(error: Exception) -> str:
    """A sentence about an unexpected error, without its own message, which may quote rows."""
    frames = list(traceback.extract_tb(error.__traceback__))
    frames = [frame for frame in frames if "dpem" in Path(frame.filename).parts] or frames
    where = f" at {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"this is a fault of dpem ({type(error).__name__}{where}); please report it."


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """A text table. The columns whose numbers are in ``left`` are aligned to the left, the others to the right.

    >>> print(aligned(("name", "left"), [("patients", "0.5"), ("x", "12")]))
    name      left
    patients   0.5
    x           12
    """
    columns = []
    for j, cells in enumerate(zip(header, *rows, strict=True)):
        width = max(map(len, cells))
        columns.append([cell.ljust(width) if j in left else cell.rjust(width) for cell in cells])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def first_lines(header: Sequence[str], rows: Sequence[Sequence[str]], out: str) -> list[str]:
    """The first rows of a table of results, and the name of the file that has the others."""
    more = [f"and {len(rows) - MOST_PRINTED} more in {out}"] if len(rows) > MOST_PRINTED else []
    return [aligned(header, rows[:MOST_PRINTED]), *more]


def _coloured(word: str, colour: str) -> str:
    """The word in a colour, if standard error is a terminal with colours."""
    has_colours = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    return click.style(word, fg=colour, bold=True) if has_colours else word


def _echo(text: str, *, err: bool = False) -> None:
    """Print the text; lone surrogates, which file names may contain, as escapes."""
    click.echo(text.encode("utf-8", "backslashreplace").decode("utf-8"), err=err)
