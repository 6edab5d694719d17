"""The rounding that a sensitivity is stated to include, from the lemma of :func:`dpem.tables.base.slack`."""

ROUNDOFF = 2.0**-53


def with_slack(change: float, size: float, n: int) -> float:
    """The sensitivity of a mean over n rows, at most one chunk, that are added in float64.

    ``change`` is what replacing a row moves the exact sum by, ``size`` the most that a row contributes.

    >>> with_slack(2.0, 1.0, 100) > 2.0 / 100
    True
    """
    block, tasks, chunks = (n + 3) * n, 2 * (n / 256 + 1) * n, 3 * n
    regrouped = 2 * 2**16 * n
    return (change + (2 * (block + tasks + chunks) + regrouped) * ROUNDOFF * size) / n
