"""How a query's sum is computed for each kind of rows: one engine per kind, all of them the same sums."""

from dpem.engines.base import Engine, engine_of, float_below

__all__ = ["Engine", "engine_of", "float_below"]
