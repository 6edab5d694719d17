"""A Parquet table out of core: one query and a whole fit against Arrow reading and decoding the same file.

python -m studies.benchmarks.parquet [--gigabytes 1] [--columns 1000] [--group-rows 65536] [--repeats 5]

Arrow alone is the faster of two ways to read and decode everything, in order, and drop it: the dataset scanner as it
comes, and the file's row groups one after the other. They and one query take turns, in this process and with the
file in the page cache (it is read once before; ``--cold`` drops it from the cache before every turn instead). The fit
runs in a process of its own, whose largest resident memory is reported; its time is compared with Arrow's for as many
passes as it made, some of which need few columns. Processor seconds are printed beside the clock's: they say what a
busy machine hides.

Random floats do not compress: the file is written uncompressed without dictionaries (``--encoding plain``, the harder
case: decoding is little more than copying) or as ``pyarrow.parquet.write_table`` does by default, with Snappy and
dictionaries (``--encoding default``).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from dpem.paper import DPSymmetricMixture
from dpem.paper.models import SymmetricMixture
from dpem.paper.queries import Clip
from dpem.query import Chunk
from dpem.tables import DatasetSource

ENCODINGS = {"plain": {"compression": "none", "use_dictionary": False}, "default": {}}
SPARSITY, SIGMA = 10, 0.5


def write(path: Path, n: int, d: int, group: int, encoding: str) -> None:
    """Rows of a Gaussian mixture, a row group at a time."""
    rng = np.random.default_rng(0)
    beta = np.zeros((d, 1), dtype=np.float32)
    beta[:SPARSITY] = SPARSITY**-0.5
    schema = pa.schema([(f"x{j}", pa.float32()) for j in range(d)])
    with pq.ParquetWriter(path, schema, **ENCODINGS[encoding]) as writer:
        for first in range(0, n, group):
            m = min(group, n - first)
            block = SIGMA * rng.standard_normal((d, m), dtype=np.float32)
            block += beta * rng.choice(np.array([-1, 1], dtype=np.float32), size=m)
            writer.write_table(pa.table([pa.array(column) for column in block], schema=schema), row_group_size=group)


def by_scanner(path: Path) -> None:
    for _ in ds.dataset(path).scanner(batch_size=65_536).to_batches():
        pass


def by_row_group(path: Path) -> None:
    file = pq.ParquetFile(path)
    for group in range(file.num_row_groups):
        file.read_row_group(group)


def drop_from_cache(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock and by all threads together."""
    start, busy = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - start, time.process_time() - busy


def peak_mebibytes() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise OSError("the largest resident memory is not known on this system.")


class Counted(DatasetSource):
    """Counts how often the table is gone through."""

    passes = 0

    def chunks(self) -> Iterator[Chunk]:
        Counted.passes += 1
        return super().chunks()


def fit(path: Path) -> dict[str, float]:
    """One default fit from the file; runs in a process of its own."""
    source = Counted(path)
    model = DPSymmetricMixture(epsilon=1.0, delta=0.1 / source.n_rows, sparsity=SPARSITY, sigma=SIGMA)
    model._plan(source.n_rows, source.n_features, 1.0, 0.1 / source.n_rows, SIGMA)  # rehearsed once, kept for the fit
    seconds, _ = timed(lambda: model.fit(source))
    truth = np.r_[np.full(SPARSITY, SPARSITY**-0.5), np.zeros(source.n_features - SPARSITY)]
    error = min(np.linalg.norm(model.coef_ - truth), np.linalg.norm(model.coef_ + truth))
    return {"fit_s": seconds, "passes": Counted.passes, "fit_peak_mib": peak_mebibytes(), "error": float(error)}


def measure(path: Path, repeats: int, cold: bool) -> dict[str, float]:
    source = DatasetSource(path)
    beta = np.zeros(source.n_features)
    beta[:SPARSITY] = SPARSITY**-0.5
    query = SymmetricMixture(SIGMA).gradient(beta, Clip(1.0))
    work: dict[str, Callable[[], object]] = {
        "scanner": lambda: by_scanner(path),
        "row groups": lambda: by_row_group(path),
        "query": lambda: source.total(query),
    }
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    for _ in range(repeats + 1):
        for name, run in work.items():
            if cold:
                drop_from_cache(path)
            turns[name].append(timed(run))
    best = {name: np.min(seconds[1:], axis=0) for name, seconds in turns.items()}  # the first turn warms and compiles
    arrow, ours = np.minimum(best["scanner"], best["row groups"]), best["query"]
    child = subprocess.run([sys.executable, __file__, "--fit", str(path)], capture_output=True, text=True, check=True)
    numbers = {"arrow_s": arrow[0], "arrow_cpu_s": arrow[1], "query_s": ours[0], "query_cpu_s": ours[1]}
    numbers |= json.loads(child.stdout)
    numbers["query_speed"] = arrow[0] / ours[0]
    numbers["query_cpu_speed"] = arrow[1] / ours[1]
    numbers["fit_speed"] = numbers["passes"] * arrow[0] / numbers["fit_s"]
    return {name: float(value) for name, value in numbers.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.0, help="decoded size of the table")
    parser.add_argument("--columns", type=int, default=1_000)
    parser.add_argument("--group-rows", type=int, default=65_536)
    parser.add_argument("--encoding", choices=sorted(ENCODINGS), default="plain")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cold", action="store_true", help="drop the file from the page cache before every turn")
    parser.add_argument("--folder", type=Path, help="where the table is written, and removed again")
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    parser.add_argument("--fit", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit is not None:
        print(json.dumps(fit(options.fit)))
        return

    n = int(options.gigabytes * 1e9 / (4 * options.columns))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "table.parquet"
        write(path, n, options.columns, options.group_rows, options.encoding)
        file_gb = path.stat().st_size / 1e9
        numbers = measure(path, options.repeats, options.cold)
    gigabytes = n * options.columns * 4 / 1e9
    cache = "dropped before each turn" if options.cold else "warm"
    print(
        f"{n:,} x {options.columns:,} float32, {gigabytes:.2f} GB decoded, {file_gb:.2f} GB in the file "
        f"({options.encoding}, row groups of {options.group_rows:,}), page cache {cache}, best of {options.repeats}"
    )
    for name, label in {"arrow": "Arrow alone", "query": "one query"}.items():
        seconds, busy = numbers[f"{name}_s"], numbers[f"{name}_cpu_s"]
        print(f"{label:<14} {seconds:7.2f} s  {gigabytes / seconds:5.2f} GB/s  {busy:7.2f} processor seconds")
    speed, cpu_speed = numbers["query_speed"], numbers["query_cpu_speed"]
    print(f"one query has {speed:.2f} of the speed of Arrow alone by the clock, {cpu_speed:.2f} by processor seconds")
    passes, fit_speed = numbers["passes"], numbers["fit_speed"]
    print(
        f"a whole fit    {numbers['fit_s']:7.2f} s for {passes:.0f} passes: {fit_speed:.2f} of the speed of Arrow alone"
    )
    print(f"largest resident memory of the fit {numbers['fit_peak_mib']:.0f} MiB; error {numbers['error']:.3f}")
    if options.out is not None:
        options.out.write_text(
            json.dumps({"gigabytes": gigabytes, "file_gb": file_gb, "cache": cache, **numbers}, indent=1)
        )


if __name__ == "__main__":
    main()
