"""No module runs code from data, opens a socket, or pastes SQL together: read off the package's source text."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dpem

PACKAGE = Path(dpem.__file__).parent

#: Modules that turn bytes into objects or run what they are given, and modules that speak to a network.
FORBIDDEN = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "code", "codeop", "telnetlib"}
NETWORK = {"socket", "ssl", "http", "urllib.request", "requests", "httpx", "aiohttp", "ftplib", "smtplib", "xmlrpc"}
CALLS = {"eval", "exec", "compile", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load", "torch.load", "os.execv"}

#: The one text that is carried out: kernels for a GPU, made of a formula (tests/queries/test_triton_sums.py).
KERNELS = {"triton_sums.py": ["calls exec", "calls compile"]}


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def constant_names(tree: ast.Module) -> set[str]:
    """Names that stand for text the module itself spells out: constants, and loop variables over such."""
    names = {"tables.tables"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and node in tree.body and fixed(node.value, names):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and fixed(node.iter, names):
            names.add(node.target.id)
    return names


def fixed(node: ast.AST, names: set[str]) -> bool:
    """Whether the expression is made of literals and such names only."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Name | ast.Attribute):
        return dotted(node) in names
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return all(fixed(part, names) for part in node.elts)
    if isinstance(node, ast.JoinedStr):
        return all(fixed(part, names) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return fixed(node.value, names)
    if isinstance(node, ast.Call):  # a constant in lower case, or filled in with constants
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        own = isinstance(node.func, ast.Attribute) and fixed(node.func.value, names)
        return own and all(fixed(part, names) for part in given)
    if isinstance(node, ast.BinOp):
        return fixed(node.left, names) and fixed(node.right, names)
    return False


def offences(text: str) -> list[str]:
    """What a module does that none may, line by line."""
    tree = ast.parse(text)
    names, found = constant_names(tree), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or ""
            imported = [f"{module}.{alias.name}".strip(".") for alias in node.names] + [module]
            for name in imported:
                if name.split(".")[0] in FORBIDDEN or any(name == n or name.startswith(f"{n}.") for n in NETWORK):
                    found.append(f"{node.lineno}: imports {name}")
        if isinstance(node, ast.Call):
            found += [f"{node.lineno}: {what}" for what in _of_call(node, names)]
    return found


def _of_call(node: ast.Call, names: set[str]) -> list[str]:
    called, last = dotted(node.func), dotted(node.func).rpartition(".")[2]
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    first = node.args[0] if node.args else None
    wrong = []
    if called in CALLS or called in {f"builtins.{name}" for name in CALLS}:
        wrong.append(f"calls {called}")
    if called == "__import__" and not (first is not None and fixed(first, names)):
        wrong.append("imports by a name that is computed")
    if "shell" in given and not (isinstance(given["shell"], ast.Constant) and given["shell"].value is False):
        wrong.append("runs a shell")
    if called in ("np.load", "numpy.load"):
        allowed = given.get("allow_pickle")
        if not (isinstance(allowed, ast.Constant) and allowed.value is False):
            wrong.append("np.load without allow_pickle=False")
    raw = last in ("exec_driver_sql", "executescript", "literal_column") or called in ("sa.text", "sqlalchemy.text")
    if raw and not (first is not None and fixed(first, names)):
        wrong.append("SQL that is pasted together")
    return wrong


def test_no_module_runs_code_opens_a_socket_or_pastes_sql():
    files = sorted(PACKAGE.rglob("*.py"))
    assert {"registry.py", "persistence.py"} <= {file.name for file in files}
    found = {file.name: [each.partition(": ")[2] for each in offences(file.read_text("utf-8"))] for file in files}
    assert {name: what for name, what in found.items() if what} == KERNELS


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from joblib import load",
        "import urllib.request",
        "from http.client import HTTPSConnection",
        "eval(text)",
        "import os\nos.system('ls')",
        "import subprocess\nsubprocess.run(command, shell=True)",
        "import subprocess\nsubprocess.run(command, shell=shell)",
        "import numpy as np\nnp.load(path)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "__import__(name)",
        "connection.exec_driver_sql(f'SELECT * FROM {name}')",
        "connection.exec_driver_sql('SELECT ' + name)",
        "import sqlalchemy as sa\nsa.text('SELECT %s' % name)",
        "import sqlalchemy as sa\nsa.text('SELECT {}'.format(name))",
        "def f(name):\n    connection.exec_driver_sql(name)",
    ],
)
def test_planted_offences_are_found(text):
    assert offences(text)


@pytest.mark.parametrize(
    "text",
    [
        "from urllib.parse import quote",
        "import numpy as np\nnp.load(path, mmap_mode='r', allow_pickle=False)",
        "for pragma in ('a = 1', 'b = 2'):\n    connection.exec_driver_sql(f'PRAGMA {pragma}')",
        "import sqlalchemy as sa\nconnection.execute(sa.select(table).where(table.c.name == name))",
        "import sqlalchemy as sa\nsa.text('SELECT :name')",
        "SQL = 'DROP TABLE {t}'\nfor t in ('a', 'b'):\n    connection.exec_driver_sql(SQL.format(t=t))",
        "import subprocess\nsubprocess.run([a, b], check=False)",
    ],
)
def test_honest_text_passes(text):
    assert offences(text) == []
