"""Other private methods for the same models, to compare with: Wang et al. (2020), a clipped gradient EM and a noisy
second moment.
"""
