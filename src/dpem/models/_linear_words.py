"""What is said of a linear regression's errors beside its summary."""

from __future__ import annotations

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
    return (
        f"Errors are far from normal (their mean is off by {skew:+.2f} σ, give or take {of_skew:.2f}; a wider "
        f"clip changes their variance by {100 * tails:+.0f} %, give or take {100 * of_tails:.0f}): slopes and sigma "
        "describe most rows and not the tails; the logarithm of the response may be what is meant."
    )


#: A line is told to bend by so many standard errors, and so much.
BEND_SURE, BEND_TOLD = 3.5, 0.1


def bends(bend: tuple[float, ...]) -> str:
    """What the fit check tells of a line that bends, or nothing.

    >>> bends((0.05, 0.06))
    ''
    """
    if not bend or abs(bend[0]) <= max(BEND_SURE * bend[1], BEND_TOLD):
        return ""
    where = "above the line at both of its ends" if bend[0] > 0 else "below the line at both of its ends"
    return (
        f"Responses lie {where} ({bend[0]:+.2f}, give or take {bend[1]:.2f}): a square or a logarithm may be missing. "
        "Slopes are those of a line through most rows, and their intervals are wider for it."
    )
