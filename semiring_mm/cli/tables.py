"""Tables, a row for each pair of nodes or each node: CSV, Parquet; and files of labels."""

from __future__ import annotations

import csv
import functools
import gzip
import io
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from ..closures.paths import leg_counts
from ..storage import atomic_write
from .compute import Result

__all__ = [
    "Columns", "Rows", "Wide", "all_pairs", "csv_lines", "labels_file", "number", "print_data",
    "some_pairs", "write_columns", "write_csv", "write_labels", "write_table", "write_wide",
]  # fmt: skip

_ROWS = 1 << 18  # of a table that are made at a time


@dataclass(frozen=True)
class Rows:
    """Some rows of a table."""

    start: NDArray[np.int64]  # positions of nodes
    end: NDArray[np.int64]
    value: NDArray[Any]
    legs: NDArray[np.int32] | None = None
    routes: Sequence[str] | None = None  # the nodes of each path, with semicolons between


def all_pairs(result: Result) -> Iterator[Rows]:
    """The pairs of different nodes with a path, row by row of the matrix."""
    n = len(result.given.graph.nodes)
    lines = max(1, _ROWS // n)
    for first in range(0, n, lines):
        sources = np.arange(first, min(first + lines, n))
        values = np.asarray(result.values[first : first + lines])
        there = values != result.zero
        there[np.arange(len(sources)), sources] = False
        row, col = np.nonzero(there)
        legs = None
        if result.predecessors is not None:
            trees = np.asarray(result.predecessors[first : first + lines])
            legs = leg_counts(trees, sources)[row, col]
        yield Rows(row + first, col, values[row, col], legs)


def some_pairs(result: Result, pairs: Sequence[tuple[int, int]], *more: str) -> Iterator[Rows]:
    """Those pairs of nodes, with a path or without; `more` may be the column of routes."""
    values = np.array([result.value(i, j) for i, j in pairs], result.values.dtype)
    start, end = np.array(pairs, np.int64).T
    routes = [_quoted(*result.labels(i, j), between=";") for i, j in pairs] if more else None
    yield Rows(start, end, values, routes=routes)


def write_table(target: str, result: Result, rows: Iterator[Rows], *more: str) -> int:
    """Write a file whose extension names the format; the number of rows."""
    with atomic_write(target) as part:
        if target.lower().endswith(".parquet"):
            return _write_parquet(part, result, rows, *more)
        with _opened(part) as file:
            return write_csv(file, result, rows, *more)


def _opened(part: Path) -> TextIO:
    """A file for text, compressed if its name says so."""
    # Level 9, the default, takes several times as long for some percent.
    packed = part.name.lower().endswith(".gz")
    opened: Any = functools.partial(gzip.open, compresslevel=6) if packed else open
    file: TextIO = opened(part, "wt", encoding="utf-8", newline="")
    return file


def write_csv(file: TextIO, result: Result, rows: Iterator[Rows], *more: str) -> int:
    """Write CSV to a stream, with more columns: legs, route; the number of rows."""
    labels = [f"{_quoted(label)}," for label in result.given.graph.nodes]
    file.write(",".join(_header(result, *more)) + "\n")
    count = 0
    for some in rows:
        start = [labels[i] for i in some.start.tolist()]
        end = [labels[j] for j in some.end.tolist()]
        columns = [_numbers(some.value)]
        if some.legs is not None:
            columns.append([f",{x}" for x in some.legs.tolist()])
        if some.routes is not None:
            columns.append([f",{_quoted(x) if x else x}" for x in some.routes])
        columns.append(["\n"] * len(start))
        file.write("".join(map("".join, zip(start, end, *columns, strict=True))))
        count += len(start)
    return count


def _write_parquet(target: Path, result: Result, rows: Iterator[Rows], *more: str) -> int:
    import pyarrow as pa
    from pyarrow import parquet

    labels = pa.array(list(result.given.graph.nodes), pa.string())
    start, end, value, *rest = _header(result, *more)
    node = pa.dictionary(pa.int32(), pa.string())
    fields = [(start, node), (end, node), (value, pa.from_numpy_dtype(result.values.dtype))]
    kinds = {"legs": pa.int32(), "route": pa.string()}
    schema = pa.schema([*fields, *((name, kinds[name]) for name in rest)])
    count = 0
    with parquet.ParquetWriter(target, schema) as file:
        for some in rows:
            ends = (
                pa.DictionaryArray.from_arrays(pa.array(x.astype(np.int32)), labels)
                for x in (some.start, some.end)
            )
            columns = [*ends, pa.array(some.value)]
            if some.legs is not None:
                columns.append(pa.array(some.legs))
            if some.routes is not None:
                columns.append(pa.array(some.routes, pa.string()))
            file.write_table(pa.Table.from_arrays(columns, schema=schema))
            count += len(some.start)
    return count


def _header(result: Result, *more: str) -> list[str]:
    return ["from", "to", result.given.kind.value.replace(" ", "_"), *more]


def _quoted(*labels: str, between: str = ",") -> str:
    """A label as a field of CSV, or several as fields of a line."""
    text = io.StringIO()
    csv.writer(text, delimiter=between, lineterminator="").writerow(labels)
    return text.getvalue()


def number(value: float) -> float | int:
    """A whole number as an int, which prints without a fraction."""
    return int(value) if math.isfinite(value) and value == int(value) else value


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
    """A matrix with labels, of which some rows come at a time.

    Attributes
    ----------
    start, end : sequence of str
        Labels of the rows and columns.
    dtype : dtype
    parts : iterator of (k, columns) arrays
    none : number
        The entry where there is no path, which text has as `far`.
    far : float
    """

    start: Sequence[str]
    end: Sequence[str]
    dtype: np.dtype[Any]
    parts: Iterator[NDArray[Any]]
    none: Any
    far: float

    def as_csv(self) -> Iterator[str]:
        """Lines of text: the labels of the columns, and rows that begin with theirs."""
        head = ",".join(map(_quoted, ["from", *self.end])) + "\n"
        for start, values in self._labelled():  # what fails does so before anything is printed
            rows = zip(start, values, strict=True)
            yield head + "".join(f"{_quoted(x)},{','.join(self._words(row))}\n" for x, row in rows)
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
                [number(x) if math.isfinite(x) and x != self.none else None for x in row.tolist()]
                for row in rows
            ],
        }

    def write_parquet(self, target: Path) -> None:
        """A column of labels, and one for each of the columns."""
        import pyarrow as pa
        from pyarrow import parquet

        kind = pa.from_numpy_dtype(self.dtype)
        schema = pa.schema([("from", pa.string()), *((x, kind) for x in self.end)])
        with parquet.ParquetWriter(target, schema) as file:
            for start, values in self._labelled():
                columns = [pa.array(list(start), pa.string()), *map(pa.array, values.T)]
                file.write_table(pa.Table.from_arrays(columns, schema=schema))

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
    name = target.lower()
    with atomic_write(target) as part:
        if name.endswith(".parquet"):
            table.write_parquet(part)
        elif name.endswith(".npy"):
            table.write_npy(part)
        else:
            with _opened(part) as file:
                file.writelines(table.as_csv())


Columns = Mapping[str, Sequence[str] | NDArray[Any]]


def write_columns(target: str, columns: Columns) -> None:
    """Write columns of one length, of text or numbers, as CSV or Parquet."""
    with atomic_write(target) as part:
        if target.lower().endswith(".parquet"):
            import pyarrow as pa
            from pyarrow import parquet

            arrays = [x if isinstance(x, np.ndarray) else list(x) for x in columns.values()]
            parquet.write_table(pa.table(dict(zip(columns, arrays, strict=True))), part)
            return
        with _opened(part) as file:
            file.writelines(csv_lines(columns))


def csv_lines(columns: Columns) -> Iterator[str]:
    """Columns of one length as lines of CSV, many at a time."""
    yield ",".join(map(_quoted, columns)) + "\n"
    for i in range(0, len(next(iter(columns.values()))), _ROWS):
        some = (x[i : i + _ROWS] for x in columns.values())
        words = (_numbers(x) if isinstance(x, np.ndarray) else map(_quoted, x) for x in some)
        yield "".join(f"{','.join(row)}\n" for row in zip(*words, strict=True))


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


def labels_file(target: str | None, labels: Sequence[str], taken: Sequence[Path]) -> Path | None:
    """The file for the labels of a matrix's rows, which is needed where they are not 0, 1, 2, ...

    Also where there is such a file of other labels already.
    """
    if target is None:
        return None
    file = Path(target).with_suffix(".nodes.txt")
    plain = all(label == str(k) for k, label in enumerate(labels))
    return None if plain and (file.resolve() in taken or not file.exists()) else file


def write_labels(file: Path, labels: Sequence[str]) -> None:
    """Write a label a line."""
    with atomic_write(file) as part:
        part.write_text("".join(f"{label}\n" for label in labels), encoding="utf-8", newline="\n")
