"""MatrixMarket, ``.mtx``: coordinates or a dense array."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace

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


def read(file: File, weight: str | None) -> Reading:
    """The graph of a square matrix; entries of a symmetric one are undirected edges."""
    lines = file.lines()
    layout, field, symmetry = _banner(file, *next(lines, (1, "")))
    body = ((number, x) for number, x in lines if x.strip() and not x.startswith("%"))
    if (size := next(body, None)) is None:
        raise file.error(1, "the file ends before the line with the matrix's size")
    n, m = _size(file, *size, "ROWS COLUMNS" + " ENTRIES" * (layout == "coordinate"))
    if layout == "array":
        graph = _dense(file, body, n, size[0], symmetry)
    else:
        edges = NumberedEdges(file, n, m, size[0], "entries")
        form = "ROW COLUMN" + " VALUE" * (field != "pattern")
        graph = listed_edges(edges, body, form, "%", directed=True)
    if symmetry == "skew-symmetric":
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
        directed=symmetry != "symmetric",
        weight_source="values of the entries",
        direction_source=f"a {symmetry} matrix",
    )
    return Reading(graph, field != "pattern")


def _banner(file: File, number: int, line: str) -> tuple[str, str, str]:
    """Layout, field and symmetry, as the first line has them."""
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
    layout, field, symmetry = banner[2:]
    if field == "pattern" and (layout == "array" or symmetry == "skew-symmetric"):
        raise file.error(number, f"{quote(' '.join(banner[2:]))} is not a MatrixMarket format")
    return layout, field, symmetry


def _size(file: File, number: int, line: str, form: str) -> tuple[int, int]:
    """Numbers of nodes and of entries; without the latter, as of an array, 0."""
    words = line.split()
    if len(words) != len(form.split()):
        raise file.error(number, f"expected '{form}', got {quote(line)}")
    n = file.count(number, words[0], "nodes")
    if file.count(number, words[1], "nodes") != n:
        raise file.error(number, f"a graph is a square matrix, got {words[0]} × {words[1]}")
    return n, file.count(number, words[2], "entries") if words[2:] else 0


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
