"""Tables of edges in memory, of pandas, Polars or Arrow, read as those in files are."""

from __future__ import annotations

import numbers
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .columns import SAMPLE, is_missing
from .edge_list import headed, reading
from .file import Reading

__all__ = ["Table", "read"]


class Table:
    """A table of pandas, Polars or Arrow by its columns; lines of its messages are rows."""

    path = "the table"  # in messages

    def __init__(self, table: Any) -> None:
        for verb in ("collect", "compute"):  # of Polars and of Dask
            if hasattr(type(table), verb):
                raise TypeError(f"the table is not computed yet: give table.{verb}()")
        names = table.column_names if hasattr(table, "column_names") else table.columns
        self._table, self._names, self.names = table, [*names], [str(x).strip() for x in names]

    def __len__(self) -> int:
        return len(self._table)

    def error(self, line: int | None, message: str) -> ValueError:
        """The exception to raise for a row, by its label in pandas, or for the whole table."""
        if line is None:
            return ValueError(f"the table: {message}")
        index = getattr(self._table, "index", range(len(self)))
        return ValueError(f"row {next(iter(index[line : line + 1]))!r} of the table: {message}")

    def column(self, column: int) -> Any:
        """A column as its library has it."""
        return self._table[self._names[column]]

    def values(self, column: int) -> list[Any]:
        """The values of a column as Python has them; nodes keep their type."""
        x = self.column(column)
        return list(x.to_pylist() if hasattr(x, "to_pylist") else x.to_list())

    def weights(self, column: int) -> NDArray[Any]:
        """The numbers of a column."""
        x = np.asarray(self.column(column))
        if x.dtype.kind not in "biuf":
            x = np.array([self._number(k, value) for k, value in enumerate(x.tolist())], np.float64)
        if x.dtype.kind == "f" and np.isnan(x).any():
            row = int(np.isnan(x).argmax())
            self._number(row, x[row].item())
        return x

    def _number(self, row: int, value: Any) -> float:
        if isinstance(value, (numbers.Real, np.bool_, Decimal)) and not is_missing(value):
            try:
                return float(value)
            except OverflowError:
                raise self.error(row, f"a weight does not fit float64: {value!r:.60}") from None
        raise self.error(row, f"expected a number as weight, got {value!r:.60}")

    def sample(self) -> list[list[str]]:
        """Some rows as words."""
        top = self._table.iloc[:SAMPLE] if hasattr(self._table, "iloc") else self._table[:SAMPLE]
        words = ([_word(x) for x in Table(top).values(k)] for k in range(len(self.names)))
        return [list(row) for row in zip(*words, strict=True)]


def _word(value: Any) -> str:
    return "" if is_missing(value) else str(value).strip()


def read(
    table: Table, weight: str | None, source: str | None = None, target: str | None = None
) -> Reading:
    """The graph of a table of edges; nodes in the order in which the rows name them."""
    columns = headed(table, None, table.names, weight, source, target)
    ends = [table.values(k) for k in (columns.source, columns.target)]
    both = [x for pair in zip(*ends, strict=True) for x in pair]
    try:
        index = {x: k for k, x in enumerate(dict.fromkeys(both))}
        places = np.fromiter(map(index.__getitem__, both), np.int64, len(both))
    except TypeError as error:
        raise table.error(None, f"what names a node can be a key of a dict ({error})") from None
    if any(map(is_missing, index)):
        k = next(k for k, x in enumerate(both) if is_missing(x))
        name = columns.names[(columns.source, columns.target)[k % 2]]
        raise table.error(k // 2, f"a node without a name, in column {name!r}")
    ways = [table.values(k) for k in columns.ways]
    return reading(
        table, columns, list(index), places[::2], places[1::2],
        None if columns.weight is None else table.weights(columns.weight),
        ways, range(len(table)), table.sample(),
    )  # fmt: skip
