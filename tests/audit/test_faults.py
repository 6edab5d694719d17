"""A short version of every campaign of faults, and planted bugs that the campaigns must find."""

import json
import sqlite3
from contextlib import nullcontext

import pytest

from dpem import Ledger
from dpem.paper import DPSymmetricMixture
from dpem.privacy.accounting import zcdp_delta
from studies.audits import faults, faults_ledger
from studies.audits.faults import CAMPAIGNS, POSTGRESQL, SQLITE, Sizes

SHORT = Sizes(kills=10, processes=3, threads=8, quick=True)
#: A cluster takes long to start: the long version has one, and so has tests/tables/test_dask.py.
HERE = [(name, place) for name, (_, places) in CAMPAIGNS.items() for place in places if name != "Dask worker killed"]


@pytest.fixture(scope="module")
def site():
    with faults.site() as found:
        yield found


@pytest.mark.real_noise  # fits must not draw the same noise; two answers agree by chance with probability below 2⁻⁵⁰
@pytest.mark.parametrize(("name", "place"), HERE)
def test_nothing_is_lost(site, name, place):
    if place == POSTGRESQL and site.server is None:
        pytest.skip("there is no PostgreSQL server")
    result = faults.run(site, name, place, SHORT)
    assert result.broken == []
    expected = {
        "kill -9": {"kills": 10},
        "race for the last": {"fits answered": 4, "fits refused by BudgetExceeded": 20},
        "clock set back": {"fits": 20, "clock set back": 9},
    }
    assert expected.get(name, {}).items() <= result.counts.items()
    assert sum(result.counts.values()) > 0


def test_a_charge_after_the_answer_is_caught(site):
    """The planted bug writes the charge after the fit, so a killed fit has queried data without a charge."""
    found = site.apart.run(lambda _: None, "kills", site.url(SQLITE), 6, 0, "late")
    assert any("was reported to a fit and is not in the ledger" in sentence for sentence in found.broken)


def fitted(url, fits):
    """A ledger with fits, and the charges they reported."""
    ledger = Ledger(url).open(faults_ledger.DATASET, **faults_ledger.AMPLE)
    for _ in range(fits):
        DPSymmetricMixture(**faults_ledger.SETTINGS, budget=ledger).fit(faults_ledger.table())
    return {charge.id: "answered" for charge in ledger.history()}


def faults_of(url, reported):
    found = faults_ledger.Findings()
    faults_ledger.check_ledger(found, url, reported, faults_ledger.price())
    return found.broken


TAMPERED = {
    "last fit removed": (
        "DELETE FROM dpem_entries WHERE number > 7",
        "charge 8 was reported to a fit and is not in the",
    ),
    "cheaper": (
        "UPDATE dpem_entries SET body = json_set(body, '$.rho', 1e-9) WHERE number = 5",
        "the ledger does not open",
    ),
    "outcome removed": ("DELETE FROM dpem_entries WHERE number > 8", "charge 8 was answered and is not shown so"),
    "total lowered": ("UPDATE dpem_datasets SET body = json_set(body, '$.epsilon', 0.01)", "the ledger does not open"),
    "first row removed": ("DELETE FROM dpem_entries WHERE number = 2", "the ledger does not open"),
}


@pytest.mark.parametrize("case", list(TAMPERED))
def test_a_ledger_that_was_tampered_with_is_noticed(tmp_path, case):
    path, (statement, sentence) = tmp_path / "budget.db", TAMPERED[case]
    reported = fitted(f"sqlite:///{path}", 3)
    assert faults_of(f"sqlite:///{path}", reported) == []
    with sqlite3.connect(path) as file:
        for (trigger,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            file.execute(f"DROP TRIGGER {trigger}")
        file.execute(statement)
    file.close()
    assert any(fault.startswith(sentence) for fault in faults_of(f"sqlite:///{path}", reported))


def test_the_ledger_has_the_price_and_the_conversion():
    model = DPSymmetricMixture(**faults_ledger.SETTINGS).fit(faults_ledger.table())
    assert faults_ledger.price() == model.plan_.price.rho
    for rho, epsilon in ((0.001, 0.3), (0.01, 1.0), (0.5, 4.0), (3.0, 20.0)):
        assert faults_ledger.smallest_delta(rho, epsilon) == pytest.approx(zcdp_delta(rho, epsilon), rel=1e-5)


def test_the_command_says_what_broke(site, monkeypatch, tmp_path, capsys):
    def breaking(at, place, sizes, tick):
        return faults_ledger.Findings(broken=["something was lost"])

    def sound(at, place, sizes, tick):
        tick(1)
        return faults_ledger.Findings()

    monkeypatch.setattr(faults, "site", lambda: nullcontext(site))
    out = tmp_path / "faults.json"
    for campaigns, status in (
        ({"a": (sound, (SQLITE,))}, 0),
        ({"a": (breaking, (SQLITE,)), "b": (sound, (SQLITE,))}, 1),
    ):
        monkeypatch.setattr(faults, "CAMPAIGNS", campaigns)
        monkeypatch.setattr("sys.argv", ["faults", "--quick", "--out", str(out)])
        with pytest.raises(SystemExit) as ended:
            faults.main()
        assert ended.value.code == status
        assert [bool(result["broken"]) for result in json.loads(out.read_text())] == [status == 1, False][
            : len(campaigns)
        ]
    output = capsys.readouterr().out
    assert "broken: something was lost" in output
    assert "1 of 2 campaigns held" in output
    monkeypatch.setattr("sys.argv", ["faults", "--racers", "12"])
    with pytest.raises(SystemExit):
        faults.main()
    assert "--racers a positive multiple of 8" in capsys.readouterr().err
