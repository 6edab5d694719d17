"""A pytest plugin that plants the bug named by DPEM_PLANTED for the whole run."""

import os

import pytest

from audits.planted import BUGS


@pytest.hookimpl(hookwrapper=True)
def pytest_runtestloop(session):
    with BUGS[os.environ["DPEM_PLANTED"]]():
        yield
