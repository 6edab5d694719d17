"""A charge in a ledger: it records the outcome of its fit and the fingerprint of the model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpem.privacy.ledger_entries import NO_ANSWER, checked_text
from dpem.privacy.ledger_store import LedgerError
from dpem.privacy.total import Charge

if TYPE_CHECKING:
    from dpem.privacy.ledger import Ledger


class LedgerWarning(RuntimeWarning):
    """Something about a fit or a dataset that the keeper of its ledger should check."""


@dataclass(frozen=True)
class LedgerCharge(Charge):
    """A charge in a ledger: entry ``id`` of its dataset."""

    id: int
    ledger: Ledger = field(repr=False)

    def close(self, outcome: str) -> None:
        """Append the outcome of the fit. If that fails, a warning is issued, and the charge stays."""
        super().close(outcome)
        try:
            self.ledger._append("outcome", fit=self.id, outcome=outcome)
        except LedgerError as error:
            warnings.warn(
                f'charge {self.id} stays charged and shows as "{NO_ANSWER}", since {error}', LedgerWarning, stacklevel=3
            )

    def released(self, fingerprint: str) -> None:
        """Append the fingerprint of the fitted model. If that fails, a warning is issued."""
        try:
            self.ledger._append("model", fit=self.id, model=checked_text("fingerprint", fingerprint))
        except LedgerError as error:
            warnings.warn(f"charge {self.id} does not name its model, since {error}", LedgerWarning, stacklevel=3)
