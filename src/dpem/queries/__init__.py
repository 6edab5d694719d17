"""Queries that several models use, and the loop that sums a query over blocks of rows."""
