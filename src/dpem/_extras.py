"""What an installation may lack, and the extra that brings it: one sentence in the place of an import that failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

#: The extra that brings each package that the core does without.
EXTRAS = {
    "click": "cli",
    "dask": "dask",
    "distributed": "dask",
    "pyarrow": "files",
    "sqlalchemy": "ledger",
    "tqdm": "cli",
}


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """A package that is missing inside is said to be needed by ``what``, with the command that brings it.

    >>> with needed_by("read_table"):
    ...     raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
    Traceback (most recent call last):
    ModuleNotFoundError: read_table needs pyarrow: pip install 'dpem[files]'.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS or "dpem[" in str(error):
            raise
        said = f"{what} needs {package}: pip install 'dpem[{EXTRAS[package]}]'."
        raise ModuleNotFoundError(said, name=error.name) from None


def load(module: str, name: str) -> Any:
    """An attribute of a module of dpem's, loaded now."""
    with needed_by(name):
        return getattr(import_module(module), name)
