"""scikit-learn faces: validation, units, summaries, and the private scaler."""

from dpem.estimators.scaler import DPStandardScaler, pipeline_guarantee

__all__ = ["DPStandardScaler", "pipeline_guarantee"]
