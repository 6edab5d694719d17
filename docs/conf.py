"""Sphinx: ``make docs`` builds the site into ``build/site``; a warning is an error."""

import sys
from pathlib import Path

from dpem._version import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "dpem"
author = "the dpem developers"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "mathml",
]
html_math_renderer = "mathml"
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["build"]

autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = "dpem"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_extra_path: list[str] = []
pygments_style = "friendly"
pygments_dark_style = "native"
