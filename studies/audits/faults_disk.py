"""Full disks, and read-only folders, files and databases.

Arguments of ``main``: FOLDER quick|long sqlite|URL, where the URL is that of a PostgreSQL superuser.

Disks are made full in two ways. ``RLIMIT_FSIZE`` limits the size of every file of this process; the limit is varied
from 0 to more than is needed, so that the charge, its journal and the outcome each reach it. A small file system in
memory, if this process may mount one, is filled up to some pages; it also holds a tablespace of the server, and the
models and reports of ``dpem fit``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import resource
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from dpem import Ledger, LedgerError, load_model
from dpem.cli.main import cli
from studies.audits.faults_ledger import AMPLE, DATASET, Attempts, Findings, read, table

PAGE = 4096
NOBODY = 65534


def opened(found: Findings, url: str) -> Attempts:
    Ledger(url).open(DATASET, **AMPLE)
    attempts = Attempts(found, url)
    attempts.fit()
    return attempts


def limited(found: Findings, folder: Path, step: int) -> None:
    """Fits while no file may exceed a size, and afterwards without the limit."""
    path = folder / "limited.db"
    attempts = opened(found, f"sqlite:///{path}")
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in range(0, path.stat().st_size + 3 * PAGE, step):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, unlimited[1]))
        try:
            found.counts[f"file limited: {attempts.fit()}"] += 1
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        attempts.look()
    found.check(attempts.fit() == "answered", "no fit once the disk had room again")
    attempts.look()


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path | None]:
    """A file system of its own, or None where this process may not mount one."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode != 0:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def filled(disk: Path, pages_left: int) -> Iterator[None]:
    """The disk, filled up to a number of pages."""
    filler = disk / "filler"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with open(filler, "wb") as file:
        file.write(bytes(max(0, free - pages_left * PAGE)))
    try:
        yield
    finally:
        filler.unlink()


def full(found: Findings, folder: Path, most: int) -> None:
    """The ledger's disk is full up to 0, 1, … pages."""
    with small_disk(folder / "small", "1m") as disk:
        if disk is None:
            found.counts["not mounted"] += 1
            return
        attempts = opened(found, f"sqlite:///{disk}/budget.db")
        for pages in range(most):
            with filled(disk, pages):
                found.counts[f"disk full: {attempts.fit()}"] += 1
            attempts.look()
        found.check(attempts.fit() == "answered", "no fit once the disk had room again")
        attempts.look()


def full_tablespace(found: Findings, folder: Path, url: str) -> None:
    """The disk of the server's tables is full; that of its log is not."""
    import psycopg

    owner = os.stat(url.split("host=")[1])
    folder.chmod(0o755)  # the server's user passes through
    with small_disk(folder / "space", "16m") as disk:
        if disk is None:
            found.counts["not mounted"] += 1
            return
        os.chown(disk, owner.st_uid, owner.st_gid)
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(f"CREATE TABLESPACE small LOCATION '{disk}'".encode())
            server.execute(b"CREATE DATABASE small TABLESPACE small")
            try:
                _fill_tablespace(found, disk, url.replace("/postgres?", "/small?"))
            finally:
                server.execute(b"DROP DATABASE small WITH (FORCE)")
                server.execute(b"DROP TABLESPACE small")


def _fill_tablespace(found: Findings, disk: Path, url: str) -> None:
    attempts = opened(found, url)
    failures = 0
    with filled(disk, 0):
        for _ in range(400):
            how = attempts.fit()
            found.counts[f"disk full: {how}"] += 1
            failures += how != "answered"
            if failures == 5:
                break
    found.check(failures == 5, "the server's disk never ran full")
    attempts.look()
    found.check(attempts.fit() == "answered", "no fit once the disk had room again")
    attempts.look()


def shell(*arguments: str) -> tuple[int, str]:
    """Exit status of ``dpem`` and its last line on standard error."""
    message, status = io.StringIO(), 0
    with contextlib.redirect_stderr(message), contextlib.redirect_stdout(io.StringIO()):
        try:
            cli.main(list(arguments))
        except SystemExit as ended:
            status = int(ended.code or 0)
    return status, (message.getvalue().strip().splitlines() or [""])[-1]


def outputs(found: Findings, folder: Path) -> None:
    """Models and reports on a full disk: refused before the charge if that can be known, otherwise saved elsewhere."""
    rows, url = folder / "rows.csv", f"sqlite:///{folder}/outputs.db"
    np.savetxt(rows, table(), delimiter=",", header="a,b,c,d", comments="")
    Ledger(url).open(DATASET, **AMPLE)
    settings = "--epsilon 0.5 --delta 1e-5 --method published --sparsity 2 --sigma 1 --start equal --anyway --force"
    fit = ("fit", "symmetric-mixture", str(rows), *settings.split(), "--ledger", url, "--dataset", DATASET)
    for out in (("--out", "/dev/full"), ("--out", str(folder / "m.json"), "--report", "/dev/full")):
        status, message = shell(*fit, *out)
        found.sentence(message, "/dev/full")
        found.check((status, len(read(url)[0])) == (6, 0), "a fit whose output cannot be written was not refused")
        found.counts["output refused, nothing spent"] += 1
    with small_disk(folder / "outputs", "64k") as disk:
        if disk is None:
            found.counts["not mounted"] += 1
            return
        with filled(disk, 0):
            status, message = shell(*fit, "--out", f"{disk}/model.json")
        rescued = re.search(r"the model that was paid for is in (\S+): move", message)
        found.sentence(message, "no space left")
        found.check(status == 6 and rescued is not None, f"the model of a paid fit was not kept: {message}")
        if rescued is not None:
            load_model(rescued[1])
            os.unlink(rescued[1])
            os.rmdir(os.path.dirname(rescued[1]))
        with filled(disk, 0):
            status, message = shell(*fit, "--out", str(folder / "m.json"), "--report", f"{disk}/report.html")
        found.sentence(message, "no space left")
        load_model(folder / "m.json")
        found.check(status == 6 and os.listdir(disk) == [], "a part of a file was left behind")
        outcomes = [row.outcome for row in read(url)[0]]
        found.check(outcomes == ["answered"] * 2, f"two fits were paid for, and the ledger says {outcomes}")
        found.counts["output without room, model kept"] += 2


def as_reader(url: str) -> str:
    """The message of a fit to a user with read permission only, in a process of that user."""
    pipe, write = os.pipe()
    if os.fork() == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            found = Findings()
            attempts = Attempts(found, url)
            how, charges = attempts.fit(), len(Ledger(url, DATASET).history())
            os.write(write, json.dumps([how, charges, attempts.perhaps, found.broken]).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(pipe) as message:
        text = message.read()
    os.wait()
    return text


def read_only(found: Findings, folder: Path) -> None:
    """A fit is refused in one sentence, the history can be read, and no other files remain."""
    for file_mode, folder_mode in ((0o444, 0o755), (0o444, 0o555), (0o666, 0o555)):
        home = folder / f"reader-{file_mode:o}-{folder_mode:o}"
        home.mkdir()
        url = f"sqlite:///{home}/budget.db"
        attempts = opened(found, url)
        (home / "budget.db").chmod(file_mode)
        home.chmod(folder_mode)
        message = as_reader(url)
        left = os.listdir(home)
        home.chmod(0o700)
        found.check(message == '["refused", 1, 0, []]' and left == ["budget.db"], f"a reader read {message}")
        found.counts["read-only: refused"] += 1
        (home / "budget.db").chmod(0o600)
        attempts.look()


def read_only_server(found: Findings, url: str) -> None:
    """A server without write access, such as a replica."""
    import psycopg

    attempts = opened(found, url)
    database = url.split("?")[0].rsplit("/")[-1]
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on".encode())
        found.check(attempts.fit() == "refused", "a database that can only be read took a charge")
        try:
            Ledger(url).open("others", **AMPLE)
            found.broken.append("a dataset was opened in a database that can only be read")
        except LedgerError as error:
            found.sentence(error, "nothing was recorded")
        found.check(len(Ledger(url, DATASET).history()) == 1, "a reader does not see the history")
        server.execute(f"SET default_transaction_read_only = off; ALTER DATABASE {database} RESET ALL".encode())
    found.counts["read-only: refused"] += 1
    found.check(attempts.fit() == "answered", "no fit once the database could be written again")
    attempts.look()


def main(arguments: Sequence[str]) -> None:
    folder, quick, url = Path(arguments[0]), arguments[1] == "quick", arguments[2]
    found = Findings()
    if url == "sqlite":
        folder.chmod(0o755)
        read_only(found, folder)
        limited(found, folder, step=2 * PAGE if quick else 256)
        full(found, folder, most=4 if quick else 24)
        outputs(found, folder)
    else:
        read_only_server(found, url)
        full_tablespace(found, folder, url)
    found.print()
