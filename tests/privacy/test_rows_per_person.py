"""A person with several rows: every bound is multiplied, rounding too, batches cost no more, totals count alike."""

import itertools
import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from dpem.fitting.scaler import ColumnMoments
from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.queries import Clip
from dpem.privacy import Account, Budget, BudgetExceeded, Curator, Ledger, SeededNoise, largest_price, total_price
from dpem.query import Bound, Chunk
from dpem.tables import ArraySource

N, D = 120, 4
SMALL = (0.1, 1e-6, largest_price(0.1, 1e-6, gaussian=False))


@dataclass(frozen=True)
class Sum:
    """Entries clipped to ±1 and added."""

    bound: Bound = field(default_factory=lambda: Bound.symmetric(linf=1.0, l2=math.sqrt(D)))
    label: str = "clipped sum"
    blocked: bool = True

    def sum(self, chunk: Chunk) -> np.ndarray:
        X = np.clip(chunk.X, -1, 1)
        return np.add.reduce([X[i : i + 256].sum(axis=0).astype(float) for i in range(0, len(X), 256)])


class Recorded(SeededNoise):
    """Records the statistic and the scale of each mechanism."""

    def __init__(self):
        super().__init__(0)
        self.seen = []

    def top_k(self, scores, k, sensitivity, rho):
        self.seen.append((scores, 1.0))
        return super().top_k(scores, k, sensitivity, rho)

    def gaussian(self, values, scale, sensitivity, rho):
        self.seen.append((values, scale))
        return super().gaussian(values, scale, sensitivity, rho)

    def laplace(self, values, scale, grid=None):
        self.seen.append((values, scale))
        return super().laplace(values, scale, grid)


def rows(seed=0, n=N):
    return np.random.default_rng(seed).standard_normal((n, D))


def curator(X=None, m=1, *, epsilon=math.inf, noise=None):
    source = ArraySource(rows() if X is None else X)
    return Curator(source, Account(epsilon, 1e-5), noise or SeededNoise(0), rows_per_person=m)


OFFSETS = {"no offset": 0.0, "an offset whose rounding is most of the bound": 1e14}
QUERIES = {
    "measure": lambda c, offset: c.measure(Sum(), 0.01),
    "select": lambda c, offset: c.select(Sum(), 2, 0.01, offset=offset, step=0.7),
    "peel": lambda c, offset: c.peel(Sum(), 2, 3.0, offset=offset, step=0.7),
}
every_query = pytest.mark.parametrize("send", QUERIES.values(), ids=QUERIES)
every_offset = pytest.mark.parametrize("offset", OFFSETS.values(), ids=OFFSETS)


@pytest.mark.parametrize("m", [1, 2, 5, 1000])
@every_offset
@every_query
def test_every_mechanism_pays_for_m_times_the_sensitivity(send, offset, m):
    one, many = Recorded(), Recorded()
    first, second = curator(noise=one), curator(m=m, noise=many)
    for c in (first, second):
        send(c, offset)
    a, b = first.account.releases[0], second.account.releases[0]
    assert b.sensitivity == pytest.approx(m * a.sensitivity, rel=1e-14)
    if a.mechanism.startswith("Laplace"):  # the scale was given, the price follows
        assert b.price.rho == pytest.approx(m**2 * a.price.rho, rel=1e-13)
    else:
        assert b.scale == pytest.approx(m * a.scale, rel=1e-14)
        assert b.price == a.price
    (values, scale), (others, scale_of_many) = one.seen[0], many.seen[0]
    if a.mechanism.startswith("Gumbel"):  # its scores are divided by the scale
        np.testing.assert_allclose(values, m * others, rtol=1e-13)
    elif a.mechanism == "Gaussian":
        assert scale_of_many == pytest.approx(m * scale, rel=1e-14)
    for norm in ("linf", "l2"):
        assert second.sensitivity(Sum(), norm) == m * first.sensitivity(Sum(), norm)
        assert second.noise_scale(Sum(), 0.01) == pytest.approx(m * first.noise_scale(Sum(), 0.01), rel=1e-14)


def test_batches_protect_the_same_rows_per_person():
    c = curator(m=7)
    assert [part.rows_per_person for part in (c, *c.split(3))] == [7] * 4


@pytest.mark.parametrize("value", [0, -1, 1.5, 2.0, True, "3", None, math.nan])
def test_anything_but_a_count_is_refused(value):
    with pytest.raises(ValueError, match=r"^rows_per_person must be a whole number of at least 1, got .*\.$"):
        curator(m=value)


# ------------------------------------------------------------------------------------ what m rows can do to a statistic

BIG = 1e300
BETA = np.array([1.0, 0.0, 0.0, 0.0])
ONES, TURNED = np.ones(D), np.array([1.0, -1.0, -1.0, -1.0])
#: A query, and two rows (with responses) that are as far apart as it lets them be in ℓ∞.
WORST = {
    "clipped sum": (Sum(), BIG * ONES, -BIG * ONES),
    "gmm truncated": (SymmetricMixture(0.5).truncated(BETA, 1.5), BIG * ONES, BIG * TURNED),
    "gmm gradient": (SymmetricMixture(0.5).gradient(BETA, Clip(0.8)), BIG * ONES, BIG * TURNED),
    "gmm on_support": (SymmetricMixture(0.5).on_support(BETA, np.arange(2), 0.9),
                       1e100 * BETA[[1, 0, 2, 3]] + 10 * BETA,
                       -1e100 * BETA[[1, 0, 2, 3]] + 10 * BETA),
    "column moments": (ColumnMoments(np.full(D, -1.0), np.ones(D)), BIG * ONES, -BIG * ONES),
}  # fmt: skip
WITH_RESPONSE = {
    "mr gradient": SymmetricRegression(0.5).gradient(BETA, Clip(0.8, 0.7)),
    "missing gradient": MissingRegression(0.5).gradient(np.zeros(D), Clip(0.8, 0.7)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m", [2, 3, 40])
@pytest.mark.parametrize("name", WORST)
def test_m_rows_move_a_mean_by_no_more_than_is_stated(name, m, dtype):
    """And by more than the bound for m − 1 rows: a person's rows are in many blocks and two chunks."""
    query, here, there = WORST[name]
    n = 70_000
    X = np.random.default_rng(1).standard_normal((n, D)).astype(dtype)
    theirs = np.linspace(0, n - 1, m).astype(int)
    with np.errstate(over="ignore"):
        here, there = (np.nan_to_num(np.asarray(row).astype(dtype), posinf=3e38, neginf=-3e38) for row in (here, there))
    means = []
    for row in (here, there):
        X[theirs] = row
        means.append(curator(X).measure(query, math.inf))
    moved = np.abs(means[0] - means[1])
    stated, less = (curator(X, rows).sensitivity(query, "linf") for rows in (m, m - 1))
    assert less * 1.001 < moved.max() <= stated
    if math.isfinite(query.bound.l2):
        assert np.linalg.norm(moved) <= curator(X, m).sensitivity(query, "l2")


@pytest.mark.parametrize("m", [2, 9])
@pytest.mark.parametrize("name", WITH_RESPONSE)
def test_m_responses_move_a_mean_by_no_more_than_is_stated(name, m):
    query = WITH_RESPONSE[name]
    X, y = rows(), np.zeros(N)
    means = []
    for sign in (1.0, -1.0):
        X[:m], y[:m] = 10.0, sign * BIG
        if name.startswith("mr"):  # which does not see the sign of a response
            X[:m, 1:] = sign * BIG
        means.append(Curator(ArraySource(X, y), Account(math.inf, 0.5), SeededNoise(0)).measure(query, math.inf))
    moved = np.abs(means[0] - means[1]).max()
    stated, less = (
        Curator(ArraySource(X, y), Account(1.0, 1e-5), SeededNoise(0), rows_per_person=k).sensitivity(query, "linf")
        for k in (m, m - 1)
    )
    assert less < moved <= stated


@pytest.mark.parametrize("m", [1, 3])
def test_m_rows_move_scores_by_no_more_than_is_priced(m):
    """Top-k's scores, divided by its scale: replace-m moves each by at most √(2ρ/k), and m + 1 rows by more."""
    rho, k = 0.01, 2
    limit = math.sqrt(2 * rho / k)
    for changed, fits in ((m, True), (m + 1, False)):
        seen = []
        for sign in (1.0, -1.0):
            X, noise = 0.01 * rows(), Recorded()
            X[:changed] = sign * BIG
            curator(X, m, noise=noise).select(Sum(), k, rho, offset=np.full(D, 5.0), step=0.7)
            seen.append(noise.seen[0][0])
        assert bool(np.abs(seen[0] - seen[1]).max() <= limit) is fits


# -------------------------------------------------------------------------------------------------------------- batches


def spreads(m, batches):
    """Every way to distribute m rows over some batches."""
    return [c for c in itertools.product(range(m + 1), repeat=batches) if sum(c) == m]


def person_s_cost(kind, spread, m):
    """The measured price of all batches for a person with these rows in each, and the accounted price."""
    batches = len(spread)
    X = np.zeros((N, D))
    X[:, 0] = np.arange(N)
    theirs = [part._X[:count, 0].astype(int) for part, count in zip(ArraySource(X).split(batches), spread, strict=True)]
    seen, releases = [], []
    for sign in (1.0, -1.0):
        X, noise = 0.001 * rows(), Recorded()
        X[np.concatenate(theirs)] = sign * BIG
        c = curator(X, m, noise=noise)
        for part in c.split(batches):
            if kind == "measure":
                part.measure(Sum(), 0.02)
            elif kind == "select":
                part.select(Sum(), 2, 0.02, offset=np.full(D, 5.0))
            else:
                part.peel(Sum(), 2, 1.0, offset=np.full(D, 5.0))
        seen.append(noise.seen)
        releases = c.account.releases
    per_batch = len(seen[0]) // batches
    cost = 0.0
    for b in range(batches):
        (one, scale), (other, _) = seen[0][b * per_batch], seen[1][b * per_batch]
        moved = np.abs(one - other) / scale
        cost += {
            "measure": np.sum(moved**2) / 2,
            "select": 2 * moved.max() ** 2 / 2,
            "peel": 2.5 * 2 * moved.max() ** 2,
        }[kind]
    return float(cost), total_price(releases).rho, max(r.price.rho for r in releases)


@pytest.mark.parametrize("kind", QUERIES)
def test_rows_in_several_batches_cost_no_more_than_the_dearest_batch(kind):
    """All in one batch cost what was charged, to a part in a million; spread out they cost less."""
    for spread in spreads(4, 3):
        cost, accounted, most_expensive = person_s_cost(kind, spread, 4)
        assert accounted == most_expensive
        assert cost <= accounted
        share = sum((count / 4) ** 2 for count in spread)
        assert cost == pytest.approx(share * accounted, rel=1e-6)


@pytest.mark.parametrize("kind", QUERIES)
def test_more_rows_than_stated_cost_more(kind):
    """The measurement above can fail: five rows in one batch against a statement of four."""
    cost, accounted, _ = person_s_cost(kind, (5, 0, 0), 4)
    assert cost > 1.5 * accounted


# --------------------------------------------------------------------------------------------------------------- totals


def total_of(kind, m, tmp_path):
    if kind == "budget":
        return Budget(1.0, 1e-5, rows_per_person=m)
    return Ledger(f"sqlite:///{tmp_path}/budget.db").open("patients", 1.0, 1e-5, rows_per_person=m)


def charges(total):
    return total.n_charges if isinstance(total, Budget) else len(total.history())


@pytest.mark.parametrize("kind", ["budget", "ledger"])
def test_a_fit_that_protects_fewer_rows_than_the_total_counts_is_refused(kind, tmp_path):
    total = total_of(kind, 5, tmp_path)
    for arguments, counts in (({}, "one row"), ({"rows_per_person": 4}, "one person with up to 4 rows")):
        with pytest.raises(BudgetExceeded) as refusal:
            total.charge(*SMALL, **arguments)
        assert f"this fit protects {counts}, but the" in str(refusal.value)
        assert "counts one person with up to 5 rows: state at least 5 rows per person." in str(refusal.value)
        assert str(refusal.value).endswith("Nothing was computed.")
    assert charges(total) == 0
    assert total.charge(*SMALL, rows_per_person=5).rows_per_person == 5
    assert total.charge(*SMALL, rows_per_person=60).rows_per_person == 60
    assert charges(total) == 2


@pytest.mark.parametrize("kind", ["budget", "ledger"])
@pytest.mark.parametrize("value", [0, -3, 2.5, True, "5", None])
def test_rows_per_person_of_a_total_are_a_whole_number(kind, value, tmp_path):
    with pytest.raises(ValueError, match=r"^rows_per_person must be a whole number of at least 1, got .*\.$"):
        total_of(kind, value, tmp_path)
    total = total_of(kind, 1, tmp_path)
    with pytest.raises(ValueError, match="must be a whole number of at least 1"):
        total.charge(*SMALL, rows_per_person=value)
    assert charges(total) == 0


def test_more_rows_per_person_are_not_charged_more():
    """More protected rows need more noise, not more budget."""
    one, many = Budget(1.0, 1e-5), Budget(1.0, 1e-5)
    one.charge(*SMALL)
    many.charge(*SMALL, rows_per_person=30)
    assert one.spent_epsilon == many.spent_epsilon


def test_a_budget_shows_its_rows_per_person():
    assert repr(Budget(1.0, 1e-5)) == "Budget(epsilon=1, delta=1e-05, spent=0 in 0 fit(s))"
    shown = repr(Budget(1.0, 1e-5, rows_per_person=5))
    assert shown == "Budget(epsilon=1, delta=1e-05, rows_per_person=5, spent=0 in 0 fit(s))"
    assert Budget(1.0, 1e-5, 5).rows_per_person == 5


def test_a_ledger_stores_its_rows_per_person(url):
    Ledger(url).open("visits", 1.0, 1e-5, rows_per_person=5).charge(*SMALL, rows_per_person=6)
    again = Ledger(url, "visits")
    assert again.state().total.rows_per_person == 5
    assert [charge.rows_per_person for charge in again.history()] == [6]
    with pytest.raises(BudgetExceeded, match="at least 5 rows per person"):
        again.charge(*SMALL, rows_per_person=2)
    assert len(again.history()) == 1


# ----------------------------------------------------------------------------------------------------------- statements
