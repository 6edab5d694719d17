"""Small pieces of HTML. Every text that is not a literal of this package goes through :func:`text`."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
#: Control characters, lone surrogates, and marks that reorder what is around them: none has a place in a label.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def text(value: object) -> str:
    """The value as HTML text, also inside a quoted attribute.

    >>> text('<b>"x" & y</b>')
    '&lt;b&gt;&quot;x&quot; &amp; y&lt;/b&gt;'
    """
    return html.escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(value)), quote=True)


def number(value: float, digits: int = 3) -> str:
    """A number for people.

    >>> number(0.000012), number(-0.5), number(1234567.0), number(1e-6), number(float("inf"))
    ('1.2 × 10⁻⁵', '−0.5', '1.23 × 10⁶', '10⁻⁶', '∞')
    """
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    shown = f"{value:.{digits}g}"
    if value and not 1e-3 <= abs(value) < 1e5:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        power = f"10{str(int(exponent)).translate(_SUPERSCRIPT)}"
        shown = {"1": power, "-1": f"-{power}"}.get(mantissa, f"{mantissa} × {power}")
    elif "e" in shown:
        shown = f"{value:.0f}"
    return "−" + shown[1:] if shown.startswith("-") else shown


def measured(value: float, error: float) -> str:
    """A number as precisely as it is known: to two digits of its standard error.

    >>> measured(0.0055214, 0.0209), measured(-60.118, 0.191), measured(1234.6, 52.0), measured(2.0, 0.0)
    ('0.006', '−60.12', '1,235', '2')
    """
    if not 1e-4 <= error < 1e5 or not abs(value) < 1e7:
        return number(value, 4)
    shown = f"{value:,.{max(0, 1 - math.floor(math.log10(error)))}f}"
    return "−" + shown[1:] if shown.startswith("-") and shown.strip("-0.,") else shown.removeprefix("-")


def percent(share: float) -> str:
    """A share for people.

    >>> percent(0.5), percent(0.0004), percent(1.0)
    ('50 %', 'below 0.1 %', '100 %')
    """
    if 0 < share < 0.001:
        return "below 0.1 %"
    return f"{100 * share:.3g} %" if share < 0.9995 else "100 %"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[int] = ()) -> str:
    """A table whose first column names its rows. Cells are HTML already; ``numeric`` columns are set flush right. On a
    narrow screen a row becomes a block, in which each cell has its column's heading before it: nothing is cut.
    """

    def cell(tag: str, column: int, content: str, extra: str = "") -> str:
        kind = ' class="number"' if column in numeric else ""
        return f"<{tag}{extra}{kind}>{content}</{tag}>"

    def labelled(column: int, content: str) -> str:
        return cell("td", column, content, f' data-label="{caption_text(head[column])}"')

    top = "".join(cell("th", i, content, ' scope="col"') for i, content in enumerate(head))
    body = "".join(
        "<tr>"
        + cell("th", 0, row[0], ' scope="row"')
        + "".join(labelled(i, content) for i, content in enumerate(row[1:], start=1))
        + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{caption_text(caption)}">'
        f"<table>\n<caption>{caption}</caption>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>"
    )


def caption_text(caption: str) -> str:
    """A caption without its tags, for an attribute."""
    return re.sub("<[^>]*>", "", caption)


def section(heading: str, *content: str) -> str:
    """A section with its heading; empty parts are left out."""
    return f"<section>\n<h2>{heading}</h2>\n" + "\n".join(part for part in content if part) + "\n</section>"
