"""The site builds without a warning, needs no network, and its examples can be copied."""

import re
import warnings
from pathlib import Path

import pytest
from browsing import browser

ROOT = Path(__file__).parents[2]
for needed in ("furo", "myst_parser"):
    pytest.importorskip(needed)
from sphinx.cmd.build import main as sphinx_build  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    without_sources = "extensions=myst_parser,sphinx.ext.autodoc,sphinx.ext.napoleon"  # pages of code take longest
    options = ["-W", "--keep-going", "-q", "-b", "html", "-D", without_sources, "-d", folder / "trees"]
    arguments = [*options, ROOT / "docs", folder / "html"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python; Sphinx's own are errors
        assert sphinx_build([str(argument) for argument in arguments]) == 0
    return folder / "html"


def test_the_pages_are_built(site):
    assert "Start in five minutes" in (site / "index.html").read_text(encoding="utf-8")
    assert "plan.png" in (site / "choosing-epsilon.html").read_text(encoding="utf-8")
    assert "0.1.0" in (site / "changes.html").read_text(encoding="utf-8")


def test_no_page_loads_from_the_network(site):
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        loads = re.findall(r'<(?:script|img|iframe|link)[^>]*?(?:src|href)="(https?:[^"]*)"', text)
        assert loads == [], page.name


def test_an_example_is_copied_without_its_prompts(site):
    with browser() as chromium:
        chromium.size(1280, 900)
        chromium.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
        chromium.get((site / "cli.html").as_uri())
        buttons = chromium.find_elements("css selector", "button.copy")
        blocks = chromium.find_elements("css selector", "div.highlight pre")
        assert len(buttons) == len(blocks) > 3
        first = next(i for i, block in enumerate(blocks) if block.text.startswith("$ "))
        chromium.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", buttons[first])
        buttons[first].click()
        copied = chromium.execute_async_script("navigator.clipboard.readText().then(arguments[0], arguments[0])")
        assert copied.startswith("dpem ")
        assert "$" not in copied.split("\n")[0]
        assert chromium.messages() == []
