"""The only room that draws noise or spends budget: curator, mechanisms, accounting, budget, ledger. No model here."""

from dpem.privacy.accounting import Price, largest_price
from dpem.privacy.budget import Budget, BudgetExceeded, Charge
from dpem.privacy.curator import Account, Curator, Release, total_price
from dpem.privacy.guarantee import Guarantee, together
from dpem.privacy.ledger import DatasetState, Debit, Ledger, digest
from dpem.privacy.ledger_schema import LedgerError
from dpem.privacy.noise import Noise, PrivateNoise, SeededNoise

__all__ = [
    "Account",
    "Budget",
    "BudgetExceeded",
    "Charge",
    "Curator",
    "DatasetState",
    "Debit",
    "Guarantee",
    "Ledger",
    "LedgerError",
    "Noise",
    "Price",
    "PrivateNoise",
    "Release",
    "SeededNoise",
    "digest",
    "largest_price",
    "together",
    "total_price",
]
