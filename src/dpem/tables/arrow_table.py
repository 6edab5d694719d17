"""Named columns that were read once and are held in memory: the rows of a text file."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dpem.tables.array import ArraySource
from dpem.tables.columns import Selection


class TableSource(ArraySource):
    """The selected columns of an Arrow table as numbers, column by column in memory: a pass copies nothing.

    >>> from dpem.tables.columns import select
    >>> table = pa.table({"age": [31, None, 60], "cost": [1.0, 2.0, 3.0]})
    >>> source = TableSource(table, select(table.schema, None, "cost"))
    >>> source, source.feature_names, [chunk.X[:, 0].tolist() for chunk in source.chunks()]
    (TableSource(3 rows, 1 columns, float64), ['age'], [[31.0, nan, 60.0]])
    """

    def __init__(self, table: pa.Table, selection: Selection) -> None:
        block = np.empty((len(selection.features), table.num_rows), dtype=selection.dtype)
        response = None if selection.target is None else np.empty(table.num_rows)
        for name, out in zip(selection.names, (*block, *([] if response is None else [response])), strict=True):
            begin = 0
            for part in table.column(name).chunks:
                out[begin : begin + len(part)] = selection.numbers(name, part)
                begin += len(part)
        super().__init__(block.T, response)
        self.feature_names = list(selection.features)
        #: The response's name.
        self.target_name = selection.target
        #: Columns whose entries are read as these levels.
        self.text_levels = dict(selection.levels)
