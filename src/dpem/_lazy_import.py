"""Modules whose code runs at the first use of an attribute (``importlib.util.LazyLoader`` runs it at the import).

scikit-learn's base classes import scipy.stats and pandas, which together take longer to load than a plan takes to
compute, and rarely use them. The command ``dpem`` defers both; a program that imports this package is not affected.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

#: The attribute of a deferred module that stores its loader.
WAITING = "__deferred__"
_loading = threading.RLock()


class LazyModule(ModuleType):
    """A module whose code runs at the first use of an attribute. It stays the same object."""

    def __getattr__(self, name: str) -> Any:
        with _loading:  # another thread waits until the module is loaded
            own = self.__dict__
            if (waiting := own.pop(WAITING, None)) is not None:
                own.update(waiting.hidden)
                try:
                    waiting.loader.exec_module(self)
                except BaseException:
                    sys.modules.pop(self.__name__, None)
                    raise
                self.__class__ = ModuleType  # type: ignore[assignment]
            if name in own:
                return own[name]
            if "__getattr__" in own:
                return own["__getattr__"](name)
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class _LazyLoader(Loader):
    """Defers a module's code. Until then it has no ``__path__``: importing a submodule loads it."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.hidden: dict[str, Any] = {}

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return LazyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        own = module.__dict__
        own["__loader__"] = own["__spec__"].loader = self.loader
        self.hidden = {name: own.pop(name) for name in ("__path__",) if name in own}
        own[WAITING] = self


class _LazyFinder(MetaPathFinder):
    def __init__(self, names: Sequence[str]) -> None:
        self.names = frozenset(names)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in self.names else None
        if spec is not None and spec.loader is not None:
            spec.loader = _LazyLoader(spec.loader)
        return spec


def lazy_import(*names: str) -> None:
    """Defer these modules; those that are loaded already stay as they are.

    >>> lazy_import("wave")
    >>> import wave
    >>> type(wave).__name__, wave.open.__name__, type(wave).__name__
    ('LazyModule', 'open', 'module')
    """
    sys.meta_path.insert(0, _LazyFinder(names))
