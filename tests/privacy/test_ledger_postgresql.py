"""What only a server can do to a ledger: roles, sessions that are ended, settings that would weaken it."""

import threading
import time

import pytest
import sqlalchemy as sa

from dpem.privacy import BudgetExceeded, Ledger, LedgerError, Policy, Price, largest_price, ledger_chain, ledger_store

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

SMALL = (0.1, 1e-7, Price(1e-7))
#: A fit of which a total of (1, 1e-5) holds one.
LARGE = (0.8, 1e-6, largest_price(0.8, 1e-6, gaussian=False))
#: A charge as it is stored.
BODY = {
    **{"epsilon": 0.1, "delta": 1e-7, "rho": 1e-7, "gaussian": False, "rows_per_person": 1},
    **dict.fromkeys(("purpose", "digest", "version", "who", "host"), ""),
    "time": "2030-01-01T00:00:00+00:00",
}
#: What the page on ledgers says that an administrator should grant.
GRANTS = ("GRANT SELECT ON dpem_meta, dpem_datasets TO analyst", "GRANT SELECT, INSERT ON dpem_entries TO analyst")


@pytest.fixture
def database(postgresql):
    return postgresql.fresh()


@pytest.fixture
def ledger(postgresql, database):
    return Ledger(postgresql.url(database)).open("patients", 1.0, 1e-5)


def wait_for(condition):
    for _ in range(15_000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("waited in vain")


class Attempt(threading.Thread):
    """A charge in its own thread, and its result."""

    def __init__(self, ledger):
        super().__init__()
        self.ledger, self.message = ledger, None
        self.start()

    def run(self):
        try:
            self.ledger.charge(*SMALL)
            self.message = "charged"
        except LedgerError as error:
            self.message = str(error)


def end_sessions(postgresql, database, where="true"):
    """End the sessions of a database that are in this state; returns their number."""
    return len(
        postgresql.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}' AND {where}"
        )
    )


def test_an_analyst_needs_to_read_and_insert_only(postgresql, database, ledger):
    postgresql.execute("DROP ROLE IF EXISTS analyst")
    postgresql.execute("CREATE ROLE analyst LOGIN")
    for grant in GRANTS:
        postgresql.execute(grant, database)
    analyst = Ledger(postgresql.url(database, user="analyst"), "patients")
    analyst.charge(*LARGE).close("answered")
    with pytest.raises(BudgetExceeded):
        analyst.charge(*LARGE)
    assert [charge.outcome for charge in analyst.history()] == ["answered"]
    assert {charge.who for charge in analyst.history()} == {analyst.user()} == {"analyst"}
    ledger.set_policy(Policy(who=("somebody else",)))
    with pytest.raises(BudgetExceeded, match="does not allow fits by analyst"):
        analyst.charge(*SMALL)
    with pytest.raises(LedgerError, match="permission denied for table dpem_datasets; nothing was recorded"):
        analyst.open("mine", 99.0, 1e-5)
    with psycopg.connect(postgresql.url(database, user="analyst"), autocommit=True) as connection:
        for statement in ("DELETE FROM dpem_entries", "UPDATE dpem_entries SET body = ''", "TRUNCATE dpem_entries"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
        forged = f"('patients', {len(ledger.state().chain) + 1}, 'policy', '{{}}', '', '')"
        connection.execute(f"INSERT INTO dpem_entries (dataset, number, kind, body, previous, digest) VALUES {forged}")
    with pytest.raises(LedgerError, match=r"\(policy\) is in dpem_entries, where no such entry belongs"):
        analyst.charge(*SMALL)
    postgresql.execute("DROP OWNED BY analyst", database)
    postgresql.execute("DROP ROLE analyst")


def test_rows_are_never_changed_or_removed_even_by_their_owner(postgresql, database, ledger):
    ledger.charge(*SMALL).close("failed")
    columns = {"dpem_meta": "version", "dpem_datasets": "body", "dpem_entries": "body"}
    for table, column in columns.items():
        for statement in (
            f"UPDATE {table} SET {column} = {column}",
            f"DELETE FROM {table}",
            f"TRUNCATE {table} CASCADE",
        ):
            with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
                postgresql.execute(statement, database)
    assert [charge.outcome for charge in ledger.history()] == ["failed"]


def test_sessions_ended_between_charge_and_close(postgresql, database, ledger):
    with ledger.charge(*SMALL):
        end_sessions(postgresql, database)
    assert [charge.outcome for charge in ledger.history()] == ["answered"]


def test_a_session_ended_while_it_waits_for_its_turn(postgresql, database, ledger, capfd):
    with psycopg.connect(postgresql.url(database)) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [ledger_store._lock_key("patients")])
        attempt = Attempt(ledger)
        wait_for(lambda: end_sessions(postgresql, database, "wait_event = 'advisory'"))
        attempt.join()
    assert "could not be written: " in attempt.message
    assert attempt.message.endswith("; nothing was recorded.")
    assert ledger.history() == []
    assert capfd.readouterr().err == ""


def test_a_session_ended_in_its_commit(postgresql, database, ledger, capfd):
    """A trigger makes the commit slow; the session is ended meanwhile, and its fate is not known to the client."""
    for statement in (
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(99); RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON dpem_entries DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION slow()",
    ):
        postgresql.execute(statement, database)
    attempt = Attempt(ledger)
    wait_for(lambda: end_sessions(postgresql, database, "wait_event = 'PgSleep'"))
    attempt.join()
    assert "could not be written to the end: " in attempt.message
    assert attempt.message.endswith("; it may have been recorded, see its history.")
    assert "\n" not in attempt.message
    assert ledger.history() == []
    assert capfd.readouterr().err == ""


def test_a_server_that_is_gone_before_the_close(postgresql, database, ledger):
    """The fit was paid for and has its answer: a warning is issued, not an error, and the charge stays."""
    charge = ledger.charge(*SMALL)
    postgresql.execute(f"ALTER DATABASE {database} RENAME TO {database}_away")
    with pytest.warns(RuntimeWarning, match='charge 2 stays, with the outcome "no answer"'):
        charge.close("answered")
    with pytest.raises(LedgerError, match="could not be read: "):
        ledger.history()
    with pytest.raises(LedgerError, match="nothing was recorded"):
        ledger.charge(*SMALL)
    postgresql.execute(f"ALTER DATABASE {database}_away RENAME TO {database}")
    assert [charge.outcome for charge in ledger.history()] == ["no answer"]


def test_a_lock_that_is_never_given_back(postgresql, database, ledger, monkeypatch):
    monkeypatch.setattr(ledger_store, "PATIENCE", 3.0)  # also how long the server lets a session be idle
    with psycopg.connect(postgresql.url(database)) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [ledger_store._lock_key("patients")])
        with pytest.raises(LedgerError, match=r"kept it busy for more than 3 seconds; nothing was recorded"):
            ledger.charge(*SMALL)
        monkeypatch.undo()
        ledger.open("others", 1.0, 1e-5).charge(*SMALL)  # another dataset has another lock
    ledger.charge(*SMALL)


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_server_s_default_isolation_does_not_hide_the_last_charge(postgresql, database, ledger, isolation):
    """With a snapshot taken before the lock is granted, a waiting charge would not see the one it waited for."""
    postgresql.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = '{isolation}'")
    with ledger._store.write_transaction("patients"):
        attempt = Attempt(ledger)
        wait_for(
            lambda: postgresql.execute(
                f"SELECT 1 FROM pg_stat_activity WHERE datname = '{database}' AND wait_event = 'advisory'"
            )
        )
        engine = sa.create_engine(postgresql.url(database).replace("postgresql:", "postgresql+psycopg:"))
        with engine.begin() as other:  # a writer that ignores the lock
            chain = ledger_chain.read(other, "patients")
            ledger_chain.append(other, chain, "patients", "fit", BODY)
        engine.dispose()
    attempt.join()
    assert attempt.message == "charged"
    assert len(ledger.history()) == 2


def test_a_commit_is_durable_whatever_the_default(postgresql, database, ledger):
    postgresql.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
    with ledger._store.write_transaction("patients") as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "read committed"


def test_no_error_shows_a_password(postgresql):
    url = f"postgresql://ann:hunter2@/nowhere?host={postgresql.folder}"
    for attempt in (lambda: Ledger(url).open("patients", 1.0, 1e-5), Ledger(url).names):
        with pytest.raises(LedgerError, match="could not be") as refusal:
            attempt()
        assert "hunter2" not in str(refusal.value)
        assert refusal.value.__suppress_context__
        assert "hunter2" not in str(refusal.value.__context__)
        assert "\n" not in str(refusal.value)


def test_a_server_that_is_not_there(tmp_path):
    ledger = Ledger(f"postgresql://ann:hunter2@/budgets?host={tmp_path}", "patients")
    with pytest.raises(
        LedgerError, match=r"^postgresql://ann@/budgets could not be written: connection .* nothing was recorded\.$"
    ):
        ledger.charge(*SMALL)


def test_an_option_that_is_not_one(postgresql):
    with pytest.raises(LedgerError, match="invalid connection option"):
        Ledger(postgresql.url("postgres") + "&colour=blue", "patients").charge(*SMALL)
