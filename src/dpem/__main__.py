"""``python -m dpem`` is the command ``dpem``."""

from __future__ import annotations

import sys

from dpem._lazy_import import lazy_import


def main() -> None:
    """The command, or one sentence that says what it lacks."""
    lazy_import("scipy.stats", "pandas")
    try:
        from dpem.cli import main as command
    except ModuleNotFoundError as missing:
        sys.exit(f"dpem: {missing}")
    command()


if __name__ == "__main__":
    main()
