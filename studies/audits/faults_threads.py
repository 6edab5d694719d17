"""One thread of a compiled sum runs out of memory and the others do not: the sum must be complete or fail.

    python -m studies.audits.faults_threads

A table of two tasks of 16 rows and ten million columns is summed, and then memory is limited. The main thread has the
80 MB for its task in its heap, which keeps memory that it once had; another thread has not.
"""

from __future__ import annotations

import ctypes
import resource
import subprocess
import sys
from pathlib import Path

from studies.audits.faults_ledger import Findings

ROOT = Path(__file__).resolve().parents[2]
ROWS, COLUMNS, RUNS = 16, 10_000_000, 8
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def campaign() -> Findings:
    """In a process of its own, whose memory is limited."""
    found = Findings()
    command = [sys.executable, "-W", "ignore", "-m", "studies.audits.faults_threads"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found.check(done.returncode == 0, f"the process ended with {done.returncode}: {done.stderr.splitlines()[-1:]}")
    for how in done.stdout.splitlines():
        found.counts[f"a thread out of memory: {how}"] += 1
    found.check("a part of the sum" not in done.stdout, "a part of the rows was summed, and no error was raised")
    found.check("SystemError" not in done.stdout, "want of memory was reported as SystemError")
    return found


def main() -> None:
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
    libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)
    import numpy as np

    from dpem._threads import run_in_parallel, thread_limit
    from dpem.paper.engine import clipped_sums as kernels

    X = np.lib.stride_tricks.as_strided(np.ones((1, COLUMNS)), (2 * ROWS, COLUMNS), (0, 8))
    weights, none, nowhere = np.ones(ROWS), np.empty(0), np.empty(0, dtype=np.intp)

    def sums(columns: int, out: np.ndarray) -> None:
        def add(task: int) -> None:
            rows = X[task * ROWS : (task + 1) * ROWS, :columns]
            kernels.accumulate(rows, weights, 1.0, -1.0, 1.0, None, None, none, 0.0, none, nowhere, none, out[task])

        with thread_limit(2):
            run_in_parallel(add, len(out))

    out = np.zeros((2, COLUMNS))
    sums(8, np.zeros((2, 8)))
    sums(COLUMNS, out[:1])
    for _ in range(RUNS):
        out[:] = 0
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 20), resource.RLIM_INFINITY))
        try:
            sums(COLUMNS, out)
            how = "the whole sum" if out[:, 1].min() > 0.9 * ROWS else "a part of the sum"
        except (MemoryError, SystemError) as error:
            how = type(error).__name__
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(how, flush=True)


if __name__ == "__main__":
    main()
