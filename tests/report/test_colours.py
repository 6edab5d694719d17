"""Colours of a report: every text and mark has enough contrast in both palettes."""

import re

import pytest

from dpem._html import source


def luminance(colour):
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one, other):
    """The WCAG 2 ratio."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


#: (foreground, background) of all text in a report, which needs a contrast of 4.5; and of lines and marks, 3.
TEXT_PAIRS = [
    ("text", "page"),
    ("text", "panel"),
    ("muted", "page"),
    ("muted", "panel"),
    ("accent", "page"),
    ("accent", "panel"),
    ("on-measure", "measure"),
    ("on-select", "select"),
    ("on-alarm", "alarm"),
]
MARK_PAIRS = [("measure", "page"), ("select", "page"), ("threshold", "page"), ("muted", "page"), ("alarm", "page")]

STYLE = source("style.css")
LIGHT, DARK = (dict(re.findall(r"--([\w-]+): (#\w{6})", part)) for part in STYLE.split("* {")[0].split("@media"))


class TestColours:
    def test_the_ratio(self):
        assert contrast("#000000", "#ffffff") == pytest.approx(21)
        assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)

    @pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
    def test_contrast(self, palette):
        for pair in TEXT_PAIRS:
            assert contrast(palette[pair[0]], palette[pair[1]]) >= 4.5, pair
        for pair in MARK_PAIRS:
            assert contrast(palette[pair[0]], palette[pair[1]]) >= 3, pair

    def test_every_colour_comes_from_both_palettes(self):
        assert set(LIGHT) == set(DARK)
        rules = STYLE.split("* { box-sizing")[1]
        assert not re.search("#[0-9a-fA-F]{3}", rules)
        used = set(re.findall(r"var\(--([\w-]+)\)", rules))
        assert used == set(LIGHT)

    def test_paper_is_white(self):
        assert "@media screen and (prefers-color-scheme: dark)" in STYLE
