"""Two formats of ``.gr``: DIMACS shortest paths, and the edge lists of the PACE challenges."""

from __future__ import annotations

from typing import Any

from .bulk import plain_edges, plain_line
from .file import File, NumberedEdges, Reading, quote

__all__ = ["read"]

_LINE = {True: "a FROM TO WEIGHT", False: "FROM TO"}
_HEADER = "'p sp NODES ARCS' (shortest paths) or 'p tw NODES EDGES' (PACE)"
#: The words of the PACE challenges from 2016 on, whose files are alike.
_PACE = "tw td tdp cep tww ds".split()


def read(file: File, weight: str | None) -> Reading:
    """The graph of a line ``p sp NODES ARCS`` or ``p tw NODES EDGES``, and of those it promises."""
    return _at_once(file) or _by_lines(file)


def _at_once(file: File) -> Reading | None:
    """The graph of a file without anything unusual; None of any other."""
    with file.open() as stream:
        for number, line in enumerate(stream, 1):
            if (text := plain_line(line)) is None:
                return None
            if text[:1] == "p":
                edges, arcs = _problem(file, number, text)
                tag = b"a" if arcs else b""
                known = _known(arcs)
                assert edges.m is not None
                graph = plain_edges(stream, edges.n, edges.m, weighted=arcs, tag=tag, **known)
                return None if graph is None else Reading(graph, arcs)
            if text[:1] != "c" and text.strip():
                return None
    return None


def _by_lines(file: File) -> Reading:
    edges: NumberedEdges | None = None
    arcs, number = True, 0
    for number, line in file.lines():
        kind = line[:1]
        if kind == "c" or not line.strip():
            continue
        if kind == "p":
            if edges is not None:
                raise file.error(number, f"a second 'p' line, after that on line {edges.promised}")
            edges, arcs = _problem(file, number, line)
        elif edges is None:
            raise file.error(number, f"expected {_HEADER} first, got {quote(line)}")
        else:
            edges.add_line(number, line, _LINE[arcs])
    if edges is None:
        raise file.error(number, f"no line {_HEADER} in the file")
    return Reading(edges.graph(number, **_known(arcs)), arcs)


def _problem(file: File, number: int, line: str) -> tuple[NumberedEdges, bool]:
    """The edges that a line ``p`` promises, none yet, and whether they are arcs with weights."""
    words = line.split()
    arcs = words[1:2] == ["sp"]
    if len(words) != 4 or words[0] != "p" or not (arcs or words[1] in _PACE):
        raise file.error(number, f"expected {_HEADER}, got {quote(line)}")
    what = "arcs" if arcs else "edges"
    n, m = file.count(number, words[2], "nodes"), file.count(number, words[3], what)
    return NumberedEdges(file, n, m, number, what), arcs


def _known(arcs: bool) -> dict[str, Any]:
    return {
        "directed": arcs,
        "weight_source": "third number of each arc",
        "direction_source": "a .gr file lists arcs" if arcs else "a PACE file lists edges",
    }
