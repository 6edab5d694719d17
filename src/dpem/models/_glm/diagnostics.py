"""What a generalised linear fit warns of, from released numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpem.fitting.diagnostics import Diagnostic
from dpem.tables.bounds import listed

#: A coefficient of which so much comes from the prior is not determined by the rows.
FROM_PRIOR = 0.5
#: Two classes are called separated if the columns explain so much of the response's variance.
SEPARATED = 0.9
#: Below this share of complete rows it is said how many were left out, and below the second it is a warning.
MANY_INCOMPLETE, MOST_INCOMPLETE = 0.95, 0.5


def diagnostics(theta: Any, model: Any, plan: Any) -> list[Diagnostic]:
    """The diagnostics of a fit."""
    names, free = model.schema.names, model.free[1:] - 1
    indicator = (model.schema.middle == 0.5) & (model.schema.half == 0.5)  # of 0 and 1, mostly one of them
    found = []
    if rare := [names[j] for j in free if theta.rare[j]]:
        found.append(
            Diagnostic(
                "rare-level",
                "warning",
                f"Too few rows have {listed(rare)} for this budget: the effect is hardly known.",
                "Check the spelling of the levels, or pool rare ones.",
                tuple(rare),
            )
        )
    collinear = [names[j] for j in free if theta.collinear[j]]
    if len(collinear) > 1 and np.isfinite(plan.epsilon):
        found.append(
            Diagnostic(
                "collinear",
                "warning",
                f"The {listed(collinear)} are nearly collinear: noise hides how much the rows tell of their own "
                "coefficients, whose intervals may be too short.",
                "Leave one of them out, or write a formula if one is computed from another, as in x + I(x**2).",
                tuple(collinear),
            )
        )
    weak = [names[j] for j, part in zip(free, theta.prior_part[1:], strict=True) if part > FROM_PRIOR]
    weak = [name for name in weak if name not in rare]
    if weak:
        found.append(
            Diagnostic(
                "few-rows",
                "warning",
                f"The rows hardly determine the coefficients of {listed(weak)} at this price: more than half of each "
                "estimate is the prior's pull towards 0.",
                "More rows, a larger epsilon or fewer columns would help.",
                tuple(weak),
            )
        )
    if theta.explained > SEPARATED or not theta.converged:
        share = f"The columns explain {100 * theta.explained:.0f} % of the variance of the response"
        how = share if theta.converged else "The likelihood has no maximum"
        found.append(
            Diagnostic(
                "separation",
                "warning",
                f"{how}: the columns may separate the two classes, or one class may have next to no rows. Coefficients "
                "are then too small in size and their intervals too short.",
                "Leave out the column that gives the response away, or pool rare classes.",
            )
        )
    crowded = [names[j] for j in free if theta.crowded[j] and not indicator[j]]
    if crowded and np.isfinite(plan.epsilon):
        found.append(
            Diagnostic(
                "wide-bounds",
                "warning",
                f"More than 90 % of the values of {listed(crowded)} lie in 1/32 of the bounds.",
                "Narrower bounds would help: values beyond them are clipped.",
                tuple(crowded),
            )
        )
    if ends := [names[j] for j in free if theta.at_bound[j] and not indicator[j]]:
        found.append(
            Diagnostic(
                "at-bound",
                "warning",
                f"Most values of {listed(ends)} are at a bound.",
                "Check the unit and the bounds.",
                tuple(ends),
            )
        )
    if theta.complete < MANY_INCOMPLETE:
        few = theta.complete < MOST_INCOMPLETE
        found.append(
            Diagnostic(
                "incomplete-rows",
                "warning" if few else "note",
                f"About {100 * theta.complete:.0f} % of the rows are complete. The others contribute nothing.",
                f"What is not among the declared levels{model.family.also_missing} counts as missing: check the "
                "spelling."
                if few
                else "Coefficients are right if whether a value is missing does not depend on the response.",
            )
        )
    return found
