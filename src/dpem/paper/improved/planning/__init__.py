"""Choosing every setting before the data are read, and predicting the error of a fit. No data come here."""

from dpem.paper.improved.planning.choose import Plan, plan
from dpem.paper.improved.planning.fixed import published_plan, reference_plan

__all__ = ["Plan", "plan", "published_plan", "reference_plan"]
