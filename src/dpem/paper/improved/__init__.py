"""The improved method, which is not in the paper: its steps, and the planning that chooses their settings."""
