"""The report of a fit, one HTML page that works offline: its results, guarantee, queries and prices."""

from dpem.report.facts import About
from dpem.report.page import render, write_report

__all__ = ["About", "render", "write_report"]
