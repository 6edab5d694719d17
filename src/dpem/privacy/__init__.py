"""The only package that draws noise or spends budget: curator, mechanisms, accounting, budget, ledger.

Names are imported on first use, as in :mod:`dpem`: reading a ledger does not load the samplers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpem._extras import on_first_use

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

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "dpem.privacy.accounting": ("Price", "largest_price"),
        "dpem.privacy.budget": ("Budget", "BudgetExceeded", "Charge", "digest"),
        "dpem.privacy.curator": ("Account", "Curator", "Release", "total_price"),
        "dpem.privacy.guarantee": ("Guarantee", "together"),
        "dpem.privacy.ledger": ("Ledger",),
        "dpem.privacy.ledger_entries": ("DatasetState", "FitEntry", "Policy"),
        "dpem.privacy.ledger_store": ("LedgerError",),
        "dpem.privacy.noise": ("Noise", "PrivateNoise", "SeededNoise"),
    },
)
