"""The folder that the tests of the command run in."""

from running_dpem import folder

__all__ = ["folder"]

collect_ignore = ["conftest.py"]  # the doctest collector cannot import a second module of this name
