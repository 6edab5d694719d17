"""Diagnostics of a fit: records computed from released numbers. Warnings, summaries and reports show the same list."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from dpem.queries.histograms import BINS
from dpem.tables.bounds import list_columns, list_names

Severity = Literal["warning", "note"]


class FitWarning(UserWarning):
    """A diagnostic of severity "warning": an estimate may be wrong, as after a failed fit check."""


@dataclass(frozen=True)
class Diagnostic:
    """A finding about a fit that its reader should know.

    Attributes
    ----------
    code : str
        The kind of finding, for programs: ``"collinear"``, ``"point-mass"``, ``"fit-check"``, …
    severity : {"warning", "note"}
        A warning is also issued as a :class:`FitWarning`; a note is only shown with the results.
    message : str
        What was found, in one or two sentences.
    advice : str
        What to do about it.
    columns : tuple of str
        The columns it is about.
    """

    code: str
    severity: Severity
    message: str
    advice: str = ""
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.message} {self.advice}".rstrip()


def issue(diagnostics: Iterable[Diagnostic]) -> None:
    """Issue the diagnostics of severity ``"warning"`` as Python warnings."""
    for diagnostic in diagnostics:
        if diagnostic.severity == "warning":
            warn_user(str(diagnostic), FitWarning)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points at the user's line, the first caller outside of this package."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "dpem":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def column_diagnostics(
    rare: Sequence[str], at_bound: Sequence[str], crowded: Sequence[str], part: str
) -> Iterator[Diagnostic]:
    """Warnings about columns: ``rare`` levels, columns with most values ``at_bound``, and columns whose values nearly
    all lie in a small ``part`` of the bounds, given in words.
    """
    if rare:
        message = (
            f"Too few rows have {list_names(rare)} for this budget: they are left out, so their effect is unknown."
        )
        advice = "Check the spelling of the levels, or merge rare ones."
        yield Diagnostic("rare-level", "warning", message, advice, tuple(rare))
    if at_bound:
        message = (
            f"Most values of the {list_columns(at_bound)} are at a bound, or within 1/{BINS} of the range from it."
        )
        advice = "Check the unit; if values are only near a bound, narrower bounds would help."
        yield Diagnostic("at-bound", "warning", message, advice, tuple(at_bound))
    if crowded:
        message = f"Nearly all values of the {list_columns(crowded)} lie in {part} of the bounds."
        advice = "Narrower bounds would help, or a logarithm where values are not negative."
        yield Diagnostic("wide-bounds", "warning", message, advice, tuple(crowded))
