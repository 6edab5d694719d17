"""The append-only tables of a ledger, and the chain of a dataset's entries, each with the digest of its predecessor.

Triggers refuse UPDATE and DELETE on all tables. They prevent accidents; changes by the owner of the file are detected
by the chain. There are two tables of entries so that a database can grant analysts INSERT on one of them only.

The digest of an entry is the SHA-256 of five lines, joined by line feeds: the digest of the entry before it (empty for
the first), the dataset, the entry's number, its kind, and its body in JSON as it is stored. The digest of the last
entry is the dataset's *head*.

*Lemma.* Whoever knows a head, from a report or an export, can detect whether any entry up to it was changed,
removed or inserted later. *Proof.* Entries are numbered from 1 without a gap and each digest is recomputed from what is
stored. If an entry with the known digest is there, its five lines are those that were written (SHA-256 has no known
collision), so the digest before it is as it was, and so on down to the first. ∎

*Limit.* Whoever can write the database can change an entry and recompute all later digests, or remove the last entries.
Only a head that was kept elsewhere reveals that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

#: The format of the tables; a ledger of another format is refused.
FORMAT = 4
#: Longest name of a dataset, and longest purpose, in characters.
LONGEST = 500

tables = sa.MetaData()
meta = sa.Table("dpem_meta", tables, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))


def _entries(name: str) -> sa.Table:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Table(
        name,
        tables,
        sa.Column("id", number, sa.Identity(always=True), primary_key=True),
        sa.Column("dataset", sa.String(LONGEST), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.UniqueConstraint("dataset", "number"),
        sqlite_autoincrement=True,
    )


#: Entries by the keeper of a ledger: the opening of a dataset with its total, and its policies.
datasets = _entries("dpem_datasets")
#: Entries by fits: charges, outcomes, fingerprints of models, refusals.
entries = _entries("dpem_entries")

#: The trigger in SQLite that prevents rows of a table from being changed or removed.
APPEND_ONLY = (
    "CREATE TRIGGER {table}_no_{name} BEFORE {change} ON {table} "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END"
)
CHANGES = ("UPDATE", "DELETE")


def _triggers() -> dict[str, str]:
    """The triggers of a ledger in SQLite, by name."""
    return {
        f"{table}_no_{change.lower()}": APPEND_ONLY.format(table=table, name=change.lower(), change=change)
        for table in tables.tables
        for change in CHANGES
    }


def create_tables(connection: Connection) -> None:
    """Create the tables and their triggers, within the caller's transaction."""
    tables.create_all(connection, checkfirst=False)
    connection.execute(sa.insert(meta).values(version=FORMAT))
    if connection.dialect.name == "sqlite":
        for table in tables.tables:
            for change in CHANGES:
                connection.exec_driver_sql(APPEND_ONLY.format(table=table, name=change.lower(), change=change))
        return
    connection.exec_driver_sql(
        "CREATE FUNCTION dpem_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'a ledger is append-only'; END $$"
    )
    for table in tables.tables:
        connection.exec_driver_sql(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION dpem_append_only()"
        )


def signs_of_tampering(connection: Connection) -> list[str]:
    """A sentence for each sign of tampering in a SQLite file: missing triggers, removed rows.

    AUTOINCREMENT assigns ids in the transaction of the row, so in an unaltered table the last id is the number of rows.
    PostgreSQL's sequences have gaps, and its triggers are the responsibility of its administrator.
    """
    if connection.dialect.name != "sqlite":
        return []
    names = set(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").scalars())
    faults = ["the triggers that prevent changes of rows are missing"] if set(_triggers()) - names else []
    last_ids = {name: seq for name, seq in connection.exec_driver_sql("SELECT name, seq FROM sqlite_sequence")}
    for table in (datasets, entries):
        count = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
        if (missing := (last_ids.get(table.name) or 0) - count) > 0:
            faults.append(f"{missing} row(s) of {table.name} were removed")
    return faults


def is_unaltered(connection: Connection, expected: Sequence[sa.Table]) -> bool:
    """Whether a SQLite file has the expected plain tables, and only the triggers of this module.

    *Lemma.* A ledger then reads stored rows, and the entries that it appends are stored unchanged. *Proof.* A view, a
    virtual table or a computed column could return other rows (or never end), and only a trigger can act on an insert;
    those of this module abort updates and deletes, and there are no others. ∎ Whoever can write the file can still
    forge rows.
    """
    rows = connection.exec_driver_sql("SELECT type, name, sql FROM sqlite_master")
    objects = {(kind, name): str(sql) for kind, name, sql in rows if kind != "index"}
    others = {(kind, name): sql for (kind, name), sql in objects.items() if kind != "table"}
    if not others.items() <= {("trigger", name): sql for name, sql in _triggers().items()}.items():
        return False
    return all(
        objects.get(("table", table.name), "").startswith("CREATE TABLE") and _has_plain_columns(connection, table)
        for table in expected
    )


def _has_plain_columns(connection: Connection, table: sa.Table) -> bool:
    rows = connection.execute(sa.select(sa.func.pragma_table_xinfo(table.name).table_valued("name", "hidden"))).all()
    return {(row.name, row.hidden) for row in rows} == {(column.name, 0) for column in table.columns}


class Entry(NamedTuple):
    """One row of a chain, as it is stored."""

    dataset: str
    number: int
    kind: str
    body: str
    previous: str
    digest: str
    table: str = ""

    @property
    def own_digest(self) -> str:
        """The digest of the stored fields."""
        lines = (self.previous, self.dataset, str(self.number), self.kind, self.body)
        return hashlib.sha256("\n".join(map(str, lines)).encode("utf-8", "surrogatepass")).hexdigest()


def read(connection: Connection, dataset: str) -> list[Entry]:
    """The entries of a dataset in order, unchecked."""
    stored = Entry._fields[:-1]
    parts = [
        sa.select(*(table.c[name] for name in stored), sa.literal(table.name)).where(table.c.dataset == dataset)
        for table in (datasets, entries)
    ]
    rows = connection.execute(sa.union_all(*parts)).all()
    return sorted((Entry(*row) for row in rows), key=lambda entry: (str(type(entry.number)), entry.number))


def append(
    connection: Connection, chain: Sequence[Entry], dataset: str, kind: str, body: Mapping[str, object]
) -> Entry:
    """Write the next entry of a chain that was read in the same transaction."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    previous = chain[-1].digest if chain else ""
    table = _table_of(kind)
    blank = Entry(dataset, len(chain) + 1, kind, text, previous, "", table.name)
    entry = blank._replace(digest=blank.own_digest)
    connection.execute(sa.insert(table).values(dict(zip(Entry._fields[:-1], entry, strict=False))))
    return entry


def _table_of(kind: str) -> sa.Table:
    return datasets if kind in ("opened", "policy") else entries


def faults(chain: Sequence[Entry]) -> list[str]:
    """A sentence for each fault of a chain; empty if it is as it was written."""
    sentences, previous = [], ""
    for number, entry in enumerate(chain, start=1):
        if entry.number != number:
            sentences.append(f"entry {number} is missing")
            break
        if entry.table != _table_of(entry.kind).name:
            sentences.append(f"entry {number} ({entry.kind}) is in {entry.table}, where no such entry belongs")
        elif entry.digest != entry.own_digest:
            sentences.append(f"entry {number} ({entry.kind}) was changed: its content does not match its digest")
        elif entry.previous != previous:
            sentences.append(f"entry {number} ({entry.kind}) is not linked to the entry before it")
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
