"""Logistic regression of a response with two levels: coefficients, odds ratios and probabilities."""

from dpem.models.logistic_regression.estimator import DPLogisticRegression

__all__ = ["DPLogisticRegression"]
