"""The command ``dpem``: fits, predictions, plans and ledgers from a shell."""

from dpem.cli.main import cli, main

__all__ = ["cli", "main"]
