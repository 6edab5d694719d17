"""The diagnostics of a linear regression, from released numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.diagnostics import Diagnostic, column_diagnostics
from dpem.fitting.plan import Prediction
from dpem.models.linear_regression.parameters import Parameters
from dpem.models.linear_regression.planning import loss_on_tables
from dpem.models.linear_regression.state import Estimate
from dpem.models.linear_regression.tuning import TUNING
from dpem.tables.bounds import list_columns, list_names
from dpem.tables.schema import Schema

NOTE = (
    "The target is the best linear predictor of rows clamped to their bounds. Sampling errors are robust (a sandwich), "
    "privacy is the noise of every step, misfit what clipping may hide and what the rows leave undecided."
)
#: Limits beyond which an estimate is reported, in standard errors and in size: skew (in σ), tails (relative change of
#: the variance), curvature and heteroscedasticity.
SKEW, TAILS, LINEARITY = (3.5, 0.05), (2.8, 0.08), (3.5, 0.1)
#: Limits of tails if the histogram of the scores' lengths shows them too.
BOTH_TAILS = (1.8, 0.08)
#: The fraction of the bounds that holds nearly all values if they are called too wide.
NARROW = "1/16"


def diagnostics(
    theta: Parameters, schema: Schema, response: str, mostly_zero: Collection[str] = ()
) -> list[Diagnostic]:
    """All diagnostics. ``schema`` is that of the columns in use, ``response`` the response's name; columns that are
    ``mostly_zero`` because a formula makes them so get no comment on their bounds.
    """
    if theta.present.value < max(TUNING.rarely_seen, 3 * theta.present.error):
        message = f"Nearly all values of the response {response} are missing or no numbers: the fit is noise."
        advice = "Check how its entries are written (decimal commas, units, texts)."
        return [Diagnostic("missing", "warning", message, advice)]
    return [
        *_columns(theta, schema, mostly_zero),
        *_response(theta, schema, response),
        *_unidentified(theta, schema),
        *_errors(theta, schema, response),
        *_linearity(theta),
        *_clipping(theta),
    ]


def _named(schema: Schema, which: Iterable[bool]) -> tuple[str, ...]:
    return tuple(schema.names[j] for j in np.flatnonzero(list(which)))


def _column_name(schema: Schema, j: int) -> str:
    """The name of a coordinate's column; a level's own name is ``column=level``."""
    return schema.names[j].split("=", 1)[0] if schema.level[j] >= 0 else schema.names[j]


def _two_valued(schema: Schema) -> NDArray[np.bool_]:
    """Which coordinates are levels, or columns of 0 and 1."""
    return np.asarray((schema.level >= 0) | ((schema.middle == 0.5) & (schema.half == 0.5)))


def _clear(estimate: Estimate, limits: tuple[float, float]) -> bool:
    """Whether the estimate exceeds both limits: in standard errors, and in size."""
    return abs(estimate.value) > max(limits[0] * estimate.error, limits[1])


def _columns(theta: Parameters, schema: Schema, mostly_zero: Collection[str]) -> Iterator[Diagnostic]:
    """Levels that are too rare, columns at a bound, and bounds that are too wide."""
    two_valued = _two_valued(schema)
    numeric = ~two_valued & ~np.isin(schema.names, list(mostly_zero))
    end = ((theta.high_end[:-1] > 0.5) | (theta.low_end[:-1] > 0.95)) & numeric
    wide = np.array(theta.crowded[:-1], dtype=bool) & ~end & numeric
    rare = np.array(theta.rare, dtype=bool) & two_valued & (theta.seen > TUNING.rarely_seen)
    return column_diagnostics(_named(schema, rare), _named(schema, end), _named(schema, wide), f"less than {NARROW}")


def _binary(theta: Parameters, schema: Schema) -> bool:
    """Whether the response has bounds 0 and 1 and nearly all of its values there."""
    return bool(
        schema.y_middle == schema.y_half == 0.5 and theta.low_end[-1] + theta.high_end[-1] > TUNING.binary_response
    )


def _response(theta: Parameters, schema: Schema, name: str) -> Iterator[Diagnostic]:
    low, high = theta.low_end[-1], theta.high_end[-1]
    if theta.present.value + 2 * theta.present.error < 1 - TUNING.often_missing:
        part = 100 * (1 - theta.present.value)
        message = f"About {part:.0f} % of the values of the response {name} are missing: their rows contribute nothing."
        advice = "Check whether what decides that a value is missing is related to the response."
        yield Diagnostic("often-missing", "warning", message, advice)
    if _binary(theta, schema):
        return
    if high > 0.5 or low > TUNING.crowded:
        side = "upper" if high > 0.5 else "lower"
        message = (
            f"Most values of the response {name} are at its {side} bound: slopes, sigma and R² are of clamped values."
        )
        yield Diagnostic("response-at-bound", "warning", message, "Check the unit, and whether the bounds hold it.")
    elif theta.crowded[-1]:
        message = (
            f"Nearly all values of the response {name} lie in less than {NARROW} of its bounds: slopes, sigma and R² "
            "may be those of the most common values alone."
        )
        yield Diagnostic("wide-bounds", "warning", message, "Narrower bounds would help.")


def _unidentified(theta: Parameters, schema: Schema) -> Iterator[Diagnostic]:
    """Slopes that the rows leave unidentified, with their columns."""
    rare, two_valued = np.array(theta.rare, dtype=bool), _two_valued(schema)
    constant = rare & np.array(theta.crowded[:-1], dtype=bool) & (theta.seen > TUNING.rarely_seen) & ~two_valued
    if names := _named(schema, constant):
        message = (
            f"Noise hides the spread of the {list_columns(names)}: the slope is unknown, and other slopes are those of "
            "a fit without it."
        )
        advice = "Leave it out if it is constant, or narrow its bounds if they are much too wide."
        yield Diagnostic("collinear", "warning", message, advice, names)
    if names := _named(schema, rare & ~constant & ~(two_valued & (theta.seen > TUNING.rarely_seen))):
        message = f"Nearly all values of the {list_columns(names)} are missing: the slope is unknown."
        advice = "Check the spelling of its levels and its bounds, or leave the column out."
        yield Diagnostic("missing", "warning", message, advice, names)
    noise = 2 * theta.present.error  # of a share; of that of the responses later answers know more
    often = np.flatnonzero((theta.seen + 2 * noise < 1 - TUNING.often_missing) & ~rare)
    if names := tuple(dict.fromkeys(_column_name(schema, int(j)) for j in often)):
        message = f"Over a fifth of the values of the {list_columns(names)} are missing: expected values replace them."
        advice = (
            "Slopes are biased if the response decides whether a value is missing: compare with a fit without them."
        )
        yield Diagnostic("often-missing", "warning", message, advice, names)
    if names := _named(schema, theta.collinear):
        message = (
            f"The {list_columns(names)} are nearly collinear, or noise hides their separate effects: their slopes are "
            "hardly identified."
        )
        advice = "Leave one of them out, merge rare levels, or use more rows; intervals are wide for them."
        if len(names) == 1 and schema.level[schema.names.index(names[0])] >= 0:
            message = f"Few rows have {list_names(names)}: its effect is hardly identified."
            advice = "Merge it with another level; its interval is wide."
        elif len(names) == 1:
            message = f"The {list_columns(names)} is nearly constant: its slope is hardly identified."
            advice = "Leave it out, or narrow its bounds if they are much too wide."
        yield Diagnostic("collinear", "warning", message, advice, names)


def logarithm_may_help(schema: Schema, name: str) -> bool:
    """Whether to propose a logarithm of the response: its bounds are not negative and far apart, and its name does not
    say that it is a logarithm.

    >>> schema = Schema.of(["x"], {"x": (0.0, 1.0)}, {}, y_bounds=(0.0, 500.0))
    >>> logarithm_may_help(schema, "cost"), logarithm_may_help(schema, "log_cost")
    (True, False)
    """
    low, high = schema.y_middle - schema.y_half, schema.y_middle + schema.y_half
    word = name.lower()
    return low >= 0 and high > 25 * max(low, 1.0) and not (word.startswith(("log", "ln")) or "log" in word)


def _errors(theta: Parameters, schema: Schema, name: str) -> Iterator[Diagnostic]:
    """Errors that are far from normal: a warning, but a note for a 0/1 response, whose errors never are normal."""
    if not theta.shape:
        return
    skew, tails = theta.shape.skew, theta.shape.tails
    limit = TAILS if theta.shape.expected_tails < TAILS[1] else BOTH_TAILS
    long = tails.value > 0 and _clear(tails, limit)
    if not long and not _clear(skew, SKEW):
        return
    more = f"by {100 * tails.value:+.0f} % (standard error {100 * tails.error:.0f})"
    message = (
        f"Errors are far from normal: large ones change their mean by {skew.value:+.2f} σ (standard error "
        f"{skew.error:.2f}) and their variance {'more than tenfold' if tails.value > 9 else more}."
    )
    part = " in part, as rows far out may carry a slope" if long else ""
    advice = f"Standard errors allow for it{part}; prediction intervals do not."
    if _binary(theta, schema):
        advice += " Logistic regression suits a response of 0 and 1."
    elif logarithm_may_help(schema, name):
        advice = "The logarithm of the response may fit better."
    yield Diagnostic("non-normal-errors", "note" if _binary(theta, schema) else "warning", message, advice)


def _with_error(estimate: Estimate) -> str:
    return f"{estimate.value:+.2f}, standard error {estimate.error:.2f}"


def _linearity(theta: Parameters) -> Iterator[Diagnostic]:
    """A curved relation, and errors that grow or shrink with the fitted value."""
    if not theta.linearity:
        return
    curved, unequal = theta.linearity
    if _clear(curved, LINEARITY):
        where, size = "above" if curved.value > 0 else "below", _with_error(curved)
        message = f"The relation is curved: responses lie {where} the fit at both ends of the fitted values ({size})."
        advice = "A squared column or a transformation may be missing; slopes are those of the best linear predictor."
        yield Diagnostic("curvature", "warning", message, advice)
    if _clear(unequal, LINEARITY):
        where, size = "high" if unequal.value > 0 else "low", _with_error(unequal)
        message = f"Errors are larger where the fitted value is {where} ({size}). Standard errors allow for it."
        yield Diagnostic("heteroscedastic", "note", message)


def _clipping(theta: Parameters) -> Iterator[Diagnostic]:
    """Intervals that are wide because clipping may hide part of the relation."""
    parts = [np.diag(part)[1:] for part in (theta.sampling, theta.privacy, theta.misfit)]
    identified = np.array([not (a or b) for a, b in zip(theta.collinear, theta.rare, strict=True)], dtype=bool)
    share = (parts[2] / np.maximum(sum(parts), 1e-300))[identified]
    if identified.any() and float(np.median(share)) > 0.5:
        part = 100 * float(np.median(share))
        message = f"Clipping may hide part of the relation: it makes {part:.0f} % of the variance."
        yield Diagnostic("clipping", "note", message, "More rows or a larger epsilon allow wider clips.")


def cost(theta: Parameters, plan: Prediction | None) -> str:
    """A sentence on the loss of R² from privacy, the mean squared error of a prediction over the response's variance,
    and on the plan if it predicted less; empty without privacy.
    """
    if not theta.privacy.any():
        return ""
    row = np.append(1.0, theta.mean)
    products = np.outer(row, row)
    products[1:, 1:] += theta.covariance
    lost = float(np.sum(products * theta.privacy)) / theta.y_spread**2
    sentence = f"By these errors privacy costs about {lost:.2g} of R²"
    if plan is None or not math.isfinite(lost) or lost <= loss_on_tables(plan.median)[1]:
        return f"{sentence}."
    return (
        f"{sentence}, more than the {plan.median:.2g} that the plan predicted: values are missing, columns are nearly "
        "collinear or lie in a small part of their bounds, or the relation is not linear."
    )


def notes(records: Sequence[Diagnostic], *more: str) -> str:
    """The note of a summary: the meaning of the errors, and every diagnostic."""
    return " ".join(filter(None, (NOTE, *more, *map(str, records))))


def response_name(estimator: Any) -> str:
    return str(getattr(estimator, "y_name_", None) or "y")
