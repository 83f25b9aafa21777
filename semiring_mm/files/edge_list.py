"""Edge lists, ``.csv``, ``.tsv`` and ``.txt``: tables of FROM, TO and perhaps WEIGHT."""

from __future__ import annotations

import itertools
import math
from array import array
from dataclasses import dataclass

import numpy as np

from .columns import FROM, TO, WEIGHT, check_header, column_unit, find_column, named_column, rows
from .file import File, Reading, quote, real
from .graph import Graph

__all__ = ["read"]


def read(file: File, weight: str | None) -> Reading:
    """The directed graph of a table of edges; nodes in the order in which they are named."""
    table = rows(file)
    number, fields = next(table, (1, []))
    columns = _columns(file, number, fields, weight)
    if not columns.header:
        table = itertools.chain([(number, fields)], table)

    index: dict[str, int] = {}
    first: list[int] = []
    row, col, values = array("q"), array("q"), array("d")
    for number, fields in table:
        columns.check(file, number, fields)
        for ends, k in ((row, columns.source), (col, columns.target)):
            label = fields[k]
            if not label:
                raise file.error(number, f"a node without a name: {quote(', '.join(fields))}")
            if label not in index:
                index[label] = len(index)
                first.append(number)
            ends.append(index[label])
        if columns.weight is not None:
            values.append(_weight(file, number, fields[columns.weight]))
    if not row:
        raise file.error(number, "a header line and no edges")
    graph = Graph(
        list(index),
        np.array(row, dtype=np.int64),
        np.array(col, dtype=np.int64),
        np.ones(len(row)) if columns.weight is None else np.array(values, dtype=np.float64),
        directed=True,
        unit=columns.unit,
    )
    return Reading(graph, weighted=columns.weight is not None, lines=first)


@dataclass(frozen=True)
class _Columns:
    """Where the ends and the weight are in each row."""

    header: list[str]  # empty where the file has no names of columns
    source: int
    target: int
    weight: int | None
    width: int
    unit: str = ""

    def check(self, file: File, number: int, fields: list[str]) -> None:
        """Raise an error for a row of another width; unused fields at its end may be left out."""
        used = max(self.source, self.target, -1 if self.weight is None else self.weight) + 1
        if not used <= len(fields) <= self.width:
            names = f" ({', '.join(self.header)})" if self.header else ""
            raise file.error(
                number,
                f"expected {self.width} fields{names}, got {len(fields)}: "
                + quote(", ".join(fields)),
            )


def _columns(file: File, number: int, fields: list[str], weight: str | None) -> _Columns:
    source = find_column(file, number, fields, FROM)
    target = find_column(file, number, fields, TO)
    if source is not None and target is not None:
        check_header(file, number, fields)
        if weight is not None:
            column: int | None = named_column(file, number, fields, weight)
        else:
            column = find_column(file, number, fields, WEIGHT)
        unit = "" if column is None else column_unit(fields[column])
        return _Columns(fields, source, target, column, len(fields), unit)
    if weight is not None:
        raise file.error(
            number,
            f"no column {weight!r}: the file has no header line that names a from and a to "
            f"column, got {', '.join(fields)}",
        )
    if len(fields) not in (2, 3):
        raise file.error(
            number,
            "expected FROM, TO and perhaps WEIGHT, or a header line with columns from and "
            f"to, got {len(fields)} fields: {quote(', '.join(fields))}",
        )
    return _Columns([], 0, 1, 2 if len(fields) == 3 else None, len(fields))


def _weight(file: File, number: int, word: str) -> float:
    try:
        value = real(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise file.error(number, f"expected a finite number as weight, got {quote(word)}")
    return value
