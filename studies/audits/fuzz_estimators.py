"""The fuzzing target of fits: any arguments, any table, and a budget that must not be charged if a fit is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dpem import Budget, BudgetExceeded, DPStandardScaler
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from studies.audits.fuzz_arguments import without_rehearsals
from studies.audits.fuzz_core import NUMBERS, SECRET_NUMBER, SECRET_TEXT, Broken, Draw, leaks


class Estimators:
    """``fit`` of all four estimators with any arguments, any table and a budget."""

    name, patience = "estimators' fit", 20.0
    refusals: tuple[type[Exception], ...] = (ValueError, OSError, BudgetExceeded)
    guided_by = ("dpem.fitting", "dpem._validation", "dpem.paper")

    around = staticmethod(without_rehearsals)

    def __init__(self, folder: Path) -> None:
        self._kinds = (DPSymmetricMixture, DPSymmetricRegression, DPMissingRegression, DPStandardScaler)

    def seeds(self) -> list[bytes]:
        return [bytes([kind, *rest]) for kind in range(4) for rest in np.ndindex(3, 5, 8, 3)]

    def run(self, data: bytes) -> bool:
        draw = Draw(data)
        kind = self._kinds[draw.below(4)]
        budget = Budget(draw.one_of((5.0, 0.5, 1e-3)), 1e-3)
        X, y = table_of(draw), None
        if kind in (DPSymmetricRegression, DPMissingRegression) or draw.below(8) == 7:
            y = response_of(draw, X)
        return fitted(kind, arguments_of(draw, kind), X, y, budget)


def fitted(kind: Any, given: dict[str, Any], X: Any, y: Any, budget: Budget) -> bool:
    """One fit that may be refused: then nothing was charged; else one charge, and finite coefficients."""
    model = kind(**given, budget=budget)
    try:
        model.fit(X, y)
    except Exception as error:
        if budget.n_charges:
            raise Broken(
                f"{kind.__name__}.fit failed ({type(error).__name__}) after it had charged the budget"
            ) from None
        if isinstance(error, TypeError) and _of_validation(error):
            return False  # scikit-learn's contract asks for a TypeError where an entry is an object, or X is sparse
        raise
    if budget.n_charges != 1:
        raise Broken(f"{kind.__name__}.fit charged {budget.n_charges} times")
    released = (model.mean_, model.scale_) if kind is DPStandardScaler else (model.coef_,)
    if not all(np.isfinite(part).all() for part in released):
        raise Broken(f"{kind.__name__}.fit released a number that is not finite")
    return True


def _of_validation(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.endswith("tables/validation.py"):
        trace = trace.tb_next
    return trace is not None and not leaks(str(error)) and "\n" not in str(error)


def arguments_of(draw: Draw, kind: Any) -> dict[str, Any]:
    """Usual arguments with up to three of them exchanged."""
    given: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-4}
    if kind is DPStandardScaler:
        bounds = (None, (0, 1), (1, 0), (0, 0), "ab", ([0] * 3, [1] * 3), (-1e308, 1e308), (0, SECRET_NUMBER), (0, 1j))
        given["bounds"] = draw.one_of(((-5.0, 5.0), (-5, 1e300), (0, 5e-324), *bounds))
        names: tuple[str, ...] = ("epsilon", "delta", "random_state")
    else:
        given |= {"sigma": 0.5, "method": draw.one_of(("improved", "improved", "published"))}
        names = ("epsilon", "delta", "sigma", "signal", "sparsity", "max_sparsity", "n_iter", "step_size", "clip")
        starts: tuple[Any, ...] = (
            None,
            "equal",
            "x",
            [1.0],
            np.ones(3),
            np.zeros(3),
            np.full(3, np.nan),
            [SECRET_TEXT],
            {},
        )
        given["start"] = draw.one_of(starts)
    for _ in range(draw.below(4)):
        name = draw.one_of((*names, "method", "sparsity") if len(names) > 3 else names)
        value = draw.number() if name != "method" else draw.one_of(("published", "", None, 1))
        if name == "sparsity" and draw.below(3) == 0:
            value = draw.one_of(("auto", 1, 2, 3, 4))
        if name == "n_iter" and isinstance(value, int | float) and value > 50:
            value = 50  # a public number of steps; a million of them is slow, not wrong
        given[name] = value
    return given


def table_of(draw: Draw) -> Any:
    """A table of many kinds, most of them of 60 rows and 3 columns, with planted values."""
    rng = np.random.default_rng(draw.below(4))
    rows = rng.standard_normal((draw.one_of((60, 60, 60, 300, 2, 1, 0)), draw.one_of((3, 3, 3, 1, 2, 0))))
    for _ in range(draw.below(3)):
        if rows.size:
            rows.flat[draw.below(rows.size)] = draw.one_of((*NUMBERS, SECRET_NUMBER))
    kind = draw.below(16)
    with np.errstate(all="ignore"):
        if kind == 1:
            return rows.astype(np.float32)
        if kind == 2:
            return rows.astype(draw.one_of((np.float16, np.int64, np.int8, np.bool_, np.complex128, ">f8", "U8", "S4")))
        if kind == 3:
            return sparse.csr_array(rows) if rows.size else sparse.csr_array(rows.shape)
    if kind == 4:
        return rows.tolist()
    if kind == 5:
        mixed = rows.astype(object)
        if mixed.size:
            mixed.flat[0] = draw.one_of((SECRET_TEXT, None, SECRET_NUMBER, object, [SECRET_TEXT], {SECRET_TEXT: 1}, 1j))
        return mixed
    if kind == 6:
        invalid: tuple[Any, ...] = (
            rows.ravel(),
            rows[None],
            None,
            SECRET_TEXT,
            SECRET_NUMBER,
            [[1, 2], [3]],
            [[SECRET_TEXT] * 3] * 3,
            {},
            7,
        )
        return draw.one_of(invalid)
    if kind == 7:
        return np.asfortranarray(rows)
    if kind == 8:
        return framed(rows, draw)
    if kind == 9 and rows.size:
        return sparse.coo_array(rows)
    return rows


def framed(rows: Any, draw: Draw) -> Any:
    import pandas as pd

    frame = pd.DataFrame(rows, columns=[f"c{j}" for j in range(rows.shape[1])])
    change = draw.below(5)
    if change == 1 and rows.size:
        frame["c0"] = SECRET_TEXT
    if change == 2 and rows.size:
        frame["c0"] = pd.Categorical([SECRET_TEXT] * len(frame))
    if change == 3 and rows.size:
        frame["c0"] = pd.Timestamp("2030-01-01")
    if change == 4:
        frame.columns = list(range(rows.shape[1]))
    return frame


def response_of(draw: Draw, X: Any) -> Any:
    n = X.shape[0] if hasattr(X, "shape") and len(X.shape) else 60
    y = np.random.default_rng(1).standard_normal(n)
    if y.size and draw.below(3) == 2:
        y[draw.below(y.size)] = draw.one_of((*NUMBERS, SECRET_NUMBER))
    invalid: tuple[Any, ...] = (
        None,
        y[:-1],
        y[:, None],
        y.astype(np.float32),
        [SECRET_TEXT] * n,
        SECRET_NUMBER,
        y.astype(object),
        {},
        "",
    )
    return draw.one_of(invalid) if draw.below(4) == 3 else y
