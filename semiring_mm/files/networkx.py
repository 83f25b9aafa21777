"""GraphML, GML and GEXF, read with NetworkX."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from typing import Any
from xml.etree.ElementTree import ParseError, iterparse

import numpy as np
from numpy.typing import NDArray

from ..graphs.packages import WEIGHT
from ..naming import optional
from .columns import (
    LATITUDE,
    LONGITUDE,
    SAMPLE,
    column_unit,
    find_column,
    named_column,
    other_numbers,
)  # fmt: skip
from .file import File, Reading, real
from .graph import Graph

__all__ = ["read"]

#: What says in a file of each format whether the graph is directed.
_DIRECTION = {
    ".graphml": "attribute edgedefault",
    ".gml": "attribute directed",
    ".gexf": "attribute defaultedgetype",
}

#: Of GML: strings, comments, the head of the graph, and the digits of numbers without a point.
_GML_WORDS = re.compile(rb'"[^"]*"|#.*|\bgraph\s*\[|(?<![\w.])[+-]?\d+(?=[eE][+-]?\d)')
#: The XML namespaces of all versions of GEXF, and the one that NetworkX accepts.
_GEXF_VERSION = re.compile(rb"http://(?:www\.)?gexf\.net/1\.\d(?:draft)?")
_GEXF = b"http://www.gexf.net/1.2draft"


def read(file: File, weight: str | None) -> Reading:
    """The graph, its weights those of one attribute of the edges."""
    source = _parse(file)
    ids = list(source)
    attributes = [source.nodes[node] for node in ids]
    labels, names = _labels(file, ids, attributes)
    index = {node: k for k, node in enumerate(ids)}
    defaults = _defaults(file, source)
    edges = [(index[u], index[v], defaults | known) for u, v, known in source.edges(data=True)]

    present = sorted({name for *_, known in edges for name in known})
    column = _column(file, present, weight, bool(edges))
    values = [
        1.0
        if column is None
        else _attribute(file, known, column, f"edge {labels[u]} - {labels[v]}")
        for u, v, known in edges
    ]
    table = [[str(known.get(name, "")) for name in present] for *_, known in edges[:SAMPLE]]
    used = [] if column is None else [present.index(column)]
    coordinates, geographic = _coordinates(file, labels, attributes)
    graph = Graph(
        labels,
        np.array([u for u, *_ in edges], dtype=np.int64),
        np.array([v for _, v, _ in edges], dtype=np.int64),
        np.array(values, dtype=np.float64),
        directed=source.is_directed(),
        coordinates=coordinates,
        geographic=geographic,
        names=names,
        unit="" if column is None else column_unit(column),
        weight_source=f"{column} (attribute)",
        direction_source=_DIRECTION[file.kind],
    )
    return Reading(graph, column is not None, unused=other_numbers(present, table, used))


def _parse(file: File) -> Any:
    """The file as a NetworkX graph."""
    nx = optional("networkx", f"{file.path}: {file.kind} files are read with NetworkX", "io")
    data = file.read()
    try:
        if file.kind == ".gml":
            return nx.read_gml(io.BytesIO(_plain_gml(data)), label=None)
        read = nx.read_graphml if file.kind == ".graphml" else nx.read_gexf
        graph = read(io.BytesIO(_GEXF_VERSION.sub(_GEXF, data)))
        tags = (element.tag for _, element in iterparse(io.BytesIO(data)))
        there = sum(tag.rpartition("}")[2] == "edge" for tag in tags)
    except ParseError as error:
        raise file.error(error.position[0], f"not XML ({error})") from None
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        raise file.error(line, f"byte 0x{data[error.start]:02x} is not UTF-8") from None
    except Exception as error:  # the parsers let any error of Python through
        if re.search("(?i)directed.* edge found in", str(error)):
            raise file.error(
                None,
                "directed and undirected edges in one graph; write edges of one kind, an "
                "undirected edge as two directed ones",
            ) from None
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise file.error(None, f"not a {file.kind} graph ({reason})") from None
    if (found := graph.number_of_edges()) < there:
        raise file.error(
            None,
            f"NetworkX reads {found} of the file's {there} edges, not those of nested graphs, of a "
            "second graph, or of an id that others have; write one plain graph",
        )
    return graph


def _plain_gml(data: bytes) -> bytes:
    """GML that NetworkX reads whole: edges there twice, letters beyond ASCII, 1e5 as a number."""
    data = data.decode("utf-8-sig").encode("ascii", "xmlcharrefreplace")

    def form(match: re.Match[bytes]) -> bytes:
        word = match[0]
        if word[:1] in b'"#':
            return word if word[:1] == b'"' else b""  # it takes a quote in a comment for a string
        return b"graph [ multigraph 1" if word[:1] == b"g" else word + b".0"

    return _GML_WORDS.sub(form, data)


def _labels(
    file: File, ids: list[Any], attributes: list[dict[str, Any]]
) -> tuple[list[str], list[str] | None]:
    """Labels and, where they are not the labels, names of the nodes."""
    labels = [str(node) for node in ids]
    words = [known.get("label", known.get("name")) for known in attributes]  # name is igraph's
    own = ["" if word is None else str(word) for word in words]
    if not all(own):
        return labels, None
    # GML names its nodes by label and numbers them by id, where the labels tell them apart.
    if file.kind == ".gml" and len(set(own)) == len(own):
        return own, None
    return labels, own


def _column(file: File, present: list[str], weight: str | None, edges: bool) -> str | None:
    """The attribute that holds the weights, or None."""
    found: int | None = None
    if weight == "weight":
        found = find_column(file, None, present, WEIGHT)
    elif weight is not None and edges:
        found = named_column(file, None, present, weight, "attribute")
    return None if found is None else present[found]


def _number(value: Any) -> float:
    """The value as a float, NaN where it is no number."""
    try:
        return real(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _defaults(file: File, source: Any) -> dict[str, Any]:
    """What an edge has where the file leaves it out, which NetworkX does not fill in."""
    found = None if file.kind == ".gml" else source.graph.get("edge_default")
    defaults: dict[str, Any] = found if isinstance(found, dict) else {}
    # Gephi writes no weight of 1.
    if file.kind == ".gexf" and any("weight" in known for *_, known in source.edges(data=True)):
        return {"weight": 1.0} | defaults
    return defaults


def _attribute(file: File, known: dict[str, Any], name: str, owner: str) -> float:
    if name not in known:
        there = ", ".join(sorted(known)) or "none"
        raise file.error(None, f"{owner} has no attribute {name!r}; it has: {there}")
    value = _number(known[name])
    if not math.isfinite(value):
        raise file.error(None, f"{owner}: expected a finite number as {name}, got {known[name]!r}")
    return value


def _coordinates(
    file: File, labels: list[str], attributes: list[dict[str, Any]]
) -> tuple[NDArray[np.float64] | None, bool]:
    """Coordinates under one of the usual names, and whether they are on the Earth.

    A node without any has NaN.
    """
    for names, limits, place in _AXES:
        if any(all(name in place(known) for name in names) for known in attributes):
            points = _points(file, labels, attributes, names, limits, place)
            return points, limits[1] < math.inf
    words = [re.findall(_DECIMAL, str(known.get("pos", ""))) for known in attributes]
    points = np.array([[*map(_number, pair)] if len(pair) == 2 else [np.nan] * 2 for pair in words])
    return (points if np.isfinite(points).any() else None), False


_DECIMAL = r"[-+]?[\d.]+(?:[eE][-+]?\d+)?"


def _top(known: dict[str, Any]) -> dict[str, Any]:
    return known


def _graphics(known: dict[str, Any]) -> dict[str, Any]:
    """In GML, as yEd and Gephi write it."""
    graphics = known.get("graphics")
    return graphics if isinstance(graphics, dict) else {}


def _position(known: dict[str, Any]) -> dict[str, Any]:
    """In GEXF."""
    position: dict[str, Any] = known.get("viz", {}).get("position", {})
    return position


_AXES = [
    *(((lon, lat), (360.0, 90.0), _top) for lon in LONGITUDE for lat in LATITUDE),
    *((("x", "y"), (math.inf, math.inf), place) for place in (_top, _graphics, _position)),
]


def _points(
    file: File,
    labels: list[str],
    attributes: list[dict[str, Any]],
    names: tuple[str, str],
    limits: tuple[float, float],
    place: Callable[[dict[str, Any]], dict[str, Any]],
) -> NDArray[np.float64]:
    points = np.full((len(labels), 2), np.nan)
    for node, known in enumerate(map(place, attributes)):
        if any(known.get(name, "") in ("", None) for name in names):
            continue
        for k, (name, limit) in enumerate(zip(names, limits, strict=True)):
            value = _number(known[name])
            if not math.isfinite(value) or abs(value) > limit:
                bound = f" from {-limit:g} to {limit:g}" if limit < math.inf else ""
                raise file.error(
                    None,
                    f"node {labels[node]}: expected a number{bound} as {name}, got {known[name]!r}",
                )
            points[node, k] = value
    return points
