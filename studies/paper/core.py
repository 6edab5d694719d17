"""The improved and the paper's method from a start within 1/8 of the truth, with non-private EM beside them.

    python -m studies.paper.core [--reps 20]

The paper's method runs twice: with the settings it prescribes (N₀ ≈ log n, T ≈ √log n, η = 0.5), and with settings
more favourable to it: one batch and T = 1 in high dimension (which barely leaves the start, whose own error is 0.125),
and T = σ√log n in low dimension.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from studies.paper.settings import Changes, Setting, repeat

SETTINGS = (
    Setting("symmetric-mixture", n=4000, d=1000, s=10, epsilon=0.5, target=0.10),
    Setting("symmetric-regression", n=5000, d=1000, s=10, epsilon=0.6, target=0.08),
    Setting("missing-regression", n=5000, d=1000, s=10, epsilon=0.6, missing=0.1, target=0.08),
    Setting("symmetric-mixture", n=5000, d=10, s=10, epsilon=0.5, dense=True, target=0.035),
)
DISTANCE = 1 / 8


def fits(setting: Setting) -> dict[str, Changes]:
    """The columns of the table: what each fit changes of the estimator's arguments."""

    def with_start(**changes: object) -> Changes:
        return lambda rng: {"start": setting.start_near(rng, DISTANCE), **changes}

    favourable: dict[str, object] = {"n_iter": 1, "clip": 1.0}
    if setting.dense:
        favourable = {"clip": setting.sigma * math.sqrt(math.log(setting.n))}
    return {
        "improved": with_start(),
        "published": with_start(method="published"),
        "published, favourable": with_start(method="published", **favourable),
        "non-private": with_start(epsilon=float("inf")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--reps", type=int, default=20)
    reps = parser.parse_args().reps
    names = list(fits(SETTINGS[0]))
    print(f"start within 1/8, {reps} repetitions, mean (sd) of the error; sigma = 0.5, delta = 1/(2n)")
    print(f"{'setting':<52} {'target':>7} " + " ".join(f"{name:>15}" for name in names))
    for setting in SETTINGS:
        errors = repeat(setting, reps, fits(setting))
        label = f"{setting.model} n={setting.n} d={setting.d} s={setting.s} eps={setting.epsilon}"
        cells = " ".join(f"{np.mean(errors[name]):>7.3f} ({np.std(errors[name]):.3f})" for name in names)
        print(f"{label:<52} {setting.target:>7} {cells}", flush=True)


if __name__ == "__main__":
    main()
