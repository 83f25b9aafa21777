"""MatrixMarket, ``.mtx``: coordinates or a dense array."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..closures.edges import NumberLabels
from .bulk import listed_edges
from .file import File, NumberedEdges, Reading, cut_short, quote, real
from .graph import Graph

__all__ = ["read"]

_WORDS = (
    ("coordinate", "array"),
    ("real", "integer", "pattern"),
    ("general", "symmetric", "skew-symmetric"),
)


@dataclass(frozen=True)
class _Matrix:
    """What the first line of a file says of it."""

    layout: str
    field: str
    symmetry: str

    @property
    def size(self) -> str:
        return "ROWS COLUMNS ENTRIES" if self.layout == "coordinate" else "ROWS COLUMNS"

    @property
    def entry(self) -> str:
        return "ROW COLUMN" if self.field == "pattern" else "ROW COLUMN VALUE"

    def reading(self, file: File, graph: Graph) -> Reading:
        """What is returned of the entries that are stored."""
        weighted = self.field != "pattern"
        if self.symmetry == "skew-symmetric":
            if (loops := graph.row == graph.col).any():
                node = graph.nodes[int(graph.row[loops.argmax()])]
                raise file.error(None, f"entry ({node}, {node}) of a skew-symmetric matrix")
            graph = replace(
                graph,
                row=np.concatenate([graph.row, graph.col]),
                col=np.concatenate([graph.col, graph.row]),
                weight=np.concatenate([graph.weight, 0 - graph.weight]),
            )
        graph = replace(
            graph,
            directed=self.symmetry != "symmetric",
            weight_source="values of the entries",
            direction_source=f"a {self.symmetry} matrix",
        )
        return Reading(graph, weighted)


def read(file: File, weight: str | None) -> Reading:
    """The graph of a square matrix; entries of a symmetric one are undirected edges."""
    lines = file.lines()
    matrix = _banner(file, *next(lines, (1, "")))
    body = ((number, x) for number, x in lines if x.strip() and not x.startswith("%"))
    if (size := next(body, None)) is None:
        raise file.error(1, "the file ends before the line with the matrix's size")
    promised = size[0]
    n, m = _size(file, *size, matrix)
    if matrix.layout == "array":
        return matrix.reading(file, _dense(file, body, n, promised, matrix.symmetry))
    edges = NumberedEdges(file, n, m, promised, "entries")
    return matrix.reading(file, listed_edges(edges, body, matrix.entry, "%", directed=True))


def _banner(file: File, number: int, line: str) -> _Matrix:
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
    matrix = _Matrix(*banner[2:])
    if matrix.field == "pattern" and (matrix.layout, matrix.symmetry) not in (
        ("coordinate", "general"),
        ("coordinate", "symmetric"),
    ):
        raise file.error(number, f"{quote(' '.join(banner[2:]))} is not a MatrixMarket format")
    return matrix


def _size(file: File, number: int, line: str, matrix: _Matrix) -> tuple[int, int]:
    """Numbers of nodes and of entries."""
    words = line.split()
    if len(words) != len(matrix.size.split()):
        raise file.error(number, f"expected '{matrix.size}', got {quote(line)}")
    n = file.count(number, words[0], "nodes")
    if file.count(number, words[1], "nodes") != n:
        raise file.error(number, f"a graph is a square matrix, got {words[0]} × {words[1]}")
    return n, file.count(number, words[2], "entries") if matrix.layout == "coordinate" else n * n


def _dense(
    file: File, body: Iterator[tuple[int, str]], n: int, promised: int, symmetry: str
) -> Graph:
    """The graph of an array, column by column; only below the diagonal where that says all."""
    below = symmetry == "skew-symmetric"  # the diagonal is not stored
    m = n * n if symmetry == "general" else n * (n - 1 if below else n + 1) // 2
    values, number = array("d"), promised
    for number, line in body:
        try:
            value = real(line)
        except ValueError:
            raise file.error(number, f"expected 'VALUE', got {quote(line)}") from None
        if not value > -np.inf or (below and value == np.inf):
            raise file.error(number, f"weight {value}; expected a number, or inf for no edge")
        if len(values) == m:
            raise file.error(number, f"more than the {m} entries promised on line {promised}")
        values.append(value)
    if len(values) < m:
        raise cut_short(file, number, len(values), m, "entries", promised)
    if symmetry == "general":
        col, row = np.divmod(np.arange(n * n), max(n, 1))
    else:
        col, row = np.triu_indices(n, int(below))
    weight = np.array(values, dtype=np.float64)
    kept = ~np.isposinf(weight)
    return Graph(NumberLabels(1, n), row[kept], col[kept], weight[kept], directed=True)
