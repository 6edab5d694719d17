"""One EM iteration on a GPU against the device's own copy bandwidth and plain array operations.

python -m studies.benchmarks.gpu [--rows 2000000] [--columns 2000] [--repeats 20] [--cpu] [--tune] [--out FILE.json]

Needs PyTorch with CUDA, and Triton for the fused kernels. ``--cpu`` also times the machine's processor and a whole fit,
``--tune`` the fused kernel cut in other ways. Sums are compared with plain operations in float64 on the same rows.
"""

from __future__ import annotations

import argparse
import itertools
import time
from typing import Any

import numpy as np
import torch
from array_api_compat import array_namespace

from dpem.paper.engine import triton_columns as fused
from dpem.paper.engine.array_api import ArrayEngine
from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.queries import Clip
from dpem.queries.block_loop import narrow_sum
from dpem.query import BLOCK, Chunk, Query
from dpem.tables.array import DeviceSource
from studies.benchmarks.gpu_clock import copy_bandwidth, on_the_clock, on_the_device, write
from studies.benchmarks.gpu_narrow import five_gaussians

SIGMA, SPARSITY = 0.5, 10
CLIP = Clip(entry=1.0, residual=1.0)


def table(n: int, d: int) -> tuple[Any, Any, np.ndarray]:
    """Rows of a Gaussian mixture with ten coefficients, made on the device, and a response to them."""
    torch.manual_seed(0)
    beta = np.zeros(d)
    beta[:: d // SPARSITY][:SPARSITY] = 1 / np.sqrt(SPARSITY)
    X = torch.randn((n, d), device="cuda").mul_(SIGMA)
    z = torch.randint(0, 2, (n,), device="cuda").mul_(2).sub_(1).to(X.dtype)
    support = np.flatnonzero(beta)
    X[:, support] += z[:, None] * torch.as_tensor(beta[support], dtype=X.dtype, device="cuda")
    y = torch.randn(n, device="cuda", dtype=torch.float64)
    return X, y, beta


def queries(beta: np.ndarray) -> dict[str, Query]:
    support = np.flatnonzero(beta)
    mixture, regressions, missing = SymmetricMixture(SIGMA), SymmetricRegression(SIGMA), MissingRegression(SIGMA)
    return {
        "gaussian mixture, all columns": mixture.gradient(beta, CLIP),
        "mixture of regressions, all columns": regressions.gradient(beta, CLIP),
        "missing covariates, all columns": missing.gradient(beta, CLIP),
        "gaussian mixture, screening": mixture.screening(1.0, SPARSITY),
        "mixture of regressions, screening": regressions.screening(1.0, SPARSITY),
        "gaussian mixture, on 10 columns": mixture.on_support(beta, support, 1.0),
        "missing covariates, on 10 columns": missing.on_support(beta, support, 1.0),
        "gaussian mixture, moments of 10 columns": mixture.moments(support, 1.0, 1.0),
        "five groups, 10 columns": five_gaussians(support, len(beta)),
    }


def plain(query: Query, X: Any, y: Any) -> np.ndarray:
    """The sum by plain array operations."""
    return ArrayEngine(array_namespace(X)).total(query, Chunk(X, y))  # type: ignore[arg-type]


def agreement(query: Query, X: Any, y: Any) -> tuple[float, bool]:
    """The largest difference from the sum by plain operations in float64 over the same rows, as a part of the largest
    total, and whether it is within the bound that the slack of sums is stated for.
    """
    total, wide = DeviceSource(X, y).total(query), X.to(torch.float64)
    exact = plain(query, wide, y) if query.blocked else narrow_sum(query, Chunk(wide, y))  # type: ignore[arg-type]
    gap = float(np.max(np.abs(total - exact)))
    u = float(np.finfo(np.float32).eps) / 2 if query.blocked else float(np.finfo(np.float64).eps)
    allowed = (BLOCK + 23) * u * X.shape[0] * query.bound.size_linf
    return gap / float(np.max(np.abs(exact))), gap <= allowed


def hostile(query: Query, X: Any, y: Any) -> bool:
    """Whether rows that are not numbers, infinite or huge stay within the bound, one by one."""
    most = query.bound.size_linf * (1 + 1e-6)
    for bad in (float("nan"), float("inf"), -float("inf"), 3e38, -3e38):
        for y_bad in (0.5, 1e300, float("nan")):
            row, response = torch.full_like(X[:1], bad), torch.full_like(y[:1], y_bad)
            row[0, ::3] = 0.5
            total = DeviceSource(row, response).total(query)
            if not np.isfinite(total).all() or np.max(np.abs(total)) > most:
                return False
    return True


def tune(X: Any, beta: np.ndarray, copy: float, repeats: int) -> list[dict[str, Any]]:
    """The fused kernel cut in other ways, fastest first; the six fastest also for the other two modes."""
    n = X.shape[0]
    a, c = torch.randn(n, device="cuda").tanh(), torch.randn(n, device="cuda").tanh()
    b = torch.as_tensor(beta, dtype=X.dtype, device="cuda")
    a, c = a.double(), c.double()
    level = torch.tensor([1.0, 2.0, -0.5, 0.5, 0.0, 1.0, 0.5], dtype=torch.float64, device="cuda")
    calls = {
        "gradient": lambda tile: fused._accumulate(fused.GRADIENT, X, a, c, b, level, tile),
        "missing": lambda tile: fused._accumulate(fused.MISSING, X, a, c, b, level, tile),
        "screening": lambda tile: fused._accumulate(fused.EXCEEDANCE, X, a, c, b, level, tile),
    }
    shapes = [(256, 8, 2), (256, 16, 2), (256, 16, 4), (512, 4, 4), (512, 8, 4), (512, 16, 4), (512, 16, 8)]
    shapes += [(1024, 4, 8), (1024, 8, 8), (1024, 4, 4), (1024, 8, 4), (2048, 4, 16), (2048, 4, 8)]
    tiles = [fused.Tile(*s, stages=1, blocks=k) for s, k in itertools.product(shapes, (1, 4, 16))]
    tiles += [fused.Tile(*s, stages=g, blocks=4) for s, g in itertools.product(shapes[3:9], (2, 4))]
    found = []
    for tile in tiles:
        try:
            seconds = on_the_device(lambda tile=tile: calls["gradient"](tile), repeats)  # type: ignore[misc]
        except Exception as error:  # a cut that does not fit the device
            print(f"{tile}: {type(error).__name__}")
            continue
        found.append({**tile._asdict(), "ms": seconds * 1e3, "ratio": X.nbytes / seconds / copy})
    found.sort(key=lambda row: row["ms"])
    for row in found[:6]:
        tile = fused.Tile(*(row[k] for k in fused.Tile._fields))
        row |= {f"{name} ms": on_the_device(lambda: calls[name](tile), repeats) * 1e3 for name in calls}  # noqa: B023
    for row in found:
        print("  ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--columns", type=int, default=2_000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--some", type=int, default=200_000, help="rows of the comparison with float64")
    parser.add_argument("--cpu", action="store_true", help="time the processor and a whole fit too")
    parser.add_argument("--tune", action="store_true", help="time the fused kernel cut in other ways")
    parser.add_argument("--out", help="write all figures to this JSON file")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False

    X, y, beta = table(options.rows, options.columns)
    source, repeats = DeviceSource(X, y), options.repeats
    copy = copy_bandwidth(X, repeats)
    figures: dict[str, Any] = {"device": torch.cuda.get_device_name(), "copy GB/s": copy / 1e9, "rows": []}
    print(f"{options.rows:,} x {options.columns:,} float32 on {figures['device']}, median of {repeats}")
    print(f"torch {torch.__version__}, fused kernels {'used' if fused.usable(X) else 'NOT used'}")
    print(f"copy: {copy / 1e9:.0f} GB/s read and written\n")

    def line(name: str, how: str, seconds: float) -> None:
        ratio = X.nbytes / seconds / copy
        figures["rows"].append({"query": name, "how": how, "ms": seconds * 1e3, "ratio to copy": ratio})
        print(
            f"{name:<40} {how:<22} {seconds * 1e3:9.2f} ms  {X.nbytes / seconds / 1e9:7.0f} GB/s  {ratio:6.1%} of copy"
        )

    a = torch.randn(options.rows, device="cuda")
    line("a @ X", "library", on_the_device(lambda: a @ X, repeats))
    named = queries(beta)
    for name, query in named.items():
        line(name, "as a fit asks it", on_the_clock(lambda: source.total(query), repeats))  # noqa: B023
        if query.blocked:
            line(name, "plain operations", on_the_clock(lambda: plain(query, X, y), 3))  # noqa: B023
    engine = fused.FusedEngine(array_namespace(X))
    level = torch.tensor([1.0, 1.0, -1.0, 1.0], dtype=torch.float64, device="cuda")
    support = engine._support(named["gaussian mixture, all columns"], X)  # type: ignore[arg-type]
    for name, mode in (("gaussian mixture", fused.GRADIENT), ("missing covariates", fused.MISSING)):
        query: Any = named[f"{name}, all columns"]
        weights, other = engine._weights(query, X, y, *support)
        b = engine._like(beta, X)
        run = lambda: fused._accumulate(mode, X, weights, other, b, level, fused.TILE)  # noqa: E731, B023
        line(f"{name}: weights", "device only", on_the_device(lambda: engine._weights(query, X, y, *support), repeats))  # noqa: B023
        line(f"{name}: sums", "device only", on_the_device(run, repeats))

    m = min(options.some, options.rows)
    print(f"\nfirst {m:,} rows against float64")
    some, missing = X[:m].clone(), torch.rand(X[:m].shape, device="cuda") < 0.2
    figures["agreement"] = []
    for name, query in named.items():
        rows = torch.where(missing, torch.nan, some) if name.startswith(("missing", "five")) else some
        gap, within = agreement(query, rows, y[:m])
        held = hostile(query, X, y)
        figures["agreement"].append({"query": name, "difference": gap, "within": within, "bound held": held})
        print(f"{name:<40} difference {gap:.1e}, {'within' if within else 'NOT WITHIN'} its bound; ", end="")
        print("hostile rows within the bound" if held else "HOSTILE ROWS BEYOND THE BOUND")
    write(figures, options.out)

    if options.tune:
        print("\nother cuts of the fused kernel")
        figures["tiles"] = tune(X, beta, copy, max(5, repeats // 2))
    write(figures, options.out)

    if options.cpu:
        against_the_processor(X, y, named, m, figures)
        write(figures, options.out)


def against_the_processor(X: Any, y: Any, named: dict[str, Query], m: int, figures: dict[str, Any]) -> None:
    """The same queries about the first rows on the CPU, and a whole fit on the device."""
    from dpem.paper import DPSymmetricMixture
    from dpem.tables import ArraySource

    on_host = ArraySource(X[:m].cpu().numpy(), y[:m].cpu().numpy())
    figures["cpu"] = {}
    for name, query in named.items():
        seconds = on_the_clock(lambda: on_host.total(query), 3)  # noqa: B023
        per_row = next(r["ms"] for r in figures["rows"] if r["query"] == name) / X.shape[0] * m
        figures["cpu"][name] = seconds * 1e3
        print(f"{name:<40} {seconds * 1e3:8.1f} ms on the CPU, {seconds * 1e3 / per_row:6.0f} times the device's")
    model = DPSymmetricMixture(epsilon=1.0, delta=1e-8, sparsity=SPARSITY, sigma=SIGMA, random_state=0)
    for _ in range(2):  # the second time nothing is compiled
        start = time.perf_counter()
        model.fit(X)
        figures["fit"] = time.perf_counter() - start
    print(f"{type(model).__name__}.fit at epsilon = 1: {figures['fit']:.2f} s")


if __name__ == "__main__":
    main()
