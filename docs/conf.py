"""Sphinx: ``make docs`` builds the site into ``build/site``; a warning is an error."""

from dpem._version import __version__

project = "dpem"
author = "the dpem developers"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["build"]

autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_google_docstring = False

html_theme = "furo"
html_title = "dpem"
html_static_path: list[str] = []
html_extra_path: list[str] = []
pygments_style = "friendly"
pygments_dark_style = "native"
