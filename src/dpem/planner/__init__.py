"""The planner: one page for choosing ε, rows and columns before there are data. It reads none and spends nothing."""

from dpem.planner.page import page, write_page

__all__ = ["page", "write_page"]
