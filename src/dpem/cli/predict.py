"""``dpem predict``: predictions for new rows, chunk by chunk, so that any file fits into memory. The output is written
completely or not at all.
"""

from __future__ import annotations

import csv as text
import inspect
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from dpem.cli import options as shared
from dpem.cli.common import Exit, Refused, Session, refusals
from dpem.cli.options import PATH, Names, option

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from dpem.fitting.results import FittedModel
    from dpem.fitting.scaler import DPStandardScaler
    from dpem.tables import ChunkedSource, Source


@click.command(
    params=[
        click.Argument(["model"], metavar="MODEL.JSON", type=PATH),
        *(shared.data, shared.target, shared.scaler),
        option("--keep", "Columns of DATA to copy to the output, such as an identifier.", Names()),
        *shared.text,
        option("--out", "A .csv, .parquet or .arrow file; CSV on standard output if not given.", PATH),
        *(shared.force, shared.json),
    ]
)
@click.pass_obj
def predict(session: Session, /, **options: Any) -> None:
    """Apply a fitted model to the rows of DATA, in their order.

    A model with a response predicts it; a model without one predicts the component of each row (0, 1, …), 0 being
    component 1 of the summary. The columns probability_0, probability_1, … contain the probability of each component;
    mixtures of regressions need --target for them.

    \b
    Examples:
      dpem predict model.json new.csv --keep id --out predictions.csv
      dpem predict model.json new.parquet --target outcome --out predictions.parquet

    DATA must have the columns that the model was fitted to; others are ignored. A model that was fitted with --scaler
    needs the same --scaler here.

    The guarantee covers the model. It does not cover predictions for the rows that the model was fitted to: do not
    publish those.
    """
    if session.json and options["out"] is None:
        raise click.UsageError("--json needs --out: both would go to standard output.")
    from dpem.cli import files
    from dpem.tables.files import kept_columns
    from dpem.tables.progress import expect, progress

    out, path = options["out"], options["model"]
    suffix = ".csv" if out is None else os.path.splitext(out)[1].lower()
    writers = _writers()
    if suffix not in writers:
        raise click.UsageError(f"--out must end in .csv, .parquet or .arrow; got {out!r}.")
    if out is not None:
        files.check_outputs([out], [path, options["data"]], options["force"])
    model = files.model(path)
    if not hasattr(model, "predict"):
        raise Refused(Exit.DATA, f"{path!r} is a scaler, which predicts nothing: give a model.")
    if options["target"] is not None and not model._needs_y:
        raise click.UsageError("--target is for models with a response: leave it out.")
    scaler = files.scaler(options["scaler"])
    _check_scaler(model, scaler, path)
    options["columns"] = files.columns_of(model)
    source = files.table(session, options, scaler=scaler, levels=model._table_levels())
    if source.n_features != model.n_features_in_:
        message = f"the rows have {source.n_features} columns, but {path!r} was fitted to {model.n_features_in_}."
        raise Refused(Exit.DATA, message)
    with refusals(Exit.DATA):
        kept = kept_columns(options["data"], options["keep"] or (), options["sep"], options["encoding"])
    session.say("note: the guarantee does not cover predictions for rows that the model was fitted to")
    if hasattr(model, "weights_") and (options["target"] is not None or not model._needs_y):
        session.say("note: components are numbered from 0 here, and from 1 in the summary and the report")
    tables = _tables(model, source, kept, with_response=options["target"] is not None)
    with progress(disable=True if session.json else None), _output(out) as sink:
        expect(source.n_rows)
        count, columns = _write(tables, sink, writers[suffix])
    if out is not None:
        document = {"out": out, "rows": count, "columns": columns}
        session.result(document, f"Wrote {count:,} rows to {out}: {', '.join(columns)}.")


def _check_scaler(model: FittedModel, scaler: DPStandardScaler | None, path: str) -> None:
    """Refuse a scaler other than the one that the model was fitted with."""
    from dpem.persistence import fingerprint

    needed = getattr(model, "scaler_", None)
    if needed is None and scaler is not None:
        reason = "was fitted to unscaled columns, or saved without its scaler: leave --scaler out"
    elif needed is not None and scaler is None:
        reason = "was fitted to scaled columns: give the scaler that it was fitted with as --scaler"
    elif scaler is not None and needed != fingerprint(scaler):
        reason = "was fitted with another scaler than the one given as --scaler"
    else:
        return
    raise Refused(Exit.DATA, f"{path!r} {reason}.")


def _tables(model: FittedModel, source: ChunkedSource, kept: pa.Table, *, with_response: bool) -> Iterator[pa.Table]:
    """The predictions of each chunk, beside the columns that are kept."""
    import pyarrow as pa

    from dpem.tables import ArraySource

    start = 0
    with refusals(Exit.DATA):
        for chunk in source.chunks():
            rows = ArraySource(chunk.X)
            rows.text_levels = source.text_levels
            predicted = _predictions(model, rows, chunk.y if with_response else None)
            null = len(predicted) + kept.num_columns > 1  # a single column has nan instead: readers skip empty lines
            columns = {name: kept[name].slice(start, len(chunk.X)) for name in kept.column_names}
            columns |= {name: pa.array(values, from_pandas=null) for name, values in predicted.items()}
            yield pa.table(columns)
            start += len(chunk.X)


def _predictions(model: FittedModel, rows: Source, y: object = None) -> dict[str, NDArray]:
    """The predictions of a fitted model, by column name.

    A model with a response has the column ``prediction``, one without the column ``component``. The probability of each
    component, in the columns ``probability_0``, ``probability_1``, …, follows where the model has components and, if
    they depend on the response, ``y`` is given.
    """
    import numpy as np

    predicted = np.asarray(model.predict(rows))
    if model._needs_y:
        is_text = predicted.dtype.kind in "OU"  # classes of a logistic regression
        columns: dict[str, NDArray] = {"prediction": predicted.astype(str if is_text else float)}
    else:
        columns = {"component": predicted.astype(np.int64)}
    if not hasattr(model, "predict_proba"):
        return columns
    needs_response = model._needs_y and "y" in inspect.signature(model.predict_proba).parameters
    if needs_response and y is None:
        return columns
    probabilities = np.asarray(model.predict_proba(rows, *([y] if needs_response else [])), dtype=float)
    columns |= {f"probability_{k}": probability for k, probability in enumerate(probabilities.T)}
    if model._needs_y and not needs_response:  # a class whose probability is unknown is missing
        columns["prediction"] = np.ma.masked_array(columns["prediction"], np.isnan(probabilities[:, -1]))
    return columns


def _writers() -> dict[str, Callable[[BinaryIO, pa.Schema], Any]]:
    """Arrow's writers of tables, by the ending of a file's name."""
    from pyarrow import csv, ipc, parquet

    def csv_writer(sink: BinaryIO, schema: pa.Schema) -> csv.CSVWriter:
        """A CSV writer whose header is not quoted, unlike Arrow's."""
        header = io.StringIO()
        text.writer(header, lineterminator="\n").writerow(schema.names)
        sink.write(header.getvalue().encode())
        return csv.CSVWriter(sink, schema, write_options=csv.WriteOptions(include_header=False))

    return {".csv": csv_writer, ".parquet": parquet.ParquetWriter, ".arrow": ipc.new_file}


@contextmanager
def _output(out: str | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that replaces ``out`` at the end."""
    from dpem._files import replaced

    with refusals(Exit.OUTPUT):
        if out is None:
            yield sys.stdout.buffer
        else:
            with replaced(out) as file:
                yield file


def _write(
    tables: Iterator[pa.Table], sink: BinaryIO, writer: Callable[[BinaryIO, pa.Schema], Any]
) -> tuple[int, list[str]]:
    """Write the tables below one another; return the number of rows and the names of the columns."""
    from dpem.tables.progress import advance

    first, count = next(tables), 0
    with writer(sink, first.schema) as file:
        for table in chain([first], tables):
            file.write_table(table)
            count += len(table)
            advance(len(table))
    return count, first.column_names
