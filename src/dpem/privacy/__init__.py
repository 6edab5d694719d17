"""The only package that draws noise or spends budget: curator, mechanisms, accounting, budget, ledger. No model here.

Names are imported on first use, as in :mod:`dpem`: reading a ledger imports no noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpem._extras import load

if TYPE_CHECKING:
    from dpem.privacy.accounting import Price, largest_price
    from dpem.privacy.budget import Budget, BudgetExceeded, Charge, digest
    from dpem.privacy.curator import Account, Curator, Release, total_price
    from dpem.privacy.guarantee import Guarantee, together
    from dpem.privacy.ledger import Ledger
    from dpem.privacy.ledger_entries import DatasetState, FitEntry, Policy
    from dpem.privacy.ledger_store import LedgerError
    from dpem.privacy.noise import Noise, PrivateNoise, SeededNoise

__all__ = [
    "Account",
    "Budget",
    "BudgetExceeded",
    "Charge",
    "Curator",
    "DatasetState",
    "FitEntry",
    "Guarantee",
    "Ledger",
    "LedgerError",
    "Noise",
    "Policy",
    "Price",
    "PrivateNoise",
    "Release",
    "SeededNoise",
    "digest",
    "largest_price",
    "together",
    "total_price",
]

_HOME = {
    "accounting": ("Price", "largest_price"),
    "budget": ("Budget", "BudgetExceeded", "Charge", "digest"),
    "curator": ("Account", "Curator", "Release", "total_price"),
    "guarantee": ("Guarantee", "together"),
    "ledger": ("Ledger",),
    "ledger_entries": ("DatasetState", "FitEntry", "Policy"),
    "ledger_store": ("LedgerError",),
    "noise": ("Noise", "PrivateNoise", "SeededNoise"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'dpem.privacy' has no attribute {name!r}")
    value = load(f"dpem.privacy.{_MODULE[name]}", name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
