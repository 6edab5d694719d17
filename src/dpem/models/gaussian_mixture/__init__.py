"""A mixture of Gaussians of any size, place and shape; values may be missing."""

from dpem.models.gaussian_mixture.estimator import DPGaussianMixture

__all__ = ["DPGaussianMixture"]
