"""Fits of public tables that nobody chose for them."""
