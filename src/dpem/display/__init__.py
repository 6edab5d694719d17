"""Pictures of a fit or a plan for notebooks and papers, in scikit-learn's manner: ``from_estimator``, then ``plot``.

They show what was released, so drawing them costs nothing. matplotlib is loaded when something is drawn.
"""

from dpem.display.fits import CoefficientDisplay, MixtureDisplay, PriceDisplay
from dpem.display.plans import PlanDisplay

__all__ = ["CoefficientDisplay", "MixtureDisplay", "PlanDisplay", "PriceDisplay"]
