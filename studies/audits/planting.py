"""A pytest plugin that plants the bug named by DPEM_PLANTED for the whole run.

It is planted twice: before the tests' noise takes the place of the private samplers, so that a test of these has a
sampler with the bug, and over the tests' noise for all other tests.
"""

import os
from contextlib import nullcontext

import pytest

from studies.audits.planted import BUGS

planted = BUGS.get(os.environ["DPEM_PLANTED"], nullcontext)
_stays = planted()  # a name, or it would be collected and end
_stays.__enter__()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtestloop(session):
    with planted():
        yield
