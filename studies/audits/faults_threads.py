"""One thread of a kernel runs out of memory and the others do not: the sum must be whole, or there must be none.

    python -m studies.audits.faults_threads

Kernels are compiled anew with tasks of 16 rows, so that a table of two tasks and ten million columns is summed quickly.
Then memory is limited. The main thread finds the 80 MB for its task in its own heap, which was told to keep what it
once had; another thread has no such heap and finds nothing. numba keeps an exception of such a thread to itself.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from studies.audits.faults_books import Findings

ROOT = Path(__file__).resolve().parents[1]
ROWS, COLUMNS, RUNS = 16, 10_000_000, 8
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def campaign() -> Findings:
    """In a process of its own: it compiles other kernels."""
    found = Findings()
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-W", "ignore", "-m", "studies.audits.faults_threads"]
        kept = {**os.environ, "NUMBA_CACHE_DIR": cache, "NUMBA_NUM_THREADS": "2"}
        done = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, check=False)
    found.check(done.returncode == 0, f"the process ended with {done.returncode}: {done.stderr.splitlines()[-1:]}")
    for how in done.stdout.splitlines():
        found.counts[f"a thread out of memory: {how}"] += 1
    found.check("a part of the sum" not in done.stdout, "a part of the rows was summed, and nothing was said")
    found.check("SystemError" not in done.stdout, "want of memory was said as SystemError")
    return found


def main() -> None:
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
    libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)
    import numba
    import numpy as np

    from dpem.engines import kernels

    for name in ("TASK", "BLOCK"):
        setattr(kernels, name, ROWS)
    X = np.lib.stride_tricks.as_strided(np.ones((1, COLUMNS)), (2 * ROWS, COLUMNS), (0, 8))
    beta, p, y = np.zeros(COLUMNS), np.array([1.0, 0.0]), np.empty(0)
    beta[0] = 10.0  # every weight is 1 to the last digit but a few

    def ask(rows: int, columns: int, out: np.ndarray) -> None:
        kernels.coordinate_kernel(0, X[:rows, :columns], y, beta[:columns], p, 1.0, 1.0, out)

    out = np.zeros((2, COLUMNS))
    ask(2 * ROWS, 8, np.zeros((2, 8)))
    numba.set_num_threads(1)
    ask(ROWS, COLUMNS, out[:1])
    numba.set_num_threads(2)
    for _ in range(RUNS):
        out[:] = 0
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 20), resource.RLIM_INFINITY))
        try:
            ask(2 * ROWS, COLUMNS, out)
            how = "the whole sum" if out[:, 1].min() > 0.9 * ROWS else "a part of the sum"
        except (MemoryError, SystemError) as error:
            how = type(error).__name__
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(how, flush=True)


if __name__ == "__main__":
    main()
