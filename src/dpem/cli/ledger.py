"""``dpem ledger``: open a dataset's budget, see what is left, read what was spent."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpem.cli.common import Exit, Session, aligned, refusing
from dpem.cli.options import (
    PATH,
    dataset_option,
    delta_option,
    epsilon_option,
    force_option,
    json_option,
    ledger_option,
    rows_per_person_option,
)

if TYPE_CHECKING:
    from dpem.privacy.ledger import Ledger
    from dpem.privacy.ledger_entries import Debit


@click.group(invoke_without_command=True, short_help="Budgets of datasets: open, show, history, export.")
@click.pass_context
def ledger(context: click.Context) -> None:
    """Budgets of datasets, kept in a file or a database, that every fit is charged to before it reads a row.

    \b
    Examples:
      dpem ledger open --ledger sqlite:///budget.db --dataset patients --epsilon 2 --delta 1e-4
      dpem ledger show --ledger sqlite:///budget.db
      dpem ledger history --ledger sqlite:///budget.db --dataset patients
      dpem ledger export --ledger sqlite:///budget.db --out book.html

    --ledger can be left out where the environment variable DPEM_LEDGER holds the URL. Keep passwords out of it, in
    the database's password file.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def found(url: str | None, dataset: str | None = None) -> Ledger:
    """The ledger at the URL, or a refusal."""
    from dpem.privacy.ledger import Ledger

    if not url:
        raise click.UsageError("Missing option '--ledger', and DPEM_LEDGER is not set.")
    with refusing(Exit.USAGE):
        return Ledger(url, dataset)


def where(book: Ledger) -> str:
    """The ledger's URL for people to read: without a password."""
    return book.where


@ledger.command("open")
@ledger_option
@click.option("--dataset", required=True, metavar="NAME", help="A name for the rows, such as patients.")
@epsilon_option
@delta_option
@rows_per_person_option
@json_option
@click.pass_obj
def open_dataset(
    session: Session, url: str | None, dataset: str, epsilon: float, delta: float, rows_per_person: int
) -> None:
    """Open a dataset with its total budget, once and for all. A ledger that is not there yet is created.

    \b
    Example:
      dpem ledger open --ledger sqlite:///budget.db --dataset patients --epsilon 2 --delta 1e-4

    With --rows-per-person the total counts all rows of a person together, and fits that protect fewer are refused.
    """
    book = found(url)
    with refusing(Exit.USAGE):
        book.open(dataset, epsilon, delta, rows_per_person=rows_per_person)
    total = {"epsilon": epsilon, "delta": delta, "rows_per_person": rows_per_person}
    counts = "" if rows_per_person == 1 else f" for a person with up to {rows_per_person} rows"
    session.result(
        {"ledger": where(book), "dataset": dataset, **total},
        f"Opened {dataset} with epsilon = {epsilon:g}, delta = {delta:g}{counts} in {where(book)}.",
    )


@ledger.command()
@ledger_option
@dataset_option
@json_option
@click.pass_obj
def show(session: Session, url: str | None, dataset: str | None) -> None:
    """Every dataset, or one: its total, what is spent and what is left.

    \b
    Example:
      dpem ledger show --ledger sqlite:///budget.db

    "left" is the largest epsilon that one more fit could ask for at the dataset's delta; at a smaller delta it may
    be more.
    """
    book = found(url)
    with refusing(Exit.USAGE):
        states = book.datasets() if dataset is None else [book.state(dataset)]
    header = ("dataset", "epsilon", "delta", "rows/person", "spent", "left", "fits", "opened")
    rows = [
        (
            s.name,
            f"{s.epsilon:g}",
            f"{s.delta:g}",
            f"{s.rows_per_person}",
            f"{s.spent_epsilon:.4g}",
            f"{s.left:.4g}",
            f"{s.n_charges}",
            _day(s.opened),
        )
        for s in states
    ]
    document = {"ledger": where(book), "datasets": [_plain(s) for s in states]}
    session.result(document, aligned(header, rows) if rows else f"{where(book)} holds no dataset yet.")


@ledger.command()
@ledger_option
@dataset_option
@json_option
@click.pass_obj
def history(session: Session, url: str | None, dataset: str | None) -> None:
    """Every fit that was charged, oldest first, of one dataset or of all.

    \b
    Example:
      dpem ledger history --ledger sqlite:///budget.db --dataset patients

    The outcome is "answered", "failed", or "no answer" for a fit that has not said how it ended. All three were
    charged. "model" begins the fingerprint of the model that a fit became, which its file and its report have too. Fits
    that were refused are in the JSON, and in dpem ledger export.
    """
    book = found(url)
    with refusing(Exit.USAGE):
        names = [s.name for s in book.datasets()] if dataset is None else [dataset]
        debits = sorted((debit for name in names for debit in book.history(name)), key=lambda debit: debit.id)
        refused = [refusal for name in names for refusal in book.refusals(name)]
    header = ("dataset", "time", "epsilon", "delta", "outcome", "who", "purpose", "model")
    rows = [_line(debit) for debit in debits]
    text = aligned(header, rows, left=(0, 1, 4, 5, 6, 7)) if rows else "Nothing was charged yet."
    document = {"debits": [_plain(debit) for debit in debits], "refusals": [_plain(refusal) for refusal in refused]}
    session.result({"ledger": where(book), **document}, text)


@ledger.command()
@ledger_option
@dataset_option
@click.option("--out", required=True, type=PATH, metavar="FILE", help="A .csv of every entry, or a .html page to read.")
@click.option(
    "--models", type=PATH, metavar="FOLDER", help="Where model files and reports are; that of --out if not given."
)
@force_option
@json_option
@click.pass_obj
def export(session: Session, url: str | None, dataset: str | None, out: str, models: str | None, force: bool) -> None:
    """Write the book of one dataset or of all: every fit that was charged or refused, by whom and for what, and what is
    left. On the page a fit whose file is in the folder of --models has its statement, its fit check and links; files
    are told by their fingerprints, whatever they are called.

    \b
    Examples:
      dpem ledger export --ledger sqlite:///budget.db --dataset patients --out patients.html
      dpem ledger export --ledger sqlite:///budget.db --out book.csv
    """
    from dpem._files import write_text
    from dpem.cli import book, outputs
    from dpem.report.book import Account, dataset_page

    if not out.lower().endswith((".csv", ".html")):
        raise click.UsageError(f"--out must end in .csv or .html; got {out!r}.")
    folder = Path(out).parent if models is None else Path(models)
    if models is not None and not folder.is_dir():
        raise click.UsageError(f"--models must be a folder; got {models!r}.")
    outputs.check([out], [], force)
    kept = found(url)
    with refusing(Exit.USAGE):
        states = kept.datasets() if dataset is None else [kept.state(dataset)]
        accounts = [Account(state, kept.history(state.name), kept.refusals(state.name)) for state in states]
    if out.lower().endswith(".csv"):
        known, text = {}, book.as_csv(accounts)
    else:
        known = book.published(folder, out, [debit.model for account in accounts for debit in account.debits])
        text = dataset_page(where(kept), accounts, known)
    with refusing(Exit.OUTPUT):
        write_text(out, text)
    count = sum(len(account.debits) + len(account.refusals) for account in accounts)
    entries = f"{count} {'entry' if count == 1 else 'entries'}"
    beside = f", with {len(known)} model{'' if len(known) == 1 else 's'}" if known else ""
    said = f"Wrote {entries} of {len(accounts)} dataset(s){beside} to {out}."
    session.result({"out": out, "entries": count, "models": len(known)}, said)


def _line(debit: Debit) -> tuple[str, ...]:
    privacy = (f"{debit.epsilon:g}", f"{debit.delta:g}")
    model = debit.model.removeprefix("sha256:")[:12]
    return (debit.dataset, _day(debit.time), *privacy, debit.outcome, debit.who, debit.purpose, model)


def _day(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M")


def _plain(record: Any) -> dict[str, Any]:
    """A record of the ledger for machines."""
    return {key: value.isoformat() if isinstance(value, datetime) else value for key, value in asdict(record).items()}
