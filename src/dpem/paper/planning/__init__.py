"""Choosing every setting before the data are read, and predicting the error of a fit. No data come here."""
