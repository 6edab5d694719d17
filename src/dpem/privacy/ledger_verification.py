"""The verification of a ledger: digests, prices, totals, printed heads, and the tables themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from dpem.privacy import ledger_chain
from dpem.privacy.ledger_entries import DatasetEntries
from dpem.privacy.ledger_store import LedgerError
from dpem.privacy.ledger_tables import altered


@dataclass(frozen=True)
class Verification:
    """The verification of a dataset's entries: ``faults`` is empty if they are as they were written."""

    dataset: str
    head: str
    n_entries: int
    faults: tuple[str, ...]


def verify(connection: Connection, datasets: Sequence[str], heads: Sequence[str]) -> list[Verification]:
    """The verification of each dataset; ``heads`` are those that were printed earlier."""
    chains = {name: ledger_chain.read(connection, name) for name in datasets}
    all_entries = [entry for chain in chains.values() for entry in chain]
    common_faults = (*altered(connection), *ledger_chain.unknown_heads(all_entries, heads))
    verifications = []
    for name, chain in chains.items():
        faults = ledger_chain.faults(chain) or (_unsound(name, chain) if chain else ["the dataset is not there"])
        head = f"sha256:{chain[-1].digest}" if chain else ""
        verifications.append(Verification(name, head, len(chain), (*faults, *common_faults)))
    return verifications or [Verification("", "", 0, common_faults)]


def _unsound(name: str, chain: Sequence[ledger_chain.Entry]) -> list[str]:
    """Faults of entries whose digests hold: a price above its (ε, δ), or charges beyond the total."""
    try:
        entries = DatasetEntries.of(name, chain)
    except LedgerError as error:
        return [str(error).rstrip(".")]
    return [] if entries.total.fits(entries.charges) else ["the charges come to more than the total"]
