"""Every name that a study, an example or a page's script imports from dpem or from another study exists."""

import ast
import functools
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "studies").rglob("*.py"), *(ROOT / "examples").glob("*.py")])
OURS = ("dpem", "studies")


def imported(path: Path) -> list[tuple[str, str]]:
    """The module and name of each import of ours."""
    pairs = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS:
            pairs += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            pairs += [(alias.name, "") for alias in node.names if alias.name.split(".")[0] in OURS]
    return pairs


def exists(module: str, name: str) -> bool:
    """A study is parsed, not run: some need packages that the tests' environment lacks."""
    if module.split(".")[0] == "studies":
        path = ROOT.joinpath(*module.split("."))
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        return (path / f"{name}.py").exists() or not name or name in defined(source)
    try:
        found = importlib.import_module(module)
        return not name or hasattr(found, name) or bool(importlib.import_module(f"{module}.{name}"))
    except ModuleNotFoundError as error:
        return not (error.name or "dpem").startswith("dpem")


@functools.cache
def defined(path: Path) -> set[str]:
    """The names that a file defines or imports, and its docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {"__doc__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def test_what_studies_import_exists():
    assert len(FILES) > 50
    missing = [
        f"{path.relative_to(ROOT)}: {module}.{name}"
        for path in FILES
        for module, name in imported(path)
        if not exists(module, name)
    ]
    assert missing == []


def test_studies_import_each_other_by_their_whole_names():
    """They run as modules: the bare name of a neighbour is not found."""
    neighbours = {path.stem for path in FILES}
    bare = [
        f"{path.relative_to(ROOT)}: {node.module}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module in neighbours and not node.level
    ]
    assert bare == []


@pytest.mark.parametrize("pair", [("dpem.fitting", "nothing"), ("dpem.nothing", ""), ("studies.paper.core", "nothing")])
def test_a_missing_name_is_noticed(pair):
    assert not exists(*pair)
