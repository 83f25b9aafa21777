"""Two formats of ``.gr``: DIMACS shortest paths, and the edge lists of the PACE challenges."""

from __future__ import annotations

from .bulk import listed_edges
from .file import File, NumberedEdges, Reading, quote

__all__ = ["read"]

_LINE = {True: "a FROM TO WEIGHT", False: "FROM TO"}
_HEADER = "'p sp NODES ARCS' (shortest paths) or 'p tw NODES EDGES' (PACE)"
#: The words of the PACE challenges from 2016 on, whose files are alike.
_PACE = "tw td tdp cep tww ds".split()


def read(file: File, weight: str | None) -> Reading:
    """The graph of a line ``p sp NODES ARCS`` or ``p tw NODES EDGES``, and of those it promises."""
    last, lines = 0, file.lines()
    for number, line in lines:
        last = number
        if line[:1] != "c" and line.strip():
            break
    else:
        raise file.error(last, f"no line {_HEADER} in the file")
    words = line.split()
    arcs = words[1:2] == ["sp"]
    if line[:1] != "p":
        raise file.error(number, f"expected {_HEADER} first, got {quote(line)}")
    if len(words) != 4 or words[0] != "p" or not (arcs or words[1] in _PACE):
        raise file.error(number, f"expected {_HEADER}, got {quote(line)}")
    what = "arcs" if arcs else "edges"
    n, m = file.count(number, words[2], "nodes"), file.count(number, words[3], what)
    graph = listed_edges(
        NumberedEdges(file, n, m, number, what), lines, _LINE[arcs], "c", directed=arcs,
        weight_source="third number of each arc",
        direction_source="a .gr file lists arcs" if arcs else "a PACE file lists edges",
    )  # fmt: skip
    return Reading(graph, arcs)
