"""The folder that the tests of the command run in."""

from running_dpem import folder

__all__ = ["folder"]
