"""Predictions, chunk by chunk: as many rows as the file has, in memory for a few. The output appears whole or not at
all.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click
import numpy as np
import pyarrow as pa
from pyarrow import csv, ipc, parquet

from dpem import DPStandardScaler
from dpem.cli import inputs, outputs
from dpem.cli.common import Exit, Refused, Session, refusing
from dpem.paper import DPSymmetricMixture, DPSymmetricRegression
from dpem.persistence import fingerprint
from dpem.query import Chunk
from dpem.sources import ArraySource, progress
from dpem.sources.progress import advance, expect


def _csv_writer(sink: Any, schema: pa.Schema) -> Any:
    """Arrow would put the header in quotes."""
    sink.write(",".join(schema.names).encode() + b"\n")
    return csv.CSVWriter(sink, schema, write_options=csv.WriteOptions(include_header=False))


WRITERS: dict[str, Callable[[Any, pa.Schema], Any]] = {
    ".csv": _csv_writer,
    ".parquet": parquet.ParquetWriter,
    ".arrow": ipc.new_file,
}


def run(
    session: Session, path: str, data: str, target: str | None, scaler: str | None, out: str | None, force: bool
) -> None:
    """The whole command."""
    suffix = ".csv" if out is None else os.path.splitext(out)[1].lower()
    if suffix not in WRITERS:
        raise click.UsageError(f"--out must end in {', '.join(WRITERS)}; got {out!r}.")
    if out is not None:
        outputs.check([out], [path, data], force)
    model = inputs.model(path)
    if isinstance(model, DPStandardScaler):
        raise Refused(Exit.DATA, f"{path!r} holds a scaler, which predicts nothing.")
    if target is not None and not isinstance(model, DPSymmetricRegression):
        raise click.UsageError("--target goes with a symmetric-regression only: nothing else needs the response.")
    scaling = inputs.scaler(scaler)
    _check_scaler(model, scaling, path)
    with inputs.table(session, data, inputs.columns_of(model), target, scaler=scaling) as source:
        _check_width(model, source, path)
        session.say("note: the guarantee does not cover predictions for rows that the model was fitted to")
        with refusing(Exit.DATA), progress(disable=True if session.json else None), _place(out) as sink:
            expect(source.n_rows)
            count = _applied(model, source.chunks(), target is not None, sink, WRITERS[suffix])
    if out is not None:
        made = list(_schema(model, target is not None).names)
        session.result(
            {"out": out, "rows": count, "columns": made}, f"Wrote {count:,} rows to {out}: {', '.join(made)}."
        )


def _applied(model: Any, chunks: Iterator[Chunk], with_response: bool, sink: Any, writer: Callable[..., Any]) -> int:
    schema, count = _schema(model, with_response), 0
    with writer(sink, schema) as file:
        for chunk in chunks:
            columns = _predictions(model, chunk, with_response)
            file.write_table(pa.table(columns, schema=schema))
            count += len(columns[0])
            advance(len(columns[0]))
    return count


def _predictions(model: Any, chunk: Chunk, with_response: bool) -> list[Any]:
    rows = ArraySource(chunk.X)
    if isinstance(model, DPSymmetricMixture):
        probability = model.predict_proba(rows)[:, 1]
        return [(probability > 0.5).astype(np.int64), probability]
    columns: list[Any] = [np.asarray(model.predict(rows), dtype=np.float64)]
    if with_response:
        columns.append(model.predict_proba(rows, chunk.y)[:, 1])
    return columns


def _schema(model: Any, with_response: bool) -> pa.Schema:
    if isinstance(model, DPSymmetricMixture):
        return pa.schema({"component": pa.int64(), "probability": pa.float64()})
    columns = {"prediction": pa.float64()}
    return pa.schema(columns | ({"probability": pa.float64()} if with_response else {}))


def _check_scaler(model: Any, scaler: DPStandardScaler | None, path: str) -> None:
    """Refuse rows in other units than those of the rows that the model was fitted to."""
    if model.scaler_ is None and scaler is not None:
        reason = "was fitted to columns as they are, or was saved without naming its scaler: leave --scaler out"
    elif model.scaler_ is not None and scaler is None:
        reason = "was fitted to scaled columns: give the scaler that it was fitted with as --scaler"
    elif scaler is not None and model.scaler_ != fingerprint(scaler):
        reason = "was fitted with another scaler than the one given as --scaler"
    else:
        return
    raise Refused(Exit.DATA, f"{path!r} {reason}.")


def _check_width(model: Any, source: Any, path: str) -> None:
    if source.n_features != model.n_features_in_:
        raise Refused(
            Exit.DATA, f"the rows have {source.n_features} columns, but {path!r} was fitted to {model.n_features_in_}."
        )


@contextmanager
def _place(out: str | None) -> Iterator[Any]:
    """Where predictions go: standard output, or a file beside its place that takes it at the end."""
    if out is None:
        yield sys.stdout.buffer
        return
    target = os.path.realpath(out)
    draft = os.path.join(os.path.dirname(target), f".{uuid.uuid4().hex}.tmp")
    try:
        with open(draft, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    except OSError as error:
        if error.filename not in (None, draft, target):
            raise
        raise Refused(Exit.OUTPUT, f"{out!r} cannot be written: {(error.strerror or 'it failed').lower()}.") from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
