"""Latent classes: groups of people who answer categorical items alike (latent class analysis)."""

from dpem.models.latent_class.estimator import DPLatentClass

__all__ = ["DPLatentClass"]
