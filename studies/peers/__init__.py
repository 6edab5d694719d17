"""Comparison of the general models with other software, on the same tables, splits and (ε, δ = 1e-6).

    python -m studies.peers [--only PROBLEM,...] [--methods NAME,...] [--reps 10] [--out results/peers_real.csv]

Regressions, Gaussian mixtures, latent classes and mixtures of regressions, on the tables of the models' own studies.
The libraries run in their own environments (:mod:`studies.paper.peers.runner`), read tables without the held-out rows
from files, and import nothing of dpem. Their free settings are tuned on practice tables (other draws of the same model,
or other splits of the same real table), **which is not charged** to them. dpem is not tuned.
"""
