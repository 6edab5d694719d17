"""The curator: the only access of an algorithm to the data.

An algorithm sends the curator a bounded query and a price. The curator charges the price, *then* sums the query, adds
noise calibrated to its bound, and records the release. Nothing that has not passed the curator reaches an attribute,
message or file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpem import _validation as arguments
from dpem.privacy import mechanisms
from dpem.privacy.accounting import Price, total
from dpem.privacy.budget import BudgetExceeded
from dpem.privacy.noise import Noise
from dpem.query import FloatArray, Query
from dpem.tables import Source
from dpem.tables.base import refuse_to_split


@dataclass(frozen=True)
class Release:
    """The record of a query and its price, without the answer.

    ``sensitivity`` is that of the mean over ``n_rows`` rows to replacing all rows of a person, ``scale`` the scale of
    the noise in the same unit; ``batch`` is the number of the disjoint batch, or None for the whole table.
    """

    query: str
    mechanism: str
    price: Price
    sensitivity: float
    scale: float
    n_rows: int
    batch: int | None = None


class Account:
    """The price limit of one fit, and its releases.

    *Lemma.* If every release passes :meth:`charge`, all of them together are (ε, δ)-DP for neighbours that differ in
    the rows of one person, as many as the curators of this account count (one by default), also if a query and its
    price are chosen after seeing earlier answers. *Proof.* Releases of the whole table compose adaptively, prices add,
    and a limit on the sum fixed in advance holds whatever is queried next (zCDP: Feldman & Zrnic 2021; Gaussian: Smith
    & Thakurta 2022). The batches together cost no more than the most expensive one (:func:`total_price`). The total
    is converted by :class:`Price` and never exceeds (ε, δ). ∎

    With ``gaussian`` the exact Gaussian curve is used and other noise is refused. (It is fixed beforehand, since
    afterwards answers could decide which curve applies.) ``rho`` is the price that was charged for the fit, which the
    releases must not exceed either.
    """

    def __init__(self, epsilon: float, delta: float, *, gaussian: bool = False, rho: float = math.inf) -> None:
        if not (epsilon > 0 and 0 <= delta < 1):
            raise ValueError(f"an account needs epsilon > 0 and 0 <= delta < 1, got {epsilon!r} and {delta!r}.")
        self.epsilon, self.delta, self.gaussian, self.rho = epsilon, delta, gaussian, rho
        self.releases: list[Release] = []
        self.parts: int | None = None  # the number of disjoint batches, once the table has been split

    def charge(self, release: Release) -> None:
        """Record the release, or refuse it if the total price would no longer convert to (ε, δ)."""
        if self.gaussian and not release.price.gaussian:
            raise ValueError(f"'{release.query}' needs other noise than this account allows: Gaussian only.")
        price = Price(total_price([*self.releases, release]).rho, self.gaussian)
        beyond = price.rho > self.rho * (1 + 1e-9)
        if beyond or (math.isfinite(self.epsilon) and price.delta(self.epsilon) > self.delta * (1 + 1e-9)):
            raise BudgetExceeded(
                f"'{release.query}' would take this fit beyond epsilon={self.epsilon:.6g}, "
                f"delta={self.delta:.3g}; it was not run."
            )
        self.releases.append(release)


def total_price(releases: list[Release]) -> Price:
    """The price of all releases: the sum for the whole table, plus that of the most expensive batch.

    *Lemma.* If a person has at most m rows, in whichever batches, the releases of all batches together cost them no
    more than ρ = max_b ρ_b. *Proof.* Let m_b of the rows be in batch b, Σ m_b ≤ m. Between neighbours that differ in
    them, the statistic of batch b changes by at most m_b/m of the sensitivity that was priced, which is m times that
    of a single row, rounding included (:meth:`Curator.sensitivity`). Every price is quadratic in the sensitivity
    (Δ²/(2τ²), kλ²/(2b²), 2.5·s(λ/b)²), so batch b costs them at most ρ_b·(m_b/m)². Given the earlier answers the
    batches compose, and Σ ρ_b·(m_b/m)² ≤ ρ·Σ m_b/m ≤ ρ, as no m_b/m exceeds 1. Of Gaussian noise the same holds for
    μ² = 2ρ. For m = 1, a row costs the price of its own batch only. ∎
    """
    table_price = total(r.price for r in releases if r.batch is None)
    batch_prices = [total(r.price for r in releases if r.batch == b) for b in {r.batch for r in releases} - {None}]
    dearest = Price(max((p.rho for p in batch_prices), default=0.0), all(p.gaussian for p in batch_prices))
    return total([table_price, dearest])


class Curator:
    """Answers bounded queries about a table with noise, within an account.

    ``rows_per_person`` is the largest number of rows of one person: all of them are protected together.

    >>> from dpem.paper.models import SymmetricMixture
    >>> from dpem.privacy.noise import PrivateNoise
    >>> from dpem.tables import ArraySource
    >>> account = Account(epsilon=1.0, delta=1e-5)
    >>> curator = Curator(ArraySource(np.ones((100, 3))), account, PrivateNoise())
    >>> answer = curator.measure(SymmetricMixture(1.0).truncated(np.ones(3), T=2.0), rho=0.01)
    >>> answer.shape, account.releases[0].price.rho
    ((3,), 0.01)
    """

    def __init__(
        self, source: Source, account: Account, noise: Noise, batch: int | None = None, *, rows_per_person: int = 1
    ) -> None:
        self._source, self._noise, self._batch, self.account = source, noise, batch, account
        self.rows_per_person = arguments.rows_per_person(rows_per_person)

    @property
    def n_rows(self) -> int:
        return self._source.n_rows

    @property
    def n_features(self) -> int:
        return self._source.n_features

    @property
    def effective_rows(self) -> int:
        """n/m for up to m rows per person: so many independent rows have at least the sampling variance of these.

        *Lemma.* Let s_i be scores with mean 0, independent between persons. Then Cov(Σ s_i) ≼ m·Σ E s_i s_iᵀ: the
        sampling covariance is at most m times that of independent rows, however alike the rows of a person are.
        *Proof.* For one person and any vector c, (Σ c·s_i)² ≤ m·Σ (c·s_i)² (Cauchy and Schwarz); add the persons. ∎
        """
        return max(self.n_rows // self.rows_per_person, 2)

    def split(self, parts: int) -> list[Curator]:
        """Curators of disjoint batches, under one account; refused where replacing a row could move others."""
        if self._batch is not None:
            raise ValueError("a batch cannot be split again.")
        refuse_to_split(self._source)
        if self.account.parts not in (None, parts):
            raise ValueError("a table can be split in one way only: batches of two splits overlap.")
        self.account.parts = parts
        return [
            Curator(part, self.account, self._noise, batch=t, rows_per_person=self.rows_per_person)
            for t, part in enumerate(self._source.split(parts))
        ]

    def sensitivity(self, query: Query, norm: str) -> float:
        """Sensitivity of the *mean* to replacing all rows of a person, with rounding; ``norm`` is "linf" or "l2".

        *Lemma.* Replacing up to m rows changes the computed mean, rounding included, by at most m times the bound for
        one row. *Proof.* Replace them one after another. Each step leads to a replace-one neighbour of the same length,
        and changes the mean by at most (change + slack·size)/n, whatever the other rows are; the triangle inequality
        adds m such steps. ∎ The same holds for everything computed from the mean before noise is added, so the rounding
        of scores is multiplied by m as well.
        """
        bound = query.bound
        change, size = (bound.linf, bound.size_linf) if norm == "linf" else (bound.l2, bound.size_l2)
        if math.isinf(change):
            return math.inf
        one_row = (change + self._source.slack(query) * size) / self.n_rows * (1 + 4 * float(np.finfo(float).eps))
        return self.rows_per_person * one_row

    def noise_scale(self, query: Query, rho: float) -> float:
        """The standard deviation of the noise that :meth:`measure` adds. Public: it depends on no record."""
        _check_price(rho)
        return 0.0 if math.isinf(rho) else mechanisms.gaussian_scale(self.sensitivity(query, "l2"), rho)

    def measure(self, query: Query, rho: float) -> FloatArray:
        """The mean of the query's contributions with Gaussian noise, at price ρ."""
        sensitivity = self.sensitivity(query, "l2")
        price = Price(rho, gaussian=True)
        self._charge(query, "Gaussian", price, sensitivity, self.noise_scale(query, rho))
        return mechanisms.gaussian(self._noise, self._mean(query), sensitivity, price)

    def select(
        self, query: Query, k: int, rho: float, *, offset: FloatArray | float = 0.0, step: float = 1.0
    ) -> NDArray[np.intp]:
        """The k coordinates with the largest ``|offset + step·mean|`` after Gumbel noise, at price ρ. ``offset`` and
        ``step`` are public. If the query has a method ``folded``, it is applied to the mean first, and the query's ℓ∞
        bound is that of its result; ``fold_rounding`` bounds the difference that its rounding can make between two
        tables, in units of the size of a contribution (0 if the slack of the sum covers it).
        """
        _check_price(rho)
        sensitivity = abs(step) * self.sensitivity(query, "linf")
        if (rounding := getattr(query, "fold_rounding", 0.0)) > 0:
            sensitivity += abs(step) * self.rows_per_person * rounding * query.bound.size_linf
        scale = 0.0 if math.isinf(rho) else mechanisms.top_k_scale(k, sensitivity, rho)
        self._charge(query, f"Gumbel top-{k}", Price(rho), sensitivity, scale)
        fold = getattr(query, "folded", np.asarray)
        v = offset + step * fold(self._mean(query))
        magnitude = self.rows_per_person * _magnitude(query, offset, step)
        return mechanisms.noisy_top_k(self._noise, v, k, sensitivity, Price(rho), magnitude)

    def peeling_sensitivity(
        self, query: Query, scale: float, *, offset: FloatArray | float = 0.0, step: float = 1.0
    ) -> float:
        """Sensitivity of offset + step·mean, which :meth:`peel` compares, with the rounding of the product and the sum,
        and to the grid for noise of this scale. Public: it depends on no record.
        """
        magnitude = _magnitude(query, offset, step)
        if not math.isfinite(magnitude + scale):
            return math.inf
        rounding = 2 * float(np.finfo(float).eps) * magnitude + mechanisms.peeling_grid(magnitude, scale)
        return abs(step) * self.sensitivity(query, "linf") + self.rows_per_person * rounding

    def peel(
        self, query: Query, s: int, scale: float, *, offset: FloatArray | float = 0.0, step: float = 1.0
    ) -> FloatArray:
        """NoisyHT of offset + step·mean with Laplace noise of this scale, which determines the price."""
        sensitivity = self.peeling_sensitivity(query, scale, offset=offset, step=step)
        price = mechanisms.peeling_price(s, sensitivity, scale)
        self._charge(query, f"Laplace peeling, {s} of {self.n_features}", price, sensitivity, scale)
        v, magnitude = offset + step * self._mean(query), _magnitude(query, offset, step)
        return mechanisms.noisy_hard_thresholding(self._noise, v, s, scale, magnitude)

    def _charge(self, query: Query, mechanism: str, price: Price, sensitivity: float, scale: float) -> None:
        _check_price(price.rho)
        if math.isinf(sensitivity) and not math.isinf(price.rho):
            raise ValueError(f"'{query.label}' is not bounded in the norm that {mechanism} needs; it was not run.")
        self.account.charge(Release(query.label, mechanism, price, sensitivity, scale, self.n_rows, self._batch))

    @np.errstate(all="ignore")  # a warning that depends on a row would reveal it
    def _mean(self, query: Query) -> FloatArray:
        """The exact mean, before noise is added. A total that is not finite is refused, although a bounded query always
        has a finite one: noise would turn it into an inconspicuous number.
        """
        total = self._source.total(query)
        if not np.isfinite(total).all():
            raise RuntimeError(
                f"'{query.label}' has no finite total, which a bounded query always has: nothing was released."
            )
        return total / self.n_rows


def _check_price(rho: float) -> None:
    if not rho > 0:
        raise ValueError(f"the price of a query must be positive, got {rho!r}.")


def _magnitude(query: Query, offset: FloatArray | float, step: float) -> float:
    """A public bound on the entries of offset + step·mean."""
    return float(np.max(np.abs(offset))) + abs(step) * query.bound.size_linf
