"""``dpem ledger``: open a dataset's budget, see what is left, read and verify what was spent."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpem.cli.common import Exit, Refused, Session, aligned, refusing
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
    from dpem.privacy.ledger_entries import FitEntry
    from dpem.privacy.ledger_policy import Policy


@click.group(invoke_without_command=True, short_help="Budgets of datasets: open, show, explain, verify, export.")
@click.pass_context
def ledger(context: click.Context) -> None:
    """Budgets of datasets, kept in a file or a database, that every fit is charged to before it reads a row.

    \b
    Examples:
      dpem ledger open --ledger sqlite:///budget.db --dataset patients --epsilon 2 --delta 1e-4
      dpem ledger show --ledger sqlite:///budget.db
      dpem ledger explain --ledger sqlite:///budget.db --dataset patients
      dpem ledger verify --ledger sqlite:///budget.db --models published/
      dpem ledger export --ledger sqlite:///budget.db --out ledger.html

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


@ledger.command("open")
@ledger_option
@click.option("--dataset", required=True, metavar="NAME", help="A name for the rows, such as patients.")
@epsilon_option
@delta_option
@rows_per_person_option
@click.option("--policy", type=PATH, metavar="FILE", help="Limits on each fit; dpem ledger policy says which.")
@json_option
@click.pass_obj
def open_dataset(
    session: Session,
    url: str | None,
    dataset: str,
    epsilon: float,
    delta: float,
    rows_per_person: int,
    policy: str | None,
) -> None:
    """Open a dataset with its total budget, once and for all. A ledger that is not there yet is created.

    \b
    Example:
      dpem ledger open --ledger sqlite:///budget.db --dataset patients --epsilon 2 --delta 1e-4

    With --rows-per-person the total counts all rows of a person together, and fits that protect fewer are refused.
    """
    kept = found(url)
    with refusing(Exit.USAGE):
        limits = None if policy is None else _policy(policy)
        kept.open(dataset, epsilon, delta, rows_per_person=rows_per_person, policy=limits)
    total = {"epsilon": epsilon, "delta": delta, "rows_per_person": rows_per_person}
    counts = "" if rows_per_person == 1 else f" for a person with up to {rows_per_person} rows"
    session.result(
        {"ledger": kept.where, "dataset": dataset, **total},
        f"Opened {dataset} with epsilon = {epsilon:g}, delta = {delta:g}{counts} in {kept.where}.",
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

    "left" is the largest epsilon that one more fit may use at the dataset's delta. dpem ledger explain shows how fits
    add up.
    """
    kept = found(url)
    with refusing(Exit.USAGE):
        states = kept.datasets() if dataset is None else [kept.state(dataset)]
    header = ("dataset", "epsilon", "delta", "rows/person", "spent", "left", "fits", "opened")
    rows = [
        (
            s.name,
            f"{s.epsilon:g}",
            f"{s.delta:g}",
            f"{s.rows_per_person}",
            s.spent_shown,
            s.left_shown,
            f"{s.n_charges}",
            _day(s.opened),
        )
        for s in states
    ]
    document = {"ledger": kept.where, "datasets": [_plain(s) for s in states]}
    session.result(document, aligned(header, rows) if rows else f"{kept.where} holds no dataset yet.")


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
    kept = found(url)
    with refusing(Exit.USAGE):
        names = [s.name for s in kept.datasets()] if dataset is None else [dataset]
        fits = sorted((fit for name in names for fit in kept.history(name)), key=lambda fit: fit.time)
        refused = [refusal for name in names for refusal in kept.refusals(name)]
    header = ("dataset", "time", "epsilon", "delta", "outcome", "who", "purpose", "model")
    rows = [_line(fit) for fit in fits]
    text = aligned(header, rows, left=(0, 1, 4, 5, 6, 7)) if rows else "Nothing was charged yet."
    document = {"fits": [_plain(fit) for fit in fits], "refusals": [_plain(refusal) for refusal in refused]}
    session.result({"ledger": kept.where, **document}, text)


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
    """Write down one dataset or all: every fit that was charged or refused, by whom and for what, what is left, and the
    head of each chain. On the page a fit whose file is in the folder of --models has its fit check and links; files
    are recognised by their fingerprints, whatever they are called.

    \b
    Examples:
      dpem ledger export --ledger sqlite:///budget.db --dataset patients --out patients.html
      dpem ledger export --ledger sqlite:///budget.db --out ledger.csv
    """
    from dpem._files import write_text
    from dpem.cli import ledger_files, outputs
    from dpem.report.ledger_page import ledger_page

    if not out.lower().endswith((".csv", ".html")):
        raise click.UsageError(f"--out must end in .csv or .html; got {out!r}.")
    folder = Path(out).parent if models is None else Path(models)
    if models is not None and not folder.is_dir():
        raise click.UsageError(f"--models must be a folder; got {models!r}.")
    outputs.check([out], [], force)
    kept = found(url)
    with refusing(Exit.USAGE):
        shown = [kept.entries(name) for name in (kept.names() if dataset is None else [dataset])]
    if out.lower().endswith(".csv"):
        known, text = {}, ledger_files.as_csv(shown)
    else:
        known = ledger_files.published(folder, out, [fit.model for one in shown for fit in one.fits])
        text = ledger_page(kept.where, shown, known)
    with refusing(Exit.OUTPUT):
        write_text(out, text)
    count = sum(len(one.fits) + len(one.refusals) for one in shown)
    entries = f"{count} {'entry' if count == 1 else 'entries'}"
    beside = f", with {len(known)} model{'' if len(known) == 1 else 's'}" if known else ""
    heads = {one.name: one.state.head for one in shown}
    lines = [f"Wrote {entries} of {len(shown)} dataset(s){beside} to {out}."]
    lines += [f"Head of {name}: {head}" for name, head in heads.items()]
    session.result({"out": out, "entries": count, "models": len(known), "heads": heads}, "\n".join(lines))


@ledger.command()
@ledger_option
@dataset_option
@json_option
@click.pass_obj
def explain(session: Session, url: str | None, dataset: str | None) -> None:
    """How the fits of a dataset add up, line by line, in numbers that can be recomputed by hand.

    \b
    Example:
      dpem ledger explain --ledger sqlite:///budget.db --dataset patients
    """
    kept = found(url)
    with refusing(Exit.USAGE):
        states = kept.datasets() if dataset is None else [kept.state(dataset)]
    lines = [line for s in states for line in (f"{s.name}:", *(f"  {line}" for line in s.explained))]
    document = {"ledger": kept.where, "datasets": {s.name: list(s.explained) for s in states}}
    session.result(document, "\n".join(lines) or f"{kept.where} holds no dataset yet.")


@ledger.command()
@ledger_option
@dataset_option
@click.option("--head", "heads", multiple=True, metavar="DIGEST", help="A head that was printed earlier.")
@click.option("--models", type=PATH, metavar="FOLDER", help="Model files and reports to check against the entries.")
@json_option
@click.pass_obj
def verify(session: Session, url: str | None, dataset: str | None, heads: tuple[str, ...], models: str | None) -> None:
    """Check that no entry was changed or removed. Exit status 0 if so, 5 if not, with what differs.

    \b
    Examples:
      dpem ledger verify --ledger sqlite:///budget.db --models published/
      dpem ledger verify --ledger sqlite:///budget.db --dataset patients --head sha256:0f3a...

    Each entry holds the digest of the one before it. Whoever administers the database can compute all digests again:
    only a head kept elsewhere shows that. Every report and export prints one; --models reads those of a folder.
    """
    from dpem.cli import ledger_files

    kept = found(url)
    with refusing(Exit.USAGE):
        printed = {} if models is None else ledger_files.printed_heads(Path(models), dataset)
        checks = kept.verify(dataset, [*heads, *printed])
    faults = {check.dataset: list(check.faults) for check in checks}
    for head, name in printed.items():
        faults = {key: [fault.replace(head, f"{head} of {name}") for fault in own] for key, own in faults.items()}
    if models is not None and not any(faults.values()):
        for check in filter(lambda check: check.n_entries, checks):
            faults[check.dataset] += ledger_files.differing_models(Path(models), kept.history(check.dataset))
    lines = [
        f"{c.dataset or 'ledger'}: {'; '.join(faults[c.dataset])}."
        if faults[c.dataset]
        else f"{c.dataset or 'ledger'}: {c.n_entries} entries are as they were written, head {c.head or 'none'}."
        for c in checks
    ]
    if any(faults.values()):
        raise Refused(Exit.LEDGER, " ".join(line for line, c in zip(lines, checks, strict=True) if faults[c.dataset]))
    heads_now = {c.dataset: c.head for c in checks}
    session.result({"ledger": kept.where, "heads": heads_now, "checked": len(heads) + len(printed)}, "\n".join(lines))


@ledger.command()
@ledger_option
@click.option("--dataset", required=True, metavar="NAME", help="The dataset that the policy is for.")
@click.option("--file", "file", required=True, type=PATH, metavar="FILE", help="The policy, a .toml or .json file.")
@json_option
@click.pass_obj
def policy(session: Session, url: str | None, dataset: str, file: str) -> None:
    """Put limits on each later fit of a dataset. A fit beyond them is refused before it is charged, and noted.

    \b
    Example:
      dpem ledger policy --ledger sqlite:///budget.db --dataset patients --file policy.toml

    \b
    A policy file, of which every line may be left out:
      largest_epsilon = 1.0
      smallest_n = 1000
      models = ["linear-regression", "gaussian-mixture"]
      who = ["ann", "bob"]
    """
    kept = found(url)
    with refusing(Exit.USAGE):
        limits = _policy(file)
        kept.set_policy(limits, dataset)
    session.result({"dataset": dataset, "policy": limits.to_dict()}, f"The policy of {dataset} is in force.")


def _policy(path: str) -> Policy:
    """The policy that a file states."""
    import tomllib

    from dpem._files import read_text
    from dpem._json import parse_json
    from dpem.privacy.ledger_policy import Policy

    text = read_text(path, 10**6)
    try:
        stated = parse_json(text) if path.lower().endswith(".json") else tomllib.loads(text)
    except ValueError:
        raise ValueError(f"the policy {path!r} must be a .toml or .json file; it cannot be read as one.") from None
    if not isinstance(stated, dict):
        raise ValueError(f"the policy {path!r} must hold fields with names.")
    return Policy.from_dict(stated)


def _line(fit: FitEntry) -> tuple[str, ...]:
    privacy = (f"{fit.epsilon:g}", f"{fit.delta:g}")
    model = fit.model.removeprefix("sha256:")[:12]
    return (fit.dataset, _day(fit.time), *privacy, fit.outcome, fit.who, fit.purpose, model)


def _day(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M")


def _plain(record: Any) -> dict[str, Any]:
    """A record of the ledger for machines."""
    return {key: value.isoformat() if isinstance(value, datetime) else value for key, value in asdict(record).items()}
