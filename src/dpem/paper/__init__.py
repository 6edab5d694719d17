"""The paper in a room of its own: its three models, its algorithms as printed and corrected, and the tight method.

Names are imported when they are first used, as in :mod:`dpem`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpem.paper.estimators import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
    from dpem.paper.planning import Plan, plan

__all__ = ["DPMissingRegression", "DPSymmetricMixture", "DPSymmetricRegression", "Plan", "plan"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dpem.paper' has no attribute {name!r}")
    return getattr(import_module("dpem.paper.planning" if name.lower() == "plan" else "dpem.paper.estimators"), name)


def __dir__() -> list[str]:
    return list(__all__)
