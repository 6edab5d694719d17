"""The page of diagnostics lists every code of the source, with its severities and a model that issues it."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "diagnostics.md").read_text(encoding="utf-8")
#: A folder of models: the pages of those that it serves.
SERVES = {"_glm": {"logistic-regression", "poisson-regression"}}


def constants(node: ast.expr) -> set[str]:
    """The texts that an argument can be."""
    return {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)}


def issued() -> dict[str, list[tuple[set[str], set[str]]]]:
    """For each code the severities and the pages of each place that makes it; no page: every model does."""
    places = defaultdict(list)
    for path in sorted((ROOT / "src" / "dpem").rglob("*.py")):
        parts = path.relative_to(ROOT / "src" / "dpem").parts
        pages = SERVES.get(parts[1], {parts[1].replace("_", "-")}) if parts[0] == "models" else set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if name in ("Diagnostic", "warn") and isinstance(node.args[0], ast.Constant):
                severities = constants(node.args[1]) if name == "Diagnostic" else {"warning"}
                places[node.args[0].value].append((severities, pages))
    return places


ISSUED = issued()
ROWS = {
    code: (set(severities.split(", ")), set(re.findall(r"\(([\w-]+)\.md\)", models)))
    for code, severities, models in re.findall(r"^\| `([\w-]+)` \| ([\w, ]+) \| ([^|]+) \|", PAGE, re.MULTILINE)
}


def test_the_page_has_the_codes_of_the_source():
    assert len(ISSUED) > 20
    assert set(ROWS) == set(ISSUED)


@pytest.mark.parametrize("code", sorted(ISSUED))
def test_the_page_has_the_severities_and_models(code):
    severities, models = ROWS[code]
    assert (
        set().union(*(issued_severities for issued_severities, _ in ISSUED[code])) <= severities <= {"warning", "note"}
    )
    for _, pages in ISSUED[code]:
        assert models & pages or not pages
