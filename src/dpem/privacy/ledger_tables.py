"""The tables of a ledger, their triggers, and whether a database still has them as they were created.

*Append-only.* Triggers refuse UPDATE and DELETE on all tables. They stop accidents, not the owner of the file; what
its owner has changed is found by the chain of digests (:mod:`dpem.privacy.ledger_chain`). There are two tables of
entries so that a database can grant analysts INSERT on one of them only.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

#: The format of the tables; a ledger of another format is refused.
FORMAT = 4
#: Longest name of a dataset, and longest purpose, in characters.
LONGEST = 500

#: The trigger that keeps the rows of a ledger in SQLite from being changed or removed.
APPEND_ONLY = (
    "CREATE TRIGGER {table}_no_{name} BEFORE {change} ON {table} "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END"
)

tables = sa.MetaData()
_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

meta = sa.Table("dpem_meta", tables, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))


def _entries(name: str) -> sa.Table:
    return sa.Table(
        name,
        tables,
        sa.Column("id", _id, sa.Identity(always=True), primary_key=True),
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


def create_tables(connection: Connection) -> None:
    """Create the tables and their triggers, within the caller's transaction."""
    tables.create_all(connection, checkfirst=False)
    connection.execute(sa.insert(meta).values(version=FORMAT))
    if connection.dialect.name == "sqlite":
        for table in tables.tables:
            for change in ("UPDATE", "DELETE"):
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


def altered(connection: Connection) -> list[str]:
    """Signs of tampering in a SQLite file: missing triggers and removed rows, a sentence for each.

    AUTOINCREMENT assigns ids in the transaction of the row, so in an unaltered table the last id is the number of rows.
    PostgreSQL's sequences have gaps, and its triggers are the responsibility of its administrator.
    """
    if connection.dialect.name != "sqlite":
        return []
    names = set(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").scalars())
    expected = {f"{table}_no_{change}" for table in tables.tables for change in ("update", "delete")}
    faults = ["the triggers that keep rows from being changed are gone"] if expected - names else []
    last_ids = {name: seq for name, seq in connection.exec_driver_sql("SELECT name, seq FROM sqlite_sequence")}
    for table in (datasets, entries):
        count = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
        if (missing := (last_ids.get(table.name) or 0) - count) > 0:
            faults.append(f"{missing} row(s) of {table.name} were removed")
    return faults


def is_unaltered(connection: Connection, expected: Sequence[sa.Table]) -> bool:
    """Whether a SQLite file has the expected plain tables, and no views or triggers but those of this module.

    *Lemma.* What a ledger then reads are stored rows, and what it appends stays as it was appended. *Proof.* A view, a
    virtual table or a computed column could answer in place of rows (or never end), and only a trigger can act on an
    insert; ours abort updates and deletes, and there are no others. ∎ Whoever can write the file can still forge rows.
    """
    rows = connection.exec_driver_sql("SELECT type, name, sql FROM sqlite_master")
    objects = {(kind, name): str(sql) for kind, name, sql in rows if kind != "index"}
    triggers = {
        ("trigger", f"{table}_no_{change.lower()}"): APPEND_ONLY.format(table=table, name=change.lower(), change=change)
        for table in tables.tables
        for change in ("UPDATE", "DELETE")
    }
    for (kind, name), sql in objects.items():
        if kind != "table" and triggers.get((kind, name)) != sql:
            return False
    return all(
        objects.get(("table", table.name), "").startswith("CREATE TABLE") and _has_plain_columns(connection, table)
        for table in expected
    )


def _has_plain_columns(connection: Connection, table: sa.Table) -> bool:
    rows = connection.execute(sa.select(sa.func.pragma_table_xinfo(table.name).table_valued("name", "hidden"))).all()
    return {(row.name, row.hidden) for row in rows} == {(column.name, 0) for column in table.columns}
