"""The picture of an audit: lower bound against claim."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpem.audit.bounds import CONFIDENCE, Finding

try:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
except ImportError as absent:
    raise ImportError("drawing needs matplotlib: install 'dpem[reproduce]'.", name="matplotlib") from absent

#: Okabe and Ito's palette.
BLUE, ORANGE, GREEN, VERMILLION, SKY, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7"
BLACK, GREY = "#000000", "#767676"
#: By how a subject's name begins: what it is called, its colour, and for mechanisms its marker.
MECHANISMS = {
    "values, sampler": ("values, the sampler alone", SKY, "o"),
    "values": ("values, through the curator", BLUE, "o"),
    "selection, sampler": ("selection, the sampler alone", ORANGE, "s"),
    "selection": ("selection, through the curator", VERMILLION, "s"),
    "peeling": ("peeling, through the curator", PURPLE, "D"),
}
FITS = {
    "symmetric-mixture": ("Gaussian mixture", BLUE),
    "symmetric-regression": ("mixture of regressions", VERMILLION),
    "missing-regression": ("missing covariates", GREEN),
    "scaler": ("scaler", BLACK),
    "one run": ("one fit of full size", PURPLE),
}
#: What a fit is like, and its marker.
KINDS = {"dense": "o", "sparse": "s", "paper's method": "D", "one run": "*"}
#: Bounds below this stand on the lower edge.
LEAST = 0.05


def draw(findings: Sequence[Finding], path: Path) -> None:
    """Two panels, mechanisms and fits, with the bounds at the package's own confidence."""
    plt.rcParams.update({"font.size": 10.5, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.0, 6.6), layout="constrained")
    shown = [finding for finding in findings if finding.confidence == CONFIDENCE]
    alone = [finding for finding in shown if finding.subject.startswith(tuple(MECHANISMS))]
    whole = [finding for finding in shown if finding.subject.startswith(tuple(FITS))]
    for axes, title, part in ((left, "Mechanisms alone", alone), (right, "Fits from end to end", whole)):
        _frame(axes, title, 1.7 * max([finding.epsilon for finding in part] or [1.0]))
    _mechanisms(left, alone)
    _fits(right, whole)
    left.set_ylabel(f"lower bound on ε, {CONFIDENCE * 100:g} % confidence")
    figure.savefig(path, dpi=130, facecolor="white", metadata={"Software": None})
    plt.close(figure)


def _mechanisms(axes: Axes, findings: Sequence[Finding]) -> None:
    keys = [_key(finding, MECHANISMS) for finding in findings]
    present = [key for key in MECHANISMS if key in keys]
    for place, key in enumerate(present):
        _, colour, marker = MECHANISMS[key]
        mine = [finding for finding, at in zip(findings, keys, strict=True) if at == key]
        for finding in mine:
            _mark(axes, finding, _aside(place, len(present), 1.06), colour, marker, filled=True)
    handles = [_handle(*MECHANISMS[key]) for key in MECHANISMS if key in present]
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False)


def _fits(axes: Axes, findings: Sequence[Finding]) -> None:
    series = list(dict.fromkeys((_key(f, FITS), _kind(f), f.adversary) for f in findings))
    for place, (key, kind, adversary) in enumerate(sorted(series)):
        for finding in findings:
            if (_key(finding, FITS), _kind(finding), finding.adversary) == (key, kind, adversary):
                filled = adversary == "every release"
                _mark(axes, finding, _aside(place, len(series), 1.3), FITS[key][1], KINDS[kind], filled)
    keys, kinds = {key for key, _, _ in series}, {kind for _, kind, _ in series}
    handles = [_handle(*FITS[key], "*" if key == "one run" else "o") for key in FITS if key in keys]
    handles += [_handle(kind, GREY, KINDS[kind]) for kind in ("dense", "sparse", "paper's method") if kind in kinds]
    handles += [_handle("sees every release", GREY, "o"), _handle("sees the model only", GREY, "o", filled=False)]
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False)


def _frame(axes: Axes, title: str, most: float) -> None:
    """The plane of claims and bounds, with the claim itself and half of it."""
    ends = [0.3, most]
    axes.plot(ends, ends, color=BLACK, linewidth=1.2)
    axes.plot(ends, [end / 2 for end in ends], color=GREY, linewidth=1.2, linestyle="--")
    axes.fill_between(ends, ends, [most, most], color="#F8E3DB", zorder=0)
    axes.text(0.03, 0.95, "the claim would be wrong", color="#8A3B12", va="center", transform=axes.transAxes)
    for part, label, colour in ((1.0, "claim", BLACK), (0.5, "half of it", "#555555")):
        axes.annotate(label, (most, part * most), (5, 0), textcoords="offset points", color=colour, va="center")
    axes.set_title(title)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.3, most)
    axes.set_ylim(LEAST, most)
    for axis, ticks in ((axes.xaxis, (0.5, 1, 2, 4, 8, 16)), (axes.yaxis, (LEAST, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16))):
        axis.set_major_locator(FixedLocator([tick for tick in ticks if tick < most]))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g} or less" if x == LEAST else f"{x:g}"))
    axes.set_xlabel("claimed ε")
    axes.grid(color="#EEEEEE")


def _mark(axes: Axes, finding: Finding, aside: float, colour: str, marker: str, filled: bool) -> None:
    style: dict[str, Any] = {
        "markerfacecolor": colour if filled else "white",
        "markeredgecolor": colour,
        "markeredgewidth": 1.4,
    }
    size = 11 if marker == "*" else 7
    place = finding.epsilon * aside, max(finding.lower, LEAST)
    axes.plot(*place, linestyle="", marker=marker, markersize=size, clip_on=False, zorder=3, **style)


def _handle(label: str, colour: str, marker: str, filled: bool = True) -> Line2D:
    face = colour if filled else "white"
    return Line2D([], [], linestyle="", marker=marker, color=colour, markerfacecolor=face, label=label)


def _aside(place: int, count: int, spread: float) -> float:
    """Marks at equal claims stand side by side, over so wide a part of the axis."""
    return float(spread ** ((place + 0.5) / count - 0.5))


def _key(finding: Finding, styles: dict[str, tuple[str, str, str]] | dict[str, tuple[str, str]]) -> str:
    return max((key for key in styles if finding.subject.startswith(key)), key=len)


def _kind(finding: Finding) -> str:
    for kind in ("one run", "paper's method"):
        if kind in finding.subject:
            return kind
    return "sparse" if " of " in finding.subject else "dense"
