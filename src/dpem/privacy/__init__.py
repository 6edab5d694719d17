"""The only room that draws noise or spends budget: curator, mechanisms, accounting, budget. It imports no model."""

from dpem.privacy.accounting import Price, largest_price
from dpem.privacy.budget import Budget, BudgetExceeded
from dpem.privacy.curator import Account, Curator, Release, total_price
from dpem.privacy.guarantee import Guarantee, together
from dpem.privacy.noise import Noise, PrivateNoise, SeededNoise

__all__ = [
    "Account",
    "Budget",
    "BudgetExceeded",
    "Curator",
    "Guarantee",
    "Noise",
    "Price",
    "PrivateNoise",
    "Release",
    "SeededNoise",
    "largest_price",
    "together",
    "total_price",
]
