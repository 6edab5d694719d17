"""Files that are written completely or not at all, and errors of one sentence for paths that cannot be used."""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise an OSError of one sentence unless a file could be written to ``path`` now. Leaves nothing behind.

    Call it before a fit is paid for: a model that cannot be written is budget spent for nothing.

    >>> check_writable("no such folder/model.json")
    Traceback (most recent call last):
    ...
    FileNotFoundError: 'no such folder/model.json' cannot be written: its folder does not exist.
    """
    with _writing(path), _draft(_target(path)):
        pass


@contextlib.contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` when the block ends without an error; a reader sees the old file or
    the new one, never a part.
    """
    with _writing(path):
        target = _target(path)
        with _draft(target) as draft:
            with open(draft, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write the text to ``path``, completely or not at all."""
    with replaced(path) as file:
        file.write(text.encode())


def read_text(path: str | os.PathLike[str], largest: int) -> str:
    """The text of a file of at most ``largest`` bytes. Raises an OSError of one sentence for a path that is no file,
    and a ValueError for a file that is too long or no text.
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
    """The file to replace; a symbolic link is followed, so that it stays a link."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError("its folder does not exist")
    if target.exists() and not target.is_file():
        raise OSError("something other than a file is there")
    return target


@contextlib.contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """A new empty file in the same folder, which is removed at the end if it still exists."""
    draft = target.parent / f".{uuid.uuid4().hex}.tmp"
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def _writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Give an OSError the path and a reason in one sentence."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise type(error)(f"{os.fspath(path)!r} cannot be written: {reason[:1].lower()}{reason[1:]}.") from None
