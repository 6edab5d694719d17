"""Coverage and width of a linear regression's intervals on simulated rows.

    python -m studies.linear_regression_simulated laws --n 20000 --fits 20
    python -m studies.linear_regression_simulated levels --levels 8 12 24 50 --n 20000 --fits 20 [--unequal]
    python -m studies.linear_regression_simulated least --n 20000

``laws``: five correlated columns; errors are normal, gamma, t with 3 degrees of freedom or heteroscedastic, or every
other column is binary. ``levels``: a factor of which one level, the baseline, is lower by 1, beside three numeric
columns. ``least``: how narrow intervals for five columns could be. Everything, scaling too, is inside (ε, 1e-6).
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import pandas as pd

from dpem import DPLinearRegression
from dpem.models.linear_regression.clipping import NO_TAILS, normal_lengths, optimal_clip
from dpem.models.linear_regression.tuning import TUNING

LAWS = ("normal", "gamma", "t3", "heteroscedastic", "binary")
SLOPES = np.array([0.8, -0.5, 0.3, 0.0, 0.2])


def simulated_rows(law: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = rng.standard_normal((n, 5))
    for j in range(1, 5):
        x[:, j] = 0.5 * x[:, j - 1] + np.sqrt(0.75) * x[:, j]
    if law == "binary":
        x[:, ::2] = x[:, ::2] > 0.8
    if law == "gamma":
        e = rng.gamma(2, size=n) / np.sqrt(2) - np.sqrt(2)
    elif law == "t3":
        e = rng.standard_t(3, n) / np.sqrt(3)
    else:
        e = rng.standard_normal(n) * (np.sqrt(0.3 + 0.7 * x[:, 0] ** 2) if law == "heteroscedastic" else 1.0)
    return x, 2 + x @ SLOPES + e


def robust_errors(A: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Standard errors of least squares, heteroscedasticity allowed for."""
    inverse = np.linalg.inv(A.T @ A)
    e = y - A @ (inverse @ (A.T @ y))
    return np.sqrt(np.diag(inverse @ ((A * (e**2)[:, None]).T @ A) @ inverse))


def laws(n: int, fits: int, epsilon: float) -> None:
    for law in LAWS:
        held, ratio = [], []
        for seed in range(fits):
            x, y = simulated_rows(law, n, np.random.default_rng(7000 + seed))
            model = DPLinearRegression(
                epsilon=epsilon, delta=1e-6, bounds=(-8, 8), y_bounds=(-15, 20), random_state=seed
            ).fit(x, y)
            table, truth = model.summary().iloc[:6], np.append(2, SLOPES)
            held.append((table.lower <= truth) & (truth <= table.upper))
            ratio.append(table.standard_error / robust_errors(np.column_stack([np.ones(n), x]), y))
        print(f"{law}: held {100 * np.mean(held):.1f} %, SE ratio {np.median(ratio):.2f}", flush=True)


def levels(count: int, n: int, fits: int, epsilon: float, unequal: bool) -> None:
    held, ratio, exact = [], [], []
    names = [f"l{k}" for k in range(count)]
    for seed in range(fits):
        rng = np.random.default_rng(10_000 + seed)
        share = 1 / np.arange(1, count + 1) ** (0.7 if unequal else 0.0)
        level = rng.choice(count, n, p=rng.permutation(share / share.sum()))
        X = pd.DataFrame({"level": [names[k] for k in level]})
        y = np.where(level == 0, -1.0, 0.0) + rng.normal(size=n)
        for j in range(3):
            X[f"x{j}"] = rng.normal(size=n)
            y = y + 0.3 * X[f"x{j}"].to_numpy()
        settings = {"bounds": {f"x{j}": (-6, 6) for j in range(3)}, "y_bounds": (-8, 8), "levels": {"level": names}}
        model = DPLinearRegression(epsilon=epsilon, delta=1e-6, random_state=seed, **settings).fit(X, y)
        table = model.summary().loc[[f"level={name}" for name in names[1:]]]
        held.append(np.mean((table.lower <= 1) & (table.upper >= 1)))
        rows = np.bincount(level, minlength=count)
        ratio.append(np.median(table.standard_error / np.sqrt(1 / rows[1:] + 1 / rows[0])))
        A = np.column_stack([np.ones(n), X[[f"x{j}" for j in range(3)]], np.eye(count)[level][:, 1:]])
        inverse = np.linalg.inv(A.T @ A)
        off = (inverse @ (A.T @ y))[4:] - 1
        exact.append(np.mean(np.abs(off) < 1.96 * np.sqrt(np.diag(inverse)[4:])))
    print(
        f"{count} levels: {_coverage(held)}, SE ratio {np.median(ratio):.2f}; least squares {_coverage(exact)}",
        flush=True,
    )


def _coverage(held: list[float]) -> str:
    """Coverage in words. All effects share the error of the baseline, so in some fits most intervals miss."""
    few = f"worst fit {100 * min(held):.0f}, {100 * np.mean(np.array(held) < 0.8):.1f} % of fits below 80"
    return f"held {100 * np.mean(held):.1f} % ({few})"


def least(n: int, epsilon: float) -> None:
    """The SE ratio of one score with the whole price, at the best clip, for normal rows and errors."""
    plan = DPLinearRegression(epsilon=epsilon, delta=1e-6, bounds=(-8, 8), y_bounds=(-15, 20)).plan(n, 5)
    rho, rows, usual = plan.price.rho, normal_lengths(5), TUNING.tails_fitted**2 + TUNING.tails_slope_sd**2
    for known, unknown in (("symmetric", 0.0), ("without tails", usual)):
        clips = optimal_clip(n, rho, rows, tails=NO_TAILS, direction_variance=unknown)
        noise = (2 * clips.norm) ** 2 / (2 * rho * n * clips.kappa**2)
        misfit = n * unknown * float(NO_TAILS.excess(clips.norm, rows).mean) ** 2 / rows.k
        print(f"errors known to be {known}: SE ratio {np.sqrt(clips.sampling + noise + misfit):.2f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["laws", "levels", "least"])
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--fits", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--levels", type=int, nargs="+", default=[8, 12, 24, 50])
    parser.add_argument("--unequal", action="store_true")
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if options.what == "laws":
            laws(options.n, options.fits, options.epsilon)
        elif options.what == "least":
            least(options.n, options.epsilon)
        else:
            for count in options.levels:
                levels(count, options.n, options.fits, options.epsilon, options.unequal)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
