"""dpem doctor, and completion in real shells."""

import os
import shutil
import subprocess
import sys

import pytest
from running_dpem import LEDGER, dpem

import dpem as package
from dpem import __version__

SOURCE = os.path.dirname(os.path.dirname(package.__file__))


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
complete_last_word() {
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    _dpem_completion dpem
    echo "${COMPREPLY[@]}"
}
complete_last_word dpem fit linear
complete_last_word dpem ledger verify --he
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_models_and_options(tmp_path):
    command = tmp_path / "dpem"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m dpem "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    environment = {**os.environ, "LC_ALL": "C", "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": SOURCE}
    bash = ["bash", "--norc", "-c", BASH]
    done = subprocess.run(bash, capture_output=True, text=True, timeout=600, check=True, env=environment)
    assert (done.stdout, done.stderr) == ("linear-regression\n--head --help\n", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_the_script(shell, tmp_path):
    """The shell parses the script where it is installed."""
    script = tmp_path / "completion"
    environment = {**os.environ, "_DPEM_COMPLETE": f"{shell}_source", "PYTHONPATH": SOURCE}
    command = [sys.executable, "-m", "dpem"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    script.write_text(text, encoding="utf-8")
    assert f"_DPEM_COMPLETE={shell}_complete" in text
    if shutil.which(shell) is not None:
        done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, done.stderr) == (0, "")
