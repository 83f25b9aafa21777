"""Street networks as people have them: NetworkX, GeoPandas, libpysal, tables and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..closures.labelled import objects
from ..graph_kernels import Index, offsets
from ..naming import optional
from .osm import SUFFIXES, Profile, read_osm
from .streets import Streets, as_crs, some_lines

__all__ = ["METRES", "Reading", "read"]

Array = NDArray[Any]

#: What crs= says of coordinates without a CRS that are metres.
METRES = "metres"
#: Words of a column that says in which direction a street leads: 1 forward, -1 backward, 0 both.
ONEWAY = {
    **dict.fromkeys(("yes", "true", "1", "1.0", "y"), 1),
    **dict.fromkeys(("-1", "-1.0", "reverse"), -1),
    **dict.fromkeys(("no", "false", "0", "0.0", "n", "", "none", "nan", "<na>"), 0),
}
#: Names of columns with the ends of edges, and with labels and coordinates of nodes.
_ENDS = ("u", "v"), ("from", "to"), ("source", "target"), ("from_node", "to_node")
_LABELS = "osmid", "id", "node", "node_id", "nodeID"
_POINTS = ("x", "y"), ("lon", "lat"), ("longitude", "latitude")


@dataclass(frozen=True)
class Reading:
    """How a source is read: what the arguments of :func:`semiring_mm.geo.network` say."""

    crs: Any = None
    directed: bool | None = None
    oneway: str | None = "oneway"
    layer: str | None = None
    profile: str | Profile = "driving"


def read(source: Any, how: Reading) -> Streets:
    """The streets of any source that has a row in the table.

    Raises
    ------
    TypeError
        If it has none.
    """
    for applies, reader in READERS:
        if applies(source):
            return reader(source, how)
    raise TypeError(
        f"a street network is an OSMnx or NetworkX graph, a GeoDataFrame of lines, a pair (nodes, "
        f"edges) of GeoDataFrames or tables, or a file that GeoPandas reads; got "
        f"{type(source).__module__}.{type(source).__name__}"
    )


# --- NetworkX -----------------------------------------------------------------------------------


def _of_networkx(graph: Any, how: Reading) -> Streets:
    """A graph of OSMnx, or a primal one of momepy."""
    if graph.graph.get("approach") == "dual":
        raise ValueError(
            "in a dual graph streets are nodes: make the primal one, "
            "momepy.gdf_to_nx(streets, approach='primal')"
        )
    labels, place = list(graph.nodes), {}
    points = np.empty((len(labels), 2))
    for i, (label, attributes) in enumerate(graph.nodes(data=True)):
        place[label] = i
        at = (attributes.get("x"), attributes.get("y"))
        if None in at and isinstance(label, tuple) and len(label) == 2:
            at = label
        if None in at:
            raise ValueError(f"nodes have coordinates as attributes x and y, and {label!r} has not")
        points[i] = at
    multi = graph.is_multigraph()
    edges = list(graph.edges(keys=True, data=True) if multi else graph.edges(data=True))
    names = dict.fromkeys(name for *_, attributes in edges for name in attributes)
    columns = {name: _column([edge[-1].get(name) for edge in edges]) for name in names}
    if multi:
        columns["key"] = _column([edge[2] for edge in edges])
    u, v = (np.array([place[edge[i]] for edge in edges], np.int64) for i in (0, 1))
    lines = columns.pop("geometry", None)
    directed = graph.is_directed() if how.directed is None else how.directed
    streets = _made(labels, points, _crs(how, graph.graph.get("crs"), points), u, v, columns, lines)
    if directed:
        return streets
    return _both_ways(streets, np.zeros(len(u), np.int64), listed=graph.is_directed())


def _column(values: list[Any]) -> Array:
    """Values of one kind as an array; others, such as lists, as objects."""
    kinds = {type(x) for x in values}
    if kinds <= {int, float, bool, type(None)} and kinds != {type(None)}:
        if type(None) in kinds:
            return np.array([np.nan if x is None else x for x in values], np.float64)
        return np.array(values)
    return np.asarray(objects(values))


# --- GeoPandas ----------------------------------------------------------------------------------


def _of_lines(edges: Any, how: Reading) -> Streets:
    """A GeoDataFrame of lines, whose ends are joined where they are exactly the same."""
    import shapely

    shapes = np.asarray(edges.geometry.values)
    _refuse_empty(shapes, edges.index, "edges", {1, 5})
    lines, row = shapely.get_parts(shapes, return_index=True)  # parts are edges of their own
    first = np.append(0, np.cumsum(shapely.get_num_points(lines)))
    points = shapely.get_coordinates(lines)
    ends = np.concatenate([points[first[:-1]], points[first[1:] - 1]])
    nodes, number = np.unique(ends, axis=0, return_inverse=True)
    u, v = number.reshape(2, -1)
    crs = _crs(how, edges.crs, nodes)
    labels: Sequence[Any] = range(len(nodes))
    if _named_ends(edges):
        given = [np.asarray(x)[row] for x in _ends_of(edges)]
        labels, u, v, nodes = _labelled(np.concatenate([u, v]), nodes, np.concatenate(given))
    x, y = nodes.T
    streets = Streets(labels, x, y, crs, u, v, _columns(row, edges), (first, points))
    return _directed(streets, edges, how)


def _of_pair(pair: Any, how: Reading) -> Streets:
    """Nodes with coordinates, and edges between them: GeoDataFrames, tables, or of libpysal."""
    nodes, edges = pair
    table = _columns_of(nodes)
    if hasattr(nodes, "geometry"):
        import shapely

        shapes = np.asarray(nodes.geometry.values)
        _refuse_empty(shapes, nodes.index, "nodes", {0})
        points, own = shapely.get_coordinates(shapes), nodes.crs
        labels = nodes.index.tolist()
        other = getattr(edges, "crs", None)
        if own is not None and other is not None and as_crs(own) != as_crs(other):
            raise ValueError(
                f"the nodes are in {as_crs(own).name} and the edges in {as_crs(other).name}: write "
                f"(nodes, edges.to_crs(nodes.crs))"
            )
        own = other if own is None else own
    else:
        named = _find(table, _POINTS, "coordinates of nodes")
        points, own = np.stack([np.asarray(table[name], float) for name in named], axis=1), None
        name = next((name for name in _LABELS if name in table), None)
        index = getattr(nodes, "index", range(len(points)))
        labels = list(index) if name is None else np.asarray(table[name]).tolist()
    crs = _crs(how, own, points)
    place = {label: i for i, label in enumerate(labels)}
    if _is_libpysal(edges):
        given, columns = _of_libpysal(edges)
        lines = None
    else:
        given, columns = _ends_of(edges), _columns_of(edges)
        columns["row"] = np.arange(len(given[0]))
        lines = columns.pop("geometry", None)
        if lines is not None:
            lines = np.asarray(edges.geometry.values)
            _refuse_empty(lines, edges.index, "edges", {1})
    ends = [np.array([place.get(x, -1) for x in np.asarray(z).tolist()], np.int64) for z in given]
    wrong = np.flatnonzero((ends[0] < 0) | (ends[1] < 0))
    if wrong.size:
        e = int(wrong[0])
        pair = [np.asarray(z)[e : e + 1].tolist()[0] for z in given]
        label = pair[0] if ends[0][e] < 0 else pair[1]
        raise ValueError(
            f"edges end at nodes of the table of nodes, and {label!r} of edge {e} is none (one of "
            f"{wrong.size} such edges)"
        )
    streets = _made(labels, points, crs, ends[0], ends[1], columns, lines)
    return _directed(streets, edges, how)


def _of_libpysal(graph: Any) -> tuple[list[Array], dict[str, Array]]:
    """Ends and weights of a Graph or a W of libpysal, both ways each."""
    if hasattr(graph, "adjacency"):
        adjacency = graph.adjacency.drop(graph.isolates) if len(graph.isolates) else graph.adjacency
        ends = [np.asarray(adjacency.index.get_level_values(i), object) for i in (0, 1)]
        return ends, {"weight": adjacency.to_numpy(np.float64)}
    pairs = [
        (i, j, w)
        for i in graph.id_order
        for j, w in zip(graph.neighbors[i], graph.weights[i], strict=True)
    ]
    ends = [_column([pair[k] for pair in pairs]).astype(object) for k in (0, 1)]
    return ends, {"weight": np.array([w for *_, w in pairs], np.float64)}


def _refuse_empty(shapes: Array, index: Any, what: str, kinds: set[int]) -> None:
    import shapely

    kind = shapely.get_type_id(shapes)
    empty = np.flatnonzero((kind < 0) | shapely.is_empty(shapes))
    if empty.size:
        raise ValueError(
            f"the geometry of {len(empty)} of the {len(shapes)} {what} is empty, such as that of "
            f"{index[int(empty[0])]!r}: leave them out, "
            f"{what}[~({what}.is_empty | {what}.geometry.isna())]"
        )
    other = np.flatnonzero(~np.isin(kind, list(kinds)))
    if other.size:
        i = int(other[0])
        raise ValueError(
            f"the geometry of {what} is {'points' if 0 in kinds else 'lines'}, and that of "
            f"{index[i]!r} is a {shapes[i].geom_type} (one of {len(other)})"
        )


def _labelled(number: Index, points: Array, labels: Array) -> tuple[list[Any], Index, Index, Array]:
    """Nodes by the labels of the ends of lines, which say where they are."""
    names = list(dict.fromkeys(labels.tolist()))
    place = {name: i for i, name in enumerate(names)}
    at = np.array([place[x] for x in labels.tolist()], np.int64)
    where = np.full(len(names), -1)
    where[at] = number
    different = np.flatnonzero(where[at] != number)
    if different.size:
        name = labels[int(different[0])]
        raise ValueError(
            f"lines that end at node {name!r} end at different points (one of {different.size} "
            f"such ends): give nodes with their points, (nodes, edges)"
        )
    u, v = at.reshape(2, -1)
    return names, u, v, points[where]


# --- tables -------------------------------------------------------------------------------------


def _columns_of(table: Any) -> dict[str, Array]:
    """The columns of a table of pandas, Arrow or Polars."""
    names = table if isinstance(table, Mapping) else getattr(table, "column_names", None)
    names = table.columns if names is None else names
    return {str(name): np.asarray(table[name]) for name in names}


def _columns(row: Index, edges: Any) -> dict[str, Array]:
    """The columns of a GeoDataFrame but its geometry, for rows, and these."""
    columns = _columns_of(edges.drop(columns=edges.geometry.name))
    names = list(edges.index.names)
    if len(names) == 3 and names[2] == "key":
        columns["key"] = np.asarray(edges.index.get_level_values(2))
    return {name: x[row] for name, x in columns.items()} | {"row": row}


def _find(
    table: Mapping[str, Any], choices: tuple[tuple[str, str], ...], what: str
) -> tuple[str, str]:
    for names in choices:
        if all(name in table for name in names):
            return names
    words = " or ".join(f"{a!r} and {b!r}" for a, b in choices)
    raise ValueError(f"{what} are columns {words}; there are {', '.join(map(repr, table))}")


def _named_ends(edges: Any) -> bool:
    """Whether the ends of edges are levels of an index (u, v, ...), as OSMnx has it."""
    return list(getattr(getattr(edges, "index", None), "names", ()))[:2] == ["u", "v"]


def _ends_of(edges: Any) -> list[Array]:
    if _named_ends(edges):
        return [np.asarray(edges.index.get_level_values(i)) for i in (0, 1)]
    table = _columns_of(edges)
    return [table[name] for name in _find(table, _ENDS, "ends of edges")]


# --- files --------------------------------------------------------------------------------------


def _of_file(path: Any, how: Reading) -> Streets:
    """A file that GeoPandas reads, or a map of OpenStreetMap."""
    name = os.fspath(path)
    if name.endswith(SUFFIXES):
        return read_osm(name, how.profile)
    geopandas = optional("geopandas", f"{name!r} is read by GeoPandas", "geo")
    if not os.path.exists(name):
        raise FileNotFoundError(f"there is no file {name!r}")
    if name.endswith((".parquet", ".pq")):
        return read(geopandas.read_parquet(name), how)
    if name.endswith(".graphml"):
        raise ValueError(f"{name!r} is read by OSMnx: network(osmnx.load_graphml({name!r}))")
    layers = geopandas.list_layers(name)["name"].tolist()
    if how.layer is None and {"nodes", "edges"} <= set(layers):  # as OSMnx writes
        nodes, edges = (geopandas.read_file(name, layer=x) for x in ("nodes", "edges"))
        key = next((x for x in _LABELS if x in nodes), None)
        return read((nodes if key is None else nodes.set_index(key), edges), how)
    if how.layer is None and len(layers) > 1:
        raise ValueError(
            f"{name!r} has layers {', '.join(map(repr, layers))}: choose one with streets, layer="
        )
    return read(geopandas.read_file(name, layer=how.layer or layers[0]), how)


# --- what all of them need ----------------------------------------------------------------------


def _crs(how: Reading, own: Any, points: Array) -> Any:
    """The CRS of coordinates.

    Raises
    ------
    ValueError
        If there is none and they look like degrees, or there are two.
    """
    if isinstance(how.crs, str) and how.crs == METRES:
        return None
    if own is not None and how.crs is not None and as_crs(own) != as_crs(how.crs):
        raise ValueError(
            f"the network is in {as_crs(own).name}, and crs={how.crs!r} differs: leave it out, or "
            f"transform the network"
        )
    crs = own if how.crs is None else how.crs
    if crs is None:
        if len(points) and np.abs(points[:, 0]).max() <= 180 and np.abs(points[:, 1]).max() <= 90:
            raise ValueError(
                f"the network has no CRS, and its coordinates, x to {points[:, 0].max():g} and y "
                f"to {points[:, 1].max():g}, look like degrees: write crs='EPSG:4326' for "
                f"longitudes and latitudes, or crs={METRES!r} if they are metres"
            )
        return None
    system = as_crs(crs)
    if system.is_geographic and len(points) and np.abs(points[:, 1]).max() > 90:
        raise ValueError(
            f"the CRS is {system.name}, and y goes to {np.abs(points[:, 1]).max():g}, which is no "
            f"latitude: x is the longitude, y the latitude"
        )
    return crs


def _made(
    labels: Sequence[Any], points: Array, crs: Any, u: Index, v: Index, columns: dict[str, Array],
    lines: Array | None,
) -> Streets:  # fmt: skip
    """Streets of edges with lines, or None for straight ones, which are turned from u to v."""
    x, y = points.T if len(points) else (np.empty(0), np.empty(0))
    columns = {name: column for name, column in columns.items() if np.ndim(column) == 1}
    bare = Streets(labels, x, y, crs, u, v, columns)
    there = None if lines is None else np.array([x is not None and x == x for x in lines])
    if there is None or not there.any():
        return bare
    import shapely

    given = np.asarray(lines, object)[there]
    _refuse_empty(given, [bare.edge_id(int(e)) for e in np.flatnonzero(there)], "edges", {1})
    count = np.full(len(u), 2)
    count[there] = shapely.get_num_points(given)
    first = offsets(count)
    found = np.empty((first[-1], 2))
    inside = np.repeat(there, count)
    found[inside], found[~inside] = shapely.get_coordinates(given), 0
    straight = np.flatnonzero(~there)
    for at, end in ((first[straight], u), (first[straight] + 1, v)):
        found[at] = points[end[straight]]
    a, b = found[first[:-1]], found[first[1:] - 1]
    gap = [np.abs(p - points[e]).sum(1) for p, e in ((a, u), (b, v), (a, v), (b, u))]
    turned = gap[0] + gap[1] > gap[2] + gap[3]
    return replace(bare, shape=(first, found[some_lines(first, np.arange(len(u)), turned)[1]]))


def _directed(streets: Streets, edges: Any, how: Reading) -> Streets:
    """Edges of the rows of a table, both ways but where it says that they are one-way."""
    way, name = np.zeros(len(streets.u), np.int64), how.oneway
    osmnx = {"u", "v", "key"} <= streets.columns.keys()
    listed = osmnx or _named_ends(edges) or _is_libpysal(edges)
    if how.directed is True or (how.directed is None and name is None and listed):
        return streets
    if how.directed is None and name is not None:
        if name in streets.columns:
            column = streets.columns[name]
            if listed:  # rows are directions, but for streets both ways that have one row only
                plain = [str(x).lower() in ("false", "no", "0") for x in column.tolist()]
                way = np.where(plain, 0, 1)
            else:
                way = _ways(column, name)
        elif listed:
            return streets
        elif name != "oneway":
            there = ", ".join(map(repr, streets.columns))
            raise ValueError(f"there is no column {name!r}; there are {there}")
    return _both_ways(streets, way, listed=listed)


def _ways(column: Array, name: str) -> Index:
    """In which direction streets lead, by the words of a column."""
    words, number = np.unique(
        [str(x).strip().lower() for x in column.tolist()], return_inverse=True
    )
    unknown = [str(word) for word in words if word not in ONEWAY]
    if unknown:
        bad = np.isin(words, unknown)[number]
        raise ValueError(
            f"column {name!r} says {', '.join(map(repr, unknown[:5]))} of {bad.sum()} edges; "
            f"known are yes, true, 1 (in the direction of the line), -1, reverse (against it), no, "
            f"false, 0 and nothing (both ways): replace them, or oneway=None for both ways"
        )
    way: Index = np.array([ONEWAY[word] for word in words], np.int64)[number]
    return way


def _both_ways(streets: Streets, way: Index, *, listed: bool) -> Streets:
    """With an edge for each direction in which a street leads; some may be `listed` already."""
    there = streets.twin >= 0 if listed else np.zeros(len(way), bool)
    forward, back = np.flatnonzero(way >= 0), np.flatnonzero((way <= 0) & ~there)
    edges = np.concatenate([forward, back])
    backward = np.arange(len(edges)) >= len(forward)
    order = np.argsort(edges, kind="stable")
    return streets.taken(edges[order], backward=backward[order])


def _is_libpysal(graph: Any) -> bool:
    return hasattr(graph, "adjacency") or hasattr(graph, "neighbors")


#: Which sources a reader takes, and the reader: the first that does.
READERS: tuple[tuple[Callable[[Any], bool], Callable[[Any, Reading], Streets]], ...] = (
    (lambda x: isinstance(x, Streets), lambda x, how: x),
    (lambda x: isinstance(x, (str, os.PathLike)), _of_file),
    (lambda x: isinstance(x, tuple) and len(x) == 2, _of_pair),
    (lambda x: hasattr(x, "is_multigraph") and hasattr(x, "graph"), _of_networkx),
    (lambda x: hasattr(x, "geometry") and hasattr(x, "columns"), _of_lines),
)
