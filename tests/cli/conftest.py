"""The folder that the tests of the command run in."""

from running_dpem import files, folder

__all__ = ["files", "folder"]

collect_ignore = ["conftest.py"]  # the doctest collector cannot import a second module of this name
