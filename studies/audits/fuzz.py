"""A fuzzing campaign: ``python -m studies.audits.fuzz [--minutes 8] [--inputs N] [--targets …] [--save FOLDER]``.

Everything that reads input from outside is given changed files, values and command lines. Each must be accepted, or
refused in one sentence (:mod:`studies.audits.fuzz_core` defines a finding). Every target runs in a process of its own,
which writes its counts and its current input to a shared file, so that the input is known if the process dies or hangs.

The engine is atheris (libFuzzer, guided by the branches of the modules that a target names) if it is installed, and
otherwise the seeded mutations of :func:`studies.audits.fuzz_core.loop`. The output names the engine.
"""

from __future__ import annotations

import argparse
import inspect
import json
import mmap
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dpem import __version__
from studies.audits.fuzz_core import Tally, Target, around, judge, loop, name_of

#: Targets by name, each with its module, class and further arguments. A target's modules are imported in its process.
TARGETS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "models": ("studies.audits.fuzz_files", "Models", ()),
    "plans": ("studies.audits.fuzz_arguments", "Plans", ()),
    "arguments": ("studies.audits.fuzz_arguments", "Arguments", ()),
    "urls": ("studies.audits.fuzz_arguments", "Urls", ()),
    "ledgers": ("studies.audits.fuzz_ledgers", "LedgerFiles", ()),
    "csv": ("studies.audits.fuzz_files", "Tables", (".csv",)),
    "csv.gz": ("studies.audits.fuzz_files", "Tables", (".csv.gz",)),
    "parquet": ("studies.audits.fuzz_files", "Tables", (".parquet",)),
    "arrow": ("studies.audits.fuzz_files", "Tables", (".arrow",)),
    "estimators": ("studies.audits.fuzz_estimators", "Estimators", ()),
    "commands": ("studies.audits.fuzz_commands", "Commands", ()),
}
#: The share of the time for each target.
SHARES = {
    **dict.fromkeys(("models", "plans", "arguments", "urls"), 0.11),
    **dict.fromkeys(("ledgers", "estimators", "commands"), 0.12),
    **dict.fromkeys(("csv", "csv.gz", "parquet", "arrow"), 0.04),
}
#: Seconds without an input after which a process counts as hanging.
STILL = 60.0
_HEAD = struct.Struct("<QQQQd")
_ROOM = 1 << 20


def make(name: str, folder: Path) -> Target:
    """The target with this name, with its files in the folder."""
    module, kind, further = TARGETS[name]
    made: Target = getattr(__import__(module, fromlist=[kind]), kind)(folder, *further)
    return made


class Board:
    """Counts and the current input, in a file that two processes map."""

    def __init__(self, path: Path, *, new: bool = False) -> None:
        if new:
            path.write_bytes(bytes(_ROOM))
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _ROOM)

    def show(self, tally: Tally, data: bytes) -> None:
        head = _HEAD.pack(tally.inputs, tally.refused, tally.accepted, len(data), tally.seconds)
        self._map[: _HEAD.size + min(len(data), _ROOM - _HEAD.size)] = head + data[: _ROOM - _HEAD.size]

    def read(self) -> tuple[Tally, bytes]:
        inputs, refused, accepted, length, seconds = _HEAD.unpack(self._map[: _HEAD.size])
        return Tally(inputs, refused, accepted, seconds), self._map[_HEAD.size : _HEAD.size + length]


def work(name: str, engine: str, seconds: float, inputs: int, seed: int, folder: Path) -> None:
    """Run one target in this process, and append findings to ``findings.jsonl`` in the folder."""
    board, tally, target = Board(folder / "board"), Tally(), make(name, folder)
    begun = time.monotonic()

    def one(data: bytes) -> None:
        tally.seconds = time.monotonic() - begun
        if tally.seconds > seconds or tally.inputs >= inputs:
            os._exit(0)
        board.show(tally, data)
        known = len(tally.findings)
        wrong = judge(target, data, tally)
        if len(tally.findings) > known:
            with open(folder / "findings.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps({"what": wrong, "input": data.hex()}) + "\n")
        board.show(tally, b"")

    with around(target):
        if engine == "atheris":
            _with_atheris(target, one, seed, folder)
        else:
            _Counted.one = staticmethod(one)
            loop(_Counted(target), inputs + 1, seed)


class _Counted:
    """A target that passes its inputs to the worker, which judges them, for the engine without coverage."""

    name, patience = "", 3600.0
    refusals: tuple[type[Exception], ...] = ()
    guided_by: tuple[str, ...] = ()
    one: Callable[[bytes], None]

    def __init__(self, target: Target) -> None:
        self.seeds, self.tokens = target.seeds, getattr(target, "tokens", ())

    def run(self, data: bytes) -> bool:
        self.one(data)
        return True


def _count_branches(prefixes: tuple[str, ...]) -> None:
    """Make atheris see the branches of all functions in these modules. (Compiled kernels must not be touched.)"""
    import atheris

    for name, module in list(sys.modules.items()):
        if not name.startswith(prefixes):
            continue
        for holder in (module, *(kind for kind in vars(module).values() if isinstance(kind, type))):
            for value in list(vars(holder).values()):
                function = getattr(value, "fget", None) or getattr(value, "__func__", None) or value
                function = inspect.unwrap(function) if callable(function) else function
                if inspect.isfunction(function) and function.__module__ == name:
                    atheris.instrument_func(function)


def _with_atheris(target: Target, one: Callable[[bytes], None], seed: int, folder: Path) -> None:
    import atheris

    _count_branches(target.guided_by)
    corpus = folder / "corpus"
    corpus.mkdir()
    for data in target.seeds():
        (corpus / name_of(data)).write_bytes(data)
    options = [f"-seed={seed + 1}", "-timeout=0", "-rss_limit_mb=0", "-max_len=16384", "-verbosity=0"]
    if tokens := getattr(target, "tokens", ()):
        quoted = ("".join(f"\\x{byte:02x}" for byte in token[:64]) for token in tokens)
        (folder / "words").write_text("".join(f'"{word}"\n' for word in quoted))
        options.append(f"-dict={folder / 'words'}")
    atheris.Setup(["fuzz", *options, str(corpus)], one, internal_libfuzzer=True)
    atheris.Fuzz()


def campaign(
    names: Sequence[str], engine: str, minutes: float, inputs: int, seed: int, save: Path, workers: int = 1
) -> dict[str, dict[str, Any]]:
    """Every target for its part of the time, so many at once; what came of it, by name."""
    whole = sum(SHARES[name] for name in names)

    def one(name: str) -> dict[str, Any]:
        return _one_target(name, engine, 60 * workers * minutes * SHARES[name] / whole, inputs, seed, save)

    rows: dict[str, dict[str, Any]] = {}
    with ThreadPoolExecutor(workers) as pool:
        for name, row in zip(names, pool.map(one, names), strict=True):
            rows[name] = row
            print(_line(name, row), flush=True)
    return rows


def _one_target(name: str, engine: str, seconds: float, inputs: int, seed: int, save: Path) -> dict[str, Any]:
    """A target's processes, one after another until the time is spent: one that dies is a finding, and is replaced."""
    until, total, findings = time.monotonic() + seconds, Tally(), dict[str, str]()
    attempt = 0
    while time.monotonic() < until and total.inputs < inputs and attempt < 20:
        with folder_in_memory() as folder:
            part, found = _process(name, engine, until, inputs - total.inputs, seed + 1000 * attempt, folder)
        total.inputs, total.refused = total.inputs + part.inputs, total.refused + part.refused
        total.accepted, total.seconds = total.accepted + part.accepted, total.seconds + part.seconds
        attempt += 1
        for what, data in found:
            findings.setdefault(what, _saved(save, name, data))
    return {
        "inputs": total.inputs,
        "refused": total.refused,
        "accepted": total.accepted,
        "findings": findings,
        "per_second": round(total.inputs / max(total.seconds, 0.001), 1),
    }


def _process(
    name: str, engine: str, until: float, inputs: int, seed: int, folder: Path
) -> tuple[Tally, list[tuple[str, bytes]]]:
    board = Board(folder / "board", new=True)
    given = [name, engine, f"{max(1.0, until - time.monotonic())}", str(inputs), str(seed), str(folder)]
    log = open(folder / "log", "wb")  # noqa: SIM115
    environment = {**os.environ, "PYTHONHASHSEED": "0", "NUMBA_NUM_THREADS": "1", "TMPDIR": str(folder)}
    worker = subprocess.Popen(
        [sys.executable, "-m", "studies.audits.fuzz", "--worker", *given], stdout=log, stderr=log, env=environment
    )
    count, moved = -1, time.monotonic()
    while worker.poll() is None:
        time.sleep(0.2)
        tally, _ = board.read()
        if tally.inputs != count:
            count, moved = tally.inputs, time.monotonic()
        elif time.monotonic() - moved > STILL:
            worker.kill()
            worker.wait()
    log.close()
    tally, data = board.read()
    found = []
    if (folder / "findings.jsonl").exists():
        lines = (folder / "findings.jsonl").read_text(encoding="utf-8").splitlines()
        found = [(entry["what"], bytes.fromhex(entry["input"])) for entry in map(json.loads, lines)]
    if worker.returncode != 0:
        ended = f"a hang of {STILL:g} s" if worker.returncode == -9 else f"a crash (status {worker.returncode})"
        tail = (folder / "log").read_text(errors="replace").strip().splitlines()[-1:]
        found.append((f"{ended}: {' '.join(tail)[:120]}", data))
    return tally, found


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """A folder that is removed at the end; in memory, if the system has such: most targets write a file per input."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="dpem-fuzz-", dir=memory) as place:
        yield Path(place)


def _saved(save: Path, name: str, data: bytes) -> str:
    save.mkdir(parents=True, exist_ok=True)
    path = save / f"{name}-{name_of(data)}"
    path.write_bytes(data)
    return str(path)


_HEADER = f"{'target':<12}{'inputs':>12}{'refused':>12}{'accepted':>12}{'findings':>10}{'inputs/s':>10}"


def _line(name: str, row: dict[str, Any]) -> str:
    counts = "".join(f"{row[key]:>12,}" for key in ("inputs", "refused", "accepted"))
    lines = [f"{name:<12}{counts}{len(row['findings']):>10}{row['per_second']:>10,.0f}"]
    return "\n".join([*lines, *(f"  {what}\n    {path}" for what, path in row["findings"].items())])


def replay(name: str, path: Path) -> str | None:
    """The finding of a saved input with the current code, or None."""
    with folder_in_memory() as folder:
        target = make(name, folder)
        with around(target):
            return judge(target, path.read_bytes(), Tally())


def main(given: Sequence[str] | None = None) -> int:
    """The command; the exit status is 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m studies.audits.fuzz", description="Fuzz all that opens or parses.")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--workers", type=int, default=2, help="targets at once")
    parser.add_argument("--inputs", type=int, default=10**9, help="at most so many for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--engine", choices=("atheris", "mutations"), default=None)
    parser.add_argument("--out", type=Path, default=Path("results/audit_fuzz.json"))
    parser.add_argument("--save", type=Path, default=Path("build/fuzz"), help="where failing inputs are written")
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "FILE"), help="judge one saved input")
    parser.add_argument("--worker", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    if options.worker:
        name, engine, seconds, inputs, seed, folder = options.worker
        work(name, engine, float(seconds), int(inputs), int(seed), Path(folder))
        return 0
    if options.replay:
        wrong = replay(options.replay[0], Path(options.replay[1]))
        print(wrong or "nothing is wrong with it")
        return int(wrong is not None)
    engine = options.engine or ("atheris" if find_spec("atheris") else "mutations")
    print(f"engine: {engine}, seed {options.seed}, {options.minutes:g} minutes\n{_HEADER}", flush=True)
    rows = campaign(
        options.targets, engine, options.minutes, options.inputs, options.seed, options.save, options.workers
    )
    total, findings = sum(row["inputs"] for row in rows.values()), sum(len(row["findings"]) for row in rows.values())
    print(f"{'total':<12}{total:>12,} inputs, {findings} findings")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    summary = {
        "version": __version__,
        "engine": engine,
        "seed": options.seed,
        "minutes": options.minutes,
        "inputs": total,
        "targets": rows,
    }
    options.out.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main())
