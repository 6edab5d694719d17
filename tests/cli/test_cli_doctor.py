"""dpem doctor, and completion in real shells."""

import os
import shutil
import subprocess
import sys

import pytest
from running_dpem import LEDGER, dpem

import dpem as package
from dpem import __version__


@pytest.mark.usefixtures("folder")
class TestDoctor:
    def test_it_shows_versions_threads_and_the_ledger(self):
        done = dpem("doctor", "--ledger", LEDGER)
        assert done.code == 0, done.err
        lines = [line.split(maxsplit=2) for line in done.out.splitlines()[1:]]
        found = {line[0]: line[1] for line in lines}
        assert (found["dpem"], found["ledger"]) == (__version__, "reachable")
        assert int(found["threads"]) >= 1
        assert dpem("doctor", "--json").json["ledger"] == ["none", "name it with --ledger or DPEM_LEDGER"]

    def test_a_ledger_that_cannot_be_read_is_a_failure(self):
        done = dpem("doctor", "--ledger", "sqlite:///no.db")
        assert done.code == 1
        assert "no such file" in done.err
        assert "failed" in done.out

    def test_a_package_that_is_missing_is_named(self, monkeypatch):
        from dpem.cli import doctor

        monkeypatch.setattr(doctor, "_version", lambda name: None if name == "opendp" else "1")
        done = dpem("doctor")
        assert (done.code, "opendp is missing" in done.err) == (1, True)


BASH = """
eval "$(_DPEM_COMPLETE=bash_source dpem)"
COMP_WORDS=({words})
COMP_CWORD={last}
_dpem_completion dpem
for reply in "${{COMPREPLY[@]}}"; do echo "$reply"; done
"""


def completed(tmp_path, *words):
    """What bash offers for the last of the words."""
    command = tmp_path / "dpem"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m dpem "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    source = os.path.dirname(os.path.dirname(package.__file__))
    script = BASH.format(words=" ".join(f'"{word}"' for word in words), last=len(words) - 1)
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
        env={**os.environ, "LC_ALL": "C", "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": source},
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("words", "offered"),
    [(("dpem", "fit", "linear"), ["linear-regression"]), (("dpem", "ledger", "verify", "--he"), ["--head", "--help"])],
)
def test_bash_completes(tmp_path, words, offered):
    assert completed(tmp_path, *words) == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_the_script(shell, tmp_path):
    """The shell reads it where it is installed; elsewhere it is at least the script of this shell and this command."""
    script = tmp_path / "completion"
    source = {"_DPEM_COMPLETE": f"{shell}_source", "PYTHONPATH": os.path.dirname(os.path.dirname(package.__file__))}
    command = [sys.executable, "-m", "dpem"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **source}).stdout
    script.write_text(text, encoding="utf-8")
    assert f"_DPEM_COMPLETE={shell}_complete" in text
    if shutil.which(shell) is not None:
        done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, done.stderr) == (0, "")
