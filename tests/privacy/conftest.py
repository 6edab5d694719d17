"""A real PostgreSQL server from PyPI, and a fresh ledger's URL in either database."""

import pytest

from studies.audits.postgres import serving, why_not

collect_ignore = ["conftest.py"]  # the doctest collector cannot import a second module of this name


@pytest.fixture(scope="session")
def postgresql():
    """The server."""
    if why_not():
        pytest.skip(why_not())
    with serving() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """The URL of a place for a new ledger."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/budget.db"
    return request.getfixturevalue("postgresql").fresh_schema()
