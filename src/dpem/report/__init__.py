"""One self-contained HTML page about a fit: what was guaranteed, asked, paid and found. Works offline, prints."""

from dpem.report.facts import About
from dpem.report.page import render, write_report

__all__ = ["About", "render", "write_report"]
