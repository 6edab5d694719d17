"""The style of the figures: one colour per method (Okabe and Ito's palette for colour-blind readers), a logarithmic
error axis, a grey line at error 1, a band of one standard deviation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from studies.paper.reproduce.curves import (
    CORRECTED,
    IMPROVED,
    IMPROVED_START,
    PRINTED,
    PRINTED_REFERENCE,
    REFERENCE,
    SMALLER,
    WANG,
    WANG_OWN,
)
from studies.paper.reproduce.store import Cell, Results
from studies.paper.settings import Setting

try:
    import matplotlib
    import matplotlib.ticker

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
except ImportError as absent:
    raise ImportError("drawing needs matplotlib: install 'dpem[reproduce]'.", name="matplotlib") from absent

COLOURS = {
    PRINTED: "#D55E00",
    CORRECTED: "#E69F00",
    SMALLER: "#F0C000",
    WANG: "#CC79A7",
    WANG_OWN: "#882255",
    IMPROVED_START: "#56B4E9",
    IMPROVED: "#0072B2",
    REFERENCE: "#000000",
    PRINTED_REFERENCE: "#888888",
}
MARKERS = {
    PRINTED: "s",
    CORRECTED: "D",
    SMALLER: "d",
    WANG: "v",
    WANG_OWN: "<",
    IMPROVED_START: "^",
    IMPROVED: "o",
    REFERENCE: "x",
}
STYLES = ("-", "--", ":")
ZERO = "error of answering zero"
#: 1200 pixels wide and more.
DPI = 125


class Panel(NamedTuple):
    """A panel of a figure: the symbol and values of the setting that varies, and the fixed ones."""

    symbol: str
    values: tuple[str, ...]
    settings: tuple[Setting, ...]
    fixed: str


def new(rows: int, columns: int, *, width: float = 12.8, height: float = 5.4, **shared: Any) -> tuple[Figure, Any]:
    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(rows, columns, figsize=(width, height), squeeze=False, layout="constrained", **shared)
    return figure, axes


def save(figure: Figure, path: Path, title: str, note: str) -> None:
    figure.suptitle(f"{title}\n{note}", fontsize=12)
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    plt.close(figure)


def error_axis(axes: Axes, *, zero: bool = True) -> None:
    """Make the error axis logarithmic, with a grey line at the error of answering zero."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda v, _: f"{v:g}"))
    axes.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    axes.grid(axis="y", alpha=0.25)
    if zero:
        axes.axhline(1.0, color="#999999", linewidth=1.2, zorder=0)


def band(
    axes: Axes,
    x: Sequence[float],
    cells: Sequence[Cell],
    method: str,
    style: str = "-",
    marker: str = "",
    colour: Any = None,
) -> None:
    """Draw the mean over repetitions as a line and one standard deviation as a band."""
    mean, sd = np.array([cell.mean for cell in cells]), np.array([cell.sd for cell in cells])
    low, high = np.maximum(mean - sd, mean / 5), mean + sd  # positive, since the axis is logarithmic
    colour = COLOURS[method] if colour is None else colour
    axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)
    axes.plot(x, mean, style, color=colour, linewidth=1.6, marker=marker, markersize=4.5, label=method)


def whole_numbers(axes: Axes) -> None:
    axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True))


def log_axis(axes: Axes, values: Sequence[float], label: str) -> None:
    """Make the x axis logarithmic, with ticks at the values."""
    axes.set_xscale("log")
    axes.set_xlabel(label)
    axes.set_xticks(values, [f"{v / 1000:g}k" if v >= 2000 else f"{v:g}" for v in values])
    axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())


def shades(count: int) -> list[Any]:
    """Colours of an ordered quantity, dark to light."""
    return [plt.get_cmap("viridis")(v) for v in np.linspace(0.0, 0.9, count)]


def legend(figure: Figure, methods: Sequence[str], *, markers: bool = True) -> None:
    """A legend of the methods below the panels."""
    handles = [
        Line2D([], [], color=COLOURS[m], linewidth=2, marker=MARKERS.get(m, "") if markers else "", label=m)
        for m in methods
    ]
    handles.append(Line2D([], [], color="#999999", linewidth=1.2, label=ZERO))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=10)


def against_iterations(
    results: Results, rows: Sequence[Sequence[Panel]], methods: Sequence[str], path: Path, title: str
) -> None:
    """The paper's layout: panels for n, s* and ε, the error against the iteration, a line style for each value."""
    figure, grid = new(len(rows), 3, height=1.0 + 5.2 * len(rows), sharey="row")
    shown = [
        m
        for m in methods
        if any(results.has(setting, m) for row in rows for panel in row for setting in panel.settings)
    ]
    for row, axes_row in zip(rows, grid, strict=True):
        for panel, axes in zip(row, axes_row, strict=True):
            _panel(results, panel, axes, shown)
        axes_row[0].set_ylabel("error  ‖βᵗ − β*‖")
    legend(figure, shown)
    note = f"Lines: mean of {results.reps(rows[0][0].settings)} repetitions. Bands: one standard deviation."
    save(figure, path, title, note)


def _panel(results: Results, panel: Panel, axes: Axes, methods: Sequence[str]) -> None:
    error_axis(axes)
    for setting, style in zip(panel.settings, STYLES, strict=True):
        for method in methods:
            if results.has(setting, method):
                band(axes, *results.trace(setting, method), method, style, MARKERS[method])
    handles = [
        Line2D([], [], color="#444444", linestyle=style, label=f"{panel.symbol} = {value}")
        for style, value in zip(STYLES, panel.values, strict=True)
    ]
    title = axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    title.set_title(panel.fixed)
    axes.set_xlabel("iteration (improved: step)")
    whole_numbers(axes)
