"""python -m studies.paper.reproduce NAME ... [--reps N] [--quick] [--out DIR] [--workers N]"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from studies.paper.reproduce import EXPERIMENTS, draw, reproduce


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m studies.paper.reproduce", description="Every figure and table of the paper, with a verdict."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(EXPERIMENTS)} or all; listed if none")
    parser.add_argument("--reps", type=int, help="repetitions of each setting (50 if not given)")
    parser.add_argument("--quick", action="store_true", help="3 repetitions: minutes instead of half an hour")
    parser.add_argument("--out", type=Path, help="folder to write to (results; build/quick with --quick)")
    parser.add_argument("--draw", action="store_true", help="compute nothing: pictures and pages again from the CSVs")
    parser.add_argument("--workers", type=int, help="processes (one per core if not given)")
    options = parser.parse_args()
    if not options.names:
        print("\n".join(f"{name:<8} {experiment.title}" for name, experiment in EXPERIMENTS.items()))
        return 0
    try:
        if options.draw:
            draw(options.names, options.out or Path("results"))
            return 0
        reproduce(options.names, reps=options.reps, quick=options.quick, out=options.out, workers=options.workers)
    except ValueError as refusal:
        print(refusal, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command continues from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
