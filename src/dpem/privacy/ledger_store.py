"""The database of a ledger: its URL, and transactions in SQLite and PostgreSQL.

*One writer at a time.* A charge reads what was charged and appends to it in one transaction that excludes every other
writer of the dataset: in SQLite ``BEGIN IMMEDIATE`` locks the file, in PostgreSQL a transaction holds an advisory lock
and reads, at READ COMMITTED, what every earlier holder has committed. (An advisory lock needs no privilege; ``SELECT …
FOR UPDATE`` would need the right to update.) Should a lock ever fail, the unique number of an entry within its
dataset lets only one of two writers through.

*Durable.* SQLite keeps its rollback journal (``journal_mode=DELETE``): one file, no shared memory, and a copy of the
file is a copy of the ledger. A commit is then the removal of the journal, so ``synchronous=EXTRA`` is needed: with
``FULL`` the folder is not synced afterwards, and after a power cut the journal could reappear and undo the charge. In
PostgreSQL ``synchronous_commit`` is switched on, whatever the server's default.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError as UnknownURL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from dpem._validation import ArgumentError
from dpem.privacy.ledger_chain import FORMAT, create_tables, is_unaltered, meta, tables

#: Seconds to wait for another process that is writing, and for a server that does not answer.
PATIENCE = 30.0
#: Messages of PostgreSQL when all its connections are taken; libpq passes on no code for it.
NO_CONNECTION_LEFT = ("too many clients already", "too many connections for", "remaining connection slots are reserved")
_creating = threading.Lock()


class LedgerError(RuntimeError):
    """A ledger could not be read or written, or is not valid. A fit stops here."""


class Store:
    """A ledger's database; a failure of a transaction is a LedgerError of one sentence."""

    def __init__(self, url: object) -> None:
        self._url = _parsed(url)
        try:
            self._engine = _engine(self._url)
        except ImportError:
            raise LedgerError("a ledger in PostgreSQL needs psycopg: pip install 'dpem[postgresql]'.") from None

    @property
    def where(self) -> str:
        """The URL without password and options."""
        url = self._url
        return URL.create(
            url.get_backend_name(), url.username, None, url.host, url.port, url.database
        ).render_as_string()

    @property
    def url_with_password(self) -> str:
        """The whole URL, for another process to connect with."""
        return self._url.render_as_string(hide_password=False)

    @contextmanager
    def read_transaction(self) -> Iterator[Connection]:
        """A transaction that sees one state of the whole ledger."""
        with self._as_ledger_error("read", "nothing was spent"), self._connected() as connection:
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN")
            else:
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            self._check_format(connection)
            yield connection

    @contextmanager
    def write_transaction(self, dataset: str, make: bool = False) -> Iterator[Connection]:
        """A transaction of the dataset's only writer, committed at the end; with ``make``, a new ledger is created."""
        with self._as_ledger_error("written", "nothing was recorded"):
            if make:
                _make_file(self._url)
            connection = self._connected()
        with connection:
            with self._as_ledger_error("written", "nothing was recorded"):
                _begin_writing(connection, dataset)
                if make and not sa.inspect(connection).has_table(meta.name):
                    create_tables(connection)
                self._check_format(connection)
                yield connection
            with self._as_ledger_error("written to the end", "it may have been recorded, see its history"):
                connection.commit()

    def _connected(self) -> Connection:
        """A connection; waits up to :data:`PATIENCE` seconds while the server has none left."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self._engine.connect()
            except DBAPIError as error:
                if not any(sign in str(error.orig) for sign in NO_CONNECTION_LEFT) or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _check_format(self, connection: Connection) -> None:
        if not sa.inspect(connection).has_table(meta.name):
            raise LedgerError(f"{self.where} has no ledger yet: dpem ledger open, or Ledger.open, creates one.")
        ours = connection.dialect.name != "sqlite" or is_unaltered(connection, [meta])
        versions = connection.execute(sa.select(meta.c.version)).scalars().all() if ours else [FORMAT]
        if versions != [FORMAT]:
            version = ", ".join(map(str, versions[:2])) or "none"
            raise LedgerError(
                f"{self.where} is a ledger of format {version}, and this dpem knows format {FORMAT} only: read it with "
                "the version of dpem that wrote it, and open the dataset in a new ledger with what is left."
            )
        if not ours or (connection.dialect.name == "sqlite" and not is_unaltered(connection, tables.sorted_tables)):
            raise LedgerError(f"{self.where} is not a valid ledger: its tables or triggers were changed.")

    @contextmanager
    def _as_ledger_error(self, action: str, outcome: str) -> Iterator[None]:
        """Raise a failure of the database as a LedgerError of one sentence, without the password."""
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
        raise LedgerError(f"{self.where} could not be {action}: {reason}; {outcome}.") from None


def _reason(error: SQLAlchemyError) -> tuple[str, bool]:
    """The first line of the driver's message, and whether it implies that nothing was committed, even at COMMIT.

    SQLite commits by removing the journal; failures to obtain a lock and full disks occur before that.
    """
    cause = error.orig if isinstance(error, DBAPIError) else error
    text = " ".join(str(cause).strip().split("\n")[0].split()).rstrip(".:;")
    if text == "database is locked" or getattr(cause, "sqlstate", None) == "55P03":
        return f"another process has kept it busy for more than {PATIENCE:g} seconds", True
    return text or type(cause).__name__, text == "database or disk is full"


def _parsed(url: object) -> URL:
    """The complete URL of a ledger. Errors never quote it, since it may have a password."""
    if not isinstance(url, str):
        raise ArgumentError("url", f"must be a string, got {type(url).__name__}.")
    try:
        url.encode()  # raises for a lone surrogate, which a file name may contain
        parsed = make_url(url)
    except (UnknownURL, ValueError):
        raise ArgumentError(
            "url", 'must look like "sqlite:///budget.db" or "postgresql://user@host/database".'
        ) from None
    if parsed.drivername in ("postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise ArgumentError("url", f"must begin with sqlite:/// or postgresql://, got {parsed.drivername}://.")
    path = parsed.database
    if parsed.host or not path or path == ":memory:" or path.startswith("file:") or parsed.query:
        raise ArgumentError(
            "url",
            'in SQLite must be "sqlite:///" and the path of a file, without options, '
            "since a ledger in memory would not outlive the process.",
        )
    return parsed.set(drivername="sqlite", database=os.path.abspath(path))


def _engine(url: URL) -> Engine:
    """An engine that opens a connection for every transaction, so that none goes stale or is inherited by a fork."""
    if url.get_backend_name() == "sqlite":
        # mode=rw, so that a mistyped path does not create an empty ledger.
        uri = f"file:{quote(str(url.database))}?mode=rw"

        def connect() -> sqlite3.Connection:
            return sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)

        return sa.create_engine("sqlite://", creator=connect, poolclass=NullPool)
    waits = {"connect_timeout": f"{PATIENCE:.0f}", "tcp_user_timeout": f"{1000 * PATIENCE:.0f}"}
    options = {name: value for name, value in waits.items() if name not in url.query}
    return sa.create_engine(url, connect_args=options, poolclass=NullPool, isolation_level="READ COMMITTED")


def _make_file(url: URL) -> None:
    """Create the empty file of a new ledger for its owner only (0600; SQLite gives its journal the same mode).

    One thread at a time: on POSIX, closing a file drops the locks that another thread's connection has on it.
    """
    if url.get_backend_name() != "sqlite":
        return
    with _creating, suppress(FileExistsError):
        os.close(os.open(str(url.database), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


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
    """The number of the advisory lock in PostgreSQL that the writer of a dataset holds."""
    return int.from_bytes(hashlib.sha256(f"dpem ledger {dataset}".encode()).digest()[:8], "big", signed=True)
