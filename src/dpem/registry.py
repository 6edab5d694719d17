"""The registry of models. A package adds a model by an entry point of the group ``dpem.models``, as dpem's own
``pyproject.toml`` does; the paper's three models are in the group ``dpem.paper``.

Names and descriptions are read without importing a model, so that commands list them quickly.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpem.fitting.plan import Plan
    from dpem.fitting.sequence import PrivateFit

GENERAL = "dpem.models"
PAPER = "dpem.paper"
#: Estimators that are not models.
_OTHERS = {"DPStandardScaler": "dpem.fitting.scaler"}


@functools.cache
def _declared() -> dict[str, EntryPoint]:
    """The entry point of each model by its name; dpem's own come first and cannot be replaced."""
    points: dict[str, EntryPoint] = {}
    for group in (GENERAL, PAPER):
        for point in sorted(entry_points(group=group), key=lambda p: (not p.module.startswith("dpem."), p.name)):
            points.setdefault(point.name, point)
    return points


@functools.cache
def modules() -> dict[str, str]:
    """The module of each model, by the model's name: ``latent-class`` is ``dpem.models.latent_class``."""
    return {name: point.module for name, point in _declared().items()}


def general() -> tuple[str, ...]:
    """The names of the general models."""
    return tuple(name for name, point in _declared().items() if point.group == GENERAL)


def described(name: str) -> str:
    """The first line of the docstring of a model's module, without importing it."""
    spec = find_spec(modules()[name])
    source = None if spec is None or spec.loader is None else spec.loader.get_source(spec.name)  # type: ignore[attr-defined]
    return (ast.get_docstring(ast.parse(source or "")) or "").partition("\n")[0]


@functools.cache
def classes() -> dict[str, str]:
    """The module of each estimator, by the name of its class."""
    return _OTHERS | {point.attr: point.module for point in _declared().values()}


def estimator(name: str) -> type[PrivateFit]:
    """The estimator class of a model's name (``latent-class``) or of a class name (``DPLatentClass``)."""
    if name in classes():
        kind: type[PrivateFit] = getattr(import_module(classes()[name]), name)
        return kind
    if name not in modules():
        raise ValueError(f"model must be one of {', '.join(modules())}; got {name!r}.")
    return estimator(_declared()[name].attr)


def plan(
    model: str,
    *,
    n: int,
    d: int | None = None,
    columns: Sequence[str] | None = None,
    target: str | None = None,
    **arguments: object,
) -> Plan:
    """The steps of a fit, their prices and the predicted error, before there are data.

    Parameters
    ----------
    model : str
        The model's name, such as ``"latent-class"``, or that of its estimator, ``"DPLatentClass"``.
    n, d, columns, target
        The number of rows; the number or the names of the columns; the response's name.
    **arguments
        Arguments of the estimator's constructor.

    Returns
    -------
    Plan
        The plan that a fit with these arguments follows.

    Examples
    --------
    >>> plan("symmetric-mixture", n=4000, d=9, epsilon=0.5, delta=1e-5, sparsity=3, sigma=0.5).feasible
    True
    """
    kind = estimator(model)
    unknown = sorted(set(arguments) - set(inspect.signature(kind).parameters))
    if unknown:
        known = ", ".join(inspect.signature(kind).parameters)
        raise ValueError(f"{kind.__name__} has no argument {unknown[0]!r}; its arguments are {known}.")
    return kind(**arguments).plan(n, d, columns=columns, target=target)
