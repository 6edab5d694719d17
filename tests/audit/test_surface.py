"""What an enemy can reach: no network unasked, files for their owner, and nothing run from files somebody prepared.

(A Parquet file that unpacks to more than the memory is out of scope: a table's owner chooses it, and Arrow reads it.)
"""

from __future__ import annotations

import html.parser
import json
import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from dpem import Ledger, LedgerError, load_model, save_model, write_report
from dpem._json import checksum
from dpem.paper import DPSymmetricMixture
from dpem.privacy import Price

# --- The network ------------------------------------------------------------------------------------------------------

_SESSION = """
import os, socket, sys
def refuse(*_, **__):
    os.write(2, b"the network was used")
    os._exit(99)
socket.socket.connect = socket.socket.connect_ex = socket.create_connection = refuse
socket.getaddrinfo = socket.gethostbyname = refuse
events = ("socket.connect", "socket.getaddrinfo", "socket.bind")
sys.addaudithook(lambda event, _: refuse() if event in events else None)

import numpy as np
from click.testing import CliRunner
from dpem import Budget
from dpem.paper import DPMissingRegression
from dpem.cli import cli

rng = np.random.default_rng(0)
X = rng.standard_normal((400, 2))
fit = dict(epsilon=0.4, delta=1e-4, sigma=0.5, method="published", budget=Budget(1.0, 1e-3))
DPMissingRegression(**fit).fit(X, X[:, 0])
np.savetxt("rows.csv", X, delimiter=",", header="a,b", comments="")
paid = "--ledger sqlite:///budget.db --dataset rows"
for line in (
    f"ledger open {paid} --epsilon 3 --delta 1e-3",
    "plan symmetric-mixture --n 400 --d 2 --epsilon 1 --delta 1e-4 --sigma 0.5",
    f"scale rows.csv --bounds=-5,5 --epsilon 0.5 --delta 1e-5 --out scaler.json {paid}",
    f"fit symmetric-mixture rows.csv --epsilon 1 --delta 1e-4 --sigma 0.5 --report report.html --anyway {paid}",
    "predict model.json rows.csv --out out.csv",
    f"ledger show {paid}",
    f"ledger history {paid}",
):
    result = CliRunner().invoke(cli, line.split())
    assert result.exit_code == 0, (line, result.output)
print("done")
"""


def test_nothing_speaks_to_a_network(tmp_path):
    """A fit and a whole session of the command, in a process that dies at the first address it looks up."""
    environment = {key: value for key, value in os.environ.items() if key != "DPEM_LEDGER"}
    run = subprocess.run(
        [sys.executable, "-c", _SESSION], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout.strip()) == (0, "done"), run.stderr[-2000:]
    page = (tmp_path / "report.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org/", "")
    assert "https://" not in page


def test_the_hook_would_notice():
    """Teeth: the same process dies when it does look up an address."""
    start = _SESSION.partition("import numpy")[0]
    run = subprocess.run(
        [sys.executable, "-c", start + "socket.create_connection(('localhost', 1))"], capture_output=True, check=False
    )
    assert run.returncode == 99


# --- Files of a ledger ------------------------------------------------------------------------------------------------


def test_the_journal_of_a_charge_is_for_its_owner_only(tmp_path):
    """The rollback journal holds the pages before a charge: looked at between the append and the commit."""
    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db").open("patients", 1.0, 1e-4)
    modes: dict[str, int] = {}
    before = os.umask(0)
    try:
        with suppress(KeyboardInterrupt), ledger._store.write_transaction("patients") as connection:
            connection.exec_driver_sql("INSERT INTO dpem_meta VALUES (7)")
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
            raise KeyboardInterrupt  # and it is rolled back
    finally:
        os.umask(before)
    assert modes == {"budget.db": 0o600, "budget.db-journal": 0o600}


def endless(path: Path) -> None:
    """The enemy's ledger: the table of entries is a view that never ends."""
    connection = sqlite3.connect(path, isolation_level=None)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f'DROP TRIGGER "{name}"')
    columns = [row[1] for row in connection.execute("PRAGMA table_info(dpem_entries)")]
    shown = ", ".join("c.k AS number" if name == "number" else f"hidden.{name}" for name in columns)
    connection.executescript(
        "ALTER TABLE dpem_entries RENAME TO hidden; CREATE VIEW dpem_entries AS "
        f"WITH RECURSIVE c(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM c) SELECT {shown} FROM c, hidden"
    )
    connection.close()


_READER = """
import resource, sys
from dpem import Ledger, LedgerError
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))  # of the processor: it is no test of how busy the machine is
try:
    Ledger(sys.argv[1]).state("patients")
except LedgerError:
    print("refused")
"""


def test_a_ledger_with_an_endless_view_is_refused(tmp_path):
    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db").open("patients", 1.0, 1e-4)
    ledger.charge(0.1, 1e-6, Price(0.0001)).close("answered")
    endless(tmp_path / "budget.db")
    command = [sys.executable, "-c", _READER, f"sqlite:///{tmp_path}/budget.db"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "refused")


@pytest.mark.parametrize(
    "planted",
    [
        "ALTER TABLE dpem_entries RENAME TO hidden; CREATE VIEW dpem_entries AS SELECT * FROM hidden WHERE number < 2; "
        "CREATE TRIGGER t INSTEAD OF INSERT ON dpem_entries BEGIN SELECT 1; END",
        "DROP TRIGGER dpem_entries_no_delete; "
        "CREATE TRIGGER t AFTER INSERT ON dpem_entries BEGIN DELETE FROM dpem_entries; END",
        "DROP TRIGGER dpem_datasets_no_update; "
        "CREATE TRIGGER t AFTER INSERT ON dpem_entries BEGIN UPDATE dpem_datasets SET body = ''; END",
    ],
    ids=["view that swallows charges", "trigger that forgets charges", "trigger that raises the total"],
)
def test_a_ledger_with_planted_views_or_triggers_is_refused(tmp_path, planted):
    """An enemy who can write the file can forge its rows; but the file must not change them by itself from then on."""
    url = f"sqlite:///{tmp_path}/budget.db"
    ledger = Ledger(url).open("patients", 1.0, 1e-4)
    ledger.charge(0.1, 1e-6, Price(0.0001)).close("answered")
    connection = sqlite3.connect(tmp_path / "budget.db", isolation_level=None)
    connection.executescript(planted)
    connection.close()
    with pytest.raises(LedgerError, match="not a valid ledger"):
        ledger.charge(0.1, 1e-6, Price(0.0001))


# --- Models and reports from an enemy ---------------------------------------------------------------------------------

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "</title><svg/onload=alert(1)>",
    "a\u2028b\u202ec",
    "&lt;script&gt;",
    "]]><!--",
]


class Elements(html.parser.HTMLParser):
    """Every element with its attributes, and all text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def fitted() -> DPSymmetricMixture:
    import pandas as pd

    rng = np.random.default_rng(0)
    rows = rng.choice([-1.0, 1.0], size=(400, 1)) * np.full(8, 0.3) + 0.5 * rng.standard_normal((400, 8))
    given = {"epsilon": 0.4, "delta": 1e-4, "sigma": 0.5, "method": "published", "start": "equal", "n_iter": 1}
    return DPSymmetricMixture(**given).fit(pd.DataFrame(rows, columns=[f"c{j}" for j in range(8)]))


def changed(model: DPSymmetricMixture, path: Path, change) -> Path:
    """The model's file with something changed in it, and its checksum made right."""
    save_model(model, path)
    document = json.loads(path.read_text())
    change(document)
    document.pop("checksum")
    path.write_text(json.dumps({**document, "checksum": checksum(document)}))
    return path


def test_hostile_names_come_out_of_a_model_as_text(tmp_path, fitted):
    """Through model.json and into the report: names are text there, never elements, attributes or scripts."""

    def change(document) -> None:
        document["features"]["names"] = HOSTILE

    model = load_model(changed(fitted, tmp_path / "model.json", change))
    assert list(model.feature_names_in_) == HOSTILE
    write_report(model, tmp_path / "report.html")
    write_report(fitted, tmp_path / "honest.html")
    found, honest = Elements(), Elements()
    found.feed((tmp_path / "report.html").read_text())
    honest.feed((tmp_path / "honest.html").read_text())
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in honest.tags]
    for _, attributes in found.tags:
        assert not any(name.startswith("on") for name in attributes)
        assert not any(
            (attributes.get(name) or "").strip().lower().startswith("javascript") for name in ("href", "src")
        )
    words = " ".join(found.words)
    assert "<script>alert(1)</script>" in words
    assert "\u2028" not in words
    assert "\u202e" not in words


def test_a_deep_value_behind_a_right_checksum_is_refused(tmp_path, fitted):
    deep: list = []
    for _ in range(600):
        deep = [deep]

    def change(document) -> None:
        document["plan"]["steps"] = deep

    with pytest.raises(ValueError, match=r"cannot be loaded: plan\.steps\[0\]"):
        load_model(changed(fitted, tmp_path / "model.json", change))


def test_a_claim_of_many_columns_takes_no_memory(tmp_path, fitted):
    def change(document) -> None:
        document["features"] = {"count": 2**53, "names": None}
        document["plan"]["d"] = 2**53

    with pytest.raises(ValueError, match=r"features\.count must be at most"):
        load_model(changed(fitted, tmp_path / "model.json", change))


def test_a_scaler_and_a_dataset_with_hostile_names_show_as_text(tmp_path):
    """Names of datasets are shown on screens: what reorders or ends a line there is refused."""
    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db")
    for name in ("a\u2028b", "a\nb", "a\x1b[2Jb", "\u202eb", "a\x00b"):
        with pytest.raises(ValueError, match="printable"):
            ledger.open(name, 1.0, 1e-4)
    name = "x'; DROP TABLE dpem_entries; --"
    bound = ledger.open(name, 1.0, 1e-4)
    bound.charge(0.1, 1e-6, Price(0.0001), purpose="'); DELETE FROM dpem_entries; --").close("answered")
    assert [charge.dataset for charge in bound.history()] == [name]
