"""Keep at most k rows of each person, so that a guarantee for k rows protects the person.

One pass over the column that identifies people counts the rows of each person in the table's order and keeps the first
k (``rows_per_person``) of each. The other rows contribute to no query and are not counted in n.

*Neighbours* are ordered tables D, D′ of equal length for which there is a set S of positions, of any size, such that
in D the rows at S are all the rows of one person, in D′ they are all the rows of one person (the same or another one),
and elsewhere the tables are equal.

*Lemma.* The kept rows of neighbours are ordered tables of equal length that differ in at most k positions. *Proof.*
Whether a row is kept depends on the number of earlier rows of the same person. A row outside S belongs to a person all
of whose rows are outside S, where the tables are equal, so it is kept in both or in neither. Of the m rows at S,
which are one person's in D and one person's in D′, the first min(k, m) are kept in both. So the same positions are
kept, and those that differ are among the first k of S. ∎

So what is proved for tables that differ in up to k rows of one person holds for a person with any number of rows. The
number of kept rows is equal for neighbours, hence as public as the number of rows. The number of rows of a person is
not hidden beyond that. Rows without an entry in the column count as one person's.

A person is stored as 128 bits that depend on the entry and on a secret drawn for each pass: a whole number of up to
18 characters is mapped one-to-one, anything else is hashed with BLAKE2b. The probability that two of m persons share
their bits is below m²/2¹²⁹. The counts take 40 to 80 bytes a person, and the kept rows one bit each.
"""

from __future__ import annotations

import copy
import hashlib
import math
import secrets
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpem._validation import ArgumentError
from dpem.query import Chunk, Query
from dpem.tables.base import ChunkedSource, FixedChunk, PreparedRows, Source, StridedSource
from dpem.tables.blocks import host, indices, namespace_of
from dpem.tables.entries import MISSING, as_text, decode, is_missing, is_text

if TYPE_CHECKING:
    import pyarrow as pa

    from dpem.tables.entries import Column

Hashes = NDArray[np.uint64]

#: Texts that spell a whole number without leading zeros, possibly with zeros after a decimal point.
_WHOLE = r"^-?(?:0|[1-9][0-9]*)(?:\.0*)?$"
#: Whole numbers between these, which have at most this many characters, are mixed; others are hashed as texts, whatever
#: the type of their column.
_LOW, _HIGH, _LONGEST = -(10**17), 10**18, 18


def new_secret() -> bytes:
    """The secret that hashes of one pass depend on."""
    return secrets.token_bytes(16)


def hash_people(column: Column, secret: bytes) -> Hashes:
    """128 bits for the person of each entry, as two columns of 64.

    7, 7.0, "7" and "7.0" are one person, in every type of column. Missing entries together are another one.

    >>> hashes = hash_people(np.array([7, 7.0, "7", "07", None], dtype=object), b"0" * 16)
    >>> [bool((row == hashes[0]).all()) for row in hashes]
    [True, True, True, False, False]
    """
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        return _hash_numbers(column, secret)
    import pyarrow as pa

    if isinstance(column, np.ndarray):
        return _hash_texts(pa.array([_text(entry) for entry in column], pa.string()), secret)
    column = decode(column)
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        known = _hash_numbers(column.drop_null().to_numpy(zero_copy_only=False), secret)
        if column.null_count == 0:
            return known
        hashes = np.repeat(_digests(pa.nulls(1, pa.string()), secret), len(column), axis=0)
        hashes[np.asarray(column.is_valid())] = known
        return hashes
    if pa.types.is_timestamp(kind):  # Arrow may not know the time zone, and a text needs it
        column = column.cast(pa.timestamp(kind.unit))
    return _hash_texts(column if is_text(kind) else column.cast(pa.string()), secret)


def _hash_numbers(values: NDArray[Any], secret: bytes) -> Hashes:
    if values.dtype.kind == "f":
        values = values.astype(float, copy=False)
    is_mixed = (values > _LOW) & (values < _HIGH)
    if values.dtype.kind == "f":
        is_mixed &= values == np.trunc(values)
    if is_mixed.all():
        return _mix(values.astype(np.int64), secret)
    hashes = np.empty((len(values), 2), dtype=np.uint64)
    hashes[is_mixed] = _mix(values[is_mixed].astype(np.int64), secret)
    hashes[~is_mixed] = hash_people(values[~is_mixed].astype(object), secret)
    return hashes


def _text(entry: Any) -> str | None:
    """The text of an entry; of a finite number without a fractional part, its digits alone; None if missing."""
    if is_missing(entry):
        return None
    is_finite = isinstance(entry, float | np.floating | Decimal | bool | np.bool_) and math.isfinite(entry)
    return as_text(int(entry) if is_finite and entry == int(entry) else entry)


def _hash_texts(texts: pa.Array, secret: bytes) -> Hashes:
    import pyarrow.compute as pc

    is_whole = np.asarray(pc.fill_null(pc.match_substring_regex(texts, _WHOLE), False))
    digits = pc.replace_substring_regex(texts.filter(is_whole), r"\..*$", "")
    is_mixed = np.asarray(pc.less_equal(pc.binary_length(digits), _LONGEST))
    whole_hashes = np.empty((len(digits), 2), dtype=np.uint64)
    whole_hashes[is_mixed] = _mix(digits.filter(is_mixed).cast("int64").to_numpy(), secret)
    whole_hashes[~is_mixed] = _digests(digits.filter(~is_mixed), secret)
    hashes = np.empty((len(texts), 2), dtype=np.uint64)
    hashes[is_whole] = whole_hashes
    hashes[~is_whole] = _digests(texts.filter(~is_whole), secret)
    return hashes


def _digests(texts: pa.Array, secret: bytes) -> Hashes:
    """The hash of each text; a missing text, and one that stands for a missing entry, has that of no bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    binary = texts.cast(pa.large_binary())  # a file may hold invalid UTF-8
    is_missing_text = pc.is_in(binary, value_set=pa.array([text.encode() for text in MISSING], pa.large_binary()))
    coded = pc.if_else(is_missing_text, None, binary).dictionary_encode(null_encoding="encode")
    digests = [
        hashlib.blake2b(b"" if text is None else b"+" + text, digest_size=16, key=secret).digest()
        for text in coded.dictionary.to_pylist()
    ]
    hashes = np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(-1, 2)
    return hashes[coded.indices.to_numpy()] if len(texts) else np.empty((0, 2), dtype=np.uint64)


def _mix(values: NDArray[np.int64], secret: bytes) -> Hashes:
    """A one-to-one map of 64 bits, twice, with a secret each (the finalizer of splitmix64)."""
    hashes = np.empty((len(values), 2), dtype=np.uint64)
    for side, key in enumerate(np.frombuffer(secret, dtype=np.uint64)):
        z = values.astype(np.uint64) ^ key
        with np.errstate(over="ignore"):
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashes[:, side] = z ^ (z >> np.uint64(31))
    return hashes


class Counts:
    """The number of rows of each person so far, in a hash table that doubles when it is half full."""

    def __init__(self) -> None:
        self._keys, self._counts, self._used = np.zeros((1 << 10, 2), dtype=np.uint64), np.zeros(1 << 10, np.int64), 0

    def add(self, people: Hashes, rows: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Count one row of each of these people, or ``rows`` of each; returns how many rows each had before."""
        from dpem.tables.compiled import count_rows  # a plan needs no compiler

        while 2 * (self._used + len(people)) > len(self._counts):
            keys, counts = self._keys, self._counts
            self._keys, self._counts = np.zeros((2 * len(counts), 2), np.uint64), np.zeros(2 * len(counts), np.int64)
            in_use = counts > 0
            count_rows(self._keys, self._counts, keys[in_use], counts[in_use])
        rows = np.ones(len(people), np.int64) if rows is None else rows
        before, n_new = count_rows(self._keys, self._counts, people, rows)
        self._used += n_new
        return np.asarray(before)


def limit_rows_per_person(source: Any, person: str, most: int) -> Source:
    """The first ``most`` rows of each person of a source, by the column ``person``."""
    opened_with = getattr(source, "person_name", None)
    if opened_with is not None and opened_with != person:
        raise ArgumentError("person", f"is {person!r}, but the table was opened with person={opened_with!r}.")
    if hasattr(source, "limit_rows_per_person"):
        return source.limit_rows_per_person(person, most)
    if opened_with is not None:
        return PersonSource(source, most=most, people=source.people())
    names = getattr(source, "feature_names", None) or [f"x{j}" for j in range(source.n_features)]
    if person not in names or not isinstance(source, ChunkedSource):
        raise ArgumentError(
            "person", f"must be a column of X, but there is no {person!r}; open a file with read_table(path, person=)."
        )
    column = list(names).index(person)
    people = (_entries(chunk.X, column) for chunk in source.chunks())
    return PersonSource(source, most=most, people=people, column=column)


def rows_by_person(column: Column, secret: bytes) -> tuple[Hashes, NDArray[np.int64]]:
    """The distinct persons of some rows, and the number of rows of each."""
    people = hash_people(column, secret)
    _, first, rows = np.unique(_as_keys(people), return_index=True, return_counts=True)
    return people[first], rows


def first_rows(column: Column, secret: bytes, people: Hashes, most: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each row of a block is kept: the first ``most`` of each of ``people``, and all rows of other persons."""
    hashes = hash_people(column, secret)
    limits = {key.tobytes(): rows for key, rows in zip(_as_keys(people), most, strict=True)}
    ranks = zip(Counts().add(hashes), _as_keys(hashes), strict=True)
    return np.array([rank < limits.get(key.tobytes(), rank + 1) for rank, key in ranks])


def _as_keys(people: Hashes) -> NDArray[Any]:
    return np.ascontiguousarray(people).view("V16")[:, 0]


class PersonSource(StridedSource):
    """The first ``most`` rows of each person of another source; the module states the lemma.

    ``people`` is the column that identifies people, in pieces and in the order of the rows. If it is a feature of the
    source, ``column`` is its index, and the feature is left out.

    >>> from dpem.tables import ArraySource
    >>> rows = ArraySource(np.array([[7.0, 1.0], [7.0, 2.0], [8.0, 3.0], [7.0, 4.0]]))
    >>> source = PersonSource(rows, most=1, people=[np.array([7.0, 7.0, 8.0, 7.0])], column=0)
    >>> source.n_rows, next(source.chunks()).X.tolist()
    (2, [[1.0], [3.0]])
    """

    def __init__(
        self, source: ChunkedSource, *, most: int, people: Iterable[Column], column: int | None = None
    ) -> None:
        self._source, self._column = source, column
        counts, secret = Counts(), new_secret()
        parts = [counts.add(hash_people(part, secret)) < most for part in people]
        kept = np.concatenate([np.empty(0, np.bool_), *parts])
        if len(kept) != source.n_rows:
            raise ArgumentError("person", "must have one entry for each row.")
        self._all, self._n = len(kept), int(kept.sum())
        self._kept = np.packbits(kept)
        self._prepared: dict[int, PreparedRows] = {}
        self.order_may_depend_on_values = source.order_may_depend_on_values
        self.n_features, self.has_response, self.dtype = source.n_features, source.has_response, source.dtype
        self.feature_names = source.feature_names
        if column is not None:
            names = source.feature_names or [f"x{j}" for j in range(source.n_features)]
            self.n_features, self.feature_names = len(names) - 1, [n for j, n in enumerate(names) if j != column]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_rows} of {self._all} rows, {self.n_features} columns, {self.dtype})"

    @property
    def n_rows(self) -> int:
        return self._stride.count(self._n)

    def chunks(self) -> Iterator[Chunk]:
        begin = n_kept = 0
        for chunk in self._source.chunks():
            length = chunk.X.shape[0]
            packed = self._kept[begin // 8 : (begin + length + 7) // 8]
            kept = np.flatnonzero(np.unpackbits(packed)[begin % 8 :][:length])
            rows = kept[self._stride.within(n_kept)]
            begin, n_kept = begin + length, n_kept + len(kept)
            if len(rows):
                X, y = chunk
                if self._column is not None:
                    X = _take(X, np.delete(np.arange(X.shape[1]), self._column), 1)
                if len(rows) < length:
                    X, y = _take(X, rows, 0), None if y is None else _take(y, rows, 0)
                part = Chunk(X, y)
                if isinstance(chunk, FixedChunk):  # then these rows are the same on every pass, too
                    row_bytes = chunk.prepared.row_bytes
                    part = FixedChunk.of(part, self._prepared.setdefault(begin, PreparedRows(row_bytes)))
                yield part

    def split(self, parts: int) -> list[PersonSource]:
        batches = super().split(parts)
        for batch in batches:
            batch._prepared = {}
        return batches

    def chunks_for(self, query: Query) -> Iterator[Chunk]:
        """Only the columns that the query ``reads``, if it states them."""
        reads = getattr(query, "reads", None)
        if reads is None or self._column is not None or not hasattr(self._source, "with_features"):
            return self.chunks()
        part = copy.copy(self)
        part._source = self._source.with_features(reads)
        return part.chunks()

    def slack(self, query: Query) -> float:
        """The slack of the source, which has at least as many rows and as long chunks."""
        return self._source.slack(query)


def _take(values: Any, chosen: NDArray[np.intp], axis: int) -> Any:
    """Some rows (axis 0) or columns (axis 1) of an array of any library."""
    if isinstance(values, np.ndarray) or sparse.issparse(values):
        return values[chosen] if axis == 0 else values[:, chosen]
    xp = namespace_of(values)
    return xp.take(values, indices(xp, chosen, values), axis=axis)


def _entries(X: Any, column: int) -> NDArray[Any]:
    if sparse.issparse(X):
        return X[:, [column]].toarray()[:, 0]
    if isinstance(X, np.ndarray):
        return X[:, column]
    return host(X[:, column])
