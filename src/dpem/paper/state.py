"""What the steps of the paper's models hand to each other, and what they say of themselves beyond other steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.step import Step
from dpem.query import FloatArray


class State(NamedTuple):
    """What has been released so far: the coefficients, and the coordinates they may live on."""

    beta: FloatArray
    support: NDArray[np.intp]

    @classmethod
    def at(cls, start: FloatArray | None, d: int) -> State:
        """Before the first step: a given start, or zero, on all coordinates."""
        return cls(np.zeros(d) if start is None else start, np.arange(d))


@dataclass(frozen=True)
class PaperStep(Step):
    """A step that takes ``em_steps`` gradients; ``refines`` says whether the user's ``n_iter`` and ``step_size`` are
    about it.
    """

    passes: ClassVar[Any] = 1
    em_steps: ClassVar[Any] = 0
    refines: ClassVar[bool] = False
