"""Validation of arguments: functions that return the value or raise an :class:`ArgumentError` of one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import NoReturn, TypeGuard

#: The range of numbers in the units of the data: their squares and products are then ordinary floats, in float32 too.
SMALLEST, LARGEST = 1e-12, 1e12
#: Smaller floats have too few digits for a probability.
SMALLEST_DELTA = 1e-300
#: The largest number of rows or columns.
MOST = 2**53


@dataclass(frozen=True)
class Argument:
    """An argument that a message mentions, with its value if the message is about one."""

    name: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.value!r}" if self.value else self.name


class ArgumentError(ValueError):
    """A refused argument: ``argument`` is its name, with which the message begins.

    Other arguments in the sentence are separate parts, so that a command can write all of them as options
    (:meth:`render`) without a search in the text, which may quote a user.

    >>> error = ArgumentError("max_sparsity", "goes with ", Argument("sparsity", "auto"), " only.")
    >>> error.argument, str(error)
    ('max_sparsity', "max_sparsity goes with sparsity='auto' only.")
    >>> error.render(lambda argument: f"<{argument.name}>")
    '<max_sparsity> goes with <sparsity> only.'
    """

    def __init__(self, argument: str | Argument, *sentence: str | Argument) -> None:
        first = Argument(argument) if isinstance(argument, str) else argument
        self.argument, self._parts = first.name, (first, *sentence)
        super().__init__(self.render(str))

    def render(self, write: Callable[[Argument], str]) -> str:
        """The message, with each argument as ``write`` returns it."""
        first, *rest = [part if isinstance(part, str) else write(part) for part in self._parts]
        text = "".join(rest)
        return f"{first}{text}" if text.startswith(":") else f"{first} {text}"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._parts


def raise_alone(error: Exception) -> NoReturn:
    """Raise an error without the one that is being handled, whose message may quote an entry of a table."""
    try:
        raise error
    finally:
        error.__context__ = None


def describe(value: object) -> str:
    """A value for a message: a number or a short text as it is, anything else as its type, since it may contain rows.

    >>> describe(-1), describe([73.5, 80.1]), describe("x" * 99), describe(10**5000)
    ('-1', 'a list', 'a str', 'a int')
    """
    plain = value is None or isinstance(value, str | Real)
    long = isinstance(value, Integral) and abs(int(value)) >= 10**60
    text = repr(value) if plain and not long else ""
    return text if 0 < len(text) <= 60 else f"a {type(value).__name__}"


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a real number that a float represents: not a bool or a whole number of more than 53 bits."""
    too_long = isinstance(value, Integral) and abs(int(value)) > 2**53
    return isinstance(value, Real) and not isinstance(value, bool) and not too_long


def privacy_parameters(epsilon: object, delta: object) -> tuple[float, float]:
    """ε and δ as floats."""
    if epsilon is None or delta is None:
        raise ArgumentError(
            "epsilon", "and ", Argument("delta"), " must both be given: a privacy guarantee has no default."
        )
    if not is_number(epsilon) or not (0 < epsilon <= LARGEST or epsilon == math.inf):
        raise ArgumentError(
            "epsilon",
            f"must be a positive number up to {LARGEST:g}, or inf for a fit without privacy, got {describe(epsilon)}.",
        )
    if not is_number(delta) or not 0 < delta < 1:
        raise ArgumentError("delta", f"must lie strictly between 0 and 1, got {describe(delta)}.")
    if delta < SMALLEST_DELTA:
        raise ArgumentError("delta", f"must be at least {SMALLEST_DELTA:g}, got {describe(delta)}.")
    return float(epsilon), float(delta)


def positive(name: str, value: object) -> float:
    if not is_number(value) or not 0 < value < math.inf:
        raise ArgumentError(name, f"must be a positive finite number, got {describe(value)}.")
    if not SMALLEST <= value <= LARGEST:
        raise ArgumentError(
            name, f"must lie between {SMALLEST:g} and {LARGEST:g}, got {describe(value)}: change the unit."
        )
    return float(value)


def clamp_to_range(value: float) -> float:
    """The nearest number that :func:`positive` accepts.

    >>> clamp_to_range(0.0), clamp_to_range(2.0)
    (1e-12, 2.0)
    """
    return min(max(value, SMALLEST), LARGEST)


def optional_positive(name: str, value: object) -> float | None:
    return None if value is None else positive(name, value)


def is_fraction(name: str, value: object) -> float:
    """A number strictly between 0 and 1."""
    if not is_number(value) or not 0 < value < 1:
        raise ArgumentError(name, f"must lie strictly between 0 and 1, got {describe(value)}.")
    return float(value)


def boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ArgumentError(name, f"must be True or False, got {describe(value)}.")
    return value


def count(name: str, value: object) -> int:
    if not _is_count(value):
        raise ArgumentError(name, f"must be a positive whole number, got {describe(value)}.")
    return int(value)


def count_or_auto(name: str, value: object) -> int:
    """A count; 0 for "auto"."""
    if isinstance(value, str) and value == "auto":
        return 0
    if not _is_count(value):
        raise ArgumentError(name, f'must be a positive whole number or "auto", got {describe(value)}.')
    return int(value)


def rows_per_person(value: object, n: int | None = None) -> int:
    """The largest number of rows of one person, at most n."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 1:
        raise ArgumentError("rows_per_person", f"must be a whole number of at least 1, got {describe(value)}.")
    rows = int(value)
    if n is not None and rows > n:
        raise ArgumentError("rows_per_person", f"must be at most the number of rows ({n}), got {rows}.")
    return rows


def optional_count(name: str, value: object) -> int | None:
    if value is not None and not _is_count(value):
        raise ArgumentError(name, f"must be a positive whole number or None, got {describe(value)}.")
    return None if value is None else int(value)


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise ArgumentError(name, f"must be one of {', '.join(map(repr, allowed))}; got {describe(value)}.")
    return value


def sparsity(value: object, most: object, d: int) -> tuple[int | None, bool]:
    """The most non-zero coefficients, and whether small ones are dropped at the end (sparsity="auto")."""
    if isinstance(value, str):
        if value != "auto":
            raise ArgumentError("sparsity", f'must be a positive whole number, "auto" or None, got {describe(value)}.')
        if most is None:
            needed = Argument("max_sparsity")
            raise ArgumentError(Argument("sparsity", "auto"), "needs ", needed, ", the most non-zero coefficients.")
        if not _is_count(most) or most > d:
            raise ArgumentError(
                "max_sparsity", f"must be between 1 and the number of columns ({d}), got {describe(most)}."
            )
        return int(most), True
    if most is not None:
        raise ArgumentError("max_sparsity", "goes with ", Argument("sparsity", "auto"), " only.")
    s = optional_count("sparsity", value)
    if s is not None and s > d:
        raise ArgumentError("sparsity", f"must be between 1 and the number of columns ({d}), got {s}.")
    return s, False


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool) and 1 <= int(value) <= MOST
