"""Fuzzing targets that open files: models, and tables of three kinds.

The first byte of an input decides how the rest is read: as the file, or as changes to a file written by this library
(for models also with the checksum corrected, so that the code after its check is reached).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import feather, parquet

from dpem import DPStandardScaler, load_model, read_table, save_model
from dpem._json import checksum
from dpem.paper import DPSymmetricMixture
from studies.audits.fuzz_core import SECRET_NUMBER, SECRET_TEXT, Broken, Draw, leaks

#: Pieces of JSON that often cause faults.
JSON_TOKENS = (
    *(b"NaN", b"-Infinity", b"1e999", b"-1e-999", b"1" * 40, b"null", b"true", b'"inf"', b"[]", b"{}", b"[[[[", b"-0"),
    *(b'"a":1,"a":2', b'"\\ud800"', b'"\\u0000"', b"\xff\xfe", b"0.1", b"-1", b'"names":null', b"[" * 3000),
)


class Models:
    """``load_model`` of changed model and scaler files."""

    name, patience = "model.json", 5.0
    refusals: tuple[type[Exception], ...] = (ValueError, OSError)
    guided_by = ("dpem._json", "dpem.persistence", "dpem.fitting.serialization")
    tokens = JSON_TOKENS

    def __init__(self, folder: Path) -> None:
        self._path = folder / "model.json"
        self._texts = [_saved(model, folder) for model in _fitted()]

    def seeds(self) -> list[bytes]:
        raw = [b"\0" + text for text in self._texts]
        return raw + [bytes([13 + which, *place]) for which in range(3) for place in np.ndindex(3, 4, 3)]

    def run(self, data: bytes) -> bool:
        draw = Draw(data)
        mode = draw.below(16)
        self._path.write_bytes(draw.rest() if mode < 13 else self._changed(draw, mode - 13))
        load_model(self._path)
        return True

    def _changed(self, draw: Draw, which: int) -> bytes:
        """A real document with a few values exchanged, and its checksum right."""
        document = json.loads(self._texts[which])
        for _ in range(1 + draw.below(3)):
            holder: Any = document
            while True:
                keys = list(holder) if isinstance(holder, dict) else range(len(holder))
                key = draw.one_of(keys)
                if not isinstance(holder[key], dict | list) or not holder[key] or draw.below(8) == 7:
                    break
                holder = holder[key]
            holder[key] = _other(holder[key], draw)
            if draw.below(16) == 15 and isinstance(holder, dict):
                del holder[key]
        document.pop("checksum", None)
        try:
            document["checksum"] = checksum(document)
            return json.dumps(document).encode()
        except (TypeError, ValueError):
            return b"{}"


def _other(value: Any, draw: Draw) -> Any:
    kind = draw.below(5)
    if kind == 0 and isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**60:
        return value + draw.one_of((1, -1, 0.5, 2**52))
    if kind == 1 and isinstance(value, list):
        return [*value, *value][: draw.below(6)]
    if kind == 2:
        return draw.one_of(("", "auto", "equal", "inf", "improved", "<b>", "\u2028", None, True, [], {}, "x" * 5000))
    number = draw.number()
    return number if isinstance(number, int | float | str | None | list) else 1


def _fitted() -> list[Any]:
    rng = np.random.default_rng(0)
    rows = rng.choice([-1.0, 1.0], size=(400, 1)) * [0.8, 0.6] + 0.5 * rng.standard_normal((400, 2))
    given: dict[str, Any] = {"epsilon": 0.4, "delta": 1e-4, "sigma": 0.5, "method": "published", "start": "equal"}
    dense = DPSymmetricMixture(**given, n_iter=2).fit(rows)
    sparse = DPSymmetricMixture(**given, n_iter=1, sparsity=1).fit(rows)
    return [dense, sparse, DPStandardScaler(epsilon=1.0, delta=1e-4, bounds=([-9, -9], [9, 9])).fit(rows)]


def _saved(model: Any, folder: Path) -> bytes:
    save_model(model, folder / "real.json")
    return (folder / "real.json").read_bytes()


class Tables:
    """``read_table`` of changed files of one kind, every chunk of them read."""

    patience = 10.0
    refusals: tuple[type[Exception], ...] = (ValueError, OSError)
    guided_by = ("dpem.tables.files", "dpem.tables.columns", "dpem.tables.dataset")

    def __init__(self, folder: Path, suffix: str) -> None:
        self.name, self._suffix, self._folder = f"read_table {suffix}", suffix, folder
        self._real = _files(suffix)
        commas = (b",", b"\n", b'"', b"\r", b"NaN", b"1e999", b"inf", b"0x1", b"\0", b"\xff", b"\xef\xbb\xbf", b"1_0")
        self.tokens = commas if suffix.startswith(".csv") else (b"PAR1", b"ARROW1", b"\x80\x04cos\nsystem\n")

    def seeds(self) -> list[bytes]:
        return [bytes([which]) + real for which, real in enumerate(self._real)]

    def run(self, data: bytes) -> bool:
        draw = Draw(data)
        target, content = draw.below(3), draw.rest()
        path = self._folder / f"table{self._suffix}"
        path.write_bytes(content)
        try:
            source = read_table(path, target=(None, "a", "b")[target])
            for chunk in source.chunks():
                if chunk.X.shape[1] != source.n_features:
                    raise Broken("a chunk has another number of columns than its source")
        except (ValueError, OSError) as error:
            error.args = (_without_header(str(error), content),)
            raise
        return True


def _without_header(said: str, content: bytes) -> str:
    """A message without planted values that changed bytes turned into names of columns, which are public.

    A first line with a number in it is a record, not a header.
    """
    try:
        packed = content[:2] == b"\x1f\x8b"
        opened: Any = gzip.GzipFile(fileobj=io.BytesIO(content)) if packed else io.BytesIO(content)
        names = next(csv.reader(io.TextIOWrapper(opened, encoding="utf-8-sig")), [])
    except (OSError, EOFError, ValueError, csv.Error, zlib.error):
        return said
    if any(_is_number(name) for name in names):
        return said
    for name in names:
        said = said.replace(repr(name), "'…'") if leaks(name) else said
    return said


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _files(suffix: str) -> list[bytes]:
    """Real files of one kind, with planted values in them."""
    rows = np.arange(12.0).reshape(4, 3)
    rows[2, 1] = SECRET_NUMBER
    table = pa.table({"a": rows[:, 0], "b": rows[:, 1], "c": pa.array([1, None, 3, 4])})
    text = pa.table({"a": rows[:, 0], "b": rows[:, 1], "t": [SECRET_TEXT, "x", "y", "z"]})
    if suffix == ".parquet":
        kinds: tuple[dict[str, Any], ...] = ({}, {"compression": "none"}, {"data_page_version": "2.0"})
        return [
            _written(lambda sink, t=t, kind=kind: parquet.write_table(t, sink, **kind))
            for t in (table, text)
            for kind in kinds
        ]
    if suffix == ".arrow":
        kinds = ({"compression": "uncompressed"}, {"compression": "lz4"})
        return [
            _written(lambda sink, t=t, kind=kind: feather.write_feather(t, sink, **kind))
            for t in (table, text)
            for kind in kinds
        ]
    plain = [
        b"a,b,c\n1,2,3\n4,73195.0862,6\n",
        b"a,b,c\r\n1,,3\r\nNA,nan,null\r\n",
        b"a,b,t\n1,2,SECRETZ\n3,4,5\n",
        b'"a","b\nb","c"\n1,2,"3"\n',
        b"a\n73195.0862\n",
        b"1,2,73195.0862\n1,2,3\n",
    ]
    if suffix == ".csv":
        return plain
    return [gzip.compress(part, mtime=0) for part in plain]


def _written(write: Any) -> bytes:
    sink = io.BytesIO()
    write(sink)
    return sink.getvalue()
