"""Choosing every setting before the data are read, and predicting the error of a fit. No data come here."""

from dpem.paper.planning.plans import needs_start, plan

__all__ = ["needs_start", "plan"]
