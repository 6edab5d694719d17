"""The curator: a charge comes before each query, nothing unpaid is run, and no answer is recorded."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from dpem.privacy import (
    Account,
    BudgetExceeded,
    Curator,
    Price,
    PrivateNoise,
    Release,
    SeededNoise,
    mechanisms,
    total_price,
)
from dpem.privacy.accounting import largest_price
from dpem.query import Bound, Chunk
from dpem.tables import ArraySource

N, D = 100, 4


@dataclass(frozen=True)
class Sum:
    """The sum of entries clipped to ±1, with a bound that the test states."""

    bound: Bound = field(default_factory=lambda: Bound.symmetric(linf=1.0, l2=math.sqrt(D)))
    label: str = "clipped sum"
    blocked: bool = False

    def sum(self, chunk: Chunk) -> np.ndarray:
        return np.clip(chunk.X, -1, 1).sum(axis=0)


class Watched(ArraySource):
    """Records the labels of its queries; with ``fails``, each raises an error."""

    def __init__(self, X, *, fails: bool = False, queried: list | None = None):
        super().__init__(X)
        self.fails, self.queried = fails, [] if queried is None else queried

    def total(self, query):
        self.queried.append(query.label)
        if self.fails:
            raise OSError("the disk is gone")
        return super().total(query)

    def split(self, parts):
        return [Watched(part._X, fails=self.fails, queried=self.queried) for part in super().split(parts)]


def rows(seed: int = 0, n: int = N) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, D))


def curator(source=None, *, epsilon=1.0, delta=1e-5, gaussian=False, noise=None) -> Curator:
    account = Account(epsilon, delta, gaussian=gaussian)
    return Curator(Watched(rows()) if source is None else source, account, noise or SeededNoise(0))


QUERIES = {
    "measure": lambda c, rho: c.measure(Sum(), rho),
    "select": lambda c, rho: c.select(Sum(), 2, rho),
    "peel": lambda c, rho: c.peel(Sum(), 2, c.sensitivity(Sum(), "linf") * math.sqrt(2.5 * 2 / rho)),
}
every_query = pytest.mark.parametrize("send", QUERIES.values(), ids=QUERIES)
#: Each query of an account that was opened for any noise, and the Gaussian one also of one that was opened for it.
every_account = pytest.mark.parametrize(
    ("send", "gaussian"),
    [*((send, False) for send in QUERIES.values()), (QUERIES["measure"], True)],
    ids=[*QUERIES, "measure, Gaussian only"],
)


@every_query
def test_a_charge_comes_before_the_sum(send):
    source = Watched(rows(), fails=True)
    c = curator(source)
    with pytest.raises(OSError, match="disk"):
        send(c, 0.004)
    assert len(source.queried) == 1
    (release,) = c.account.releases
    assert release.price.rho == pytest.approx(0.004)


@every_account
def test_a_query_beyond_the_account_is_refused_and_not_sent(send, gaussian):
    source = Watched(rows())
    c = curator(source, gaussian=gaussian)
    dear = 1.01 * largest_price(1.0, 1e-5, gaussian=gaussian).rho
    with pytest.raises(BudgetExceeded, match=r"clipped sum.*epsilon=1.*not run"):
        send(c, dear)
    assert source.queried == []
    assert c.account.releases == []
    send(c, 0.001)  # the refusal cost nothing
    assert source.queried == ["clipped sum"]


@every_account
def test_queries_until_the_account_is_empty(send, gaussian):
    """Each third of the largest price fits three times and not a fourth time."""
    source = Watched(rows())
    c = curator(source, gaussian=gaussian)
    third = largest_price(1.0, 1e-5, gaussian=gaussian).rho / 3
    for _ in range(3):
        send(c, third * (1 - 1e-9))
    with pytest.raises(BudgetExceeded):
        send(c, third * 1e-3)
    assert len(source.queried) == len(c.account.releases) == 3
    assert Price(total_price(c.account.releases).rho, gaussian).delta(1.0) <= 1e-5


@pytest.mark.parametrize("name", ["select", "peel"])
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_an_account_for_gaussian_noise_refuses_other_noise(name, epsilon):
    """At any price, at any time, and before the source is queried."""
    source = Watched(rows())
    c = curator(source, epsilon=epsilon, gaussian=True)
    for releases in (0, 1):
        for queried in (c, *c.split(2)):
            with pytest.raises(ValueError, match=r"'clipped sum' needs other noise.*Gaussian only\.$"):
                QUERIES[name](queried, 1e-6)
        assert len(source.queried) == len(c.account.releases) == releases
        c.measure(Sum(), 0.499 * largest_price(1.0, 1e-5, gaussian=True).rho)  # and the refusals cost nothing


def test_gaussian_noise_is_priced_in_zcdp_unless_declared():
    """90 % of the price that the exact curve allows: accepted if that curve was declared, else refused."""
    most = largest_price(1.0, 1e-5, gaussian=True).rho
    limit = largest_price(1.0, 1e-5, gaussian=False).rho
    assert limit < 0.9 * most
    c = curator(gaussian=True)
    c.measure(Sum(), 0.9 * most)
    c.measure(Sum(), 0.09 * most)
    source = Watched(rows())
    c = curator(source)
    with pytest.raises(BudgetExceeded):
        c.measure(Sum(), 0.9 * most)
    assert source.queried == []
    c.measure(Sum(), 0.9 * limit)
    c.select(Sum(), 1, 0.09 * limit)  # other noise is welcome, whatever came before
    assert [r.price.gaussian for r in c.account.releases] == [True, False]


def test_the_curve_does_not_depend_on_the_order_of_queries():
    """Gaussian answers first and selection last, or the other way round: the same limit."""
    limit = largest_price(1.0, 1e-5, gaussian=False).rho
    for order in (("measure", "select"), ("select", "measure"), ("measure", "measure")):
        c = curator()
        QUERIES[order[0]](c, 0.6 * limit)
        with pytest.raises(BudgetExceeded):
            QUERIES[order[1]](c, 0.401 * limit)
        QUERIES[order[1]](c, 0.399 * limit)


@pytest.mark.parametrize(
    ("send", "bound"),
    [
        (QUERIES["measure"], Bound(linf=2.0, size_linf=1.0)),
        (QUERIES["measure"], Bound(l2=2.0)),
        (QUERIES["select"], Bound(l2=2.0, size_l2=1.0)),
        (QUERIES["select"], Bound(linf=2.0)),
    ],
    ids=["no l2", "no size", "no linf", "no size linf"],
)
def test_an_unbounded_query_is_refused(send, bound, monkeypatch):
    source = Watched(rows())
    c = curator(source)
    monkeypatch.setattr(Sum, "__init__", lambda self: object.__setattr__(self, "bound", bound))
    with pytest.raises(ValueError, match=r"not bounded.*not run"):
        send(c, 0.001)
    assert source.queried == []
    assert c.account.releases == []


@pytest.mark.parametrize("wrong", [-1.0, math.nan])
@pytest.mark.parametrize("part", ["linf", "l2", "size_linf", "size_l2"])
def test_a_negative_bound_is_refused(part, wrong):
    """Noise of a negative scale would protect nothing, at no price by the formula."""
    with pytest.raises(ValueError, match="must not be negative"):
        Bound(**{part: wrong})


def test_without_privacy_an_unbounded_query_is_answered_exactly():
    c = curator(epsilon=math.inf)
    assert np.array_equal(c.measure(Sum(Bound()), math.inf), np.clip(rows(), -1, 1).sum(axis=0) / N)


def test_an_unbounded_peel_is_refused():
    source = Watched(rows())
    c = curator(source, epsilon=10.0)
    with pytest.raises((ValueError, BudgetExceeded)):
        c.peel(Sum(bound=Bound(l2=2.0, size_l2=1.0)), 1, scale=1.0)
    assert source.queried == []


@every_query
@pytest.mark.parametrize("rho", [-1.0, math.nan])
def test_a_price_that_is_not_positive_is_refused(send, rho):
    source = Watched(rows())
    c = curator(source)
    with pytest.raises(ValueError):  # noqa: PT011  (a negative price already fails in the scale's square root)
        send(c, rho)
    assert source.queried == []
    assert c.account.releases == []


@pytest.mark.parametrize(
    "send",
    [pytest.param(QUERIES[name], id=name) for name in ("measure", "select")]
    + [pytest.param(lambda c, rho: c.peel(Sum(), 2, math.inf), id="peel")],
)
def test_a_price_of_zero_is_refused_in_words(send):
    source = Watched(rows())
    c = curator(source)
    with pytest.raises(ValueError, match="price of a query must be positive"):
        send(c, 0.0)
    assert source.queried == []


@pytest.mark.parametrize(("epsilon", "delta"), [(math.nan, 1e-5), (1.0, math.nan)])
def test_an_account_of_not_a_number_gives_nothing(epsilon, delta):
    source = Watched(rows())
    with pytest.raises((ValueError, BudgetExceeded)):
        curator(source, epsilon=epsilon, delta=delta).measure(Sum(), 1e6)


# ------------------------------------------------------------------------------------------------- what is written down


@every_query
def test_releases_hold_no_data(send):
    written = []
    for data in (rows(0), 1e6 * rows(1) ** 3):
        c = curator(Watched(data), noise=PrivateNoise())
        send(c, 0.004)
        written.append(repr(c.account.releases))
    assert written[0] == written[1]
    assert "Release(" in written[0]


def test_releases_record_queries_and_prices():
    c = curator()
    c.measure(Sum(), 0.002)
    c.select(Sum(), 3, 0.003, step=-0.5)
    c.peel(Sum(), 2, 5.0, step=2.0)
    measured, selected, peeled = c.account.releases
    l2, linf = c.sensitivity(Sum(), "l2"), c.sensitivity(Sum(), "linf")

    assert measured == Release("clipped sum", "Gaussian", Price(0.002, gaussian=True), l2, measured.scale, N)
    assert measured.scale == pytest.approx(l2 / math.sqrt(2 * 0.002))
    assert measured.scale == c.noise_scale(Sum(), 0.002)
    assert selected.price == Price(0.003)
    assert selected.sensitivity == pytest.approx(linf / 2)
    assert selected.scale == pytest.approx(linf / 2 * math.sqrt(3 / (2 * 0.003)))
    assert "3" in selected.mechanism
    assert peeled.price.rho == pytest.approx(2.5 * 2 * (2 * linf / 5.0) ** 2)
    assert not peeled.price.gaussian
    assert peeled.scale == 5.0
    assert {r.batch for r in c.account.releases} == {None}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("blocked", [True, False])
def test_sensitivity_includes_the_slack_of_the_sum(dtype, blocked):
    """Replace-one change over n, plus rounding: more than the bound alone, and not by much."""
    source = ArraySource(rows(n=1000).astype(dtype))
    c = curator(source)
    query = Sum(blocked=blocked)
    for norm, change, size in (
        ("linf", query.bound.linf, query.bound.size_linf),
        ("l2", query.bound.l2, query.bound.size_l2),
    ):
        sensitivity = c.sensitivity(query, norm)
        assert sensitivity >= (change + source.slack(query) * size) / 1000
        assert change / 1000 < sensitivity < 1.02 * change / 1000
    assert source.slack(query) > 0


def test_noise_covers_the_sensitivity_that_was_written_down():
    """The spread of answers is the scale of the release (fixed seed)."""
    c = curator(epsilon=math.inf, noise=SeededNoise(3))
    exact = c.measure(Sum(), math.inf)
    np.testing.assert_allclose(exact, np.clip(rows(), -1, 1).mean(axis=0), rtol=1e-12)
    draws = np.array([c.measure(Sum(), 0.01) - exact for _ in range(1000)])
    assert draws.std() == pytest.approx(c.account.releases[-1].scale, rel=0.07)  # 6 standard errors at 4,000 values
    # in units of the statement itself: change 2√D, n = 100, τ = Δ/√(2ρ)
    assert c.account.releases[-1].scale == pytest.approx(2 * math.sqrt(D) / N / math.sqrt(0.02), rel=1e-9)


def test_select_and_peel_see_offset_plus_step_times_mean():
    X = np.tile([0.5, -0.4, 0.1, 0.0], (N, 1))
    c = curator(ArraySource(X), epsilon=math.inf)
    np.testing.assert_array_equal(c.select(Sum(), 2, math.inf), [0, 1])
    offset = np.array([-0.5, 0.0, 0.0, 0.15])
    np.testing.assert_array_equal(c.select(Sum(), 2, math.inf, offset=offset, step=1.0), [1, 3])
    np.testing.assert_array_equal(c.select(Sum(), 1, math.inf, offset=offset, step=-1.0), [0])
    peeled = c.peel(Sum(), 2, 1e-9, offset=offset, step=2.0)
    np.testing.assert_allclose(peeled, [0.5, -0.8, 0.0, 0.0], atol=1e-6)


def test_private_answers_differ_between_calls():
    """64-bit floats of continuous noise: a repeat has probability below 2⁻⁴⁰ per value."""
    c = curator(epsilon=50.0, noise=PrivateNoise())
    answers = np.array([c.measure(Sum(), 0.1) for _ in range(20)])
    assert len(np.unique(answers)) == answers.size
    mantissas = answers.view(np.uint64) & np.uint64(0xFFFF)
    assert len(np.unique(mantissas)) > 60  # 80 draws of 2¹⁶ low-bit patterns; fewer than 61 happens below 1e-30


def test_no_more_is_released_than_the_budget_was_charged():
    """An (ε, δ) that would allow more does not: the account stops at the ρ that was paid."""
    source = Watched(rows())
    account = Account(1.0, 1e-5, rho=0.002)
    c = Curator(source, account, SeededNoise(0))
    c.measure(Sum(), rho=0.001)
    c.measure(Sum(), rho=0.001)
    with pytest.raises(BudgetExceeded):
        c.measure(Sum(), rho=1e-6)
    assert len(account.releases) == 2


def test_a_total_that_is_not_a_number_is_refused_before_noise():
    """A sampler returns a finite number for NaN."""

    class Broken:
        label, blocked = "a broken query", False
        bound = Bound.symmetric(l2=1.0)

        def sum(self, chunk):
            return np.array([math.nan, 0.0])

    account = Account(1.0, 1e-5)
    curator = Curator(ArraySource(np.ones((10, 2))), account, PrivateNoise())
    for send in (lambda: curator.measure(Broken(), 0.01), lambda: curator.select(Broken(), 1, 0.01)):
        with pytest.raises(RuntimeError, match="no finite total"):
            send()


def test_rounding_is_paid_for_every_row_of_a_person(monkeypatch):
    """The largest score that selection divides: m times the offset plus the step times one contribution."""
    seen = []
    monkeypatch.setattr("dpem.privacy.mechanisms.noisy_top_k", lambda *given: seen.append(given[-1]))
    for persons in (1, 3):
        c = Curator(ArraySource(rows()), Account(1.0, 1e-5), SeededNoise(0), rows_per_person=persons)
        wide = Sum(Bound.symmetric(linf=2.0, l2=4.0))
        c.select(wide, 2, 0.001, offset=np.array([0.0, -7.0, 2.0, 0.0]), step=-0.5)
    assert seen == [8.0, 3 * 8.0]


def test_rounding_of_what_peeling_compares_is_paid_for():
    """Each of two totals is rounded after the product, after the sum, and to the grid of the noise."""
    c, offset, scale = curator(epsilon=1e12), np.array([0.0, 1e9, 0.0, 0.0]), 1e-6
    magnitude = 1e9 + 0.5  # of the offset, and of half a clipped row
    rounding = 4 * magnitude * float(np.finfo(float).eps) / 2 + mechanisms.peeling_grid(magnitude, scale)
    found = c.peeling_sensitivity(Sum(), scale, offset=offset, step=0.5) - 0.5 * c.sensitivity(Sum(), "linf")
    assert found == pytest.approx(rounding, rel=1e-6)


def test_without_an_offset_and_a_step_the_mean_itself_is_compared():
    c = curator(epsilon=1e12)
    assert c.peeling_sensitivity(Sum(), 2.0) == c.peeling_sensitivity(Sum(), 2.0, offset=0.0, step=1.0)
    mean = np.clip(rows(), -1, 1).mean(axis=0)
    np.testing.assert_allclose(c.peel(Sum(), D, 1e-6), mean, atol=1e-4)
    assert c.noise_scale(Sum(), math.inf) == 0.0


@pytest.mark.parametrize("gaussian", [False, True])
def test_an_account_is_not_overdrawn_by_a_trifle(gaussian):
    """By more than rounding, that is: a part in 10⁵ of the price is refused, by ε and δ and by what was charged."""
    most = largest_price(1.0, 1e-5, gaussian=gaussian).rho
    for account, limit in ((Account(1.0, 1e-5, gaussian=gaussian), most), (Account(1.0, 1e-5, rho=1e-3), 1e-3)):
        for part, refused in ((1 + 1e-5, True), (1.0, False)):
            release = Release("mean", "Gaussian", Price(part * limit, gaussian=True), 1.0, 1.0, N)
            if refused:
                with pytest.raises(BudgetExceeded):
                    account.charge(release)
            else:
                account.charge(release)
