"""python -m studies.honest: see :mod:`studies.honest.tables`."""

import sys

from studies.honest.tables import main

if __name__ == "__main__":
    sys.exit(main())
