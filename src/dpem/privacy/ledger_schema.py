"""Where a ledger is kept: its URL, its tables, and how a transaction begins in SQLite and in PostgreSQL.

*One writer at a time.* A charge reads what was charged and appends to it in one transaction that excludes every other
writer of the dataset: in SQLite ``BEGIN IMMEDIATE`` locks the file, in PostgreSQL a transaction holds an advisory lock
and reads, at READ COMMITTED, what every earlier holder has committed. (An advisory lock needs no privilege; ``SELECT …
FOR UPDATE`` would need the right to update.) Should a lock ever fail, the unique number of an entry within its
dataset lets only one of two writers through.

*Durable.* SQLite keeps its rollback journal (``journal_mode=DELETE``): one file, no shared memory, and a copy of the
file is a copy of the ledger. A commit is then the removal of the journal, so ``synchronous=EXTRA`` is needed: with
``FULL`` the folder is not synced after it, and a power cut could bring the journal back and undo the charge. In
PostgreSQL ``synchronous_commit`` is switched on whatever the server's default.

*Append-only.* Triggers refuse UPDATE and DELETE on all tables. They stop accidents, not the owner of the file; what
its owner has changed is found by the chain of digests (:mod:`dpem.privacy.ledger_chain`). There are two tables of
entries so that a database can grant analysts INSERT on one of them only.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError as UnknownURL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from dpem._validation import ArgumentError

#: The format of the tables; a ledger of another format is refused.
FORMAT = 4
#: Seconds to wait for another process that is writing, and for a server that does not answer.
PATIENCE = 30.0
#: What PostgreSQL says when all its connections are taken; libpq passes on no code for it.
CROWDED = ("too many clients already", "too many connections for", "remaining connection slots are reserved")
#: Longest name of a dataset, and longest purpose, in characters.
LONGEST = 500

#: What keeps rows of a ledger in SQLite from being changed or removed.
APPEND_ONLY = (
    "CREATE TRIGGER {table}_no_{name} BEFORE {change} ON {table} "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END"
)

_creating = threading.Lock()
_tables = sa.MetaData()
_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

meta = sa.Table("dpem_meta", _tables, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))


def _entries(name: str) -> sa.Table:
    return sa.Table(
        name,
        _tables,
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


#: What the keeper of a ledger writes: the opening of a dataset with its total, and its policies.
datasets = _entries("dpem_datasets")
#: What fits write: charges, outcomes, fingerprints of models, refusals.
entries = _entries("dpem_entries")


class LedgerError(RuntimeError):
    """A ledger could not be read or written, or is not one. No fit goes on after it."""


class Store:
    """A ledger's database: transactions on it, and its failures in one sentence."""

    def __init__(self, url: object) -> None:
        self._url = _parsed(url)
        try:
            self._engine = _engine(self._url)
        except ImportError:
            raise LedgerError("a ledger in PostgreSQL needs psycopg: pip install 'dpem[postgresql]'.") from None

    @property
    def where(self) -> str:
        """The URL without password and options, for people to read."""
        url = self._url
        return URL.create(
            url.get_backend_name(), url.username, None, url.host, url.port, url.database
        ).render_as_string()

    @property
    def url_with_password(self) -> str:
        """The whole URL, for another process to connect with."""
        return self._url.render_as_string(hide_password=False)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the whole ledger."""
        with self._in_words("read", "nothing was spent"), self._connected() as connection:
            _begin_reading(connection)
            self._check_format(connection)
            yield connection

    @contextmanager
    def writing(self, dataset: str, make: bool = False) -> Iterator[Connection]:
        """A transaction of the only writer of a dataset, committed at the end unless the block raises."""
        with self._in_words("written", "nothing was recorded"):
            if make:
                _make_file(self._url)
            connection = self._connected()
        with connection:
            with self._in_words("written", "nothing was recorded"):
                _begin_writing(connection, dataset)
                if make and not sa.inspect(connection).has_table(meta.name):
                    _create(connection)
                self._check_format(connection)
                yield connection
            with self._in_words("written to the end", "it may have been recorded, see its history"):
                connection.commit()

    def making(self) -> AbstractContextManager[Connection]:
        """As :meth:`writing`, for a ledger that may not be there yet."""
        return self.writing("", make=True)

    def _connected(self) -> Connection:
        """A connection. A server that has none left is waited for, as a lock is."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self._engine.connect()
            except DBAPIError as error:
                if not any(sign in str(error.orig) for sign in CROWDED) or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _check_format(self, connection: Connection) -> None:
        if not sa.inspect(connection).has_table(meta.name):
            raise LedgerError(f"{self.where} holds no ledger yet: dpem ledger open, or Ledger.open, creates one.")
        ours = connection.dialect.name != "sqlite" or _is_ours(connection, [meta])
        versions = connection.execute(sa.select(meta.c.version)).scalars().all() if ours else [FORMAT]
        if versions != [FORMAT]:
            found = ", ".join(map(str, versions[:2])) or "none"
            raise LedgerError(
                f"{self.where} is a ledger of format {found}, and this dpem knows format {FORMAT} only: read it with "
                "the version of dpem that wrote it, and open the dataset in a new ledger with what is left."
            )
        if not ours or (connection.dialect.name == "sqlite" and not _is_ours(connection, _tables.sorted_tables)):
            raise LedgerError(f"{self.where} is not as dpem makes a ledger: its tables or triggers were changed.")

    @contextmanager
    def _in_words(self, doing: str, outcome: str) -> Iterator[None]:
        """A failure of the database as one sentence, without a password."""
        try:
            yield
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
        except UnicodeDecodeError:
            reason = "it is damaged"
        except SQLAlchemyError as error:
            reason, undone = _reason(error)
            outcome = "nothing was recorded" if undone else outcome
        else:
            return
        if self._url.database and reason == "unable to open database file" and not os.path.exists(self._url.database):
            reason = "there is no such file (dpem ledger open, or Ledger.open, creates one)"
        for secret in (self._url.password, self._url.query.get("password")):
            reason = reason.replace(str(secret), "***") if secret else reason
        raise LedgerError(f"{self.where} could not be {doing}: {reason}; {outcome}.") from None


def _reason(error: SQLAlchemyError) -> tuple[str, bool]:
    """The driver's own first line, and whether it says that nothing was committed even if it came from COMMIT.

    SQLite's commit is the removal of the journal; a lock that is not had and a page that finds no room come before.
    """
    cause = error.orig if isinstance(error, DBAPIError) else error
    text = " ".join(str(cause).strip().split("\n")[0].split()).rstrip(".:;")
    if text == "database is locked" or getattr(cause, "sqlstate", None) == "55P03":
        return f"another process has kept it busy for more than {PATIENCE:g} seconds", True
    return text or type(cause).__name__, text == "database or disk is full"


def _parsed(url: object) -> URL:
    """The URL of a ledger, complete: an absolute path, a named driver. A refusal never repeats it, for its password."""
    if not isinstance(url, str):
        raise ArgumentError("url", f"must be a string, got {type(url).__name__}.")
    try:
        url.encode()  # half a character, as a file name may hold, is no URL
        found = make_url(url)
    except (UnknownURL, ValueError):
        raise ArgumentError(
            "url", 'must look like "sqlite:///budget.db" or "postgresql://user@host/database".'
        ) from None
    if found.drivername in ("postgresql", "postgresql+psycopg"):
        return found.set(drivername="postgresql+psycopg")
    if found.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise ArgumentError("url", f"must begin with sqlite:/// or postgresql://, got {found.drivername}://.")
    path = found.database
    if found.host or not path or path == ":memory:" or path.startswith("file:") or found.query:
        raise ArgumentError(
            "url",
            'in SQLite must be "sqlite:///" and the path of a file, without options, '
            "since a ledger in memory would not outlive the process.",
        )
    return found.set(drivername="sqlite", database=os.path.abspath(path))


def _engine(url: URL) -> Engine:
    """An engine that opens a connection for every transaction: nothing to go stale, nothing to inherit over a fork."""
    if url.get_backend_name() == "sqlite":
        # mode=rw: a mistyped path must not become a new, empty ledger.
        uri = f"file:{quote(str(url.database))}?mode=rw"

        def connect() -> sqlite3.Connection:
            return sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)

        return sa.create_engine("sqlite://", creator=connect, poolclass=NullPool)
    waits = {"connect_timeout": f"{PATIENCE:.0f}", "tcp_user_timeout": f"{1000 * PATIENCE:.0f}"}
    given = {name: value for name, value in waits.items() if name not in url.query}
    return sa.create_engine(url, connect_args=given, poolclass=NullPool, isolation_level="READ COMMITTED")


def _make_file(url: URL) -> None:
    """Create the empty file of a new ledger for its owner only (0600; SQLite gives its journal the same mode).

    One thread at a time: on POSIX, closing a file drops the locks that another thread's connection has on it.
    """
    if url.get_backend_name() != "sqlite":
        return
    with _creating, suppress(FileExistsError):
        os.close(os.open(str(url.database), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _begin_reading(connection: Connection) -> None:
    """A snapshot of the whole ledger."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN")
    else:
        connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def _begin_writing(connection: Connection, dataset: str) -> None:
    """Become the only writer of the dataset until the transaction ends."""
    if connection.dialect.name == "sqlite":
        for pragma in ("synchronous = EXTRA", "fullfsync = ON", "foreign_keys = ON"):
            connection.exec_driver_sql(f"PRAGMA {pragma}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        return
    wait = f"{1000 * PATIENCE:.0f}"
    settings = {"lock_timeout": wait, "idle_in_transaction_session_timeout": wait, "synchronous_commit": "on"}
    connection.execute(sa.select(*(sa.func.set_config(name, value, True) for name, value in settings.items())))
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_lock_key(dataset))))


def _lock_key(dataset: str) -> int:
    digest = hashlib.sha256(f"dpem ledger {dataset}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _create(connection: Connection) -> None:
    """Create the tables and their triggers, within the caller's transaction."""
    _tables.create_all(connection, checkfirst=False)
    connection.execute(sa.insert(meta).values(version=FORMAT))
    if connection.dialect.name == "sqlite":
        for table in _tables.tables:
            for change in ("UPDATE", "DELETE"):
                connection.exec_driver_sql(APPEND_ONLY.format(table=table, name=change.lower(), change=change))
        return
    connection.exec_driver_sql(
        "CREATE FUNCTION dpem_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'a ledger is append-only'; END $$"
    )
    for table in _tables.tables:
        connection.exec_driver_sql(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION dpem_append_only()"
        )


def altered(connection: Connection) -> list[str]:
    """What a SQLite file shows beside its entries: triggers that are gone, and rows that were removed.

    Ids are handed out by AUTOINCREMENT, in the transaction of the row, so in an untouched table the last id that was
    handed out is the number of rows. PostgreSQL's sequences have gaps, and its triggers are for its administrator.
    """
    if connection.dialect.name != "sqlite":
        return []
    names = set(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").scalars())
    expected = {f"{table}_no_{change}" for table in _tables.tables for change in ("update", "delete")}
    found = ["the triggers that keep rows from being changed are gone"] if expected - names else []
    given = {name: seq for name, seq in connection.exec_driver_sql("SELECT name, seq FROM sqlite_sequence")}
    for table in (datasets, entries):
        count = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
        if (missing := (given.get(table.name) or 0) - count) > 0:
            found.append(f"{missing} row(s) of {table.name} were removed")
    return found


def _is_ours(connection: Connection, tables: Sequence[sa.Table]) -> bool:
    """Whether a SQLite file holds these as plain tables, and no triggers or views but our triggers.

    *Lemma.* What a ledger then reads are stored rows, and what it appends stays as it was appended. *Proof.* A view, a
    virtual table or a computed column could answer in place of rows (or never end), and only a trigger can act on an
    insert; ours abort updates and deletes, and there are no others. ∎ Whoever can write the file can still forge rows.
    """
    found = {
        (kind, name): str(sql)
        for kind, name, sql in connection.exec_driver_sql("SELECT type, name, sql FROM sqlite_master")
        if kind != "index"
    }
    triggers = {
        ("trigger", f"{table}_no_{change.lower()}"): APPEND_ONLY.format(table=table, name=change.lower(), change=change)
        for table in _tables.tables
        for change in ("UPDATE", "DELETE")
    }
    return all(
        triggers.get(key) == sql if key[0] == "trigger" else key[0] == "table" for key, sql in found.items()
    ) and all(
        found.get(("table", table.name), "").startswith("CREATE TABLE") and _has_plain_columns(connection, table)
        for table in tables
    )


def _has_plain_columns(connection: Connection, table: sa.Table) -> bool:
    rows = connection.execute(sa.select(sa.func.pragma_table_xinfo(table.name).table_valued("name", "hidden"))).all()
    return {(row.name, row.hidden) for row in rows} == {(column.name, 0) for column in table.columns}
