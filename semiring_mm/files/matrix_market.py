"""MatrixMarket, ``.mtx``: coordinates or a dense array."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np

from .file import File, NumberedEdges, Reading, cut_short, plain, quote, real
from .graph import Graph, NumberLabels

__all__ = ["read"]

_WORDS = (("coordinate", "array"), ("real", "integer", "pattern"), ("general", "symmetric"))


def read(file: File, weight: str | None) -> Reading:
    """The graph of a square matrix; entries of a symmetric one are undirected edges."""
    lines = file.lines()
    layout, field, symmetry = _banner(file, *next(lines, (1, "")))
    body = ((number, x) for number, x in lines if x.strip() and not x.startswith("%"))
    if (size := next(body, None)) is None:
        raise file.error(1, "the file ends before the line with the matrix's size")
    promised, line = size
    words = line.split()
    expected = "ROWS COLUMNS ENTRIES" if layout == "coordinate" else "ROWS COLUMNS"
    if len(words) != len(expected.split()):
        raise file.error(promised, f"expected '{expected}', got {quote(line)}")
    n = file.count(promised, words[0], "nodes")
    if file.count(promised, words[1], "nodes") != n:
        raise file.error(promised, f"a graph is a square matrix, got {words[0]} × {words[1]}")
    if layout == "array":
        return Reading(_dense(file, body, n, promised, symmetry == "general"))
    m = file.count(promised, words[2], "entries")
    edges = NumberedEdges(file, n, m, promised, "entries")
    expected = "ROW COLUMN" if field == "pattern" else "ROW COLUMN VALUE"
    number, width = promised, len(expected.split())
    for number, line in body:
        fields = line.split()
        try:
            if len(fields) != width or not plain(line):
                raise ValueError
            value = 1.0 if field == "pattern" else float(fields[2])
            entry = int(fields[0]), int(fields[1]), value
        except ValueError:
            raise file.error(number, f"expected '{expected}', got {quote(line)}") from None
        edges.add(number, *entry)
    return Reading(edges.graph(number, directed=symmetry == "general"), field != "pattern")


def _banner(file: File, number: int, line: str) -> list[str]:
    """Layout, field and symmetry."""
    banner = line.lower().split()
    if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"]:
        raise file.error(
            number,
            "expected '%%MatrixMarket matrix coordinate real general' or the like, got "
            + quote(line),
        )
    for word, accepted in zip(banner[2:], _WORDS, strict=True):
        if word not in accepted:
            raise file.error(
                number, f"{quote(word)} is not supported; accepted: {', '.join(accepted)}"
            )
    if banner[2:4] == ["array", "pattern"]:
        raise file.error(number, "'array pattern' is not a MatrixMarket format")
    return banner[2:]


def _dense(
    file: File, body: Iterator[tuple[int, str]], n: int, promised: int, general: bool
) -> Graph:
    """The graph of an array, column by column; only the lower triangle where it is symmetric."""
    m = n * n if general else n * (n + 1) // 2
    values, number = array("d"), promised
    for number, line in body:
        try:
            value = real(line)
        except ValueError:
            raise file.error(number, f"expected 'VALUE', got {quote(line)}") from None
        if not value > -np.inf:
            raise file.error(number, f"weight {value}; expected a number, or inf for no edge")
        if len(values) == m:
            raise file.error(number, f"more than the {m} entries promised on line {promised}")
        values.append(value)
    if len(values) < m:
        raise cut_short(file, number, len(values), m, "entries", promised)
    col, row = np.divmod(np.arange(n * n), max(n, 1)) if general else np.triu_indices(n)
    weight = np.array(values, dtype=np.float64)
    kept = ~np.isposinf(weight)
    return Graph(NumberLabels(1, n), row[kept], col[kept], weight[kept], directed=general)
