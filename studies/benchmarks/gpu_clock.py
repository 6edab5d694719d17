"""Clocks for a GPU, and the floor that its benchmarks are held against."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch


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


def write(figures: dict[str, Any], path: str | None) -> None:
    if path:
        with open(path, "w") as file:
            json.dump(figures, file, indent=1)
