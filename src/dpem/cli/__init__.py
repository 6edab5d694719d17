"""The command ``dpem``: fits, predictions, plans and ledgers from a shell."""

from dpem._extras import needed_by

with needed_by("the command"):
    from dpem.cli.main import cli, main

__all__ = ["cli", "main"]
