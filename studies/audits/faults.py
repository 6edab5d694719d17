"""Fault injection for ledgers: kill -9, races, full disks, lost servers, wrong clocks, no memory, killed workers.

    python -m studies.audits.faults [--kills 300] [--racers 200] [--quick] [--out results/audit_faults.json]

Every campaign runs fits against a ledger while a fault occurs, and then checks the ledger
(:mod:`studies.audits.faults_ledger` states the invariants). Campaigns use SQLite files and, if its programs are
installed, a PostgreSQL server. Counts are printed and written, and the exit status is 1 if an invariant failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from studies.audits import faults_cluster, faults_process, faults_server, faults_threads
from studies.audits.faults_apart import Apart
from studies.audits.faults_ledger import Findings
from studies.audits.postgres import Server, serving, why_not

SQLITE, POSTGRESQL = "SQLite", "PostgreSQL"

Tick = Callable[[int], object]


@dataclass(frozen=True)
class Sizes:
    """The numbers of faults and of racing fits."""

    kills: int = 300
    processes: int = 8
    threads: int = 25
    quick: bool = False

    def of(self, short: int, long: int) -> int:
        return short if self.quick else long

    @property
    def racers(self) -> int:
        return self.processes * self.threads

    @property
    def fitting(self) -> list[int]:
        """The numbers of racers that the budget admits, one race each."""
        return [self.racers // 5] if self.quick else [1, self.racers // 5, self.racers - 1]


@dataclass
class Result:
    """The counts and failures of a campaign on one database."""

    campaign: str
    place: str
    seconds: float
    counts: dict[str, int]
    broken: list[str]


class Site:
    """Makes new ledgers: in a folder, and on a server if there is one."""

    def __init__(self, folder: Path, server: Server | None, apart: Apart) -> None:
        self._folder, self.server, self.apart, self._made = folder, server, apart, 0

    def folder(self) -> Path:
        self._made += 1
        made = self._folder / f"{self._made}"
        made.mkdir()
        return made

    def url(self, place: str) -> str:
        """The URL of a new ledger."""
        if place == SQLITE:
            return f"sqlite:///{self.folder()}/budget.db"
        assert self.server is not None
        return self.server.fresh_schema()

    def crowded(self) -> str:
        """The URL of a new ledger on a server that admits 20 sessions."""
        assert self.server is not None
        self.server.execute("CREATE ROLE crowd LOGIN CONNECTION LIMIT 20")
        return self.server.url(self.server.fresh("OWNER crowd"), user="crowd")


@contextmanager
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dpem-faults-")))
        folder.chmod(0o755)  # a campaign reads as another user
        server = None if why_not() else stack.enter_context(serving())
        yield Site(folder, server, stack.enter_context(Apart()))


def kills(at: Site, place: str, sizes: Sizes, tick: Tick) -> Findings:
    return at.apart.run(tick, "kills", at.url(place), sizes.kills, 0)


def race(at: Site, place: str, sizes: Sizes, tick: Tick) -> Findings:
    found = Findings()
    for fits in sizes.fitting:
        one = at.apart.run(tick, "race", at.url(place), sizes.processes, sizes.threads, fits)
        found.add(one.counts, one.broken)
        found.counts["fits that the totals admit"] += fits
        tick(1)
    if place == POSTGRESQL and not sizes.quick:
        few = at.apart.run(tick, "race", at.crowded(), sizes.processes, sizes.threads, sizes.racers // 5, "crowded")
        found.add({f"few connections: {what}": count for what, count in few.counts.items()}, few.broken)
    return found


def disk(at: Site, place: str, sizes: Sizes, tick: Tick) -> Findings:
    where = "sqlite" if place == SQLITE or at.server is None else at.server.url("postgres")
    return at.apart.run(tick, "disk", at.folder(), "quick" if sizes.quick else "long", where)


def connection(at: Site, place: str, sizes: Sizes, tick: Tick) -> Findings:
    assert at.server is not None
    return faults_server.campaign(at.server, sizes.quick, tick)


def clock(at: Site, place: str, sizes: Sizes, tick: Tick) -> Findings:
    return faults_process.clock_set_back(at.url(place), sizes.of(20, 200), tick)


def memory(at: Site, place: str, sizes: Sizes, tick: Tick) -> Findings:
    url = at.url(place)
    found = faults_process.out_of_memory(url, sizes.of(2, 20), tick)
    real = at.apart.run(tick, "memory", url)
    found.add(real.counts, real.broken)
    if place == SQLITE and not sizes.quick:
        threads = faults_threads.campaign()
        found.add(threads.counts, threads.broken)
    return found


def workers(at: Site, place: str, sizes: Sizes, tick: Tick) -> Findings:
    return faults_cluster.campaign(at.url(place), sizes.of(1, 5), tick)


BOTH = (SQLITE, POSTGRESQL)
CAMPAIGNS: dict[str, tuple[Callable[[Site, str, Sizes, Tick], Findings], tuple[str, ...]]] = {
    "kill -9": (kills, BOTH),
    "race for the last": (race, BOTH),
    "disk full, read-only": (disk, BOTH),
    "connection dropped": (connection, (POSTGRESQL,)),
    "clock set back": (clock, BOTH),
    "out of memory": (memory, BOTH),
    "Dask worker killed": (workers, BOTH),
}


def run(at: Site, name: str, place: str, sizes: Sizes, tick: Tick = lambda _: None) -> Result:
    """One campaign on one database."""
    started = time.perf_counter()
    found = CAMPAIGNS[name][0](at, place, sizes, tick)
    broken = list(dict.fromkeys(found.broken))
    return Result(name, place, round(time.perf_counter() - started, 1), dict(sorted(found.counts.items())), broken)


def show(result: Result) -> None:
    held = "held" if not result.broken else "BROKEN"
    print(f"{result.campaign:<22}{result.place:<12}{result.seconds:>6.0f} s  {held}")
    for what, count in result.counts.items():
        print(f"    {count:>6,}  {what}")
    for sentence in result.broken:
        print(f"    broken: {sentence}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=300, help="processes killed, in each database")
    parser.add_argument("--racers", type=int, default=200, help="fits that race at once; a multiple of 8")
    parser.add_argument("--quick", action="store_true", help="a few of each, in under a minute")
    parser.add_argument("--out", type=Path, default=Path("results/audit_faults.json"), help="where counts are written")
    options = parser.parse_args()
    if options.kills < 1 or options.racers < 8 or options.racers % 8:
        parser.error("--kills must be positive and --racers a positive multiple of 8.")
    sizes = Sizes(options.kills, 8, options.racers // 8)
    if options.quick:
        sizes = Sizes(20, 4, 6, quick=True)
    results = []
    with site() as at, tqdm(unit=" steps", disable=not sys.stderr.isatty(), leave=False) as bar:
        if at.server is None:
            print(f"SQLite only: {why_not()}")
        for name, (_, places) in CAMPAIGNS.items():
            for place in places:
                if place == POSTGRESQL and at.server is None:
                    continue
                bar.set_description(f"{name}, {place}")
                results.append(run(at, name, place, sizes, bar.update))
                with tqdm.external_write_mode():
                    show(results[-1])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    broken = sum(bool(result.broken) for result in results)
    print(f"{len(results) - broken} of {len(results)} campaigns held; {options.out}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
