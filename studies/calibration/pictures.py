"""Two figures of results/calibration.csv as SVG text: predicted against realised, and how often intervals hold."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from pathlib import Path

COLOURS = {
    "linear-regression": "#0072b2",
    "gaussian-mixture": "#d55e00",
    "latent-class": "#009e73",
    "mixture-regression": "#cc79a7",
}
WIDTH, HEIGHT, LEFT, TOP, INNER = 640, 400, 70, 20, 320


def drawn(results: Path, folder: Path) -> None:
    """Both pictures, into the folder."""
    with results.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for name, marks in (("predictions", predictions(rows)), ("coverage", coverage(rows))):
        (folder / f"calibration-{name}.svg").write_text(svg(marks), encoding="utf-8")


def svg(marks: Iterable[str]) -> str:
    legend = [
        mark
        for i, (model, colour) in enumerate(COLOURS.items())
        for mark in (
            circle(LEFT + INNER + 40, TOP + 30 + 22 * i, colour, True),
            text(LEFT + INNER + 54, TOP + 34 + 22 * i, model),
        )
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    return "\n".join(
        [f'{head} font-size="13">', '<rect width="100%" height="100%" fill="#fff"/>', *marks, *legend, "</svg>\n"]
    )


def circle(x: float, y: float, colour: str, filled: bool) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" stroke="{colour}" fill="{colour if filled else "none"}"/>'


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" {style}/>'


def text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{words}</text>'


GREY, THIN = 'stroke="#888"', 'stroke="#ccc" stroke-dasharray="4 4"'


def predictions(rows: list[dict[str, str]]) -> list[str]:
    """Realised against predicted, both logarithmic; filled where rows are as supposed."""
    low, high = -5.0, 0.0

    def place(value: float) -> float:
        return INNER * (min(max(math.log10(max(value, 1e-12)), low), high) - low) / (high - low)

    marks = []
    for factor, style in ((1.0, GREY), (0.8, THIN), (1.25, THIN)):
        ends = (10 ** (low + 0.1), 10 ** (high - 0.1))
        (x1, y1), (x2, y2) = ((LEFT + place(end), TOP + INNER - place(factor * end)) for end in ends)
        marks.append(line(x1, y1, x2, y2, style))
    for power in range(int(low), int(high) + 1):
        at = place(10.0**power)
        marks.append(text(LEFT + at, TOP + INNER + 18, f"{10.0**power:.{-power}f}", 'text-anchor="middle"'))
        marks.append(text(LEFT - 6, TOP + INNER - at + 4, f"{10.0**power:.{-power}f}", 'text-anchor="end"'))
    marks.append(text(LEFT + INNER / 2, TOP + INNER + 40, "predicted", 'text-anchor="middle"'))
    marks.append(text(LEFT, TOP - 6, "realised (median of fits)"))
    for row in (row for row in rows if row["table"] == "predictions"):
        predicted = float(row["note"].split("predicted ")[1].split(" ")[0])
        seen = predicted / float(row["value"])
        filled = row["note"].startswith("as supposed")
        marks.append(circle(LEFT + place(predicted), TOP + INNER - place(seen), COLOURS[row["model"]], filled))
    marks.append(text(LEFT + INNER + 34, TOP + 150, "filled: rows as supposed"))
    marks.append(text(LEFT + INNER + 34, TOP + 170, "dashed: 0.8 and 1.25"))
    return marks


def coverage(rows: list[dict[str, str]]) -> list[str]:
    """One dot a setting, in the order of the table, and the band from 93 to 97 %."""
    own = [row for row in rows if row["table"] == "coverage"]

    def height(share: float) -> float:
        return TOP + INNER * (1 - (min(max(share, 0.85), 1.0) - 0.85) / 0.15)

    band = f'x="{LEFT}" y="{height(0.97):.1f}" width="{INNER}" height="{height(0.93) - height(0.97):.1f}" fill="#eee"'
    marks = [f"<rect {band}/>", line(LEFT, height(0.95), LEFT + INNER, height(0.95), GREY)]
    for percent in (85, 90, 95, 100):
        marks.append(text(LEFT - 6, height(percent / 100) + 4, f"{percent} %", 'text-anchor="end"'))
    for i, row in enumerate(own):
        x = LEFT + INNER * (i + 0.5) / max(len(own), 1)
        colour = COLOURS[row["model"]]
        ends = height(float(row["low"])), height(float(row["high"]))
        marks.append(line(x, ends[0], x, ends[1], f'stroke="{colour}"'))
        marks.append(circle(x, height(float(row["value"])), colour, True))
    marks.append(text(LEFT, TOP + INNER + 22, "settings, in the order of the table below"))
    return marks
