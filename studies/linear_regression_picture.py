"""Coefficients of log wages and their intervals, private against least squares, and how a paper would tell of them.

python -m studies.linear_regression_picture [--out docs/img]
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from studies.linear_regression import DELTA, FIRST, fit, wage_table

PRIVATE, PLAIN = "#1b6ca8", "#c8553d"


def drawn(model, plain, out):
    """Each coefficient in standard errors of least squares, from the least-squares estimate."""
    errors, unit = model._errors, plain.standard_errors_
    figure, axis = plt.subplots(figsize=(8, 4.2))
    places = np.arange(len(unit))
    off, wide = (errors.estimate - plain._errors.estimate) / unit, 1.96 * errors.total / unit
    axis.errorbar(places - 0.12, 0 * off, 1.96 + 0 * wide, fmt="s", color=PLAIN, ms=4, label="least squares")
    axis.errorbar(places + 0.12, off, wide, fmt="o", color=PRIVATE, ms=4, label=f"private, ε = {model.epsilon:g}")
    axis.set_xticks(places, errors.names, rotation=30, ha="right")
    axis.set_ylabel("standard errors of least squares")
    axis.axhline(0, color="0.8", lw=0.8, zorder=0)
    axis.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(out / "linear-regression.png", dpi=100)


def told(model, n):
    """The paragraph."""
    errors, (low, high) = model._errors, 100 * model.conf_int().T
    j = errors.names.index("education")
    return (
        f"Log weekly wages of {n:,} men (CPS 1988) were regressed on schooling, experience and its square, ethnicity, "
        f"residence, region and part-time work under (ε, δ) = ({model.epsilon:g}, {DELTA:g}) differential privacy, the "
        f"unit of protection being one man's row. A year of schooling goes with {100 * errors.estimate[j]:.1f} % "
        f"higher wages (95 % interval {low[j]:.1f} to {high[j]:.1f}; standard error {100 * errors.total[j]:.2f}, of "
        f"which sampling {100 * errors.sampling[j]:.2f} and privacy {100 * errors.privacy[j]:.2f}). The fit check, "
        f"paid within the same ε, finds {100 * model.r_squared_:.0f} % of the variance explained."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/img"))
    out = parser.parse_args().out
    X, y, known = wage_table()
    model, plain = fit(X, y, 1.0, FIRST, **known), fit(X, y, math.inf, **known)
    drawn(model, plain, out)
    print(told(model, len(y)))
    print(model._errors.note)


if __name__ == "__main__":
    main()
