"""What one guarantee says, and what several say together."""

import math
from dataclasses import replace

import pytest

from dpem.privacy import Guarantee, Price, together
from dpem.privacy.guarantee import REPLACE_PERSON, REPLACE_ROWS

ALONE = Guarantee(0.5, 1e-5, Price(0.01), REPLACE_ROWS, 1, (), True, "0")


def test_only_seeded_noise_is_called_a_simulation():
    assert str(ALONE).startswith("(0.5, 1e-05)-differentially private")
    assert str(replace(ALONE, private=False)).startswith("SIMULATION ONLY, NOT PRIVATE (seeded noise)")
    assert "No privacy guarantee" in str(replace(ALONE, epsilon=math.inf, private=False))


@pytest.mark.parametrize(
    ("neighbours", "rows", "unit"),
    [
        (REPLACE_ROWS, 1, "one row"),
        (REPLACE_ROWS, 5, "one person with up to 5 rows"),
        (REPLACE_PERSON, 5, "one person"),
    ],
)
def test_the_unit_is_named(neighbours, rows, unit):
    assert replace(ALONE, neighbours=neighbours, rows_per_person=rows).unit == unit


def test_a_joint_guarantee_with_a_simulation_is_a_simulation():
    assert together([ALONE, ALONE]).private
    assert not together([ALONE, replace(ALONE, private=False)]).private


def test_several_protect_the_smallest_unit():
    person = replace(ALONE, neighbours=REPLACE_PERSON, rows_per_person=5)
    assert together([person, person]).unit == "one person"
    assert together([person, replace(ALONE, rows_per_person=3)]).unit == "one person with up to 3 rows"
    assert together([ALONE, person]).unit == "one row"


def test_the_joint_epsilon_is_the_smaller_of_two_sums():
    cheap = together([ALONE] * 40)  # zCDP: 40 prices of 0.01 are far less than epsilon = 20
    assert cheap.delta == pytest.approx(4e-4)
    assert cheap.epsilon == pytest.approx(Price(0.4).epsilon(4e-4))
    assert cheap.epsilon < 10
    costly = replace(ALONE, price=Price(5.0))  # its own epsilon and delta rest on a sharper analysis
    assert together([costly, costly]).epsilon == 1.0


def test_a_joint_guarantee_needs_a_release():
    with pytest.raises(ValueError, match="nothing was released"):
        together([])
