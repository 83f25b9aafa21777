"""The graph of the command line, its nodes by name, and pairs of them."""

from __future__ import annotations

import argparse
import csv
import difflib
import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..files import Graph, read_graph, read_matrix
from ..files.file import File
from ..files.graph import NumberLabels
from ..files.npy import map_matrix, zero_warnings
from ..naming import named
from .options import KINDS, Kind, Refusal, in_tiles

__all__ = ["Finder", "GivenGraph", "read", "read_pairs"]

_ENTRIES = "the entries of the matrix"


@dataclass(frozen=True)
class GivenGraph:
    """A graph and, in place of its edges, its matrix if that is what the file holds."""

    graph: Graph
    matrix: NDArray[Any] | None
    kind: Kind

    def leg(self, start: int, end: int) -> float:
        """The best of the parallel edges between two nodes."""
        if self.matrix is not None:
            both = [self.matrix[start, end]]
            if not self.graph.directed:
                both.append(self.matrix[end, start])
            return float(self.kind.better(both))
        row, col, weight = self.graph.row, self.graph.col, self.graph.weight
        edges = (row == start) & (col == end)
        if not self.graph.directed:
            edges |= (row == end) & (col == start)
        return float(self.kind.better(weight[edges].tolist()))

    @functools.cached_property
    def whole(self) -> bool:
        """Whether all weights are whole numbers, and so all values."""
        if self.matrix is None:
            return bool((self.graph.weight == np.rint(self.graph.weight)).all())
        return all(bool((row == np.rint(row)).all()) for row in self.matrix)

    @property
    def unit(self) -> str:
        """The unit of the values."""
        return self.graph.unit if self.kind.unit else ""

    @property
    def weight(self) -> str:
        """Where the weights come from, and what becomes of them along a path."""
        source, counted = self.graph.weight_source, self.kind.counted
        if not counted:
            return "not used: all paths are equal"
        if source.startswith("none"):
            return source if counted == "summed" else "none: every edge weighs 1"
        return f"{source[:-1]}, {counted})" if source.endswith(")") else f"{source} ({counted})"

    @property
    def direction(self) -> str:
        """Whether edges lead one way or both, and why."""
        way = "directed" if self.graph.directed else "undirected"
        return f"{way} ({self.graph.direction_source})" if self.graph.direction_source else way

    def label(self, node: int) -> str:
        """The node's name and label."""
        label = self.graph.nodes[node]
        name = self.graph.names[node] if self.graph.names else ""
        return f"{name} ({label})" if name and name != label else label

    def edges(self) -> int:
        """Number of edges; a zero on the diagonal of a matrix is none."""
        if self.matrix is None:
            return len(self.graph.row)
        return sum(
            int(np.isfinite(row).sum()) - bool(row[i] == 0) for i, row in enumerate(self.matrix)
        )


def read(args: argparse.Namespace) -> GivenGraph:
    """Read what the command line names."""
    kind = KINDS[args.semiring]
    plain = len(args.graph) == 1 and args.graph[0].lower().endswith(".npy") and not args.format
    if plain and args.semiring == "min_plus" and not args.nodes and args.weight == "weight":
        return _read_matrix(args, kind)
    source, target = args.columns
    graph = read_graph(
        [_source(args, name) for name in args.graph], weight=args.weight, source=source,
        target=target, nodes=args.nodes, directed=args.directed, format=args.format,
    )  # fmt: skip
    return GivenGraph(graph, None, kind)


def _source(args: argparse.Namespace, name: str) -> str | BinaryIO:
    """What a graph is read from."""
    if name != "-":
        return name
    if not args.format:
        raise Refusal("- reads standard input: say what it is, with --format csv for instance")
    return sys.stdin.buffer


def _read_matrix(args: argparse.Namespace, kind: Kind) -> GivenGraph:
    """The matrix of a file, of which no list of edges is made."""
    (name,) = args.graph
    stored = map_matrix(File(Path(name)))
    matrix: NDArray[Any] | None = None
    if in_tiles(args) and stored.dtype in (np.float32, np.float64):  # it is read where it is
        matrix = stored
        if args.dtype not in (None, matrix.dtype.name):
            raise Refusal(
                f"--dtype {args.dtype}: {name} holds {matrix.dtype}, in which several devices, "
                "and files, work"
            )
    if matrix is None:
        matrix = read_matrix(name)
    none = np.empty(0, dtype=np.int64)
    graph = Graph(
        NumberLabels(0, len(matrix)), none, none, np.empty(0),
        directed=args.directed is not False,
        warnings=zero_warnings(matrix),
        weight_source=_ENTRIES if stored.dtype != np.bool_ else "none: legs are counted",
        direction_source=_ENTRIES if args.directed is None else named("directed", args.directed),
    )  # fmt: skip
    return GivenGraph(graph, matrix, kind)


class Finder:
    """Nodes by label, or by display name where just one node has it."""

    def __init__(self, graph: Graph) -> None:
        self._labels, self._display = graph.nodes, graph.names or []

    @functools.cached_property
    def _positions(self) -> dict[str, int]:
        return {label: k for k, label in enumerate(self._labels)}

    @functools.cached_property
    def _names(self) -> dict[str, list[int]]:
        names: dict[str, list[int]] = {}
        for k, name in enumerate(self._display):
            names.setdefault(name.casefold(), []).append(k)
        return names

    def __call__(self, word: str) -> int:
        word = word.strip()
        labels = self._labels
        if isinstance(labels, NumberLabels):  # no table of all of them
            if word in labels:
                return labels.index(word)
        elif word in self._positions:
            return self._positions[word]
        named = self._names.get(word.casefold(), [])
        if len(named) == 1:
            return named[0]
        if named:
            which = ", ".join(labels[k] for k in named[:5])
            raise Refusal(f"more than one node is called {word!r}: choose one of {which}")
        if labels[0].isdigit() and labels[-1].isdigit():
            raise Refusal(f"no node {word!r}: nodes are {labels[0]} to {labels[-1]}")
        raise Refusal(f"no node {word!r}{self._similar(word)}")

    def _similar(self, word: str) -> str:
        known = {label.casefold(): label for label in self._labels}
        for name, at in self._names.items():
            known.setdefault(name, f"{self._labels[at[0]]} ({self._display[at[0]]})")
        close = difflib.get_close_matches(word.casefold(), list(known)[:50_000], n=3)
        meant = dict.fromkeys(known[word] for word in close)
        return f"; did you mean {' or '.join(meant)}?" if meant else ""


def read_pairs(argument: str, find: Finder) -> list[tuple[int, int]]:
    """Node pairs of `--pairs`: from the file of that name, or from the words themselves."""
    path = Path(argument)
    if path.is_file():
        rows = _rows(path)
        if rows and [cell.strip().casefold() for cell in rows[0][1][:2]] == ["from", "to"]:
            rows = rows[1:]
    elif "," not in argument:
        raise Refusal(f"--pairs {argument}: neither a file nor pairs such as 'A,B;C,D'")
    else:
        rows = [(0, pair.split(",")) for pair in argument.split(";")]
    pairs = []
    for line, row in rows:
        if not any(cell.strip() for cell in row):
            continue
        place = f"{argument}:{line}: " if line else "--pairs: "
        if len(row) != 2:
            raise Refusal(f"{place}expected a pair of nodes, got {','.join(row)!r}")
        try:
            pairs.append((find(row[0]), find(row[1])))
        except Refusal as refusal:
            raise Refusal(f"{place}{refusal}") from None
    if not pairs:
        raise Refusal(f"--pairs {argument}: no pairs in it")
    return pairs


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        try:
            return [(reader.line_num, row) for row in reader]
        except (csv.Error, UnicodeDecodeError) as error:
            raise Refusal(f"--pairs {path}:{reader.line_num + 1}: {error}") from None
