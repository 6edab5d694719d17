"""``dpem init``: write a settings file for a table, to be filled in from a codebook. No row is read."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import click

from dpem._html import fill
from dpem.cli import options as shared
from dpem.cli.common import Exit, Session, refusals
from dpem.cli.options import PATH, option
from dpem.cli.settings import NAME


@click.command(
    params=[
        click.Argument(["data"], type=PATH),
        option("--sep", "The separator of a .csv; guessed from its first line if not given.", metavar="CHAR"),
        shared.encoding,
        option("--out", "The settings file to write.", PATH, default=NAME),
        *(shared.force, shared.json),
    ],
)
@click.pass_obj
def init(session: Session, data: str, sep: str | None, encoding: str, out: str, force: bool) -> None:
    """Write a settings file that lists the columns of DATA, with blanks for their bounds and levels.

    \b
    Example:
      dpem init patients.csv
      # fill in dpem.toml
      dpem fit linear-regression --dry-run

    Fill in bounds and levels from a codebook or from the range of an instrument, never from the rows: the smallest and
    the largest entry belong to two people.
    """
    from dpem._files import write_text
    from dpem.cli import files

    files.check_outputs([out], [data], force)
    with refusals(Exit.DATA):
        types, sep = _columns(Path(data), sep, encoding)
    with refusals(Exit.OUTPUT):
        write_text(out, _settings(data, types, sep, encoding) + "\n")
    columns = "1 column" if len(types) == 1 else f"{len(types)} columns"
    text = f"Wrote {out} with {columns}. Fill in epsilon, delta, bounds and levels; every command reads it."
    session.result({"out": out, "columns": list(types), "sep": sep}, text)


def _columns(path: Path, sep: str | None, encoding: str) -> tuple[dict[str, str], str | None]:
    """The columns' names with their types, which are empty for a text file, and the file's separator."""
    from dpem.tables.csv import SEPARATORS, kind_of
    from dpem.tables.dataset import schema_of
    from dpem.tables.files import columns_of

    if not path.exists():
        raise FileNotFoundError(f"{str(path)!r} cannot be read: there is no such file or folder.")
    if kind_of(path) not in SEPARATORS:
        schema = schema_of(path)
        return {name: str(schema.field(name).type) for name in schema.names}, None
    candidates = []
    for separator in [sep] if sep is not None else [None, ";", "\t", "|"]:
        with suppress(ValueError):
            candidates.append((columns_of(path, separator, encoding), separator))
    names, separator = (
        max(candidates, key=lambda pair: len(pair[0])) if candidates else (columns_of(path, sep, encoding), sep)
    )
    return dict.fromkeys(names, ""), separator


def _settings(data: str, types: dict[str, str], sep: str | None, encoding: str) -> str:
    """The text of the settings file."""

    def quoted(text: str) -> str:
        return json.dumps(text, ensure_ascii=False)

    texts = {name for name, kind in types.items() if "string" in kind}
    dataset = Path(data).name.split(".")[0].strip()
    if not dataset or not dataset.isprintable() or len(dataset) > 80:
        dataset = "table"  # a ledger would not accept the name of the file
    return fill(
        "dpem.toml",
        data=quoted(data),
        sep=sep and quoted(sep),
        encoding=encoding != "utf-8" and quoted(encoding),
        decimal=sep == ";",
        dataset=quoted(dataset),
        numbers=[(quoted(name), kind) for name, kind in types.items() if name not in texts],
        codes=[(quoted(name), kind) for name, kind in types.items() if name in texts or not any(types.values())],
    )
