"""A ledger counts as a budget does, in both databases, and says in one sentence what is wrong."""

import copy
import itertools
import math
import pickle
import re
import sqlite3
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpem
from dpem.privacy import Budget, BudgetExceeded, Ledger, LedgerError, Price, digest, largest_price, ledger_chain
from dpem.privacy.budget import Total

#: A fit of which a total of (1, 1e-5) holds many.
SMALL = (0.1, 1e-6, largest_price(0.1, 1e-6, gaussian=False))
#: A fit of which it holds one.
LARGE = (0.8, 1e-6, largest_price(0.8, 1e-6, gaussian=False))
#: The zCDP price that converts to it.
WHOLE = largest_price(1.0, 1e-5, gaussian=False).rho
names = (f"dataset {i}" for i in itertools.count())


@pytest.fixture
def ledger(url):
    return Ledger(url).open("patients", epsilon=1.0, delta=1e-5)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


def one_sentence(error):
    text = str(error.value)
    assert text.endswith(".")
    assert "\n" not in text
    assert "Traceback" not in text
    return text


def test_a_charge_is_read_back_as_written(ledger, url):
    before = datetime.now(UTC)
    price = Price(0.001 + 0.2 * 1e-3, gaussian=True)
    charge = ledger.charge(0.1 + 0.2, 1e-6 / 3, price, purpose="DPSymmetricMixture.fit, n=7, d=2", digest="0a1b")
    (entry,) = Ledger(url).history("patients")
    assert (entry.id, entry.dataset, entry.outcome) == (charge.id, "patients", "no answer")
    assert (entry.epsilon, entry.delta, entry.rho, entry.gaussian) == (0.1 + 0.2, 1e-6 / 3, price.rho, True)
    assert (entry.purpose, entry.digest) == ("DPSymmetricMixture.fit, n=7, d=2", "0a1b")
    assert entry.version == dpem.__version__
    assert before - timedelta(seconds=1) < entry.time < datetime.now(UTC) + timedelta(seconds=1)
    charge.close("answered")
    assert ledger.history()[0].outcome == "answered"


@pytest.mark.parametrize("value", [5e-324, 1e-300, 0.1, 1 / 3, math.nextafter(1.0, 0)])
def test_numbers_come_back_to_the_last_bit(ledger, value):
    """ρ is worth little enough for any ε and δ here."""
    ledger.charge(1e-6 + value / 2, min(value, 1e-7), Price(min(value, 1e-300)))
    (charge,) = ledger.history()
    assert charge.rho == min(value, 1e-300)
    assert charge.epsilon == 1e-6 + value / 2
    assert charge.delta == min(value, 1e-7)


def test_outcomes_are_recorded(ledger):
    with ledger.charge(0.1, 1e-7, Price(1e-4)):
        pass
    with pytest.raises(ZeroDivisionError), ledger.charge(0.1, 1e-7, Price(1e-4)):
        raise ZeroDivisionError
    charge = ledger.charge(0.1, 1e-7, Price(1e-4))
    charges = ledger.history()
    assert [charge.outcome for charge in charges] == ["answered", "failed", "no answer"]
    assert [charge.id for charge in charges] == sorted({charge.id for charge in charges})
    assert len(ledger.history()) == 3
    with pytest.raises(ValueError, match="outcome must be one of 'answered', 'failed'; got 'maybe'"):
        charge.close("maybe")
    charge.close("failed")
    with pytest.raises(ValueError, match="closed already, as 'failed'"):
        charge.close("answered")
    assert ledger.history()[2].outcome == "failed"


@settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.floats(0.1, 5.0),
    st.floats(1e-9, 1e-2),
    st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(1e-10, 1e-3), st.booleans(), st.booleans()), max_size=8),
)
def test_a_ledger_accepts_exactly_what_a_budget_accepts(url, epsilon, delta, requested):
    budget, ledger = Budget(epsilon, delta), Ledger(url).open(next(names), epsilon, delta)
    for e, d, gaussian, unpriced in requested:
        price = largest_price(e, d, gaussian=gaussian)
        if unpriced:
            e, price = math.inf, Price(math.inf, gaussian)
        message = []
        for account in (budget, ledger):
            try:
                account.charge(e, d, price)
                message.append("accepted")
            except BudgetExceeded as refusal:
                message.append(re.sub(r"(budget|dataset '[^']*') (?=\()", "", str(refusal)))
        assert message[0] == message[1]
    state = ledger.state()
    assert (state.total.epsilon, state.total.delta) == (epsilon, delta)
    assert (len(state.fits), state.spent_epsilon) == (budget.n_charges, budget.spent_epsilon)


@settings(derandomize=True, deadline=None, database=None, max_examples=60)
@given(
    st.floats(0.1, 5.0),
    st.floats(1e-8, 1e-3),
    st.floats(1e-9, 1e-3),
    st.lists(st.tuples(st.floats(0.05, 1.0), st.floats(1e-9, 1e-4), st.booleans()), max_size=4),
)
def test_what_is_left_can_be_charged_and_no_more(epsilon, delta, at, requested):
    total, charges = Total(epsilon, delta), []
    budget = Budget(epsilon, delta)
    for e, d, gaussian in requested:
        try:
            charges.append(budget.charge(e, d, largest_price(e, d, gaussian=gaussian)))
        except BudgetExceeded:
            continue
    at = min(at, delta)
    left = total.left(charges, at)

    def accepted(asks):
        try:
            for gaussian in (True, False):
                total.admit(charges, dpem.privacy.Charge(asks, at, largest_price(asks, at, gaussian=gaussian)), "")
        except BudgetExceeded:
            return False
        return True

    assert left == 0 or accepted(left)
    assert not accepted(max(left * (1 + 1e-5), 2e-6 * epsilon))


def test_left_is_the_whole_total_at_first_and_then_nothing(ledger):
    assert ledger.left() == pytest.approx(1.0)
    stricter = ledger.left(delta=1e-6)  # a fit of the same price at a smaller δ has a larger ε
    assert stricter == pytest.approx(Price(WHOLE, gaussian=True).epsilon(1e-6))  # a dense fit is the dearer
    assert 1.04 < stricter < 1.2
    ledger.charge(stricter, 1e-6, largest_price(stricter, 1e-6, gaussian=True))
    assert ledger.left() == ledger.left(delta=1e-6) == 0
    assert len(ledger.history()) == 1
    with pytest.raises(ValueError, match="delta must lie strictly between 0 and 1, got 2"):
        ledger.left(delta=2)


def test_a_dense_fit_of_the_whole_total_is_alone(ledger):
    """The one exception to adding prices also holds in the database."""
    price = largest_price(1.0, 1e-5, gaussian=True)
    assert price.rho > WHOLE
    ledger.charge(1.0, 1e-5, price)
    state = ledger.state()
    assert (state.spent_epsilon, state.left) == (1.0, 0.0)
    with pytest.raises(BudgetExceeded, match="one more fit up to epsilon=0:"):
        ledger.charge(1e-6, 1e-9, Price(1e-300, gaussian=True))
    assert len(ledger.history()) == 1


def test_datasets_are_separate_and_listed_by_name(url):
    ledger = Ledger(url)
    ledger.open("b", 2.0, 1e-6).charge(1.0, 1e-6, largest_price(1.0, 1e-6, gaussian=True))
    ledger.open("a", 1.0, 1e-5)
    first, second = map(ledger.state, ledger.names())
    assert (first.name, first.total.epsilon, first.total.delta, first.spent_epsilon, len(first.fits)) == (
        "a",
        1.0,
        1e-5,
        0.0,
        0,
    )
    assert (second.name, second.spent_epsilon, len(second.fits)) == ("b", 1.0, 1)
    assert second == ledger.state("b")
    assert first.left == pytest.approx(1.0)
    assert second.opened.tzinfo is not None
    assert ledger.history("a") == []
    ledger.dataset("a").charge(*LARGE)
    assert (len(ledger.history("a")), len(ledger.history("b"))) == (1, 1)


@pytest.mark.parametrize("total", [(1.0, 1e-5), (9.0, 1e-5)])
def test_a_dataset_is_opened_once(ledger, total):
    with pytest.raises(LedgerError, match="'patients' is open already, with epsilon=1 and delta=1e-05") as refusal:
        ledger.open("patients", *total)
    one_sentence(refusal)
    assert len(ledger.names()) == 1


def test_copies_are_the_same_ledger_and_pickles_connect_again(ledger):
    assert copy.copy(ledger) is ledger
    assert copy.deepcopy([ledger])[0] is ledger
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        other = pickle.loads(pickle.dumps(ledger, protocol=protocol))
        assert other is not ledger
        assert repr(other) == repr(ledger)
        other.charge(*SMALL)
    assert len(ledger.history()) == pickle.HIGHEST_PROTOCOL + 1


def test_a_relative_path_is_where_it_was_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("sqlite:///budget.db")
    monkeypatch.chdir("/")
    ledger.open("patients", 1.0, 1e-5)
    assert (tmp_path / "budget.db").exists()
    assert pickle.loads(pickle.dumps(ledger)).history("patients") == []


@pytest.mark.parametrize("name", ["'; DROP TABLE dpem_entries; --", 'a" OR 1=1', "100 %s", ":name", "été ∑", "x" * 500])
def test_names_with_quotes_and_commands_are_stored_unchanged(url, name):
    ledger = Ledger(url).open(name, 1.0, 1e-5)
    ledger.charge(*SMALL, purpose=name, digest=name)
    Ledger(url).open("other", 1.0, 1e-5)
    assert ledger.names() == sorted([name, "other"])
    assert (ledger.history()[0].purpose, ledger.history()[0].digest) == (name, name)


@pytest.mark.parametrize("name", ["", " x", "x\n", "a\0b", "a\tb", "x" * 501, 3, None, b"x"])
def test_a_bad_name_is_refused_before_anything_is_made(path, name):
    with pytest.raises(ValueError, match="dataset must be") as refusal:
        Ledger(f"sqlite:///{path}").open(name, 1.0, 1e-5)
    one_sentence(refusal)
    assert not path.exists()


@pytest.mark.parametrize(
    ("total", "message"),
    [
        ((0, 1e-5), "epsilon of a dataset must be positive, got 0"),
        ((math.nan, 1e-5), "epsilon of a dataset must be positive, got nan"),
        ((math.inf, 1e-5), "epsilon of a dataset must be finite, got inf"),
        (("1", 1e-5), "epsilon of a dataset must be positive, got '1'"),
        ((1, 0), "delta of a dataset must lie strictly between 0 and 1, got 0"),
        ((1, None), "delta of a dataset must lie strictly between 0 and 1, got None"),
    ],
)
def test_a_bad_total_is_refused_before_anything_is_made(path, total, message):
    with pytest.raises(ValueError, match=message):
        Ledger(f"sqlite:///{path}").open("patients", *total)
    assert not path.exists()


@pytest.mark.parametrize(
    "charge", [(-0.5, 1e-6, Price(0.1)), (0.1, 1.0, Price(0.1)), (0.1, 1e-6, Price(0.0)), (0.1, 1e-6, Price(math.nan))]
)
def test_a_bad_charge_is_refused(ledger, charge):
    with pytest.raises(ValueError, match="a charge needs"):
        ledger.charge(*charge)
    assert ledger.history() == []


def test_a_dataset_must_be_open_and_named(url, ledger):
    other = Ledger(url, "others")
    for refused in (lambda: other.charge(*SMALL), other.history, other.left, other.state):
        with pytest.raises(LedgerError, match="dataset 'others' is not open") as refusal:
            refused()
        one_sentence(refusal)
    for refused in (lambda: Ledger(url).charge(*SMALL), Ledger(url).history):
        with pytest.raises(ValueError, match="bound to no dataset"):
            refused()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "budget.db",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://budget.db",
        "sqlite:///file:x?mode=memory",
        "sqlite:///x.db?timeout=1",
        "mysql://u:hunter2@h/d",
        "postgresql+psycopg2://u:hunter2@h/d",
        "postgresq://u:hunter2@h",
        "postgresql://u:hunter2@h:port/d",
        7,
        None,
    ],
)
def test_a_bad_url_is_refused_without_repeating_a_password(url):
    with pytest.raises(ValueError, match=r"url (must|in SQLite)") as refusal:
        Ledger(url)
    assert "hunter2" not in one_sentence(refusal)


def test_reading_creates_no_file(path):
    ledger = Ledger(f"sqlite:///{path}", "patients")
    for refused in (lambda: ledger.charge(*SMALL), ledger.history, ledger.names):
        with pytest.raises(LedgerError, match=r"no such file \(dpem ledger open") as refusal:
            refused()
        one_sentence(refusal)
    assert not path.exists()


@pytest.mark.parametrize("statement", ["UPDATE {} SET {} = {}", "DELETE FROM {}"])
@pytest.mark.parametrize(
    ("table", "column"), [("dpem_meta", "version"), ("dpem_datasets", "body"), ("dpem_entries", "body")]
)
def test_rows_are_never_changed_in_sqlite(path, statement, table, column):
    ledger = Ledger(f"sqlite:///{path}").open("patients", 1.0, 1e-5)
    ledger.charge(*SMALL).close("answered")
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement.format(table, column, column))
    connection.close()


def edit(path, *statements):
    """Change a file by other means than dpem."""
    connection = sqlite3.connect(path)
    for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {trigger}")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("version", [0, 1, 999])
def test_a_ledger_of_another_version(path, version):
    ledger = Ledger(f"sqlite:///{path}").open("patients", 1.0, 1e-5)
    edit(path, f"UPDATE dpem_meta SET version = {version}")
    for refused in (
        lambda: ledger.charge(*SMALL),
        ledger.history,
        ledger.names,
        lambda: ledger.open("others", 1.0, 1e-5),
    ):
        with pytest.raises(LedgerError, match=f"format {version}, and this dpem knows format 4 only") as refusal:
            refused()
        one_sentence(refusal)


def test_one_number_is_one_charge_even_without_a_lock(path, monkeypatch):
    """Two writers that both saw the same last entry: the second is stopped by the table itself."""
    ledger = Ledger(f"sqlite:///{path}").open("patients", 1.0, 1e-5)
    ledger.charge(*LARGE)
    ledger.charge(*SMALL)
    read = ledger_chain.read
    monkeypatch.setattr(ledger_chain, "read", lambda *given: read(*given)[:2])
    with pytest.raises(LedgerError, match="UNIQUE constraint failed"):
        ledger.charge(*SMALL)


def test_repr_shows_no_password():
    for url in (
        "postgresql://ann:hunter2@db.example:5433/budgets",
        "postgresql://ann@h/d?password=hunter2&sslmode=require",
    ):
        ledger = Ledger(url, "patients")
        assert "hunter2" not in repr(ledger) + str(ledger)
        assert "patients" in repr(ledger)
        assert "hunter2" in ledger.__reduce__()[1][0]  # a worker must be able to connect


def test_digest():
    assert digest({"n": 3, "rho": "inf"}) == digest({"rho": "inf", "n": 3})
    assert digest({"n": 3}) != digest({"n": 4})
    assert len(digest({})) == 16
