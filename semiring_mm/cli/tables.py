"""Tables, a row for each pair of nodes or each node: CSV, Parquet; and files of labels."""

from __future__ import annotations

import contextlib
import csv
import functools
import gzip
import io
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ..closures.paths import leg_counts
from ..storage import atomic_write
from .compute import Result

__all__ = [
    "Columns", "Wide", "all_pairs", "csv_lines", "number", "print_data",
    "some_pairs", "write_columns", "write_labels", "write_wide",
]  # fmt: skip

_ROWS = 1 << 18  # of a table that are made at a time


#: Texts of few kinds are an array of objects.
Columns = Mapping[str, Sequence[str] | NDArray[Any]]


def all_pairs(result: Result) -> Iterator[Columns]:
    """The pairs of different nodes with a path, row by row of the matrix, and their legs."""
    labels = np.array([*result.given.graph.nodes], object)
    n = len(labels)
    lines = max(1, _ROWS // n)
    for first in range(0, n, lines):
        sources = np.arange(first, min(first + lines, n))
        values = np.asarray(result.values[first : first + lines])
        there = values != result.zero
        there[np.arange(len(sources)), sources] = False
        row, col = np.nonzero(there)
        legs = {}
        if result.predecessors is not None:
            trees = np.asarray(result.predecessors[first : first + lines])
            legs = {"legs": leg_counts(trees, sources)[row, col]}
        yield _named(result, labels[row + first], labels[col], values[row, col]) | legs


def some_pairs(
    result: Result, pairs: Sequence[tuple[int, int]], *, routes: bool
) -> Iterator[Columns]:
    """Those pairs of nodes, with a path or without, and perhaps the nodes of their paths."""
    values = np.array([result.value(i, j) for i, j in pairs], result.values.dtype)
    start, end = np.array([*result.given.graph.nodes], object)[np.array(pairs).T]
    paths = [quoted(*result.labels(i, j), between=";") for i, j in pairs] if routes else []
    yield _named(result, start, end, values) | ({"route": paths} if routes else {})


def _named(
    result: Result, start: NDArray[Any], end: NDArray[Any], values: NDArray[Any]
) -> dict[str, Any]:
    return {"from": start, "to": end, result.given.kind.value.replace(" ", "_"): values}


def write_columns(target: str, parts: Iterable[Columns]) -> int:
    """Write columns of one length, part after part, as CSV or Parquet; the number of rows."""
    count = 0

    def counted() -> Iterator[Columns]:
        nonlocal count
        for columns in parts:
            count += len(next(iter(columns.values())))
            yield columns

    rows = counted()
    _write(target, rows, csv_lines(rows))
    return count


def _write(target: str, parts: Iterable[Columns], lines: Iterable[str]) -> None:
    """Write columns as Parquet, or lines as text, compressed if the name says so."""
    with atomic_write(target) as part:
        if target.lower().endswith(".parquet"):
            _write_parquet(part, parts)
            return
        # Level 9, the default, takes several times as long for some percent.
        packed = target.lower().endswith(".gz")
        opened: Any = functools.partial(gzip.open, compresslevel=6) if packed else open
        with opened(part, "wt", encoding="utf-8", newline="") as file:
            file.writelines(lines)


def csv_lines(parts: Iterable[Columns]) -> Iterator[str]:
    """Columns of one length as lines of CSV, many at a time."""
    shown = functools.cache(lambda text: text and quoted(text))
    for k, columns in enumerate(parts):
        if not k:
            yield ",".join(map(quoted, columns)) + "\n"
        for i in range(0, len(next(iter(columns.values()))), _ROWS):
            some = (x[i : i + _ROWS] for x in columns.values())
            words = (_numbers(x) if _is_numeric(x) else map(shown, x) for x in some)
            yield "".join([f"{','.join(row)}\n" for row in zip(*words, strict=True)])


def _is_numeric(column: Sequence[str] | NDArray[Any]) -> TypeGuard[NDArray[Any]]:
    return isinstance(column, np.ndarray) and column.dtype != object


def _write_parquet(target: Path, parts: Iterable[Columns]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    def array(column: Sequence[str] | NDArray[Any]) -> Any:
        if _is_numeric(column):
            return pa.array(column)
        texts = pa.array(column, pa.string())
        return texts.dictionary_encode() if isinstance(column, np.ndarray) else texts

    with contextlib.ExitStack() as stack:
        file = None
        for columns in parts:
            table = pa.table({name: array(x) for name, x in columns.items()})
            file = file or stack.enter_context(parquet.ParquetWriter(target, table.schema))
            file.write_table(table)


def quoted(*labels: str, between: str = ",") -> str:
    """A label as a field of CSV, or several as fields of a line."""
    text = io.StringIO()
    csv.writer(text, delimiter=between, lineterminator="").writerow(labels)
    return text.getvalue()


def number(value: float) -> float | int | None:
    """A value in JSON, which knows no infinity; a whole number as an int, without a fraction."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) else value


def _numbers(values: NDArray[Any]) -> list[str]:
    """Values in the fewest digits that stand for the same number, whole ones without a point."""
    if values.dtype.kind == "f":
        whole = np.isfinite(values) & (values == np.rint(values))
        if whole.all() and (abs(values) < 2.0**63).all():
            values = values.astype(np.int64)
    elif values.dtype.kind == "b":
        values = values.astype(np.int8)
    if values.dtype == np.float32:  # as a float64 it has nine digits more
        words: list[str] = values.astype(str).tolist()
    else:
        words = list(map(str, values.tolist()))
    if values.dtype.kind == "f":
        words = [word.removesuffix(".0") for word in words]
    return words


@dataclass(frozen=True)
class Wide:
    """A matrix with labels, written some rows at a time."""

    start: Sequence[str]  # labels of the rows
    end: Sequence[str]  # and of the columns
    dtype: np.dtype[Any]
    parts: Iterator[NDArray[Any]]  # (k, columns)
    none: Any  # the entry where there is no path, which text has as `far`
    far: float

    def as_csv(self) -> Iterator[str]:
        """Lines of text: the labels of the columns, and rows that begin with theirs."""
        head = ",".join(map(quoted, ["from", *self.end])) + "\n"
        for start, values in self._labelled():  # what fails does so before anything is printed
            rows = zip(start, values, strict=True)
            yield head + "".join(f"{quoted(x)},{','.join(self._words(row))}\n" for x, row in rows)
            head = ""

    def _words(self, row: NDArray[Any]) -> list[str]:
        words = _numbers(row)
        if self.dtype.kind in "iu":  # the entry that stands for no path is a number like others
            for k in np.flatnonzero(row == self.none):
                words[k] = str(self.far)
        return words

    def as_json(self) -> dict[str, Any]:
        """The labels, and rows of values, which are None where there is no path."""
        rows = (row for values in self.parts for row in values)
        return {
            "from": [*self.start],
            "to": [*self.end],
            "values": [
                [None if x == self.none else number(x) for x in row.tolist()] for row in rows
            ],
        }

    def columns(self) -> Iterator[Columns]:
        """A column of labels, and one for each of the columns."""
        for start, values in self._labelled():
            yield dict(zip(["from", *self.end], [start, *values.T], strict=True))

    def write_npy(self, target: Path) -> None:
        """The numbers alone."""
        shape = len(self.start), len(self.end)
        if not all(shape):
            np.save(target, np.empty(shape, self.dtype))
            return
        table = np.lib.format.open_memmap(target, "w+", self.dtype, shape)
        first = 0
        for values in self.parts:
            table[first : first + len(values)] = values
            first += len(values)
        table.flush()

    def _labelled(self) -> Iterator[tuple[Sequence[str], NDArray[Any]]]:
        first = 0
        for values in self.parts:
            yield self.start[first : first + len(values)], values
            first += len(values)


def write_wide(target: str, table: Wide) -> None:
    """Write a file whose extension names the format."""
    if not target.lower().endswith(".npy"):
        _write(target, table.columns(), table.as_csv())
        return
    with atomic_write(target) as part:
        table.write_npy(part)


def print_data(text: str) -> None:
    """Print data, exactly; ValueError where standard output cannot encode them."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError as error:
        raise ValueError(
            f"standard output is in {encoding}, which cannot hold {text[error.start]!a}: write to "
            f"a file with -o, or set PYTHONIOENCODING=utf-8"
        ) from None
    print(text, end="")


def write_labels(file: Path, labels: Sequence[str]) -> None:
    """Write a label a line."""
    with atomic_write(file) as part:
        part.write_text("".join(f"{label}\n" for label in labels), encoding="utf-8", newline="\n")
