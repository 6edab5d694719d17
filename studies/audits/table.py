"""Which catchers notice each planted bug: `python -m studies.audits.table --out results` writes the table of the docs.

It exits with 1 if a catcher complains about the correct library, or if nothing catches a bug.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import sys
import time
import warnings
from pathlib import Path

from tqdm import tqdm

from studies.audits.catchers import QUICK, Catcher, black_box, caught_by, failing_test
from studies.audits.planted import BUGS
from studies.csv_files import write_rows

NO_BUG, TESTS = "(none)", "tests of the parts"
CATCHERS = {**QUICK, "black-box audit": black_box}


def quick_row(bug: str) -> dict[str, str]:
    """The complaints of the quick catchers with the bug planted; an empty string if they are silent."""
    return _complaints(bug, QUICK)


def row(bug: str) -> dict[str, str]:
    """The complaints of all catchers with the bug planted, and the first of the tests that fails."""
    return _complaints(bug, CATCHERS) | {TESTS: failing_test(None if bug == NO_BUG else bug) or ""}


def _complaints(bug: str, catchers: dict[str, Catcher]) -> dict[str, str]:
    warnings.simplefilter("ignore")
    with contextlib.nullcontext() if bug == NO_BUG else BUGS[bug]():
        return {"bug": bug} | {name: caught_by(catcher) or "" for name, catcher in catchers.items()}


def faults(rows: list[dict[str, str]]) -> list[str]:
    """False alarms, and bugs that nothing catches."""
    faults = []
    for line in rows:
        complaints = [value for name, value in line.items() if name != "bug" and value]
        if line["bug"] == NO_BUG and complaints:
            faults.append(f"false alarm on the library as it is: {complaints[0]}")
        if line["bug"] != NO_BUG and not complaints:
            faults.append(f"nothing caught: {line['bug']}")
    return faults


def page(rows: list[dict[str, str]]) -> str:
    """The table in Markdown: what caught each bug, and the first test that failed."""
    names = [name for name in rows[0] if name != "bug"]
    lines = [f"| planted bug | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for line in rows:
        marks = [("caught" if line[name] else "–") for name in names if name != TESTS]
        if test := line.get(TESTS):
            marks.append(f"`{test.split('[')[0].removeprefix('tests/')}`")
        marks += ["–"] * (len(names) - len(marks))
        lines.append(f"| {line['bug']} | {' | '.join(marks)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="without the black-box audit and the tests of the parts")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)  # before the long work
    start = time.monotonic()
    names = [NO_BUG, *BUGS]
    os.environ["NUMBA_NUM_THREADS"] = "1"  # the tables are tiny
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        done = pool.imap_unordered(quick_row if options.quick else row, names)
        unsorted = list(tqdm(done, total=len(names), unit=" bugs", disable=not sys.stderr.isatty()))
    rows = sorted(unsorted, key=lambda line: names.index(line["bug"]))
    write_rows(options.out / "audit_bugs.csv", rows)
    text = page(rows)
    (options.out / "audit_bugs.md").write_text(text, encoding="utf-8")
    print(text)
    wrong = faults(rows)
    print(*wrong, sep="\n")
    print(f"{len(BUGS)} bugs planted, {len(BUGS) - len(wrong)} caught, {time.monotonic() - start:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
