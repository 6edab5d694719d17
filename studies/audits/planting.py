"""A pytest plugin that plants the bug named by DPEM_PLANTED for the whole run."""

import os
from contextlib import nullcontext

import pytest

from studies.audits.planted import BUGS


@pytest.hookimpl(hookwrapper=True)
def pytest_runtestloop(session):
    with BUGS.get(os.environ["DPEM_PLANTED"], nullcontext)():
        yield
