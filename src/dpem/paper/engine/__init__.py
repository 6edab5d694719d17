"""Clipped sums over all columns of wide tables, on the CPU and the GPU: the engine of the paper's models."""

from dpem.paper.engine.base import Engine, engine_of

__all__ = ["Engine", "engine_of"]
