"""One query on one Dask worker and on two, as a ratio measured in one run, and what the network carried for it.

python -m studies.benchmarks.dask_workers [--blocks 16] [--rows 60000] [--columns 500] [--repeats 7]

Workers are processes of one thread each. Both clusters are alive throughout and answer in turns, so that a slow spell
of the machine hits both. The table is persisted: rows are in the workers' memory before the first query. With
``--blocks 200 --rows 64`` there is next to nothing to add, and what is printed is what Dask itself takes.
"""

from __future__ import annotations

import argparse
import time

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, Worker, wait

from dpem.paper.models import SymmetricMixture
from dpem.paper.queries import Clip
from dpem.query import Query
from dpem.tables.dask import DaskSource


def held_by(client: Client, blocks: int, rows: int, columns: int) -> DaskSource:
    """A table in the workers' memory."""
    with client.as_current():
        rng = da.random.default_rng(0)
        table = rng.standard_normal((blocks * rows, columns), chunks=(rows, columns), dtype=np.float32).persist()
        wait(table)
        return DaskSource(table)


def seconds_of(client: Client, source: DaskSource, query: Query) -> float:
    """Seconds that one query takes."""
    with client.as_current():
        start = time.perf_counter()
        source.total(query)
        return time.perf_counter() - start


def sent(dask_worker: Worker) -> int:
    """Bytes that a worker has sent to other workers so far."""
    return int(dask_worker.transfer_outgoing_bytes_total)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--blocks", type=int, default=16)
    parser.add_argument("--rows", type=int, default=60_000, help="of a block")
    parser.add_argument("--columns", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    query = SymmetricMixture(0.5).gradient(np.full(options.columns, 0.05), Clip(entry=1.0))

    settings = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with (
        LocalCluster(n_workers=1, **settings) as lone,
        LocalCluster(n_workers=2, **settings) as pair,
        Client(lone, set_as_default=False) as one,
        Client(pair, set_as_default=False) as two,
    ):
        clients = {"one worker": one, "two workers": two}
        sources = {
            name: held_by(client, options.blocks, options.rows, options.columns) for name, client in clients.items()
        }
        for name, client in clients.items():
            seconds_of(client, sources[name], query)  # compile
        best = dict.fromkeys(clients, float("inf"))
        before, busy = sum(two.run(sent).values()), time.process_time()
        for _ in range(options.repeats):
            for name, client in clients.items():
                best[name] = min(best[name], seconds_of(client, sources[name], query))
        busy = (time.process_time() - busy) / options.repeats / 2
        carried = (sum(two.run(sent).values()) - before) / options.repeats

    print(f"{options.blocks} blocks of {options.rows:,} x {options.columns:,} float32, best of {options.repeats}")
    for name, seconds in best.items():
        print(f"{name:<12} {seconds * 1e3:8.1f} ms")
    print(f"ratio        {best['one worker'] / best['two workers']:8.2f}")
    each = busy / options.blocks * 1e3
    print(f"client and scheduler, per query: {busy:.3f} processor seconds, {each:.2f} ms a block")
    numbers = carried / 8 / options.columns / options.blocks
    print(f"between workers, per query: {carried:,.0f} bytes, {numbers:.2f} x d numbers per block")


if __name__ == "__main__":
    main()
