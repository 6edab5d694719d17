"""The state that the steps of the paper's models pass on, and their base class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpem.fitting import step
from dpem.query import FloatArray


@dataclass(frozen=True)
class PaperState(step.State):
    """The coefficients released so far, ``theta``, and their support, ``chosen``."""

    @classmethod
    def at(cls, start: FloatArray | None, d: int) -> PaperState:
        """The state before the first step: the start, or zero, on all coordinates."""
        return cls(np.zeros(d) if start is None else start, np.arange(d))

    @property
    def beta(self) -> FloatArray:
        return np.asarray(self.theta)

    @property
    def support(self) -> NDArray[np.intp]:
        return np.asarray(self.chosen)


@dataclass(frozen=True)
class PaperStep(step.Step):
    """A step of a fit that contains ``em_steps`` EM steps."""

    passes: ClassVar[Any] = 1
    em_steps: ClassVar[Any] = 0
