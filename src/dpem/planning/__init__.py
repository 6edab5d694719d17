"""What a fit will do and what is expected of it, fixed before the data are read. This room never sees data."""

from dpem.planning.model import Model, Outlook, Sizes
from dpem.planning.plan import Plan, Prediction

__all__ = ["Model", "Outlook", "Plan", "Prediction", "Sizes"]
