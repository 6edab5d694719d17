"""Memory of temporary arrays is reused, also where an environment variable tells the C library to give it back."""

import os
import platform
import subprocess
import sys

import pytest

#: Prints the number of page faults while a process makes twenty temporary arrays of one MiB each.
PROGRAM = """
import resource, sys
import numpy as np
from dpem._threads import keep_memory
if sys.argv[1] == "keep":
    keep_memory()
count = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(2**17)
before = count()
for _ in range(20):
    np.ones(2**17)
print(count() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_temporary_arrays_of_a_dask_worker_reuse_their_memory():
    """Dask's nannies set MALLOC_TRIM_THRESHOLD_: every temporary array is then new pages, unless dpem asks for less."""
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}

    def page_faults(mode: str) -> int:
        command = [sys.executable, "-c", PROGRAM, mode]
        return int(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)

    assert page_faults("keep") < 20 <= page_faults("leave")
