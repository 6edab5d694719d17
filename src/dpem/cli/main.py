"""The command ``dpem``: its subcommands, and the sentence and exit status of each failure."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from dpem._version import __version__
from dpem.cli.common import BUDGET_AFTER_FAILURE, EXIT_CODES, Exit, Group, Refused, Session, unexpected_message

#: The module and the description of each command, in the order of their use. Only the one that runs is imported.
COMMANDS = {
    "init": ("dpem.cli.init", "Write dpem.toml for a table: columns, and bounds to fill in."),
    "plan": ("dpem.cli.plan", "Plan a fit and predict its error, without data."),
    "planner": ("dpem.cli.pages", "Open the planner, a page in your browser."),
    "ledger": ("dpem.cli.ledger", "Budgets of datasets: open, show, explain, verify, export."),
    "fit": ("dpem.cli.fit", "Fit a model to a table under differential privacy."),
    "predict": ("dpem.cli.predict", "Apply a fitted model to new rows."),
    "report": ("dpem.cli.pages", "Write the report of a fitted model."),
    "scale": ("dpem.cli.scale", "Measure centres and spreads of columns privately, for --scaler."),
    "demo": ("dpem.cli.pages", "Fit a regression and latent classes to a public table."),
    "audit": ("dpem.cli.audit", "Test a model's claimed epsilon by replays and repeated fits."),
    "doctor": ("dpem.cli.doctor", "Show installed versions and whether the ledger can be read."),
}


class Root(Group):
    """The group of all commands, which prints each failure as one sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, description) for name, (_, description) in COMMANDS.items()])

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        arguments = list(sys.argv[1:] if args is None else args)
        session = Session(json="--json" in arguments)
        with session.print_warnings():
            code = self._exit_status(arguments, session, extra)
        sys.exit(code)

    def _exit_status(self, arguments: list[str], session: Session, extra: dict[str, Any]) -> int:
        try:
            status = super().main(arguments, "dpem", **extra, standalone_mode=False, obj=session)
            return status if isinstance(status, int) else 0
        except Refused as error:
            return session.fail(error.code, str(error))
        except click.UsageError as error:
            return session.fail(Exit.USAGE, _usage_message(error))
        except (click.Abort, KeyboardInterrupt):
            outcome = BUDGET_AFTER_FAILURE[session.charged]
            return session.fail(Exit.INTERRUPTED, f"interrupted; {outcome[0].lower()}{outcome[1:]}")
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return int(Exit.FAILED)
        except MemoryError:
            message = "there is not enough memory for these rows; a Parquet file is read in parts."
            return session.fail(Exit.FAILED, f"{message} {BUDGET_AFTER_FAILURE[session.charged]}")
        except Exception as error:
            return session.fail(*_failure(error))


def _usage_message(error: click.UsageError) -> str:
    """One sentence about a wrong command line, and where its help is."""
    command = error.ctx.command_path if error.ctx else "dpem"
    if isinstance(error, click.NoSuchOption):
        return _unknown_option(error, command)
    if isinstance(error, click.MissingParameter):
        message = _missing(error)
    elif isinstance(error, click.BadParameter) and error.param is not None:
        colon = "" if error.message.startswith("must ") else ":"
        message = f"{_written_name(error.param)}{colon} {error.message}"
    else:
        message = error.format_message().split("\n")[0]
    return f"{message.rstrip('.')} ({command} --help shows examples)."


def _written_name(parameter: click.Parameter) -> str:
    """An option or an argument as the command line has it."""
    is_option = isinstance(parameter, click.Option)
    return parameter.opts[0] if is_option else parameter.metavar or str(parameter.name).upper()


def _missing(error: click.MissingParameter) -> str:
    """All missing options, and the settings file if it may have them."""
    from dpem.cli.settings import KEYS, NAME

    context = error.ctx or click.get_current_context()
    values = {**(context.default_map or {}), **context.params}  # settings, then the options that were read so far
    missing = [p for p in context.command.params if p.required and values.get(str(p.name)) is None]
    *others, last = map(_written_name, missing)
    names = f"{', '.join(others)} and {last}" if others else last
    has_settings = context.command_path.split()[1:2] in (["fit"], ["plan"])
    where = f", here or in {NAME}" if has_settings and all(p.name in KEYS.values() for p in missing) else ""
    return f"{names} must be given{where}"


def _unknown_option(error: click.NoSuchOption, command: str) -> str:
    name = error.option_name
    if any(name in parameter.opts for parameter in cli.params):
        return f"{name} stands before the command, as in dpem {name} … {command[5:]}."
    if command == "dpem":
        return f"There is no option {name!r} here; options follow the command's name (dpem --help)."
    similar = difflib.get_close_matches(name, error.possibilities or (), n=1)
    hint = f"; did you mean {similar[0]}?" if similar else ""
    return f"There is no option {name!r}{hint} ({command} --help shows all)."


def _failure(error: Exception) -> tuple[Exit, str]:
    """The exit status and the message of an error that no command has handled."""
    from dpem.privacy.budget import BudgetExceeded
    from dpem.privacy.ledger_store import LedgerError

    if isinstance(error, BudgetExceeded):
        return Exit.BUDGET, str(error)
    if isinstance(error, LedgerError):
        return Exit.LEDGER, str(error)
    return Exit.FAILED, unexpected_message(error)


@click.group(
    cls=Root,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="dpem")
@click.option("-q", "--quiet", is_flag=True, help="Results, warnings and errors only.")
@click.option("--config", type=click.Path(), metavar="FILE", help="Settings; dpem.toml in this folder if not given.")
@click.pass_context
def cli(context: click.Context, quiet: bool, config: str | None) -> None:
    """Fit regressions and latent-variable models under differential privacy.

    \b
    A first session:
      dpem planner                                     # predicted errors, in a browser
      dpem init patients.csv                           # then fill in dpem.toml, the settings
      dpem ledger open --epsilon 2 --delta 1e-4        # once: the budget of all fits
      dpem fit linear-regression --dry-run             # the plan and the price of a fit
      dpem fit linear-regression --report report.html
      dpem ledger export --out patients.html           # one page about all fits
      dpem predict model.json new.csv --keep id --out predictions.csv

    Each command has --help with examples. --json gives one JSON object, for success and for failure. A shell completes
    commands, options and files after eval "$(_DPEM_COMPLETE=bash_source dpem)"; zsh and fish have their own source.
    """
    from dpem.cli.settings import defaults

    context.obj.quiet = quiet
    context.default_map = defaults(config, context.invoked_subcommand or "")


def main() -> NoReturn:
    cli.main()
