"""``dpem plan``: what a fit would do and how well, before there are data."""

from __future__ import annotations

from typing import Any

import click
from tqdm import tqdm

from dpem.cli.common import Exit, Refused, Session, aligned, refusing, wrapped
from dpem.cli.options import assumptions, delta_option, json_option, model_argument, rows_per_person_option


def _numbers(context: click.Context, option: click.Parameter, value: str | None) -> list[float] | None:
    if value is None:
        return None
    try:
        return [float(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter("give numbers with commas between them, such as 0.1,0.2,0.5,1,2.") from None


@click.command(short_help="Choose settings and predict the error, without data.")
@model_argument
@click.option("--n", type=int, required=True, metavar="N", help="Rows.")
@click.option("--d", type=int, required=True, metavar="N", help="Columns, without the response.")
@click.option("--epsilon", type=float, help="Privacy loss of one person, such as 1.")
@delta_option
@rows_per_person_option
@assumptions
@click.option("--missing", type=float, default=0.2, show_default=True, help="Part of the covariates that is missing.")
@click.option("--start-distance", type=float, help="A start will be given, about so far from the truth.")
@click.option("--sweep-epsilon", callback=_numbers, metavar="LIST", help="One line for each of several epsilons.")
@json_option
@click.pass_obj
def plan(session: Session, /, epsilon: float | None, sweep_epsilon: list[float] | None, **given: Any) -> None:
    """Choose every setting of a fit and predict its error. No data are read, nothing is spent.

    MODEL is symmetric-mixture, symmetric-regression or missing-regression.

    \b
    Examples:
      dpem plan symmetric-mixture --n 4000 --d 1000 --epsilon 0.5 --delta 1e-4 --sparsity 10
      dpem plan missing-regression --n 5000 --d 10 --delta 1e-5 --sweep-epsilon 0.1,0.3,1
      dpem plan symmetric-regression --n 5000 --d 20 --epsilon 1 --delta 1e-5 --start-distance 0.5

    The predicted error is the distance of the fitted coefficients from the true ones, if the assumptions hold
    (--sigma, --signal, --missing). A wrong assumption costs accuracy, never privacy. Without --sigma, half of the
    signal is assumed, and a twentieth of the price set aside for estimating it.
    """
    if (epsilon is None) == (sweep_epsilon is None):
        raise click.UsageError("Give either --epsilon or --sweep-epsilon.")
    arguments, assumed = _arguments(given)
    if epsilon is None:
        _sweep(session, sweep_epsilon or [], arguments, assumed)
        return
    with session.waiting("choosing settings"):
        made = _plan(epsilon, arguments)
    session.result(
        {**made.to_dict(), "feasible": made.feasible, "assumed": assumed},
        "\n".join([str(made), *map(wrapped, assumed)]),
    )


def _arguments(given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Arguments of dpem.plan, and what had to be assumed for them, in words."""
    from dpem import _validation as checks

    with refusing(Exit.USAGE):
        d = checks.count("d", given["d"])
        sparsity, trim = checks.sparsity(given["sparsity"], given.pop("max_sparsity"), d)
        signal = checks.positive("signal", given["signal"])
    assumed, estimated = [], given["sigma"] is None
    if estimated:
        given["sigma"] = signal / 2
        assumed.append(unknown_sigma(signal))
    return {**given, "sparsity": sparsity, "trim": trim, "estimated": estimated}, assumed


def unknown_sigma(signal: float) -> str:
    """What a plan assumes when σ is to be estimated."""
    return (
        f"Without --sigma the fit first spends a twentieth of its price on estimating it and then plans anew; "
        f"assumed here is sigma = {signal / 2:g}, half of the signal."
    )


def _plan(epsilon: float, arguments: dict[str, Any]) -> Any:
    from dpem import _validation as checks
    from dpem.paper.estimators.base import SIGMA_SHARE
    from dpem.paper.planning import plan
    from dpem.privacy import largest_price

    with refusing(Exit.USAGE):
        checks.privacy_parameters(epsilon, arguments["delta"])
        if epsilon == float("inf"):
            raise Refused(Exit.USAGE, "--epsilon must be finite: the command plans private fits only.")
        estimated = arguments["estimated"]
        rho = largest_price(epsilon, arguments["delta"], gaussian=False).rho if estimated else 0.0
        rest = {name: value for name, value in arguments.items() if name != "estimated"}
        return plan(rest.pop("model"), epsilon=epsilon, spent=SIGMA_SHARE * rho, **rest)


def _sweep(session: Session, epsilons: list[float], arguments: dict[str, Any], assumed: list[str]) -> None:
    """A small table for choosing ε."""
    with tqdm(epsilons, unit="plan", delay=2.0, leave=False, disable=True if session.json else None) as each:
        plans = [_plan(epsilon, arguments) for epsilon in each]
    header = ("epsilon", "predicted error", "8 of 10 within", "detects", "feasible")
    rows = [
        (
            f"{made.epsilon:g}",
            f"{made.predicted_error:.3g}",
            "{:.3g} to {:.3g}".format(*made.interval),
            "" if made.detectable is None else f"{made.detectable:.3g}",
            "yes" if made.feasible else "no",
        )
        for made in plans
    ]
    document = {"plans": [{**made.to_dict(), "feasible": made.feasible} for made in plans], "assumed": assumed}
    text = [
        aligned(header, rows, left=()),
        *map(wrapped, assumed),
    ]
    session.result(document, "\n".join(text))
