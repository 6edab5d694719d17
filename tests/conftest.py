"""What one test leaves to the next."""

import sys

import pytest

collect_ignore = ["conftest.py"]  # the doctest collector cannot import a second module of this name


@pytest.fixture(autouse=True)
def _no_scheduler_of_a_client_that_is_gone():
    """A Dask client whose scheduler was lost leaves "dask.distributed" behind as everyone's default."""
    config, distributed = sys.modules.get("dask.config"), sys.modules.get("distributed")
    if config is not None and distributed is not None and config.get("scheduler", None) == "dask.distributed":
        try:
            distributed.default_client()
        except ValueError:
            config.config.pop("scheduler", None)
