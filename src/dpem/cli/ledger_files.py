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
    """One line for each entry, oldest first within a dataset, with its digest in the chain."""
    names = [field.name for field in fields(FitEntry) if field.name not in ("id", "columns")]
    text = io.StringIO()
    rows = csv.DictWriter(text, ["entry", *names, "private", "reason", "entry_digest"], lineterminator="\n", restval="")
    rows.writeheader()
    for dataset in datasets:
        records: list[FitEntry | Refusal] = sorted((*dataset.fits, *dataset.refusals), key=lambda record: record.id)
        for record in records:
            line = {name: getattr(record, name) for name in (*names, "private", "reason") if hasattr(record, name)}
            line |= {"entry": "charged" if isinstance(record, FitEntry) else "refused", "time": record.time.isoformat()}
            line["entry_digest"] = dataset.chain[record.id - 1].digest
            rows.writerow({name: _safe(value) for name, value in line.items()})
    return text.getvalue()


def _safe(value: object) -> object:
    """The value, with a quote before a text that a spreadsheet would run as a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@" and value else value


def published(folder: Path, page: str, fingerprints: Sequence[str]) -> dict[str, PublishedModel]:
    """The models in a folder with one of these fingerprints, and their reports, with links relative to ``page``."""
    base, reports = Path(page).absolute().parent, {meta.get("model"): path for path, meta in _reports(folder)}
    models: dict[str, PublishedModel] = {}
    for path, model, model_print in _models(folder):
        if model_print in fingerprints:
            report = reports.get(model_print)
            link = None if report is None else _link(report, base)
            models.setdefault(model_print, PublishedModel(model, _link(path, base), link))
    return models


def printed_heads(folder: Path, dataset: str | None) -> dict[str, str]:
    """The heads in the reports and ledger pages of a folder, of one dataset or of all, with their files' names."""
    if not folder.is_dir():
        raise ArgumentError("models", f"must be a folder; got {str(folder)!r}.")
    reports = [(path, meta) for path, meta in _reports(folder) if dataset in (None, meta.get("dataset"))]
    return {meta["head"]: path.name for path, meta in reports if "head" in meta}


def differing_models(folder: Path, fits: Sequence[FitEntry]) -> list[str]:
    """Model files that were changed, or whose entry states another ε, δ, price or plan, a sentence for each."""
    charges: dict[str, FitEntry] = {fit.model: fit for fit in fits if fit.model}
    faults: list[str] = []
    for path, model, model_print in _models(folder, faults):
        fit = charges.get(model_print)
        if fit is None:
            continue
        guarantee = model.guarantee_
        stated = (guarantee.epsilon, guarantee.delta, guarantee.price.rho)
        if stated != (fit.epsilon, fit.delta, fit.rho):
            faults.append(f"entry {fit.id} states another epsilon, delta or price than its model {path.name}")
        elif fit.digest and fit.digest != digest(model._charged_plan().to_dict()):
            faults.append(f"entry {fit.id} states another plan than its model {path.name}")
    return faults


def _models(folder: Path, refused: list[str] | None = None) -> Iterator[tuple[Path, FittedModel, str]]:
    """The models in a folder, with their fingerprints. Other files are skipped; what is wrong with a model file that
    cannot be loaded is added to ``refused``.
    """
    for path in sorted(folder.glob("*.json")):
        try:
            model = load_model(path)
            model_print = fingerprint(model)
        except (ValueError, OSError) as error:
            if refused is not None and '"dpem-model"' in path.read_text(encoding="utf-8", errors="replace")[:1000]:
                refused.append(str(error).removesuffix("."))
            continue
        if hasattr(model, "_fit_summary"):
            yield path, model, model_print


def _reports(folder: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """The pages of dpem in a folder, with the facts in their ``<meta>`` elements."""
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
    """The relative link from a page in ``base`` to a file; ``./`` keeps a file name from being read as a scheme."""
    return "./" + quote(Path(os.path.relpath(path.absolute(), base)).as_posix())
