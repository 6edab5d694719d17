"""Lazy modules: the same object before and after loading, loaded completely by the first access to an attribute."""

import importlib
import subprocess
import sys
import threading

import pytest

from dpem._lazy_import import LazyModule, lazy_import

CODE = {
    "slow/__init__.py": "import time\ntime.sleep(0.1)\nfrom slow.inner import answer\ndef __getattr__(name):\n"
    "    if name == 'guessed':\n        return 7\n    raise AttributeError(name)\nlast = 1\n",
    "slow/inner.py": "import slow\nanswer = 42\n",
    "broken.py": "raise ImportError('no')\n",
}


@pytest.fixture
def modules(tmp_path, monkeypatch):
    for name, code in CODE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    lazy_import("slow", "broken", "dpem_is_not_a_module_of_that_name")
    yield
    for name in ("slow", "slow.inner", "broken"):
        sys.modules.pop(name, None)


def test_the_first_access_loads_the_same_object(modules):
    import slow

    assert type(slow) is LazyModule
    assert "slow.inner" not in sys.modules
    assert slow.answer == 42
    assert type(slow) is type(sys)
    assert sys.modules["slow"] is slow
    assert slow.guessed == 7
    with pytest.raises(AttributeError):
        slow.nothing  # noqa: B018


def test_a_submodule_loads_its_package_first(modules):
    assert importlib.import_module("slow.inner").answer == 42
    assert sys.modules["slow"].last == 1


def test_other_threads_see_a_complete_module(modules):
    import slow

    values = []
    threads = [threading.Thread(target=lambda: values.append(slow.last)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [1] * 4


def test_a_module_that_cannot_be_imported_fails_each_time(modules):
    for _ in range(2):
        import broken

        assert type(broken) is LazyModule
        with pytest.raises(ImportError, match="no"):
            broken.anything  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("dpem_is_not_a_module_of_that_name")


def test_a_plan_from_a_shell_loads_neither_scipys_statistics_nor_pandas():
    arguments = ["plan", "symmetric-mixture", "--n", "2000", "--d", "4", "--epsilon", "1", "--delta", "1e-5"]
    program = (
        "import atexit, runpy, sys\n"
        "atexit.register(lambda: print({n: type(sys.modules[n]).__name__ for n in ('scipy.stats', 'pandas')}))\n"
        "runpy.run_module('dpem', run_name='__main__')\n"
    )
    command = [sys.executable, "-c", program, *arguments, "--sparsity", "3", "--sigma", "0.5"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == str({"scipy.stats": "LazyModule", "pandas": "LazyModule"})
