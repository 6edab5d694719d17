"""What the steps of an algorithm hand to each other, and what each tells of itself."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpem.query import FloatArray


class State(NamedTuple):
    """What has been released so far: the coefficients, and the coordinates they may live on."""

    beta: FloatArray
    support: NDArray[np.intp]


class PaperStep:
    """What a step tells of itself: ``rho`` is its price, ``passes`` how often it reads the rows, ``em_steps`` how many
    gradients it takes, ``refines`` whether the user's ``n_iter`` and ``step_size`` are about it.
    """

    rho: Any
    step: Any
    passes: ClassVar[Any] = 1
    em_steps: ClassVar[Any] = 0
    refines: ClassVar[bool] = False

    def describe(self) -> tuple[str, str]:
        """The step in a word, and its settings."""
        raise NotImplementedError

    @property
    def paid(self) -> str:
        """The price, for :meth:`describe`."""
        return f"rho = {self.rho:.3g}"
