"""Linear regression with an intercept, correlated columns of any scale, and holes."""

from dpem.models.linear_regression.estimator import DPLinearRegression

__all__ = ["DPLinearRegression"]
