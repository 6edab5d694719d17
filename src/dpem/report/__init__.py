"""One self-contained HTML page about a fit: what was promised, asked, paid and found. Works offline, prints."""

from dpem.report.page import render, write_report

__all__ = ["render", "write_report"]
