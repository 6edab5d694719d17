"""``python -m dpem`` is the command ``dpem``."""

from __future__ import annotations

import sys


def main() -> None:
    """The command, or one sentence that says what it lacks."""
    try:
        from dpem.cli import main as command
    except ModuleNotFoundError as missing:
        sys.exit(f"dpem: {missing}")
    command()


if __name__ == "__main__":
    main()
