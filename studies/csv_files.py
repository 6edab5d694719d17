"""Results in CSV files: one line for each record, fields in the order of the first."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def write_rows(path: Path | None, rows: Iterable[Mapping[str, Any]], fields: Sequence[str] = ()) -> None:
    """Write records with their header; nothing where there is no path. A field that a record lacks stays empty."""
    if path is None:
        return
    records = list(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fields or list(records[0]), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
