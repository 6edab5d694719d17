"""The plots of a report as data for the templates, which draw them.

Positions are percentages, so that text keeps its size on any screen. A dot plot has a row for each parameter or
column, with a name, marks and a number. Every number in a plot is in a table as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from dpem._html import number, percent, round_to
from dpem.fitting.summary import LEVEL, Calibration, Estimates, Profile
from dpem.report.facts import Query

#: The largest numbers of estimates and of columns of a component that are drawn; the tables have all of them.
DRAWN, COLUMNS = 40, 12
#: The largest number of letters of a name that are drawn.
_LETTERS = 36


class PlotRow(NamedTuple):
    """One row of a dot plot: vertical lines by kind, marks of other components, and a bar, a dot or a filled part."""

    name: str
    value: str
    interval: str = ""
    tip: str = ""
    lines: Sequence[tuple[str, str]] = ()
    others: tuple[str, ...] = ()
    bar: tuple[str, str] | None = None
    dot: str = ""
    fill: str = ""
    bounded: bool = False


class DotPlot(NamedTuple):
    """Rows in the table's units, each with its own scale, or ``standardised`` rows on one scale.

    ``axis`` has the positions and labels of the ticks of a common scale.
    """

    rows: list[PlotRow]
    standardised: bool = False
    axis: Sequence[tuple[str, str]] = ()


def estimate_pictures(estimates: Estimates) -> list[DotPlot]:
    """The first estimates in the table's units and, if the model names a common unit, on one scale."""
    count = min(len(estimates.names), DRAWN)
    names = shortened(estimates.names[:count])
    drawn = np.array([np.nan_to_num(part[:count]) for part in (estimates.estimate, *estimates.ends)])
    pictures = []
    if estimates.scale is None or not bool((np.asarray(estimates.scale) == 1).all()):
        rows = []
        for j, reach in enumerate(1.05 * np.max(np.abs(drawn), axis=0)):
            x = _place(-reach or -1.0, reach or 1.0)
            rows.append(_estimate(estimates, j, names[j], x, [("zero", x(0.0))]))
        pictures.append(DotPlot(rows))
    if estimates.scale is not None:
        limits = [] if estimates.limit is None else [-estimates.limit, estimates.limit]
        marks = [0.0, *limits, *(estimates.scale[:count] * drawn).ravel()]
        pad = 0.04 * (max(marks) - min(marks)) or 1.0
        bottom, top = min(marks) - pad, max(marks) + pad
        x, grid = _place(bottom, top), ticks(bottom, top)
        lines = [("grid" if tick else "zero", x(tick)) for tick in grid] + [("limit", x(limit)) for limit in limits]
        scales = enumerate(estimates.scale[:count].tolist())
        rows = [_estimate(estimates, j, names[j], x, lines, scale) for j, scale in scales]
        pictures.append(DotPlot(rows, True, [(x(tick), number(tick) if tick else "0") for tick in grid]))
    return pictures


def _estimate(
    estimates: Estimates,
    j: int,
    name: str,
    x: Callable[[float], str],
    lines: Sequence[tuple[str, str]],
    scale: float = 1.0,
) -> PlotRow:
    """The row of parameter j, multiplied by ``scale``, at the positions ``x``."""
    error = abs(scale) * float(estimates.total[j])
    value, low, high = (scale * float(part[j]) for part in (estimates.estimate, *estimates.ends))
    words = error_words(estimates, j)
    if not error > 0:
        return PlotRow(name, number(value), tip=words, lines=lines, dot=x(value))
    ends = f"{round_to(low, error)} to {round_to(high, error)}"
    return PlotRow(name, round_to(value, error), ends, words, lines, bar=(x(low), x(high)), dot=x(value))


def error_words(estimates: Estimates, j: int) -> str:
    """A parameter's value, its standard error, and the sources of its error variance."""
    error = float(estimates.total[j])
    if not error > 0:
        return f"{estimates.names[j]}: {number(float(estimates.estimate[j]), 4)}"
    shares = "; ".join(f"{name} {percent(share)}" for name, share in estimates.parts(j))
    words = f"{estimates.names[j]}: {round_to(float(estimates.estimate[j]), error)}, standard error {number(error, 2)}"
    return f"{words}; of its variance {shares}" if shares else words


class ScatterPlot(NamedTuple):
    """Dots with vertical bars in a square of side 100, drawn with its diagonal.

    ``points`` are (x, y, low, high, words), ``ticks`` positions and labels for both axes, ``axes`` their names.
    """

    points: list[tuple[float, float, float, float, str]]
    ticks: list[tuple[float, str]]
    axes: tuple[str, str]


def calibration_picture(means: Calibration) -> ScatterPlot:
    """Observed against predicted means with their 95 % intervals."""
    reach = float(ndtri(0.5 + LEVEL / 2)) * means.error
    low, high = np.maximum(means.observed - reach, 0.0), means.observed + reach
    bottom, top = min(low.min(), means.predicted.min()), max(high.max(), means.predicted.max())
    pad = 0.05 * (top - bottom) or 1.0
    bottom, top = max(bottom - pad, 0.0), top + pad

    def place(value: float) -> float:
        return round(100 * (float(value) - bottom) / (top - bottom), 2)

    points = []
    for x, y, a, b, error in zip(means.predicted, means.observed, low, high, means.error, strict=True):
        words = f"predicted {number(x)}, observed {round_to(y, error)} ({round_to(a, error)} to {round_to(b, error)})"
        points.append((place(x), place(y), place(a), place(b), words))
    axis = [(place(tick), number(tick) if tick else "0") for tick in ticks(bottom, top)]
    return ScatterPlot(points, axis, means.words)


def components(profile: Profile) -> dict[str, object]:
    """The word for a component ("component" or "class"), the picture of each, and the rows of a table of all."""
    count = range(len(profile.labels))
    return {
        "unit": profile.labels[0].rpartition(" ")[0] or "component",
        "pictures": [component_rows(profile, k) for k in count],
        "rows": [(name, *(cell(profile, k, j) for k in count)) for j, name in enumerate(profile.columns)],
    }


def component_rows(profile: Profile, k: int) -> list[PlotRow]:
    """The rows of the dot plot of a component: its centre and spread in each column, between the public bounds."""
    order, rows = most_different_columns(profile), []
    for j, name in zip(order, shortened([profile.columns[j] for j in order]), strict=True):
        x = _place(float(profile.low[j]), float(profile.high[j]))
        value = float(profile.centre[k, j])
        others = tuple(x(float(other)) for i, other in enumerate(profile.centre[:, j]) if i != k)
        if profile.bars:
            rows.append(PlotRow(name, percent(value), others=others, fill=x(value), bounded=True))
            continue
        spread = 0.0 if profile.spread is None else float(profile.spread[k, j])
        shown = cell(profile, k, j)
        bar = (x(value - spread), x(value + spread)) if spread > 0 else None
        bounds = f"{number(float(profile.low[j]))} and {number(float(profile.high[j]))}"
        tip = f"{profile.columns[j]}: {shown}, between {bounds}"
        rows.append(PlotRow(name, shown, tip=tip, others=others, bar=bar, dot=x(value), bounded=True))
    return rows


def cell(profile: Profile, k: int, j: int) -> str:
    """The centre and spread of a component in a column."""
    value = float(profile.centre[k, j])
    if profile.bars:
        return percent(value)
    if profile.spread is None:
        return number(value, 4)
    spread = float(profile.spread[k, j])
    return f"{round_to(value, spread)} ± {round_to(spread, spread)}"


def most_different_columns(profile: Profile) -> list[int]:
    """The columns that are drawn, in order: if there are many, those in which the components differ most."""
    width = np.where(profile.high > profile.low, profile.high - profile.low, 1.0)
    difference = (profile.centre.max(axis=0) - profile.centre.min(axis=0)) / width
    return sorted(np.argsort(-difference, kind="stable")[:COLUMNS].tolist())


class Part(NamedTuple):
    """One query's part of the bar of the price."""

    kind: str
    start: str
    width: str
    middle: str
    label: str
    tip: str


def price_bar(queries: Sequence[Query]) -> list[Part]:
    """The bar of the whole price, with a numbered part for each query."""
    parts, left = [], 0.0
    for query in queries:
        width = 100 * query.share
        label = str(query.place) if query.release.batch is None else "one batch"
        tip = f"{query.place}. {query.release.query}: {percent(query.share)}"
        wide = width >= 4 * len(label) ** 0.5
        places = (f"{left:.3f}", f"{width:.3f}", f"{left + width / 2:.3f}")
        parts.append(Part(query.kind, *places, label if wide else "", tip))
        left += width
    return parts


def shortened(names: Sequence[str]) -> list[str]:
    """The names at a length that can be drawn, without a beginning that all of them share.

    >>> shortened(["a long common beginning, site 17, second visit to it", "a long common beginning, site 8"])
    ['…17, second visit to it', '…8']
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


def _place(low: float, high: float) -> Callable[[float], str]:
    """The function from a value to its position along the axis, clamped to the ends."""
    return lambda value: f"{100 * min(max((value - low) / (high - low), 0.0), 1.0):.3f}%"
