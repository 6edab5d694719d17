"""One EM iteration on a GPU against the device's own copy bandwidth, plain array operations and the CPU.

python studies/benchmarks/gpu.py [--rows 2000000] [--columns 2000] [--repeats 20] [--tune] [--out FILE.json]

Needs PyTorch with CUDA, and Triton for the fused kernels. ``--tune`` also times the fused kernel cut in other ways.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from array_api_compat import array_namespace

from dpem.engines import fused
from dpem.engines.array_api import ArrayEngine
from dpem.paper import DPSymmetricMixture
from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.models.base import Clip
from dpem.query import BLOCK, Chunk, Query
from dpem.sources import ArraySource
from dpem.sources.device import DeviceSource

SIGMA, SPARSITY = 0.5, 10
CLIP = Clip(entry=1.0, residual=1.0)


def on_the_clock(run: Callable[[], object], repeats: int) -> float:
    """Median seconds of a call on the host's clock, from an idle device to an idle device."""
    seconds = []
    for _ in range(repeats + 3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[3:])


def on_the_device(run: Callable[[], object], repeats: int) -> float:
    """Median seconds between two events on the device: the kernels, without the host."""
    seconds = []
    for _ in range(repeats + 3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3)
    return statistics.median(seconds[3:])


def copy_bandwidth(X: Any, repeats: int) -> float:
    """Bytes read and written per second when the table is copied on the device."""
    target = torch.empty_like(X)
    return 2 * X.nbytes / on_the_device(lambda: target.copy_(X), repeats)


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


def questions(beta: np.ndarray) -> dict[str, Query]:
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
    }


def plain(query: Query, X: Any, y: Any) -> np.ndarray:
    """The sum by plain array operations."""
    engine, chunk = ArrayEngine(array_namespace(X)), Chunk(X, y)
    ask = engine.exceedance if "count" in query.label else engine.coordinate
    return ask(query, chunk)  # type: ignore[arg-type]


def agreement(query: Query, X: Any, y: Any) -> tuple[float, bool]:
    """The largest difference from the CPU's float64 sum over the same rows, as a part of the largest total, and
    whether it is within the float32 bound.
    """
    total = DeviceSource(X, y).total(query)
    exact = ArraySource(X.cpu().numpy().astype(float), y.cpu().numpy()).total(query)
    gap = float(np.max(np.abs(total - exact)))
    u = float(np.finfo(np.float32).eps) / 2 if query.blocked else float(np.finfo(np.float64).eps)
    allowed = (BLOCK + 23) * u * X.shape[0] * query.bound.size_linf
    return gap / float(np.max(np.abs(exact))), gap <= allowed


def tune(X: Any, beta: np.ndarray, copy: float, repeats: int) -> list[dict[str, Any]]:
    """The fused kernel cut in other ways, fastest first; the six fastest also for the other two modes."""
    n = X.shape[0]
    a, c = torch.randn(n, device="cuda").tanh(), torch.randn(n, device="cuda").tanh()
    b = torch.as_tensor(beta, dtype=X.dtype, device="cuda")
    level = torch.tensor([0.0, 0.5, 2.0], device="cuda")
    calls = {
        "gradient": lambda tile: fused._accumulate(fused.GRADIENT, X, a, None, None, level[2:], tile),
        "missing": lambda tile: fused._accumulate(fused.MISSING, X, a, c, b, level[2:], tile),
        "screening": lambda tile: fused._accumulate(fused.EXCEEDANCE, X, a, None, None, level, tile),
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
    parser.add_argument("--cpu-rows", type=int, default=200_000, help="rows of the comparison with the CPU")
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
        figures["rows"].append({"question": name, "how": how, "ms": seconds * 1e3, "ratio to copy": ratio})
        print(
            f"{name:<40} {how:<22} {seconds * 1e3:9.2f} ms  {X.nbytes / seconds / 1e9:7.0f} GB/s  {ratio:6.1%} of copy"
        )

    a = torch.randn(options.rows, device="cuda")
    line("a @ X", "library", on_the_device(lambda: a @ X, repeats))
    asked = questions(beta)
    for name, query in asked.items():
        line(name, "as a fit asks it", on_the_clock(lambda: source.total(query), repeats))  # noqa: B023
        if query.blocked:
            line(name, "plain operations", on_the_clock(lambda: plain(query, X, y), 3))  # noqa: B023
    engine = fused.FusedEngine(array_namespace(X))
    gradient: Any = asked["gaussian mixture, all columns"]
    line("of which: weights", "device only", on_the_device(lambda: engine._clamped_weights(gradient, X, y), repeats))
    weights, _ = engine._clamped_weights(gradient, X, y)
    level = torch.ones(1, device="cuda")
    run = lambda: fused._accumulate(fused.GRADIENT, X, weights, None, None, level, fused.TILE)  # noqa: E731
    line("of which: sums", "device only", on_the_device(run, repeats))

    m = min(options.cpu_rows, options.rows)
    print(f"\nfirst {m:,} rows against the CPU")
    on_host = ArraySource(X[:m].cpu().numpy(), y[:m].cpu().numpy())
    figures["cpu"] = []
    for name, query in asked.items():
        gap, within = agreement(query, X[:m], y[:m])
        cpu = on_the_clock(lambda: on_host.total(query), 3)  # noqa: B023
        per_row = next(r["ms"] for r in figures["rows"] if r["question"] == name) / options.rows * m
        figures["cpu"].append({"question": name, "difference": gap, "within bound": within, "ms": cpu * 1e3})
        print(f"{name:<40} {cpu * 1e3:8.1f} ms, {cpu * 1e3 / per_row:6.0f} times the device's; ", end="")
        print(f"difference {gap:.1e}, {'within' if within else 'NOT WITHIN'} its bound")

    if options.tune:
        print("\nother cuts of the fused kernel")
        figures["tiles"] = tune(X, beta, copy, max(5, repeats // 2))
    write(figures, options.out)

    print("\na whole fit")
    model = DPSymmetricMixture(epsilon=1.0, delta=1e-8, sparsity=SPARSITY, sigma=SIGMA, random_state=0)
    for _ in range(2):  # the second time nothing is compiled
        start = time.perf_counter()
        model.fit(X)
        seconds = time.perf_counter() - start
    error = min(float(np.linalg.norm(model.coef_ - beta)), float(np.linalg.norm(model.coef_ + beta)))
    print(
        f"{type(model).__name__}.fit at epsilon = 1: {seconds:.2f} s, distance from the true coefficients {error:.4f}"
    )
    figures["fit"] = {"seconds": seconds, "error": error}
    write(figures, options.out)


def write(figures: dict[str, Any], path: str | None) -> None:
    if path:
        with open(path, "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
