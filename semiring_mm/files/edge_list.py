"""Edge lists: tables of FROM, TO and perhaps WEIGHT, in delimited text or Parquet."""

from __future__ import annotations

import itertools
import re
import sys
from array import array
from collections.abc import Sequence
from typing import Any

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
    Columns,
    Numbers,
    Origin,
    check_header,
    directions,
    find_column,
    is_real,
    numbered_column,
    other_numbers,
    rows,
    weight_column,
)  # fmt: skip
from .file import File, Reading, quote
from .graph import Graph

__all__ = ["headed", "read", "reading"]

_Rows = list[tuple[int, list[str]]]
Index = NDArray[np.int64]


def read(
    file: File, weight: str | None, source: str | None = None, target: str | None = None
) -> Reading:
    """The directed graph of a table of edges; nodes in the order in which they are named."""
    comments: list[tuple[int, str]] = []
    table = rows(file, comments)
    sample = list(itertools.islice(table, 1 + SAMPLE))
    start, fields = sample[0] if sample else (1, [])
    said = _direction_in_comments(file, comments)
    konect = said is not None and said[1].endswith("sym")
    columns = _columns(file, start, fields, sample[1:], weight, source, target, konect)
    if columns.header:
        del sample[0]

    index: dict[str, int] = {}
    first: list[int] = []
    row, col, lines = array("q"), array("q"), array("q")
    weights = Numbers(file, "weight")
    ways: list[list[str]] = [[] for _ in columns.ways]
    number = start
    for number, fields in itertools.chain(sample, table):
        _check_width(file, number, columns, fields)
        for ends, k in ((row, columns.source), (col, columns.target)):
            label = fields[k]
            if not label:
                raise file.error(number, f"a node without a name: {quote(', '.join(fields))}")
            if label not in index:
                index[label] = len(index)
                first.append(number)
            ends.append(index[label])
        if columns.weight is not None:
            weights.add(number, fields[columns.weight], number == columns.first)
        for words, k in zip(ways, columns.ways, strict=True):
            words.append(sys.intern(fields[k]) if k < len(fields) else "")
        if ways:
            lines.append(number)
    if not row:
        raise file.error(number, "a header line and no edges")
    labels = list(index)
    if not columns.header:
        _check_not_metis(file, start, sample[0][1], len(row), number - start)
        _check_not_header(file, start, labels)
    return reading(
        file, columns, labels, np.array(row, np.int64), np.array(col, np.int64),
        None if columns.weight is None else weights.whole(), ways, lines,
        [fields for _, fields in sample], said, first,
    )  # fmt: skip


def reading(
    origin: Origin, columns: Columns, labels: list[Any], row: Index, col: Index,
    weight: NDArray[Any] | None, ways: Sequence[Sequence[Any]], lines: Sequence[int],
    sample: Sequence[Sequence[str]], said: tuple[bool, str] | None = None,
    first: Sequence[int] = (),
) -> Reading:  # fmt: skip
    """What a table says: its ends as positions in `labels`, and its other columns as they are.

    Parameters
    ----------
    ways : list of sequences
        The words in the columns that tell how edges lead.
    lines : sequence of int
        The line of each row, if there are `ways`.
    sample : list of lists of str
        Some rows, by which a column is one of numbers.
    said : (bool, str), optional
        Whether edges are directed, and where that is said, if no column tells.
    first : sequence of int
        The line where each node is first named, where that is known.
    """
    lead, why = directions(origin, columns, ways, lines)
    directed, two_way = True, None
    if lead is not None:
        row, col = np.where(lead < 0, col, row), np.where(lead < 0, row, col)
        directed = bool(lead.any())
        two_way = lead == 0 if directed and not lead.all() else None
    elif said is not None:
        directed, why = said
    told = columns.ways if lead is not None else ()
    graph = Graph(
        labels, row, col, np.ones(len(row)) if weight is None else weight, directed=directed,
        unit=columns.unit, weight_source=columns.weight_source,
        direction_source=why or "the default of an edge list",
    )  # fmt: skip
    used = {columns.source, columns.target, columns.weight, *told}
    return Reading(
        graph, weighted=weight is not None, lines=first,
        unused=other_numbers(columns.names, sample, used), two_way=two_way,
    )  # fmt: skip


def _check_width(file: File, number: int, columns: Columns, fields: list[str]) -> None:
    """Raise an error for a row of another width; unused fields at its end may be left out."""
    used = max(columns.source, columns.target, -1 if columns.weight is None else columns.weight) + 1
    if not used <= len(fields) <= len(columns.names):
        names = f" ({', '.join(columns.names)})" if columns.header else ""
        sizes = not columns.header and all(map(str.isdigit, fields))
        hint = f"; if line {columns.first} has the sizes of the graph, is it METIS (format graph)?"
        raise file.error(
            number,
            f"expected {len(columns.names)} fields{names}, got {len(fields)}: "
            + quote(", ".join(fields))
            + hint * sizes,
        )


def _columns(
    file: File, number: int, fields: list[str], others: _Rows, weight: str | None,
    source: str | None, target: str | None, konect: bool,
) -> Columns:  # fmt: skip
    """The columns that are wanted; the first row may be their names."""
    chosen = source is not None or target is not None
    wanted = [x for x in (source, target, weight) if x is not None and x != "weight"]
    words = [word for word in wanted if not word.isdigit()]
    header = None not in _ends(file, number, fields, others) or (chosen and bool(words))
    numbers = [f"column {k + 1}" for k in range(len(fields))]
    if chosen and not header and weight is not None and weight in wanted:  # all by number
        header = not is_real(fields[numbered_column(file, number, numbers, weight)])
    if header:
        return headed(file, number, fields, weight, source, target)
    if words:
        raise file.error(
            number,
            f"no column {words[0]!r}: the file has no header line that names a from and a to "
            f"column, got {', '.join(fields)}",
        )
    if not chosen:
        _check_not_nodes(file, number, fields)
    start = 0 if source is None else numbered_column(file, number, numbers, source)
    end = 1 if target is None else numbered_column(file, number, numbers, target)
    column = None
    if weight != "weight":
        column = weight_column(file, number, numbers, weight)
    elif not chosen and (len(fields) in (2, 3) or (konect and len(fields) == 4)):
        column = 2 if len(fields) > 2 else None
    elif not chosen:
        raise file.error(
            number,
            "expected FROM, TO and perhaps WEIGHT, or a header line with columns from and "
            f"to, got {len(fields)} fields: {quote(', '.join(fields))}; choose the columns of the "
            f"ends as {_options()}, or the weight's as {named('weight')}, by name or number",
        )
    return Columns.of(file, number, numbers, (start, end), column, header=False)


def headed(
    origin: Origin, number: int | None, names: list[str], weight: str | None,
    source: str | None, target: str | None,
) -> Columns:  # fmt: skip
    """The columns that are wanted of those that have names."""
    check_header(origin, number, names)
    start, end = _ends(origin, number, names, None)
    if source is not None:
        start = numbered_column(origin, number, names, source)
    if target is not None:
        end = numbered_column(origin, number, names, target)
    if start is None or end is None:
        usual, other = (FROM[1], FROM[0]) if start is None else (TO[1], TO[0])
        raise origin.error(
            number,
            f"no column {usual!r} (or {other!r}); columns: {', '.join(names)}; rename one, or "
            f"choose the columns of the ends as {_options()}",
        )
    column = weight_column(origin, number, names, weight)
    return Columns.of(origin, number, names, (start, end), column)


def _options() -> str:
    """What takes the names of the columns of the ends."""
    option = named("source and target")
    python = "source= and target=, which sm.adjacency, sm.prepare and read_graph take"
    return python if option == "source and target" else option


def _ends(
    origin: Origin, number: int | None, fields: list[str], others: _Rows | None
) -> tuple[int | None, int | None]:
    """The columns of the ends by their names, from and to, or id_1 and id_2.

    Those of a first row, above `others`, may be nodes instead.
    """
    start = find_column(origin, number, fields, FROM)
    end = find_column(origin, number, fields, TO)
    nodes = "[uv]" if (start, end) != (None, None) and {"u", "v"} <= set(fields) else ""
    for k, name in enumerate(fields if (start, end) == (None, None) else ()):
        if re.fullmatch(r".*\D1", name) and f"{name[:-1]}2" in fields:
            start, end, nodes = k, fields.index(f"{name[:-1]}2"), f"{re.escape(name[:-1])}\\d+"
            break
    if others is None or not nodes:
        return start, end
    if all(is_real(x) for k, x in enumerate(fields) if k not in (start, end)):
        # They could as well be nodes, such as those of the other edges.
        labels = {
            row[k] for _, row in others for k in (start, end) if k is not None and k < len(row)
        }
        if not labels or any(re.fullmatch(nodes, label) for label in labels):
            return None, None
    return start, end


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
            f"names of columns, call these from and to, or choose them as {_options()}",
        )


def _check_not_metis(file: File, line: int, first: list[str], edges: int, lines: int) -> None:
    """Raise an error for neighbours of node after node, below their numbers.

    A file of METIS in which each node has two neighbours looks like an edge list.
    """
    if first[:2] == [str(lines), str(edges - 1)] and first[2:] in ([], ["10"], ["010"]):
        raise file.error(
            line, "a file of METIS, neighbours of node after node: give the format graph"
        )


def _direction_in_comments(file: File, comments: list[tuple[int, str]]) -> tuple[bool, str] | None:
    """What a comment of SNAP or KONECT says: whether edges are directed, and where."""
    for number, comment in comments:
        banner = comment.casefold().split()
        if banner[:1] == ["%%matrixmarket"] and banner[-1] in ("general", "symmetric"):
            return banner[-1] == "general", f"line {number}: {banner[-1]}"
        words = comment.strip("#% \t").casefold()
        if comment.startswith("%") and (match := re.match(r"(a?sym|bip)\b", words)):
            if match[1] == "bip":
                raise file.error(
                    number,
                    "a bipartite network, in which one number names two nodes, one in each column: "
                    "write the nodes of one column with another name, and leave out this line",
                )
            return match[1] == "asym", f"line {number}: {match[1]}"
        if match := re.match(r"(un)?directed graph\b", words):
            return not match[1], f"line {number}: {match[0]}"
    return None
