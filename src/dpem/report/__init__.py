"""One self-contained HTML page about a fit: its guarantee, queries, prices and results. It works offline and prints."""

from dpem.report.facts import About
from dpem.report.page import render, write_report

__all__ = ["About", "render", "write_report"]
