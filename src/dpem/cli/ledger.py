"""``dpem ledger``: open the budget of a dataset, show what is left, list and verify its charges."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpem.cli import options as shared
from dpem.cli.common import Exit, Group, Refused, Session, aligned, refusals
from dpem.cli.options import PATH, option

if TYPE_CHECKING:
    from dpem.privacy.ledger import Ledger
    from dpem.privacy.ledger_entries import DatasetState, Policy


@click.group(cls=Group)
def ledger() -> None:
    """Keep the budgets of datasets in a file or a database. Every fit is charged to its dataset before it reads a row.

    \b
    Examples:
      dpem ledger open --ledger sqlite:///budget.db --dataset patients --epsilon 2 --delta 1e-4
      dpem ledger show --ledger sqlite:///budget.db
      dpem ledger explain --ledger sqlite:///budget.db --dataset patients
      dpem ledger verify --ledger sqlite:///budget.db --models published/
      dpem ledger export --ledger sqlite:///budget.db --out ledger.html

    The environment variable DPEM_LEDGER may hold the URL in place of --ledger. Leave the password out of the URL: the
    database's password file has it.
    """


def open_ledger(url: str | None) -> Ledger:
    """The ledger at the URL; a usage error without a URL."""
    from dpem.privacy.ledger import Ledger

    if not url:
        raise click.UsageError("--ledger must be given, as DPEM_LEDGER is not set.")
    with refusals(Exit.USAGE):
        return Ledger(url)


def read(url: str | None, dataset: str | None) -> tuple[str, list[DatasetState]]:
    """The place of the ledger at the URL, and the state of one dataset or of all."""
    opened = open_ledger(url)
    with refusals(Exit.USAGE):
        names = opened.names() if dataset is None else [dataset]
        return opened.where, [opened.state(name) for name in names]


#: The options of the commands that show one dataset of a ledger, or all.
LEDGER_OPTIONS = (shared.ledger, shared.dataset, shared.json)


@ledger.command(
    "open",
    params=[
        shared.ledger,
        option("--dataset", "A name for the table, such as patients.", required=True, metavar="NAME"),
        *(shared.epsilon, shared.delta, shared.rows_per_person),
        option("--policy", "Limits on each fit, as in dpem ledger policy --help.", PATH),
        shared.json,
    ],
)
@click.pass_obj
def open_dataset(session: Session, /, url: str | None, dataset: str, policy: str | None, **total: Any) -> None:
    """Open a dataset with its total budget. A missing ledger is created.

    \b
    Example:
      dpem ledger open --ledger sqlite:///budget.db --dataset patients --epsilon 2 --delta 1e-4

    The total cannot be changed later. With --rows-per-person it protects all rows of a person together, and fits that
    protect fewer are refused.
    """
    opened = open_ledger(url)
    with refusals(Exit.USAGE):
        opened.open(dataset, **total, policy=None if policy is None else _policy(policy))
    rows = total["rows_per_person"]
    person = "" if rows == 1 else f" for a person with up to {rows} rows"
    budget = f"epsilon = {total['epsilon']:g}, delta = {total['delta']:g}{person}"
    document = {"ledger": opened.where, "dataset": dataset, **total}
    session.result(document, f"Opened {dataset} with {budget} in {opened.where}.")


@ledger.command(params=[*LEDGER_OPTIONS])
@click.pass_obj
def show(session: Session, url: str | None, dataset: str | None) -> None:
    """Show the total of every dataset, what is spent and what is left.

    \b
    Example:
      dpem ledger show --ledger sqlite:///budget.db

    "left" is the largest epsilon that one more fit may use at the dataset's delta. dpem ledger explain shows how fits
    add up.
    """
    where, datasets = read(url, dataset)
    header = ("dataset", "epsilon", "delta", "rows/person", "spent", "left", "fits", "opened")
    rows = []
    for state in datasets:
        total = (f"{state.total.epsilon:g}", f"{state.total.delta:g}", f"{state.total.rows_per_person}")
        spent = (state.spent_rounded, state.left_rounded, f"{len(state.fits)}")
        rows.append((state.name, *total, *spent, _minute(state.opened)))
    text = aligned(header, rows) if rows else f"{where} has no dataset yet."
    session.result({"ledger": where, "datasets": [state.to_dict() for state in datasets]}, text)


@ledger.command(params=[*LEDGER_OPTIONS])
@click.pass_obj
def history(session: Session, url: str | None, dataset: str | None) -> None:
    """List every charged fit, oldest first.

    \b
    Example:
      dpem ledger history --ledger sqlite:///budget.db --dataset patients

    The outcome is "answered", "failed", or "no answer" for a fit that recorded none. All three were charged. "model" is
    the beginning of the fitted model's fingerprint, which its file and its report state too. --json and dpem ledger
    export also list refused fits.
    """
    where, datasets = read(url, dataset)
    fits = sorted((fit for state in datasets for fit in state.fits), key=lambda fit: fit.time)
    header = ("dataset", "time", "epsilon", "delta", "outcome", "who", "purpose", "model")
    rows = []
    for fit in fits:
        origin = (fit.outcome, fit.who, fit.purpose, fit.model.removeprefix("sha256:")[:12])
        rows.append((fit.dataset, _minute(fit.time), f"{fit.epsilon:g}", f"{fit.delta:g}", *origin))
    text = aligned(header, rows, left=(0, 1, 4, 5, 6, 7)) if rows else "No fit has been charged."
    refused = [refusal for state in datasets for refusal in state.refusals]
    session.result({"ledger": where, "fits": fits, "refusals": refused}, text)


@ledger.command(params=[*LEDGER_OPTIONS])
@click.pass_obj
def explain(session: Session, url: str | None, dataset: str | None) -> None:
    """Show how fits add up, in numbers that you can recompute.

    \b
    Example:
      dpem ledger explain --ledger sqlite:///budget.db --dataset patients
    """
    where, datasets = read(url, dataset)
    explained = {state.name: state.explained for state in datasets}
    lines = [line for name, parts in explained.items() for line in (f"{name}:", *(f"  {part}" for part in parts))]
    session.result({"ledger": where, "datasets": explained}, "\n".join(lines) or f"{where} has no dataset yet.")


@ledger.command(
    params=[
        shared.ledger,
        option("--dataset", "The dataset that the policy is for.", required=True, metavar="NAME"),
        option("--file", "The policy, a .toml or .json file.", PATH, required=True),
        shared.json,
    ],
)
@click.pass_obj
def policy(session: Session, url: str | None, dataset: str, file: str) -> None:
    """Set limits on each later fit of a dataset.

    A fit beyond them is refused before the charge, and the refusal is recorded.

    \b
    Example:
      dpem ledger policy --ledger sqlite:///budget.db --dataset patients --file policy.toml

    \b
    A policy file; every line is optional:
      largest_epsilon = 1.0
      smallest_n = 1000
      models = ["linear-regression", "gaussian-mixture"]
      who = ["ann", "bob"]
    """
    opened = open_ledger(url)
    with refusals(Exit.USAGE):
        limits = _policy(file)
        opened.set_policy(limits, dataset)
    text = f"Each later fit of {dataset} must meet this policy."
    session.result({"dataset": dataset, "policy": limits.to_dict()}, text)


@ledger.command(
    params=[
        *(shared.ledger, shared.dataset),
        option("--out", "A .csv of every entry, or a .html page to read.", PATH, required=True),
        option("--models", "The folder of model files and reports; that of --out if not given.", metavar="FOLDER"),
        *(shared.force, shared.json),
    ],
)
@click.pass_obj
def export(session: Session, url: str | None, dataset: str | None, out: str, models: str | None, force: bool) -> None:
    """Export every charged or refused fit as CSV or as a page.

    Both have each fit's user and purpose, and the head of each dataset's chain. The page also shows what is left, and
    the fit checks of the models in the folder of --models, with links to their files, which it recognises by their
    fingerprints.

    \b
    Examples:
      dpem ledger export --ledger sqlite:///budget.db --dataset patients --out patients.html
      dpem ledger export --ledger sqlite:///budget.db --out ledger.csv
    """
    from dpem._files import write_text
    from dpem.cli import files, ledger_files
    from dpem.report.ledger_page import ledger_page

    is_csv = out.lower().endswith(".csv")
    if not is_csv and not out.lower().endswith(".html"):
        raise click.UsageError(f"--out must end in .csv or .html; got {out!r}.")
    if models is not None and not Path(models).is_dir():
        raise click.UsageError(f"--models must be a folder; got {models!r}.")
    files.check_outputs([out], [], force)
    where, datasets = read(url, dataset)
    fingerprints = [] if is_csv else [fit.model for state in datasets for fit in state.fits]
    published = ledger_files.published(Path(out).parent if models is None else Path(models), out, fingerprints)
    with refusals(Exit.OUTPUT):
        write_text(out, ledger_files.as_csv(datasets) if is_csv else ledger_page(where, datasets, published))
    entries = sum(len(state.fits) + len(state.refusals) for state in datasets)
    heads = {state.name: state.head for state in datasets}
    counts = f"{_count(entries, 'entry', 'entries')} of {_count(len(datasets), 'dataset')}"
    with_models = f", with {_count(len(published), 'model')}" if published else ""
    lines = [f"Wrote {counts}{with_models} to {out}.", *(f"Head of {name}: {head}" for name, head in heads.items())]
    session.result({"out": out, "entries": entries, "models": len(published), "heads": heads}, "\n".join(lines))


@ledger.command(
    params=[
        *(shared.ledger, shared.dataset),
        click.Option(["--head", "heads"], multiple=True, metavar="DIGEST", help="A head that was printed earlier."),
        option("--models", "Model files and reports to check against the entries.", PATH, metavar="FOLDER"),
        shared.json,
    ],
)
@click.pass_obj
def verify(session: Session, url: str | None, dataset: str | None, heads: tuple[str, ...], models: str | None) -> None:
    """Check that no entry was changed or removed.

    If one was, the command prints the differences and exits with status 5.

    \b
    Examples:
      dpem ledger verify --ledger sqlite:///budget.db --models published/
      dpem ledger verify --ledger sqlite:///budget.db --dataset patients --head sha256:0f3a...

    Each entry contains the digest of the entry before it. An administrator of the database can change an entry and
    recompute all digests; only a head that was stored elsewhere reveals that. Every report and export prints the head;
    --models reads the heads in a folder.
    """
    from dpem.cli import ledger_files

    opened = open_ledger(url)
    with refusals(Exit.USAGE):
        printed = {} if models is None else ledger_files.printed_heads(Path(models), dataset)
        checks = opened.verify(dataset, [*heads, *printed])
    faults = {check.dataset: list(check.faults) for check in checks}
    for head, file in printed.items():
        for name, sentences in faults.items():
            faults[name] = [sentence.replace(head, f"{head} of {file}") for sentence in sentences]
    if models is not None and not any(faults.values()):
        for name in (check.dataset for check in checks if check.n_entries):
            faults[name] = ledger_files.differing_models(Path(models), opened.history(name))
    wrong = [f"{name or 'ledger'}: {'; '.join(sentences)}." for name, sentences in faults.items() if sentences]
    if wrong:
        raise Refused(Exit.LEDGER, " ".join(wrong))
    intact = "{0}: no entry was changed or removed ({1.n_entries} in all), head {2}."
    lines = [intact.format(check.dataset or "ledger", check, check.head or "none") for check in checks]
    document = {"heads": {check.dataset: check.head for check in checks}, "checked": len(heads) + len(printed)}
    session.result({"ledger": opened.where, **document}, "\n".join(lines))


def _policy(path: str) -> Policy:
    import tomllib

    from dpem._files import read_text
    from dpem._json import parse_json
    from dpem.privacy.ledger_entries import Policy

    text = read_text(path, 10**6)
    try:
        limits = parse_json(text) if path.lower().endswith(".json") else tomllib.loads(text)
    except ValueError:
        raise ValueError(f"the policy {path!r} is not valid TOML or JSON.") from None
    if not isinstance(limits, dict):
        raise ValueError(f"the policy {path!r} must contain limits such as largest_epsilon = 1.")
    return Policy.from_dict(limits)


def _count(count: int, singular: str, plural: str = "") -> str:
    """A count in words.

    >>> _count(1, "dataset"), _count(2, "entry", "entries")
    ('1 dataset', '2 entries')
    """
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def _minute(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M")
