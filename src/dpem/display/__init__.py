"""Pictures of a fit or a plan for notebooks and papers: ``CoefficientDisplay.from_estimator(model)``, and so on.

They show what was released, so drawing them costs nothing. matplotlib is loaded when something is drawn.
"""

from dpem.display.coefficients import CoefficientDisplay
from dpem.display.components import EllipseDisplay, MixtureDisplay
from dpem.display.plans import PlanDisplay

__all__ = ["CoefficientDisplay", "EllipseDisplay", "MixtureDisplay", "PlanDisplay"]
