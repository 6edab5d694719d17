"""Every public name is documented, with an example."""

import inspect
import re
from pathlib import Path

import pytest

import dpem
import dpem.paper
from dpem.cli.models import parameter_help

ESTIMATORS = [
    *(getattr(dpem, name) for name in dir(dpem) if name.startswith("DP")),
    *(getattr(dpem.paper, name) for name in dpem.paper.__all__ if name.startswith("DP")),
]
every_estimator = pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)


@every_estimator
def test_each_argument_is_described(kind):
    described = parameter_help(kind)
    assert [name for name in inspect.signature(kind).parameters if not described.get(name)] == []


@every_estimator
def test_there_are_attributes_and_an_example(kind):
    text = inspect.cleandoc(kind.__doc__)
    for heading in ("Parameters", "Attributes", "Examples"):
        assert re.search(rf"^{heading}\n-+$", text, re.MULTILINE), heading
    assert ">>> " in text


@every_estimator
def test_each_method_is_described(kind):
    methods = inspect.getmembers(kind, inspect.isfunction)
    assert [name for name, f in methods if not name.startswith("_") and "dpem" in f.__module__ and not f.__doc__] == []


API = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
CONSTANTS = {"OTHER", "__version__"}


@pytest.mark.parametrize(
    "name", sorted({*dpem.__all__, *(kind.__name__ for kind in ESTIMATORS if hasattr(dpem, kind.__name__))})
)
def test_the_reference_has_every_public_name_with_an_example(name):
    entry = rf"::\s+dpem\.{name}$"
    assert name in CONSTANTS or re.search(entry, API, re.MULTILINE), name
    used = re.search(rf"\bdpem\.{name}\b", "".join(re.findall(r"```python\n(.*?)```", API, re.DOTALL)))
    assert used or ">>> " in (getattr(dpem, name).__doc__ or ""), name
