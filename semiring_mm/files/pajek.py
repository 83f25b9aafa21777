"""Pajek networks, ``.net``.

NetworkX has a reader, but it takes nodes of the same label for one, ignores which of the lines
behind the first ``*Arcs`` or ``*Edges`` are arcs and which edges, and reads headings as edges;
tests/files/test_formats.py lists its faults.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .file import File, NumberedEdges, Reading, plain, quote, real
from .graph import Graph

__all__ = ["read"]

#: Nodes may do without a line, at most so many to one that has one.
_MOST_OMITTED = 100
_EXPECTED = "expected *Vertices, *Arcs, *Edges, *Arcslist, *Edgeslist or *Matrix"


def read(file: File, weight: str | None) -> Reading:
    """The graph of the nodes and of all arcs, edges, lists and matrices."""
    network: _Network | None = None
    section: Callable[[int, str], None] | None = None
    number = 0
    for number, line in file.lines():
        words = line.split()
        if not words or line.startswith("%") or words[0].casefold() == "*network":
            continue
        name = words[0].casefold()
        if name == "*vertices":
            if network is not None:
                raise file.error(
                    number, f"a second *Vertices, after that on line {network.promised}"
                )
            n = file.count(number, " ".join(words[1:2]), "nodes")
            first = file.count(number, words[2], "nodes") if len(words) > 2 else 0
            network = _Network(file, n, first if first < n else 0, number)
            section = network.vertex
        elif network is None and name.startswith("*"):
            raise file.error(number, f"expected '*Vertices NODES' first, got {quote(line)}")
        elif network is not None and name.startswith("*"):
            if (section := network.section(name)) is None:
                raise file.error(number, f"{_EXPECTED}, got {quote(line)}")
        elif section is not None:
            section(number, line)
    if network is None:
        raise file.error(number, "no line '*Vertices NODES' in the file")
    return network.reading(number, weight)


class _Network:
    """What the lines of a file give, one after the other."""

    def __init__(self, file: File, n: int, first: int, promised: int) -> None:
        self.file, self.n, self.promised = file, n, promised
        self.first = first  # how many nodes are of the first kind, where there are two
        self.vertices: dict[int, tuple[str, float, float]] = {}
        self.edges = NumberedEdges(file, n, None, promised, "lines")
        self.two_way = array("b")  # of each line, whether it is an edge and no arc
        self.bare = 0  # lines without a value
        self.way = False  # whether what is read are edges and no arcs
        self.matrix: int | None = None  # its rows so far

    def section(self, name: str) -> Callable[[int, str], None] | None:
        """What reads the lines below a heading."""
        if name == "*matrix":
            self.matrix = 0
        self.way = name.startswith("*edges")
        known = {"*arcs": self.pair, "*edges": self.pair, "*matrix": self.matrix_row}
        return (known | dict.fromkeys(("*arcslist", "*edgeslist"), self.list)).get(name)

    def vertex(self, number: int, line: str) -> None:
        """``1 "a label" x y``: with the label, and what is behind it, only where there is one."""
        words = [a or b for a, b in re.findall(r'"([^"]*)"|(\S+)', line)]
        node = self.node(number, words[0] if words else "", line)
        if node in self.vertices:
            raise self.file.error(number, f"node {node + 1} again")
        x, y = (_coordinate(word) for word in (*words[2:4], "", "")[:2])
        self.vertices[node] = " ".join(words[1:2]) or str(node + 1), x, y

    def pair(self, number: int, line: str) -> None:
        """``1 2 weight``: with a value only where there is one; drawing parameters follow."""
        words = line.split()
        if words[0].endswith(":"):  # the number of a relation
            words = words[1:]
        try:
            value = real(words[2])
        except (IndexError, ValueError):
            value = 1.0
            self.bare += 1
            parameter = words[2:] and words[2].isalpha()  # as in 1 2 c Blue
            if len(words) != 2 and not parameter:
                raise self.file.error(
                    number, f"expected 'FROM TO' or 'FROM TO VALUE', got {quote(line)}"
                ) from None
        start, end = (self.node(number, word, line) for word in words[:2])
        self.add(number, start, end, value, self.way)

    def list(self, number: int, line: str) -> None:
        """``1 2 3``: a node and its neighbours."""
        start, *ends = (self.node(number, word, line) for word in line.split())
        for end in ends:
            self.add(number, start, end, 1.0, self.way)
        self.bare += len(ends)

    def matrix_row(self, number: int, line: str) -> None:
        """A row of numbers, 0 for no line; its columns are the second kind of nodes, if any."""
        assert self.matrix is not None
        rows, columns = self.first or self.n, self.n - self.first
        try:
            values = [real(word) for word in line.split()]
        except ValueError:
            values = []
        if len(values) != columns or self.matrix == rows:
            raise self.file.error(
                number, f"expected {rows} rows of {columns} numbers, got {quote(line)}"
            )
        for end, value in enumerate(values, self.first):
            if value:
                self.add(number, self.matrix, end, value, bool(self.first))
        self.matrix += 1

    def node(self, number: int, word: str, line: str) -> int:
        """The position of the node with a number."""
        node = int(word) if plain(word) and word.isdigit() and len(word) < 20 else None
        if node is None:
            raise self.file.error(number, f"expected the number of a node, got {quote(line)}")
        if not 0 < node <= self.n:
            raise self.file.out_of_range(number, node, self.n)
        return node - 1

    def add(self, number: int, start: int, end: int, value: float, two_way: bool) -> None:
        """Append a line of the network."""
        self.edges.add(number, start + 1, end + 1, value)
        self.two_way.append(two_way)

    def reading(self, last: int, weight: str | None) -> Reading:
        """The graph, after the last line of the file."""
        if self.matrix is not None and self.matrix < (rows := self.first or self.n):
            raise self.file.error(last, f"the file ends after {self.matrix} of {rows} rows")
        two_way = np.array(self.two_way, dtype=bool)
        m = len(two_way)
        mixed = two_way.any() and not two_way.all()
        weighted = self.bare < m
        notes: tuple[str, ...] = ()
        if weight is not None and weighted and self.bare:
            notes = (f"{self.bare} of {m} edges have no value and weigh 1, as in Pajek",)
        kinds = "arcs and edges" if mixed else "edges" if two_way.any() else "arcs"
        graph = self.edges.graph(
            last, directed=kinds != "edges", notes=notes, weight_source="value of each line",
            direction_source=f"a Pajek file of {kinds}",
        )  # fmt: skip
        return Reading(self.described(graph), weighted, two_way=two_way if mixed else None)

    def described(self, graph: Graph) -> Graph:
        """The graph with the labels and the coordinates of its nodes."""
        if not self.vertices:
            return graph
        if self.n > _MOST_OMITTED * len(self.vertices):  # memory for all, on the word of a line
            raise self.file.error(
                self.promised, f"only {len(self.vertices)} of the {self.n} nodes have a line"
            )
        rows = [self.vertices.get(k, (str(k + 1), math.nan, math.nan)) for k in range(self.n)]
        labels = [label for label, *_ in rows]
        points = np.array([point for _, *point in rows], dtype=np.float64)
        told_apart = len(set(labels)) == self.n
        placed = self.n == 1 or (points != points[0]).any()  # NetworkX puts all nodes at 0, 0
        return replace(
            graph,
            nodes=labels if told_apart else graph.nodes,
            names=None if told_apart else labels,
            coordinates=points if placed and not np.isnan(points).all() else None,
        )


def _coordinate(word: str) -> float:
    try:
        value = real(word)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan
