"""The command as a process of its own: streams, exit status, a pipe that closes, a signal, a terminal."""

import json
import subprocess
import sys
import threading

import pytest
from running_dpem import LEDGER, charged

from dpem.cli import common

pytestmark = pytest.mark.usefixtures("folder")

FIT = ["fit", "symmetric-mixture", "patients.csv", "--epsilon", "0.4", "--delta", "4e-4", "--sigma", "0.5"]
INTERRUPTED = """
import os, signal, sys, time
from dpem.cli import main, plan

def interrupted(*_):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)

sys.modules["dpem.cli.plan"]._plan = interrupted
sys.argv[1:] = ["plan", "symmetric-mixture", "--n", "600", "--d", "3", "--epsilon", "1", "--delta", "1e-4"]
main()
"""


def run(*command: str) -> subprocess.CompletedProcess:
    command = (sys.executable, *command)
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_a_fit_in_a_process():
    done = run("-m", "dpem", *FIT, "--ledger", LEDGER, "--dataset", "patients", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["out"] == "model.json"
    assert charged() == 1


def test_an_interrupted_process_says_so():
    done = run("-c", INTERRUPTED)
    assert done.returncode == 130
    assert done.stderr.lstrip() == "dpem: error: interrupted; nothing was spent.\n"


def test_long_work_is_named(monkeypatch, capsys):
    shown = threading.Event()
    echo = common.click.echo
    monkeypatch.setattr(common.click, "echo", lambda *text, **how: (echo(*text, **how), shown.set()))
    monkeypatch.setattr(common, "PROGRESS_AFTER", 0.01)
    with common.Session().notice("choosing settings"):
        assert shown.wait(timeout=300)
    assert capsys.readouterr().err == "dpem: choosing settings ...\n"


def test_help_and_ledger_commands_import_little():
    program = """
import sys
import dpem.cli.main, dpem.cli.fit
print([name for name in ("numpy", "sqlalchemy", "tqdm", "sklearn", "numba", "pyarrow") if name in sys.modules])
import dpem.privacy.ledger
print([name for name in ("numpy", "scipy", "opendp", "sklearn") if name in sys.modules])
"""
    assert run("-c", program).stdout == "[]\n[]\n"
