"""The formats, by extension, and the one function that reads them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

from . import dimacs, edge_list, matrix_market, metis, networkx, npy, npz, tntp
from .file import File, Reading
from .graph import Graph, in_both_directions
from .nodes import great_circle_weights, with_nodes

__all__ = ["FORMATS", "Format", "read_graph"]


@dataclass(frozen=True)
class Format:
    """How files of one extension are read.

    Attributes
    ----------
    read : callable
        Takes the file and the name of the weights or None.
    columns : bool
        Whether the weights are one column, or attribute, of several.
    packed : bool
        Whether files may be gzipped.
    """

    read: Callable[[File, str | None], Reading]
    columns: bool = False
    packed: bool = True


#: All formats. A new one is a module with a function `read`, and a line here.
FORMATS = {
    ".gr": Format(dimacs.read),
    ".mtx": Format(matrix_market.read),
    ".graph": Format(metis.read),
    ".csv": Format(edge_list.read, columns=True),
    ".tsv": Format(edge_list.read, columns=True),
    ".txt": Format(edge_list.read, columns=True),
    ".tntp": Format(tntp.read, columns=True),
    ".graphml": Format(networkx.read, columns=True),
    ".gml": Format(networkx.read, columns=True),
    ".npy": Format(npy.read, packed=False),
    ".npz": Format(npz.read, packed=False),
}


def read_graph(
    path: str | PathLike[str],
    *,
    weight: str | None = None,
    nodes: str | PathLike[str] | None = None,
    directed: bool | None = None,
) -> Graph:
    r"""Read a graph from a file; the extension names the format.

    Parameters
    ----------
    path : path
        DIMACS shortest paths (`.gr`), MatrixMarket (`.mtx`), an edge list (`.csv`, `.tsv`,
        `.txt`), a TNTP network (`_net.tntp`), GraphML or GML (`.graphml`, `.gml`; these need
        NetworkX), a dense matrix (`.npy`; inf is no edge), or a sparse matrix (`.npz`, as
        `scipy.sparse.save_npz` writes it or with arrays row, col, data and shape). All but the
        last two may be gzipped (`.gr.gz`).
    weight : str, optional
        The column or edge attribute that holds the weights. By default the first that is there
        of weight, distance, length, cost, ...; with none, an edge weighs its great-circle length
        in kilometres where the nodes have latitude and longitude, and 1 where not.
    nodes : path, optional
        A table of the nodes with a header: `id` (or `iata`, `node`, `code`, `name`), and
        optionally `city` or `name`, and `latitude` and `longitude` or `x` and `y`. It gives the
        node order, and every node of the graph must be in it.
    directed : bool, optional
        Whether an edge leads one way only. By default what the file says; an edge list, which
        cannot say, is directed.

    Returns
    -------
    Graph

    Raises
    ------
    GraphFileError
        The file is malformed. The text gives path, line, what came and what was expected.
    OSError
        The file cannot be opened.
    ModuleNotFoundError
        The format needs NetworkX, and it is not installed.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "triangle.csv")
    >>> _ = path.write_text("from,to,km\nA,B,3\nB,C,4\nC,A,5\n")
    >>> graph = read_graph(path)
    >>> graph.nodes, graph.row, graph.col, graph.weight, graph.unit
    (['A', 'B', 'C'], array([0, 1, 2]), array([1, 2, 0]), array([3., 4., 5.]), 'km')
    """
    file = File(Path(path))
    form = _format(file, weight)
    reading = form.read(file, weight)
    graph = reading.graph
    if nodes is not None:
        graph = with_nodes(file, reading, File(Path(nodes)))
    if not reading.weighted and graph.geographic:
        graph = great_circle_weights(file, graph)
    if directed is not None and directed != graph.directed:
        graph = in_both_directions(graph) if directed else replace(graph, directed=False)
    return graph


def _format(file: File, weight: str | None) -> Format:
    """The format of a file that may have a weight column of that name, or an error."""
    form = FORMATS.get(file.kind)
    if form is None or (file.packed and not form.packed):
        kind = f"{file.kind}{'.gz' if file.packed else ''}" or "(none)"
        raise file.error(
            None,
            f"unknown extension {kind!r}; accepted: {', '.join(FORMATS)}, and .gz of the text "
            "formats",
        )
    if weight is not None and not form.columns:
        choices = ", ".join(kind for kind, form in FORMATS.items() if form.columns)
        raise file.error(
            None,
            f"a {file.kind} file has one weight an edge and no column {weight!r}; a weight "
            f"column can be chosen in {choices}",
        )
    return form
