"""What a fit will do and what is expected of it, fixed before the data are read. This room never sees data."""

from dpem.planning.model import Effect, Model, Outlook, Sizes
from dpem.planning.plan import Plan, Prediction

__all__ = ["Effect", "Model", "Outlook", "Plan", "Prediction", "Sizes"]
