"""A repeatable source of noise in the place of the private one, for tests of logic.

``install`` exchanges the three samplers of :class:`dpem.privacy.PrivateNoise`. OpenDP's privacy map is still asked
whether the price covers the noise, and the guarantee of a fit still says "private", so that a test sees the library as
its users do; only the bits come from a generator that :func:`reseed` starts from a text, such as the id of the test.

This is no part of the library: it has no argument and no environment variable that would make private noise repeatable.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

_state: dict[str, Any] = {"rng": np.random.default_rng(0)}


def seed_of(text: str) -> int:
    """A whole number below 2³² that depends on the text, and on ``DPEM_TEST_DRAW`` where that is set, alone.

    >>> seed_of("a") == seed_of("a") != seed_of("b")
    True
    """
    return int.from_bytes(hashlib.sha256((os.environ.get("DPEM_TEST_DRAW", "") + text).encode()).digest()[:4], "big")


def reseed(text: str) -> None:
    """Start the noise again, from a text."""
    _state["rng"] = np.random.default_rng(seed_of(text))


@contextmanager
def seeded(text: str) -> Iterator[None]:
    """Noise that depends on this text alone, for a while: for a fixture that several tests share."""
    before = _state["rng"]
    reseed(text)
    try:
        yield
    finally:
        _state["rng"] = before


def install(noise: ModuleType) -> Callable[[], None]:
    """Exchange the samplers of the module ``dpem.privacy.noise``; what is returned puts them back."""
    private, gumbel = noise.PrivateNoise, noise.gumbel
    before = private.gaussian, private.laplace, gumbel.os

    def gaussian(self: Any, values: Any, scale: float, sensitivity: float, rho: float) -> Any:
        mechanism = noise.measurements.make_gaussian(noise._VECTOR, noise._L2, scale=scale)
        noise._check_price(mechanism, sensitivity, rho)
        values = np.asarray(values, dtype=float)
        return values + scale * _state["rng"].standard_normal(values.shape)

    def laplace(self: Any, values: Any, scale: float, grid: float | None = None) -> Any:
        values = np.asarray(values, dtype=float)
        drawn = _state["rng"].laplace(scale=scale, size=values.shape)
        return values + drawn if grid is None else (np.rint(values / grid) + np.rint(drawn / grid)) * grid

    def restore() -> None:
        private.gaussian, private.laplace, gumbel.os = before

    private.gaussian, private.laplace = gaussian, laplace
    gumbel.os = SimpleNamespace(urandom=lambda count: _state["rng"].bytes(count))  # the real selection, on these
    return restore
