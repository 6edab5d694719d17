"""Python runs this at its start in the processes that tests start: their noise is the injected one too.

The folder is on PYTHONPATH, and ``DPEM_TEST_NOISE`` holds the id of the test, while a test runs. The samplers are
exchanged when ``dpem`` loads them, not before, so that a process loads what it would load otherwise.
"""

import importlib.abc
import importlib.machinery
import os
import sys


class _AfterLoading(importlib.abc.MetaPathFinder):
    """Exchanges the samplers right after their module has run."""

    def find_spec(self, name, path=None, target=None):
        if name != "dpem.privacy.noise":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            import injected_noise

            injected_noise.reseed(os.environ["DPEM_TEST_NOISE"])
            injected_noise.install(module)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("DPEM_TEST_NOISE"):
    sys.meta_path.insert(0, _AfterLoading())
