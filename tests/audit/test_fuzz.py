"""A short fuzzing run with fixed seeds, and every input that a long run has found.

A case that is expected to fail is one that the library does not refuse as it should yet; then its mark must go.
"""

from __future__ import annotations

import gc
import gzip
import io
import json
import sqlite3
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dpem import Budget, DPStandardScaler, Ledger, LedgerError, Plan, read_table
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from studies.audits import fuzz
from studies.audits.fuzz_arguments import without_rehearsals
from studies.audits.fuzz_core import SECRET_NUMBER, SECRET_TEXT, Broken, Tally, judge, loop, mutated
from studies.audits.fuzz_estimators import fitted

# --- The fuzzer itself ------------------------------------------------------------------------------------------------


class Toy:
    """A target that does what its first byte says."""

    name, patience, refusals, guided_by = "toy", 0.2, (ValueError,), ()

    def seeds(self) -> list[bytes]:
        return [bytes([k]) for k in range(8)]

    def run(self, data: bytes) -> bool:
        what = data[0] if data else 0
        if what == 1:
            raise ValueError("a sentence.")
        if what == 2:
            raise KeyError("undocumented")
        if what == 3:
            raise ValueError(f"the entry {SECRET_NUMBER} is wrong.")
        if what == 4:
            raise ValueError("two\nlines")
        if what == 5:
            while True:
                pass
        if what == 6:
            warnings.warn(f"look at {SECRET_TEXT}", UserWarning, stacklevel=1)
        if what == 7:
            float("not a number")
        return True


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (0, None),
        (1, None),
        (2, "KeyError"),
        (3, "quotes a planted value"),
        (4, "not one sentence"),
        (5, "a hang"),
        (6, "a warning quotes"),
        (7, "in the words of another"),
    ],
)
def test_the_judge_sees_what_is_wrong(what, message):
    wrong = judge(Toy(), bytes([what]), Tally())
    assert (wrong is None) if message is None else (message in wrong)


def test_a_cause_that_would_be_printed_counts_as_quoted():
    class Chained(Toy):
        def run(self, data: bytes) -> bool:
            try:
                float(SECRET_TEXT)
            except ValueError as error:
                if data == b"hidden":
                    raise ValueError("a sentence.") from None
                raise ValueError("a sentence.") from error
            return True

    assert judge(Chained(), b"hidden", Tally()) is None
    assert "quotes" in judge(Chained(), b"shown", Tally())


def test_the_same_seed_gives_the_same_inputs():
    import random

    made = [[mutated(b"abc" * 9, random.Random(k), (b"tok",)) for k in range(50)] for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) > 40


def test_a_campaign_counts_saves_and_replays(tmp_path, capsys):
    """The whole command with a few inputs, in its own processes."""
    out = tmp_path / "fuzz.json"
    given = ["--engine", "mutations", "--inputs", "200", "--minutes", "0.2", "--targets", "urls"]
    fuzz.main([*given, "--out", str(out), "--save", str(tmp_path / "found")])
    summary = json.loads(out.read_text())
    row = summary["targets"]["urls"]
    assert summary["inputs"] == row["inputs"] == 200
    assert row["refused"] + row["accepted"] + len(row["findings"]) >= 200
    assert "inputs/s" in capsys.readouterr().out
    saved = tmp_path / "one"
    saved.write_bytes(b"sqlite:///budget.db patients")
    assert fuzz.main(["--replay", "urls", str(saved)]) == 0


# --- A few thousand inputs --------------------------------------------------------------------------------------------

RUNS = [
    ("models", 500),
    ("plans", 400),
    ("arguments", 4000),
    ("urls", 2000),
    ("ledgers", 60),
    ("csv", 300),
    ("csv.gz", 300),
    ("parquet", 200),
    ("arrow", 200),
    ("estimators", 120),
    ("commands", 25),
]


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize(("name", "inputs"), RUNS)
def test_a_short_run_finds_nothing(name, inputs):
    with fuzz.folder_in_memory() as folder:
        tally = loop(fuzz.make(name, folder), inputs, seed=0)
    assert tally.findings == {}
    assert tally.inputs == inputs
    assert min(tally.refused, tally.accepted) > 0  # both branches are reached


# --- Found: arguments -------------------------------------------------------------------------------------------------

SIZES: dict[str, Any] = {"n": 500, "d": 6, "epsilon": 1.0, "delta": 1e-5, "sigma": 0.5}


def plan(**changes: Any) -> Plan:
    """The plan of an estimator with these arguments."""
    arguments = {**SIZES, **changes}
    n, d = arguments.pop("n"), arguments.pop("d")
    return DPSymmetricMixture(**arguments).plan(n, d)


def refusal(make) -> str:
    """The one sentence of a refusal, in the library's own words."""
    with pytest.raises(ValueError, match=r"\w") as caught:
        make()
    assert isinstance(caught.value, ValueError)
    assert judge(_Raises(caught.value), b"", Tally()) is None
    return str(caught.value)


class _Raises(Toy):
    def __init__(self, error: Exception) -> None:
        self._error = error

    def run(self, data: bytes) -> bool:
        raise self._error


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 10**400),
        ("delta", 1e-320),
        ("sigma", 10**400),
        ("sigma", 1e300),
        ("sigma", 1e-320),
        ("signal", 1e200),
        ("signal", 5e-324),
        ("n", 10**400),
        ("d", 10**400),
        ("clip", 10**400),
        ("step_size", 1e300),
    ],
)
def test_numbers_that_nothing_can_be_computed_with_are_refused(name, value):
    with without_rehearsals():
        assert name in refusal(lambda: plan(**{name: value}))


@pytest.mark.parametrize("name", ["n", "d", "epsilon", "delta", "sigma", "signal", "sparsity"])
def test_rows_given_for_a_number_are_not_quoted(name):
    """Somebody hands the table to the wrong argument: the refusal must not print it."""
    for rows in (np.full((40, 3), SECRET_NUMBER), [SECRET_NUMBER] * 3):
        assert str(SECRET_NUMBER) not in refusal(lambda rows=rows: plan(**{name: rows}))


def test_a_plan_with_a_long_integer_is_refused():
    with without_rehearsals():
        plain = plan().to_dict()
    assert "epsilon" in refusal(lambda: Plan.from_dict({**plain, "epsilon": 10**400}))


def test_a_seed_that_is_none_is_refused():
    rows = np.random.default_rng(0).standard_normal((60, 2))
    scaler = DPStandardScaler(epsilon=1.0, delta=1e-4, bounds=(-5, 5), random_state=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "random_state" in refusal(lambda: scaler.fit(rows))


@pytest.mark.parametrize("kind", [DPSymmetricMixture, DPSymmetricRegression, DPMissingRegression])
def test_a_sigma_whose_square_is_zero_spends_nothing(kind):
    """σ = 1e-200 was accepted and charged, and then a kernel divided by σ² = 0."""
    rng, budget = np.random.default_rng(0), Budget(5.0, 1e-3)
    X = rng.standard_normal((300, 2))
    model = kind(epsilon=1.0, delta=1e-4, sigma=1e-200, start=[1.0, 1.0], budget=budget)
    with without_rehearsals(), pytest.raises(ValueError, match="sigma must"):
        model.fit(X, None if kind is DPSymmetricMixture else X[:, 0])
    assert budget.n_charges == 0


def test_one_row_cannot_overflow_a_float32_sum():
    """A privacy leak: products beyond float32 became infinite, and no noise hides an infinity.

    With clip = 1e20 a row may add 1e40 to a sum of float32 numbers. One row of the table then decided the sign of the
    largest float that there is, in every coordinate. It must be refused, or answered at the scale of the noise.
    """
    X, y = np.zeros((600, 3), dtype=np.float32), np.zeros(600)
    X[0] = 1e20
    given: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-4, "sigma": 0.5, "method": "published", "start": "equal"}
    model, budget = DPSymmetricRegression(**given, clip=1e20, n_iter=1), Budget(5.0, 1e-3)
    model.set_params(budget=budget)
    try:
        model.fit(X, y)
    except ValueError:
        assert budget.n_charges == 0
    else:
        assert np.max(np.abs(model.coef_)) < 1e50


# --- Found: files -----------------------------------------------------------------------------------------------------


@pytest.fixture
def collected() -> Iterator[None]:
    """numpy leaves half an archive open; the file is closed here, and not in the middle of another test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


DAMAGED = {
    "packed.csv.gz": gzip.compress(b"a,b\n1,2\n" * 50, mtime=0)[:10] + b"\x07" * 20,
}


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused_in_a_sentence(name, tmp_path):
    (tmp_path / name).write_bytes(DAMAGED[name])
    with pytest.raises((ValueError, OSError), match="cannot be read"):
        read_table(tmp_path / name)


def test_every_byte_of_a_footer_may_be_wrong():
    """Parquet keeps its schema and counts in its footer; a count may come out negative."""
    table = pa.table({"a": [1.0, 2.0, 3.0]})
    sink = io.BytesIO()
    parquet.write_table(table, sink, compression="none", write_statistics=False, store_schema=False)
    content, tally = sink.getvalue(), Tally()
    with fuzz.folder_in_memory() as folder:
        target = fuzz.make("parquet", folder)
        for place in range(content.rindex(b"a", 0, -40) - 60, len(content)):
            for flip in (0x01, 0x80, 0xFF):
                judge(target, b"\0" + content[:place] + bytes([content[place] ^ flip]) + content[place + 1 :], tally)
    assert tally.findings == {}
    assert tally.refused > 100


def test_long_names_of_columns_are_not_repeated_whole(tmp_path):
    (tmp_path / "rows.csv").write_text(f"a,{'x' * 5000}\n1,2\n")
    with pytest.raises(ValueError, match="has no column 'outcome'") as caught:
        read_table(tmp_path / "rows.csv", target="outcome")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("url", ["sqlite:///\udcc7.db", "postgresql://user:\udcb8x@host/base"])
def test_half_characters_in_a_url_are_refused(url):
    with pytest.raises(ValueError, match="url must") as caught:
        repr(Ledger(url))
    assert isinstance(caught.value, ValueError)


def test_a_long_name_is_not_repeated_whole(tmp_path):
    with pytest.raises(ValueError, match="printable") as caught:
        Ledger(f"sqlite:///{tmp_path}/budget.db", "x" * 5000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("time", ["yesterday", "", "2030-01-01T00:00:00"])
def test_a_charge_without_a_time_is_damage(time, tmp_path):
    from dpem.privacy import Price
    from dpem.privacy.ledger_chain import Entry

    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db").open("patients", 1.0, 1e-4)
    ledger.charge(0.1, 1e-6, Price(0.0001)).close("answered")
    connection = sqlite3.connect(tmp_path / "budget.db", isolation_level=None)
    connection.execute("DROP TRIGGER dpem_entries_no_update")
    rows = connection.execute("SELECT * FROM dpem_datasets UNION SELECT * FROM dpem_entries ORDER BY number").fetchall()
    previous = ""
    for row in rows:  # somebody who computes the digests again
        body = json.dumps({**json.loads(row[4]), "time": time}) if row[3] == "fit" else row[4]
        digest = Entry(*row[1:4], body, previous, "").own_digest
        connection.execute(
            "UPDATE dpem_entries SET body = ?, previous = ?, digest = ? WHERE number = ?",
            (body, previous, digest, row[2]),
        )
        previous = digest
    connection.close()
    with pytest.raises(LedgerError, match="is not valid"):
        ledger.history()


def test_a_refused_fit_that_had_paid_would_be_seen():
    """Teeth: an estimator that charges and then refuses is a finding."""

    class Greedy(DPSymmetricMixture):
        def _noise(self) -> Any:
            from dpem.privacy import Price

            self.budget.charge(0.1, 1e-6, Price(0.0001))
            raise ValueError("refused.")

    with without_rehearsals(), pytest.raises(Broken, match="after it had charged"):
        fitted(Greedy, {"epsilon": 1.0, "delta": 1e-4, "sigma": 0.5}, np.ones((40, 2)), None, Budget(5.0, 1e-3))
