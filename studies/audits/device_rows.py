"""Hostile rows for the kernels that are generated from narrow queries' formulas. Used by ``device.py``.

The queries of fits are recorded, sent to a table on the device, and sent again after one row was replaced, or added at
the end. Checked, for each query, dtype and memory layout, is that

1. the sums of neighbours differ by at most the bound and its slack, and single contributions by at most the bound;
   a row that is added or removed changes the sum by at most a contribution's size;
2. only the sum of the chunk with the row changes, to the last bit;
3. a contribution equals that of the query in NumPy, to 1e-10 of its size;
4. nothing is printed or compiled for rows with missing values or not-a-number: kernels, their trials and Triton's files
   are the same as after the first table, which has no missing values.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dpem
from dpem.audit.neighbours import Table
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.queries.gpu import triton_sums as rowwise
from dpem.queries.gpu.trace import formula_of
from dpem.query import Chunk, FloatArray, Query
from dpem.tables.base import Source, slack
from studies.audits.hostile_rows import hostile

D = 4
PRICE: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-4, "random_state": 0}
SYMMETRIC: dict[str, Any] = {**PRICE, "sparsity": 3}
BOX = {**PRICE, "bounds": (-3.0, 3.5)}
BOTH = {**BOX, "y_bounds": (-5.0, 5.0)}
#: Estimators whose fits make the queries.
MODELS: dict[str, Callable[[], Any]] = {
    "linear regression": lambda: dpem.DPLinearRegression(**BOTH),
    **{
        f"Gaussian mixture, {kind}": lambda kind=kind: dpem.DPGaussianMixture(2, kind, **BOX)
        for kind in ("spherical", "diag", "tied", "full")
    },
    "linear regression, some columns": lambda: dpem.DPLinearRegression(sparsity=2, **BOTH),
    "Gaussian mixture, some columns": lambda: dpem.DPGaussianMixture(2, sparsity=2, **BOX),
    "mixture of regressions": lambda: dpem.DPMixtureRegression(2, **BOTH),
    "latent classes": lambda: dpem.DPLatentClass(2, levels={f"x{j}": range(2 + j % 2) for j in range(D)}, **PRICE),
    "symmetric mixture": lambda: DPSymmetricMixture(sigma=0.5, **SYMMETRIC),
    "symmetric regressions": lambda: DPSymmetricRegression(sigma=0.5, start=np.eye(D)[0], n_iter=2, **SYMMETRIC),
    "missing covariates": lambda: DPMissingRegression(sigma=0.5, **SYMMETRIC),
}


def table(model: str, n: int, *, missing: bool = False) -> Table:
    """Rows as the model assumes them, in float64."""
    rng = np.random.default_rng(5)
    side = rng.choice([-1.0, 1.0], n)
    X = rng.normal(size=(n, D)) + 1.2 * side[:, None]
    y = None if "ixture" in model and "regressions" not in model else X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=n)
    if model == "latent classes":
        X, y = np.floor((2 + np.arange(D) % 2) * rng.random((n, D)) ** np.where(side > 0, 2.0, 0.5)[:, None]), None
    if "mixture of regressions" in model or "symmetric regressions" in model:
        assert y is not None
        y *= side
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    return Table("with missing values" if missing else "whole", X, y)


class Recording:
    """A source that records its queries."""

    def __init__(self, source: Source, recorded: list[Query]) -> None:
        self._source, self._queries = source, recorded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def total(self, query: Query) -> FloatArray:
        self._queries.append(query)
        return self._source.total(query)

    def split(self, parts: int) -> list[Recording]:
        return [Recording(part, self._queries) for part in self._source.split(parts)]


def queries(model: str, seen: set[Any]) -> dict[str, Query]:
    """The narrow queries of a fit to whole rows and of one with missing values, of formulas not yet ``seen``."""
    found: dict[str, Query] = {}
    for missing in (False, True):
        recorded: list[Query] = []
        estimator, rows = MODELS[model](), table(model, 3000, missing=missing)
        make_curator = estimator._curator
        estimator._curator = lambda source, *others: make_curator(Recording(source, recorded), *others)  # noqa: B023
        try:
            estimator.fit(rows.X) if rows.y is None else estimator.fit(rows.X, rows.y)
        except ValueError:
            if not missing:
                raise  # some models refuse missing values
        for query in recorded:
            formula = formula_of(query, response=rows.y is not None) if hasattr(query, "sums") else None
            if formula is None or len(formula.results) > rowwise.MOST_RESULTS:
                continue
            key = (type(query), *formula.steps, *formula.results)
            if key not in seen:
                seen.add(key)
                found[f"{type(query).__name__} {len(seen)}"] = query
    return found


def _rows_together(X: Any) -> Any:
    return X.contiguous()


def _columns_together(X: Any) -> Any:
    return X.T.contiguous().T


def _within_another(X: Any) -> Any:
    """A view of a wider table whose address is no multiple of 16 bytes."""
    wide = torch.zeros((len(X) + 1, D + 3), dtype=X.dtype, device=X.device)
    wide[1:, 2 : D + 2] = X
    return wide[1:, 2 : D + 2]


LAYOUTS = {"rows together": _rows_together, "columns together": _columns_together, "within another": _within_another}


@dataclass
class Found:
    """The result of an audit of one query: the number of tables, the faults, the largest used share of the bound."""

    tables: int = 0
    used: float = 0.0
    off: float = 0.0
    faults: list[str] = field(default_factory=list)

    def within(self, what: str, moved: FloatArray, linf: float, l2: float) -> None:
        """Whether vectors (one in a row) are within both norms."""
        sizes = ((np.max(np.abs(moved), axis=1), linf), (np.sqrt(np.sum(moved * moved, axis=1)), l2))
        for seen, most in sizes:
            largest = float(np.max(seen))  # NaN if any is
            if np.isfinite(most):
                self.used = max(self.used, largest / most)
                if not largest <= most * (1 + 1e-12):
                    self.faults.append(f"{what}: {largest:.17g}, allowed {most:.17g}")


def footprint() -> tuple[Any, ...]:
    """The traces of compilation."""
    files = Path(os.environ.get("TRITON_CACHE_DIR", Path.home() / ".triton" / "cache"))
    return rowwise.compiled.cache_info().misses, len(rowwise._TRUSTED), sum(1 for _ in files.glob("*/*"))


def audit(query: Any, model: str, dtype: Any, layout: str, device: str, chunk: int, random: int) -> Found:
    """One query about one kind of table; chunks of ``chunk`` rows, a power of two."""
    found, n = Found(), 2 * chunk + chunk // 3
    bound, room = query.bound, slack(query, n + 1, np.dtype(np.float64), chunk)
    before: tuple[Any, ...] | None = None
    for missing, at in ((False, chunk + chunk // 2), (True, n - 1)):
        rows = table(model, n, missing=missing)
        rows = Table(rows.name, rows.X.astype(dtype), rows.y)
        X = LAYOUTS[layout](torch.as_tensor(rows.X, device=device))
        y = None if rows.y is None else torch.as_tensor(rows.y, device=device)

        def sums_of(X: Any, y: Any) -> FloatArray:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                sums = query.sums(Chunk(X, y), chunk)
            found.tables += 1
            found.faults += [f"a warning: {one.message}" for one in said]
            if sums is None:
                raise RuntimeError("no kernel was used")
            return np.asarray(sums)

        def one(row: FloatArray, response: float) -> tuple[FloatArray, FloatArray]:
            """A row's contribution, on the device and in NumPy."""
            alone = LAYOUTS[layout](torch.as_tensor(row[None, :].astype(dtype), device=device))
            own = None if y is None else torch.full((1,), response, dtype=torch.float64, device=device)  # noqa: B023
            there = Chunk(row[None, :].astype(dtype).astype(float), None if own is None else np.array([response]))
            with np.errstate(all="ignore"):
                return sums_of(alone, own)[0], query.sum(there)

        first = sums_of(X, y)
        before = footprint() if before is None else before
        totals, alone, kept = [first.sum(axis=0)], [], (X[at].clone(), None if y is None else y[at].clone())
        for name, row, response in hostile(rows, at, random):
            X[at] = torch.as_tensor(np.asarray(row).astype(dtype), device=device)
            if y is not None:
                y[at] = response
            sums = sums_of(X, y)
            if not np.array_equal(np.delete(sums, at // chunk, 0), np.delete(first, at // chunk, 0)):
                found.faults.append(f"{name}: another chunk's sum changed")
            if at == n - 1:
                shorter = sums_of(X[:at], None if y is None else y[:at])
                gained = (sums.sum(axis=0) - shorter.sum(axis=0))[None, :]
                size = (bound.size_linf * (1 + room), bound.size_l2 * (1 + room))
                found.within(f"{name}: added", gained, *size)
            totals.append(sums.sum(axis=0))
            here, there = one(np.asarray(row), response)
            alone.append(here)
            found.off = max(found.off, float(np.max(np.abs(here - there))) / min(bound.size_linf, bound.size_l2))
        if not found.off <= 1e-10:
            found.faults.append(f"a row adds what it does not add in numpy, off by {found.off:.3g}")
        found.within("a contribution", np.array(alone), bound.size_linf, bound.size_l2)
        wider = (bound.linf + room * bound.size_linf, bound.l2 + room * bound.size_l2)
        for what, kind, most in (("neighbours", totals, wider), ("two rows", alone, (bound.linf, bound.l2))):
            values = np.array(kind)
            for k in range(len(values) - 1):
                found.within(f"{what} {rows.name}, {k}", values[k + 1 :] - values[k], *most)
        X[at] = kept[0]
        if footprint() != before:
            found.faults.append(f"rows decided what was compiled: {before} became {footprint()}")
    return found
