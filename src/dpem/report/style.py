"""The look of every page: two palettes, and the rules of ``templates/style.css``."""

from __future__ import annotations

from dpem._html import source

#: Colours by what they are for. ``on_*`` is text on that colour.
LIGHT = {
    "page": "#ffffff",
    "panel": "#f3f5f8",
    "rule": "#c9d0d8",
    "text": "#1a1f26",
    "muted": "#525c68",
    "accent": "#0b4f94",
    "measure": "#0b5cad",
    "on_measure": "#ffffff",
    "select": "#8a5000",
    "on_select": "#ffffff",
    "threshold": "#a3123a",
    "alarm": "#8b1020",
    "on_alarm": "#ffffff",
}
DARK = {
    "page": "#14171c",
    "panel": "#1e232b",
    "rule": "#3d4652",
    "text": "#e8ebef",
    "muted": "#a9b3c0",
    "accent": "#8cc0ff",
    "measure": "#7db4f5",
    "on_measure": "#10141a",
    "select": "#e3a857",
    "on_select": "#10141a",
    "threshold": "#ff92ab",
    "alarm": "#ffb3ab",
    "on_alarm": "#3a0508",
}


def _variables(palette: dict[str, str]) -> str:
    return "".join(f"--{name.replace('_', '-')}: {colour}; " for name, colour in palette.items())


STYLE = (
    f":root {{ color-scheme: light dark; {_variables(LIGHT)}}}\n"
    f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)}}} }}\n{source('style.css')}"
)
