"""Files that go with a ledger: its entries as CSV, and the models and reports of a folder."""

from __future__ import annotations

import csv
import html
import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dpem._files import read_text
from dpem._validation import ArgumentError
from dpem.persistence import LARGEST_FILE, fingerprint, load_model
from dpem.privacy import digest
from dpem.privacy.ledger_entries import DatasetEntries, FitEntry, Refusal
from dpem.report.ledger_page import Published

_META = re.compile('<meta name="dpem-(model|dataset|head)" content="([^"]*)">')


def as_csv(datasets: Sequence[DatasetEntries]) -> str:
    """Every entry on a line of its own, oldest first within a dataset, with the digest of its entry in the chain."""
    names = [field.name for field in fields(FitEntry) if field.name not in ("id", "columns")]
    text = io.StringIO()
    rows = csv.DictWriter(text, ["entry", *names, "private", "reason", "entry_digest"], lineterminator="\n", restval="")
    rows.writeheader()
    for one in datasets:
        records: list[FitEntry | Refusal] = sorted((*one.fits, *one.refusals), key=lambda record: record.id)
        for record in records:
            line = {name: getattr(record, name) for name in (*names, "private", "reason") if hasattr(record, name)}
            line |= {"entry": "charged" if isinstance(record, FitEntry) else "refused", "time": record.time.isoformat()}
            line["entry_digest"] = one.chain[record.id - 1].digest
            rows.writerow({name: _safe(value) for name, value in line.items()})
    return text.getvalue()


def _safe(value: object) -> object:
    """Texts that a spreadsheet would run as formulas begin with a quote."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@" and value else value


def published(folder: Path, page: str, wanted: Sequence[str]) -> dict[str, Published]:
    """The models of a folder that have one of these fingerprints, and their reports, for a page at this place. What is
    no model, or another's, is passed over.
    """
    base, reports = Path(page).absolute().parent, {meta.get("model"): path for path, meta in _reports(folder)}
    found: dict[str, Published] = {}
    for path, model, own in _models(folder):
        if own in wanted:
            report = reports.get(own)
            found.setdefault(own, Published(model, _link(path, base), None if report is None else _link(report, base)))
    return found


def printed_heads(folder: Path, dataset: str | None) -> dict[str, str]:
    """The heads that the reports and ledger pages of a folder carry, of one dataset or of all, with their files."""
    if not folder.is_dir():
        raise ArgumentError("models", f"must be a folder; got {str(folder)!r}.")
    found = [(meta, path.name) for path, meta in _reports(folder) if dataset in (None, meta.get("dataset"))]
    return {meta["head"]: name for meta, name in found if "head" in meta}


def differing_models(folder: Path, fits: Sequence[FitEntry]) -> list[str]:
    """What the models of a folder contradict: a charge with the same fingerprint and another ε, δ, price or plan."""
    charged, found = {fit.model: fit for fit in fits if fit.model}, []
    for path, model, own in _models(folder):
        fit = charged.get(own)
        if fit is None:
            continue
        guarantee = model.guarantee_
        stated = (guarantee.epsilon, guarantee.delta, guarantee.price.rho)
        if stated != (fit.epsilon, fit.delta, fit.rho):
            found.append(f"entry {fit.id} does not have the epsilon, delta and price of its model {path.name}")
        elif fit.digest and fit.digest != digest(model.plan_.to_dict()):
            found.append(f"entry {fit.id} does not have the plan of its model {path.name}")
    return found


def _models(folder: Path) -> Iterator[tuple[Path, Any, str]]:
    """The models of a folder with their fingerprints."""
    for path in sorted(folder.glob("*.json")):
        try:
            model = load_model(path)
            own = fingerprint(model)
        except (ValueError, OSError):
            continue
        if hasattr(model, "_fit_summary"):
            yield path, model, own


def _reports(folder: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """The pages of a folder that dpem has written, with what their heads say."""
    for path in sorted(folder.glob("*.html")):
        try:
            page = read_text(path, LARGEST_FILE)
        except (ValueError, OSError):
            continue
        pairs = _META.findall(page.partition("</head>")[0])
        meta: dict[str, str] = {}
        for name, content in pairs:
            if name in meta:  # a ledger page names several datasets
                yield path, meta
                meta = {}
            meta[name] = html.unescape(content)
        if meta:
            yield path, meta


def _link(path: Path, base: Path) -> str:
    """How a page in ``base`` names a file: never a scheme, whatever the file is called."""
    return "./" + quote(Path(os.path.relpath(path.absolute(), base)).as_posix())
