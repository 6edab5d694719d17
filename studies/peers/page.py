"""The CSV, with one line for each problem and method, and the tables and the figure of the documentation.

python -m studies.peers.page        # results/peers_real.md and docs/img/peers.png
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from studies.csv_files import write_rows
from studies.peers.reference import Outcome
from studies.peers.tables import PROBLEMS, Problem

FIELDS = (
    *("problem", "method", "measure", "middle", "worst", "reps", "guarantee", "seconds", "tuning_seconds"),
    *("settings", "scores"),
)
SHOWN = ("problem", "method", "measure", "middle", "worst", "reps", "seconds", "settings")


def row(problem: Problem, method: str, outcome: Outcome) -> dict[str, str]:
    """Median and worst score over the tables; CPU seconds of a fit."""
    scores = np.array(outcome.scores)
    return {
        "problem": problem.key,
        "method": method,
        "measure": problem.measure,
        "middle": f"{np.median(scores):.4g}",
        "worst": f"{scores.min():.4g}",
        "reps": str(len(scores)),
        "guarantee": outcome.guarantee,
        "seconds": f"{np.median(outcome.seconds):.3g}",
        "tuning_seconds": f"{outcome.tuning_seconds:.3g}",
        "settings": ", ".join(f"{name} {value}" for name, value in outcome.settings.items()),
        "scores": " ".join(f"{score:.5g}" for score in scores),
    }


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def merge(new: dict[str, str], path: Path) -> None:
    """Write one line into the CSV, replacing an older one of the same problem and method."""
    rows = {(old["problem"], old["method"]): old for old in read(path)}
    rows[new["problem"], new["method"]] = new
    order = [problem.key for problem in PROBLEMS]
    write_rows(path, sorted(rows.values(), key=lambda r: order.index(r["problem"])), FIELDS)


# --- the page --------------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
#: Scores below this are not printed on the page, only in the CSV.
HOPELESS = -1.0
#: Methods in the order of the page, and the problems of its two tables with their short names.
ORDER = (
    *("dpem", "DP-SGD", "noisy moments (AdaSSP)", "diffprivlib LinearRegression", "OpenDP LinearRegression"),
    *("objective perturbation", "diffprivlib LogisticRegression"),
    *("diffprivlib KMeans", "Google's clustering", "DPM"),
    *("AIM, then scikit-learn", "MST, then scikit-learn", "AIM, then GaussianMixture", "MST, then GaussianMixture"),
    *("MST, then StepMix", "StepMix, not private", "not private"),
)
REGRESSION = {
    "wages-1": "CPS1988, ε = 1",
    "wages-0.5": "ε = 0.5",
    "pressure-1": "blood pressure, ε = 1",
    "pressure-0.5": "ε = 0.5",
    "drawn-1": "simulated, ε = 1",
    "questions-1": "290 columns, ε = 1",
    "education-1": "one column, ε = 1",
}
LOGISTIC = {"smoking": "SmokeBan", "default": "Default", "abortion": "gss_abortion", "work": "mroz"}
LATENT = {
    "groups-3": "3 components",
    "groups-5": "5 components, d = 10",
    "groups-4": "4 unequal components",
    "diamonds": "diamonds",
    "movies": "movies",
    "classes-4": "4 classes",
    "classes-3": "3 classes",
    "lines-10": "2 regressions, d = 10",
    "lines-5": "2 regressions, d = 5",
}


def scores(rows: list[dict[str, str]]) -> dict[tuple[str, str], Any]:
    """Scores by problem and method. A log-likelihood is expressed as a fraction of the non-private model's gain over
    one component, on the same rows.
    """
    found = {(r["problem"], r["method"]): np.array(r["scores"].split(), dtype=float) for r in rows}
    kept = {}
    for (problem, method), values in found.items():
        simple, free = found.get((problem, "one group or line, not private")), found.get((problem, "not private"))
        if simple is not None and free is not None:
            m = len(values)
            values = (values - simple[:m]) / (free[:m] - simple[:m])
        kept[problem, method] = values
    return kept


def matrix(rows: list[dict[str, str]], problems: dict[str, str]) -> str:
    """Median (worst) of the tables by method and problem, with the number of tables if dpem had more."""
    found = scores(rows)
    lines = ["| | " + " | ".join(problems.values()) + " |", "|---" * (len(problems) + 1) + "|"]
    for method in ORDER:
        cells = [_cell(found.get((key, method)), found.get((key, "dpem"))) for key in problems]
        if any(cell != "–" for cell in cells):
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def losses(rows: list[dict[str, str]]) -> str:
    """Median log-likelihood per row lost to privacy by logistic regressions, at ε = 0.5 / 1; a line per method."""
    found = {(r["problem"], r["method"]): np.array(r["scores"].split(), dtype=float) for r in rows}
    lines = ["| | " + " | ".join(LOGISTIC.values()) + " |", "|---" * (len(LOGISTIC) + 1) + "|"]
    for method in ORDER:
        cells = []
        for key in LOGISTIC:
            own = [(found.get((f"{key}-{e}", method)), found.get((f"{key}-{e}", "not private"))) for e in ("0.5", "1")]
            known = [float(free[0] - np.median(of)) for of, free in own if of is not None and free is not None]
            cells.append(" / ".join(f"{loss:.4f}".replace("-", "−") for loss in known) or "–")
        if method != "not private" and any(cell != "–" for cell in cells):
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text(rows: list[dict[str, str]]) -> str:
    """The page of tables beside the CSV."""
    return (
        "# dpem and its peers, general models\n\n"
        "Written by `python -m studies.peers.page` from `peers_real.csv`: median (worst) over the tables; a dash means "
        "no such model, or not run.\n\n"
        f"Regression: R² on rows held out.\n\n{matrix(rows, REGRESSION)}\n\n"
        "Logistic regression: log-likelihood per held-out row lost to privacy, at ε = 0.5 / 1, median.\n\n"
        f"{losses(rows)}\n\n"
        "Mixtures and classes: adjusted Rand index; real tables and mixtures of regressions: share of the non-private "
        "model's lead over one component that is kept, in held-out log-likelihood.\n\n"
        f"{matrix(rows, LATENT)}\n"
    )


def _cell(values: Any, longest: Any) -> str:
    if values is None:
        return "–"
    if len(values) == 1:
        return _number(values[0])
    fewer = "" if longest is None or len(values) == len(longest) else f"; {len(values)} tables"
    return f"{_number(np.median(values))} ({_number(values.min())}{fewer})"


def _number(value: float) -> str:
    return f"{value:.3f}".replace("-", "−") if value >= HOPELESS else "< −1"


def picture(rows: list[dict[str, str]], path: Path) -> None:
    """Each method's median as a fraction of the non-private model's, one line per problem; 0 is at the left edge."""
    import matplotlib.pyplot as plt

    found = scores(rows)
    looks = {
        "dpem": ("o", "tab:blue", 11),
        "DP-SGD": ("s", "tab:orange", 6),
        "noisy moments (AdaSSP)": ("^", "tab:green", 6),
        "AIM, then": ("D", "tab:purple", 5),
        "MST, then": ("d", "tab:pink", 6),
        "diffprivlib": ("x", "tab:red", 6),
        "OpenDP": ("P", "tab:brown", 6),
        "Google's clustering": ("v", "tab:cyan", 6),
        "DPM": ("<", "tab:olive", 6),
    }
    figure, parts = plt.subplots(1, 2, figsize=(10.5, 4.4), sharex=True)
    for part, problems, title in ((parts[0], REGRESSION, "regression"), (parts[1], LATENT, "components, classes")):
        for i, key in enumerate(problems):
            part.axhline(i, color="0.92", zorder=0)
            for method in ORDER:  # dpem lies below the others
                look = next((value for start, value in looks.items() if method.startswith(start)), None)
                if look is None or (key, method) not in found:
                    continue
                share = np.median(found[key, method]) / np.median(found[key, "not private"])
                part.plot(max(share, -0.03), i, look[0], color=look[1], ms=look[2], clip_on=False)
        labels = list(problems.values())
        labels = [
            f"{labels[i - 1].split(',')[0]}, {own}" if own.startswith("ε") else own for i, own in enumerate(labels)
        ]
        part.set_yticks(range(len(labels)), labels, fontsize=8)
        part.set(
            ylim=(len(labels) - 0.5, -0.5), xlim=(-0.05, 1.05), title=title, xlabel="share of the non-private score"
        )
        part.axvline(1, color="0.6", lw=0.8)
    handles = [
        plt.Line2D([], [], marker=m, color=c, ls="", ms=s, label=start.replace(", then", " synthetic rows"))
        for start, (m, c, s) in looks.items()
    ]
    figure.legend(handles=handles, loc="lower center", ncol=5, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.11, 1, 1))
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    table = read(ROOT / "results" / "peers_real.csv")
    (ROOT / "results" / "peers_real.md").write_text(text(table), encoding="utf-8")
    picture(table, ROOT / "docs" / "img" / "peers.png")
