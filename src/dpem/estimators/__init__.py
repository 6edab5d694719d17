"""scikit-learn faces: validation, units, summaries, and the private scaler."""

from dpem.estimators.rows import refuse_non_finite
from dpem.estimators.scaler import DPStandardScaler, pipeline_guarantee

__all__ = ["DPStandardScaler", "pipeline_guarantee", "refuse_non_finite"]
