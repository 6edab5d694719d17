"""The examples of the pages run and print what is shown, and links, tests and names on the pages exist.

On each page the ```python blocks run in order, in one namespace. A ```text block right after a block that printed
something must show what it printed; numbers are not compared, nor how often a line is repeated. (extending.md makes a
package: test_extending.py follows it.) Surrogate rows are few, which shows in numbers only.
"""

import contextlib
import importlib
import io
import re
from functools import reduce
from pathlib import Path

import pytest
from cheaper import small_designs, small_surrogate

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("README.md")])
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d[\d.,e+-]*")
CITED_TEST = re.compile(r"(tests/[\w/]+\.py)((?:::\w+)*)")
CITED_NAME = re.compile(r"`(dpem(?!\.toml)(?:\.\w+)+)")
LINK = re.compile(r"\]\(([^)#:\s]+)[^):]*\)")


def run(page: Path, text: str) -> None:
    """Run a page's examples; a failure's traceback shows the page and the line."""
    namespace: dict[str, object] = {"__name__": page.stem}
    printed = ""
    for block in FENCE.finditer(text):
        language, body = block.groups()
        if language == "python":
            line = text.count("\n", 0, block.start(2))
            code = compile("\n" * line + body, str(page), "exec", dont_inherit=True)
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(code, namespace)
            printed = out.getvalue()
        elif language == "text" and printed:
            assert shape(body) == shape(printed), f"{page.name} shows\n{body}\nbut its example prints\n{printed}"
            printed = ""


def shape(text: str) -> set[str]:
    """The lines without their numbers; spaces between columns depend on the widest number."""
    return {" ".join(NUMBER.sub("#", line).split()) for line in text.splitlines() if line.strip()}


def resolve(name: str) -> object:
    """The module or attribute that a dotted name stands for."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            return reduce(getattr, parts[end:], importlib.import_module(".".join(parts[:end])))
    raise ModuleNotFoundError(name)


def test_the_pages_are_found():
    assert {"extending.md", "paper.md", "privacy.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "extending.md"], ids=lambda page: page.name)
def test_examples_run_and_print_what_is_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # whatever an example writes
    small_designs(monkeypatch)
    small_surrogate(monkeypatch)
    run(page, page.read_text(encoding="utf-8"))


@every_page
def test_cited_tests_exist(page):
    for path, names in CITED_TEST.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / path).is_file(), path
        source = (ROOT / path).read_text(encoding="utf-8")
        for name in names.split("::")[1:]:
            assert re.search(rf"^\s*(def|class) {name}\b", source, re.MULTILINE), f"{path}{names}"


@every_page
def test_cited_names_exist(page):
    for name in CITED_NAME.findall(page.read_text(encoding="utf-8")):
        resolve(name)


@every_page
def test_linked_files_exist(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize(
    "text",
    [
        "```python\nassert 1 + 1 == 3\n```\n",
        "```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n",
        "```python\nprint('rho = 0.5')\n```\n\n```text\nepsilon = 0.5\n```\n",
    ],
)
def test_a_wrong_example_fails(text):
    with pytest.raises(AssertionError):
        run(Path("page.md"), text)


def test_numbers_and_repeated_lines_are_not_compared():
    run(Path("page.md"), "```python\nprint('a = 1e-05\\na = -2.5, b')\n```\n```text\na = 7\na = 3, b\na = 1\n```\n")


@pytest.mark.parametrize("name", ["dpem.nothing", "dpem.privacy.nothing", "dpem.Budget.nothing"])
def test_an_unknown_name_fails(name):
    with pytest.raises((AttributeError, ModuleNotFoundError)):
        resolve(name)
