"""A ledger as an officer's book: one line for each entry, and the models and reports that go with the entries."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from dpem._files import read_text
from dpem.persistence import LARGEST_FILE, fingerprint, load_model
from dpem.privacy.ledger_entries import Debit
from dpem.report.book import Account, Published


def as_csv(accounts: Sequence[Account]) -> str:
    """Every entry on a line of its own, oldest first within a dataset."""
    names = [field.name for field in fields(Debit) if field.name != "id"]
    text = io.StringIO()
    rows = csv.DictWriter(text, ["entry", *names, "private", "reason"], lineterminator="\n", restval="")
    rows.writeheader()
    for account in accounts:
        entries: list[tuple[datetime, dict[str, object]]] = []
        for debit in account.debits:
            told = {name: getattr(debit, name) for name in names}
            entries.append((debit.time, {"entry": "charged", **told, "private": debit.private}))
        for refusal in account.refusals:
            told = {name: getattr(refusal, name) for name in names if hasattr(refusal, name)}
            entries.append((refusal.time, {"entry": "refused", **told, "reason": refusal.reason}))
        for time, entry in sorted(entries, key=lambda pair: pair[0]):
            rows.writerow({name: _safe(value) for name, value in {**entry, "time": time.isoformat()}.items()})
    return text.getvalue()


def _safe(value: object) -> object:
    """Texts that a spreadsheet would run as formulas begin with a quote."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@" and value else value


def published(folder: Path, page: str, wanted: Sequence[str]) -> dict[str, Published]:
    """The models of a folder that have one of these fingerprints, and their reports, for a page at this place. What is
    no model, or another's, is passed over.
    """
    missing, found = set(filter(None, wanted)), dict[str, Published]()
    base = Path(page).absolute().parent
    reports = _reports(folder, missing)
    for path in sorted(folder.glob("*.json")):
        try:
            model = load_model(path)
            own = fingerprint(model)
        except (ValueError, OSError):
            continue
        if own in missing and hasattr(model, "_told"):
            report = reports.get(own)
            found.setdefault(own, Published(model, _link(path, base), None if report is None else _link(report, base)))
    return found


def _reports(folder: Path, wanted: set[str]) -> dict[str, Path]:
    """Reports of a folder by the fingerprint that each ends with."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("*.html")):
        try:
            page = read_text(path, LARGEST_FILE)
        except (ValueError, OSError):
            continue
        if "<h2>How to cite</h2>" in page:
            last = page.rpartition("<h2>How to cite</h2>")[2]
            found |= {own: path for own in wanted if own in last and own not in found}
    return found


def _link(path: Path, base: Path) -> str:
    """How a page in ``base`` names a file: never a scheme, whatever the file is called."""
    return "./" + quote(Path(os.path.relpath(path.absolute(), base)).as_posix())
