"""Queries about ten columns that lie together on a GPU: their share of the copy bandwidth of what they read, in a
fit and of the kernels alone, and the largest difference from the same sum on the processor.

python -m studies.benchmarks.gpu_narrow [--repeats 10] [--only NAME] [--small] [--out FILE.json]

Needs PyTorch with CUDA, and Triton.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np
import torch

from dpem.fitting.surrogate import ScoreQuery
from dpem.models.gaussian_mixture.covariance_types import TYPES
from dpem.models.gaussian_mixture.family import GaussianFamily
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.latent_class.queries import Items, PairMoments
from dpem.models.linear_regression.columns import Coding
from dpem.models.linear_regression.information import Information
from dpem.models.linear_regression.moments import JointMoments
from dpem.models.linear_regression.rows import Frame
from dpem.models.linear_regression.scores import Score
from dpem.models.mixture_regression.components import Components
from dpem.models.mixture_regression.components import Frame as ComponentFrame
from dpem.models.mixture_regression.family import RegressionFamily
from dpem.paper.models import SymmetricMixture
from dpem.queries.gpu import triton_sums as rowwise
from dpem.queries.gpu.trace import formula_of
from dpem.query import Query
from dpem.tables.array import DeviceSource
from dpem.tables.schema import Schema
from studies.benchmarks.gpu_clock import copy_bandwidth, on_the_clock, on_the_device, write

D = 10
#: Rows and dtype: a middling table, then 16 GB in float32 and in float64.
SIZES = ((2**24, torch.float32), (400_000_000, torch.float32), (200_000_000, torch.float64))


def five_gaussians(support: np.ndarray, d: int, kind: str = "diag") -> Query:
    """An EM step of a mixture of five Gaussians on some columns."""
    rng, k = np.random.default_rng(0), len(support)
    names = [f"x{j}" for j in range(d)]
    schema = Schema.of(names, dict.fromkeys(names, (-3.0, 3.0)), {}).take(support)
    wide = 0.02 * rng.normal(size=(5, k, k)) + 0.2 * np.eye(k)
    spread = np.full((5, k), 0.05) if kind == "diag" else wide @ np.swapaxes(wide, 1, 2)
    mixture = Gaussians(np.full(5, 0.2), rng.uniform(-0.5, 0.5, (5, k)), spread)
    family = GaussianFamily(5, TYPES[kind], np.full(k, 1e-9), np.ones(k))
    whitener = np.eye(family.count) + 0.01  # dense, as that of a fit
    return ScoreQuery(schema, family, mixture, whitener, 4.0)


def queries() -> dict[str, tuple[Query, bool]]:
    """Each with whether it is about a response."""
    rng, names = np.random.default_rng(0), [f"x{j}" for j in range(D)]
    schema = Schema.of(names, dict.fromkeys(names, (-3.0, 3.0)), {}, y_bounds=(-5.0, 5.0))
    items = Items((2,) * D)
    answers = Schema.of(names, {}, dict.fromkeys(names, (0.0, 1.0)), every_level=True)
    cov = np.eye(D) + 0.2
    whiten = np.linalg.inv(np.linalg.cholesky(cov))
    scale, none = np.diag(1 / rng.uniform(0.2, 0.4, D)), np.zeros((D, D))
    frame = Frame(rng.normal(scale=0.05, size=D), scale, 0.02, 0.3, cov, whiten)
    coding = Coding(frame.centre, scale, none > 0, none, none, np.zeros(D), (), np.zeros(D) > 0)
    at = (schema, frame, rng.normal(scale=0.3, size=D + 1), 0.5)
    components = Components(np.array([0.5, 0.5]), rng.normal(scale=0.4, size=(2, D + 1)), np.array([0.4, 0.6]))
    coordinates = ComponentFrame(frame.centre, 3 * whiten, 0.02, 0.2)
    every, regressions = np.arange(D), RegressionFamily(2, coordinates, np.eye(D + 1), np.zeros(D + 1))
    return {
        "linear regression, moments": (JointMoments(schema, coding, 0.02, 0.3, 4.0), True),
        "linear regression, score": (Score(*at, 6.0), True),
        "linear regression, information": (Information(*at, 4.0), True),
        "symmetric mixture": (SymmetricMixture(0.5).on_support(np.full(D, D**-0.5), every, 1.0), False),
        "five Gaussians, diag": (five_gaussians(every, D), False),
        "five Gaussians, full": (five_gaussians(every, D, "full"), False),
        "pairs of answers": (PairMoments(answers, items), False),
        "two regressions": (ScoreQuery(schema, regressions, components, np.eye(regressions.count), 2.0), True),
    }


def kernels_alone(query: Any, X: Any, y: Any, repeats: int) -> float:
    """Median seconds of the kernels that read all rows, without the host and without adding the programs' sums; NaN
    where the formula is too long for a kernel, and plain array operations are used.
    """
    sums = rowwise._Sums.of(formula_of(query, response=y is not None))
    if sums is None:
        return math.nan
    rows = rowwise.PROGRAM_ROWS
    programs = -(-X.shape[0] // rows)
    good = torch.zeros(X.shape[0] if sums.formula.conditions else 0, dtype=torch.int8, device=X.device)
    outs = [torch.zeros((programs, len(part) + 1), dtype=torch.float64, device=X.device) for part in sums.parts]

    def run() -> None:
        for kernel, out in zip(sums.kernels, outs, strict=True):
            rowwise._launch(kernel, sums.formula, query, X, y, good, out, rows)

    return on_the_device(run, repeats)


def narrow(n: int, dtype: Any, copy: float, repeats: int, some: int, only: str) -> list[dict[str, Any]]:
    """Each query of n rows, as in a fit."""
    torch.manual_seed(1)
    X, y = torch.randn((n, D), device="cuda", dtype=dtype), torch.randn(n, device="cuda", dtype=torch.float64)
    entries = []
    for name, (query, has_response) in queries().items():
        if not name.startswith(only):
            continue
        response = y if has_response else None
        seconds = on_the_clock(lambda: DeviceSource(X, response).total(query), repeats)  # noqa: B023
        alone = kernels_alone(query, X, response, repeats)
        read = X.nbytes + (0 if response is None else response.nbytes)
        few = DeviceSource(X[:some], None if response is None else response[:some])
        rows = DeviceSource(X[:some].cpu(), None if response is None else response[:some].cpu())
        least, rowwise.LEAST_ROWS = rowwise.LEAST_ROWS, 1  # so that the same kernel adds the few rows
        here, there = few.total(query), rows.total(query)
        rowwise.LEAST_ROWS = least
        gap, share = float(np.max(np.abs(here - there)) / np.max(np.abs(there))), read / seconds / copy
        kind = str(dtype).split(".")[-1]
        entry = {"query": name, "rows": n, "dtype": kind, "ms": seconds * 1e3, "ratio to copy": share}
        entry |= {"kernels ms": alone * 1e3, "kernels ratio": read / alone / copy, "difference": gap}
        entries.append(entry)
        print(
            f"{name:<32} {n:>11,} rows {kind} {seconds * 1e3:9.2f} ms {share:6.1%} of copy; "
            f"kernels {alone * 1e3:9.2f} ms {read / alone / copy:6.1%}; off by {gap:.1e}",
            flush=True,
        )
    return entries


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--some", type=int, default=200_000, help="rows of the comparison with the processor")
    parser.add_argument("--only", default="", help="queries whose name begins so")
    parser.add_argument("--small", action="store_true", help="a thousandth of the rows: compile, and see that all runs")
    parser.add_argument("--out", help="write all figures to this JSON file")
    options = parser.parse_args()
    sizes = [(n // 1000 if options.small else n, dtype) for n, dtype in SIZES]
    if options.small:
        rowwise.LEAST_ROWS = 1
    copy = copy_bandwidth(torch.empty(sizes[-1][0] * D, dtype=torch.float64, device="cuda"), options.repeats)
    figures: dict[str, Any] = {"device": torch.cuda.get_device_name(), "copy GB/s": copy / 1e9, "narrow": []}
    print(f"{figures['device']}, copy: {copy / 1e9:.0f} GB/s read and written, median of {options.repeats}")
    for n, dtype in sizes:
        figures["narrow"] += narrow(n, dtype, copy, options.repeats, options.some, options.only)
        write(figures, options.out)


if __name__ == "__main__":
    main()
