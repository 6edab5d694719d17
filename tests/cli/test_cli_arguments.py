"""Refusals name the options of the command: read off a field of the exception, not out of its text."""

import inspect
import pickle

import click
import pytest
from running_dpem import dpem

from dpem import registry
from dpem._validation import Argument, ArgumentError
from dpem.cli.common import Exit, option_message
from dpem.cli.plan import plan

#: A value that is refused, for options whose type does not say one.
WRONG = {
    "bounds": "5,1",
    "y_bounds": "5,1",
    "covariance_type": "bent",
    "delta": "2",
    "formula": "y ~ ~",
    "offset": "nobody",
    "exposure": "nobody",
    "start": "somewhere",
}
#: Switches cannot be wrong, click refuses the word of a choice itself, levels come from a file, classes are checked
#: beside the response, and a column of weights is looked up in the table.
LEFT_OUT = ("check", "fit_intercept", "method", "levels", "classes", "weights")


def options(name):
    known = inspect.signature(registry.estimator(name)).parameters
    return [one for one in plan.get_command(None, name).params if one.name in known and one.name not in LEFT_OUT]


@pytest.mark.parametrize("name", registry.modules())
def test_every_argument_of_every_model_is_refused_as_its_option(name, tmp_path):
    known = inspect.signature(registry.estimator(name)).parameters
    sizes = ["--n", "2000", "--d", "3", "--epsilon", "1", "--delta", "1e-6"]
    sizes += ["--sigma", "1"] if "sigma" in known else []
    if "bounds" not in known and "levels" in known:
        (tmp_path / "levels.json").write_text('{"a": [0, 1], "b": [0, 1], "c": [0, 1]}')
        sizes += ["--levels", str(tmp_path / "levels.json")]
    for option in options(name):
        done = dpem("plan", name, *sizes, option.opts[0], WRONG.get(option.name, "-1"))
        assert done.code == Exit.USAGE, (option.name, done.err)
        message = done.err.removeprefix("dpem: error: ")
        assert message.startswith(option.opts[0]), message


def test_words_of_a_user_stay_as_they_are():
    def message(text):
        with click.Context(plan.get_command(None, "linear-regression")):
            return option_message(ArgumentError("bounds", f"must name every column, but lack {text}."))

    for word in ("'rows_per_person'", "it's y_bounds= and columns=", '"epsilon=" and target'):
        assert message(word) == f"--bounds must name every column, but lack {word}."


def test_an_argument_that_is_no_option_keeps_its_name():
    assert (
        option_message(ArgumentError("X", "must have at least 2 rows, got 1.")) == "X must have at least 2 rows, got 1."
    )


def test_a_refusal_survives_a_process_boundary():
    error = ArgumentError(Argument("sparsity", "auto"), "needs ", Argument("max_sparsity"), ": {0}.")
    again = pickle.loads(pickle.dumps(error))
    assert (again.argument, str(again)) == ("sparsity", "sparsity='auto' needs max_sparsity: {0}.")
