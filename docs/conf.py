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
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["build"]

autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_default_options = {
    "exclude-members": "get_metadata_routing, set_fit_request, set_output, set_score_request",
    "inherited-members": "BaseEstimator, ClassifierMixin, RegressorMixin",
}
napoleon_google_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = "dpem"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
pygments_style = "friendly"
pygments_dark_style = "native"
