"""The study of Gaussian mixtures draws what it states, and counts misclassified rows as a reader would."""

import numpy as np
import pytest

from studies.calibration.predictions import rows_apart
from studies.gaussian_mixture import SIMULATED, rows_of


@pytest.mark.parametrize("setting", SIMULATED, ids=str)
def test_the_nearest_two_centres_are_as_far_apart_as_stated(setting):
    rows, label, _, _, centres = rows_of(setting, np.random.default_rng(0))
    apart = np.sqrt(((centres[:, None] - centres[None]) ** 2).sum(-1))
    assert apart[~np.eye(setting.K, dtype=bool)].min() == pytest.approx(setting.separation)
    assert rows.shape == (setting.n, setting.d)
    assert np.std(rows - centres[label]) == pytest.approx(1, abs=0.05)


def test_wrong_rows_do_not_depend_on_what_groups_are_called():
    label = np.array([0, 0, 0, 1, 1, 2])
    assert rows_apart(label, np.array([2, 2, 2, 0, 0, 1])) == 0
    assert rows_apart(label, np.array([2, 2, 1, 0, 0, 1])) == pytest.approx(1 / 6)
