"""A word about what released parameters show: heaps of equal values taken for groups, classes that are not clear."""

from __future__ import annotations

import warnings
from typing import Any, Self

from dpem.estimators.base import FitWarning, PrivateEstimator

#: A group is a heap where it is narrower than this part of what it is compared with.
HEAP = 0.02


class SaysItsDoubts(PrivateEstimator):
    """Fits, then says what follows from the released parameters alone, at no price."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model to the rows under differential privacy; see :meth:`PrivateEstimator.fit`.

        Warns of groups so narrow that they are heaps of equal values, and of classes that are far less sure than the
        plan expected, as the released parameters show.
        """
        super().fit(X, y)
        for sentence in self._doubts():
            warnings.warn(sentence, FitWarning, stacklevel=2)
        return self

    def _doubts(self) -> list[str]:
        """Sentences about what was released that a reader should know."""
        raise NotImplementedError
