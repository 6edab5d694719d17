"""Audits: whether the guarantee is kept, measured on fits rather than argued from formulas."""
