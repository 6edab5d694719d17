"""Every planted bug is caught, by a catcher that is silent on the library without bugs.

`python -m studies.audits.table` tries every catcher on every bug and writes the docs' table; here each bug is tried
with one catcher. The tests of the noise have a false alarm with probability 4e-6, in real noise.
"""

import pytest

from studies.audits.catchers import QUICK, caught_by
from studies.audits.planted import BUGS

pytestmark = pytest.mark.filterwarnings("ignore")

NOISE_BUGS = {
    "half the noise (values)",
    "half the noise (selection)",
    "half the noise (peeling)",
    "noise reused",
    "seeded noise in a private fit",
}
LEDGER_BUGS = {
    "a budget that forked children spend anew",
    "a seeded fit in the ledger",
    "a certificate from the cost of the answers",
}
REFUSED_BUGS = {"a wrong formula for the noise scale", "the plan spends ρ twice"}


def catcher_of(bug: str) -> str:
    if bug in NOISE_BUGS:
        return "noise"
    if bug in LEDGER_BUGS:
        return "budget and ledger"
    return "refusal" if bug in REFUSED_BUGS else "record and replay"


@pytest.mark.parametrize("catcher", QUICK)
def test_the_library_without_bugs_passes(catcher):
    assert caught_by(QUICK[catcher]) is None


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug):
    with BUGS[bug]():
        assert caught_by(QUICK[catcher_of(bug)]) is not None


def test_the_list_names_bugs_that_exist():
    assert set(BUGS) >= NOISE_BUGS | REFUSED_BUGS | LEDGER_BUGS
