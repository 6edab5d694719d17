"""The contract between a latent model and the paper's algorithms."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol, runtime_checkable

from dpem.query import FloatArray, Query


class Clip(NamedTuple):
    """Clipping levels of an entry (the paper's T), of a residual, and of the missing-entry factor."""

    entry: float
    residual: float = math.inf
    bracket: float = 1.0


@runtime_checkable
class LatentModel(Protocol):
    """What the paper's algorithms need of a model.

    A gradient is always *mean of clipped contributions + shift(β)*: the query states the contributions, ``shift`` the
    part that is the same for every record and therefore public (−β for the Gaussian mixture, 0 elsewhere).
    """

    @property
    def name(self) -> str: ...

    def truncated(self, beta: FloatArray, T: float) -> Query:
        """The paper's f_T(∇q_i(β; β)), truncated at T as the paper says for this model."""

    def printed_sensitivity(self, T: float) -> float:
        """ℓ∞ sensitivity of the sum as the paper prints it (2T in general)."""

    def shift(self, beta: FloatArray) -> FloatArray:
        """The part of the truncated gradient that no record influences."""
