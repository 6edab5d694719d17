"""dpem fit --scheduler: the cluster reads the table, the rest is as for a file."""

import pytest
from running_dpem import LEDGER, NAMES, charged, dpem

from dpem.persistence import load_model

distributed = pytest.importorskip("distributed")

FIT = ("fit", "symmetric-mixture", "--epsilon", "0.4", "--delta", "4e-4", "--sigma", "0.5")
PAID = ("--ledger", LEDGER, "--dataset", "patients")


@pytest.fixture(scope="module")
def address():
    """A worker in a process of its own: one in this process leaves Dask's default scheduler changed behind it."""
    one = {"n_workers": 1, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**one) as cluster:
        yield cluster.scheduler_address


@pytest.mark.usefixtures("folder")
def test_a_fit_on_a_cluster(address, folder):
    done = dpem(*FIT, str(folder / "patients.parquet"), *PAID, "--scheduler", address)
    assert done.code == 0, done.err
    assert list(load_model("model.json").feature_names_in_) == NAMES
    assert charged() == 1


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--columns", "age,hieght"), "did you mean 'height'?"),
        (("--scaler", "scaler.json"), "--scaler cannot be used with --scheduler"),
    ],
)
def test_refusals_on_a_cluster(address, folder, more, message):
    done = dpem(*FIT, str(folder / "patients.parquet"), *PAID, "--scheduler", address, *more)
    assert done.code in (2, 3)
    assert message in done.err
    assert charged() == 0


def test_a_table_that_is_not_there(address, folder):
    done = dpem(*FIT, str(folder / "no.parquet"), "--scheduler", address)
    assert done.code == 3
    assert "cannot be read as Parquet" in done.err
