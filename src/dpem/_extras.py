"""Optional dependencies: a failed import becomes one sentence that names the extra to install."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module

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
    """Turn the failed import of an optional package into an error that states ``what`` needs it, and the pip command.

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


def on_first_use(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose names are imported on first use, each from its module."""
    homes = {name: module for module, names in modules.items() for name in names}

    def __getattr__(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needed_by(name):
            module = import_module(homes[name])
        value: object = getattr(module, name, module)  # a name may be that of its module
        vars(sys.modules[package])[name] = value
        return value

    return __getattr__, lambda: sorted(sys.modules[package].__all__)
