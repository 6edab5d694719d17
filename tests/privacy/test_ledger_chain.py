"""A ledger that somebody has changed: every edit is found, by the chain or by a head that was kept elsewhere."""

import hashlib
import json
import math
import re
import sqlite3
import warnings

import pytest

from dpem.privacy import Budget, BudgetExceeded, Ledger, LedgerError, Policy, Price, largest_price
from dpem.privacy.budget import Total
from dpem.privacy.ledger import LedgerWarning
from dpem.privacy.ledger_chain import Entry

SMALL = (0.1, 1e-6, largest_price(0.1, 1e-6, gaussian=False))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


@pytest.fixture
def ledger(path):
    made = Ledger(f"sqlite:///{path}").open("patients", 1.0, 1e-5)
    for _ in range(3):
        made.charge(*SMALL).close("answered")
    return made


def edit(path, *statements):
    """Change a file as its owner can: without the triggers."""
    connection = sqlite3.connect(path, isolation_level=None)
    for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {trigger}")
    for statement in statements:
        connection.execute(statement)
    return connection


def forge(path, **changes):
    """Lower ρ of every charge and recompute every digest, as an administrator can."""
    connection = edit(path)
    previous = ""
    for table in ("dpem_datasets", "dpem_entries"):
        for row in connection.execute(f"SELECT * FROM {table} ORDER BY number").fetchall():
            body = {**json.loads(row[4]), **(changes if row[3] == "fit" else {})}
            made = Entry(*row[1:4], json.dumps(body, sort_keys=True, separators=(",", ":")), previous, "")
            message = (made.body, previous, made.own_digest, row[0])
            connection.execute(f"UPDATE {table} SET body = ?, previous = ?, digest = ? WHERE id = ?", message)
            previous = made.own_digest
    connection.close()


def faults(ledger, **given):
    return [fault for found in ledger.verify(**given) for fault in found.faults]


def test_an_untouched_ledger_has_no_faults(ledger):
    (found,) = ledger.verify("patients")
    assert (found.dataset, found.n_entries, found.faults) == ("patients", 7, ())
    assert found.head == ledger.state().head
    assert faults(ledger, heads=[found.head, found.head.removeprefix("sha256:")]) == []


def test_a_digest_can_be_computed_without_dpem(ledger, path):
    """As the page says: five lines and SHA-256."""
    connection = sqlite3.connect(path)
    previous = ""
    for table in ("dpem_datasets", "dpem_entries"):
        rows = connection.execute(f"SELECT previous, dataset, number, kind, body, digest FROM {table} ORDER BY number")
        for *lines, digest in rows:
            assert lines[0] == previous
            previous = hashlib.sha256("\n".join(map(str, lines)).encode()).hexdigest()
            assert digest == previous
    connection.close()
    assert ledger.state().head == f"sha256:{previous}"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "UPDATE dpem_entries SET body = json_set(body, '$.rho', 1e-9) WHERE number = 4",
            r"entry 4 \(fit\) was changed",
        ),
        ("UPDATE dpem_datasets SET body = json_set(body, '$.epsilon', 9.0)", r"entry 1 \(opened\) was changed"),
        ("DELETE FROM dpem_entries WHERE number = 4", "entry 4 is missing"),
        ("DELETE FROM dpem_datasets", "entry 1 is missing"),
        ("UPDATE dpem_entries SET previous = '' WHERE number = 5", r"entry 5 \(outcome\) was changed"),
    ],
)
def test_an_edit_is_found_and_nothing_is_charged_any_more(ledger, path, statement, message):
    edit(path, statement).close()
    assert any(re.match(message, fault) for fault in faults(ledger))
    assert "the triggers that prevent changes of rows are missing" in faults(ledger)
    with pytest.raises(LedgerError):
        ledger.charge(*SMALL)


@pytest.mark.parametrize("body", [{"policy": {}}, {"epsilon": 99.0, "delta": 1e-5, "rows_per_person": 1}])
def test_an_entry_of_the_keeper_s_in_the_table_of_fits_is_refused(ledger, path, body):
    """A role that may only insert into the table of fits cannot lift a policy or open a dataset."""
    dataset, kind = ("patients", "policy") if "policy" in body else ("mine", "opened")
    number, previous = (8, ledger.state().head[7:]) if kind == "policy" else (1, "")
    stored = json.dumps({**body, "time": "2030-01-01T00:00:00+00:00"}, sort_keys=True, separators=(",", ":"))
    entry = Entry(dataset, number, kind, stored, previous, "")
    connection = sqlite3.connect(path, isolation_level=None)
    columns = "dataset, number, kind, body, previous, digest"
    row = (*entry[:5], entry.own_digest)
    connection.execute(f"INSERT INTO dpem_entries ({columns}) VALUES (?, ?, ?, ?, ?, ?)", row)
    connection.close()
    assert f"entry {number} ({kind}) is in dpem_entries, where no such entry belongs" in faults(ledger)
    with pytest.raises(LedgerError, match="where no such entry belongs"):
        ledger.dataset(dataset).charge(*SMALL)


def test_a_removed_last_row_is_found_by_the_ids_that_were_handed_out(ledger, path):
    edit(path, "DELETE FROM dpem_entries WHERE number = 7").close()
    assert "1 row(s) of dpem_entries were removed" in faults(ledger)


def test_a_removed_dataset_is_found(ledger, path):
    ledger.open("others", 1.0, 1e-5)
    edit(path, "DELETE FROM dpem_datasets", "DELETE FROM dpem_entries").close()
    (found,) = Ledger(f"sqlite:///{path}").verify()
    assert "6 row(s) of dpem_entries were removed" in found.faults


def test_a_recomputed_chain_is_found_by_a_head_that_was_kept_and_by_nothing_else(ledger, path):
    head = ledger.state().head
    forge(path, rho=1e-9)
    assert faults(ledger) == ["the triggers that prevent changes of rows are missing"]
    assert f"no entry has the head {head}" in " ".join(faults(ledger, heads=[head]))
    assert ledger.state().spent_epsilon < 1e-3  # this is what the page warns of


def test_a_price_above_its_epsilon_is_found_in_a_recomputed_chain(ledger, path):
    forge(path, rho=1.0)
    assert any("is not valid" in fault for fault in faults(ledger))


def test_a_head_of_an_earlier_day_still_holds(ledger):
    head = ledger.state().head
    ledger.charge(*SMALL).close("failed")
    assert ledger.state().head != head
    assert faults(ledger, heads=[head]) == []


def test_each_dataset_has_a_chain_of_its_own(ledger):
    before = ledger.state().head
    ledger.open("others", 1.0, 1e-5).charge(*SMALL)
    assert ledger.state().head == before
    assert [found.dataset for found in ledger.verify()] == ["others", "patients"]


# ------------------------------------------------------------------------------------------------ names, rows, columns


@pytest.mark.parametrize("name", ["Patients", "patients.", "pâtients", "patient", "pa-tients"])
def test_a_name_that_is_easily_mistaken_is_opened_with_a_warning(ledger, name):
    with pytest.warns(LedgerWarning, match=r"is named like 'patients': two names"):
        ledger.open(name, 1.0, 1e-5)


def test_other_names_are_opened_without_one(ledger):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("visits", "survey 2023", "survey 2024", "a", "b"):
            ledger.open(name, 1.0, 1e-5)


def test_another_table_under_the_same_name_is_warned_of(ledger):
    known = {"age": "0a", "income": "0b"}
    ledger.charge(*SMALL, n=1000, columns=known)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ledger.charge(*SMALL, n=1000, columns={"age": "0a"})
        ledger.charge(*SMALL, n=1000, columns={"age": "0a", "height": "0c"})
        ledger.charge(*SMALL)
    with pytest.warns(LedgerWarning, match="this table has 900 rows, but that of the previous fit had 1,000"):
        ledger.charge(*SMALL, n=900)
    with pytest.warns(LedgerWarning, match="the bounds or levels of 'income' differ"):
        ledger.charge(*SMALL, n=900, columns={"age": "0a", "income": "ff"})
    with pytest.warns(LedgerWarning, match="none of the columns"):
        ledger.charge(*SMALL, n=900, columns={"dose": "0a"})


# ---------------------------------------------------------------------------------------------- δ, policy, explanation


def test_a_delta_above_the_total_s_is_refused(ledger):
    for account in (ledger, Budget(1.0, 1e-5)):
        with pytest.raises(BudgetExceeded, match=r"delta of this fit is 0\.01, above that of") as refusal:
            account.charge(0.01, 0.01, Price(1e-9))
        assert refusal.value.reason == "delta"
    assert ledger.state().refusals[0].reason == "delta"


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"largest_epsilon": 0.05}, "allows a fit up to epsilon=0.05, but this one needs 0.1"),
        ({"smallest_n": 501}, "requires at least 501 rows, but this table has 500"),
        ({"models": ["latent-class"]}, "allows the models latent-class, but this is linear-regression"),
        ({"who": ["nobody else"]}, "does not allow fits by"),
    ],
)
def test_a_policy_refuses_before_the_charge_and_is_written_down(path, policy, message):
    ledger = Ledger(f"sqlite:///{path}").open("patients", 1.0, 1e-5, policy=Policy.from_dict(policy))
    with pytest.raises(BudgetExceeded, match=message) as refusal:
        ledger.charge(*SMALL, model="linear-regression", n=500)
    assert refusal.value.reason == "policy"
    assert (ledger.history(), [one.reason for one in ledger.state().refusals]) == ([], ["policy"])
    assert ledger.state().policy.to_dict() == {key: tuple(v) if isinstance(v, list) else v for key, v in policy.items()}
    ledger.set_policy(Policy())
    ledger.charge(*SMALL, model="linear-regression", n=500)
    assert faults(ledger) == []


def test_a_policy_about_rows_refuses_a_fit_that_does_not_state_them(path):
    ledger = Ledger(f"sqlite:///{path}").open("patients", 1.0, 1e-5, policy=Policy(smallest_n=10))
    with pytest.raises(BudgetExceeded, match="does not state its number"):
        ledger.charge(*SMALL)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            {"epsilon": 1},
            "policy has the unknown key 'epsilon'; its keys are largest_epsilon, smallest_n, models, who.",
        ),
        ({"largest_epsilon": 0}, 'policy.largest_epsilon must be positive, or "inf";'),
        ({"largest_epsilon": "1"}, "policy.largest_epsilon must be a number;"),
        ({"smallest_n": 1.5}, "policy.smallest_n must be a whole number;"),
        ({"models": "all"}, "policy.models must be a list;"),
        ({"who": [1]}, r"policy.who\[0\] must be text;"),
    ],
)
def test_a_wrong_policy_is_refused(found, message):
    with pytest.raises(ValueError, match=message):
        Policy.from_dict(found)


@pytest.mark.parametrize("count", [1, 2, 5, 40])
@pytest.mark.parametrize("delta", [1e-4, 1e-9])
def test_the_composition_can_be_recomputed_by_hand(count, delta):
    """Each line has the numbers that the next line uses, to six digits."""
    budget, price = Budget(3.0, delta), Price(1e-3)
    charges = [budget.charge(price.epsilon(delta / 2), delta / 2, price) for _ in range(count)]
    lines = Total(3.0, delta).explain(charges)
    rho = float(lines[0].split("= ")[-1])
    assert rho == pytest.approx(1e-3 * count, rel=1e-5)
    alpha = float(lines[1].split("α = ")[-1])
    epsilon = alpha * rho + (-math.log(delta) - math.log(alpha - 1) + alpha * math.log(1 - 1 / alpha)) / (alpha - 1)
    assert epsilon == pytest.approx(float(lines[2].split("= ")[-1]), rel=1e-4)
    assert epsilon == pytest.approx(Price(rho).epsilon(delta), rel=1e-4)
    whole, left = re.search(r"worth ρ = (\S+), so ρ = (\S+) is left", lines[-2]).groups()
    assert float(left) == pytest.approx(float(whole) - rho, rel=1e-4)
    assert float(re.search(r"up to ε = (\S+) at", lines[-1])[1]) == pytest.approx(
        Total(3.0, delta).left(charges, delta), rel=1e-5
    )


def test_what_is_left_is_never_more_than_the_total():
    for epsilon in (0.1, 1.0, 30.0):
        assert Total(epsilon, 1e-4).left([], 1e-4) <= epsilon * (1 + 1e-9)
