"""Linear regression with an intercept, correlated columns of any scale, and missing values."""

from dpem.models.linear_regression.estimator import DPLinearRegression

__all__ = ["DPLinearRegression"]
