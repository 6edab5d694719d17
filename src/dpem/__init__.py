"""Latent-variable models fitted by EM under differential privacy.

Names are imported on first use, so that ``dpem --help`` need not import a compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpem._extras import on_first_use
from dpem._version import __version__

if TYPE_CHECKING:
    from dpem._validation import ArgumentError
    from dpem.fitting.inference import compare
    from dpem.fitting.plan import Plan
    from dpem.fitting.scaler import DPStandardScaler, pipeline_guarantee
    from dpem.fitting.search import DPGridSearch
    from dpem.models.gaussian_mixture import DPGaussianMixture
    from dpem.models.latent_class import DPLatentClass
    from dpem.models.linear_regression import DPLinearRegression
    from dpem.models.logistic_regression import DPLogisticRegression
    from dpem.models.mixture_regression import DPMixtureRegression
    from dpem.models.poisson_regression import DPPoissonRegression
    from dpem.persistence import load_model, save_model
    from dpem.privacy import Budget, BudgetExceeded, Guarantee, Ledger, LedgerError
    from dpem.registry import plan
    from dpem.report import write_report
    from dpem.tables import progress
    from dpem.tables.entries import OTHER
    from dpem.tables.files import read_table

__all__ = [
    "OTHER",
    "ArgumentError",
    "Budget",
    "BudgetExceeded",
    "DPGaussianMixture",
    "DPGridSearch",
    "DPLatentClass",
    "DPLinearRegression",
    "DPLogisticRegression",
    "DPMixtureRegression",
    "DPPoissonRegression",
    "DPStandardScaler",
    "Guarantee",
    "Ledger",
    "LedgerError",
    "Plan",
    "__version__",
    "compare",
    "load_model",
    "pipeline_guarantee",
    "plan",
    "progress",
    "read_table",
    "save_model",
    "write_report",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "dpem._validation": ("ArgumentError",),
        "dpem.fitting.inference": ("compare",),
        "dpem.fitting.scaler": ("DPStandardScaler", "pipeline_guarantee"),
        "dpem.fitting.search": ("DPGridSearch",),
        "dpem.fitting.plan": ("Plan",),
        "dpem.models.gaussian_mixture": ("DPGaussianMixture",),
        "dpem.models.latent_class": ("DPLatentClass",),
        "dpem.models.linear_regression": ("DPLinearRegression",),
        "dpem.models.logistic_regression": ("DPLogisticRegression",),
        "dpem.models.mixture_regression": ("DPMixtureRegression",),
        "dpem.models.poisson_regression": ("DPPoissonRegression",),
        "dpem.persistence": ("load_model", "save_model"),
        "dpem.privacy": ("Budget", "BudgetExceeded", "Guarantee", "Ledger", "LedgerError"),
        "dpem.registry": ("plan",),
        "dpem.report": ("write_report",),
        "dpem.tables.entries": ("OTHER",),
        "dpem.tables.files": ("read_table",),
        "dpem.tables.progress": ("progress",),
    },
)
