"""The pictures of the landing page and of Reports: ``python -m studies.landing`` runs the demo's fits and draws them.

The first screens of the report and of the planner are taken with Chromium, if it is installed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from dpem import demo
from dpem.planner import page

matplotlib.use("Agg")

BLUE, BROWN = "#0b5cad", "#8a5000"
IMAGES = Path("docs") / "img"


def draw(results: dict[str, Any], path: str | Path) -> None:
    """Coefficients and classes, private and without privacy."""
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    names = [column.name for column in demo.COLUMNS]
    unit = {name: 10.0 if name == "diseases" else 1.0 for name in names}
    places = np.arange(len(names))[::-1]
    private, exact = results["regression"]["private"], results["regression"]["without_privacy"]
    value, low, high = (
        np.array([private[name][key] * unit[name] for name in names]) for key in ("estimate", "lower", "upper")
    )
    left.axvline(0, color="#525c68", linewidth=1)
    left.errorbar(value, places, xerr=[value - low, high - value], fmt="o", color=BLUE, capsize=3, label="private")
    left.plot([exact[name] * unit[name] for name in names], places, "x", color="black", label="without privacy")
    left.set_yticks(places, ["10 diseases" if name == "diseases" else name for name in names])
    left.set_xlabel("change of ln(1 + visits to a doctor)")
    left.set_title("Regression, with 95 % intervals")
    left.legend(loc="upper right")
    classes, references = results["classes"]["private"], results["classes"]["without_privacy"]
    labels = [(item, j) for item, levels in demo.LEVELS.items() for j in range(len(levels))]
    rows = np.arange(len(labels))[::-1]
    for k, colour in enumerate((BLUE, BROWN)):
        share = f"{100 * classes['shares'][k]:.0f} % of the rows"
        probabilities = [classes[item][k][j] for item, j in labels]
        right.barh(rows + 0.2 - 0.4 * k, probabilities, height=0.38, color=colour, label=share)
        right.plot([references[item][k][j] for item, j in labels], rows + 0.2 - 0.4 * k, "x", color="black")
    right.set_yticks(rows, [f"{item}: {demo.LEVELS[item][j]}" for item, j in labels])
    right.set_xlabel("probability")
    right.set_title("Two classes of people who answer alike")
    right.legend(loc="lower right")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def first_screen(html: Path, path: Path) -> None:
    """A picture of what a browser shows of a file, without scrolling."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print(f"No Chromium: {path} stays as it is.")
        return
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,980"]
    command = [chromium, *flags, f"--screenshot={path.resolve()}", html.resolve().as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        draw(demo.main(folder), IMAGES / "landing.png")
        first_screen(folder / "regression.html", IMAGES / "report.png")
        (folder / "planner.html").write_text(page(), encoding="utf-8")
        first_screen(folder / "planner.html", IMAGES / "planner.png")
