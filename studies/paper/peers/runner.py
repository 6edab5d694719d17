"""Environments of the libraries that are compared, and a function that runs a peer's script in one.

Each peer has its own pinned versions: diffprivlib 0.6.6 cannot be imported with the scikit-learn of this package.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

#: One thread, since CPU seconds are compared. Scripts may import modules of ``studies`` that need NumPy only.
AROUND = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
AROUND["PYTHONPATH"] = str(Path(__file__).parents[3])


class Peer(NamedTuple):
    """A script in the folder of the comparison, and the packages that it needs."""

    name: str
    script: str
    requirements: tuple[str, ...]
    #: Repositories that are not packages, each with a commit, which are cloned.
    sources: tuple[tuple[str, str], ...] = ()


#: torch from a plain package index brings CUDA libraries of several GB, which are not used; where pip knows an
#: index with CPU builds (PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS), the same pin installs one of those.
OPACUS = Peer("opacus", "peer_opacus.py", ("opacus==1.6.0", "torch==2.13.0", "numpy==2.4.6", "scipy==1.17.1"))


def environment(peer: Peer, folder: Path) -> Path:
    """The Python of the peer's environment below ``folder``, which is made if it is not there with these versions."""
    home = folder / peer.name
    python, stamp = home / "bin" / "python", home / "requirements.txt"
    wanted = "\n".join((*peer.requirements, *(f"# {address} {commit}" for address, commit in peer.sources))) + "\n"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    _call([sys.executable, "-m", "venv", "--clear", str(home)], f"making the environment of {peer.name}")
    _call(
        [str(python), "-m", "pip", "install", "--quiet", *peer.requirements],
        f"installing {', '.join(peer.requirements)}",
    )
    for address, commit in peer.sources:
        place = home / "source" / address.rsplit("/", 1)[1]
        _call(["git", "clone", "--quiet", address, str(place)], f"cloning {address}")
        _call(["git", "-C", str(place), "checkout", "--quiet", commit], f"taking {commit} of {address}")
    stamp.write_text(wanted)
    return python


def run(python: Path, script: Path, job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run a script on a job and return its answer. Both are files in ``folder``."""
    task, answer = folder / f"{script.stem}.job.json", folder / f"{script.stem}.out.json"
    task.write_text(json.dumps(job))
    _call([str(python), str(script), str(task), str(answer)], f"{script.name} on {job['problem']}")
    out: dict[str, Any] = json.loads(answer.read_text())
    return out


def _call(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | AROUND)
    if done.returncode:
        raise RuntimeError(
            f"{what} failed: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'no word'}"
        )
