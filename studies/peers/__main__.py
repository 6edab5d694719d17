"""Run the comparison: a line of the CSV for each problem and method."""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from studies.paper.peers import runner
from studies.peers import __doc__ as about
from studies.peers import judge, page, reference
from studies.peers.tables import FIRST_SEED, PROBLEMS, Problem

DIFFPRIVLIB = ("diffprivlib==0.6.6", "scikit-learn==1.5.2", "numpy==2.4.6", "scipy==1.17.1")
PEERS = {
    "diffprivlib": runner.Peer("diffprivlib", "peer_diffprivlib.py", DIFFPRIVLIB),
    "dp-sgd": runner.OPACUS._replace(script="peer_dpsgd.py"),
    "opendp": runner.Peer(
        "opendp", "peer_opendp.py", ("opendp==0.16.0", "numpy==2.4.6", "scikit-learn==1.7.2", "scipy==1.17.1")
    ),
    "clustering": runner.Peer(
        "clustering",
        "peer_clustering.py",
        (*DIFFPRIVLIB, "dp-accounting==0.6.0", "absl-py==2.5.1", "fast-histogram==0.14"),
        (
            ("https://github.com/google/differential-privacy", "b5b0286e313b64a692abfc8c528d54ef47d960a0"),
            ("https://github.com/UzL-PrivSec/dp-mondrian-clustering", "ad44c01f7b8dfc126fbe73fcc53f9bb951912dee"),
        ),
    ),
    "synthetic": runner.Peer(
        "synthetic",
        "peer_synthetic.py",
        ("smartnoise-synth==1.0.8", "mbi==1.1.0", "torch==2.13.0", "stepmix==3.0.0", "numpy==2.4.6", "scipy==1.17.1"),
    ),
}
METHODS = (*reference.METHODS, "moments", "objective", *PEERS)


def outcomes(problem: Problem, method: str, reps: int, envs: Path) -> dict[str, reference.Outcome]:
    """The outcomes of a method, or of all methods of a peer's script, on a problem; empty if there is none."""
    if method in reference.METHODS:
        useless = method == "simple" and problem.measure != "log-likelihood"
        return {} if useless else {reference.METHODS[method][0]: reference.run(problem, method, reps)}
    with tempfile.TemporaryDirectory() as name:
        job = problem.job(reps, Path(name))
        if method == "objective":
            logistic = problem.model == "logistic"
            answers = {"objective perturbation": reference.run_objective(job)} if logistic else {}
        elif method == "moments":
            answers = {"noisy moments (AdaSSP)": reference.run_moments(job)} if problem.model == "regression" else {}
        else:
            peer = PEERS[method]
            python = runner.environment(peer, envs)
            answers = runner.run(python, Path(__file__).with_name(peer.script), job, Path(name))["methods"]
    return {name: judged(problem, job, answer) for name, answer in answers.items()}


def judged(problem: Problem, job: dict[str, Any], answer: dict[str, Any]) -> reference.Outcome:
    """The scores of a peer's answers on held-out rows."""
    scores = []
    for seed, found in enumerate(answer["answers"], start=FIRST_SEED):
        split = problem.draw(seed)
        scores.append(judge.score(job, found, {"X_new": split.X_new, "y_new": split.y_new}))
    names = ("seconds", "guarantee", "settings", "tuning_seconds")
    return reference.Outcome(scores, *(answer[name] for name in names))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m studies.peers", description=(about or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(p.key for p in PROBLEMS), help="problems, by key")
    parser.add_argument("--methods", default=",".join(METHODS), help="methods, by name")
    parser.add_argument("--reps", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/peers_real.csv"))
    parser.add_argument("--envs", type=Path, default=Path("build/peers"), help="folder of the peers' environments")
    given = parser.parse_args(arguments)
    for names, known in ((given.only, [p.key for p in PROBLEMS]), (given.methods, METHODS)):
        if unknown := set(names.split(",")) - set(known):
            parser.error(f"{', '.join(sorted(unknown))} is not among {', '.join(known)}")
    warnings.simplefilter("ignore")
    problems = {p.key: p for p in PROBLEMS}
    for key in given.only.split(","):
        for method in given.methods.split(","):
            try:
                found = outcomes(problems[key], method, given.reps, given.envs)
            except RuntimeError as error:  # the other peers still run
                print(f"{key}: {method}: {error}", file=sys.stderr, flush=True)
                continue
            for name, outcome in found.items():
                row = page.row(problems[key], name, outcome)
                print(" | ".join(row[field] for field in page.SHOWN), flush=True)
                page.merge(row, given.out)


if __name__ == "__main__":
    main()
