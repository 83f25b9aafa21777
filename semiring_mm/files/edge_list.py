"""Edge lists: tables of FROM, TO and perhaps WEIGHT, in delimited text or Parquet."""

from __future__ import annotations

import itertools
import math
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..naming import named
from .columns import (
    CITY,
    FROM,
    LATITUDE,
    LONGITUDE,
    NODE,
    SAMPLE,
    TO,
    check_header,
    column_unit,
    find_column,
    is_real,
    numbered_column,
    other_numbers,
    rows,
    weight_column,
)  # fmt: skip
from .file import File, Reading, quote, real
from .graph import Graph

__all__ = ["read"]

_Rows = list[tuple[int, list[str]]]
#: Words of a column `directed`; Gephi's column `Type` has the first two.
_DIRECTIONS = {
    **dict.fromkeys(["directed", "true", "1", "yes"], True),
    **dict.fromkeys(["undirected", "false", "0", "no"], False),
}


def read(
    file: File, weight: str | None, source: str | None = None, target: str | None = None
) -> Reading:
    """The directed graph of a table of edges; nodes in the order in which they are named."""
    comments: list[tuple[int, str]] = []
    table = rows(file, comments)
    sample = list(itertools.islice(table, 1 + SAMPLE))
    start, fields = sample[0] if sample else (1, [])
    said = _direction_in_comments(file, comments)
    konect = bool(said and said[2])
    columns = _columns(file, start, fields, sample[1:], weight, source, target, konect)
    if columns.header:
        del sample[0]

    index: dict[str, int] = {}
    first: list[int] = []
    row, col, values, lines = array("q"), array("q"), array("d"), array("q")
    ways: list[str] = []
    number = start
    for number, fields in itertools.chain(sample, table):
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
            values.append(_weight(file, number, columns, fields[columns.weight]))
        if columns.way is not None:
            ways.append(fields[columns.way] if columns.way < len(fields) else "")
            lines.append(number)
    if not row:
        raise file.error(number, "a header line and no edges")
    labels = list(index)
    if not columns.header:
        _check_not_metis(file, start, sample[0][1], len(row), number - start)
        _check_not_header(file, start, labels)
    directed, why, two_way = _directions(file, columns, ways, lines)
    used = {columns.source, columns.target, columns.weight, columns.way if why else None}
    if not why and said:
        directed, why, _ = said
    graph = Graph(
        labels,
        np.array(row, dtype=np.int64),
        np.array(col, dtype=np.int64),
        np.ones(len(row)) if columns.weight is None else np.array(values, dtype=np.float64),
        directed=directed,
        unit=columns.unit,
        weight_source=columns.weight_source,
        direction_source=why or "the default of an edge list",
    )
    return Reading(
        graph,
        weighted=columns.weight is not None,
        lines=first,
        unused=other_numbers(columns.names, [fields for _, fields in sample], used),
        two_way=two_way,
    )


@dataclass(frozen=True)
class _Columns:
    """Where the ends, the weight and the direction are in each row."""

    names: list[str]
    first: int | None  # the line that is first, where it has no names of columns
    source: int
    target: int
    weight: int | None
    way: int | None

    @property
    def header(self) -> bool:
        """Whether the names are those of the file."""
        return self.first is None

    @property
    def unit(self) -> str:
        """The unit in the name of the weights."""
        return "" if self.weight is None else column_unit(self.names[self.weight])

    @property
    def weight_source(self) -> str:
        """The name and number of the column of weights."""
        if self.weight is None:
            return ""
        place = f"column {self.weight + 1}"
        return f"{self.names[self.weight]} ({place})" if self.header else place

    def check(self, file: File, number: int, fields: list[str]) -> None:
        """Raise an error for a row of another width; unused fields at its end may be left out."""
        used = max(self.source, self.target, -1 if self.weight is None else self.weight) + 1
        if not used <= len(fields) <= len(self.names):
            names = f" ({', '.join(self.names)})" if self.header else ""
            sizes = not self.header and all(map(str.isdigit, fields))
            hint = f"; if line {self.first} has the sizes of the graph, is it METIS (format graph)?"
            raise file.error(
                number,
                f"expected {len(self.names)} fields{names}, got {len(fields)}: "
                + quote(", ".join(fields))
                + hint * sizes,
            )


def _columns(
    file: File,
    number: int,
    fields: list[str],
    others: _Rows,
    weight: str | None,
    source: str | None,
    target: str | None,
    konect: bool,
) -> _Columns:
    """The columns that are wanted; the first row may be their names."""
    chosen = source is not None or target is not None
    wanted = [x for x in (source, target, weight) if x is not None and x != "weight"]
    words = [word for word in wanted if not word.isdigit()]
    start, end = _ends(file, number, fields, others)
    header = (start is not None and end is not None) or (chosen and bool(words))
    numbers = [f"column {k + 1}" for k in range(len(fields))]
    if chosen and not header and weight is not None and weight in wanted:  # all by number
        header = not is_real(fields[numbered_column(file, number, numbers, weight)])
    if not header:
        start, end = 0, 1
        if words:
            raise file.error(
                number,
                f"no column {words[0]!r}: the file has no header line that names a from and a to "
                f"column, got {', '.join(fields)}",
            )
        if not chosen:
            _check_not_nodes(file, number, fields)
    else:
        check_header(file, number, fields)
    names = fields if header else numbers
    if source is not None:
        start = numbered_column(file, number, names, source)
    if target is not None:
        end = numbered_column(file, number, names, target)
    if start is None or end is None:
        missing = "from" if start is None else "to"
        raise file.error(number, f"no {missing} column; choose it, too, of {', '.join(fields)}")
    if header or weight != "weight":
        column = weight_column(file, number, names, weight)
    elif chosen:
        column = None
    elif len(fields) in (2, 3) or (konect and len(fields) == 4):
        column = 2 if len(fields) > 2 else None
    else:
        raise file.error(
            number,
            "expected FROM, TO and perhaps WEIGHT, or a header line with columns from and "
            f"to, got {len(fields)} fields: {quote(', '.join(fields))}; choose the columns of the "
            f"ends as {named('source and target')}, or the weight's as {named('weight')}, by name "
            "or number",
        )
    if len({start, end, column}) < 3:
        last = "" if column is None else f", weight {names[column]}"
        raise file.error(
            number, f"one column twice: from {names[start]}, to {names[end]}{last}; choose others"
        )
    way = find_column(file, number, fields, ("directed", "type")) if header else None
    return _Columns(names, None if header else number, start, end, column, way)


def _ends(
    file: File, number: int, fields: list[str], others: _Rows
) -> tuple[int | None, int | None]:
    """The columns of the ends where the first row are names: from and to, or id_1 and id_2."""
    start = find_column(file, number, fields, FROM)
    end = find_column(file, number, fields, TO)
    nodes = "[uv]" if (start, end) != (None, None) and {"u", "v"} <= set(fields) else ""
    for k, name in enumerate(fields if (start, end) == (None, None) else ()):
        if re.fullmatch(r".*\D1", name) and f"{name[:-1]}2" in fields:
            start, end, nodes = k, fields.index(f"{name[:-1]}2"), f"{re.escape(name[:-1])}\\d+"
            break
    if nodes and all(is_real(x) for k, x in enumerate(fields) if k not in (start, end)):
        # They could as well be nodes, such as those of the other edges.
        labels = {
            row[k] for _, row in others for k in (start, end) if k is not None and k < len(row)
        }
        if not labels or any(re.fullmatch(nodes, label) for label in labels):
            return None, None
    return start, end


def _weight(file: File, number: int, columns: _Columns, word: str) -> float:
    try:
        value = real(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        advice = ""
        if number == columns.first:
            advice = (
                "; if the line has names of columns, call the ends from and to, or choose them as "
                f"{named('source and target')}"
            )
        raise file.error(number, f"expected a finite number as weight, got {quote(word)}{advice}")
    return value


def _check_not_nodes(file: File, number: int, fields: list[str]) -> None:
    """Raise an error for a first row of names such as a table of nodes has."""
    known = (*NODE, *CITY, *LONGITUDE, *LATITUDE, "x", "y")
    if find_column(file, number, fields, NODE) is not None and (
        sum(field.casefold() in known for field in fields) > 1
    ):
        raise file.error(
            number,
            f"{quote(', '.join(fields))} are the columns of a table of nodes, not of edges: give "
            f"it as {named('nodes')}, beside the file of the edges",
        )


def _check_not_header(file: File, line: int, labels: list[str]) -> None:
    """Raise an error for an edge between two words where all others are between numbers."""
    words = [not label.isdigit() for label in labels]
    if len(words) > 2 and all(words[:2]) and not any(words[2:]):
        raise file.error(
            line,
            f"{quote(', '.join(labels[:2]))} are the only nodes that are no numbers: if they are "
            f"names of columns, call these from and to, or choose them as "
            f"{named('source and target')}",
        )


def _check_not_metis(file: File, line: int, first: list[str], edges: int, lines: int) -> None:
    """Raise an error for neighbours of node after node, below their numbers.

    A file of METIS in which each node has two neighbours looks like an edge list.
    """
    if (first[:2], first[2:]) in (
        ([str(lines), str(edges - 1)], []),
        ([str(lines), str(edges - 1)], ["10"]),
        ([str(lines), str(edges - 1)], ["010"]),
    ):
        raise file.error(
            line, "a file of METIS, neighbours of node after node: give the format graph"
        )


def _direction_in_comments(
    file: File, comments: list[tuple[int, str]]
) -> tuple[bool, str, bool] | None:
    """What a comment of SNAP or KONECT says: directed, where, and whether it is KONECT."""
    for number, comment in comments:
        banner = comment.casefold().split()
        if banner[:1] == ["%%matrixmarket"] and banner[-1] in ("general", "symmetric"):
            return banner[-1] == "general", f"line {number}: {banner[-1]}", False
        words = comment.strip("#% \t").casefold()
        if comment.startswith("%") and (match := re.match(r"(a?sym|bip)\b", words)):
            if match[1] == "bip":
                raise file.error(
                    number,
                    "a bipartite network, in which one number names two nodes, one in each column: "
                    "write the nodes of one column with another name, and leave out this line",
                )
            return match[1] == "asym", f"line {number}: {match[1]}", True
        if match := re.match(r"(un)?directed graph\b", words):
            return not match[1], f"line {number}: {match[0]}", False
    return None


def _directions(
    file: File, columns: _Columns, words: list[str], lines: Sequence[int]
) -> tuple[bool, str, NDArray[np.bool_] | None]:
    """Whether edges are directed, why, and which of them lead both ways where some do."""
    if columns.way is None:
        return True, "", None
    name = columns.names[columns.way]
    known = [_DIRECTIONS.get(word.casefold()) for word in words]
    accepted = "true, false, 1, 0, Directed or Undirected"
    if name.casefold() == "type":  # Gephi's; another one may hold anything
        accepted = "Directed or Undirected"
        known = [None if len(word) < 5 else way for word, way in zip(words, known, strict=True)]
        if not any(way is not None for way in known):
            return True, "", None
    if None in known:
        k = known.index(None)
        raise file.error(lines[k], f"column {name}: expected {accepted}, got {quote(words[k])}")
    both = np.array([not way for way in known])
    if both.all() or not both.any():
        return not both.any(), f"column {name}", None
    why = f"column {name}: {int(both.sum())} of {len(both)} edges lead both ways"
    return True, why, both
