"""Killed, raced, forked, full, locked, damaged: a ledger never forgets a charge that a fit relied on.

Importing the package takes longer than a thousand charges, so each script below imports what it needs and then forks.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from sqlalchemy.engine import Connection
from sqlalchemy.exc import OperationalError

import dpem
from dpem.privacy import BudgetExceeded, Ledger, LedgerError, Price, largest_price, ledger_store

ROOT = os.path.dirname(dpem.__file__)
SMALL = (0.1, 1e-7, Price(1e-7))
#: A fit of which a total of (1, 1e-5) holds one.
LARGE = (0.8, 1e-6, largest_price(0.8, 1e-6, gaussian=False))

PREAMBLE = f"""
import json, os, random, resource, signal, sys, time, types
for name, folder in (("dpem", {ROOT!r}), ("dpem.privacy", {ROOT!r} + "/privacy")):
    sys.modules[name] = types.ModuleType(name)  # the package without what its __init__ imports
    sys.modules[name].__path__ = [folder]
from dpem.privacy.accounting import Price, largest_price
from dpem.privacy.budget import BudgetExceeded
from dpem.privacy.ledger import Ledger, LedgerError
ledger = Ledger(sys.argv[1], "patients")
"""


def run(script, *arguments):
    """The JSON output of a script."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PREAMBLE + script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


KILL_AT = """
from sqlalchemy.engine import Connection
commit = Connection.commit

def killed(self):
    if sys.argv[2] == "after":
        commit(self)
    os.kill(os.getpid(), signal.SIGKILL)

if (child := os.fork()) == 0:
    Connection.commit = killed
    ledger.charge(0.1, 1e-7, Price(1e-7))
print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
"""


@pytest.mark.parametrize(("when", "outcomes"), [("before", []), ("after", ["no answer"])])
def test_killed_around_the_commit(url, when, outcomes):
    ledger = Ledger(url).open("patients", 1.0, 1e-5)
    assert run(KILL_AT, url, when) == -signal.SIGKILL
    assert [charge.outcome for charge in ledger.history()] == outcomes
    ledger.charge(*SMALL)
    assert len(ledger.history()) == len(outcomes) + 1


FORK = """
with ledger.charge(0.1, 1e-7, Price(1e-7), purpose="parent"):
    if (child := os.fork()) == 0:
        with ledger.charge(0.1, 1e-7, Price(1e-7), purpose="child"):
            os._exit(len(ledger.history()))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(code))
"""


def test_a_ledger_crosses_a_fork(url):
    ledger = Ledger(url).open("patients", 1.0, 1e-5)
    assert run(FORK, url) == 2
    assert [(d.purpose, d.outcome) for d in ledger.history()] == [("parent", "answered"), ("child", "no answer")]


FULL = """
size = os.path.getsize(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 2048, size + 2048))
confirmed, message = 0, ""
try:
    for _ in range(1000):
        ledger.charge(0.1, 1e-7, Price(1e-7), purpose="x" * 500)
        confirmed += 1
except LedgerError as error:
    message = str(error)
print(json.dumps([confirmed, message]))
"""


def test_a_full_disk(tmp_path):
    """The file cannot grow: confirmed charges remain, the refused one is absent, and the file is intact."""
    path = tmp_path / "budget.db"
    ledger = Ledger(f"sqlite:///{path}").open("patients", 1.0, 1e-3)
    ledger.charge(*SMALL)
    confirmed, message = run(FULL, f"sqlite:///{path}", path)
    assert "could not be written" in message
    assert "recorded" in message
    assert message.endswith(".")
    assert "\n" not in message
    assert len(ledger.history()) == confirmed + 1 < 1000
    ledger.charge(*SMALL)  # room again


READ_ONLY = """
os.chdir("/")
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
message = []
for attempt in (
    lambda: ledger.charge(0.1, 1e-7, Price(1e-7)),
    lambda: ledger.open("others", 1.0, 1e-5),
    lambda: Ledger(sys.argv[1] + ".new").open("others", 1.0, 1e-5),
):
    try:
        attempt()
        message.append("done")
    except LedgerError as error:
        message.append(str(error))
print(json.dumps([message, len(ledger.history())]))
"""


@pytest.mark.parametrize("file_mode", [0o444, 0o666])
def test_a_read_only_folder(file_mode):
    """Whether or not the file could be written: it can be read, and a charge is refused."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to the user that the child becomes
        folder = Path(name)
        path = folder / "budget.db"
        Ledger(f"sqlite:///{path}").open("patients", 1.0, 1e-5).charge(*SMALL)
        path.chmod(file_mode)
        folder.chmod(0o555)
        try:
            message, count = run(READ_ONLY, f"sqlite:///{path}")
            left = {file.name for file in folder.iterdir()}
        finally:
            folder.chmod(0o700)
    assert count == 1
    assert len(message) == 3
    for sentence in message:
        assert "could not be written" in sentence
        assert sentence.endswith("nothing was recorded.")
    assert left == {"budget.db"}


def test_a_folder_that_is_not_there(tmp_path):
    ledger = Ledger(f"sqlite:///{tmp_path}/no/budget.db", "patients")
    with pytest.raises(LedgerError, match="no such file or directory; nothing was recorded"):
        ledger.open("patients", 1.0, 1e-5)
    with pytest.raises(LedgerError, match="no such file"):
        ledger.charge(*SMALL)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"patient,diagnosis\n" * 100, "file is not a database"),
        (b"note\n", "file is not a database"),
        (b"", "has no ledger yet"),
        (None, "unable to open database file"),
    ],
)
def test_a_file_that_is_not_a_ledger(tmp_path, content, message):
    path = tmp_path / "budget.db"
    path.mkdir() if content is None else path.write_bytes(content)
    ledger = Ledger(f"sqlite:///{path}", "patients")
    for refused in (lambda: ledger.charge(*SMALL), ledger.history, ledger.names):
        with pytest.raises(LedgerError, match=message) as refusal:
            refused()
        assert "patient,diagnosis" not in str(refusal.value)
    if content:
        with pytest.raises(LedgerError, match=message):
            ledger.open("patients", 1.0, 1e-5)
        assert path.read_bytes() == content


def test_another_program_s_database_is_left_alone(tmp_path):
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE notes (text)")
    connection.commit()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="has no ledger yet"):
        Ledger(f"sqlite:///{path}", "patients").charge(*SMALL)
    assert path.read_bytes() == before
    connection.close()


def test_a_damaged_file(tmp_path):
    """Overwritten pages lead to an error of one sentence, and never to an accepted charge."""
    path = tmp_path / "budget.db"
    ledger = Ledger(f"sqlite:///{path}").open("patients", 1.0, 1e-5)
    ledger.charge(*LARGE)
    whole = path.read_bytes()
    for start in range(0, len(whole), 2048):
        path.write_bytes(whole[:start] + b"\x55" * 512 + whole[start + 512 :])
        with pytest.raises((LedgerError, BudgetExceeded)):
            ledger.charge(*LARGE)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises((LedgerError, BudgetExceeded)):
        ledger.charge(*LARGE)


def test_a_file_that_stays_locked(tmp_path, monkeypatch):
    path = tmp_path / "budget.db"
    ledger = Ledger(f"sqlite:///{path}").open("patients", 1.0, 1e-5)
    charge = ledger.charge(*SMALL)
    monkeypatch.setattr(ledger_store, "PATIENCE", 0.2)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    message = "another process has kept it busy for more than 0.2 seconds; nothing was recorded"
    with pytest.raises(LedgerError, match=message):
        ledger.charge(*SMALL)
    with pytest.warns(RuntimeWarning, match='charge 2 stays, with the outcome "no answer"'):
        charge.close("answered")
    assert [charge.outcome for charge in ledger.history()] == ["no answer"]  # readers need not wait
    other.execute("ROLLBACK")
    ledger.charge(*SMALL)
    other.close()


def test_a_reader_that_stays_does_not_stop_others_for_ever(tmp_path, monkeypatch):
    """A reader blocks the commit itself; the charge is then refused and not recorded."""
    path = tmp_path / "budget.db"
    ledger = Ledger(f"sqlite:///{path}").open("patients", 1.0, 1e-5)
    monkeypatch.setattr(ledger_store, "PATIENCE", 0.2)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT * FROM dpem_entries").fetchall()
    with pytest.raises(LedgerError, match=r"0.2 seconds; nothing was recorded"):
        ledger.charge(*SMALL)
    other.execute("ROLLBACK")
    other.close()
    assert ledger.history() == []


def test_a_confirmation_that_is_lost(url, monkeypatch):
    """The commit happened but its answer did not arrive: the error says so, and the charge stays."""
    ledger = Ledger(url).open("patients", 1.0, 1e-5)
    commit = Connection.commit

    def lost(self):
        commit(self)
        raise OperationalError("COMMIT", {}, Exception("server closed the connection unexpectedly\nmore"))

    monkeypatch.setattr(Connection, "commit", lost)
    with pytest.raises(
        LedgerError, match=r"closed the connection unexpectedly; it may have been recorded, see its history"
    ):
        ledger.charge(*SMALL)
    monkeypatch.undo()
    assert [charge.outcome for charge in ledger.history()] == ["no answer"]


def test_new_ledgers_made_at_the_same_moment(url, monkeypatch):
    """20 threads open the same dataset where there is no ledger: one does, the others are refused."""
    monkeypatch.setattr(ledger_store, "PATIENCE", 600.0)
    barrier, outcomes = threading.Barrier(20), []

    def run():
        barrier.wait()
        try:
            Ledger(url).open("patients", 1.0, 1e-5)
            outcomes.append("opened")
        except LedgerError as error:
            outcomes.append("refused" if "open already" in str(error) else str(error))

    threads = [threading.Thread(target=run) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["opened"] + ["refused"] * 19
    assert len(Ledger(url).names()) == 1


def test_a_charge_is_on_disk_before_it_returns(tmp_path):
    """Every connection that writes asks SQLite for the folder to be synced after the journal is gone."""
    ledger = Ledger(f"sqlite:///{Path(tmp_path)}/budget.db").open("patients", 1.0, 1e-5)
    with ledger._store.write_transaction("patients") as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
