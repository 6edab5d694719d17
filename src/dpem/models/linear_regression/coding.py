"""Coordinates in which the levels of a factor count alike, whichever is the baseline.

A factor with the shares p of its levels but the baseline is coded as z = C(p)^(−½)(d − p), d its dummies and C(p) =
diag(p) − ppᵀ their covariance. *Lemma.* A row of level k has ‖z‖² = 1/p_k − 1, the baseline too, so lengths and inner
products do not depend on which level is the baseline. *Proof.* C(p)⁻¹ = diag(1/p) + 11ᵀ/p₀ with p₀ = 1 − Σp, hence
(e_k − p)ᵀC⁻¹(e_l − p) = [k = l]/p_k − 1 for all levels, with e₀ = 0. ∎ Another baseline therefore only turns the
coordinates; clips and noise depend on lengths alone. Second moments within a factor follow from the shares, so they
need no release of their own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpem.models.linear_regression.columns import Columns, factors
from dpem.models.linear_regression.tuning import TUNING
from dpem.query import FloatArray
from dpem.tables.schema import Schema

BoolArray = NDArray[np.bool_]


class Coding(NamedTuple):
    """z = scale·(u − centre). ``known`` marks the second moments that shares tell, ``gram`` these and
    ``gram_variance`` how unsure they are, ``mean_variance`` the same of means (0 is the mean). ``excluded`` are
    coordinates of levels that are too rare: rows that have them count nothing. ``unused`` are those, and columns that
    are nearly always missing.
    """

    centre: FloatArray
    scale: FloatArray
    known: BoolArray
    gram: FloatArray
    gram_variance: FloatArray
    mean_variance: FloatArray
    excluded: tuple[int, ...]
    unused: BoolArray


def coded(schema: Schema, found: Columns, *, jointly: bool) -> Coding:
    """The coding of columns with these summaries; without ``jointly`` every level is a column of its own."""
    p = schema.width
    share, noise = found.share[:p], found.noise[:p]
    private = bool(noise.any())
    rare = (share < TUNING.rare_level * noise) & (share < 1 / (4 * (p + 1)))  # not where it is NaN, of numeric columns
    scale, known = np.diag(1 / found.spread[:p]), np.zeros((p, p), dtype=bool)
    gram, gram_variance, mean_variance = np.eye(p), np.zeros((p, p)), np.zeros(p)
    two_valued = [np.array([j]) for j in np.flatnonzero(~np.isnan(share) & (schema.level < 0))]
    levels = factors(schema) if jointly else [np.array([j]) for j in np.flatnonzero(schema.level >= 0)]
    for own in (*levels, *two_valued) if private else ():
        for part in (own[~rare[own]], *(own[[i]] for i in np.flatnonzero(rare[own]))):
            if not len(part):
                continue
            root = _root(_floored(share[part], p))
            block, squares = np.ix_(part, part), root**2
            scale[block] = root / 2
            known[block] = True
            gram[block] = root @ _covariance(share[part]) @ root
            gram_variance[block] = squares @ (noise[part, None] ** 2 * squares.T)
            mean_variance[part] = squares @ noise[part] ** 2
    unused = (rare | found.rarely_seen[:p]) if private else np.zeros(p, dtype=bool)
    excluded = tuple(int(j) for j in np.flatnonzero(rare)) if private else ()
    return Coding(found.centre[:p], scale, known, gram, gram_variance, mean_variance, excluded, unused)


def _floored(share: FloatArray, p: int) -> FloatArray:
    """Shares of which none, that of the baseline either, is so small that its rows would be clipped."""
    whole = np.maximum(np.append(share, 1 - share.sum()), 1 / (2 * (p + 1)))
    return np.asarray((whole / whole.sum())[:-1])


def _covariance(share: FloatArray) -> FloatArray:
    return np.diag(share) - np.outer(share, share)


def _root(share: FloatArray) -> FloatArray:
    """C(p)^(−½)."""
    values, vectors = np.linalg.eigh(_covariance(share))
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T)
