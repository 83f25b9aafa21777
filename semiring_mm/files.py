"""Graphs from files: the formats road, transport and matrix collections come in.

`read_graph` is the one entry. Text formats are parsed here, so that a malformed file is refused
with its line number; only GraphML and GML go through NetworkX.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Graph", "GraphFileError", "great_circle", "read_graph", "read_matrix"]

EARTH_RADIUS_KM = 6371.0088  # IUGG mean radius

# A result has n² entries, so a larger count is a mistake in the file, best found before the
# labels are built.
_MAX_NODES = 50_000_000

_FROM = "from source src u tail origin start from_node fromnode fromnodeid init_node bus0".split()
_TO = "to target dst v head destination dest end to_node tonode tonodeid term_node bus1".split()
_WEIGHT = "weight distance dist length cost w time duration capacity probability".split()
_ID = "id iata node code label name".split()
_NAME = "city name".split()
_LONGITUDE = "longitude lon lng long".split()
_LATITUDE = "latitude lat".split()
_UNITS = "km m mi miles s min h".split()


class GraphFileError(ValueError):
    """A file that is not the graph it should be; the text starts with path and line number."""


@dataclass(frozen=True)
class Graph:
    """A weighted graph read from a file: the edge list and what is known of its nodes.

    Attributes
    ----------
    nodes : list of str
        Labels, in the order of the rows and columns of every result.
    row, col : (m,) int64
        Where each edge starts and ends, as positions in `nodes`. Parallel edges and loops are
        kept. Where `directed` is False an entry stands for both directions.
    weight : (m,) float64
        Never NaN; a zero is an edge of weight zero.
    directed : bool
        Whether an entry leads only from `row` to `col`.
    coordinates : (n, 2) float64 or None
        Longitude and latitude where `geographic`, else x and y. NaN where a node has none.
    geographic : bool
        Whether `coordinates` are degrees on the Earth.
    names : list of str or None
        What to call the nodes in print, where that is more than the label.
    unit : str
        Unit of the weights, "" where unknown.
    notes : tuple of str
        What a reader of the results should know.
    """

    nodes: list[str]
    row: NDArray[np.int64]
    col: NDArray[np.int64]
    weight: NDArray[np.float64]
    directed: bool
    coordinates: NDArray[np.float64] | None = None
    geographic: bool = False
    names: list[str] | None = None
    unit: str = ""
    notes: tuple[str, ...] = ()


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
    file = _File(Path(path))
    table = None if nodes is None else _read_nodes(_File(Path(nodes)))
    reader = _READERS.get(file.kind)
    if reader is None:
        raise file.error(
            None,
            f"unknown extension {file.kind or '(none)'!r}; accepted: {', '.join(_READERS)}, "
            "and .gz of the text formats",
        )
    if weight is not None and file.kind not in _NAMED_WEIGHTS:
        raise file.error(
            None,
            f"a {file.kind} file has one weight an edge and no column {weight!r}; a weight "
            f"column can be chosen in {', '.join(_NAMED_WEIGHTS)}",
        )
    read = reader(file, weight)
    graph = read.graph
    if table is not None:
        graph = _place(file, read, table)
    if not read.weighted and graph.geographic:
        graph = _measure(file, graph)
    if directed is not None and directed != graph.directed:
        graph = _both_ways(graph) if directed else replace(graph, directed=False)
    return graph


def read_matrix(path: str | PathLike[str]) -> NDArray[np.float64]:
    """Read a dense matrix of weights from a `.npy` file, without making an edge list of it.

    Parameters
    ----------
    path : path
        A square matrix of real numbers; inf is no edge, and so is False in a matrix of bool
        (True is an edge of weight 1).

    Returns
    -------
    (n, n) float64
        Memory-mapped and read-only where the file holds float64.

    Raises
    ------
    GraphFileError
        Not a square real matrix, or a NaN in it.
    OSError
        The file cannot be opened.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.npy")
    >>> np.save(path, np.array([[0, 2], [3, 0]]))
    >>> read_matrix(path)
    array([[0., 2.],
           [3., 0.]])
    """
    file = _File(Path(path))
    try:
        array = np.load(file.path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise file.error(None, f"not a .npy file of numbers ({error})") from None
    if not isinstance(array, np.ndarray):
        raise file.error(None, "a .npz archive under the name .npy; rename it")
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise file.error(None, f"expected a square matrix, got shape {array.shape}")
    if array.dtype == np.bool_:
        return np.where(array, 1.0, np.inf)
    if array.dtype.kind not in "iuf":
        raise file.error(None, f"expected real numbers, got dtype {array.dtype}")
    matrix = np.asarray(array, dtype=np.float64)
    # Row by row: isnan of the whole is a temporary of n² bytes.
    for i, values in enumerate(matrix):
        if (wrong := np.isnan(values) | np.isneginf(values)).any():
            j = int(wrong.argmax())
            raise file.error(
                None, f"entry ({i}, {j}) is {values[j]}; weights are numbers, and inf is no edge"
            )
    return matrix


def great_circle(start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
    """Great-circle distances in kilometres on a sphere of the Earth's mean radius.

    Parameters
    ----------
    start, end : (..., 2) float64
        Longitude and latitude in degrees.

    Returns
    -------
    (...) float64

    Examples
    --------
    >>> round(float(great_circle(np.array([0.0, 0.0]), np.array([180.0, 0.0]))))
    20015
    """
    (lon1, lat1), (lon2, lat2) = (np.moveaxis(np.radians(x), -1, 0) for x in (start, end))
    # Haversine: unlike the arc cosine it keeps its digits for neighbours.
    h = np.sin((lat2 - lat1) / 2) ** 2
    h = h + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
    distance: NDArray[np.float64] = 2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.minimum(h, 1.0)))
    return distance


# --- the file as such -------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    path: Path

    @property
    def kind(self) -> str:
        """The extension that names the format, below a `.gz`."""
        name = self.path.name.lower()
        kind = Path(name.removesuffix(".gz")).suffix
        return kind + ".gz" if kind in (".npy", ".npz") and name.endswith(".gz") else kind

    def error(self, line: int | None, message: str) -> GraphFileError:
        place = str(self.path) if line is None else f"{self.path}:{line}"
        return GraphFileError(f"{place}: {message}")

    def read(self) -> bytes:
        data = self.path.read_bytes()
        if self.path.suffix.lower() == ".gz":
            try:
                data = gzip.decompress(data)
            except (OSError, EOFError, zlib.error) as error:
                raise self.error(None, f"not a whole gzip file ({error})") from None
        if not data.strip():
            raise self.error(None, "the file is empty")
        return data

    def lines(self) -> list[str]:
        data = self.read()
        if (junk := data.find(b"\0")) >= 0:
            raise self.error(data.count(b"\n", 0, junk) + 1, "binary data, expected text")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise self.error(
                data.count(b"\n", 0, error.start) + 1,
                f"byte 0x{data[error.start]:02x} is not UTF-8; expected text in UTF-8",
            ) from None
        # Not str.splitlines: it also splits at characters that editors do not count as lines.
        return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")

    def kept(self, m: int, promised: int, what: str, lines: Sequence[int], last: int) -> None:
        """Hold the file to the number of edges promised on a line of it."""
        if len(lines) > m:
            raise self.error(lines[m], f"more than the {m} {what} promised on line {promised}")
        if len(lines) < m:
            raise self.error(
                last,
                f"the file ends after {len(lines)} of the {m} {what} promised on line {promised}; "
                "is it cut short?",
            )

    def count(self, line: int, word: str, what: str) -> int:
        """A number of nodes or edges that a file promises."""
        value = int(word) if word.isascii() and word.isdigit() else -1
        if value < 0 or (what == "nodes" and value > _MAX_NODES):
            raise self.error(line, f"expected a number of {what}, got {_quote(word)}")
        return value


@dataclass(frozen=True)
class _Read:
    """What a reader found: the graph, whether the file had weights, where each node came up."""

    graph: Graph
    weighted: bool = True
    lines: Sequence[int] = ()


def _quote(line: str) -> str:
    line = line.strip()
    return repr(line if len(line) <= 60 else line[:57] + "...")


def _numbered(n: int) -> list[str]:
    return [str(i) for i in range(1, n + 1)]


def _edges(
    file: _File,
    n: int,
    row: list[int],
    col: list[int],
    weight: list[float],
    lines: Sequence[int],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Arrays of 0-based nodes and weights from 1-based lists, each checked."""
    for nodes in (row, col):
        if nodes and not (min(nodes) >= 1 and max(nodes) <= n):
            k = next(k for k, node in enumerate(nodes) if not 1 <= node <= n)
            raise file.error(lines[k], f"node {nodes[k]} is out of range: nodes are 1 to {n}")
    values = np.array(weight, dtype=np.float64)
    # Not even inf: it is also what a number too large for a float reads as.
    if (wrong := ~np.isfinite(values)).any():
        k = int(wrong.argmax())
        raise file.error(lines[k], f"weight {values[k]}; expected a finite number")
    ends = (np.array(nodes, dtype=np.int64) - 1 for nodes in (row, col))
    return next(ends), next(ends), values


# --- formats that number their nodes -----------------------------------------------------------


def _read_dimacs(file: _File, weight: str | None) -> _Read:
    n = m = promised = 0
    row: list[int] = []
    col: list[int] = []
    values: list[float] = []
    lines: list[int] = []
    text = file.lines()
    for number, line in enumerate(text, 1):
        kind = line[:1]
        if kind == "a" and promised:
            try:
                tag, u, v, w = line.split()
                if tag != "a" or "_" in line:  # int and float would take "1_0"
                    raise ValueError
                row.append(int(u))
                col.append(int(v))
                values.append(float(w))
            except ValueError:
                raise file.error(
                    number, f"expected 'a FROM TO WEIGHT', got {_quote(line)}"
                ) from None
            lines.append(number)
        elif kind == "p":
            fields = line.split()
            if promised:
                raise file.error(number, f"a second 'p' line, after that on line {promised}")
            if len(fields) != 4 or fields[:2] != ["p", "sp"]:
                raise file.error(number, f"expected 'p sp NODES ARCS', got {_quote(line)}")
            n, m = file.count(number, fields[2], "nodes"), file.count(number, fields[3], "arcs")
            promised = number
        elif kind == "a":
            raise file.error(number, f"expected 'p sp NODES ARCS' first, got {_quote(line)}")
        elif kind != "c" and line.strip():
            raise file.error(
                number, f"expected a line that starts with c, p or a, got {_quote(line)}"
            )
    if not promised:
        raise file.error(len(text), "no line 'p sp NODES ARCS' in the file")
    file.kept(m, promised, "arcs", lines, len(text))
    return _Read(Graph(_numbered(n), *_edges(file, n, row, col, values, lines), directed=True))


def _read_matrix_market(file: _File, weight: str | None) -> _Read:
    text = file.lines()
    banner = text[0].lower().split()
    if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"]:
        raise file.error(
            1,
            "expected '%%MatrixMarket matrix coordinate real general' or the like, got "
            + _quote(text[0]),
        )
    for word, accepted in zip(
        banner[2:],
        (
            ("coordinate", "array"),
            ("real", "integer", "pattern"),
            ("general", "symmetric"),
        ),
        strict=True,
    ):
        if word not in accepted:
            raise file.error(1, f"{word!r} is not supported; accepted: {', '.join(accepted)}")
    layout, field, symmetry = banner[2:]
    body = [
        (number, line)
        for number, line in enumerate(text, 1)
        if line.strip() and not line.startswith("%")
    ]
    if not body:
        raise file.error(len(text), "the file ends before the line with the matrix's size")
    (promised, line), *entries = body
    sizes = line.split()
    expected = "ROWS COLUMNS ENTRIES" if layout == "coordinate" else "ROWS COLUMNS"
    if len(sizes) != len(expected.split()):
        raise file.error(promised, f"expected '{expected}', got {_quote(line)}")
    n = file.count(promised, sizes[0], "nodes")
    if file.count(promised, sizes[1], "nodes") != n:
        raise file.error(promised, f"a graph is a square matrix, got {sizes[0]} × {sizes[1]}")
    if layout == "coordinate":
        m = file.count(promised, sizes[2], "entries")
    elif field == "pattern":
        raise file.error(1, "'array pattern' is not a MatrixMarket format")
    else:
        m = n * n if symmetry == "general" else n * (n + 1) // 2
    lines = [number for number, _ in entries]
    expected = "VALUE" if layout == "array" else "ROW COLUMN VALUE"
    if field == "pattern":
        expected = "ROW COLUMN"
    width = len(expected.split())
    row: list[int] = []
    col: list[int] = []
    values: list[float] = []
    for number, line in entries:
        fields = line.split()
        try:
            if len(fields) != width or "_" in line:
                raise ValueError
            if layout == "coordinate":
                row.append(int(fields[0]))
                col.append(int(fields[1]))
            values.append(float(fields[-1]) if field != "pattern" else 1.0)
        except ValueError:
            raise file.error(number, f"expected '{expected}', got {_quote(line)}") from None
    file.kept(m, promised, "entries", lines, len(text))
    directed = symmetry == "general"
    if layout == "coordinate":
        edges = _edges(file, n, row, col, values, lines)
        return _Read(Graph(_numbered(n), *edges, directed=directed), field != "pattern")
    # Column by column, the lower triangle only where symmetric.
    cols, rows = np.divmod(np.arange(n * n), max(n, 1)) if directed else np.triu_indices(n)
    weights = np.array(values, dtype=np.float64)
    if (wrong := np.isnan(weights) | np.isneginf(weights)).any():
        k = int(wrong.argmax())
        raise file.error(lines[k], f"weight {weights[k]}; expected a number, or inf for no edge")
    kept = ~np.isposinf(weights)
    return _Read(Graph(_numbered(n), rows[kept], cols[kept], weights[kept], directed=directed))


def _read_tntp(file: _File, weight: str | None) -> _Read:
    text = file.lines()
    metadata: dict[str, tuple[int, str]] = {}
    start = 0
    for number, line in enumerate(text, 1):
        if match := re.match(r"\s*<([^>]*)>(.*)", line):
            tag = " ".join(match[1].upper().split())
            if tag in metadata:
                first = metadata[tag][0]
                raise file.error(number, f"a second <{tag}>, after that on line {first}")
            metadata[tag] = number, match[2].strip()
            if tag == "END OF METADATA":
                start = number
                break
    if not start:
        raise file.error(len(text), "no <END OF METADATA> in the file; is it a TNTP network?")

    def promise(tag: str, what: str) -> tuple[int, int]:
        if tag not in metadata:
            raise file.error(start, f"no <{tag}> before <END OF METADATA>")
        number, words = metadata[tag]
        return number, file.count(number, words, what)

    _, n = promise("NUMBER OF NODES", "nodes")
    promised, m = promise("NUMBER OF LINKS", "links")

    header: list[str] | None = None
    column = 0
    unit = ""
    row: list[int] = []
    col: list[int] = []
    values: list[float] = []
    lines: list[int] = []
    for number, line in enumerate(text[start:], start + 1):
        line = line.strip()
        if line.startswith("~"):
            if header is not None:
                raise file.error(number, "a second line of column names")
            names = line.strip("~;\t ")
            header = re.split(r"\s*\t\s*" if "\t" in names else r"\s+", names)
            if len(header) < 3:
                raise file.error(number, f"expected the names of the columns, got {_quote(line)}")
            column, unit = _weight_column(
                file, number, header[2:], "length" if weight is None else weight
            )
            column += 2
        elif line:
            if header is None:
                raise file.error(number, f"expected '~' and the column names, got {_quote(line)}")
            fields = line.rstrip("; \t").split()
            try:
                if not line.endswith(";") or len(fields) != len(header) or "_" in line:
                    raise ValueError
                row.append(int(fields[0]))
                col.append(int(fields[1]))
                values.append(float(fields[column]))
                lines.append(number)
            except ValueError:
                raise file.error(
                    number,
                    f"expected {len(header)} numbers ({', '.join(header)}) and ';', got "
                    + _quote(line),
                ) from None
    file.kept(m, promised, "links", lines, len(text))
    notes: tuple[str, ...] = ()
    if "FIRST THRU NODE" in metadata:
        zones = promise("FIRST THRU NODE", "the first through node")[1] - 1
        if zones > 0:
            notes = (f"nodes 1-{zones} are zone centroids; paths here may pass through them",)
    edges = _edges(file, n, row, col, values, lines)
    return _Read(Graph(_numbered(n), *edges, directed=True, unit=unit, notes=notes))


# --- tables ------------------------------------------------------------------------------------


def _column_name(column: str) -> tuple[str, str]:
    """'Length (miles)' → ('length', 'miles'), 'distance_km' → ('distance', 'km')."""
    column = column.strip().casefold()
    if match := re.fullmatch(r"(.+?)\s*[(\[](.*)[)\]]", column):
        column, unit = match[1], match[2].strip()
    elif match := re.fullmatch(rf"(.+)[_ ]({'|'.join(_UNITS)})", column):
        column, unit = match[1], match[2]
    else:
        unit = column if column in _UNITS and len(column) > 1 else ""
    return re.sub(r"\s+", "_", column), unit


def _find(header: list[str], names: list[str]) -> int | None:
    """The column that has the first of these names that any has."""
    columns = [_column_name(column)[0] for column in header]
    return next((columns.index(name) for name in names if name in columns), None)


def _weight_column(
    file: _File, number: int | None, header: list[str], weight: str
) -> tuple[int, str]:
    """Position and unit of the column that the caller or the format names."""
    for form in (str.strip, str.casefold, lambda name: _column_name(name)[0]):
        columns = [form(column) for column in header]
        if form(weight) in columns:
            k = columns.index(form(weight))
            return k, _column_name(header[k])[1]
    raise file.error(number, f"no column {weight!r}; columns: {', '.join(header)}")


def _rows(file: _File) -> Iterable[tuple[int, list[str]]]:
    """Line number and fields of each row, whatever the delimiter; comments and blanks skipped."""
    lines = file.lines()
    first = next((s for s in lines if s.strip() and not s.startswith(("#", "%"))), None)
    if first is None:
        raise file.error(len(lines), "only comments and blank lines in the file")
    delimiter = next((mark for mark in "\t;," if mark in first), None)
    if delimiter is None:
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.startswith(("#", "%")):
                yield number, line.split()
        return
    # A comment may hold a quote, which would swallow the lines behind it.
    plain = ("" if line.startswith(("#", "%")) else line + "\n" for line in lines)
    reader = csv.reader(plain, delimiter=delimiter, strict=True)
    try:
        for fields in reader:
            if any(field.strip() for field in fields):
                yield reader.line_num, [field.strip() for field in fields]
    except csv.Error as error:
        raise file.error(reader.line_num, f"{error}") from None


def _check_header(file: _File, number: int, header: list[str]) -> None:
    for k, column in enumerate(header):
        if column and column in header[:k]:
            raise file.error(number, f"two columns are named {column!r}")


def _read_edge_list(file: _File, weight: str | None) -> _Read:
    rows = iter(_rows(file))
    number, fields = next(rows)
    source, target = _find(fields, _FROM), _find(fields, _TO)
    column: int | None
    unit = ""
    pending: list[tuple[int, list[str]]] = []
    if source is not None and target is not None:
        header = fields
        _check_header(file, number, header)
        if weight is not None:
            column, unit = _weight_column(file, number, header, weight)
        else:
            column = _find(header, _WEIGHT + _UNITS)
            unit = "" if column is None else _column_name(header[column])[1]
    else:
        header, pending = [], [(number, fields)]
        source, target, column = 0, 1, 2 if len(fields) == 3 else None
        if weight is not None:
            raise file.error(
                number,
                f"no column {weight!r}: the file has no header line that names a from and a to "
                f"column, got {', '.join(fields)}",
            )
        if len(fields) not in (2, 3):
            raise file.error(
                number,
                "expected FROM, TO and perhaps WEIGHT, or a header line with columns from and "
                f"to, got {len(fields)} fields: {_quote(', '.join(fields))}",
            )
    width = len(header or fields)
    used = max(source, target, -1 if column is None else column) + 1

    index: dict[str, int] = {}
    first: list[int] = []
    row: list[int] = []
    col: list[int] = []
    values: list[float] = []
    for number, fields in itertools.chain(pending, rows):
        if not used <= len(fields) <= width:
            raise file.error(
                number,
                f"expected {width} fields{' (' + ', '.join(header) + ')' if header else ''}, got "
                f"{len(fields)}: {_quote(', '.join(fields))}",
            )
        for ends, k in ((row, source), (col, target)):
            label = fields[k]
            if not label:
                raise file.error(number, f"a node without a name: {_quote(', '.join(fields))}")
            if label not in index:
                index[label] = len(index)
                first.append(number)
            ends.append(index[label])
        if column is not None:
            word = fields[column]
            try:
                values.append(float(word) if "_" not in word else np.nan)
            except ValueError:
                values.append(np.nan)
            if not math.isfinite(values[-1]):
                raise file.error(number, f"expected a finite number as weight, got {_quote(word)}")
    if not row:
        raise file.error(number, "a header line and no edges")
    if column is None:
        values = [1.0] * len(row)
    graph = Graph(
        list(index),
        np.array(row, dtype=np.int64),
        np.array(col, dtype=np.int64),
        np.array(values, dtype=np.float64),
        directed=True,
        unit=unit,
    )
    return _Read(graph, weighted=column is not None, lines=first)


@dataclass(frozen=True)
class _Nodes:
    path: Path
    nodes: list[str]
    names: list[str] | None
    coordinates: NDArray[np.float64] | None
    geographic: bool


def _read_nodes(file: _File) -> _Nodes:
    rows = iter(_rows(file))
    number, header = next(rows)
    _check_header(file, number, header)
    key = _find(header, _ID)
    if key is None:
        raise file.error(
            number,
            f"expected a header line with a column {', '.join(_ID[:-1])} or {_ID[-1]}, got "
            + _quote(", ".join(header)),
        )
    name = _find(header, _NAME)
    across, up = _find(header, _LONGITUDE), _find(header, _LATITUDE)
    geographic = across is not None and up is not None
    if not geographic:
        across, up = _find(header, ["x"]), _find(header, ["y"])

    seen: dict[str, int] = {}
    names: list[str] = []
    points: list[tuple[float, float]] = []
    for number, fields in rows:
        if len(fields) != len(header):
            raise file.error(
                number,
                f"expected {len(header)} fields ({', '.join(header)}), got {len(fields)}: "
                + _quote(", ".join(fields)),
            )
        label = fields[key]
        if not label:
            raise file.error(number, f"a node without a name: {_quote(', '.join(fields))}")
        if label in seen:
            raise file.error(number, f"node {label!r} again, after line {seen[label]}")
        seen[label] = number
        if name is not None:
            names.append(fields[name])
        if across is not None and up is not None:
            points.append(
                (
                    _coordinate(file, number, header[across], fields[across], 360 * geographic),
                    _coordinate(file, number, header[up], fields[up], 90 * geographic),
                )
            )
    if not seen:
        raise file.error(number, "a header line and no nodes")
    return _Nodes(
        file.path,
        list(seen),
        names if name not in (None, key) else None,
        np.array(points) if points else None,
        geographic,
    )


def _coordinate(file: _File, number: int, column: str, word: str, limit: float) -> float:
    if not word:
        return np.nan
    try:
        value = float(word)
    except ValueError:
        value = np.nan
    if not np.isfinite(value) or (limit and abs(value) > limit):
        bound = f" from {-limit} to {limit}" if limit else ""
        raise file.error(number, f"{column}: expected a number{bound}, got {_quote(word)}")
    return value


def _place(file: _File, read: _Read, table: _Nodes) -> Graph:
    """The graph with the nodes, in the order, of a table."""
    graph = read.graph
    index = {label: k for k, label in enumerate(table.nodes)}
    for k, label in enumerate(graph.nodes):
        if label not in index:
            line = read.lines[k] if read.lines else None
            raise file.error(line, f"node {label!r} is not in {table.path}")
    order = np.array([index[label] for label in graph.nodes], dtype=np.int64)
    return replace(
        graph,
        nodes=table.nodes,
        row=order[graph.row],
        col=order[graph.col],
        coordinates=table.coordinates,
        geographic=table.geographic,
        names=table.names,
    )


def _measure(file: _File, graph: Graph) -> Graph:
    """Great-circle lengths for the edges of a file that has no weights."""
    points = graph.coordinates
    assert points is not None
    used = np.concatenate([graph.row, graph.col])
    if (bare := np.isnan(points[used].sum(axis=1))).any():
        label = graph.nodes[int(used[bare.argmax()])]
        raise file.error(
            None,
            f"the file has no weights and node {label!r} no coordinates to measure its edges by",
        )
    return replace(graph, weight=great_circle(points[graph.row], points[graph.col]), unit="km")


def _both_ways(graph: Graph) -> Graph:
    """An undirected graph as a directed one: every edge once in each direction."""
    other = graph.row != graph.col
    return replace(
        graph,
        row=np.concatenate([graph.row, graph.col[other]]),
        col=np.concatenate([graph.col, graph.row[other]]),
        weight=np.concatenate([graph.weight, graph.weight[other]]),
        directed=True,
    )


# --- formats that others parse -----------------------------------------------------------------


def _read_networkx(file: _File, weight: str | None) -> _Read:
    try:
        import networkx as nx
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{file.path}: {file.kind} files are read with NetworkX; "
            'write: pip install "semiring-mm[io]"'
        ) from None
    from xml.etree.ElementTree import ParseError

    data = io.BytesIO(file.read())
    try:
        graphml = file.kind == ".graphml"
        source = nx.read_graphml(data) if graphml else nx.read_gml(data, label=None)
    except ParseError as error:
        raise file.error(error.position[0], f"not XML ({error})") from None
    except (nx.NetworkXException, ValueError, KeyError, TypeError) as error:
        raise file.error(None, f"not a {file.kind} graph ({error})") from None
    ids = list(source)
    attributes = [source.nodes[node] for node in ids]
    labels = [str(node) for node in ids]
    names: list[str] | None = None
    if all("label" in known for known in attributes):
        own = [str(known["label"]) for known in attributes]
        # GML names its nodes by label and numbers them by id, where the labels tell them apart.
        if file.kind == ".gml" and len(set(own)) == len(own):
            labels = own
        else:
            names = own
    index = {node: k for k, node in enumerate(ids)}
    edges = [(index[u], index[v], known) for u, v, known in source.edges(data=True)]

    column, unit = weight, ""
    if weight is None:
        present = sorted({name for *_, known in edges for name in known})
        if (k := _find(present, _WEIGHT + _UNITS)) is not None:
            column = present[k]
            unit = _column_name(column)[1]
    values = [1.0] * len(edges)
    if column is not None:
        for k, (u, v, known) in enumerate(edges):
            values[k] = _attribute(file, known, column, f"edge {labels[u]} - {labels[v]}")
    coordinates, geographic = _positions(attributes)
    graph = Graph(
        labels,
        np.array([u for u, *_ in edges], dtype=np.int64),
        np.array([v for _, v, _ in edges], dtype=np.int64),
        np.array(values, dtype=np.float64),
        directed=source.is_directed(),
        coordinates=coordinates,
        geographic=geographic,
        names=names,
        unit=unit,
    )
    return _Read(graph, weighted=column is not None)


def _attribute(file: _File, known: dict[str, Any], name: str, owner: str) -> float:
    if name not in known:
        there = ", ".join(sorted(known)) or "none"
        raise file.error(None, f"{owner} has no attribute {name!r}; it has: {there}")
    try:
        value = float(known[name])
    except (TypeError, ValueError):
        value = np.nan
    if not math.isfinite(value):
        raise file.error(None, f"{owner}: expected a finite number as {name}, got {known[name]!r}")
    return value


def _positions(
    attributes: list[dict[str, Any]],
) -> tuple[NDArray[np.float64] | None, bool]:
    """Coordinates that all nodes have, under one of the usual names."""
    pairs = [(lon, lat, True) for lon in _LONGITUDE for lat in _LATITUDE]
    for across, up, geographic in [*pairs, ("x", "y", False)]:
        try:
            points = [(float(known[across]), float(known[up])) for known in attributes]
        except (KeyError, TypeError, ValueError):
            continue
        return (np.array(points) if points else None), geographic
    points = []
    for known in attributes:
        numbers = re.findall(r"[-+]?[\d.]+(?:[eE][-+]?\d+)?", str(known.get("pos", "")))
        if len(numbers) != 2:
            return None, False
        points.append((float(numbers[0]), float(numbers[1])))
    return (np.array(points) if points else None), False


def _read_npy(file: _File, weight: str | None) -> _Read:
    matrix = read_matrix(file.path)
    n = len(matrix)
    row, col = np.nonzero(~np.isposinf(matrix))
    # A loop of weight 0 says nothing, and a matrix of distances has n of them.
    kept = (row != col) | (matrix[row, col] != 0)
    row, col = row[kept], col[kept]
    values = matrix[row, col]
    notes: tuple[str, ...] = ()
    if zeros := int(np.count_nonzero(values == 0)):
        notes = (f"{zeros} zeros off the diagonal are edges of weight 0; no edge is inf",)
    return _Read(Graph([str(i) for i in range(n)], row, col, values, directed=True, notes=notes))


def _read_npz(file: _File, weight: str | None) -> _Read:
    try:
        with np.load(file.path, allow_pickle=False) as archive:
            arrays = dict(archive) if isinstance(archive, np.lib.npyio.NpzFile) else {}
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise file.error(None, f"not a .npz archive of numbers ({error})") from None
    layout = "coo"
    if "format" in arrays:
        layout = arrays["format"].item()
        layout = layout.decode("ascii", "replace") if isinstance(layout, bytes) else str(layout)
    if layout not in ("csr", "csc", "coo"):
        raise file.error(
            None, f"a sparse matrix in format {layout!r}; accepted: csr, csc, coo (use .tocsr())"
        )
    needed = ["row", "col"] if layout == "coo" else ["indices", "indptr"]
    if absent := [name for name in [*needed, "data", "shape"] if name not in arrays]:
        raise file.error(
            None,
            f"no array {absent[0]!r} in the archive, which has: {', '.join(arrays) or 'none'}; "
            "expected what scipy.sparse.save_npz writes, or row, col, data and shape",
        )
    shape = tuple(arrays["shape"].ravel().tolist())
    if len(shape) != 2 or shape[0] != shape[1]:
        raise file.error(None, f"expected a square matrix, got shape {shape}")
    n = int(shape[0])
    data = arrays["data"]
    if data.dtype.kind not in "biuf" or data.ndim != 1:
        raise file.error(None, f"expected real numbers as data, got {data.dtype} {data.shape}")
    for name in needed:
        if arrays[name].dtype.kind not in "iu" or arrays[name].ndim != 1:
            raise file.error(None, f"expected integers as {name}, got {arrays[name].dtype}")
    first, second = (arrays[name].astype(np.int64) for name in needed)
    if layout != "coo":
        minor, starts = first, second
        counts = np.diff(starts)
        if len(starts) != n + 1 or starts[0] != 0 or (counts < 0).any() or starts[-1] > len(minor):
            raise file.error(None, f"indptr does not index the {n} rows of a {layout} matrix")
        minor, data = minor[: starts[-1]], data[: starts[-1]]
        major = np.repeat(np.arange(n), counts)
        first, second = (major, minor) if layout == "csr" else (minor, major)
    if not len(first) == len(second) == len(data):
        raise file.error(
            None,
            f"{len(first)} row, {len(second)} column and {len(data)} data entries; expected equal",
        )
    values = data.astype(np.float64)
    for k, wrong in (
        (0, (first < 0) | (first >= n) | (second < 0) | (second >= n)),
        (1, ~np.isfinite(values)),
    ):
        if wrong.any():
            e = int(wrong.argmax())
            message = (
                f"weight {values[e]}; expected a finite number"
                if k
                else f"out of range for n = {n}"
            )
            raise file.error(None, f"entry ({first[e]}, {second[e]}): {message}")
    return _Read(Graph([str(i) for i in range(n)], first, second, values, directed=True))


_READERS: dict[str, Callable[[_File, str | None], _Read]] = {
    ".gr": _read_dimacs,
    ".mtx": _read_matrix_market,
    ".csv": _read_edge_list,
    ".tsv": _read_edge_list,
    ".txt": _read_edge_list,
    ".tntp": _read_tntp,
    ".graphml": _read_networkx,
    ".gml": _read_networkx,
    ".npy": _read_npy,
    ".npz": _read_npz,
}
_NAMED_WEIGHTS = (".csv", ".tsv", ".txt", ".tntp", ".graphml", ".gml")
