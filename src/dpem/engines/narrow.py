"""The narrow loop: a few columns of a block of rows in float64, whatever holds the rows, and the sum of what they add.

A question says which columns it reads and what a block of them adds (``block``), in functions of the array API, so one
formula serves numpy, PyTorch on a GPU and every other library. No model's name or formula is here.
"""

from __future__ import annotations

from typing import Any, Protocol

import array_api_compat
import array_api_compat.numpy as numpy_api
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpem.engines.base import engine_of
from dpem.query import Chunk, FloatArray

#: Numbers read at a time: in memory what a core's cache holds, elsewhere enough to keep a device busy.
PIECE, DEVICE_PIECE = 2**17, 2**24


class Narrow(Protocol):
    """What the loop asks of a question."""

    @property
    def reads(self) -> NDArray[np.intp]: ...

    def block(self, xp: Any, x: Any, y: Any) -> Any:
        """The float64 sum over the rows of x (and y) of their clipped contributions, as a vector."""


@np.errstate(all="ignore")
def narrow_sum(question: Narrow, chunk: Chunk) -> FloatArray:
    """The question's sum over a chunk of rows, added in float64 throughout.

    *Lemma.* The sum is of the blocks' sums, each of which the question clips, in an order that depends on the sizes
    alone. *Proof.* Blocks are cut by position, and nothing here looks at an entry. ∎
    """
    engine = engine_of(chunk.X)
    on_host = isinstance(chunk.X, np.ndarray) or sparse.issparse(chunk.X)
    xp = numpy_api if on_host else array_api_compat.array_namespace(chunk.X)
    n = chunk.X.shape[0]
    length = max(256, (PIECE if on_host else DEVICE_PIECE) // max(1, len(question.reads)))
    total: Any = None
    for first in range(0, n, length):
        rows = slice(first, min(first + length, n))
        x = engine.columns(chunk.X[rows] if on_host else chunk.X[rows, :], question.reads)
        y = None if chunk.y is None else xp.astype(chunk.y[rows], xp.float64)
        part = question.block(xp, x, y)
        total = part if total is None else total + part
    return np.asarray(engine.host(total), dtype=float)


def like(xp: Any, values: FloatArray, x: Any) -> Any:
    """Constants of a question as a float64 array beside the rows."""
    if xp is numpy_api:
        return values
    return xp.asarray(np.ascontiguousarray(values), dtype=xp.float64, device=array_api_compat.device(x))
