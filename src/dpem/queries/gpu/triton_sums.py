"""The sum of a narrow query on a GPU in one pass over its columns, by a Triton kernel of the query's formula.

A thread processes a row at a time: it evaluates the query's formula (:mod:`dpem.queries.gpu.trace`) in float64 and adds
the results to its sums. Sums of threads are added by a tree, sums of programs by PyTorch, both in float64.

*Lemma.* The sums satisfy the assumptions of :func:`dpem.tables.base.slack`, and are the same in every run. *Proof.* A
contribution is computed by the query's operations, in their order, from its row and public numbers alone; a product
and a sum may be rounded once instead of twice, which the allowance for rounding in a query's bound covers. A row is
added by one formula only: the first condition of the second formula is the negation of that of the first, and every
kernel computes conditions by the same operations. A chunk's contributions are added in float64, in an order that
depends on sizes and on which of its rows meet the conditions; so a row that is replaced changes the sum of its own
chunk only. The choice of kernels depends on the query and on simulated rows; the kernels of both formulas are tested
and compiled before the first row is read, and a kernel that was not tested then is not used. ∎

Division by a public number b is a·y with one correction, y being the rounded 1/b: exact quotients are computed exactly,
so that rows on the edge of a cell fall into the same cell as on the host.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import warnings
from typing import Any, NamedTuple

import array_api_compat
import numpy as np

from dpem.queries.gpu.trace import Formula, formula_of
from dpem.queries.gpu.triton_codegen import Kernel, parts, summing
from dpem.query import Chunk, FloatArray

try:
    import torch
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    jit = triton.jit
except ImportError:  # then no array is a PyTorch tensor on a GPU, and the functions below are not called

    def jit(kernel: Any) -> Any:
        return kernel


#: Fewer rows are added by plain array operations, since compiling a formula takes seconds.
LEAST_ROWS = 2**22
#: Threads of a program (each processes a row at a time), rows of a program, and rows fetched ahead for a thread.
THREADS, PROGRAM_ROWS, STAGES = 64, 2**14, 3
#: Queries with more results are summed by plain array operations.
MOST_RESULTS = 512


def has_triton(X: Any) -> bool:
    """Whether Triton is installed and compiles for the GPU that the tensor is on."""
    return "triton" in globals() and _compiles(X.device.index)


@functools.cache
def _compiles(device: int) -> bool:
    if torch.cuda.get_device_capability(device) < (7, 0):
        return False
    try:
        _store_one[(1,)](torch.zeros(1, device=f"cuda:{device}"))
    except Exception as reason:  # a compiler may fail in any way
        kind = type(reason).__name__
        warnings.warn(f"Triton cannot compile here ({kind}): sums use plain array operations.", stacklevel=4)
        return False
    return True


@jit
def _store_one(out):  # type: ignore[no-untyped-def]
    tl.store(out, 1.0)


def sums_by_rows(query: Any, X: Any, y: Any, rows: int) -> FloatArray | None:
    """The query's sum over each ``rows`` rows (a power of two) of a PyTorch table on a GPU; None if its formula cannot
    be traced, is too long, or does not compile.

    Rows that do not meet the formula's conditions are added by the formula with the other answers, if there is one, and
    the remaining rows by the query's plain operations. So is a whole chunk if its sum is not finite, because a row that
    does not meet the conditions may have overflowed.
    """
    usual = _Sums.of(formula_of(query, response=y is not None))
    if usual is None or not _trusted(usual, query, X, y):
        return None
    if usual.formula.conditions and _key(usual.kernels, X, y) not in _OTHER_IS_TRUSTED:  # before any row is read
        other = _Sums.of(formula_of(query, response=y is not None, usual=False))
        _OTHER_IS_TRUSTED[_key(usual.kernels, X, y)] = other is not None and _trusted(other, query, X, y)
    n = X.shape[0]
    good = torch.zeros(n if usual.formula.conditions else 0, dtype=torch.int8, device=X.device)
    sums, met = usual.of_chunks(query, X, y, good, rows)
    lengths = np.minimum(n - rows * np.arange(len(sums)), rows)
    if np.any(met < lengths) and _OTHER_IS_TRUSTED[_key(usual.kernels, X, y)]:
        other = _Sums.of(formula_of(query, response=y is not None, usual=False))
        if other is not None and _TRUSTED.get(_key(other.kernels, X, y)):  # no kernel is compiled because of these rows
            other_sums, other_met = other.of_chunks(query, X, y, good, rows)
            sums, met = sums + other_sums, met + other_met
    for chunk in np.flatnonzero(met < lengths).tolist():
        sums[chunk] += _plain_sum(query, X, y, good, slice(chunk * rows, chunk * rows + int(lengths[chunk])))
    for chunk in np.flatnonzero(~np.isfinite(sums).all(axis=1)).tolist():
        rows_of_chunk = slice(chunk * rows, chunk * rows + int(lengths[chunk]))
        sums[chunk] = query.sum(Chunk(X[rows_of_chunk], None if y is None else y[rows_of_chunk]))
    return sums


class _Sums(NamedTuple):
    """The kernels that add a formula's results, and the indices of the results that each adds."""

    formula: Formula
    parts: list[list[int]]
    kernels: list[Kernel]

    @classmethod
    def of(cls, formula: Formula | None) -> _Sums | None:
        """The kernels of a formula; None if it has too many results, or factors with which a sum could overflow."""
        if formula is None or len(formula.results) > MOST_RESULTS:
            return None
        result_parts = parts(formula)
        sums = cls(formula, result_parts, [summing(formula, part) for part in result_parts])
        sizes = np.abs(np.concatenate(sums.factors()))
        return sums if np.all((sizes > 1e-9) & (sizes < 1e9)) else None

    def factors(self) -> list[FloatArray]:
        return [
            np.array([kernel.factor(self.formula, k) for k in range(len(kernel.factors))]) for kernel in self.kernels
        ]

    def of_chunks(self, query: Any, X: Any, y: Any, good: Any, rows: int) -> tuple[FloatArray, FloatArray]:
        """The sum over the rows of each chunk that meet the formula's conditions, and their number."""
        programs = max(1, rows // PROGRAM_ROWS)  # of one chunk
        chunks, part_sums = -(-X.shape[0] // rows), []
        for part, kernel in zip(self.parts, self.kernels, strict=True):
            out = torch.zeros((chunks * programs, len(part) + 1), dtype=torch.float64, device=X.device)
            _launch(kernel, self.formula, query, X, y, good, out, rows // programs)
            part_sums.append(out.reshape(chunks, programs, -1).sum(dim=1))
        host = torch.cat(part_sums, dim=1).cpu().numpy()
        sums, first = np.empty((chunks, len(self.formula.results))), 0
        for part, factors in zip(self.parts, self.factors(), strict=True):
            sums[:, part] = host[:, first : first + len(part)] * factors
            first += len(part) + 1
        return sums, host[:, -1]


def _launch(kernel: Kernel, formula: Formula, query: Any, X: Any, y: Any, good: Any, out: Any, rows: int) -> None:
    columns = [int(query.reads[j]) * X.stride(1) for j in kernel.columns]
    with torch.cuda.device_of(X):
        compiled(kernel.text)[(-(-X.shape[0] // rows),)](
            X, X.stride(0), X if y is None else y, 0 if y is None else y.stride(0), X.shape[0], good, out, 1.0,
            *columns, *(formula.parameters[k] for k in kernel.parameters), ROWS=THREADS, STEPS=rows // THREADS,
            STAGES=STAGES if rows > THREADS else 1, num_warps=THREADS // 32, enable_fp_fusion=False,
        )  # fmt: skip


def _plain_sum(query: Any, X: Any, y: Any, good: Any, chunk: slice) -> FloatArray:
    """The sum over the rows of a chunk that no kernel has added, by plain operations."""
    rows = torch.nonzero(good[chunk] == 0)[:, 0] + chunk.start
    reads = torch.as_tensor(np.asarray(query.reads, dtype=np.int64), device=X.device)
    response = None if y is None else y[rows].to(torch.float64)
    added = query.block(array_api_compat.array_namespace(X), X[rows][:, reads].to(torch.float64), response)
    return np.asarray(added.cpu().numpy(), dtype=float)


@functools.cache
def _simulated_rows(n: int, d: int) -> tuple[FloatArray, FloatArray]:
    """Simulated rows, some with missing values and some beyond all bounds."""
    spread = np.modf(np.sqrt(2.0) * np.arange(1, n * (d + 1) + 1) ** 1.5)[0].reshape(n, d + 1)  # even in [0, 1)
    X, y = 4 * spread[:, :d] - 2, 4 * spread[:, d] - 2
    X[: n // 8][spread[: n // 8, :d] < 0.2] = np.nan
    X[n // 8, :], X[n // 8 + 1, :], y[n // 4 : n // 4 + 2] = 1e30, np.inf, (np.nan, 1e30)
    return X, y


#: Whether kernels computed the query's sums on simulated rows, and whether those for rows that do not meet their
#: conditions did.
_TRUSTED: dict[tuple[Any, ...], bool] = {}
_OTHER_IS_TRUSTED: dict[tuple[Any, ...], bool] = {}


def _key(kernels: list[Kernel], X: Any, y: Any) -> tuple[Any, ...]:
    """A key for compiled kernels: everything that their compilation depends on."""
    return (*(kernel.text for kernel in kernels), X.dtype, X.device, None if y is None else y.dtype)


def _trusted(sums: _Sums, query: Any, X: Any, y: Any) -> bool:
    """Whether kernels compile and compute the query's own sums on simulated rows."""
    key = _key(sums.kernels, X, y)
    if key not in _TRUSTED:
        rows, response = (torch.as_tensor(part, device=X.device) for part in _simulated_rows(512, 1 + max(query.reads)))
        rows, response = rows.to(X.dtype), None if y is None else response.to(y.dtype)
        try:
            _TRUSTED[key] = _agrees(sums, query, rows, response)
            reason = "its sums are not the query's"
        except Exception as error:  # a compiler may fail in any way
            _TRUSTED[key], reason = False, type(error).__name__
        if not _TRUSTED[key]:
            warnings.warn(f"a kernel is not used ({reason}): sums use plain array operations.", stacklevel=5)
    return _TRUSTED[key]


def _agrees(sums: _Sums, query: Any, X: Any, y: Any) -> bool:
    good = torch.zeros(len(X), dtype=torch.int8, device=X.device)
    (added,), (met,) = sums.of_chunks(query, X, y, good, PROGRAM_ROWS)
    taken = good == 1 if sums.formula.conditions else torch.ones_like(good, dtype=torch.bool)
    expected = _plain_sum(query, X, y, ~taken, slice(0, len(X))) if met else np.zeros_like(added)
    allowed = 1e-10 * max(1.0, float(np.max(np.abs(expected))))
    return bool(np.all(np.abs(added - expected) <= allowed) and met == int(taken.sum()))


@functools.lru_cache(maxsize=256)
def compiled(text: str) -> Any:
    """The kernel with this text. Triton keeps compiled kernels on disk for the next process."""
    name = f"<rows {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"tl": tl, "libdevice": libdevice, "over": over, "larger": larger, "smaller": smaller}
    exec(compile(text, name, "exec", dont_inherit=True), space)  # the text is written from a formula's steps alone
    kernel = space["rows_kernel"]
    # One compilation serves every table, so that none happens while rows are read.
    integers = [name for name in kernel.__code__.co_varnames if name in ("stride", "y_stride", "n") or name[0] == "c"]
    pointers = ["X", "y", "good", "out"]
    return triton.jit(kernel, do_not_specialize=integers, do_not_specialize_on_alignment=pointers)


@jit
def over(a, b, y):  # type: ignore[no-untyped-def]
    """a/b, with y the rounded 1/b."""
    q = a * y
    nearer = tl.fma(tl.fma(-q, b, a), y, q)
    return tl.where(nearer == nearer, nearer, q)


@jit
def larger(a, b):  # type: ignore[no-untyped-def]
    """The larger of two numbers, or NaN if one is NaN."""
    return tl.where((a > b) | (a != a), a, b)


@jit
def smaller(a, b):  # type: ignore[no-untyped-def]
    """The smaller of two numbers, or NaN if one is NaN."""
    return tl.where((a < b) | (a != a), a, b)
