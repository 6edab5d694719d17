"""Bounded sums that belong to no one model."""
