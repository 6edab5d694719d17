"""Mutation testing: whether the tests notice small changes of the source, one at a time.

    python -m studies.audits.mutants [MODULE ...] [--out results/audit_mutants.json] [--sample N] [--seconds 120]

A mutant replaces an operator, a comparison, a constant or ``min`` by ``max``, or removes a refusal. The doctests and
tests of its module run in a process forked from one that has loaded everything but dpem. A mutant that no test notices
is listed with its line: a test is missing, or the change makes no visible difference. With ``--sample N`` a random
sample of N mutants of all modules is tried.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.machinery
import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
CURATOR = ("privacy/test_curator", "privacy/test_curator_batches")
#: The modules that price releases and clip contributions, and their tests.
TESTS: dict[str, tuple[str, ...]] = {
    "query": ("queries/test_in_memory", "queries/test_scales", "privacy/test_curator", "privacy/test_rows_per_person"),
    "privacy/accounting": ("privacy/test_accounting", "privacy/test_budget", *CURATOR),
    "privacy/curator": (*CURATOR, "privacy/test_rows_per_person", "privacy/test_selection"),
    "privacy/mechanisms": ("privacy/test_mechanisms", "privacy/test_selection", "privacy/test_curator"),
    "privacy/noise": ("privacy/test_mechanisms", "privacy/test_gumbel", "privacy/test_curator"),
    "privacy/gumbel": ("privacy/test_gumbel", "privacy/test_mechanisms", "privacy/test_selection"),
    "privacy/guarantee": (
        *("privacy/test_guarantee", "privacy/test_accounting", "privacy/test_rows_per_person", "privacy/test_budget"),
    ),
    "privacy/budget": ("privacy/test_budget", "privacy/test_ledger"),
    "queries/narrow": ("queries/test_scales", "queries/test_in_memory", "queries/test_mixture_queries"),
    "queries/block_loop": ("queries/test_block_loop", "queries/test_block_loop_rows", "queries/test_in_memory"),
    "queries/histograms": ("queries/test_in_memory", "queries/test_scales", "privacy/test_selection"),
    "fitting/search": ("queries/test_in_memory", "queries/test_scales", "privacy/test_selection"),
    "fitting/check": ("queries/test_log_ratio", "fitting/test_private_estimator", "fitting/test_weights"),
    "fitting/selection": ("models/test_glm_selection", "queries/test_scales"),
}
#: What the tests load beside dpem, once for all children.
HEAVY = ("dp_accounting.pld.privacy_loss_distribution", "hypothesis", "numba", "opendp.prelude", "pandas", "pyarrow",
         "pytest", "scipy.stats", "sklearn.base", "sqlalchemy")  # fmt: skip
OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "all": "any", "any": "all",
         "ceil": "floor", "floor": "ceil", "isinf": "isnan", "fsum": "max"}  # fmt: skip


class Mutant(NamedTuple):
    module: str
    line: int
    change: str
    source: str


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its lines.

    >>> [one.change for one in mutants("m", "def f(x):\\n    return 2 * x")]
    ['Mult -> Div', '2 -> 3']
    """
    tree = ast.parse(source)
    hidden = {id(inner) for node in ast.walk(tree) for inner in _not_run(node)}
    places = [node for node in ast.walk(tree) if id(node) not in hidden]
    for place, node in enumerate(places):
        for number, change in enumerate(_changes(node)):
            changed = copy.deepcopy(tree)
            again = {id(inner) for outer in ast.walk(changed) for inner in _not_run(outer)}
            copied = [inner for inner in ast.walk(changed) if id(inner) not in again][place]
            list(_changes(copied))[number][1]()
            yield Mutant(module, getattr(node, "lineno", 0), change[0], ast.unparse(ast.fix_missing_locations(changed)))


def _not_run(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a statement without effect: annotations, docstrings, decorators, messages."""
    parts: list[ast.AST | None] = []
    if isinstance(node, ast.FunctionDef):
        parts += [node.returns, *node.decorator_list]
    if isinstance(node, ast.arg | ast.AnnAssign):
        parts.append(node.annotation)
    if isinstance(node, ast.ClassDef):
        parts += node.decorator_list
    if isinstance(node, ast.Raise):
        parts.append(node.exc)
    if isinstance(node, ast.ImportFrom | ast.Import | ast.JoinedStr):
        parts.append(node)
    for part in parts:
        if part is not None:
            yield from ast.walk(part)


def _changes(node: Any) -> Iterator[tuple[str, Any]]:
    """The changes of one node: a description, and a function that makes the change."""
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in OPERATORS:
        new = OPERATORS[type(node.op)]
        yield f"{type(node.op).__name__} -> {new.__name__}", lambda: setattr(node, "op", new())
    elif isinstance(node, ast.Compare):
        for at, op in enumerate(node.ops):
            other = OPERATORS[type(op)]
            change = f"{type(op).__name__} -> {other.__name__}"
            yield change, lambda at=at, other=other: node.ops.__setitem__(at, other())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        yield (
            f"without {type(node.op).__name__}",
            lambda: setattr(node, "op", ast.UAdd()) if isinstance(node.op, ast.USub) else _without(node),
        )
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        value = node.value
        new_value = (
            (not value) if isinstance(value, bool) else value + 1 if isinstance(value, int) else value * 2 + 1e-3
        )
        yield f"{value!r} -> {new_value!r}", lambda: setattr(node, "value", new_value)
    elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
        key = "id" if isinstance(node, ast.Name) else "attr"
        if (name := getattr(node, key)) in NAMES:
            yield f"{name} -> {NAMES[name]}", lambda: setattr(node, key, NAMES[name])
    elif isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise):
        yield "without the refusal", lambda: node.body.__setitem__(0, ast.Pass())


def _without(node: Any) -> None:
    """A negation that says what is inside it."""
    node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)


def noticed(mutant: Mutant, seconds: int) -> bool:
    """Whether a test fails, or runs forever, in a process with the mutant."""
    child = os.fork()
    if child == 0:
        _run(mutant, seconds)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) != 0


def _run(mutant: Mutant, seconds: int) -> None:
    """In the child: replace the source of one module, and run the tests."""
    code = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        signal.alarm(6 * seconds)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1), os.dup2(quiet, 2)
        os.chdir(ROOT)
        path = str(ROOT / "src" / "dpem" / f"{mutant.module}.py")
        loader: Any = importlib.machinery.SourceFileLoader
        right = loader.get_code

        def get_code(self: Any, name: str) -> Any:
            return compile(mutant.source, path, "exec") if self.path == path else right(self, name)

        loader.get_code = get_code
        import pytest

        files = [f"src/dpem/{mutant.module}.py", *(f"tests/{name}.py" for name in TESTS[mutant.module])]
        quick = [
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
        ]
        code = int(pytest.main([*quick, *files]))
    finally:
        os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m studies.audits.mutants", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("modules", nargs="*", default=list(TESTS), help="modules below src/dpem")
    parser.add_argument("--out", type=Path, default=Path("results/audit_mutants.json"))
    parser.add_argument("--sample", type=int, help="how many mutants are tried (all if not given)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--seconds", type=int, default=120, help="processor seconds for the tests of one mutant")
    options = parser.parse_args(arguments)
    assert "dpem" not in sys.modules, "the library must be loaded by the children alone"
    for heavy in HEAVY:
        __import__(heavy)
    sources = {module: (ROOT / "src" / "dpem" / f"{module}.py").read_text() for module in options.modules}
    every = [mutant for module, source in sources.items() for mutant in mutants(module, source)]
    sample = random.Random(options.seed).sample(every, min(options.sample or len(every), len(every)))
    version = (ROOT / "src" / "dpem" / "_version.py").read_text().split('"')[-2]
    results: dict[str, Any] = {"version": version, "mutants": len(every), "seed": options.seed, "modules": {}}
    for module, source in sources.items():
        begun, survived = time.monotonic(), []
        if noticed(Mutant(module, 0, "none", source), options.seconds):
            raise SystemExit(f"the tests of {module} fail on the library as it is.")
        tried = sorted((mutant for mutant in sample if mutant.module == module), key=lambda mutant: mutant.line)
        for mutant in tried:
            if not noticed(mutant, options.seconds):
                survived.append(f"line {mutant.line}: {mutant.change}")
                print(f"{module}, {survived[-1]}", flush=True)
        print(f"{module}: {len(tried)} tried, {len(survived)} survived, {time.monotonic() - begun:.0f} s", flush=True)
        results["modules"][module] = {"tried": len(tried), "survived": survived}
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
