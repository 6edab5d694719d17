"""Text files that appear whole or not at all, and sentences about paths that cannot be written or read."""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise an OSError of one sentence unless a file could be written to ``path`` now. Leaves nothing behind.

    Call it before a fit is paid for: a model that cannot be written is budget spent for nothing.

    >>> check_writable("no such folder/model.json")
    Traceback (most recent call last):
    ...
    FileNotFoundError: 'no such folder/model.json' cannot be written: its folder does not exist.
    """
    with _saying(path), _beside(_target(path)):
        pass


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write the text to a new file beside ``path``, then put it in its place: a reader sees the old file or the new."""
    with _saying(path):
        target = _target(path)
        with _beside(target) as draft:
            with open(draft, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)


def read_text(path: str | os.PathLike[str], largest: int) -> str:
    """The text of a file of at most ``largest`` bytes. A path that is not a file is an OSError of one sentence; a
    file that is too long or no text is a ValueError.
    """
    name = os.fspath(path)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError(f"{name!r} cannot be read: it is not a file.")
        with open(path, "rb") as file:
            content = file.read(largest + 1)
    except FileNotFoundError:
        raise FileNotFoundError(f"{name!r} cannot be read: there is no such file.") from None
    except PermissionError:
        raise PermissionError(f"{name!r} cannot be read: permission is denied.") from None
    if len(content) > largest:
        raise ValueError(f"it is longer than {largest:,} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None


def _target(path: str | os.PathLike[str]) -> Path:
    """Where a link leads, so that the link stays one."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError("its folder does not exist")
    if target.exists() and not target.is_file():
        raise OSError("something other than a file is there")
    return target


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A new empty file in the same folder, removed if it is still there at the end."""
    draft = target.parent / f".{uuid.uuid4().hex}.tmp"
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def _saying(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise type(error)(f"{os.fspath(path)!r} cannot be written: {reason[:1].lower()}{reason[1:]}.") from None
