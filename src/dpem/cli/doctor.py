"""``dpem doctor``: installed versions, and whether the ledger works."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import click

from dpem._version import __version__
from dpem.cli import options as shared
from dpem.cli.common import Exit, Refused, Session, aligned

#: Packages that every fit needs, and the extra that installs each of the others.
CORE = ("numpy", "scipy", "scikit-learn", "numba", "opendp", "jinja2")
EXTRAS = {
    "pyarrow": "files",
    "SQLAlchemy": "ledger",
    "psycopg": "postgresql",
    "tqdm": "cli",
    "dask": "dask",
    "pandas": "demo",
    "matplotlib": "reproduce",
    "torch": "a GPU (its own instructions)",
}


@click.command(params=[shared.ledger, shared.json])
@click.pass_obj
def doctor(session: Session, url: str | None) -> None:
    """Show the installed versions, the number of threads, and whether the ledger can be read. Nothing is spent.

    \b
    Examples:
      dpem doctor
      dpem doctor --ledger sqlite:///budget.db
    """
    versions = {name: _version(name) for name in (*CORE, *EXTRAS)}
    missing = [name for name in CORE if versions[name] is None]
    cores, threads = os.cpu_count(), None
    if not missing:
        import numba

        threads = int(numba.config.NUMBA_NUM_THREADS)
    status, detail = _ledger(url)
    facts = {"dpem": __version__, "python": platform.python_version(), "platform": platform.platform()}
    document = {**facts, "packages": versions, "cores": cores, "threads": threads, "ledger": [status, detail]}
    rows = [("dpem", __version__, ""), ("python", platform.python_version(), platform.platform())]
    for name, installed in versions.items():
        use = "" if installed else "needed by every fit" if name in CORE else f"for {EXTRAS[name]}"
        rows.append((name, installed or "not installed", use))
    rows += [("threads", str(threads or "unknown"), f"of {cores} cores"), ("ledger", status, detail)]
    session.result(document, aligned(("what", "found", "note"), rows, left=(0, 1, 2)))
    problems = [f"{name} is missing: install dpem again" for name in missing]
    if status == "failed":
        problems.append(f"the ledger failed: {detail.rstrip('.')}")
    if problems:
        raise Refused(Exit.FAILED, f"{'; '.join(problems)}.")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return "installed" if find_spec(name.replace("-", "_").lower()) else None


def _ledger(url: str | None) -> tuple[str, str]:
    """The status of the ledger in a word, and its details."""
    from dpem.privacy import Ledger, LedgerError

    if not url:
        return "none", "name it with --ledger or DPEM_LEDGER"
    try:
        ledger = Ledger(url)
        faults = [fault for verification in ledger.verify() for fault in verification.faults]
        count = len(ledger.names())
    except (LedgerError, ValueError, ModuleNotFoundError) as error:
        return "failed", str(error)
    if faults:
        return "failed", f"{ledger.where}: {faults[0]}"
    return "reachable", f"{ledger.where}, {count} {'dataset' if count == 1 else 'datasets'}"
