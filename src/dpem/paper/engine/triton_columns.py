"""The engine for PyTorch tensors on a GPU with Triton, which reads the rows once for each query over all columns.

``project_kernel`` reads the columns where β is not zero, and PyTorch computes the model's weights from its products.
``accumulate_kernel`` then reads the table once, clamps, clips, multiplies and adds. One of its programs has some
columns and some blocks of rows; each thread has columns of its own, so that threads need not communicate.

*Lemma.* The sums are the same in every run, and :func:`dpem.tables.base.slack` bounds their rounding. *Proof.* A
program adds BLOCK rows in the rows' dtype, then these blocks in float64, in order; PyTorch adds the programs' sums in
float64. There are no atomic additions, and what each program adds depends on the table's shape alone. ∎
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpem.paper.engine import Levels, checked_beta
from dpem.paper.engine.array_api import ArrayEngine
from dpem.queries.gpu import triton_sums
from dpem.query import BLOCK, Array, Chunk, FloatArray, Namespace
from dpem.tables.blocks import host

if TYPE_CHECKING:
    from dpem.paper.queries import WideQuery

try:
    import torch
    import triton
    import triton.language as tl

    jit = triton.jit
except ImportError:  # then `usable` is false, and nothing else here is called

    def jit(kernel: Any) -> Any:
        return kernel


GRADIENT, MISSING, EXCEEDANCE = range(3)


class Tile(NamedTuple):
    """The work of one program of ``accumulate_kernel``: its columns and blocks of rows, the rows read at once, its
    warps and pipeline stages.
    """

    columns: int = 512
    rows: int = 16
    warps: int = 4
    stages: int = 4
    blocks: int = 4

    def fit(self, d: int) -> Tile:
        """A tile with fewer columns and more rows, for tables with few columns."""
        columns = min(self.columns, max(16, triton.next_power_of_2(d)))
        return self._replace(columns=columns, rows=min(BLOCK, self.rows * self.columns // columns))


#: The fastest of ``python -m studies.benchmarks.gpu --tune``.
TILE = Tile()


def usable(X: Array) -> bool:
    """Whether the kernels can read X: it is on a GPU that Triton supports, and its rows are contiguous."""
    return X.is_cuda and X.stride(1) == 1 and 0 not in X.shape and triton_sums.has_triton(X)


class FusedEngine(ArrayEngine):
    """The sums of :class:`ArrayEngine` by kernels."""

    def __init__(self, xp: Namespace, tile: Tile | None = None) -> None:
        super().__init__(xp)
        self.tile = TILE if tile is None else tile

    def total(self, query: WideQuery, chunk: Chunk) -> FloatArray:
        X, has_missing = chunk.X, query.has_missing
        beta = checked_beta(query, X.shape[1])
        support, levels = np.flatnonzero(beta), Levels.of(query, self.dtype(X))
        numbers = [*levels[:4], *(levels.line or ())]
        parts = _to_device(X, support, beta[support], numbers, beta[: has_missing * X.shape[1]])
        where, beta_support, level, beta_missing = parts
        a, c = self._weights(query, X, chunk.y, where, beta_support)
        mode = GRADIENT if levels.line is None else EXCEEDANCE
        return host(_accumulate(MISSING if has_missing else mode, X, a, c, beta_missing, level, self.tile))

    def _projections(self, X: Array, where: Array, beta: Array, *, has_missing: bool) -> tuple[Array, Array]:
        n, s = X.shape[0], where.shape[0]
        fitted = torch.empty(n, dtype=torch.float64, device=X.device)
        missing_variance = torch.empty_like(fitted) if has_missing else None
        padded = triton.next_power_of_2(max(1, s))  # so that supports of similar size share one compiled kernel
        span = min(128, padded)
        rows = 256 // span
        with torch.cuda.device_of(X):
            project_kernel[(triton.cdiv(n, rows),)](
                X, X.stride(0), n, where, beta, s, fitted, missing_variance,
                HAS_MISSING=has_missing, ROWS=rows, SPAN=span, LENGTH=padded, num_warps=8,
            )  # fmt: skip
        return fitted, missing_variance


def _to_device(X: Array, *parts: Any) -> Any:
    """Numbers in float64 on the device of X, by one copy, since the device waits for each copy."""
    flat = torch.from_numpy(np.concatenate([np.asarray(part, dtype=np.float64) for part in parts]))
    return torch.split(flat.to(X.device), [len(part) for part in parts])


def _accumulate(mode: int, X: Array, a: Array, c: Array, beta: Array, level: Array, tile: Tile) -> Array:
    """The sums of all columns, as a float64 tensor."""
    n, d = X.shape
    tile = tile.fit(d)
    groups = triton.cdiv(n, tile.blocks * BLOCK)
    sums = torch.empty((groups, d), dtype=torch.float64, device=X.device)
    with torch.cuda.device_of(X):
        accumulate_kernel[(triton.cdiv(d, tile.columns), groups)](
            X, X.stride(0), n, d, a, c, beta, level, sums, MODE=mode, BLOCK=BLOCK, BLOCKS=tile.blocks,
            ROWS=tile.rows, COLUMNS=tile.columns, STAGES=tile.stages, num_warps=tile.warps,
        )  # fmt: skip
    return sums.sum(dim=0)


@jit
def project_kernel(  # type: ignore[no-untyped-def]
    X, stride, n, where, beta, s, fitted, missing_variance,
    HAS_MISSING: tl.constexpr, ROWS: tl.constexpr, SPAN: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    """⟨β, z⊙x⟩ and, if entries may be missing, ‖(1−z)⊙β‖², in float64 from the columns ``where``."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n
    product = tl.zeros((ROWS,), tl.float64)
    absent = tl.zeros((ROWS,), tl.float64)
    for first in range(0, LENGTH, SPAN):
        k = first + tl.arange(0, SPAN)
        named = k < s
        j = tl.load(where + k, mask=named, other=0).to(tl.int64)
        b = tl.load(beta + k, mask=named, other=0.0)
        mask = inside[:, None] & named[None, :]
        x = tl.load(X + rows[:, None] * stride + j[None, :], mask=mask, other=0.0).to(tl.float64)
        if HAS_MISSING:
            nan = x != x
            absent += tl.sum(tl.where(nan, (b * b)[None, :], 0.0), axis=1)
            x = tl.where(nan, 0.0, x)
        product += tl.sum(x * b[None, :], axis=1)
    tl.store(fitted + rows, product, mask=inside)
    if HAS_MISSING:
        tl.store(missing_variance + rows, absent, mask=inside)


@jit
def clamped(value, low, high):  # type: ignore[no-untyped-def]
    """``value`` clamped to [low, high]; not-a-number becomes 0."""
    value = tl.where(value == value, value, 0.0)
    value = tl.where(value < high, value, high)
    return tl.where(value > low, value, low)


@jit
def accumulate_kernel(  # type: ignore[no-untyped-def]
    X, stride, n, d, a, c, beta, level, out, MODE: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Σ a_i·e(x_ij) of clipped entries (``MODE`` 0), with c_i·β_j instead where x_ij is missing (1), or of entries
    whose squares are put on a line (2).

    ``level`` has the largest a and c, the limits of e, and the line's floor, slope and start, all numbers of the rows'
    dtype, to which a and c are cast before they are clamped. Not-a-number fails each comparison, and is replaced by a
    limit.
    """
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < d
    group = tl.program_id(1).to(tl.int64)
    A = tl.load(level).to(X.dtype.element_ty)
    low = tl.load(level + 2).to(X.dtype.element_ty)
    high = tl.load(level + 3).to(X.dtype.element_ty)
    if MODE == 1:
        b = tl.load(beta + columns, mask=inside, other=0.0).to(X.dtype.element_ty)[None, :]
        least = tl.full((), -1.0, X.dtype.element_ty)
        top = tl.load(level + 1).to(X.dtype.element_ty)
    if MODE == 2:
        floor = tl.load(level + 4).to(X.dtype.element_ty)
        slope = tl.load(level + 5).to(X.dtype.element_ty)
        start = tl.load(level + 6).to(X.dtype.element_ty)
    total = tl.zeros((COLUMNS,), tl.float64)
    for block in range(0, BLOCKS):
        part = tl.zeros((COLUMNS,), X.dtype.element_ty)
        for r in tl.range(0, BLOCK, ROWS, num_stages=STAGES):
            rows = (group * BLOCKS + block) * BLOCK + r + tl.arange(0, ROWS)
            there = rows < n
            x = tl.load(
                X + rows[:, None] * stride + columns[None, :],
                mask=there[:, None] & inside[None, :],
                other=0.0,
                eviction_policy="evict_first",
            )
            weight = clamped(tl.load(a + rows, mask=there, other=0.0).to(X.dtype.element_ty), -A, A)[:, None]
            u = floor + slope * (x * x - start) if MODE == 2 else x
            u = tl.where(u < high, u, high)
            term = weight * tl.where(u > low, u, low)
            if MODE == 1:
                other = clamped(tl.load(c + rows, mask=there, other=0.0).to(X.dtype.element_ty), least, top)
                term = tl.where(x != x, other[:, None] * b, term)
            part += tl.sum(term, axis=0)
        total += part.to(tl.float64)
    tl.store(out + group * d + columns, total, mask=inside)
