"""dpem beside its baselines and beside the libraries one would reach for, on the same tables at the same (ε, δ).

    python -m studies.paper.peers [--reps 10] [--out results/peers.csv]

The libraries run in environments of their own, made on first use: :mod:`~studies.paper.peers.runner`.
"""
