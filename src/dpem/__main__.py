"""``python -m dpem`` is the command ``dpem``."""

from dpem.cli import main

if __name__ == "__main__":
    main()
