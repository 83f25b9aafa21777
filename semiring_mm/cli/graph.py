"""The graph of the command line, its nodes by name, and pairs of them."""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

import semiring_mm as sm

from ..closures.edges import EdgeList, NumberLabels
from ..files import Graph, read_graph, read_matrix
from ..files import nodes as tables
from ..files.columns import NODE, is_real
from ..files.file import File
from ..files.npy import map_matrix, zero_warnings
from ..lazy import cached_property
from ..naming import named
from .options import KINDS, Kind, Refusal, did_you_mean

__all__ = ["Finder", "GivenGraph", "read", "read_network", "read_nodes"]

_COLUMNS = ("--weight or --unweighted", "--columns")
_ENTRIES = "the entries of the matrix"
_Table = list[tuple[int, list[str]]]  # numbers and fields of lines


@dataclass(frozen=True)
class GivenGraph:
    """A graph and, in place of its edges, its matrix if that is what the file holds."""

    graph: Graph
    matrix: NDArray[Any] | None
    kind: Kind
    notes: list[str] = field(default_factory=list)  # of the files of nodes
    streets: Any = None  # the network of a map
    ways: Graph | None = None  # where paths are looked for, if some nodes only begin and end them

    @property
    def all_notes(self) -> list[str]:
        """What a reader of the results should know."""
        return [*self.graph.notes, *self.notes]

    def legs(self, path: Sequence[int]) -> list[float]:
        """The best of the parallel edges from each node of a walk to the next."""
        ends, graph = list(itertools.pairwise(path)), self.graph
        if self.matrix is not None:
            found = [[self.matrix[u, v]] for u, v in ends]
            if not graph.directed:
                found = [[*one, self.matrix[v, u]] for one, (u, v) in zip(found, ends, strict=True)]
            return [float(self.kind.better(both)) for both in found]
        near = np.zeros(graph.n, bool)
        near[list(path)] = True
        kept = np.flatnonzero(near[graph.row] & near[graph.col])
        edges = (x[kept].tolist() for x in (graph.row, graph.col, graph.weight))
        best: dict[tuple[int, int], float] = {}
        for u, v, weight in zip(*edges, strict=True):
            for pair in ((u, v), (v, u))[: 2 - graph.directed]:
                best[pair] = self.kind.better(weight, best.get(pair, weight))
        return [best[pair] for pair in ends]

    @cached_property
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

    @property
    def labelled(self) -> Graph:
        """What the library finds paths in."""
        return self.graph if self.ways is None else self.ways

    @property
    def numbered(self) -> Graph:
        """The same with numbers in place of labels."""
        return replace(self.labelled, nodes=range(self.labelled.n))

    def folded(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """Rows of the nodes, of a matrix of these and of where paths to some of them end."""
        if self.ways is None:
            return matrix
        n = self.graph.n
        matrix[:, self.graph.centroids] = matrix[:, n:]
        return matrix[:n, :n]

    @property
    def edges_as_text(self) -> str:
        """How many edges there are, and how they lead."""
        return f"{self.edges():,}, {self.direction}"

    def edges(self) -> int:
        """Number of edges; a zero on the diagonal of a matrix is none."""
        if self.matrix is None:
            return len(self.graph.row)
        return sum(
            int(np.isfinite(row).sum()) - bool(row[i] == 0) for i, row in enumerate(self.matrix)
        )


def read(args: argparse.Namespace, *, dense: bool = False, tiles: bool = False) -> GivenGraph:
    """Read what the command line names.

    For `dense` methods a matrix is no list of edges, and stays in its file for work over `tiles`.
    """
    from .streets import is_streets, read_streets

    if is_streets(args):
        return read_streets(args)[0]
    _refuse_streets(args)
    kind = KINDS[args.semiring]
    if _is_prepared(args):
        raise Refusal(
            f"{args.graph[0]} is prepared already: semiring-mm apsp, table, nearest, flows "
            f"and stats read it"
        )
    plain = len(args.graph) == 1 and args.graph[0].lower().endswith(".npy") and not args.format
    if (
        dense
        and plain
        and args.semiring == "min_plus"
        and not args.nodes
        and args.weight == "weight"
    ):
        return _read_matrix(args, kind, tiles)
    source, target = args.columns
    graph = read_graph(
        [_source(args, name) for name in args.graph], weight=args.weight, source=source,
        target=target, nodes=args.nodes, directed=args.directed, format=args.format,
    )  # fmt: skip
    return _around_centroids(args, GivenGraph(graph, None, kind))


def read_network(
    args: argparse.Namespace, *, dense: bool = False, tiles: bool = False, sums: bool = False
) -> tuple[GivenGraph, sm.PreparedGraph | None]:
    """Read what the command line names, which may be a file of ``semiring-mm prepare``.

    With `sums` what is over another semiring than min_plus is refused.
    """
    from .streets import is_streets, read_streets

    name = args.graph[0]
    if is_streets(args):
        found, streets = read_streets(args)
        return found, streets.graph
    if not _is_prepared(args):
        args.semiring = args.semiring or "min_plus"
        if args.weights:
            raise Refusal(
                f"--weights is for a prepared graph; the weights of {name} are --weight COLUMN"
            )
        return read(args, dense=dense, tiles=tiles), None
    columns = not args.weights
    _refuse_streets(args)
    given = {
        "--weight or --unweighted": columns and args.weight != "weight",
        "--directed or --undirected": args.directed is not None,
        "--columns": columns and args.columns != (None, None),
        "--semiring": args.semiring is not None,
        "--order": getattr(args, "order", None) is not None,
        "--dtype": getattr(args, "dtype", None) is not None,
        "--through": args.through,
    }
    for option, there in given.items():
        if there:
            more = ", or name new weights with --weights FILE" if option in _COLUMNS else ""
            raise Refusal(
                f"{name} is prepared, and {option} is for preparing it: leave it out{more}"
            )
    net = sm.load(name)
    args.semiring = net.semiring.name
    if args.semiring not in KINDS:
        raise Refusal(f"{name} is over {args.semiring}: choose one of {', '.join(KINDS)}")
    if sums and args.semiring != "min_plus":
        raise Refusal(f"{name} is over {args.semiring}, and distances are of min_plus")
    origin = f"of {Path(name).name}"
    numbered = isinstance(net.nodes, range)
    n = len(net.nodes)
    labels: Sequence[str] = NumberLabels(0, n) if numbered else [str(x) for x in net.nodes]
    if not numbered and len({*labels}) < n:
        raise Refusal(f"{name}: two of its nodes have the same label as text")
    said: dict[str, Any] = {"weight_source": f"that {origin}"}
    if args.weights:
        new = _new_weights(args, net, labels)
        said = {name: getattr(new, name) for name in ("unit", "notes", "warnings")}
        weight = new.weight_source
        counted = weight.startswith("none")  # legs are counted
        said["weight_source"] = weight if counted else f"{weight} of {Path(args.weights).name}"
    edges = net.edges.original
    values = edges.weight.astype(np.float64)
    if edges.weight.dtype.kind in "iu":  # the largest stands for no edge
        values[edges.weight == net.semiring.identities(net.dtype)[0]] = net.semiring.zero
    graph = Graph(
        labels, edges.row, edges.col, values, edges.directed, direction_source=origin, **said
    )
    if args.nodes:
        graph = _with_table(graph, args.nodes)
    if (ends := net.edges.ends) is not None:
        at = np.flatnonzero(ends != np.arange(n))
        told = f"no path passes through its {len(at):,} zone centroids"
        graph = replace(graph, centroids=at, notes=(*graph.notes, told))
    return _around_centroids(args, GivenGraph(graph, None, KINDS[args.semiring])), net


def _around_centroids(args: argparse.Namespace, given: GivenGraph) -> GivenGraph:
    """A graph in which paths begin and end in zone centroids only, unless they may pass through."""
    graph, kind, at = given.graph, given.kind, given.graph.centroids
    if at is None and args.through:
        raise Refusal("--through is for a TNTP network with zone centroids")
    if at is None or args.through:
        return given
    if not graph.directed:
        raise Refusal(
            "no path passes through a zone centroid, and links lead one way there: leave out "
            "--undirected, or add --through"
        )
    one = sm.semirings[args.semiring].one
    better = graph.weight < one if kind.better is min else graph.weight > one
    if kind.counted and better.any():
        raise Refusal(
            f"no path passes through a zone centroid, for which ways back to where they begin are "
            f"no better than none, and a link weighs {graph.weight[better.argmax()]:g}: add "
            f"--through"
        )
    told = (x.replace("paths here may pass", "no path passes") for x in graph.notes)
    graph = replace(graph, notes=tuple(told))
    plain = replace(graph, coordinates=None, names=None, centroids=None)
    return replace(given, graph=graph, ways=plain.ending(at, one))


def _refuse_streets(args: argparse.Namespace) -> None:
    """Refuse options of maps for other graphs."""
    for option in ("speed", "profile", "crs", "layer", "largest"):
        if getattr(args, option, None):
            raise Refusal(f"--{option} is for maps of streets, and {args.graph[0]} is none")


def _new_weights(args: argparse.Namespace, net: sm.PreparedGraph, labels: Sequence[str]) -> Graph:
    """Give a prepared graph the weights of another file of its edges, which is returned."""
    source, target = args.columns
    directed = None if net.directed else False
    graph = read_graph(
        args.weights, weight=args.weight, source=source, target=target, directed=directed
    )
    at = {label: k for k, label in enumerate(labels)}
    if (other := next((x for x in graph.nodes if x not in at), None)) is not None:
        raise Refusal(f"{args.weights}: node {other!r} is not in {args.graph[0]}")
    place = np.array([at[label] for label in graph.nodes], np.int64)
    row, col = place[graph.row], place[graph.col]
    net.customize(EdgeList(net.nodes, row, col, graph.weight, graph.directed))
    return graph


def _is_prepared(args: argparse.Namespace) -> bool:
    """Whether the graph is a file of :meth:`PreparedGraph.save`."""
    name, *more = args.graph
    if more or args.format or not name.lower().endswith(".npz"):
        return False
    try:
        with zipfile.ZipFile(name) as file:
            return {"about.npy", "digest.npy"} <= {*file.namelist()}
    except zipfile.BadZipFile:
        return False


def _with_table(graph: Graph, name: str) -> Graph:
    """The graph with the names and coordinates of a table of nodes, in its own order."""
    table = tables.read_nodes(File.of(name))
    at = {label: k for k, label in enumerate(table.nodes)}
    if (absent := next((x for x in graph.nodes if x not in at), None)) is not None:
        raise Refusal(f"node {absent!r} is not in {name}")
    order = [at[label] for label in graph.nodes]
    return replace(
        graph,
        names=None if table.names is None else [table.names[k] for k in order],
        coordinates=None if table.coordinates is None else table.coordinates[order],
        geographic=table.geographic,
    )


def _source(args: argparse.Namespace, name: str) -> str | BinaryIO:
    """What a graph is read from."""
    if name != "-":
        return name
    if not args.format:
        raise Refusal("- reads standard input: say what it is, with --format csv for instance")
    return sys.stdin.buffer


def _read_matrix(args: argparse.Namespace, kind: Kind, tiles: bool) -> GivenGraph:
    """The matrix of a file, of which no list of edges is made."""
    (name,) = args.graph
    stored = map_matrix(File(Path(name)))
    matrix: NDArray[Any] | None = None
    if tiles and stored.dtype in (np.float32, np.float64):  # it is read where it is
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

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {label: k for k, label in enumerate(self._labels)}

    @property
    def _numbered(self) -> bool:
        return all(self._labels[k].isdigit() for k in (0, -1))

    @cached_property
    def _names(self) -> dict[str, list[int]]:
        names: dict[str, list[int]] = {}
        for k, name in enumerate(self._display):
            names.setdefault(name.casefold(), []).append(k)
        return names

    def _find(self, word: str) -> list[int]:
        """The nodes that go by a word."""
        labels = self._labels
        if isinstance(labels, NumberLabels):  # no table of all of them
            if word in labels:
                return [labels.index(word)]
        elif word in self._positions:
            return [self._positions[word]]
        return self._names.get(word.casefold(), [])

    def __contains__(self, word: str) -> bool:
        return bool(self._find(word.strip()))

    def __call__(self, word: str) -> int:
        word, labels = word.strip(), self._labels
        named = self._find(word)
        if len(named) == 1:
            return named[0]
        if named:
            which = ", ".join(labels[k] for k in named[:5])
            raise Refusal(f"more than one node is called {word!r}: choose one of {which}")
        if self._numbered:
            raise Refusal(f"no node {word!r}: nodes are {labels[0]} to {labels[-1]}")
        raise Refusal(f"no node {word!r}{self.similar(word)}")

    def similar(self, word: str) -> str:
        """The end of a message: nodes that may be meant by a word."""
        if self._numbered:
            return ""
        known = {label.casefold(): label for label in self._labels}
        for name, at in self._names.items():
            known.setdefault(name, f"{self._labels[at[0]]} ({self._display[at[0]]})")
        return did_you_mean(word, known)


def read_nodes(
    option: str, argument: str, find: Finder, notes: list[str],
    names: Sequence[Sequence[str]] = (("from", "to", *NODE),),
) -> list[tuple[int, ...]]:  # fmt: skip
    """Nodes of an option, or pairs of them: rows of a CSV file, or words between commas.

    Columns may be called by these `names`; without a header the first ones are read.
    """
    pairs, columns = len(names) == 2, [*range(len(names))]
    if option.endswith("-file") or Path(argument).is_file():
        rows = _rows(Path(argument))
        if rows and (headed := _header(argument, rows, names, find, notes)):
            columns, rows = headed, rows[1:]
    elif pairs and "," not in argument:
        raise Refusal(f"{option} {argument}: neither a file nor pairs such as 'A,B;C,D'")
    else:
        words = argument.split(";") if pairs else argument.split(",")
        rows = [(0, word.split(",")) for word in words]
    nodes = []
    for line, row in rows:
        place = f"{argument}:{line}" if line else option
        if len(row) <= max(columns) or (pairs and len(row) > 2):
            what = "a pair of nodes" if pairs else f"{columns[0] + 1} fields"
            raise Refusal(f"{place}: expected {what}, got {','.join(row)!r}")
        try:
            nodes.append(tuple(find(row[k]) for k in columns))
        except Refusal as refusal:
            raise Refusal(f"{place}: {refusal}") from None
    if not nodes:
        raise Refusal(f"{option} {argument}: no {'pairs' if pairs else 'nodes'} in it")
    return nodes


def _header(
    name: str, rows: _Table, names: Sequence[Sequence[str]], find: Finder, notes: list[str]
) -> list[int]:
    """The columns, by their names in the first row; empty where that has nodes.

    It is a header of other names, which is noted, where none of its words is a number, or a node or
    like one, and the next row has nodes.
    """
    width = len(names)
    cells = [x.strip().casefold() for x in rows[0][1]]
    if all(x in find for x in rows[0][1][:width]):
        return []
    found = [next((cells.index(x) for x in words if x in cells), None) for words in names]
    columns = [k for k in found if k is not None]
    if len(columns) == width:
        return columns
    first = [x.strip() for x in rows[0][1][:width]]
    nodes = len(rows) > 1 and all(x in find for x in rows[1][1][:width])
    if not nodes or any(x in find or is_real(x) or find.similar(x) for x in first):
        return []
    notes.append(f"{name}: line {rows[0][0]} is taken for a header: {', '.join(first)}")
    return [*range(width)]


def _rows(path: Path) -> _Table:
    """The rows of a CSV file that are not blank."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        try:
            return [(reader.line_num, row) for row in reader if any(map(str.strip, row))]
        except (csv.Error, UnicodeDecodeError) as error:
            raise Refusal(f"{path}:{reader.line_num + 1}: {error}") from None
