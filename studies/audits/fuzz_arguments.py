"""Fuzzing targets that take values: plans, arguments and URLs of ledgers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from sqlalchemy.engine import make_url

from dpem import Ledger, LedgerError, Plan
from dpem.paper.planning import plans as planning
from dpem.paper.planning.settings import Pipeline, Settings
from dpem.query import FloatArray
from studies.audits.fuzz_core import SECRET_TEXT, Broken, Draw
from studies.paper.settings import ESTIMATORS


@contextmanager
def without_rehearsals() -> Iterator[None]:
    """Fast plans, with the first settings of the search and a fixed prediction."""

    def first(pipeline: Pipeline, rho: float) -> Settings:
        return pipeline.first()

    def errors(*_: Any) -> FloatArray:
        return np.full(8, 0.1)

    def rough(*_: Any) -> float:
        return 0.1

    with (
        mock.patch.object(planning, "choose", first),
        mock.patch.object(planning, "estimate", errors),
        mock.patch.object(planning, "rough_error", rough),
    ):
        yield


class Plans:
    """``Plan.from_dict`` of changed plans."""

    name, patience = "Plan.from_dict", 5.0
    refusals: tuple[type[Exception], ...] = (ValueError,)
    guided_by = ("dpem._json", "dpem.paper.planning.plans")

    def __init__(self, folder: Path) -> None:
        with without_rehearsals():
            given: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-4, "sigma": 0.5}
            made = [model(**given, sparsity=s).plan(400, 4) for model in ESTIMATORS.values() for s in (None, 2)]
        self._plain = [p.to_dict() for p in made]

    def seeds(self) -> list[bytes]:
        return [bytes(part) for part in np.ndindex(6, 3, 6, 5)]

    def run(self, data: bytes) -> bool:
        draw = Draw(data)
        document = _copied(self._plain[draw.below(6)])
        for _ in range(draw.below(4)):
            _exchange(document, draw)
        made = Plan.from_dict(document)
        if Plan.from_dict(made.to_dict()) != made:
            raise Broken("a plan that was accepted does not come back from its own dictionary")
        str(made)
        return True


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, list) else value


def _exchange(document: dict[str, Any], draw: Draw) -> None:
    """Replace a value somewhere in the document."""
    holder: Any = document
    while holder:
        key = draw.one_of(list(holder) if isinstance(holder, dict) else range(len(holder)))
        if isinstance(holder[key], dict | list) and holder[key] and draw.below(8) != 7:
            holder = holder[key]
            continue
        if draw.below(12) == 11 and isinstance(holder, dict):
            del holder[key]
        else:
            words = ("", "inf", "-inf", "nan", "Refine", "improved", "reference", "missing-regression", SECRET_TEXT)
            holder[key] = draw.one_of(words) if draw.below(4) == 3 else draw.number()
        return


class Arguments:
    """Arguments of the estimators and of ``plan``, as far as they are refused before any table is seen."""

    name, patience = "arguments of plan", 5.0
    refusals: tuple[type[Exception], ...] = (ValueError,)
    guided_by = ("dpem._validation", "dpem.paper.planning.plans", "dpem.privacy.accounting")

    around = staticmethod(without_rehearsals)

    def __init__(self, folder: Path) -> None:
        self._usual: dict[str, Any] = {"n": 500, "d": 6, "epsilon": 1.0, "delta": 1e-5, "sigma": 0.5}

    def seeds(self) -> list[bytes]:
        return [bytes([count, *place]) for count in range(4) for place in np.ndindex(11, 6, 8)]

    def run(self, data: bytes) -> bool:
        draw = Draw(data)
        names = ("n", "d", "epsilon", "delta", "sigma", "signal", "sparsity", "max_sparsity", "n_iter", "clip")
        given = dict(self._usual)
        for _ in range(draw.below(4)):
            given[draw.one_of(names)] = draw.number()
        model, n, d = draw.one_of(tuple(ESTIMATORS.values())), given.pop("n"), given.pop("d")
        str(model(**given).plan(n, d))
        return True


class Urls:
    """URLs of ledgers and names of datasets; nothing is connected."""

    name, patience = "ledger URLs", 5.0
    refusals: tuple[type[Exception], ...] = (ValueError, LedgerError)
    guided_by = ("dpem.privacy.ledger_store", "dpem.privacy.ledger")
    tokens = (
        *(
            b"sqlite:///",
            b"postgresql://",
            b"postgresql+psycopg://",
            b"mysql://",
            b":",
            b"@",
            b"?",
            b"%",
            b"[::1]",
            b"#",
        ),
        *(b":memory:", b"file:", b"?mode=ro", b"password=", b"\0", b"\xff", b"/../", b"connect_timeout=x", b":99999"),
    )

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def seeds(self) -> list[bytes]:
        return [
            b"sqlite:///budget.db patients",
            b"postgresql://user:SECRETZ@host:5432/base patients",
            b"postgresql+psycopg://user@host/base?sslmode=require&password=SECRETZ x",
            b"sqlite:////tmp/x.db?mode=ro \xc3\xa9",
            b"sqlite:// x",
            b"oracle://user:SECRETZ@host x",
        ]

    def run(self, data: bytes) -> bool:
        url, _, name = data.decode("utf-8", errors="surrogateescape").partition(" ")
        if SECRET_TEXT in name or SECRET_TEXT in url.partition(":")[0]:
            name, url = name.replace(SECRET_TEXT, "name"), url.replace(SECRET_TEXT, "host")  # only passwords are secret
        ledger = Ledger(url, name or None)
        if make_url(url).password == SECRET_TEXT and repr(ledger).count(SECRET_TEXT) >= url.count(SECRET_TEXT):
            raise Broken("repr of a ledger shows the password of its URL")
        Ledger(*ledger.__reduce__()[1])
        return True
