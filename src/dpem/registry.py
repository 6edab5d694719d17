"""Which models there are. A general model is a file of :mod:`dpem.models`; the paper's three are in :mod:`dpem.paper`.

Names and one line about each are read off the files, so that a command can list them without loading numerics.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

_MODELS = Path(__file__).parent / "models"
_PAPER = Path(__file__).parent / "paper" / "estimators"
#: Estimators that are no models.
_OTHERS = {"DPStandardScaler": "dpem.estimators.scaler"}


@functools.cache
def modules() -> dict[str, str]:
    """The module of each model, by the model's name: ``latent-class`` is ``dpem.models.latent_class``."""
    general = {_name(file): f"dpem.models.{file.stem}" for file in _files(_MODELS)}
    paper = {_name(file): f"dpem.paper.estimators.{file.stem}" for file in _files(_PAPER)}
    return general | paper


def general() -> tuple[str, ...]:
    """The names of the general models."""
    return tuple(_name(file) for file in _files(_MODELS))


def described(name: str) -> str:
    """The first line of what a model's file says of itself."""
    folder = _MODELS if modules()[name].startswith("dpem.models.") else _PAPER
    source = (folder / f"{name.replace('-', '_')}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").splitlines()[0]


@functools.cache
def classes() -> dict[str, str]:
    """The module of each estimator, by the name of its class, read off the files."""
    found = dict(_OTHERS)
    for folder, package in ((_MODELS, "dpem.models"), (_PAPER, "dpem.paper.estimators")):
        for file in _files(folder):
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and node.name.startswith("DP"):
                    found[node.name] = f"{package}.{file.stem}"
    return found


def estimator(name: str) -> type[Any]:
    """The estimator of a model (``latent-class``) or of a class's name (``DPLatentClass``)."""
    if name in classes():
        kind: type[Any] = getattr(import_module(classes()[name]), name)
        return kind
    if name not in modules():
        raise ValueError(f"model must be one of {', '.join(modules())}; got {name!r}.")
    own = next(kind for kind, module in classes().items() if module == modules()[name])
    return estimator(own)


def plan(
    model: str,
    *,
    n: int,
    d: int | None = None,
    columns: Sequence[str] | None = None,
    target: str | None = None,
    **arguments: Any,
) -> Any:
    """What a fit will ask, at what price, and what to expect of it, before there are data.

    Parameters
    ----------
    model : str
        The model's name, such as ``"latent-class"``, or that of its estimator, ``"DPLatentClass"``.
    n, d, columns, target
        Rows of the table, and its columns: how many, or their names; the response's name.
    **arguments
        Those of the estimator's constructor.

    Returns
    -------
    Plan
        What ``estimator.plan(n, d)`` returns, and a fit will do.

    Examples
    --------
    >>> plan("symmetric-mixture", n=4000, d=9, epsilon=0.5, delta=1e-5, sparsity=3, sigma=0.5).feasible
    True
    """
    kind = estimator(model)
    unknown = sorted(set(arguments) - set(inspect.signature(kind).parameters))
    if unknown:
        raise ValueError(f"{unknown[0]} is no argument of {kind.__name__}; it has {_listed(kind)}.")
    return kind(**arguments).plan(n, d, columns=columns, target=target)


def _listed(kind: type[Any]) -> str:
    return ", ".join(inspect.signature(kind).parameters)


@functools.cache
def _files(folder: Path) -> list[Path]:
    """The files that hold a model: those with an estimator in them."""
    public = (file for file in sorted(folder.glob("*.py")) if not file.name.startswith("_"))
    return [file for file in public if "\nclass DP" in file.read_text(encoding="utf-8")]


def _name(file: Path) -> str:
    return file.stem.replace("_", "-")
