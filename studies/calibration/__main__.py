"""python -m studies.calibration: see :mod:`studies.calibration.tables`."""

import sys

from studies.calibration.tables import main

if __name__ == "__main__":
    sys.exit(main())
