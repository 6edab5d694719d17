"""What one would try first: clip the whole gradient and add noise, or take the top eigenvector of a noisy covariance.

Both go through the curator and use the whole budget, as the improved method does, so that a comparison is about
method and not about price. The two non-private ones, gradient EM (Balakrishnan, Wainwright and Yu 2017) and truncated
gradient EM (Wang, Gu, Ning and Liu 2015), are :func:`dpem.paper.reference.gradient_em` without and with a sparsity.
"""

from __future__ import annotations

import numpy as np

from dpem.paper.models import Mixture, Model
from dpem.paper.reference import hard_threshold
from dpem.paper.steps import PaperState, Start
from dpem.privacy import Curator
from dpem.query import FloatArray


def clipped_gradient_em(
    curator: Curator,
    model: Model,
    start: FloatArray,
    *,
    rho: float,
    n_iter: int,
    step: float,
    radius: float,
    s: int | None = None,
) -> FloatArray:
    """β ← H_s(β + η·(mean of ∇q_i(β; β) clipped to ‖·‖₂ ≤ C + Gaussian noise)), all d coordinates, full data.

    *Lemma.* ρ-zCDP, and as private as one Gaussian release with μ² = 2ρ. *Proof.* A step is a Gaussian release at price
    ρ/T: a clipped contribution lies in a ball of radius C (:class:`~dpem.paper.queries.SupportQuery`), the β it
    starts from was released before. T of them add to ρ. H_s (with ``s``, the s largest entries) sees releases only. ∎

    >>> from dpem.paper.models import SymmetricMixture
    >>> from dpem.privacy import Account, PrivateNoise, largest_price
    >>> from dpem.tables import ArraySource
    >>> beta, rng = np.array([0.8, 0.6]), np.random.default_rng(0)
    >>> X, _ = SymmetricMixture(0.5).sample(beta, 5000, rng)
    >>> curator = Curator(ArraySource(X), Account(1.0, 1e-5, gaussian=True), PrivateNoise())
    >>> rho = largest_price(1.0, 1e-5, gaussian=True).rho
    >>> found = clipped_gradient_em(
    ...     curator, SymmetricMixture(0.5), np.ones(2), rho=rho, n_iter=3, step=1.0, radius=1.5
    ... )
    >>> bool(np.linalg.norm(found - beta) < 0.2)
    True
    """
    if n_iter < 1:
        raise ValueError(f"n_iter must be at least 1, got {n_iter!r}.")
    beta = start
    everywhere = np.arange(curator.n_features)
    for _ in range(n_iter):
        gradient = curator.measure(model.on_support(beta, everywhere, radius), rho / n_iter)
        beta = hard_threshold(beta + step * gradient, s)
    return beta


def spectral(curator: Curator, model: Mixture, *, rho: float, radius: float, signal: float) -> FloatArray:
    """The top eigenvector of the noisy second moments of all d columns, with the assumed length ``signal``. No start.

    *Lemma.* ρ-zCDP. *Proof.* One Gaussian release at price ρ (:class:`~dpem.paper.queries.MomentQuery` states how
    far a record moves it); the eigenvector sees the release only. ∎ It releases d(d+1)/2 numbers, so it is for few
    columns.

    >>> from dpem.paper.models import SymmetricMixture
    >>> from dpem.privacy import Account, PrivateNoise, largest_price
    >>> from dpem.tables import ArraySource
    >>> beta, rng = np.array([0.8, 0.6]), np.random.default_rng(0)
    >>> X, _ = SymmetricMixture(0.5).sample(beta, 5000, rng)
    >>> curator = Curator(ArraySource(X), Account(1.0, 1e-5, gaussian=True), PrivateNoise())
    >>> rho = largest_price(1.0, 1e-5, gaussian=True).rho
    >>> found = spectral(curator, SymmetricMixture(0.5), rho=rho, radius=2.0, signal=1.0)
    >>> bool(np.linalg.norm(found - beta) < 0.2)
    True
    """
    if not hasattr(model, "moments"):
        raise ValueError(
            f"spectral needs a model whose second moments point along beta; {type(model).__name__} has none."
        )
    d = curator.n_features
    return Start(rho, radius, signal).run(curator, model, PaperState.at(None, d)).beta
