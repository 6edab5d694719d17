"""What the steps of an algorithm hand to each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpem.query import FloatArray


class State(NamedTuple):
    """What has been released so far: the coefficients, and the coordinates they may live on."""

    beta: FloatArray
    support: NDArray[np.intp]
