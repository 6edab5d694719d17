"""What every test starts from: noise that its id decides, and nothing that another test left.

Tests of logic draw no real noise: :mod:`injected_noise` stands where the private samplers are, started from the id of
the test (or of the fixture, for one that several tests share), so that an outcome depends on neither chance nor order.
A test of the real samplers is marked ``real_noise`` and states the probability that it fails although nothing is wrong.
With ``DPEM_TEST_DRAW`` set, every test has other noise: what then fails depends on luck.

The same holds in processes that tests start (:mod:`sitecustomize`).
"""

import gc
import os
import random
import sys
from pathlib import Path

import injected_noise
import numpy as np
import pytest
from hypothesis import settings
from injected_noise import seed_of

import dpem.privacy.noise as private_noise
from dpem.cli import common
from dpem.fitting import sequence

_FOLDER = Path(__file__).parent / "tests" / "noise"

collect_ignore = ["conftest.py", "tests/noise/sitecustomize.py"]

gc.disable()  # until all tests are collected: what is made before stays
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")
_restore = injected_noise.install(private_noise)
if os.environ.get("DPEM_TEST_DRAW"):
    _seeded = sequence.SeededNoise
    sequence.SeededNoise = lambda seed: _seeded(seed_of(str(seed)) if isinstance(seed, int) and seed >= 0 else seed)
common.PROGRESS_AFTER = 3600.0  # what the command prints does not depend on how busy the machine is


def pytest_configure(config):
    config.addinivalue_line("markers", "real_noise: draws from the private samplers, and states how often it fails")


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_protocol(item, nextitem):
    """Noise for one test with its fixtures, in this process and in those that it starts."""
    injected_noise.reseed(item.nodeid)
    random.seed(item.nodeid)
    np.random.seed(seed_of(item.nodeid))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPEM_TEST_NOISE", item.nodeid)
        patch.setenv("PYTHONPATH", str(_FOLDER), prepend=os.pathsep)
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """A fixture that several tests share has the same noise whichever of them comes first."""
    if fixturedef.scope == "function":
        return (yield)
    name = f"{fixturedef.baseid}::{fixturedef.argname}[{getattr(request, 'param_index', 0)}]"
    with injected_noise.seeded(name):
        return (yield)


@pytest.fixture(autouse=True)
def _real_noise(request, monkeypatch):
    """The private samplers as they are, for a test that is marked so."""
    if request.node.get_closest_marker("real_noise") is None:
        yield
        return
    monkeypatch.delenv("DPEM_TEST_NOISE")
    _restore()
    yield
    injected_noise.install(private_noise)


@pytest.fixture(autouse=True)
def _no_scheduler_of_a_client_that_is_gone():
    """A Dask client whose scheduler was lost leaves "dask.distributed" behind as everyone's default."""
    config, distributed = sys.modules.get("dask.config"), sys.modules.get("distributed")
    if config is not None and distributed is not None and config.get("scheduler", None) == "dask.distributed":
        try:
            distributed.default_client()
        except ValueError:
            config.config.pop("scheduler", None)
