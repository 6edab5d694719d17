"""The command and its subcommands, and how every failure becomes one sentence and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from dpem._version import __version__
from dpem.cli.audit import audit
from dpem.cli.common import ENDED, EXIT_CODES, Exit, Refused, Session, in_options, unforeseen
from dpem.cli.fit import fit
from dpem.cli.ledger import ledger
from dpem.cli.plan import plan
from dpem.cli.predict import predict
from dpem.cli.report import report
from dpem.cli.scale import scale


class Root(click.Group):
    """The group, with failures said as this command says them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of a session, not of the alphabet."""
        return list(self.commands)

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        arguments = list(sys.argv[1:] if args is None else args)
        session = Session(json="--json" in arguments)
        with session.showing_warnings():
            code = self._exit_status(arguments, session, extra)
        sys.exit(code)

    def _exit_status(self, arguments: list[str], session: Session, extra: dict[str, Any]) -> int:
        try:
            status = super().main(arguments, "dpem", **extra, standalone_mode=False, obj=session)
            return status if isinstance(status, int) else 0
        except Refused as error:
            return session.fail(error.code, str(error))
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else "dpem"
            said = error.format_message().rstrip(".").split("\n")[0]
            return session.fail(Exit.USAGE, f"{said} ({command} --help shows examples).")
        except (click.Abort, KeyboardInterrupt):
            return session.fail(Exit.INTERRUPTED, _interrupted(session))
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return int(Exit.FAILED)
        except MemoryError:
            said = "there is not enough memory for these rows; Parquet is read in parts."
            return session.fail(Exit.FAILED, f"{said} {ENDED[session.charged]}")
        except Exception as error:
            return session.fail(*_failure(error))


def _failure(error: Exception) -> tuple[Exit, str]:
    from dpem.privacy import BudgetExceeded, LedgerError

    if isinstance(error, BudgetExceeded):
        return Exit.BUDGET, in_options(str(error))
    if isinstance(error, LedgerError):
        return Exit.LEDGER, in_options(str(error))
    return Exit.FAILED, unforeseen(error)


def _interrupted(session: Session) -> str:
    if session.charged is None:
        return "interrupted while the fit was being charged; dpem ledger history shows whether it was."
    if session.charged:
        return "interrupted; the fit stays charged, and nothing was released."
    return "interrupted; nothing was spent."


@click.group(cls=Root, invoke_without_command=True, epilog=EXIT_CODES)
@click.version_option(__version__, prog_name="dpem")
@click.pass_context
def cli(context: click.Context) -> None:
    """Fit latent-variable models by EM under differential privacy.

    \b
    A first session:
      dpem plan symmetric-mixture --n 3000 --d 20 --epsilon 1 --delta 1e-5 --sparsity 2
      dpem ledger open --ledger sqlite:///budget.db --dataset patients --epsilon 2 --delta 1e-4
      dpem fit symmetric-mixture patients.csv --epsilon 1 --delta 1e-5 --sparsity 2 \\
          --ledger sqlite:///budget.db --dataset patients --report report.html
      dpem predict model.json new.csv --out components.csv

    Each command has --help with examples. --json gives one JSON object, for success and for failure.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (plan, ledger, scale, fit, predict, report, audit):
    cli.add_command(command)


def main() -> NoReturn:
    """The console script."""
    cli.main()
