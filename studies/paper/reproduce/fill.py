"""Write figures and sentences about the results into pages of documentation.

    python -m studies.paper.reproduce.fill docs/reproduce.md

Between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` a page gets the picture of experiment NAME and its first
verdict, computed from results/NAME.csv.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from studies.paper.reproduce import EXPERIMENTS
from studies.paper.reproduce.store import Results
from studies.paper.reproduce.verdict import command

MARKED = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def filled(text: str, results: Path, page: Path) -> str:
    """The page's text with every marked part written from the summaries in ``results``."""
    return MARKED.sub(lambda found: f"{found[1]}{part(found[2], results, page)}\n{found[3]}", text)


def part(name: str, results: Path, page: Path) -> str:
    """The part of the page about one experiment."""
    experiment = EXPERIMENTS[name]
    path = results / f"{name}.csv"
    if not path.exists():
        raise ValueError(f"{path} does not exist; run '{command(name, '50')}' first.")
    found = Results.read(path)
    verdict = experiment.judge(found)
    beside = Path(os.path.relpath(results, page.parent)).as_posix()
    reps = found.reps(experiment.settings)
    source = f"`{command(name, reps)}`: `results/{name}.md`, [CSV]({beside}/{name}.csv)."
    picture = f"![{experiment.title}]({beside}/{name}.png)"
    return "\n" + "\n\n".join([verdict.sentences[0], source, picture]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--results", type=Path, default=Path("results"))
    options = parser.parse_args()
    for page in options.pages:
        page.write_text(filled(page.read_text(encoding="utf-8"), options.results, page), encoding="utf-8")


if __name__ == "__main__":
    main()
