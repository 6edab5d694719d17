"""The files beside a ledger: its entries as CSV, and the models and reports in a folder."""

from __future__ import annotations

import csv
import html
import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from urllib.parse import quote

from dpem._files import read_text
from dpem._validation import ArgumentError
from dpem.fitting.results import FittedModel
from dpem.persistence import LARGEST_FILE, fingerprint, load_model
from dpem.privacy import digest
from dpem.privacy.ledger_entries import DatasetState, FitEntry, Refusal
from dpem.report.ledger_page import PublishedModel

_META = re.compile('<meta name="dpem-(model|dataset|head)" content="([^"]*)">')


def as_csv(datasets: Sequence[DatasetState]) -> str:
    """A line for each entry, oldest first within a dataset, with its digest in the chain."""
    names = [field.name for field in fields(FitEntry) if field.name not in ("id", "columns")]
    text = io.StringIO()
    writer = csv.DictWriter(
        text, ["entry", *names, "private", "reason", "entry_digest"], lineterminator="\n", restval=""
    )
    writer.writeheader()
    for dataset in datasets:
        entries: list[FitEntry | Refusal] = sorted((*dataset.fits, *dataset.refusals), key=lambda entry: entry.id)
        for entry in entries:
            line = {name: getattr(entry, name) for name in (*names, "private", "reason") if hasattr(entry, name)}
            line |= {"entry": "charged" if isinstance(entry, FitEntry) else "refused", "time": entry.time.isoformat()}
            line["entry_digest"] = dataset.chain[entry.id - 1].digest
            writer.writerow({name: _safe(value) for name, value in line.items()})
    return text.getvalue()


def _safe(value: object) -> object:
    """The value, with a quote before a text that a spreadsheet would run as a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value


def published(folder: Path, page: str, fingerprints: Sequence[str]) -> dict[str, PublishedModel]:
    """The models in a folder with one of these fingerprints, and their reports, with links relative to ``page``."""
    base, reports = Path(page).absolute().parent, {meta.get("model"): path for path, meta in _reports(folder)}
    models: dict[str, PublishedModel] = {}
    for path, model in _models(folder):
        key = fingerprint(model)
        if key in fingerprints:
            report = reports.get(key)
            link = None if report is None else _link(report, base)
            models.setdefault(key, PublishedModel(model, _link(path, base), link))
    return models


def printed_heads(folder: Path, dataset: str | None) -> dict[str, str]:
    """The heads in the reports and ledger pages of a folder, of one dataset or of all, with their files' names."""
    if not folder.is_dir():
        raise ArgumentError("models", f"must be a folder; got {str(folder)!r}.")
    reports = [(path, meta) for path, meta in _reports(folder) if dataset in (None, meta.get("dataset"))]
    return {meta["head"]: path.name for path, meta in reports if "head" in meta}


def differing_models(folder: Path, fits: Sequence[FitEntry]) -> list[str]:
    """A sentence for each model file that was changed, or whose entry states another ε, δ, price or plan."""
    entries: dict[str, FitEntry] = {fit.model: fit for fit in fits if fit.model}
    faults: list[str] = []
    for path, model in _models(folder, faults):
        fit, guarantee = entries.get(fingerprint(model)), model.guarantee_
        if fit is None:
            continue
        if (guarantee.epsilon, guarantee.delta, guarantee.price.rho) != (fit.epsilon, fit.delta, fit.rho):
            faults.append(f"entry {fit.id} states another epsilon, delta or price than its model {path.name}")
        elif fit.digest and fit.digest != digest(model._charged_plan().to_dict()):
            faults.append(f"entry {fit.id} states another plan than its model {path.name}")
    return faults


def _models(folder: Path, faults: list[str] | None = None) -> Iterator[tuple[Path, FittedModel]]:
    """The models in a folder. The errors of model files that cannot be loaded are added to ``faults``; other files are
    skipped.
    """
    for path in sorted(folder.glob("*.json")):
        try:
            model = load_model(path)
        except (ValueError, OSError) as error:
            if faults is not None and '"dpem-model"' in path.read_text(encoding="utf-8", errors="replace")[:1000]:
                faults.append(str(error).removesuffix("."))
            continue
        if hasattr(model, "_fit_summary"):
            yield path, model


def _reports(folder: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """The pages of dpem in a folder, with the facts in their ``<meta>`` elements."""
    for path in sorted(folder.glob("*.html")):
        try:
            head = read_text(path, LARGEST_FILE).partition("</head>")[0]
        except (ValueError, OSError):
            continue
        meta: dict[str, str] = {}
        for name, content in _META.findall(head):
            if name in meta:  # a ledger page has the facts of several datasets
                yield path, meta
                meta = {}
            meta[name] = html.unescape(content)
        if meta:
            yield path, meta


def _link(path: Path, base: Path) -> str:
    """The relative link from a page in ``base`` to a file; ``./`` keeps a file name from being read as a scheme."""
    return "./" + quote(Path(os.path.relpath(path.absolute(), base)).as_posix())
