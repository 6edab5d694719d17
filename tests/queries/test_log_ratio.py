"""The query of the fit check."""

import numpy as np
import pytest

from dpem.fitting.check import CLAMP


def clamped_above(most):
    """Whether a clamped log-ratio r can be more than eʳ − 1, whose mean is at most 0 if the simpler model is right."""
    r = np.linspace(-30, 5, 20_001)
    return bool(np.any(np.clip(r, -most, most) > np.expm1(r) + 1e-12))


@pytest.mark.parametrize("most", [CLAMP, 2.5, 5.0])
def test_a_true_simpler_model_is_never_behind_on_average(most):
    assert not clamped_above(most)


def test_a_narrower_clamp_could_put_it_behind():
    assert clamped_above(0.9 * CLAMP)
