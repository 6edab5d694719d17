"""``python -m dpem.audit`` is the long audit."""

import sys

from dpem.audit.run import main

if __name__ == "__main__":
    sys.exit(main())
