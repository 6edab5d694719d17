"""Whether intervals cover, fit checks speak and plans come true: the tables of results/calibration.md."""
