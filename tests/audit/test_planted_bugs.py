"""Every planted bug is caught, by a catcher that is silent on the library as it is.

The long version (`python -m studies.audits.table`) puts every bug before every catcher and writes the docs' table; here
each bug meets the catcher it is meant for. The law of the noise has false alarms at a rate of 4e-6 for each fit.
"""

import pytest

from studies.audits.catchers import QUICK, caught_by
from studies.audits.planted import BUGS

pytestmark = pytest.mark.filterwarnings("ignore")

CAUGHT_BY_LAW = {
    "half the noise (values)",
    "half the noise (selection)",
    "half the noise (peeling)",
    "noise reused",
    "seeded noise in a private fit",
}
CAUGHT_BY_BOOKS = {
    "a budget that forked children spend anew",
    "a seeded fit in the books",
    "a certificate from what the answers cost",
}
CAUGHT_BY_REFUSAL = {"a wrong formula for the noise scale", "the plan spends ρ twice"}


def catcher_of(bug: str) -> str:
    if bug in CAUGHT_BY_LAW:
        return "law of the noise"
    if bug in CAUGHT_BY_BOOKS:
        return "books"
    return "refusal" if bug in CAUGHT_BY_REFUSAL else "record and replay"


@pytest.mark.parametrize("catcher", QUICK)
def test_the_library_as_it_is_passes(catcher):
    assert caught_by(QUICK[catcher]) is None


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug):
    with BUGS[bug]():
        assert caught_by(QUICK[catcher_of(bug)]) is not None


def test_the_list_names_bugs_that_exist():
    assert set(BUGS) >= CAUGHT_BY_LAW | CAUGHT_BY_REFUSAL | CAUGHT_BY_BOOKS
