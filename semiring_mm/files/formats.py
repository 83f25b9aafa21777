"""The formats, by extension, and the one function that reads them all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..closures.edges import is_table
from ..naming import named
from . import (
    dimacs,
    edge_list,
    matrix_market,
    metis,
    ncol,
    networkx,
    npy,
    npz,
    pajek,
    tables,
    tntp,
)  # fmt: skip
from .file import PACKINGS, File, Reading
from .graph import Graph, in_both_directions
from .join import joined
from .nodes import Nodes, great_circle_weights, read_nodes

__all__ = ["FORMATS", "Format", "Source", "columns_of", "read_graph"]

Source: TypeAlias = str | PathLike[str] | BinaryIO
Table: TypeAlias = Any  # of pandas, Polars or Arrow


@dataclass(frozen=True)
class Format:
    """How files of one extension are read."""

    # takes the file and what the caller gave as `weight`, a column's number as digits
    read: Callable[[File, str | None], Reading]
    columns: bool = False  # whether the weights are one column, or attribute, of several
    packed: bool = True  # whether files may be compressed


#: All formats. A new one is a module with a function `read`, and a line here.
FORMATS = {
    ".gr": Format(dimacs.read),
    ".mtx": Format(matrix_market.read),
    ".graph": Format(metis.read),
    ".net": Format(pajek.read),
    **dict.fromkeys(
        [".csv", ".tsv", ".txt", ".dat", ".edgelist", ".edges", ".el"],
        Format(edge_list.read, columns=True),
    ),
    ".ncol": Format(ncol.read),
    ".parquet": Format(edge_list.read, columns=True, packed=False),
    ".tntp": Format(tntp.read, columns=True),
    ".graphml": Format(networkx.read, columns=True),
    ".gml": Format(networkx.read, columns=True),
    ".gexf": Format(networkx.read, columns=True),
    ".npy": Format(npy.read, packed=False),
    ".npz": Format(npz.read, packed=False),
}


def read_graph(
    path: Source | Table | Sequence[Source],
    *,
    weight: str | int | None = "weight",
    source: str | int | None = None,
    target: str | int | None = None,
    nodes: Source | None = None,
    directed: bool | None = None,
    format: str | None = None,
) -> Graph:
    r"""Read a graph from a file, whose extension names the format, or from a table in memory.

    Parameters
    ----------
    path : path, stream of bytes, list of them, or table
        An edge list (`.csv`, `.tsv`, `.txt`, `.dat`, `.edgelist`, `.edges`, `.el`, `.parquet`),
        DIMACS shortest paths (`.gr`), MatrixMarket (`.mtx`), METIS (`.graph`), Pajek (`.net`),
        `.ncol`, a TNTP network (`_net.tntp`) or trips (`_trips.tntp`), GraphML, GML or GEXF
        (`.graphml`, `.gml`, `.gexf`), a dense matrix (`.npy`; inf is no edge), or a sparse or dense
        one in an archive (`.npz`). Text may be compressed (`.gz`, `.bz2`, `.xz`, `.zst`). The edges
        of several files make one graph, nodes of one label being one. A table is a DataFrame of
        pandas or Polars, or a Table of Arrow, and read as if it were in a file; its nodes keep
        their type.
    weight : str, int or None, default "weight"
        The column, by name or by number from 1 on, or the edge attribute that holds the weights.
        By default the first that is there of weight, distance, length, cost, ...; with none, an
        edge weighs its great-circle length in kilometres where the nodes have latitude and
        longitude, and 1 where not. None counts legs: every edge weighs 1.
    source, target : str or int, optional
        The columns of an edge list that hold the ends, by name or number. By default those of the
        usual names, or the first two.
    nodes : path, optional
        A table of the nodes with a header: `id` (or `iata`, `node`, `code`, `name`), and
        optionally `city` or `name`, and `latitude` and `longitude` or `x` and `y`. It gives the
        node order, and every node of the graph must be in it.
    directed : bool, optional
        False: every edge leads both ways. By default what the file says, an edge list by a column
        `oneway`, edge by edge as in OpenStreetMap (yes, no, true, false, 1, 0, -1 or reverse; no
        word is no), by a column `directed` or Gephi's `Type`, or by a comment; one that does not
        say is directed. True: the same, as edges of one direction each.
    format : str, optional
        An extension, such as "csv" or "csv.gz", that goes before that of the path. A stream needs
        it.

    Returns
    -------
    Graph
        Its `weight_source`, `direction_source` and `warnings` say what was read.

    Raises
    ------
    GraphFileError
        The file is malformed. The text gives path, line, what came and what was expected.
    OSError
        The file cannot be opened.
    ModuleNotFoundError
        The format needs another package, and it is not installed.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "triangle.csv")
    >>> _ = path.write_text("from,to,km\nA,B,3\nB,C,4\nC,A,5\n")
    >>> graph = read_graph(path)
    >>> graph.nodes, graph.row, graph.col, graph.weight, graph.unit
    (['A', 'B', 'C'], array([0, 1, 2]), array([1, 2, 0]), array([3., 4., 5.]), 'km')
    >>> graph.weight_source
    'km (column 3)'
    """
    weight, source, target = (
        _column(name, word)
        for name, word in (("weight", weight), ("source", source), ("target", target))
    )
    if directed not in (None, True, False):
        raise TypeError(f"directed is True, False or None, got {directed!r}")
    sources: list[Any] = [*path] if isinstance(path, (list, tuple)) else [path]
    files = [tables.Table(x) if is_table(x) else File.of(x, format) for x in sources]
    if not files:
        raise ValueError("a graph is read from one file or more, got an empty list")
    table = None if nodes is None else read_nodes(File.of(nodes))
    graphs = [_read(file, weight, source, target, table, directed) for file in files]
    return graphs[0] if len(graphs) == 1 else joined(files, graphs)


def columns_of(
    table: Table, weight: Any, source: Any, target: Any
) -> tuple[list[NDArray[Any]], NDArray[Any] | None]:
    """Copies of what a table says of the ends and directions of its edges; and their weights."""
    given, words = tables.Table(table), {"weight": weight, "source": source, "target": target}
    chosen = (_column(name, word) for name, word in words.items())
    columns = edge_list.headed(given, None, given.names, *chosen)
    said = [np.array(given.column(k)) for k in (columns.source, columns.target, *columns.ways)]
    return said, None if columns.weight is None else given.weights(columns.weight)


def _column(name: str, word: Any) -> str | None:
    """A column's name or number as a word."""
    if word is None:
        return None
    number = isinstance(word, (int, np.integer)) and not isinstance(word, bool)
    if not (number or (isinstance(word, str) and word.strip())):
        raise TypeError(f"{name} is a column's name or its number from 1 on, got {word!r}")
    return str(word).strip()


def _read(
    file: File | tables.Table,
    weight: str | None,
    source: str | None,
    target: str | None,
    nodes: Nodes | None,
    directed: bool | None,
) -> Graph:
    """The graph of one file."""
    read = _reader(file, weight, source, target)
    reading = read(file, weight)
    graph, kind = reading.graph, reading.graph.weight_source
    if nodes is not None:
        graph = nodes.of(file, reading)
    if weight is None or not reading.weighted:
        kind = "none: legs are counted"
        graph = replace(graph, weight=np.ones(len(graph.row)), unit="")
        if weight is not None and graph.geographic:
            kind, graph = "great-circle length of each edge", great_circle_weights(file, graph)
    graph = replace(graph, weight_source=kind)
    if weight == "weight" and reading.unused:
        names = ", ".join(reading.unused)
        if reading.weighted:
            graph = replace(graph, notes=(*graph.notes, f"other numbers of the edges: {names}"))
        else:
            warning = (
                f"weight {kind}; numbers of the edges that are not used: {names}; choose one "
                f"by {named('weight', 'NAME')}"
            )
            graph = replace(graph, warnings=(*graph.warnings, warning))
    if directed is False or (directed and reading.two_way is None):
        graph = replace(graph, direction_source=named("directed", directed))
    if directed is False:
        return replace(graph, directed=False)
    if not graph.directed and directed:
        return in_both_directions(graph)
    return graph if reading.two_way is None else in_both_directions(graph, reading.two_way)


def _reader(
    file: File | tables.Table, weight: str | None, source: str | None, target: str | None
) -> Callable[[Any, str | None], Reading]:
    """What reads a file that may have columns of these names, or an error."""
    if isinstance(file, tables.Table):
        return functools.partial(tables.read, source=source, target=target)
    form = FORMATS.get(file.kind)
    if form is None and file.path.name.startswith("out.") and not file.format:  # of KONECT
        form = FORMATS[".txt"]
    if form is None or (file.packing and not form.packed):
        kind = f"{file.kind}{file.packing}" or "(none)"
        packings = ", ".join(PACKINGS)
        raise file.error(
            None,
            f"unknown extension {kind!r}; accepted: {', '.join(FORMATS)}, and {packings} of the "
            f"text formats; or name one of these by {named('format', 'EXT')}",
        )
    if weight not in ("weight", None) and not form.columns:
        choices = ", ".join(kind for kind, form in FORMATS.items() if form.columns)
        raise file.error(
            None,
            f"a {file.kind} file has one weight an edge and no column {weight!r}; a weight "
            f"column can be chosen in {choices}",
        )
    if form.read is edge_list.read and file.kind != ".parquet" and _is_matrix_market(file):
        form = FORMATS[".mtx"]
    if form.read is edge_list.read:
        return functools.partial(edge_list.read, source=source, target=target)
    if source is not None or target is not None:
        raise file.error(None, f"columns of the ends are those of edge lists, not of {file.kind}")
    return form.read


def _is_matrix_market(file: File) -> bool:
    """Whether a table is MatrixMarket by another name: in Network Repository the sizes may lack."""
    lines = file.lines()
    banner = next(lines)[1].lower().split()
    if banner[:1] != ["%%matrixmarket"]:
        return False
    first = next((line.split() for _, line in lines if line.strip() and line[0] != "%"), [])
    return "coordinate" not in banner or len(first) != 2
