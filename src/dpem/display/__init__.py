"""Figures of a fit or a plan for notebooks and papers, such as ``CoefficientDisplay.from_estimator(model)``.

They show released numbers, so drawing them costs nothing. matplotlib is imported when something is drawn.
"""

from dpem.display.coefficients import CoefficientDisplay
from dpem.display.components import EllipseDisplay, MixtureDisplay
from dpem.display.plans import PlanDisplay

__all__ = ["CoefficientDisplay", "EllipseDisplay", "MixtureDisplay", "PlanDisplay"]
