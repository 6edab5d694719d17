"""Audits: tests of the privacy guarantee by measurements on fits."""
