"""DIMACS shortest paths, ``.gr``."""

from __future__ import annotations

from .file import File, NumberedEdges, Reading, plain, quote

__all__ = ["read"]


def read(file: File, weight: str | None) -> Reading:
    """The graph of lines ``p sp NODES ARCS``, ``a FROM TO WEIGHT`` and comments ``c``."""
    edges: NumberedEdges | None = None
    number = 0
    for number, line in file.lines():
        kind = line[:1]
        if kind == "a" and edges is not None:
            try:
                tag, u, v, w = line.split()
                if tag != "a" or not plain(line):
                    raise ValueError
                arc = int(u), int(v), float(w)
            except ValueError:
                raise file.error(
                    number, f"expected 'a FROM TO WEIGHT', got {quote(line)}"
                ) from None
            edges.add(number, *arc)
        elif kind == "p":
            if edges is not None:
                raise file.error(number, f"a second 'p' line, after that on line {edges.promised}")
            edges = _problem(file, number, line)
        elif kind == "a":
            raise file.error(number, f"expected 'p sp NODES ARCS' first, got {quote(line)}")
        elif kind != "c" and line.strip():
            raise file.error(
                number, f"expected a line that starts with c, p or a, got {quote(line)}"
            )
    if edges is None:
        raise file.error(number, "no line 'p sp NODES ARCS' in the file")
    return Reading(edges.graph(number, directed=True))


def _problem(file: File, number: int, line: str) -> NumberedEdges:
    fields = line.split()
    if len(fields) != 4 or fields[:2] != ["p", "sp"]:
        raise file.error(number, f"expected 'p sp NODES ARCS', got {quote(line)}")
    n, m = file.count(number, fields[2], "nodes"), file.count(number, fields[3], "arcs")
    return NumberedEdges(file, n, m, number, "arcs")
