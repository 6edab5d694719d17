"""Campaigns in processes of their own, which may fork, limit their resources and die. The library is imported once.

    python -m studies.audits.faults_apart

reads a line of JSON with the name of a module and its arguments, forks, and runs the module's ``main`` in the child. It
prints the child's output, and then a line "end" with its exit status and its last error output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from studies.audits import faults_disk, faults_kills, faults_process, faults_race
from studies.audits.faults_ledger import Findings

ROOT = Path(__file__).resolve().parents[2]
MODULES: dict[str, Callable[[list[str]], None]] = {
    "disk": faults_disk.main,
    "kills": faults_kills.main,
    "memory": faults_process.main,
    "race": faults_race.main,
}


class Apart:
    """The process that forks, started at its first use."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.communicate()  # it ends with its input

    def run(self, tick: Callable[[int], object], name: str, *arguments: object) -> Findings:
        """A campaign's findings, including a bad exit status."""
        if self._process is None:
            command = [sys.executable, "-W", "ignore", "-m", "studies.audits.faults_apart"]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        process, found = self._process, Findings()
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps([name, *map(str, arguments)]), file=process.stdin, flush=True)
        for line in process.stdout:
            what, _, rest = line.rstrip("\n").partition(" ")
            if what == "step":
                tick(int(rest))
            elif what == "found":
                found.add(**json.loads(rest))
            elif what == "end":
                found.check(rest.startswith("0 "), f"{name} ended with {rest}")
                return found
        raise RuntimeError("the process that runs campaigns has ended.")


def serve() -> None:
    """Run what the input names, one after another, until the input ends."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        with tempfile.TemporaryFile("w+") as errors:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    os.dup2(errors.fileno(), 2)
                    MODULES[name](arguments)
                    status = 0
                finally:
                    if status:
                        sys.excepthook(*sys.exc_info())
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(status)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            errors.seek(0)
            last = (errors.read().strip().splitlines() or [""])[-1]
        print(f"end {status} {last}", flush=True)


if __name__ == "__main__":
    serve()
