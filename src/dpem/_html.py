"""Formatting of numbers and texts, and rendering of HTML templates.

Templates escape each value that they print, and replace control characters, lone surrogates and bidirectional marks, so
that the name of a column or of a dataset cannot change a page.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import textwrap
from functools import cache
from importlib.resources import files
from typing import Any

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_UNPRINTABLE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def _printable(value: str) -> str:
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", value)


def number(value: float, digits: int = 3) -> str:
    """A number as text, with a power of ten if it is very small or large.

    >>> number(0.000012), number(-0.5), number(1234567.0), number(1e-6), number(float("inf"))
    ('1.2 × 10⁻⁵', '−0.5', '1.23 × 10⁶', '10⁻⁶', '∞')
    """
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.{digits}g}"
    if value and not 1e-3 <= abs(value) < 1e5:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        power = f"10{str(int(exponent)).translate(_SUPERSCRIPT)}"
        text = {"1": power, "-1": f"-{power}"}.get(mantissa, f"{mantissa} × {power}")
    elif "e" in text:
        text = f"{value:.0f}"
    return "−" + text[1:] if text.startswith("-") else text


def round_to(value: float, error: float) -> str:
    """A number, rounded to two digits of its standard error.

    >>> round_to(0.0055214, 0.0209), round_to(-60.118, 0.191), round_to(1234.6, 52.0), round_to(2.0, 0.0)
    ('0.006', '−60.12', '1,235', '2')
    """
    if not 1e-4 <= error < 1e5 or not abs(value) < 1e7:
        return number(value, 4)
    text = f"{value:,.{max(0, 1 - math.floor(math.log10(error)))}f}"
    return "−" + text[1:] if text.startswith("-") and text.strip("-0.,") else text.removeprefix("-")


def percent(share: float) -> str:
    """A share as a percentage.

    >>> percent(0.5), percent(0.0004), percent(1.0)
    ('50 %', 'below 0.1 %', '100 %')
    """
    if 0 < share < 0.001:
        return "below 0.1 %"
    return f"{100 * share:.3g} %" if share < 0.9995 else "100 %"


def wrap(text: object) -> str:
    """The text with each line wrapped at 100 characters; an indented line continues under its first word."""
    wrapper = textwrap.TextWrapper(100, break_long_words=False, break_on_hyphens=False)
    lines = []
    for line in str(text).split("\n"):
        wrapper.subsequent_indent = " " * 12 if line.startswith(" ") else ""
        lines.append(wrapper.fill(line))
    return "\n".join(lines)


def source(name: str) -> str:
    """The text of a file beside the templates."""
    return (files("dpem") / "templates" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Any:
    import jinja2  # here, since most of the package does without it

    def finalize(value: Any) -> Any:
        return _printable(value) if type(value) is str else value

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
    environment.filters |= {"number": number, "round_to": round_to, "percent": percent, "capital": capital}
    environment.filters["count"] = "{:,}".format
    environment.globals |= {"infinity": math.inf, "min": min}
    return environment


def capital(words: str) -> str:
    """The words with a capital first letter.

    >>> capital("gaussian mixture")
    'Gaussian mixture'
    """
    return words[:1].upper() + words[1:]


def fill(template: str, /, **values: object) -> str:
    """The template, rendered with these values."""
    return str(_environment().get_template(template).render(**values))


def page(template: str, /, *, style: str, script: str = "", **values: object) -> str:
    """A complete page that loads no other file. Its security policy allows its own script alone, by digest."""
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f" script-src 'sha256-{allowed}';" if script else ""
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline';{scripts} img-src data:; base-uri 'none'; form-action 'none'"
    )
    return fill(template, style=style, script=script, policy=policy, **values)


def notebook(kind: str, shown: object) -> str:
    """The HTML that a notebook shows for a guarantee, a budget, a plan or a model."""
    return fill("notebook.html", kind=kind, shown=shown)
