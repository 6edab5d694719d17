"""A figure of the predictions of plans against ε or the number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from sklearn.base import clone

from dpem.display.base import BLUE, Display, panels, wrap_label
from dpem.fitting.sequence import PrivateFit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)


class PlanDisplay(Display):
    """The predictions of plans: the median, and the interval of 90 % of fits.

    Attributes
    ----------
    ax_, figure_ : Axes, Figure
        Where it was drawn.
    """

    @classmethod
    def from_estimator(
        cls,
        estimator: PrivateFit,
        n: int | Sequence[int],
        d: int | None = None,
        *,
        epsilon: Sequence[float] = EPSILONS,
        ax: Axes | None = None,
    ) -> Self:
        """Plan an estimator, fitted or not, for several ε or several numbers of rows.

        Parameters
        ----------
        estimator : estimator
            Its own ε is used if ``n`` is a sequence.
        n : int or sequence of int
            The number of rows; for a sequence, the figure shows the prediction against the number of rows.
        d : int, optional
            The number of columns, if the estimator's bounds and levels do not name them.
        epsilon : sequence of float
            The ε to plan for, if ``n`` is one number.
        ax : Axes, optional
            Where to draw; new axes if not given.
        """
        if not hasattr(estimator, "plan"):
            raise ValueError(f"estimator must have a plan method, got {type(estimator).__name__}.")
        if isinstance(n, Sequence | np.ndarray):
            x_label, plans = "rows", [(float(rows), estimator.plan(int(rows), d)) for rows in n]
        else:
            x_label = "ε"
            plans = [(float(value), clone(estimator).set_params(epsilon=value).plan(n, d)) for value in epsilon]
        predictions = [(x, plan.prediction) for x, plan in plans if plan.prediction]
        if not predictions:
            raise ValueError(f"estimator must make predictions; {type(estimator).__name__} makes none to draw.")
        x, median, low, high = np.array([(x, p.median, p.low, p.high) for x, p in predictions]).T
        (ax,) = panels(None if ax is None else [ax], 1, 5.2, 3.4)
        ax.fill_between(x, low, high, color=BLUE, alpha=0.2, linewidth=0)
        ax.plot(x, median, "o-", color=BLUE, markersize=4)
        ax.set_xscale("log")
        if low.min() > 0:
            ax.set_yscale("log")
        ax.set_xlabel(x_label)
        ax.set_title(wrap_label(predictions[0][1].quantity, 52), fontsize="medium", loc="left")
        return cls([ax])
