"""The two pictures of a report, as inline SVG. Positions are percentages, so that text keeps its size on any screen.

Both have a title and a description for screen readers, and every number in them is in a table as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from dpem.report.facts import Question
from dpem.report.markup import number, percent, text

_BAR = 40
_TOP, _AXIS = 30, 30
#: Height of a row, and of one of many: forty of them fit on a printed page.
_ROW, _LOW_ROW, _MANY = 26, 18, 16
#: Letters of a name that are drawn; the table has all of them.
_LETTERS = 28
#: Parts of the width: names, plot, values.
_PLOT_LEFT, _PLOT_WIDTH = 27.0, 58.0


def price_bar(parts: Sequence[Question]) -> str:
    """One bar for the whole price, a numbered part for each question."""
    shapes, left = [], 0.0
    for part in parts:
        width = 100 * part.share
        shapes.append(
            f'<rect class="part {part.kind}" x="{left:.3f}%" y="0" width="{width:.3f}%" height="{_BAR}">'
            f"<title>{part.place}. {text(part.release.question)}: {percent(part.share)}</title></rect>"
        )
        label = str(part.place) if part.release.batch is None else "one batch"
        if width >= 4 * len(label) ** 0.5:
            shapes.append(
                f'<text class="on-{part.kind}" x="{left + width / 2:.3f}%" y="{_BAR / 2}" text-anchor="middle" '
                f'dominant-baseline="central">{label}</text>'
            )
        left += width
    words = "; ".join(f"question {part.place}, {percent(part.share)}" for part in parts)
    return _svg("price", "The price, question by question", f"Parts of the whole price: {words}.", _BAR, shapes)


def coefficient_chart(
    names: Sequence[str], values: Sequence[float], noise: float | None, threshold: float | None
) -> str:
    """A dot for each coefficient, a bar of two standard deviations of the known noise, the detection threshold."""
    reach = 2 * (noise or 0.0)
    limits = [0.0] if threshold is None else [-threshold, threshold]
    low = min(*limits, min(values) - reach, 0.0)
    high = max(*limits, max(values) + reach, 0.0)
    pad = 0.04 * (high - low) or 1.0
    low, high = low - pad, high + pad
    row = _ROW if len(values) < _MANY else _LOW_ROW
    height = _TOP + row * len(values) + _AXIS
    bottom = height - _AXIS

    def x(value: float) -> str:
        return f"{100 * (value - low) / (high - low):.3f}%"

    def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
        return f'<line class="{kind}" x1="{x(x1)}" y1="{y1:g}" x2="{x(x2)}" y2="{y2:g}"/>'

    plot, labels, figures = [], [], []
    for tick in ticks(low, high):
        plot.append(line("grid", tick, _TOP, tick, bottom))
        plot.append(f'<text class="quiet" x="{x(tick)}" y="{bottom + 20}" text-anchor="middle">{_tick(tick)}</text>')
    plot.append(line("zero", 0.0, _TOP, 0.0, bottom))
    if threshold is not None:
        plot += [line("limit", side, _TOP - 6, side, bottom) for side in (-threshold, threshold)]
        plot.append(
            f'<text class="limit-label" x="{x(0.0)}" y="{_TOP - 12}" text-anchor="middle">'
            f"detectable from ±{number(threshold)}</text>"
        )
    for i, (name, value) in enumerate(zip(shortened(names), values, strict=True)):
        y = _TOP + row * (i + 0.5)
        labels.append(f'<text x="0" y="{y:g}" dominant-baseline="central">{text(name)}</text>')
        figures.append(
            f'<text class="quiet" x="100%" y="{y:g}" text-anchor="end" dominant-baseline="central">'
            f"{number(value)}</text>"
        )
        if noise:
            plot.append(line("bar", value - reach, y, value + reach, y))
            plot += [line("bar", end, y - 6, end, y + 6) for end in (value - reach, value + reach)]
        plot.append(f'<circle class="measure" cx="{x(value)}" cy="{y:g}" r="3.5"/>')
    return _svg(
        "coefficients",
        "Coefficients with the known noise level",
        f"{len(values)} coefficients, the largest first, from {number(max(values, key=abs))} to "
        f"{number(min(values, key=abs))}. The table below has every number.",
        height,
        [
            f'<svg x="0" width="{_PLOT_LEFT - 2}%" height="{height}">{"".join(labels)}</svg>',
            f'<svg x="{_PLOT_LEFT}%" width="{_PLOT_WIDTH}%" height="{height}" overflow="visible">{"".join(plot)}</svg>',
            *figures,
        ],
    )


def shortened(names: Sequence[str]) -> list[str]:
    """The names as far as there is room. What all of them begin with goes first: it tells none from another.

    >>> shortened(["a long common beginning, site 17, second visit", "a long common beginning, site 8"])
    ['…17, second visit', '…8']
    """
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    common = "".join(letters[0] for letters in alike).rpartition(" ")[0]
    if len(names) > 1 and len(common) > 1 and max(map(len, names)) > _LETTERS:
        names = ["…" + name[len(common) :].lstrip() for name in names]
    return [name if len(name) <= _LETTERS else name[: _LETTERS - 1].rstrip() + "…" for name in names]


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers between the limits.

    >>> ticks(-0.2, 1.1)
    [0.0, 0.5, 1.0]
    """
    rough = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    places = np.arange(math.ceil(low / step), math.floor(high / step) + 1)
    return [float(f"{place * step:.6g}") for place in places]


def _tick(value: float) -> str:
    return number(value) if value else "0"


def _svg(name: str, title: str, description: str, height: int, shapes: Sequence[str]) -> str:
    return (
        f'<svg role="img" aria-labelledby="{name}-title {name}-description" height="{height}" '
        f'xmlns="http://www.w3.org/2000/svg">\n<title id="{name}-title">{text(title)}</title>\n'
        f'<desc id="{name}-description">{text(description)}</desc>\n' + "\n".join(shapes) + "\n</svg>"
    )
