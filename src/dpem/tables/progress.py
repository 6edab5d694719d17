"""A progress bar for long work, which shows the number of rows read, a public number."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from dpem._extras import needed_by

_bar: ContextVar[Any] = ContextVar("dpem_progress", default=None)

#: Seconds of work before a bar appears.
PATIENCE = 2.0


@contextmanager
def progress(*, disable: bool | None = None) -> Iterator[None]:
    """Show rows per second and the time left while fits run inside; nothing if standard error is no terminal.

    >>> with progress():
    ...     pass
    """
    with needed_by("progress"):
        from tqdm import tqdm  # here, so that it is not loaded without a bar

    hidden = not sys.stderr.isatty() if disable is None else disable
    with tqdm(total=0, unit=" rows", unit_scale=True, delay=PATIENCE, disable=hidden, leave=False) as bar:
        token = _bar.set(bar)
        try:
            yield
        finally:
            _bar.reset(token)


def expect(rows: int) -> None:
    """Add to the number of rows that will be read, the length of the table times the number of passes."""
    bar = _bar.get()
    if bar is not None:
        bar.total += rows
        bar.refresh()


def advance(rows: int) -> None:
    """Add to the number of rows that were read."""
    bar = _bar.get()
    if bar is not None:
        bar.update(rows)
