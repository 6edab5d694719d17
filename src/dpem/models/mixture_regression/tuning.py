"""The numbers of the model that studies have set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Numbers that studies have set, not the user: ``python -m studies.mixture_regression targets`` with seeds below
    1000, unless another is named.

    Attributes
    ----------
    sizes, moments, regression, directions, cells, check : float
        Shares of ρ: scales of the columns, second moments, scores of one regression, directions in which the spread of
        the residuals varies, counts in cells, the fit check. The scores of the components get the rest.
    scores, newton : int
        Score queries with EM on surrogate rows, and with Newton steps after them.
    growth : float
        The price of a score query over the price of the one before it.
    nonlinear : float
        The constant c of :mod:`.scores`: the error of a score's linear form, per standard error of its distance
        (``coverage`` with seeds 800 to 807).
    prior : float
        The standard errors of the components on surrogate rows, before their scores are combined, in standard errors of
        one row.
    near : float
        The largest decrease of the surrogate rows' mean log-likelihood by the Newton steps. ``scores``, ``newton`` and
        ``near`` were set on ``targets`` and ``coverage`` with seeds 840 to 849, and on the tuning half of ``public``.
    rows : int
        Surrogate rows.
    cell_kappa, score_kappa : pairs of floats
        Ranges of κ, the weight of the base rows, for the counts and for the scores.
    effective : float
        Surrogate rows are drawn again when their effective number is below this fraction of all.
    levels : tuple of float
        Quantiles of the scores' norms from which the radius of clipping is chosen.
    floor : float
        The least residual spread, in spreads of the response.
    restarts : int
        Random starts of EM on the surrogate rows after each answer. ``rows`` to ``restarts`` were set on the tuning
        half of ``studies.mixture_regression public`` and on ``targets``.
    widening : float
        The factor of standard errors due to privacy over their linear form: expected scores are those of normal
        columns (``coverage`` with seeds 800 to 839).
    starts : int
        Random starts without privacy, beside those of the counts.
    constant : float
        A column is nearly constant if its spread is below this multiple of the least spread that the noise lets us see
        (the tuning half of ``studies.mixture_regression public``).
    narrow : float
        A component is reported as a point mass if its residual spread is below this fraction of the largest.
    responses : int
        The bounds of the response are reported as wide if this many responses there would outweigh the fit check's lead
        (the tuning half and 26 tables of the other one).
    unstable : float
        Components are reported as unstable if their errors put more than this share of the rows into another one (the
        tuning half of ``studies.mixture_regression public``).
    """

    sizes: float = 0.08
    moments: float = 0.13
    regression: float = 0.06
    directions: float = 0.12
    cells: float = 0.12
    check: float = 0.08
    scores: int = 6
    newton: int = 2
    growth: float = 1.2
    nonlinear: float = 0.5
    prior: float = 0.3
    near: float = 0.03
    rows: int = 4000
    cell_kappa: tuple[float, float] = (1.0, 1e4)
    score_kappa: tuple[float, float] = (10.0, 160.0)
    effective: float = 0.15
    levels: tuple[float, ...] = (0.9,)
    floor: float = 0.02
    restarts: int = 2
    widening: float = 1.4
    starts: int = 6
    constant: float = 1.1
    narrow: float = 0.02
    responses: int = 4
    unstable: float = 0.025


TUNING = Tuning()
