"""Whether the formula of docs/large-data.md holds: rates of a small Parquet table foretell what a large one takes.

python -m studies.benchmarks.scale --folder FOLDER [--gigabytes 16] [--columns 1000]

Both tables are folders of Parquet files, all copies of one, so that writing them is quick; before each query they
are dropped from the page cache. A wide query and a narrow one about ten columns are answered from each, by one process
and by a Dask cluster of two workers with one thread each. Processor seconds of everyone who reads are compared;
seconds by the clock stand beside them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

from dpem.paper.models import SymmetricMixture
from dpem.paper.queries import Clip
from dpem.query import Query
from dpem.tables import DatasetSource
from dpem.tables.dask import DaskSource
from studies.benchmarks.parquet import drop_from_cache

ROWS, GROUPS, SMALL = 32_768, 8, 1  # rows of a row group, row groups of a file, files of the small table


def written(folder: Path, files: int, columns: int) -> float:
    """A folder of Parquet files; how many gigabytes its rows take."""
    rng = np.random.default_rng(0)
    block = 0.5 * rng.standard_normal((columns, ROWS), dtype=np.float32)
    table = pa.table({f"x{j}": column for j, column in enumerate(block)})
    folder.mkdir()
    first = folder / "part-0000.parquet"
    with pq.ParquetWriter(first, table.schema, compression="none", use_dictionary=False) as writer:
        for _ in range(GROUPS):
            writer.write_table(table, row_group_size=ROWS)
    for file in range(1, files):
        shutil.copyfile(first, folder / f"part-{file:04d}.parquet")
    return files * GROUPS * block.nbytes / 1e9


def spent(run: Callable[[], object], others: Callable[[], float] = lambda: 0.0) -> tuple[float, float]:
    """Seconds by the clock, and processor seconds of this process and of others."""
    clock, busy = time.perf_counter(), time.process_time() + others()
    run()
    return time.perf_counter() - clock, time.process_time() + others() - busy


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the tables are written, and removed again")
    parser.add_argument("--gigabytes", type=float, default=16.0)
    parser.add_argument("--columns", type=int, default=1_000)
    options = parser.parse_args()
    files = max(SMALL + 1, round(options.gigabytes * 1e9 / (GROUPS * ROWS * options.columns * 4)))
    beta = np.zeros(options.columns)
    beta[np.linspace(0, options.columns - 1, 10).astype(int)] = 0.3
    model, support = SymmetricMixture(0.5), np.flatnonzero(beta)
    queries: dict[str, Query] = {
        "wide": model.gradient(beta, Clip(1.0)),
        "ten columns": model.on_support(beta, support, 1.0),
    }
    folders = {"small": options.folder / "small", "large": options.folder / "large"}
    try:
        size = {name: written(folders[name], n, options.columns) for name, n in (("small", SMALL), ("large", files))}
        print(
            f"{options.columns:,} columns of float32; small {size['small']:.2f} GB, large {size['large']:.2f} GB",
            flush=True,
        )
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):

            def workers() -> float:
                return float(sum(client.run(time.process_time).values()))

            for how, others in (("one process", lambda: 0.0), ("two Dask workers", workers)):
                rates = {}
                for name, folder in folders.items():
                    source = DatasetSource(folder) if how == "one process" else _cluster(folder)
                    for figure, query in queries.items():
                        if name == "small":
                            source.total(query)  # compiles
                        for file in folder.iterdir():
                            drop_from_cache(file)
                        clock, busy = spent(lambda: source.total(query), others)  # noqa: B023
                        if name == "small":
                            rates[figure] = busy / size[name]
                            continue
                        predicted = rates[figure] * size[name]
                        print(
                            f"{how}, {figure:<11}: {busy:7.2f} processor seconds, {predicted:7.2f} predicted "
                            f"({busy / predicted - 1:+.0%}); {clock:.1f} s by the clock, load {os.getloadavg()[0]:.0f}",
                            flush=True,
                        )
    finally:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)


def _cluster(folder: Path) -> DaskSource:
    return DaskSource(dd.read_parquet(folder, split_row_groups=True))


if __name__ == "__main__":
    main()
