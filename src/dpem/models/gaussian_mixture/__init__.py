"""Groups of people: a mixture of Gaussians of any size, place and shape, holes allowed."""

from dpem.models.gaussian_mixture.estimator import DPGaussianMixture

__all__ = ["DPGaussianMixture"]
