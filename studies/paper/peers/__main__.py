"""Run the comparison: tables, own methods, peers, CSV and page."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from dpem._version import __version__
from studies.csv_files import write_rows
from studies.paper.peers import __doc__ as about
from studies.paper.peers import own, runner, table
from studies.paper.peers.data import PROBLEMS, Problem, write


def compare(problem: Problem, reps: int, envs: Path) -> tuple[list[dict[str, str]], dict[str, str]]:
    """The rows of one problem, and the versions of the peer's packages."""
    tables = [problem.table(rep) for rep in range(reps)]
    rows = [table.row(problem, own.run(problem, method, tables)) for method in own.methods(problem)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = write(problem, reps, folder)
        script = Path(__file__).with_name(runner.OPACUS.script)
        answer = runner.run(runner.environment(runner.OPACUS, envs), script, job, folder)
    rows += [table.row(problem, table.from_peer(*item)) for item in answer["methods"].items()]
    return rows, answer["versions"]


def main(arguments: list[str] | None = None, problems: tuple[Problem, ...] = PROBLEMS) -> None:
    parser = argparse.ArgumentParser(prog="python -m studies.paper.peers", description=(about or "").splitlines()[0])
    parser.add_argument("--reps", type=int, default=10, help="tables per problem")
    parser.add_argument("--out", type=Path, default=None, help="write the table as CSV here, and as .md beside it")
    parser.add_argument("--envs", type=Path, default=Path("build/peers"), help="folder of the peers' environments")
    options = parser.parse_args(arguments)
    if options.reps < 1:
        parser.error(f"--reps must be at least 1, got {options.reps}")
    if options.out is not None and not options.out.parent.is_dir():
        parser.error(f"the folder of --out does not exist: {options.out.parent}")

    command = f"python -m studies.paper.peers --reps {options.reps} --out {options.out}"
    rows: list[dict[str, str]] = []
    versions = {"dpem": __version__, "numpy": np.__version__, "python": sys.version.split()[0]}
    for problem in problems:
        found, used = compare(problem, options.reps, options.envs)
        versions |= used
        rows += found
        for r in found:
            print(f"{r['problem']:<17} {r['method']:<36} {r['error']:>9} ({r['sd']}) {r['seconds']:>8} s", flush=True)
        if options.out is not None:
            write_rows(options.out, rows)
            options.out.with_suffix(".md").write_text(table.page(rows, versions, command), encoding="utf-8")


if __name__ == "__main__":
    main()
