"""Optional dependencies: a failed import becomes one sentence that names the extra to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

#: The extra that installs each optional package.
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
    """Turn the failed import of an optional package into an error that names ``what`` needs it, and the pip command.

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
        message = f"{what} needs {package}: pip install 'dpem[{EXTRAS[package]}]'."
        raise ModuleNotFoundError(message, name=error.name) from None


def load(module: str, name: str) -> Any:
    """An attribute of a module of dpem, which is imported."""
    with needed_by(name):
        return getattr(import_module(module), name)
