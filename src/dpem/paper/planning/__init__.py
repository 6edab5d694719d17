"""Choosing every setting before the data are read, and predicting the error of a fit. This room never sees data."""

from dpem.paper.planning.choose import Plan, plan
from dpem.paper.planning.fixed import paper_plan, reference_plan

__all__ = ["Plan", "paper_plan", "plan", "reference_plan"]
