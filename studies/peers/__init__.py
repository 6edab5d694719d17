"""The general models beside what one would otherwise take, on the same tables, splits and (ε, δ = 1e-6).

    python -m studies.peers [--only PROBLEM,...] [--methods NAME,...] [--reps 10] [--out results/peers_real.csv]

Regressions, Gaussian mixtures, latent classes and mixtures of regressions, on the tables of the models' own studies.
The libraries run in environments of their own (:mod:`studies.paper.peers.runner`), get tables as files without what is
held out, and import nothing of dpem. What they leave open is chosen on practice tables: other draws of the same model,
or other splits of the same real table, **which costs them nothing** and in practice would. dpem is not tuned.
"""
