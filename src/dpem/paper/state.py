"""What the steps of the paper's models hand to each other, and what they say of themselves beyond other steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpem.fitting import step
from dpem.query import FloatArray


@dataclass(frozen=True)
class PaperState(step.State):
    """What has been released so far: the coefficients ``theta``, and ``chosen``, the coordinates they may live on."""

    @classmethod
    def at(cls, start: FloatArray | None, d: int) -> PaperState:
        """Before the first step: a given start, or zero, on all coordinates."""
        return cls(np.zeros(d) if start is None else start, np.arange(d))

    @property
    def beta(self) -> FloatArray:
        return np.asarray(self.theta)

    @property
    def support(self) -> NDArray[np.intp]:
        return np.asarray(self.chosen)


@dataclass(frozen=True)
class PaperStep(step.Step):
    """A step that takes ``em_steps`` gradients."""

    passes: ClassVar[Any] = 1
    em_steps: ClassVar[Any] = 0
