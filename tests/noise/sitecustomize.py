"""Python runs this at its start in the processes that tests start: their noise is the injected one too, and the
command does not say that it is slow.

The folder is on PYTHONPATH, and ``DPEM_TEST_NOISE`` holds the id of the test, while a test runs. Modules are changed
when ``dpem`` loads them, not before, so that a process loads what it would load otherwise.
"""

import importlib.abc
import importlib.machinery
import os
import sys


def _inject_noise(module):
    import injected_noise

    injected_noise.reseed(os.environ["DPEM_TEST_NOISE"])
    injected_noise.install(module)


def _wait_in_silence(module):
    module.PROGRESS_AFTER = 3600.0


_CHANGES = {"dpem.privacy.noise": _inject_noise, "dpem.cli.common": _wait_in_silence}


class _AfterLoading(importlib.abc.MetaPathFinder):
    """Changes a module right after it has run."""

    def find_spec(self, name, path=None, target=None):
        if name not in _CHANGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            _CHANGES[name](module)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("DPEM_TEST_NOISE"):
    sys.meta_path.insert(0, _AfterLoading())
