"""What is said of a linear regression's errors beside its summary."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpem.fitting.plan import Prediction
from dpem.models.linear_regression.prediction import REAL
from dpem.queries.histograms import BINS

NOTE = (
    "Analytic: the sampling error of clipped least squares and the noise of every step, carried through the steps. "
    "They hold if the rows follow the model. sigma is that of residuals clipped at 3.5 to 8 standard deviations, as "
    "the plan says, and undone as for normal errors; where paid answers show longer tails, its interval and that of "
    "the intercept are wider by what may lie beyond the clip."
)
#: Errors are told to be far from normal if their mean is off by so many standard errors and such a part of σ, or their
#: variance is more with a wider clip, by so many standard errors and such a part of itself.
SKEW_SURE, SKEW_TOLD, TAILS_SURE, TAILS_TOLD = 3.5, 0.05, 2.8, 0.08


def far_from_normal(shape: tuple[float, ...]) -> str:
    """What paid answers tell of the errors' skew and tails, or nothing.

    >>> far_from_normal((0.01, 0.02, 0.03, 0.02))
    ''
    """
    if not shape:
        return ""
    skew, of_skew, tails, of_tails = shape
    if abs(skew) <= max(SKEW_SURE * of_skew, SKEW_TOLD) and tails <= max(TAILS_SURE * of_tails, TAILS_TOLD):
        return ""
    more = f"changes their variance by {100 * tails:+.0f} %, give or take {100 * of_tails:.0f}"
    return (
        f"Errors are far from normal (their mean is off by {skew:+.2f} σ, give or take {of_skew:.2f}; a wider "
        f"clip {'makes their variance more than ten times as large' if tails > 9 else more}): slopes and sigma "
        "describe most rows and not the tails; the logarithm of the response may be what is meant."
    )


#: Slopes are told to be undecided if so much of their variance comes from that.
HIDDEN = 0.5


def undecided(names: list[str]) -> str:
    """What is said of columns whose slopes rows hardly decide, or nothing.

    >>> undecided(["wins", "losses"]).split(":")[0]
    'Rows hardly decide the slopes of wins, losses'
    """
    if not names:
        return ""
    one = "the slope" if len(names) == 1 else "the slopes"
    return (
        f"Rows hardly decide {one} of {', '.join(names)}: such a column is nearly a sum of others, or nearly constant. "
        "Intervals are wide for it; leave out one that the others tell."
    )


def crowded(names: list[str], response: bool) -> str:
    """What is said of columns, and of a response, that have nearly all rows in one bin, or nothing.

    >>> crowded([], False)
    ''
    """
    all_of = [*(["the response"] if response else []), *names]
    if not all_of:
        return ""
    less = " R², sigma and slopes may be those of the most common responses alone." if response else ""
    return (
        f"Nine of ten rows lie in one {BINS}nd of the bounds of {', '.join(all_of)}: what is beside them is hardly "
        f"seen. Narrower bounds, or a logarithm, would tell more.{less}"
    )


def hardly_seen(theta: Any, schema: Any) -> list[str]:
    """What paid answers tell of columns that lie at an end of their bounds, of bounds that are too wide, and of slopes
    that rows do not decide; ``schema`` is that of the columns in use.
    """
    indicator = (schema.middle == 0.5) & (schema.half == 0.5)
    end = (theta.high_end > 0.5) | (theta.low_end > 0.95)
    wide = np.array(theta.crowded[:-1], dtype=bool) & ~end
    hidden = theta.undecided > HIDDEN * np.diag(theta.sampling + theta.privacy)[1:]
    which = (end & ~indicator, wide & ~indicator, hidden)
    odd, far, unclear = ([schema.names[j] for j in np.flatnonzero(part)] for part in which)
    told = f"most rows lie at an end of the bounds of {', '.join(odd)}: in another unit?" if odd else ""
    return [sentence for sentence in (told, crowded(far, theta.crowded[-1]), undecided(unclear)) if sentence]


#: That rows do not follow the line is told if a sign of it is so many standard errors, and so much.
MISFIT_SURE, MISFIT_TOLD = 3.5, 0.1


def bends(misfit: tuple[float, ...]) -> str:
    """What the fit check tells of a line that bends, or nothing.

    >>> bends((0.05, 0.06, 0.0, 0.1))
    ''
    """
    if not misfit or abs(misfit[0]) <= max(MISFIT_SURE * misfit[1], MISFIT_TOLD):
        return ""
    where = "above the line at both of its ends" if misfit[0] > 0 else "below the line at both of its ends"
    return (
        f"Responses lie {where} ({misfit[0]:+.2f}, give or take {misfit[1]:.2f}): a square or a logarithm may be "
        "missing. Slopes are those of a line through most rows, and their intervals are wider for it."
    )


def uneven(misfit: tuple[float, ...]) -> str:
    """What the fit check tells of errors that are larger at one end of the line, or nothing.

    >>> uneven((0.0, 0.06, 0.5, 0.1)).split(" (")[0]
    'Errors are larger where the fitted value is high'
    """
    if not misfit or abs(misfit[2]) <= max(MISFIT_SURE * misfit[3], MISFIT_TOLD):
        return ""
    where = "high" if misfit[2] > 0 else "low"
    return (
        f"Errors are larger where the fitted value is {where} ({misfit[2]:+.2f}, give or take {misfit[3]:.2f}): "
        "sampling errors suppose that they are not, and intervals of slopes are wider for what clipping does to them."
    )


def cost(theta: Any, told: Prediction | None) -> str:
    """What privacy costs in R² by the errors of the fit, the mean square of what they do to a prediction over the
    response's variance, and whether the plan thought so; nothing without privacy.
    """
    if not theta.privacy.any():
        return ""
    row = np.append(1.0, theta.mean)
    products = np.outer(row, row)
    products[1:, 1:] += theta.covariance
    lost = float(np.sum(products * theta.privacy)) / theta.y_spread**2
    said = f"By these errors privacy costs about {lost:.2g} of R²"
    if told is None or lost <= REAL * told.median:
        return f"{said}."
    return (
        f"{said}, more than the {told.median:.2g} that the plan expected, and than on most real tables: responses or "
        "entries are missing, columns are nearly sums of others or lie in a small part of their bounds, or rows do not "
        "follow the line."
    )
