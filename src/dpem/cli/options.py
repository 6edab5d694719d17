"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

#: The keys of dpem.paper.planning.choose.MODELS, which takes long to import.
MODELS = ("symmetric-mixture", "symmetric-regression", "missing-regression")

F = TypeVar("F", bound=Callable[..., Any])

model_argument = click.argument("model", type=click.Choice(MODELS), metavar="MODEL")
epsilon_option = click.option("--epsilon", type=float, required=True, help="Privacy loss of one person, such as 1.")
delta_option = click.option(
    "--delta", type=float, required=True, help="Probability of the exception: well below one over the number of rows."
)
rows_per_person_option = click.option(
    "--rows-per-person",
    type=int,
    default=1,
    show_default=True,
    metavar="M",
    help="The most rows that one person has: all of them are protected together.",
)
json_option = click.option("--json", "as_json", is_flag=True, expose_value=False, help="One JSON object, for machines.")
ledger_option = click.option(
    "--ledger",
    "url",
    envvar="DPEM_LEDGER",
    metavar="URL",
    help="sqlite:///budget.db or postgresql://user@host/database; DPEM_LEDGER if not given.",
)
dataset_option = click.option("--dataset", metavar="NAME", help="The dataset's name in the ledger.")


class Sparsity(click.ParamType):
    """A whole number or "auto"."""

    name = "N|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == "auto" or isinstance(value, int):
            return value
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a whole number nor auto.", param, ctx)


def assumptions(command: F) -> F:
    """What is assumed of the data: public numbers, never computed from the rows."""
    for option in reversed(
        (
            click.option("--sparsity", type=Sparsity(), help="Coefficients that may be non-zero; all if not given."),
            click.option("--max-sparsity", type=int, metavar="N", help="With --sparsity auto: the most there may be."),
            click.option("--sigma", type=float, help="Noise level, if publicly known; estimated and paid for if not."),
            click.option(
                "--signal", type=float, default=1.0, show_default=True, help="Assumed length of the coefficients."
            ),
        )
    ):
        command = option(command)
    return command
