"""The chain of a dataset's entries: each holds the digest of the one before it.

The digest of an entry is the SHA-256 of five lines, joined by line feeds: the digest of the entry before it (empty for
the first), the dataset, the entry's number, its kind, and its body in JSON as it is stored. The digest of the last
entry is the dataset's *head*.

*Lemma.* Whoever knows a head, from a report or an export, can detect whether any entry up to it was changed,
removed or inserted later. *Proof.* Entries are numbered from 1 without a gap and each digest is recomputed from what is
stored. If an entry with the known digest is there, its five lines are those that were written (SHA-256 has no known
collision), so the digest before it is as it was, and so on down to the first. ∎

*What it does not show.* Whoever can write the database can change an entry and compute all digests after it again, or
remove the last entries. Only a head that was kept elsewhere reveals that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dpem.privacy.ledger_tables import datasets, entries


class Entry(NamedTuple):
    """One row of a chain, as it is stored."""

    dataset: str
    number: int
    kind: str
    body: str
    previous: str
    digest: str

    @property
    def own_digest(self) -> str:
        """The digest of the stored fields."""
        lines = (self.previous, self.dataset, str(self.number), self.kind, self.body)
        return hashlib.sha256("\n".join(map(str, lines)).encode("utf-8", "surrogatepass")).hexdigest()


_COLUMNS = Entry._fields


def read(connection: Connection, dataset: str) -> list[Entry]:
    """The entries of a dataset in order, unchecked."""
    parts = [sa.select(*(table.c[name] for name in _COLUMNS)).where(table.c.dataset == dataset) for table in TABLES]
    rows = connection.execute(sa.union_all(*parts)).all()
    return sorted((Entry(*row) for row in rows), key=lambda entry: (str(type(entry.number)), entry.number))


TABLES = (datasets, entries)


def append(connection: Connection, chain: Sequence[Entry], dataset: str, kind: str, body: Mapping[str, Any]) -> Entry:
    """Write the next entry of a chain that was read in the same transaction."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    previous = chain[-1].digest if chain else ""
    blank = Entry(dataset, len(chain) + 1, kind, text, previous, "")
    entry = blank._replace(digest=blank.own_digest)
    table = datasets if kind in ("opened", "policy") else entries
    connection.execute(sa.insert(table).values(**entry._asdict()))
    return entry


def faults(chain: Sequence[Entry]) -> list[str]:
    """The faults of a chain, a sentence for each entry; empty if it is as it was written."""
    sentences, previous = [], ""
    for number, entry in enumerate(chain, start=1):
        if entry.number != number:
            sentences.append(f"entry {number} is missing")
            break
        if entry.digest != entry.own_digest:
            sentences.append(f"entry {number} ({entry.kind}) was changed: its content does not have its digest")
        elif entry.previous != previous:
            sentences.append(f"entry {number} ({entry.kind}) does not follow the entry before it")
        previous = entry.digest
    return sentences


def unknown_heads(chain: Sequence[Entry], heads: Iterable[str]) -> list[str]:
    """A sentence for each head that no entry of the chain has."""
    known = {entry.digest for entry in chain}
    return [
        f"no entry has the head {head}: entries were removed, or changed and their digests computed again"
        for head in heads
        if head.removeprefix("sha256:") not in known
    ]
