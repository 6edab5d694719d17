"""Several values of a parameter in one test case."""

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
    cases = [dict(zip(keys, value if len(keys) > 1 else (value,), strict=True)) for value in values]

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def every(*fixtures: Any, **more: Any) -> None:
            for arguments in cases:
                try:
                    test(*fixtures, **more, **arguments)
                except BaseException as error:
                    error.add_note(f"with {arguments}")
                    raise

        signature = inspect.signature(test)
        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        every.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return every

    return decorate
