"""The fuzzing target that tampers with ledger files."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

from dpem import BudgetExceeded, Ledger, LedgerError
from dpem.privacy import Price
from studies.audits.fuzz_core import Broken, Draw, mutated


class LedgerFiles:
    """Ledgers that somebody has changed: bits of the file, its schema, its rows, planted triggers and views."""

    name, patience = "ledger files", 20.0
    refusals: tuple[type[Exception], ...] = (ValueError, LedgerError, BudgetExceeded)
    guided_by = ("dpem.privacy.ledger", "dpem.privacy.ledger_store", "dpem.privacy.ledger_chain", "dpem.privacy.budget")

    def __init__(self, folder: Path) -> None:
        self._path = folder / "budget.db"
        url = f"sqlite:///{self._path}"
        self._ledger = Ledger(url).open("patients", 2.0, 1e-4)
        for _ in range(3):
            self._ledger.charge(0.2, 1e-6, Price(0.0005), purpose="a fit").close("answered")
        self._real = self._path.read_bytes()

    def seeds(self) -> list[bytes]:
        return [
            b"\0",
            *(bytes([1, k % 2, 0, which, k]) for which in range(len(PLANTED)) for k in range(6)),
            b"\2" + b"\0" * 24,
            *([b"\4"] * 9),
        ]

    def run(self, data: bytes) -> bool:
        draw = Draw(data)
        kind = draw.below(5)
        for side in ("-journal", "-wal", "-shm"):
            Path(f"{self._path}{side}").unlink(missing_ok=True)
        content = self._real
        if kind == 0 or kind == 3:
            content = mutated(content, random.Random(draw.rest()))
        elif kind == 2:
            at = draw.below(len(content))
            content = content[:at] + draw.rest()[:256] + content[at:]
        self._path.write_bytes(content)
        if kind == 1:
            _planted(self._path, draw)
        if kind == 3:
            Path(f"{self._path}-journal").write_bytes(mutated(self._real[:1024], random.Random(data)))
        return self._used()

    def _used(self) -> bool:
        """Everything that reads or writes a ledger, one after the other."""
        for name in self._ledger.names():
            _ = self._ledger.state(name).left
        before = self._ledger.history()
        state = self._ledger.state()
        if not (state.left >= 0 and state.spent_epsilon >= 0):
            raise Broken("a ledger states a negative or meaningless budget")
        self._ledger.charge(0.1, 1e-6, Price(0.0001), purpose="another").close("failed")
        if len(self._ledger.history()) <= len(before):
            raise Broken("a charge was confirmed and is not in the history")
        return True


#: An attacker's statements before a ledger is opened; {v} is a hostile value.
PLANTED = (
    "UPDATE dpem_datasets SET body = {v}",
    "UPDATE dpem_datasets SET body = json_set(body, '$.epsilon', {v})",
    "UPDATE dpem_datasets SET dataset = {v}",
    "UPDATE dpem_datasets SET number = {v}",
    "UPDATE dpem_entries SET body = {v} WHERE number = 2",
    "UPDATE dpem_entries SET body = json_set(body, '$.rho', {v}) WHERE number = 2",
    "UPDATE dpem_entries SET kind = {v} WHERE number = 2",
    "UPDATE dpem_entries SET number = {v} WHERE number = 3",
    "UPDATE dpem_entries SET id = {v} WHERE number = 3",
    "UPDATE dpem_entries SET previous = {v}, digest = {v} WHERE number = 3",
    "UPDATE dpem_meta SET version = {v}",
    "DELETE FROM dpem_entries",
    "DELETE FROM dpem_meta",
    "DROP TABLE dpem_entries",
    "ALTER TABLE dpem_entries RENAME COLUMN body TO bodies",
    "ALTER TABLE dpem_entries ADD COLUMN extra DEFAULT {v}",
    "CREATE TRIGGER t1 AFTER INSERT ON dpem_entries BEGIN DELETE FROM dpem_entries; END",
    "CREATE TRIGGER t2 AFTER INSERT ON dpem_entries BEGIN UPDATE dpem_entries SET body = ''; END",
    "CREATE TRIGGER t3 BEFORE INSERT ON dpem_entries BEGIN SELECT RAISE(IGNORE); END",
    "CREATE TRIGGER t4 AFTER INSERT ON dpem_entries BEGIN UPDATE dpem_datasets SET body = ''; END",
    "ALTER TABLE dpem_entries RENAME TO hidden; CREATE VIEW dpem_entries AS SELECT * FROM hidden WHERE number < 2",
    "ALTER TABLE dpem_datasets RENAME TO totals; CREATE VIEW dpem_datasets AS SELECT * FROM totals",
    "ALTER TABLE dpem_entries RENAME TO hidden; CREATE VIEW dpem_entries AS SELECT * FROM hidden WHERE number < 4; "
    "CREATE TRIGGER t5 INSTEAD OF INSERT ON dpem_entries BEGIN SELECT 1; END",
    "DROP TABLE dpem_meta; CREATE VIEW dpem_meta AS SELECT load_extension('x') AS version",
)
#: A table without its constraints.
BARE = "CREATE TABLE bare AS SELECT * FROM {table}; DROP TABLE {table}; ALTER TABLE bare RENAME TO {table}"
HOSTILE = (
    *("-1", "0", "1e999", "'x'", "x'ff00'", "''", "NULL", "9223372036854775807", "'2030-01-01T00:00:00'", "1e-320"),
    *("1.5", "'inf'", "CAST(x'ff' AS TEXT)", "zeroblob(100)", "char(8232)", "-1e999"),
)


def _planted(path: Path, draw: Draw) -> None:
    """The file after an attack: any statement that SQLite accepts, without constraints and triggers."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f'DROP TRIGGER "{name}"')
        if draw.below(2):
            for table in ("dpem_datasets", "dpem_entries"):
                connection.executescript(BARE.format(table=table))
        for _ in range(1 + draw.below(2)):
            statement = draw.one_of(PLANTED).replace("{v}", draw.one_of(HOSTILE))
            try:
                connection.executescript(statement)
            except sqlite3.Error:
                continue
    finally:
        connection.close()
