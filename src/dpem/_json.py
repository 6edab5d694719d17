"""Strict JSON, and dataclasses rebuilt from it by their declared types.

Reading a file never runs code and never guesses. A record is rebuilt field by field from its type hints: every field
must be present, none may be unknown, each must have its declared type, and numbers must lie in the range for the
field's name. An error is one ValueError that names the field. Nothing is imported, called or looked up by a name from
the file: a ``kind`` only selects among the declared classes.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

#: Larger whole numbers are refused: no size, index or count comes near it.
LARGEST = 2**53

#: A test of a number, and its requirement in words.
Range = tuple[Callable[[float], bool], str]
_POSITIVE: Range = (lambda v: 0 < v < math.inf, "positive and finite")
_POSITIVE_OR_INF: Range = (lambda v: v > 0, 'positive, or "inf"')
_FROM_ZERO: Range = (lambda v: 0 <= v < math.inf, "finite and not negative")
_FROM_ZERO_OR_INF: Range = (lambda v: v >= 0, 'not negative, or "inf"')
_COUNT: Range = (lambda v: v >= 1, "at least 1")
_FINITE: Range = (math.isfinite, "finite")

#: Ranges by the name of a field, the same wherever the name occurs; numbers of other fields are finite.
RANGES: dict[str, Range] = {
    **dict.fromkeys(("n", "d", "s", "k", "n_iter", "n_rows", "smallest_n", "count", "rows_per_person"), _COUNT),
    **dict.fromkeys(("sparsity", "max_sparsity"), _COUNT),
    **dict.fromkeys(("sigma", "signal", "radius", "step", "step_size", "T", "entry", "clip", "bracket"), _POSITIVE),
    **dict.fromkeys(("epsilon", "residual", "largest_epsilon"), _POSITIVE_OR_INF),
    **dict.fromkeys(("rho", "sensitivity", "detectable"), _FROM_ZERO_OR_INF),
    **dict.fromkeys(("scale", "batch", "threshold", "passes"), _FROM_ZERO),
    "delta": (lambda v: 0 < v < 1, "strictly between 0 and 1"),
}


def parse_json(text: str) -> Any:
    """The JSON value in the text. NaN, infinities and repeated keys are errors, unlike in Python's own parser.

    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    ValueError: the key 'a' is given twice
    """
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite, parse_int=_integer
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not valid JSON (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def plain(value: object) -> Any:
    """A record, an array or a number as plain data for JSON; :func:`rebuild` restores it exactly. Infinity becomes the
    text "inf", and a time its ISO format.

    >>> plain((np.array([[1.5, 2.0]]), np.intp(3), math.inf))
    [[[1.5, 2.0]], 3, 'inf']
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist() if value.size else {"shape": list(value.shape)}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    if isinstance(value, datetime):
        return value.isoformat()
    value = value.item() if isinstance(value, np.generic) else value
    return "inf" if isinstance(value, float) and value == math.inf else value


def readable(value: object, indent: str = "") -> str:
    """The value as indented JSON: a line for each part of a nested object or list, a single line for a flat one."""
    parts = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if not any(isinstance(part, dict | list) for part in parts):
        return json.dumps(value, allow_nan=False)
    inner = indent + "  "
    lines = [readable(part, inner) for part in parts]
    if isinstance(value, dict):
        lines = [f"{json.dumps(key)}: {line}" for key, line in zip(value, lines, strict=True)]
    start, end = "{}" if isinstance(value, dict) else "[]"
    return f"{start}\n{inner}" + f",\n{inner}".join(lines) + f"\n{indent}{end}"


def checksum(value: object) -> str:
    """SHA-256 of a JSON value in canonical form. It detects accidental changes; it is not a signature."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return "sha256:" + hashlib.sha256(canonical.encode("ascii")).hexdigest()


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def without_alias(hint: Any) -> Any:
    """The type behind an alias made by ``type``, as ``NDArray`` is from NumPy 2.5 on; other types unchanged.

    >>> get_origin(without_alias(NDArray[np.float64])) is np.ndarray
    True
    """
    while hasattr(alias := get_origin(hint) or hint, "__value__"):
        hint = alias.__value__[get_args(hint)] if get_args(hint) else alias.__value__
    return hint


def rebuild(hint: Any, value: object, where: str, ranges: Mapping[str, Range] = RANGES) -> Any:
    """The value that ``hint`` declares, from plain data, or a ValueError that names the field after ``where``.

    Numbers lie in the range of their field's name. Arrays are finite.

    >>> from dpem.privacy import Price
    >>> rebuild(Price, {"rho": 0.5, "gaussian": True}, "price")
    Price(rho=0.5, gaussian=True)
    >>> rebuild(Price, {"rho": -1.0, "gaussian": True}, "price")
    Traceback (most recent call last):
    ...
    ValueError: price.rho must be not negative, or "inf"
    """
    hint = without_alias(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    parts: Any
    if origin in (Union, types.UnionType):
        return _one_of(arguments, value, where, ranges)
    if np.ndarray in (hint, origin):
        return _array(np.dtype(get_args(arguments[1])[0] if arguments else float), value, where)
    if isinstance(hint, type) and is_dataclass(hint):
        parts = record(value, where, tuple(field.name for field in fields(hint))).items()
        return hint(**{name: rebuild(_hints(hint)[name], part, f"{where}.{name}", ranges) for name, part in parts})
    if origin is tuple:
        repeated = arguments[-1] is Ellipsis
        parts = _list(value, where, None if repeated else len(arguments))
        pairs = enumerate(zip(arguments[:1] * len(parts) if repeated else arguments, parts, strict=True))
        return tuple(rebuild(part_hint, part, f"{where}[{i}]", ranges) for i, (part_hint, part) in pairs)
    if isinstance(hint, type) and issubclass(hint, tuple):  # a NamedTuple: a list in the declared order
        parts = zip(_hints(hint).items(), _list(value, where, len(_hints(hint))), strict=True)
        return hint(*(rebuild(part_hint, part, f"{where}.{name}", ranges) for (name, part_hint), part in parts))
    return _scalar(hint, value, where, ranges)


def refuse_undeclared(hint: object, where: str) -> None:
    """Raise a ValueError if :func:`rebuild` can make no value of this type, or of a field of it."""
    hint = without_alias(hint)
    if get_origin(hint) in (Union, types.UnionType, tuple):
        for part in set(get_args(hint)) - {Ellipsis, type(None)}:
            refuse_undeclared(part, where)
    elif isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, tuple)):
        for name, part in _hints(hint).items():
            refuse_undeclared(part, f"{where}.{name}")
    elif np.ndarray not in (hint, get_origin(hint)) and hint not in (float, int, str, bool):
        allowed = "float, int, str, bool, an array (NDArray[np.float64]), a tuple or a dataclass of such"
        raise ValueError(f"{where} must be declared as {allowed}; it is {getattr(hint, '__name__', hint)}")


def record(value: object, where: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """The value if it is an object with exactly these keys."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be an object")
    if unknown := sorted(set(value) - set(keys)):
        raise ValueError(f"{where} has the unknown key {_short(unknown[0])}")
    if absent := [key for key in keys if key not in value]:
        raise ValueError(f"{where} lacks {absent[0]!r}")
    return value


def _one_of(hints: tuple[Any, ...], value: object, where: str, ranges: Mapping[str, Range]) -> Any:
    """The value of one of several types: None, a text, or a dataclass that the object's ``kind`` names."""
    if value is None and type(None) in hints:
        return None
    rest = [hint for hint in hints if hint is not type(None)]
    kinds = {hint.__name__: hint for hint in rest if isinstance(hint, type) and is_dataclass(hint)}
    if len(rest) == 1 or not kinds:
        return rebuild(str if isinstance(value, str) and str in rest else rest[0], value, where, ranges)
    document = dict(value) if isinstance(value, dict) else {}
    kind = document.pop("kind", None)
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"{where}.kind must be one of {', '.join(kinds)}")
    return rebuild(kinds[kind], document, where, ranges)


def _array(dtype: np.dtype[np.generic], value: object, where: str) -> NDArray[np.generic]:
    """An array of this kind of number, from nested lists of equal lengths; an empty one from its shape."""
    if isinstance(value, dict):
        shape = rebuild(tuple[int, ...], record(value, where, ("shape",))["shape"], f"{where}.shape", {})
        if not 1 <= len(shape) <= 4 or 0 not in shape or not all(0 <= side <= LARGEST for side in shape):
            raise ValueError(f"{where}.shape must be that of an empty array")
        return np.empty(shape, dtype=dtype)
    entries: list[Any] = [value]
    shape = ()
    while isinstance(entries[0], list):
        if len(shape) == 4 or not all(isinstance(part, list) and len(part) == len(entries[0]) > 0 for part in entries):
            raise ValueError(f"{where} must be lists of equal lengths, at most four deep")
        shape = (*shape, len(entries[0]))
        entries = [entry for part in entries for entry in part]
    kinds, words = ((int,), "whole numbers") if dtype.kind == "i" else ((int, float), "numbers")
    if not shape or not all(type(entry) in kinds and abs(entry) <= sys.float_info.max for entry in entries):
        raise ValueError(f"{where} must be a list of {words}")
    return np.array(entries, dtype=dtype).reshape(shape)


def _list(value: object, where: str, length: int | None) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"{where} must be a list")
    if length is not None and len(value) != length:
        raise ValueError(f"{where} must have {length} entries, it has {len(value)}")
    return value


_SCALARS = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}


def _scalar(hint: type, value: object, where: str, ranges: Mapping[str, Range]) -> Any:
    if hint is float and (value == "inf" or (type(value) is int and abs(value) <= sys.float_info.max)):
        value = float(value)
    if type(value) is not hint:
        raise ValueError(f"{where} must be {_SCALARS.get(hint, hint.__name__)}")
    within, words = ranges.get(where.rpartition(".")[2].partition("[")[0], _FINITE)
    if isinstance(value, int | float) and hint is not bool and not within(value):
        raise ValueError(f"{where} must be {words}")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document: dict[str, object] = {}
    for key, value in pairs:
        if key in document:
            raise ValueError(f"the key {_short(key)} is given twice")
        document[key] = value
    return document


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"it contains {text}, which is not a number that JSON has")


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError("it contains a number too large for floating point")
    return value


def _integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > LARGEST:
        raise ValueError("it contains a whole number of more than 53 bits")
    return int(text)


def _short(text: str) -> str:
    return ascii(text if len(text) <= 40 else text[:37] + "...")
