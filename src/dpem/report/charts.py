"""The pictures of a report, as inline SVG. Positions are percentages, so that text keeps its size on any screen.

A picture of many rows is a grid of a name, a lane and a number each; on a narrow screen the lane goes below them, so
nothing is cut. Every picture has a description for screen readers, and every number in one is in a table as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import takewhile

import numpy as np

from dpem._html import measured, number, percent, text
from dpem.fitting.summary import Estimates, Profile
from dpem.report.facts import Question

#: Rows drawn of estimates, and columns of a group; the tables have all of them.
DRAWN, COLUMNS = 40, 12
_BAR, _LANE = 40, 24
#: A line over the whole of a lane: what the column can hold.
_RANGE = f'<line class="grid" x1="0" y1="{_LANE / 2:g}" x2="100%" y2="{_LANE / 2:g}"/>'
#: Letters of a name that are drawn.
_LETTERS = 36


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
    return (
        '<svg role="img" aria-labelledby="price-title price-description" '
        f'height="{_BAR}" xmlns="http://www.w3.org/2000/svg">\n'
        '<title id="price-title">The price, question by question</title>\n'
        f'<desc id="price-description">Parts of the whole price: {text(words)}.</desc>\n' + "\n".join(shapes) + "</svg>"
    )


def estimate_chart(estimates: Estimates) -> str:
    """A dot for each estimate with its interval: on one scale where the estimator names one, else each on its own."""
    count = min(len(estimates.names), DRAWN)
    values, low, high = (np.nan_to_num(v[:count]) for v in (estimates.value, estimates.low, estimates.high))
    certain = (estimates.error[:count] > 0).tolist()
    words = f"{count} {estimates.what}s with their intervals. The table below has every number."
    shown = [
        _interval(v, a, b, error) if error > 0 else number(v)
        for v, a, b, error in zip(values, low, high, estimates.error[:count].tolist(), strict=True)
    ]
    names = shortened(estimates.names[:count])
    if estimates.scale is None:
        reach = np.maximum(np.maximum(np.abs(low), np.abs(high)), np.abs(values))
        reach = np.where(reach > 0, reach, 1.0) * 1.05
        lanes = [
            _lane(_place(-r, r), [0.0], [], v, a, b, known)
            for v, a, b, r, known in zip(values, low, high, reach, certain, strict=True)
        ]
        return _grid("estimates", words, zip(names, lanes, shown, strict=True))
    scale = estimates.scale[:count]
    values, low, high = values * scale, low * scale, high * scale
    marks = [0.0] if estimates.limit is None else [-estimates.limit, estimates.limit]
    bottom, top = min(*marks, low.min(), values.min(), 0.0), max(*marks, high.max(), values.max(), 0.0)
    pad = 0.04 * (top - bottom) or 1.0
    x = _place(bottom - pad, top + pad)
    grid, limits = ticks(bottom - pad, top + pad), marks if estimates.limit is not None else []
    lanes = [_lane(x, grid, limits, v, a, b, known) for v, a, b, known in zip(values, low, high, certain, strict=True)]
    rows = [*zip(names, lanes, shown, strict=True), ("", _axis(x, grid), "")]
    return _grid("estimates", words, rows)


def profile_chart(profile: Profile) -> list[str]:
    """A picture for each group: what is typical of it in each column, over the column's public bounds."""
    order = telling_columns(profile)
    names = shortened([profile.columns[j] for j in order])
    made = []
    for k, group in enumerate(profile.groups):
        lanes, shown = [], []
        for j in order:
            x = _place(float(profile.low[j]), float(profile.high[j]))
            value = float(profile.centre[k, j])
            spread = 0.0 if profile.spread is None else float(profile.spread[k, j])
            others = [float(v) for i, v in enumerate(profile.centre[:, j]) if i != k]
            if profile.bars:
                lanes.append(_RANGE + _filled(x, value, others))
                shown.append(percent(value))
            else:
                lane = _lane(x, [], [], value, value - spread, value + spread, spread > 0, others)
                lanes.append(_RANGE + lane)
                shown.append(number(value) + (f" ± {number(spread)}" if spread > 0 else ""))
        title = f"{group}: {percent(float(profile.share[k]))} of the rows"
        words = f"{title}. {'Probabilities' if profile.bars else 'Centres'} by column; the table has every number."
        made.append(f"<h3>{text(title)}</h3>\n" + _grid(f"group-{k + 1}", words, zip(names, lanes, shown, strict=True)))
    return made


def telling_columns(profile: Profile) -> list[int]:
    """The columns that are drawn, in their order: those in which the groups differ most, where there are many."""
    width = np.where(profile.high > profile.low, profile.high - profile.low, 1.0)
    apart = (profile.centre.max(axis=0) - profile.centre.min(axis=0)) / width
    return sorted(np.argsort(-apart, kind="stable")[:COLUMNS].tolist())


def shortened(names: Sequence[str]) -> list[str]:
    """The names as far as there is room. What all of them begin with goes first: it tells none from another.

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


def _interval(value: float, low: float, high: float, error: float) -> str:
    shown, bottom, top = (measured(part, error) for part in (value, low, high))
    return f"{shown} <small>({bottom} to {top})</small>"


def _place(low: float, high: float) -> Callable[[float], str]:
    """From a value to its place in a lane; what lies beyond the ends is put at them."""
    return lambda value: f"{100 * min(max((value - low) / (high - low), 0.0), 1.0):.3f}%"


def _lane(
    x: Callable[[float], str],
    grid: Sequence[float],
    limits: Sequence[float],
    value: float,
    low: float,
    high: float,
    certain: bool,
    others: Sequence[float] = (),
) -> str:
    middle = _LANE / 2
    shapes = [_upright("zero" if tick == 0 else "grid", x(tick), 0, _LANE) for tick in grid]
    shapes += [_upright("limit", x(limit), 0, _LANE) for limit in limits]
    shapes += [_upright("other", x(other), middle - 5, middle + 5) for other in others]
    if certain:
        shapes.append(f'<line class="bar" x1="{x(low)}" y1="{middle:g}" x2="{x(high)}" y2="{middle:g}"/>')
        shapes += [_upright("bar", x(end), middle - 5, middle + 5) for end in (low, high)]
    shapes.append(f'<circle class="measure" cx="{x(value)}" cy="{middle:g}" r="3.5"/>')
    return "".join(shapes)


def _filled(x: Callable[[float], str], value: float, others: Sequence[float]) -> str:
    shapes = [f'<rect class="measure" x="0" y="5" width="{x(value)}" height="{_LANE - 10}"/>']
    shapes += [_upright("other", x(other), 2, _LANE - 2) for other in others]
    return "".join(shapes)


def _upright(kind: str, x: str, top: float, bottom: float) -> str:
    return f'<line class="{kind}" x1="{x}" y1="{top:g}" x2="{x}" y2="{bottom:g}"/>'


def _axis(x: Callable[[float], str], grid: Sequence[float]) -> str:
    return "".join(
        f'<text class="quiet" x="{x(tick)}" y="14" text-anchor="middle">{number(tick) if tick else "0"}</text>'
        for tick in grid
    )


def _grid(name: str, words: str, rows: object) -> str:
    lines = [
        f'<div class="lane"><span class="name">{text(label)}</span>'
        f'<svg aria-hidden="true" height="{_LANE}" xmlns="http://www.w3.org/2000/svg">{lane}</svg>'
        f'<span class="value">{shown}</span></div>'
        for label, lane, shown in rows  # type: ignore[attr-defined]
    ]
    return f'<div class="lanes" id="{name}" role="img" aria-label="{text(words)}">\n' + "\n".join(lines) + "\n</div>"
