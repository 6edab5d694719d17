"""What is computed otherwise for rows in memory: the same numbers as by the formulas that serve every library."""

import itertools

import array_api_compat.numpy as xp
import array_api_strict as strict
import numpy as np
import pytest

from dpem.fitting.surrogate import ScoreQuery
from dpem.models.gaussian_mixture.covariance_types import TYPES
from dpem.models.gaussian_mixture.family import GaussianFamily
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.location import Spreads
from dpem.models.gaussian_mixture.sketch import Sketch
from dpem.models.linear_regression.fit_check import Explained
from dpem.models.linear_regression.information import Information
from dpem.models.linear_regression.rows import Frame
from dpem.models.linear_regression.scores import Residuals, Score
from dpem.queries.block_loop import product
from dpem.queries.histograms import ColumnHistograms, bin_counts
from dpem.queries.narrow import into_ball, sum_in_ball
from dpem.tables.schema import Schema

NAMES = ["a", "b", "c"]
SCHEMA = Schema.of(NAMES, dict.fromkeys(NAMES, (-2.0, 3.0)), {}, y_bounds=(-4.0, 4.0))


def rows(odd, order="F"):
    rng = np.random.default_rng(1)
    X, y = rng.normal(0.5, 1.5, (500, 3)), rng.normal(0, 2, 500)
    if odd:
        X[::9, 0], X[5, 1], X[6, 2], X[7, 0] = np.nan, np.inf, -np.inf, 1e308
        y[::11], y[3] = np.nan, np.inf
    return np.asarray(X, order=order), y


def scores(kind, mixture):
    family = GaussianFamily(2, TYPES[kind], np.full(3, 1e-9), np.ones(3))
    return ScoreQuery(SCHEMA, family, mixture, np.eye(family.count), 2.0)


def queries():
    rng = np.random.default_rng(2)
    root = rng.normal(size=(3, 3))
    covariance = root @ root.T / 3 + np.eye(3)
    scale = np.diag(1 / rng.uniform(0.3, 0.6, 3))
    frame = Frame(rng.normal(0, 0.1, 3), scale, 0.1, 0.4, covariance, np.linalg.inv(np.linalg.cholesky(covariance)))
    at = {"schema": SCHEMA, "frame": frame, "theta": rng.normal(size=4), "sigma": 0.7}
    return [
        ColumnHistograms(SCHEMA),
        Spreads(SCHEMA, np.array([0.1, 0.0, -0.2])),
        Information(**at, radius=2.4),
        Score(**at, radius=2.6),
        Residuals(**at, clip=2.0),
        Explained(**at, middle=0.1, most=2.0, fitted_spread=0.6),
        Sketch(SCHEMA, np.zeros(3), np.full(3, 0.5), 0.6 * np.eye(3) + 0.4, rng.normal(size=(40, 3)), 0.8, np.ones(5)),
        *(
            scores(kind, Gaussians(np.full(2, 0.5), rng.normal(size=(2, 3)), own))
            for kind, own in (("diag", rng.uniform(0.2, 0.4, (2, 3))), ("full", np.stack([covariance / 9] * 2)))
        ),
    ]


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("query", queries(), ids=lambda query: type(query).__name__)
def test_sums_are_those_of_any_library(query, order, odd):
    X, y = rows(odd, order)
    with np.errstate(all="ignore"):
        here = query.block(np, X, y)
        there = np.asarray(query.block(strict, strict.asarray(X), strict.asarray(y)))
    np.testing.assert_allclose(here, there, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("order", ["C", "F"])
def test_coordinates_are_the_same_bits_and_the_rows_are_left_alone(order):
    X, y = rows(odd=True, order=order)
    before = X.copy(), y.copy()
    with np.errstate(all="ignore"):
        u, v = SCHEMA.coordinates(np, X), SCHEMA.response(np, y)
        assert np.array_equal(u, np.asarray(SCHEMA.coordinates(strict, strict.asarray(X))), equal_nan=True)
        assert np.array_equal(v, np.asarray(SCHEMA.response(strict, strict.asarray(y))), equal_nan=True)
    assert np.array_equal(np.isnan(u), ~np.isfinite(X))
    assert u[7, 0] == 1.0  # large, but a number
    assert np.array_equal(X, before[0], equal_nan=True)
    assert np.array_equal(y, before[1], equal_nan=True)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_sum_of_rows_in_a_ball(order):
    v = np.asarray(np.random.default_rng(3).normal(size=(400, 5)), order=order)
    v[3, 2], v[4, 0], v[5], v[6] = np.nan, np.inf, 1e200, 0.0
    with np.errstate(all="ignore"):
        found, expected = sum_in_ball(np, v, 1.5), into_ball(np, v, 1.5).sum(axis=0)
        one = sum_in_ball(np, np.full((1, 5), 1e100), 1.5)
        times, size = np.linspace(-3.0, 3.0, 400), np.sqrt(np.einsum("ij,ij->i", v, v))
        times[9] = np.nan
        expected_times = into_ball(np, v * times[:, None], 1.5).sum(axis=0)
        for known in (None, size):
            moved = into_ball(np, v, 1.5, times, known)
            assert np.all(np.linalg.norm(moved, axis=1) <= 1.5 * (1 + 17 * 2.0**-52))
            for sums in (moved.sum(axis=0), sum_in_ball(np, v, 1.5, times, known)):
                np.testing.assert_allclose(sums, expected_times, rtol=1e-12, atol=1e-12)
            shares = np.linspace(-1.0, 1.0, 400)
            sums = sum_in_ball(np, v, 1.5, times, known, shares)
            np.testing.assert_allclose(sums, (moved * shares[:, None]).sum(axis=0), rtol=1e-12, atol=1e-12)
        tiny = into_ball(np, np.full((1, 5), 1e-170), 1.5, np.array([1e300]))
    assert np.linalg.norm(tiny) <= 1e-50
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)
    assert np.linalg.norm(one) <= 1.5 * (1 + 13 * 2.0**-52)


def test_a_product_keeps_columns_together():
    X, matrix = rows(odd=False)[0], np.arange(6.0).reshape(3, 2)
    found = product(np, X, matrix)
    assert found.flags.f_contiguous
    np.testing.assert_allclose(found, X @ matrix, rtol=1e-13)


@pytest.mark.parametrize("cut", [slice(None), slice(3, 4000), slice(None, None, 2)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_coordinates_by_a_compiled_loop_are_the_same_numbers(order, cut, monkeypatch):
    rng = np.random.default_rng(3)
    X = np.asarray(rng.normal(0.5, 2.0, (6000, 3)), order=order)
    X[::9, 0], X[5, 1], X[7, 2], X[9, 0], X[11, 0], X[13, 1:] = np.nan, np.inf, -np.inf, 1e308, -1e308, (3.0, -2.0)
    monkeypatch.setattr("dpem.tables.dense_rows.LEAST_COMPILED", 0)
    compiled = SCHEMA.coordinates(np, X[cut])
    monkeypatch.setattr("dpem.tables.dense_rows.compiled_loops", lambda entries: None)
    with np.errstate(all="ignore"):
        expected = SCHEMA.coordinates(np, X[cut])
    assert np.array_equal(compiled, expected, equal_nan=True)
    assert np.nanmax(np.abs(compiled)) == 1.0
    assert np.array_equal(np.isnan(compiled), ~np.isfinite(X[cut]))


def test_waves_are_on_the_unit_circle_at_every_phase():
    """At multiples of π and their neighbours, and beyond the size that phases are clipped to."""
    turns = np.pi * np.arange(-321, 321)
    phases = np.concatenate(
        [turns, np.nextafter(turns, np.inf), np.linspace(-7, 7, 999), [1e300, np.nan, -np.inf, 0.0]]
    )
    sketch = Sketch(SCHEMA, np.zeros(3), np.ones(3), np.eye(3), np.zeros((1, 3)), 1.0, np.ones(3))
    waves = np.hstack(list(sketch._waves(xp, phases[:, None])))
    expected = np.clip(np.where(np.isfinite(phases), phases, 0.0), -1e3, 1e3)[:, None] * [1, 2, 3]
    np.testing.assert_allclose(waves[:, ::2], np.cos(expected), atol=2e-12)
    np.testing.assert_allclose(waves[:, 1::2], np.sin(expected), atol=2e-12)
    np.testing.assert_allclose(np.hypot(waves[:, ::2], waves[:, 1::2]), 1.0, rtol=2e-14)


def test_on_a_device_the_sum_in_a_ball_is_that_of_the_scaled_rows():
    """Rows that are long, short, or not finite, in another array library than NumPy."""
    v = np.random.default_rng(0).normal(size=(50, 4)) * np.geomspace(0.01, 100, 50)[:, None]
    times = np.linspace(-2, 2, 50)
    odd = np.vstack([v[:-2], np.full((1, 4), np.nan), np.full((1, 4), 1e200)])
    with np.errstate(all="ignore"):
        for rows, weight, share in itertools.product((v, odd), (None, times), (None, times / 2)):
            more = (None if numbers is None else strict.asarray(numbers) for numbers in (weight, None, share))
            sums = sum_in_ball(strict, strict.asarray(rows), 1.5, *more)
            each = into_ball(np, rows if weight is None else rows * weight[:, None], 1.5)
            expected = (each if share is None else each * share[:, None]).sum(axis=0)
            assert np.asarray(sums) == pytest.approx(expected, rel=1e-12)


def test_bins_by_a_compiled_loop_are_the_same_counts(monkeypatch):
    edges = np.linspace(-1.0, 1.0, 33)
    u = np.concatenate([edges, np.nextafter(edges, 2.0), np.nextafter(edges, -2.0), [np.nan, -0.0]]).clip(-1.0, 1.0)
    monkeypatch.setattr("dpem.tables.dense_rows.LEAST_COMPILED", 0)
    compiled = bin_counts(np, [u, u[::-1]])
    monkeypatch.setattr("dpem.queries.histograms.compiled_loops", lambda entries: None)
    assert np.array_equal(compiled, bin_counts(np, [u, u[::-1]]))
    assert compiled[32] == 1
