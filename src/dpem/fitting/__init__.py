"""The fit sequence that every model shares: plan, steps, estimator, uncertainty, summary, serialization."""
