"""The fuzzing target of command lines and their output."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from dpem import Ledger
from dpem.cli import cli
from studies.audits.fuzz_arguments import without_rehearsals
from studies.audits.fuzz_core import SECRET_NUMBER, SECRET_TEXT, Broken, Draw, leaks


class Commands:
    """Command lines through click: an exit status that is documented, never a traceback, never a planted value."""

    name, patience = "command lines", 30.0
    refusals: tuple[type[Exception], ...] = ()
    guided_by = ("dpem.cli",)

    around = staticmethod(without_rehearsals)

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "shell"
        self._folder.mkdir()
        rng = np.random.default_rng(0)
        rows = rng.standard_normal((200, 3))
        rows[5, 1] = SECRET_NUMBER
        lines = "\n".join(",".join(f"{v:.6g}" if v != SECRET_NUMBER else str(v) for v in row) for row in rows)
        (self._folder / "rows.csv").write_text(f"a,b,c\n{lines}\n")
        (self._folder / "text.csv").write_text(f"a,b,c\n1,2,{SECRET_TEXT}\n")
        (self._folder / "deep.csv").write_text("[" * 100_000)
        (self._folder / "deep.json").write_text("[" * 100_000)
        (self._folder / "start.json").write_text('{"a": 1.0}')
        (self._folder / "cut.parquet").write_bytes(b"PAR1")
        Ledger(f"sqlite:///{self._folder}/budget.db").open("p", 3.0, 1e-3)

    def seeds(self) -> list[bytes]:
        usual = (b"\0", b"\1", b"\2", b"\3", b"\4", b"\5", b"\6")
        return [start + bytes(rest) for start in usual for rest in np.ndindex(6, 5, 5)]

    def run(self, data: bytes) -> bool:
        line, here = command_line(Draw(data)), Path.cwd()
        os.chdir(self._folder)
        try:
            result = CliRunner().invoke(cli, line, env={"DPEM_LEDGER": None})
        finally:
            os.chdir(here)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise Broken(f"{type(result.exception).__name__} left the command")
        if "Traceback" in result.output:
            raise Broken("the command shows a traceback")
        if result.exit_code not in range(8):
            raise Broken(f"exit status {result.exit_code} is not documented")
        if "something went wrong" in result.output:
            raise Broken(f"unforeseen: {result.output.strip()[:200]}")
        if leaks(result.output) and not any(leaks(word) for word in line):
            raise Broken("the command prints a planted value")
        return result.exit_code == 0


_FIT = ["--epsilon", "1", "--delta", "1e-5", "--sigma", "0.5", "--force", "--anyway"]
_LINES: tuple[list[str], ...] = (
    ["fit", "symmetric-mixture", "rows.csv", *_FIT],
    ["fit", "missing-regression", "rows.csv", "--target", "c", *_FIT],
    ["predict", "model.json", "rows.csv"],
    ["scale", "rows.csv", "--bounds=-5,5", "--epsilon", "1", "--delta", "1e-5", "--force"],
    ["plan", "symmetric-mixture", "--n", "100", "--d", "3", "--delta", "1e-4", "--epsilon", "1"],
    ["ledger", "show", "--ledger", "sqlite:///budget.db"],
    ["ledger", "open", "--ledger", "sqlite:///budget.db", "--dataset", "q", "--epsilon", "1", "--delta", "1e-4"],
)
_WORDS = (
    *("--epsilon", "--delta", "--sigma", "--signal", "--sparsity", "--max-sparsity", "--method", "--start", "--target"),
    *("--columns", "--out", "--report", "--ledger", "--dataset", "--scaler", "--dry-run", "--json", "--bounds", "--n"),
    *("--d", "--sweep", "--csv", "--keep", "--exclude", "--levels", "--help", "--force", "--anyway", "history", "show"),
    *(
        "rows.csv",
        "text.csv",
        "cut.parquet",
        "deep.csv",
        "deep.json",
        "start.json",
        "model.json",
        "nothing.csv",
    ),
    *(
        "a",
        "b,c",
        "a,a",
        "",
        ",",
        "equal",
        "auto",
        "paper",
        "0",
        "-1",
        "1",
        "3",
        "1e999",
        "nan",
        "inf",
        "1e-320",
        "1e300",
    ),
    *(
        "1e19",
        "99999999999999999999",
        "sqlite:///budget.db",
        "sqlite:///none.db",
        "x://y",
        ".",
        "/",
        "\ud800",
        "é",
        "--",
    ),
    *("1,2", "2,1", "1,x", "0.5", "report.html", "missing-regression", "symmetric-regression", "p", "\x00"),
)


def command_line(draw: Draw) -> list[str]:
    """A usual command line with words replaced, inserted or removed; without schedulers, which need a network."""
    line = list(draw.one_of(_LINES))
    for _ in range(draw.below(4)):
        place, word = draw.below(len(line) + 1), draw.one_of(_WORDS)
        kind = draw.below(4)
        if kind == 0:
            del line[place : place + 1]
        elif kind == 1 and line:
            line[place % len(line)] = word
        elif kind == 2:
            line[place:place] = [word]
        else:
            line += [word, draw.one_of(_WORDS)]
    return line
