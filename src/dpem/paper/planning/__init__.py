"""Plans of the improved method: every setting is chosen and the error predicted without the data."""
