"""scikit-learn faces of the three models: validation, fitted attributes, predict."""

from dpem.estimators.gaussian_mixture import DPGaussianMixture
from dpem.estimators.missing_regression import DPMissingRegression
from dpem.estimators.mixture_regression import DPMixtureRegression
from dpem.estimators.scaler import DPStandardScaler, pipeline_guarantee

__all__ = ["DPGaussianMixture", "DPMissingRegression", "DPMixtureRegression", "DPStandardScaler", "pipeline_guarantee"]
