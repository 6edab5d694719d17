"""Values of a parameter that are tried in one test case."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

Test = Callable[..., None]


def together(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Like ``pytest.mark.parametrize``, in one case: for values that could only fail for the same reason.

    >>> @together(("a", "b"), [(1, 2), (3, 4)])
    ... def test(a, b):
    ...     print(a, b)
    >>> test()
    1 2
    3 4
    """
    keys = (names,) if isinstance(names, str) else names
    tried = [dict(zip(keys, value if len(keys) > 1 else (value,), strict=True)) for value in values]

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def every(*fixtures: Any, **more: Any) -> None:
            for given in tried:
                try:
                    test(*fixtures, **more, **given)
                except BaseException as error:
                    error.add_note(f"with {given}")
                    raise

        own = inspect.signature(test)
        left = [parameter for name, parameter in own.parameters.items() if name not in keys]
        every.__signature__ = own.replace(parameters=left)  # type: ignore[attr-defined]
        return every

    return decorate
