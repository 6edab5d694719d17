"""What is said of a linear regression's errors beside its summary."""

from __future__ import annotations

NOTE = (
    "Analytic: the sampling error of clipped least squares and the noise of every step, carried through the steps. "
    "They hold if the rows follow the model. sigma is that of residuals clipped at 3 to 8 standard deviations, as the "
    "plan says, and undone as for normal errors: of heavier tails it holds no more than that."
)
#: Errors are told to be far from normal if they are by so many standard errors, and their mean by such a part of σ or
#: their variance by such a part of itself.
SURE, SKEW_TOLD, TAILS_TOLD = 3.0, 0.05, 0.08


def far_from_normal(shape: tuple[float, ...]) -> str:
    """What paid answers tell of the errors' skew and tails, or nothing.

    >>> far_from_normal((0.01, 0.02, 0.03, 0.02))
    ''
    """
    if not shape:
        return ""
    skew, of_skew, tails, of_tails = shape
    if abs(skew) <= max(SURE * of_skew, SKEW_TOLD) and abs(tails) <= max(SURE * of_tails, TAILS_TOLD):
        return ""
    return (
        f"Errors are far from normal (their mean is off by {skew:+.2f} σ, give or take {of_skew:.2f}; a wider "
        f"clip changes their variance by {100 * tails:+.0f} %, give or take {100 * of_tails:.0f}): slopes and sigma "
        "describe most rows and not the tails; the logarithm of the response may be what is meant."
    )
