"""``dpem scale``: release the centre and spread of each column under differential privacy."""

from __future__ import annotations

import click

from dpem._html import wrap
from dpem.cli import options as shared
from dpem.cli.common import EXIT_CODES, Exit, Options, Session, first_lines, refusals
from dpem.cli.options import PATH, Bounds, option


@click.command(
    epilog=EXIT_CODES,
    params=[
        *(shared.data, shared.epsilon, shared.delta, shared.rows_per_person),
        option("--bounds", "The public bounds of all columns, or a file of them.", Bounds(), required=True),
        *(shared.target, *shared.table),
        option("--out", "The scaler file to write.", PATH, default="scaler.json"),
        *(shared.force, shared.ledger, shared.dataset, shared.purpose, shared.dry_run, shared.json),
    ],
)
@click.pass_obj
def scale(session: Session, /, **options: object) -> None:
    """Measure the centre and spread of each column of DATA under differential privacy, and write scaler.json.

    The paper's models expect centred columns of similar spread; the other models do not need this command. Give the
    file to dpem fit and dpem predict as --scaler. The command is charged like a fit. --bounds must be public knowledge,
    such as the range of an instrument, not the smallest and largest entry of these rows.

    \b
    Example:
      dpem scale patients.csv --bounds 0,300 --epsilon 0.2 --delta 1e-6 \\
          --ledger sqlite:///budget.db --dataset patients
      dpem fit symmetric-mixture patients.csv --scaler scaler.json --epsilon 0.8 --delta 1e-6 \\
          --ledger sqlite:///budget.db --dataset patients
    """
    from dpem import DPStandardScaler
    from dpem.cli import files
    from dpem.cli.fit import charge_and_fit, unfitted
    from dpem.cli.spending import spent_and_left

    scaler = unfitted("scale", DPStandardScaler, options)
    charged = charge_and_fit(
        session, "scale", scaler, options, lambda source: {"bounds": _bounds(options, files.feature_names(source))}
    )
    if charged is None:
        return
    out = str(options["out"])
    files.save(scaler, out)
    names = files.columns_of(scaler) or []
    mean, spread, only_noise = scaler.mean_, scaler.scale_, scaler.only_noise_
    rows = []
    for j, name in enumerate(names):
        shown = (
            f"at most {spread[j]:.4g} (noise)" if only_noise[j] else f"{spread[j]:.4g} ± {scaler.scale_error_[j]:.2g}"
        )
        rows.append((name, f"{mean[j]:.4g} ± {scaler.mean_error_[j]:.2g}", shown))
    lines = [*first_lines(("column", "centre", "spread"), rows, out), "", wrap(scaler.guarantee_), ""]
    lines += [f"Wrote {out}: for dpem fit and dpem predict --scaler {out}.", *spent_and_left(charged.state)]
    details = {
        "fitted": {name: [float(mean[j]), float(spread[j])] for j, name in enumerate(names)},
        "only_noise": [name for name, noise in zip(names, only_noise, strict=True) if noise],
    }
    session.result(charged.result(scaler, out, **details), "\n".join(lines))


def _bounds(options: Options, names: list[str]) -> object:
    """Two numbers for all columns, or two vectors, from a file or from the settings."""
    from dpem.tables.bounds import column_bounds

    bounds = options["bounds"]
    if isinstance(bounds, tuple):
        return bounds
    with refusals(Exit.DATA):
        pairs = column_bounds(bounds, names, {})
    return [pairs[name][0] for name in names], [pairs[name][1] for name in names]
