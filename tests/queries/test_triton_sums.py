"""Kernels of a query's formula: their text, executed by NumPy, computes the query's sums."""

from __future__ import annotations

import ast
import re
from types import SimpleNamespace

import numpy as np
import pytest

from dpem.audit.neighbours import Table
from dpem.fitting.selection import ThresholdScores
from dpem.fitting.surrogate import ScoreQuery
from dpem.models.gaussian_mixture.covariance_types import TYPES
from dpem.models.gaussian_mixture.family import GaussianFamily
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.location import Centres, SecondMoments, Spreads
from dpem.models.gaussian_mixture.sparsity import PairedSides
from dpem.models.latent_class.queries import Items, PairMoments
from dpem.models.linear_regression.columns import Coding
from dpem.models.linear_regression.fit_check import Explained
from dpem.models.linear_regression.information import Information
from dpem.models.linear_regression.moments import JointMoments
from dpem.models.linear_regression.reference import FilledMoments
from dpem.models.linear_regression.rows import Frame
from dpem.models.linear_regression.sandwich import ScoreVariance
from dpem.models.linear_regression.scores import Residuals, Score
from dpem.models.linear_regression.selection import Signs
from dpem.models.mixture_regression.components import Components
from dpem.models.mixture_regression.components import Frame as LineFrame
from dpem.models.mixture_regression.family import RegressionFamily
from dpem.models.mixture_regression.scores import CenteredScore
from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.queries.gpu import triton_sums as rowwise
from dpem.queries.gpu.trace import formula_of
from dpem.queries.gpu.triton_codegen import parts, summing
from dpem.query import Chunk
from dpem.tables.schema import Schema
from studies.audits.hostile_rows import hostile

N, D = 1500, 4


class Place:
    """A pointer into a flat array."""

    def __init__(self, values, at=0):
        self.values, self.at = values, at

    def __add__(self, more):
        return Place(self.values, self.at + more)


class Numbers(np.ndarray):
    """An array with the one method that kernels call."""

    def to(self, kind):
        return self.astype(kind).view(Numbers)


def load(place, mask, other):
    at = np.where(mask, place.at, 0)
    return np.where(mask, place.values[at], other).view(Numbers)


def store(place, value, mask=True):
    at, value, mask = np.broadcast_arrays(place.at, value, mask)
    place.values[at[mask]] = value[mask]


def language(program):
    """Triton's functions in terms of NumPy."""
    return SimpleNamespace(
        program_id=lambda axis: np.array(program).view(Numbers),
        full=lambda shape, value, kind: np.full(shape, value, kind),
        zeros=lambda shape, kind: np.zeros(shape, kind),
        arange=np.arange,
        range=lambda first, last, num_stages: range(first, last),
        load=load,
        store=store,
        sum=lambda x, axis: np.sum(x, axis=axis),
        where=lambda *parts: np.where(*parts).view(Numbers),
        fma=lambda a, b, c: a * b + c,
        **{name: getattr(np, name) for name in ("abs", "sqrt", "exp", "log", "sin", "cos", "floor")},
        constexpr=int,
        float64=np.float64,
        int64=np.int64,
        int32=np.int32,
        int8=np.int8,
    )


def kernel_sum(monkeypatch, query, X, y, usual=True):
    """The sum by the kernels' texts, and the rows that they left to the query."""
    formula = formula_of(query, response=y is not None, usual=usual)
    assert formula is not None
    threads, steps = 128, 4
    programs = -(-len(X) // (threads * steps))
    total, good = np.empty(len(formula.results)), np.zeros(len(X), dtype=np.int8)
    for places in parts(formula):
        kernel = summing(formula, places)
        out = np.zeros((programs, len(places) + 1))
        for program in range(programs):
            tl = language(program)
            monkeypatch.setattr(rowwise, "tl", tl, raising=False)
            space = {"tl": tl, "libdevice": SimpleNamespace(tanh=np.tanh)}
            space |= {name: getattr(getattr(rowwise, name), "fn", getattr(rowwise, name)) for name in HELPERS}
            exec(kernel.text, space)
            numbers = [formula.parameters[k] for k in kernel.parameters]
            columns = [int(query.reads[j]) for j in kernel.columns]
            pointers = (Place(X.ravel()), X.shape[1], Place(y if y is not None else X.ravel()), 1, len(X))
            with np.errstate(all="ignore"):
                space["rows_kernel"](
                    *pointers,
                    Place(good),
                    Place(out.ravel()),
                    1.0,
                    *columns,
                    *numbers,
                    ROWS=threads,
                    STEPS=steps,
                    STAGES=1,
                )
        total[places] = out.sum(axis=0)[:-1] * [kernel.factor(formula, k) for k in range(len(places))]
        assert out[:, -1].sum() == (good.sum() if formula.conditions else len(X))
    return total, (good == 0) & bool(formula.conditions)


HELPERS = ("over", "larger", "smaller")
RNG = np.random.default_rng(3)
NAMES = [f"x{j}" for j in range(D)]
SCHEMA = Schema.of(NAMES, dict.fromkeys(NAMES, (-3.0, 3.5)), {}, y_bounds=(-5.0, 5.0))
COV = np.eye(D) + 0.3
SCALE = np.diag(1 / RNG.uniform(0.2, 0.4, D))
FRAME = Frame(RNG.normal(size=D) * 0.05, SCALE, 0.02, 0.3, COV, np.linalg.inv(np.linalg.cholesky(COV)))
NONE = np.zeros((D, D))
CODING = Coding(FRAME.centre, SCALE, NONE > 0, NONE, NONE, np.zeros(D), (), np.zeros(D) > 0)
AT = (SCHEMA, FRAME, RNG.normal(size=D + 1) * 0.3, 0.5)
ITEMS = Items((2, 3, 2))
ANSWERS = Schema.of(
    NAMES[:3],
    {},
    {name: tuple(range(levels)) for name, levels in zip(NAMES, ITEMS.levels, strict=False)},
    every_level=True,
)
LINES = Components(np.array([0.3, 0.3, 0.4]), RNG.normal(size=(3, D + 1)) * 0.4, RNG.uniform(0.4, 0.7, 3))
LINE_FAMILY = RegressionFamily(3, LineFrame(FRAME.centre, 3 * FRAME.whiten, 0.02, 0.2), np.eye(D + 1), np.zeros(D + 1))
BETA = np.array([0.5, -0.4, 0.3, 0.2])


def mixture(kind):
    wide = RNG.normal(size=(3, D, D)) * 0.02 + 0.2 * np.eye(D)
    spread = wide @ np.swapaxes(wide, 1, 2) if kind in ("tied", "full") else RNG.uniform(0.03, 0.06, (3, D))
    gaussians = Gaussians(np.array([0.2, 0.3, 0.5]), RNG.uniform(-0.5, 0.5, (3, D)), spread)
    family = GaussianFamily(3, TYPES[kind], np.full(D, 1e-9), np.ones(D))
    return ScoreQuery(SCHEMA, family, gaussians, np.eye(family.count), 2.0)


#: Query, whether it is about a response, and whether its formula knows what to do with missing values.
QUERIES = {
    "moments": (JointMoments(SCHEMA, CODING, 0.02, 0.3, 2.0), True, True),
    "score": (Score(*AT, 6.0), True, False),
    "information": (Information(*AT, 4.0), True, False),
    "residuals": (Residuals(*AT, 2.0), True, False),
    "explained": (Explained(*AT, 0.1, 3.0, 0.6), True, False),
    "variance of scores": (ScoreVariance(*AT, np.eye(D + 1), 2.5, 4.0), True, False),
    **{kind: (mixture(kind), False, False) for kind in ("spherical", "diag", "tied", "full")},
    "classes": (PairMoments(ANSWERS, ITEMS), False, True),
    "lines": (
        CenteredScore(SCHEMA, LINE_FAMILY, LINES, np.eye(LINE_FAMILY.count), 2.0),
        True,
        False,
    ),
    "centres": (Centres(SCHEMA), False, True),
    "spreads": (Spreads(SCHEMA, np.zeros(D)), False, True),
    "second moments": (SecondMoments(SCHEMA, np.zeros(D), np.full(D, 0.2), 2.0), False, True),
    "pairs of sides": (PairedSides(SCHEMA, np.zeros(D)), False, True),
    "sides": (ThresholdScores(SCHEMA, Signs()), True, True),
    "symmetric mixture": (SymmetricMixture(0.5).on_support(BETA, np.arange(D), 1.0), False, True),
    "symmetric moments": (SymmetricMixture(0.5).moments(np.arange(D), 1.0, 1.0), False, True),
    "symmetric regressions": (SymmetricRegression(0.5).on_support(BETA, np.arange(D), 1.0), True, True),
    "missing covariates": (MissingRegression(0.5).on_support(BETA, np.arange(D), 1.0), True, True),
}


def table(name, missing):
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(N, D)), 2 * rng.normal(size=N)
    if name == "classes":
        X = rng.integers(0, 4, (N, D)).astype(float)
    elif name in ("spreads", "sides"):
        X = np.round(X * 4) / 4  # rows on the edges of cells
    X[:4, 1] = [1e300, -1e300, 3.5, -3.0]
    y[4:6] = [1e300, -1e300]
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
        X[7, 0], y[8], y[9] = np.inf, np.nan, -np.inf
    return X, y


@pytest.mark.parametrize("missing", [False, True], ids=["whole", "missing"])
@pytest.mark.parametrize("name", QUERIES)
def test_the_kernel_adds_what_the_query_adds(monkeypatch, name, missing):
    query, response, knows_missing = QUERIES[name]
    X, y = table(name, missing)
    y = y if response else None
    found, left = kernel_sum(monkeypatch, query, X, y)
    assert left.any() == (missing and not knows_missing)
    keep = ~left
    expected = query.sum(Chunk(np.ascontiguousarray(X[keep]), None if y is None else y[keep]))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * np.max(np.abs(expected)))


@pytest.mark.parametrize("name", QUERIES)
def test_a_hostile_row_adds_what_it_adds_in_numpy_and_no_more_than_the_bound(monkeypatch, name):
    """By the kernel for such a row, if there is one, as in the audit on a device (``studies.audits.device``)."""
    query, response, _ = QUERIES[name]
    X, y = table(name, missing=False)
    bound, alone = query.bound, []
    size = min(bound.size_linf, bound.size_l2)
    for what, row, own in hostile(Table(name, X, y), 20, 12):
        x, u = np.array(row, dtype=float)[None, :], np.array([own]) if response else None
        expected = query.sum(Chunk(x, u))
        found, left = kernel_sum(monkeypatch, query, x, u)
        if left.any():
            if formula_of(query, response=response, usual=False) is None:
                continue
            found, left = kernel_sum(monkeypatch, query, x, u, usual=False)
            assert not left.any(), what
        assert np.max(np.abs(found - expected)) <= 1e-10 * size, what
        alone.append(found)
    values = np.array(alone)
    moved = values[:, None] - values[None, :]
    for seen, linf, l2 in ((values, bound.size_linf, bound.size_l2), (moved, bound.linf, bound.l2)):
        assert np.max(np.abs(seen)) <= linf * (1 + 1e-12)
        assert np.max(np.sqrt(np.sum(seen * seen, axis=-1))) <= l2 * (1 + 1e-12)
    assert len(values) > 20


@pytest.mark.parametrize("name", ["diag", "spherical", "lines"])
def test_rows_with_missing_values_have_a_formula_of_their_own(monkeypatch, name):
    query, response, _ = QUERIES[name]
    X, y = table(name, missing=True)
    y = y if response else None
    found, left = kernel_sum(monkeypatch, query, X, y, usual=False)
    assert np.array_equal(left, np.isfinite(X).all(axis=1))
    expected = query.sum(Chunk(np.ascontiguousarray(X[~left]), None if y is None else y[~left]))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * np.max(np.abs(expected)))


def test_rows_with_other_branches_are_summed_by_the_query():
    query, *_ = QUERIES["full"]
    assert formula_of(query, response=False) is not None
    assert formula_of(query, response=False, usual=False) is None
    assert formula_of(QUERIES["moments"][0], response=True, usual=False) is None
    filled = FilledMoments(SCHEMA, np.zeros(D + 1), np.ones(D + 1), np.eye(D + 1))
    assert formula_of(filled, response=True, usual=False) is None


class Deciding:
    """A query that branches on whether a sum with a product is large, and adds another such sum."""

    reads = np.arange(3)

    def block(self, xp, x, y):
        large = xp.any(x[:, 0] * x[:, 1] + x[:, 2] > 1.0)
        return xp.stack([xp.sum(x[:, 1] if large else x[:, 0]), xp.sum(x[:, 0] * x[:, 2] - x[:, 1])])


def test_a_condition_is_computed_alike_in_every_kernel():
    """Else, with different rounding in two kernels, a row could be added by both formulas, or partly by one."""
    formulas = [formula_of(Deciding(), response=False, usual=usual) for usual in (True, False)]
    for text in (summing(formula, [k]).text for formula in formulas for k in range(2)):
        assert "v3 = v0 * v1\n        v4 = v2 + v3\n" in text
    assert "tl.fma(v0, v2, -v1)" in summing(formulas[0], [1]).text  # what decides nothing is rounded once


def test_queries_that_differ_in_parameters_share_a_kernel():
    text = {
        summing(f, p).text for f in (formula_of(mixture("full"), response=False) for _ in range(3)) for p in parts(f)
    }
    assert len(text) == 1


#: What a text may name: columns, parameters, values, sums, and the few words of a kernel.
WORDS = re.compile(
    r"([cpsvwz]\d+|X|y|out|good|met|ok|row|rows|n|stride|y_stride|program|first|last|step|start|zero|one|unit|infinite"
    r"|ROWS|STEPS|STAGES|tl|libdevice|over|larger|smaller|range|float|rows_kernel)"
)


@pytest.mark.parametrize("name", QUERIES)
def test_a_kernel_text_contains_arithmetic_only(name):
    """Kernels are the one text that the package carries out, so it may hold no import, no string but "inf", no call but
    of Triton's own functions, and no name that comes from a table.
    """
    query, response, _ = QUERIES[name]
    formula = formula_of(query, response=response)
    for places in parts(formula):
        for node in ast.walk(ast.parse(summing(formula, places).text)):
            assert not isinstance(node, ast.Import | ast.ImportFrom | ast.Lambda | ast.ClassDef | ast.With | ast.Global)
            if isinstance(node, ast.Attribute):
                own = isinstance(node.value, ast.Name) and node.value.id in ("tl", "libdevice")
                assert own or node.attr == "to"
            if isinstance(node, ast.Name | ast.arg):
                word = node.id if isinstance(node, ast.Name) else node.arg
                assert WORDS.fullmatch(word), word
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value in ("inf", "")
