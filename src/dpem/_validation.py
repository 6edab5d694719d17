"""Refusals of arguments, one sentence each; shared by :func:`dpem.plan` and the estimators."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

from dpem.privacy.budget import checked_rows_per_person, is_number, shown

#: Numbers in the units of the data lie between these: their squares and products are then ordinary floats, in float32
#: too, and tables beyond have no business in such units.
SMALLEST, LARGEST = 1e-12, 1e12
#: Below this a float keeps too few digits for a probability.
SMALLEST_DELTA = 1e-300
#: No table has more rows or columns.
MOST = 2**53


def privacy_parameters(epsilon: Any, delta: Any) -> tuple[float, float]:
    """ε and δ as floats, or a refusal."""
    if epsilon is None or delta is None:
        raise ValueError("epsilon and delta must both be given: a privacy guarantee has no default.")
    if not is_number(epsilon) or math.isnan(epsilon) or epsilon <= 0:
        raise ValueError(
            f"epsilon must be a positive number (inf for the non-private reference), got {shown(epsilon)}."
        )
    if not is_number(delta) or not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {shown(delta)}.")
    if delta < SMALLEST_DELTA:
        raise ValueError(f"delta must be at least {SMALLEST_DELTA:g}, got {shown(delta)}.")
    return float(epsilon), float(delta)


def positive(name: str, value: Any) -> float:
    if not is_number(value) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a positive finite number, got {shown(value)}.")
    if not SMALLEST <= value <= LARGEST:
        raise ValueError(f"{name} must lie between {SMALLEST:g} and {LARGEST:g}, got {shown(value)}: change the unit.")
    return float(value)


def in_range(value: float) -> float:
    """The nearest number that :func:`positive` accepts.

    >>> in_range(0.0), in_range(2.0)
    (1e-12, 2.0)
    """
    return min(max(value, SMALLEST), LARGEST)


def optional_positive(name: str, value: Any) -> float | None:
    return None if value is None else positive(name, value)


def optional_distance(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if not is_number(value) or not 0 <= value <= LARGEST:
        raise ValueError(f"{name} must be a finite number from 0 to {LARGEST:g}, or None, got {shown(value)}.")
    return float(value)


def fraction(name: str, value: Any) -> float:
    if not is_number(value) or not 0 <= value < 1:
        raise ValueError(f"{name} must lie between 0 and 1, 1 excluded, got {shown(value)}.")
    return float(value)


def is_fraction(name: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    if not is_number(value) or not 0 < value < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {shown(value)}.")
    return float(value)


def boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {shown(value)}.")
    return value


def count(name: str, value: Any) -> int:
    if not _is_count(value):
        raise ValueError(f"{name} must be a positive whole number, got {shown(value)}.")
    return int(value)


def count_or_auto(name: str, value: Any) -> int:
    """A count; 0 for "auto"."""
    if isinstance(value, str) and value == "auto":
        return 0
    if not _is_count(value):
        raise ValueError(f'{name} must be a positive whole number or "auto", got {shown(value)}.')
    return int(value)


def rows_per_person(value: Any, n: int) -> int:
    """The most rows that one person has, of n."""
    rows = checked_rows_per_person("rows_per_person", value)
    if rows > n:
        raise ValueError(f"rows_per_person must be at most the number of rows ({n}), got {rows}.")
    return rows


def optional_count(name: str, value: Any) -> int | None:
    if value is not None and not _is_count(value):
        raise ValueError(f"{name} must be a positive whole number or None, got {shown(value)}.")
    return None if value is None else int(value)


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {shown(value)}.")
    return value


def sparsity_within(value: Any, d: int) -> int | None:
    value = optional_count("sparsity", value)
    if value is not None and value > d:
        raise ValueError(f"sparsity must be between 1 and the number of columns ({d}), got {value}.")
    return value


def sparsity(value: Any, most: Any, d: int) -> tuple[int | None, bool]:
    """Coefficients that may be non-zero, and whether small ones are dropped at the end (sparsity="auto")."""
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(f'sparsity must be a positive whole number, "auto" or None, got {shown(value)}.')
        if most is None:
            raise ValueError('sparsity="auto" needs max_sparsity=: the most coefficients there may be.')
        if not _is_count(most) or most > d:
            raise ValueError(f"max_sparsity must be between 1 and the number of columns ({d}), got {shown(most)}.")
        return int(most), True
    if most is not None:
        raise ValueError('max_sparsity goes with sparsity="auto" only.')
    return sparsity_within(value, d), False


def _is_count(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and 1 <= int(value) <= MOST
