"""The pictures of the README and of the page on choosing ε.

    python -m studies.paper.pictures [--results results] [--out docs/img]

``case.png`` is drawn from ``accuracy.csv``, ``odds.png`` from the definition of (ε, δ), ``plan.png`` from plans of
linear regressions, which read no data and take about a minute. Their numbers are written to ``choosing_epsilon.csv``,
beside ``accuracy.csv``.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path

from dpem import DPLinearRegression
from studies.csv_files import write_rows

try:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter
except ImportError as absent:
    raise ImportError("drawing needs matplotlib: install 'dpem[reproduce]'.", name="matplotlib") from absent

#: Okabe and Ito's palette, the colours that the methods have in the paper's figures as well.
BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
BLACK, GREY = "#000000", "#767676"
MODELS = {
    "symmetric-mixture": "Gaussian mixture",
    "missing-regression": "Missing covariates",
    "symmetric-regression": "Mixture of regressions",
}
#: Rows of accuracy.csv in the README's picture: model, n, d, s, ε, note.
SHOWN = (
    ("symmetric-mixture", 4000, 1000, 10, 0.3, ""),
    ("symmetric-mixture", 4000, 1000, 10, 0.5, ""),
    ("symmetric-mixture", 4000, 1000, 10, 0.8, ""),
    ("symmetric-regression", 5000, 1000, 10, 0.6, "start at distance 0.5"),
    ("symmetric-regression", 50000, 1000, 10, 0.6, ""),
    ("missing-regression", 5000, 1000, 10, 0.6, "10 % missing"),
    ("missing-regression", 5000, 1000, 10, 0.6, "30 % missing"),
    ("symmetric-mixture", 5000, 10, 10, 0.5, "low-dimensional"),
)
#: The regression whose plans are shown.
COLUMNS, DELTA = 10, 1e-6
ROWS = (1_000, 4_000, 16_000, 64_000)
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
PRIORS = (0.01, 0.1, 0.5)


def posterior(prior: float, epsilon: float) -> float:
    """The most that a belief of ``prior`` can become on seeing an ε-private answer (δ aside).

    *Proof.* Bayes' rule: the odds of a row against another in its place are multiplied by the ratio of the
    probabilities of the answer, which is at most e^ε. ∎

    >>> round(posterior(0.01, 1.0), 4)
    0.0267
    """
    odds = math.exp(epsilon) * prior / (1 - prior)
    return odds / (1 + odds)


def case(table: Path, path: Path) -> None:
    """Error of the three methods, one line per setting."""
    with table.open(newline="") as file:
        found = {
            (r["model"], int(r["n"]), int(r["d"]), int(r["s"]), float(r["epsilon"]), r["note"]): r
            for r in csv.DictReader(file)
        }
    figure, axes = _new(9.0, 5.2)
    styles = (
        ("published", "the paper's method, started within 1/8 of the truth", ORANGE, "D", 60),
        ("improved", "dpem, default settings", BLUE, "o", 80),
        ("non_private", "EM without privacy", BLACK, "x", 55),
    )
    for height, key in enumerate(reversed(SHOWN)):
        row = found[key]
        axes.plot([float(row["non_private"]), float(row["published"])], [height] * 2, color="#DDDDDD", zorder=1)
        for column, label, colour, marker, size in styles:
            shown = label if height == 0 else None
            axes.scatter(float(row[column]), height, color=colour, marker=marker, s=size, label=shown, zorder=3)
    axes.axvline(1.0, color=GREY, linestyle="--", zorder=0)
    axes.text(1.06, len(SHOWN) - 0.45, "answering zero", color=GREY, va="bottom")
    axes.set_yticks(range(len(SHOWN)), [_setting(*key) for key in reversed(SHOWN)])
    axes.set_ylim(-0.6, len(SHOWN) - 0.1)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([0.01, 0.03, 0.1, 0.3, 1, 3, 10]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.set_xlabel("error ‖β̂ − β‖, where ‖β‖ = 1 (smaller is better, logarithmic)")
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper center", ncols=3, frameon=False, handletextpad=0.2, columnspacing=1.2)
    _save(figure, path)


def _setting(model: str, n: int, d: int, s: int, epsilon: float, note: str) -> str:
    sizes = f"n = {n:,}, d = {d:,}, ε = {epsilon:g}"
    extra = "" if note in ("", "low-dimensional") else f", {note}"
    return f"{MODELS[model]}{extra}\n{sizes}"


def odds(path: Path) -> None:
    """What an attacker can believe afterwards, against ε."""
    figure, axes = _new(7.6, 3.9)
    grid = [i / 50 for i in range(251)]
    for prior, colour, style in zip(PRIORS, (VERMILLION, BLUE, GREEN), ("-", "--", "-."), strict=True):
        axes.plot(grid, [posterior(prior, e) for e in grid], color=colour, linestyle=style, linewidth=2.2)
        end = posterior(prior, grid[-1])
        axes.annotate(f"{prior:.0%} beforehand", (5.06, end), color=colour, va="center", annotation_clip=False)
    for epsilon in (0.5, 1.0, 2.0):
        value = posterior(0.01, epsilon)
        axes.plot(epsilon, value, "o", color=VERMILLION)
        axes.annotate(
            f"{value:.1%}", (epsilon, value), (0, 6), textcoords="offset points", ha="center", color=VERMILLION
        )
    axes.set_xlim(0, 5)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("ε")
    axes.set_ylabel("belief afterwards, at most")
    axes.grid(color="#E5E5E5")
    _save(figure, path)


def planned() -> list[dict[str, float]]:
    """The part of R² that a linear regression is predicted to lose, for every ε and n."""
    out = []
    for n in ROWS:
        for epsilon in EPSILONS:
            model = DPLinearRegression(epsilon=epsilon, delta=DELTA, bounds=(0, 1), y_bounds=(0, 1))
            made = model.plan(n, COLUMNS).prediction
            assert made is not None
            values = (n, epsilon, made.median, made.low, made.high)
            out.append(dict(zip(("n", "epsilon", "lost", "low", "high"), values, strict=True)))
    return out


def expected(rows: list[dict[str, float]], path: Path) -> None:
    """Predicted loss of R² against ε, one line per n."""
    figure, axes = _new(7.6, 4.2)
    axes.axhspan(0.2, 10.0, color="#F3F3F3", zorder=0)
    axes.text(4.9, 0.215, "infeasible: more than half of the R² of 0.40", color="#555555", va="bottom", ha="right")
    for n, colour, marker in zip(ROWS, (VERMILLION, ORANGE, BLUE, GREEN), "sDo^", strict=True):
        line = [row for row in rows if row["n"] == n]
        x, y = [row["epsilon"] for row in line], [row["lost"] for row in line]
        axes.plot(x, y, color=colour, marker=marker, linewidth=2)
        axes.annotate(f"n = {n:,}", (5.4, y[-1]), color="#222222", va="center", annotation_clip=False)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.09, 5.2)
    axes.set_ylim(min(row["lost"] for row in rows) / 2, 3.0)
    for axis, ticks in ((axes.xaxis, EPSILONS), (axes.yaxis, (1e-6, 1e-5, 1e-4, 0.001, 0.01, 0.1, 1.0))):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.set_xlabel("ε (logarithmic)")
    axes.set_ylabel("R² lost to privacy (logarithmic)")
    axes.grid(color="#E5E5E5")
    _save(figure, path)


def _new(width: float, height: float) -> tuple[Figure, Axes]:
    plt.rcParams.update({"font.size": 10.5, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
    return figure, axes


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=130, facecolor="white", metadata={"Software": None})
    plt.close(figure)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder with accuracy.csv")
    parser.add_argument("--out", type=Path, default=Path("docs/img"), help="where the pictures go")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    case(options.results / "accuracy.csv", options.out / "case.png")
    odds(options.out / "odds.png")
    rows = planned()
    shown = ({name: value if name == "n" else f"{value:.3g}" for name, value in row.items()} for row in rows)
    write_rows(options.results / "choosing_epsilon.csv", shown)
    for n in ROWS:
        print(f"n = {n:<7,}", *(f"{r['epsilon']:g}: {r['lost']:.2g}" for r in rows if r["n"] == n), sep="  ")
    expected(rows, options.out / "plan.png")


if __name__ == "__main__":
    main()
