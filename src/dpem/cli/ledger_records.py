"""``dpem ledger export`` and ``dpem ledger verify``: the entries of a ledger as a file, and whether they are intact."""

from __future__ import annotations

from pathlib import Path

import click

from dpem.cli import options
from dpem.cli.common import Exit, Refused, Session, refusing
from dpem.cli.options import PATH


@click.command()
@options.ledger
@options.dataset
@click.option("--out", required=True, type=PATH, metavar="FILE", help="A .csv of every entry, or a .html page to read.")
@click.option(
    "--models", type=PATH, metavar="FOLDER", help="Where model files and reports are; that of --out if not given."
)
@options.force
@options.json
@click.pass_obj
def export(session: Session, url: str | None, dataset: str | None, out: str, models: str | None, force: bool) -> None:
    """Export one dataset or all: every charged or refused fit with its user and purpose, what is left, and the head of
    each chain. The page shows the fit check of models in the folder of --models, and links to their files, which are
    recognised by their fingerprints.

    \b
    Examples:
      dpem ledger export --ledger sqlite:///budget.db --dataset patients --out patients.html
      dpem ledger export --ledger sqlite:///budget.db --out ledger.csv
    """
    from dpem._files import write_text
    from dpem.cli import ledger_files, outputs
    from dpem.cli.ledger import open_ledger
    from dpem.report.ledger_page import ledger_page

    if not out.lower().endswith((".csv", ".html")):
        raise click.UsageError(f"--out must end in .csv or .html; got {out!r}.")
    folder = Path(out).parent if models is None else Path(models)
    if models is not None and not folder.is_dir():
        raise click.UsageError(f"--models must be a folder; got {models!r}.")
    outputs.check([out], [], force)
    opened = open_ledger(url)
    with refusing(Exit.USAGE):
        datasets = [opened.entries(name) for name in (opened.names() if dataset is None else [dataset])]
    if out.lower().endswith(".csv"):
        models_found, text = {}, ledger_files.as_csv(datasets)
    else:
        fingerprints = [fit.model for entries in datasets for fit in entries.fits]
        models_found = ledger_files.published(folder, out, fingerprints)
        text = ledger_page(opened.where, datasets, models_found)
    with refusing(Exit.OUTPUT):
        write_text(out, text)
    count = sum(len(entries.fits) + len(entries.refusals) for entries in datasets)
    what = f"{count} {'entry' if count == 1 else 'entries'} of {len(datasets)} dataset{'s' * (len(datasets) != 1)}"
    if models_found:
        what += f", with {len(models_found)} model{'' if len(models_found) == 1 else 's'}"
    heads = {entries.name: entries.state.head for entries in datasets}
    lines = [f"Wrote {what} to {out}."]
    lines += [f"Head of {name}: {head}" for name, head in heads.items()]
    session.result({"out": out, "entries": count, "models": len(models_found), "heads": heads}, "\n".join(lines))


@click.command()
@options.ledger
@options.dataset
@click.option("--head", "heads", multiple=True, metavar="DIGEST", help="A head that was printed earlier.")
@click.option("--models", type=PATH, metavar="FOLDER", help="Model files and reports to check against the entries.")
@options.json
@click.pass_obj
def verify(session: Session, url: str | None, dataset: str | None, heads: tuple[str, ...], models: str | None) -> None:
    """Check that no entry was changed or removed. The exit status is 0 if so; otherwise 5, with the differences.

    \b
    Examples:
      dpem ledger verify --ledger sqlite:///budget.db --models published/
      dpem ledger verify --ledger sqlite:///budget.db --dataset patients --head sha256:0f3a...

    Each entry has the digest of the entry before it. An administrator of the database can recompute all digests; only a
    head that was kept elsewhere reveals that. Every report and export prints one; --models reads those in a folder.
    """
    from dpem.cli import ledger_files
    from dpem.cli.ledger import open_ledger

    opened = open_ledger(url)
    with refusing(Exit.USAGE):
        printed = {} if models is None else ledger_files.printed_heads(Path(models), dataset)
        checks = opened.verify(dataset, [*heads, *printed])
    faults = {check.dataset: list(check.faults) for check in checks}
    for head, name in printed.items():
        for sentences in faults.values():
            sentences[:] = [sentence.replace(head, f"{head} of {name}") for sentence in sentences]
    if models is not None and not any(faults.values()):
        for check in checks:
            if check.n_entries:
                faults[check.dataset] += ledger_files.differing_models(Path(models), opened.history(check.dataset))
    wrong = [f"{name or 'ledger'}: {'; '.join(sentences)}." for name, sentences in faults.items() if sentences]
    if wrong:
        raise Refused(Exit.LEDGER, " ".join(wrong))
    lines = [
        f"{check.dataset or 'ledger'}: {check.n_entries} entries are as they were written, head {check.head or 'none'}."
        for check in checks
    ]
    document = {"heads": {check.dataset: check.head for check in checks}, "checked": len(heads) + len(printed)}
    session.result({"ledger": opened.where, **document}, "\n".join(lines))
