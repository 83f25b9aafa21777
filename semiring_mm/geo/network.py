"""Networks of streets: places in, answers out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..closures.edges import EdgeList
from ..closures.labelled import labelled
from ..graph_kernels import Index, offsets, ranges
from ..graphs.nearest import Nearest, nearest
from ..graphs.prepared import PreparedGraph, prepare
from ..graphs.statistics import Statistics, statistics
from ..graphs.within import Within
from ..lazy import cached_property
from ..progress import Progress
from ..warn import warn
from . import outputs
from .osm import Profile
from .places import Locator, Places, check_single, points_of
from .readers import Reading, read
from .streets import Streets, distance

__all__ = ["Network", "Route", "network"]

Array = NDArray[Any]
Float = NDArray[np.float64]

#: Extensions by places that a network keeps.
_KEPT = 4
#: By how much a length may differ from that of the line, before that is told.
_FACTOR = 2.0
_KMH = 3.6


def network(
    streets: Any, *, weight: str = "length", speed: Any = None, crs: Any = None,
    directed: bool | None = None, oneway: str | None = "oneway", layer: str | None = None,
    profile: str | Profile = "driving", largest: bool = False, order: str = "auto",
    progress: Progress = None,
) -> Network:  # fmt: skip
    """Prepare a street network, as people have it, for many questions.

    Parameters
    ----------
    streets : a graph, frames, or a file
        A MultiDiGraph of OSMnx, or any NetworkX graph whose nodes have attributes x and y, such as
        a primal one of momepy; a GeoDataFrame of lines, which are joined where their ends are
        exactly the same; a pair (nodes, edges) of GeoDataFrames, or of tables of pandas, Arrow or
        Polars, or of nodes and a Graph or W of libpysal; a file that GeoPandas reads, or a map of
        OpenStreetMap (``.osm.pbf``), as :func:`read_osm` does; or :class:`Streets`.
    weight : str, default "length"
        What is short: "length" in metres, "travel_time" in seconds, or another column of the edges.
        Where there is no column "length", it is that of the lines, along great circles for
        degrees; where there is no "travel_time", it follows from `speed`.
    speed : number, str, or mapping, optional
        In km/h: one for all, a column of the edges, or one for each word of the column "highway"
        (None for the others, if there are any).
    crs : optional
        Of coordinates that say none: what ``pyproj.CRS.from_user_input`` takes, or "metres".
    directed : bool, optional
        True: a row is one direction of a street. False: all streets lead both ways. Default: as
        the graph has it; edges of a table by the column `oneway`, but if they have u, v and key, as
        those of OSMnx, a row is a direction, and only streets both ways with one row are two.
    oneway : str or None, default "oneway"
        The column that says so: yes, true, 1; -1 or reverse; no, false, 0 or nothing.
    layer : str, optional
        Of a file that has several.
    profile : {"driving", "cycling", "walking"} or Profile
        Who travels on a map of OpenStreetMap.
    largest : bool, default False
        Keep only the largest part in which every node reaches every other.
    order, progress
        As for :func:`semiring_mm.prepare`.

    Returns
    -------
    Network

    Raises
    ------
    TypeError
        If the streets are none of these.
    ValueError
        If coordinates have no CRS and look like degrees, CRS are mixed, geometries empty, words of
        `oneway` unknown, or lengths or speeds negative or missing: the message says how many.

    Warns
    -----
    UserWarning
        If some nodes cannot be reached from the largest part, or cannot reach it: ``net.islands``.

    Examples
    --------
    >>> import semiring_mm as sm
    >>> nodes = {"id": ["a", "b", "c"], "x": [0.0, 300.0, 300.0], "y": [0.0, 0.0, 400.0]}
    >>> net = sm.geo.network((nodes, {"u": ["a", "b"], "v": ["b", "c"]}), speed=36,
    ...                      weight="travel_time")
    >>> net.distance("a", "c")
    70.0
    >>> school, home = net.snap([[310.0, 100.0], [60.0, -9.0]])
    >>> net.distance(home, school), school.distance
    (34.0, array([10.]))
    """
    found = _with_length(read(streets, Reading(crs, directed, oneway, layer, profile)))
    if speed is not None:
        columns = dict(found.columns) | {"travel_time": _travel_times(found, speed)}
        found = replace(found, columns=columns)
    return Network(_largest(found) if largest else found, weight, order=order, progress=progress)


@dataclass(frozen=True, eq=False)
class Route:
    """A best path through a street network.

    Attributes
    ----------
    nodes : list
        Labels of the crossings on the way.
    edges : (k,) int64
        Positions of the directed edges, in their order.
    weight : float
    line : (points, 2) float64
        From place to place, in the CRS of the network.
    """

    __module__ = "semiring_mm.geo"  # where users import it from

    nodes: list[Any]
    edges: Index
    weight: float
    line: Float
    _streets: Streets = field(repr=False)

    @property
    def ids(self) -> list[tuple[Any, Any, Any]]:
        """The edges as OSMnx names them: (u, v, key)."""
        return [self._streets.edge_id(e) for e in self.edges.tolist()]

    def to_linestring(self) -> Any:
        """The line as shapely's.

        Returns
        -------
        shapely.LineString
            Empty if there is no path, a point twice if it has no length.
        """
        import shapely

        line = np.repeat(self.line, 2, axis=0) if len(self.line) == 1 else self.line
        return shapely.LineString(line)


class Network:
    """A street network, prepared for questions between its nodes and places on its streets.

    :func:`network` makes it of what people have.

    Parameters
    ----------
    streets : Streets
    weight : str
        A column of its edges.
    order, progress
        As for :func:`semiring_mm.prepare`.

    Attributes
    ----------
    streets : Streets
    graph : PreparedGraph
        Of the nodes, for all other functions of the package; its edges are those of `streets`.
    weight : str
        The column by which paths are best.

    Notes
    -----
    Wherever a method takes nodes it takes :class:`Places`, too. A place is a node in the middle of
    a street, which joins the prepared graph without preparing it again, in O(n + m) time: some 30
    ms for 260,000 crossings, once for the same places. Its share of an edge's weight is that of its
    length.
    """

    __module__ = "semiring_mm.geo"  # where users import it from

    def __init__(
        self, streets: Streets, weight: str, *, order: str = "auto", progress: Progress = None
    ) -> None:
        self.streets, self.weight = streets, weight
        values = self._column(weight)
        edges = EdgeList(streets.nodes, streets.u, streets.v, values, True)
        self.graph: PreparedGraph = prepare(edges, dtype=np.float64, order=order, progress=progress)
        self._extended: list[tuple[tuple[Places, ...], PreparedGraph, list[Index]]] = []
        outside = int((self.islands > 0).sum())
        if outside:
            warn(
                f"{outside:,} of the {len(streets.nodes):,} nodes are islands: from the largest "
                f"part they cannot be reached, or cannot reach it (parts: {self.islands.max():,}, "
                f"net.islands); largest=True leaves them out"
            )

    def __repr__(self) -> str:
        n, m = len(self.streets.nodes), len(self.streets.u)
        return f"<Network: {n} nodes, {m} directed edges, by {self.weight}>"

    @property
    def nodes(self) -> Sequence[Any]:
        """Labels of the nodes."""
        return self.streets.nodes

    @cached_property
    def islands(self) -> Index:
        """For each node the number of the part that it is in, 0 for the largest; (n,).

        In a part every node reaches every other.
        """
        return _parts(self.streets, np.isfinite(self.graph.edges.weight))

    def customize(self, weight: str | Any, *, name: str = "weight") -> None:
        """Give the edges new weights, such as those of another hour.

        Parameters
        ----------
        weight : str, or (m,) array
            A column of the streets, or a number for each of their edges; inf closes one.
        name : str
            What to call an array.

        Raises
        ------
        ValueError
            If weights are negative or missing, or there is no such column.
        """
        if isinstance(weight, str):
            values = self._column(weight)
        else:
            values = _checked(np.asarray(weight, np.float64), name, self.streets)
        self.graph.customize(values)
        self.weight = weight if isinstance(weight, str) else name
        self._extended.clear()
        for key in ("islands", "_locator"):
            vars(self).pop(key, None)

    def _column(self, name: str) -> Float:
        column = self.streets.columns.get(name)
        if column is None:
            more = ""
            if name == "travel_time":
                more = "; speed= gives it, as a number or a column of km/h"
            raise ValueError(
                f"there is no column {name!r} of the edges, but "
                f"{', '.join(map(repr, self.streets.columns))}{more}"
            )
        try:
            values = np.asarray(column, np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"column {name!r} is to hold numbers, got {column[0]!r}") from None
        return _checked(values, name, self.streets)

    # --- places ---------------------------------------------------------------------------------

    @cached_property
    def _locator(self) -> Locator:
        return Locator(self.streets, np.isinf(self.graph.edges.weight))

    def snap(
        self, x: Any, y: Any = None, *, limit: float | None = None, crs: Any = None,
        ids: Sequence[Any] | None = None,
    ) -> Places:  # fmt: skip
        """Places: the nearest point on a street to each point.

        Parameters
        ----------
        x : GeoSeries, GeoDataFrame, points of shapely, (k, 2) array; or (k,) array or number
        y : (k,) array or number, with the last of these
        limit : float, optional
            Metres. Places farther from any street are *off* the network: they reach nothing.
        crs : optional
            Of the points. Default: that of the GeoSeries, or of the network.
        ids : sequence, optional
            What to call the places. Default: the index, or their numbers.

        Returns
        -------
        Places

        Raises
        ------
        ValueError
            If a point is empty or not finite, or has a CRS and the network has none.

        Warns
        -----
        UserWarning
            If places are off the network, or all of them are outside of its extent.

        Notes
        -----
        The nearest is that of a grid of segments, in the plane of the CRS; of degrees in Mercator's
        projection, which keeps angles, so that near things are compared in metres. O(1) for each
        point near streets. Closed streets (inf) are no streets.

        Examples
        --------
        >>> import semiring_mm as sm
        >>> nodes = {"id": ["a", "b"], "x": [0.0, 100.0], "y": [0.0, 0.0]}
        >>> net = sm.geo.network((nodes, {"u": ["a"], "v": ["b"]}), crs="metres")
        >>> places = net.snap([25.0, 70.0], [3.0, -4.0], ids=["home", "shop"])
        >>> places.fraction, places.distance
        (array([0.25, 0.7 ]), array([3., 4.]))
        >>> net.distances(places, ["a", "b"])
        LabelledArray, 2 x 2, float64
               a   b
        home  25  75
        shop  70  30
        """
        points, own = points_of(x, y, crs, self.streets)
        if ids is not None and len(ids) != len(points):
            raise ValueError(f"ids has {len(ids)} entries for {len(points)} places")
        if limit is not None and not limit >= 0:
            raise ValueError(f"limit is a distance in metres, got {limit!r}")
        places = self._locator.nearest(points, limit, own if ids is None else ids)
        self._warn_of(places, points, limit)
        return places

    def _warn_of(self, places: Places, points: Float, limit: float | None) -> None:
        off, x, y = int(places.off.sum()), self.streets.x, self.streets.y
        if len(points) and len(x):
            low, high = np.array([x.min(), y.min()]), np.array([x.max(), y.max()])
            room = (high - low).max()
            if not ((points >= low - room) & (points <= high + room)).all(1).any():
                warn(
                    f"none of the {len(points)} places is near the network: they are around "
                    f"({points[0, 0]:g}, {points[0, 1]:g}), it from ({low[0]:g}, {low[1]:g}) to "
                    f"({high[0]:g}, {high[1]:g}); say in which CRS they are, crs="
                )
                return
        if off:
            within = "" if limit is None else f" within {limit:g} m"
            warn(
                f"{off:,} of the {len(places):,} places have no street{within}: they are off the "
                f"network (places.off) and reach nothing"
            )

    def _with(self, *given: Any) -> tuple[PreparedGraph, list[Any]]:
        """The graph with the places among what is given, and the positions of all of that.

        None, for all nodes, stays None where there are no others.
        """
        roots = tuple({id(x.root[0]): x.root[0] for x in given if isinstance(x, Places)}.values())
        graph, at = self._extension(roots)
        n, found = len(self.nodes), list[Any]()
        for x in given:
            if isinstance(x, Places):
                root, rows = x.root
                found.append(at[[y is root for y in roots].index(True)][rows])
            else:
                more = x is None and len(graph.nodes) > n
                found.append(np.arange(n) if more else self.graph.positions(x))
        return graph, found

    def _extension(self, roots: tuple[Places, ...]) -> tuple[PreparedGraph, list[Index]]:
        """The graph with some places, whose nodes are numbers: kept for the last few."""
        for kept, graph, at in self._extended:
            if len(kept) == len(roots) and all(x is y for x, y in zip(kept, roots, strict=True)):
                return graph, at
        edge = np.concatenate([np.empty(0, np.int64), *(x.edge for x in roots)])
        fraction = np.concatenate([np.empty(0), *(x.fraction for x in roots)])
        streets, m = self.streets, len(self.streets.u)
        if len(edge) and edge.max() >= m:
            raise ValueError(f"places are on edge {edge.max()} of {m}: they are of another network")
        twin = np.append(streets.twin, -1)[edge]  # one of both directions stands for a street
        other = (twin >= 0) & (twin < edge)
        edge, fraction = np.where(other, twin, edge), np.where(other, 1 - fraction, fraction)
        node = np.full(len(edge), -1)
        for end, value in ((streets.u, 0.0), (streets.v, 1.0)):
            there = (edge >= 0) & (fraction == value)
            node[there] = end[edge[there]]
        inner = np.flatnonzero((edge >= 0) & (node < 0))
        order = inner[np.lexsort([fraction[inner], edge[inner]])]
        new = np.ones(len(order), bool)  # places at the same spot are one node
        new[1:] = (np.diff(edge[order]) > 0) | (np.diff(fraction[order]) > 0)
        spots, n, off = order[new], len(streets.nodes), np.flatnonzero(edge < 0)
        node[order] = n + np.cumsum(new) - 1
        node[off] = n + len(spots) + np.arange(len(off))
        graph = self.graph.with_places(
            edge[spots], fraction[spots], twin=streets.twin[edge[spots]], alone=len(off)
        )
        at = np.split(node, np.cumsum([len(x) for x in roots])[:-1])
        self._extended = [(roots, graph, at), *self._extended[: _KEPT - 1]]
        return graph, at

    def _names(self, given: Any, at: Index | None) -> Sequence[Any]:
        """What results call nodes or places."""
        if isinstance(given, Places):
            return given.ids
        return self.nodes if given is None or at is None else [self.nodes[i] for i in at]

    # --- questions ------------------------------------------------------------------------------

    def distances(self, sources: Any = None, targets: Any = None, **options: Any) -> Any:
        """Weights of best paths between nodes or places: a table.

        Parameters
        ----------
        sources, targets : node, nodes, or Places, optional
            Default: all nodes.
        **options
            As for :meth:`semiring_mm.PreparedGraph.distances`. ``along``, a column of the streets
            or an array, is a second quantity, such as metres of the fastest way.

        Returns
        -------
        LabelledArray, shape (sources, targets)
            inf where there is no path.
        """
        graph, (rows, columns) = self._with(sources, targets)
        if "along" in options:
            along = options["along"]
            values = self._column(along) if isinstance(along, str) else np.asarray(along, float)
            options["along"] = graph.spread(values)
        once, inverse = (None, None) if rows is None else np.unique(rows, return_inverse=True)
        found = graph.distances(once, columns, **options)
        tables = [np.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]
        if inverse is not None and not np.array_equal(inverse, np.arange(len(inverse))):
            tables = [x[inverse] for x in tables]
        names = [*self._names(sources, rows), *self._names(targets, columns)]
        which = range(len(tables[0])), range(len(tables[0]), len(names))
        made = [labelled(x, None, graph.semiring, names, *which)[0] for x in tables]
        return tuple(made) if isinstance(found, tuple) else made[0]

    def distance(self, source: Any, target: Any) -> float:
        """The weight of a best path between two nodes or places.

        Parameters
        ----------
        source, target : node, or Places of one

        Returns
        -------
        float
            inf if there is no path.
        """
        graph, ends = self._with(_one(source, "source"), _one(target, "target"))
        return float(graph.distance(*(int(x[0]) for x in ends)))

    def path(self, source: Any, target: Any) -> Route:
        """A best path between two nodes or places: crossings, edges, and the line.

        Parameters
        ----------
        source, target : node, or Places of one

        Returns
        -------
        Route

        Raises
        ------
        ValueError
            If there is no path.

        Examples
        --------
        >>> import semiring_mm as sm
        >>> nodes = {"id": ["a", "b", "c"], "x": [0.0, 300.0, 300.0], "y": [0.0, 0.0, 400.0]}
        >>> net = sm.geo.network((nodes, {"u": ["a", "b"], "v": ["b", "c"]}))
        >>> route = net.path("a", net.snap(310.0, 100.0))
        >>> route.nodes, route.ids, route.weight
        (['a', 'b'], [('a', 'b', 0), ('b', 'c', 0)], 400.0)
        >>> route.line.tolist()
        [[0.0, 0.0], [300.0, 0.0], [300.0, 100.0]]
        """
        route = self.paths(_one(source, "source"), _one(target, "target"))[0]
        if not np.isfinite(route.weight):
            raise ValueError(f"there is no path from {_name(source)} to {_name(target)}")
        return route

    def paths(self, sources: Any, targets: Any, *, progress: Progress = None) -> list[Route]:
        """Best paths of many pairs of nodes or places, on all threads.

        Parameters
        ----------
        sources, targets : nodes, or Places, as many of one as of the other
        progress : bool or callable, optional
            As for :func:`semiring_mm.apsp`, of the pairs.

        Returns
        -------
        list of Route
            Where there is no path, one without nodes and edges, of weight inf.

        Raises
        ------
        ValueError
            If there are not as many sources as targets.
        """
        graph, (rows, ends) = self._with(sources, targets)
        if sources is None or targets is None or len(rows) != len(ends):
            raise ValueError("paths() takes as many sources as targets")
        found = graph.paths((rows, ends), progress=progress)
        n = len(self.nodes)
        base = graph.whole(found.edges)
        where = [self._on_edges(x, at) for x, at in ((sources, rows), (targets, ends))]
        routes = []
        for k, weight in enumerate(found.weight.tolist()):
            own = base[found.edge_indptr[k] : found.edge_indptr[k + 1]]
            own = own[np.append(True, own[1:] != own[:-1])] if len(own) else own
            walk = found.nodes[found.indptr[k] : found.indptr[k + 1]].tolist()
            labels = [self.nodes[i] for i in walk if i < n]
            line = self._line(own, [(int(edge[k]), float(f[k])) for edge, f in where])
            if walk and not len(own):
                at = sources if isinstance(sources, Places) else self.streets
                i = k if isinstance(sources, Places) else walk[0]
                line = np.array([[at.x[i], at.y[i]]])
            routes.append(Route(labels, own, weight, line, self.streets))
        return routes

    def _on_edges(self, given: Any, at: Index) -> tuple[Index, Float]:
        """The edge of each place, -1 for a node, and the fraction."""
        if not isinstance(given, Places):
            return np.full(len(at), -1), np.zeros(len(at))
        return np.where(at < len(self.nodes), -1, given.edge), given.fraction

    def _line(self, edges: Index, ends: list[tuple[int, float]]) -> Float:
        """The line along edges, from a place on the first to one on the last, if there are any."""
        if not len(edges):
            return np.empty((0, 2))
        cuts = np.array([0.0, 1.0])
        for i, (edge, fraction) in enumerate(ends):
            if edge >= 0:
                cuts[i] = fraction if edges[-i] == edge else 1 - fraction
        if len(edges) == 1:
            return self._cut(int(edges[0]), *cuts)
        first, points = self.streets.lines
        count = first[edges[1:-1] + 1] - first[edges[1:-1]] - 1
        inner = points[ranges(first[edges[1:-1]] + 1, count)]  # without where each begins
        ends_of = self._cut(int(edges[0]), cuts[0], 1.0), self._cut(int(edges[-1]), 0.0, cuts[1])
        return np.concatenate([ends_of[0], inner, ends_of[1][1:]])

    def _cut(self, edge: int, begin: float, end: float) -> Float:
        """The part of an edge's line between two fractions of its length."""
        line = self.streets.line(edge)
        step = distance(line[:-1].T, line[1:].T, self.streets.crs)
        along = np.append(0.0, np.cumsum(step))
        if along[-1] == 0:
            return line[[0, -1]]
        along /= along[-1]
        inner = line[(along > begin) & (along < end)]
        ends = [[np.interp(f, along, z) for z in line.T] for f in (begin, end)]
        return np.concatenate([ends[:1], inner, ends[1:]])

    def nearest(
        self, facilities: Any, k: int = 1, *, sources: Any = None, outward: bool = False,
        progress: Progress = None,
    ) -> Any:  # fmt: skip
        """The k nearest of some facilities to every node, or to some nodes or places.

        Parameters
        ----------
        facilities : node, nodes, or Places, or dict of these
            A dict has those of several categories, by their names.
        k : int, default 1
        sources : node, nodes, or Places, optional
            Default: all nodes.
        outward, progress
            As for :func:`semiring_mm.nearest`.

        Returns
        -------
        Nearest, or dict of Nearest
            Its `nodes` are the sources, and after them the facilities.

        Examples
        --------
        >>> import semiring_mm as sm
        >>> nodes = {"id": ["a", "b", "c"], "x": [0.0, 300.0, 300.0], "y": [0.0, 0.0, 400.0]}
        >>> net = sm.geo.network((nodes, {"u": ["a", "b"], "v": ["b", "c"]}))
        >>> shops = net.snap([100.0, 300.0], [0.0, 50.0], ids=["baker", "butcher"])
        >>> net.nearest(shops).to_frame()
          node  rank facility  distance
        0    a     1    baker     100.0
        1    b     1  butcher      50.0
        2    c     1  butcher     350.0
        """
        options: dict[str, Any] = {"outward": outward, "progress": progress}
        if isinstance(facilities, Mapping):
            return {
                name: self.nearest(some, k, sources=sources, **options)
                for name, some in facilities.items()
            }
        if facilities is None:
            raise TypeError("facilities: a node or several, or Places, got None")
        graph, (places, rows) = self._with(facilities, sources)
        names = list(self._names(facilities, places))
        here = np.arange(len(places))
        if isinstance(facilities, Places):
            here = np.flatnonzero(~facilities.off)
        spots, number = np.unique(places[here], return_inverse=True)
        first = np.full(len(spots), len(here))
        np.minimum.at(first, number, np.arange(len(here)))
        turn = np.argsort(first)  # of equally near ones the first that was given
        spots = spots[turn]
        whole = nearest(graph, spots, k, outward=outward, progress=progress)
        at = np.arange(len(self.nodes)) if rows is None else rows
        place = np.full(len(graph.nodes) + 1, -1)
        place[spots] = np.arange(len(spots))
        facility, d = place[whole.facility[at]], whole.distance[at]
        shared = np.argsort(np.argsort(turn)[number], kind="stable")
        size = np.bincount(number, minlength=len(spots))[turn]
        facility, d = _spread(facility, d, size, here[shared])
        origins = list(self._names(sources, rows))
        facility = np.where(facility < 0, -1, facility + len(origins))
        return Nearest([*origins, *names], facility, d)

    def accessibility(
        self, places: Any, weights: Any = None, *, sources: Any = None, competition: Any = None,
        **options: Any,
    ) -> Array:  # fmt: skip
        """Accessibility of places: what each node, or some nodes or places, reach of them.

        Parameters
        ----------
        places : node, nodes, or Places
            Such as shops, jobs or hospital beds.
        weights : (places,) or (places, columns) array, optional
        sources : node, nodes, or Places, optional
            Default: all nodes.
        competition : (nodes or Places, array) or (nodes,) array, optional
            The demand that shares the weights.
        **options
            `radius`, `decay`, `outward`, ... as for :func:`semiring_mm.accessibility`.

        Returns
        -------
        ndarray, shape (sources,), (sources, radii), ...

        Examples
        --------
        >>> import semiring_mm as sm
        >>> nodes = {"id": ["a", "b", "c"], "x": [0.0, 300.0, 300.0], "y": [0.0, 0.0, 400.0]}
        >>> net = sm.geo.network((nodes, {"u": ["a", "b"], "v": ["b", "c"]}))
        >>> shops = net.snap([100.0, 300.0], [0.0, 50.0])
        >>> net.accessibility(shops, radius=[250, 500])
        array([[1, 2],
               [2, 2],
               [0, 1]])
        """
        demand = competition if isinstance(competition, tuple) else (None, competition)
        graph, (at, rows, needy) = self._with(places, sources, demand[0])
        if competition is not None:
            options["competition"] = demand[1] if needy is None else (needy, demand[1])
        at = None if places is None else at  # which is refused
        return np.asarray(graph.accessibility(at, weights, sources=rows, **options))

    def within(
        self, radius: float, sources: Any = None, targets: Any = None, *, batch: Any = None,
        **options: Any,
    ) -> Any:  # fmt: skip
        """Pairs of nodes or places within a radius of each other, without a table of all pairs.

        Parameters
        ----------
        radius
            As for :func:`semiring_mm.within`.
        sources, targets : node, nodes, or Places, optional
            Default: all nodes.
        batch, **options
            As for :func:`semiring_mm.within`.

        Returns
        -------
        Within, or an iterator of Within
            Its `nodes` are the sources, and after them the targets.
        """
        graph, (rows, ends) = self._with(sources, targets)
        every = np.arange(len(self.nodes))
        rows, ends = every if rows is None else rows, every if ends is None else ends
        names = [*self._names(sources, rows), *self._names(targets, ends)]
        (spots, *row), (stops, *column) = _members(rows), _members(ends)
        found = graph.within(radius, spots, stops, batch=batch, **options)

        def told(part: Within) -> Within:
            """The pairs of places, of those of spots."""
            which = np.searchsorted(spots, part.sources)
            own = ranges(row[1][which], row[2][which])  # of several places at a spot each
            line = np.repeat(np.arange(len(which)), row[2][which])
            origin = row[0][own]
            if batch is None:
                turn = np.argsort(origin)
                origin, line = origin[turn], line[turn]
            count = np.diff(part.indptr)[line]
            entry = ranges(part.indptr[:-1][line], count)
            stop = part.indices[entry]
            many = column[2][stop]
            indices = column[0][ranges(column[1][stop], many)].astype(np.int32)
            indptr = offsets(many)[offsets(count)]
            ends_at = len(rows) + np.arange(len(ends))
            distance = np.repeat(part.distance[entry], many)
            return Within(names, origin, ends_at, indptr, indices, distance)

        return told(found) if batch is None else map(told, found)

    def statistics(
        self, what: str | Sequence[str] | None = None, *, sources: Any = None, targets: Any = None,
        attribute: Any = None, **options: Any,
    ) -> Statistics:  # fmt: skip
        """Statistics of the distances between nodes, or from or to places.

        Parameters
        ----------
        what
            As for :func:`semiring_mm.statistics`.
        sources, targets : node, nodes, or Places, optional
            Default: all nodes. Several places at one spot are one target, but for "within".
        attribute : (targets,) array, optional
            A number for each target, such as inhabitants, which "within" sums up.
        **options
            As for :func:`semiring_mm.statistics`.

        Returns
        -------
        Statistics
        """
        graph, (rows, ends) = self._with(sources, targets)
        n, count = len(self.nodes), len(graph.nodes)
        paths = {"betweenness", "edge_betweenness", "stress"} & {*np.atleast_1d(what or "")}
        if paths and count > n:
            raise ValueError(
                f"{min(paths)} counts shortest paths, and a street with a place on it is two of "
                f"them: ask for it between nodes"
            )
        values, all_ends = None if attribute is None else np.asarray(attribute), ends
        if ends is not None:
            once = np.unique(ends)
            if values is not None and values.shape != ends.shape:
                raise ValueError(f"attribute has shape {values.shape}, of {len(ends)} targets")
            if values is not None or (len(once) < len(ends) and "radius" in options):
                each = np.ones(len(ends), np.int64) if values is None else values
                values = np.zeros(count, each.dtype)
                np.add.at(values, ends, each)
            ends = once
        names = list(self._names(sources, rows))
        found = statistics(graph, what, sources=rows, targets=ends, attribute=values, **options)
        called = dict(enumerate(self.nodes))
        for given, at in ((targets, all_ends), (sources, rows)):
            if isinstance(given, Places) and at is not None:
                # the first that was given names a spot
                called |= dict(zip(at.tolist()[::-1], list(given.ids)[::-1], strict=True))
        changed: dict[str, Any] = {"nodes": names}
        for word in ("center", "ends"):
            old = getattr(found, word)
            if old is not None:
                changed[word] = type(old)(called.get(i, i) for i in old)
        return replace(found, **changed)

    # --- out ------------------------------------------------------------------------------------

    def to_geodataframe(self, what: str = "edges", **columns: Any) -> Any:
        """The streets or their nodes, with results as columns.

        Parameters
        ----------
        what : {"edges", "nodes"}
        **columns : (edges,) or (nodes,) arrays
            By the name of each.

        Returns
        -------
        GeoDataFrame
            Edges by (u, v, key) with the columns of the streets, nodes by their labels.
        """
        return outputs.frame_of(self, what, columns)

    def routes_frame(self, routes: Iterable[Route], **columns: Any) -> Any:
        """Routes as lines, cut at the places: a GeoDataFrame with weight and number of edges.

        Parameters
        ----------
        routes : iterable of Route
        **columns
            Further ones.

        Returns
        -------
        GeoDataFrame
        """
        return outputs.routes_frame(routes, self.streets.crs, **columns)

    def batches(
        self, sources: Any = None, targets: Any = None, *, pairs: int | None = None, **options: Any
    ) -> Iterator[Any]:
        """A table of distances in record batches of Arrow, one after the other.

        Parameters
        ----------
        sources, targets
            As for :meth:`distances`.
        pairs : int, optional
            How many a batch is computed from, at least a row; default a million.
        **options
            As for :meth:`distances`.

        Returns
        -------
        iterator of pyarrow.RecordBatch
            Columns from, to, distance (and along), of pairs with a path.
        """
        return outputs.batches(self, sources, targets, pairs, options)


def _one(x: Any, name: str) -> Any:
    """A node or a place as one of several, if it is no more."""
    check_single(x, name)
    return x if isinstance(x, Places) else [x]


def _name(x: Any) -> str:
    return repr(x.ids[0]) if isinstance(x, Places) else repr(x)


def _members(at: Index) -> tuple[Index, Index, Index, Index]:
    """Different positions, ascending, which have each, where these begin, and how many they are."""
    spots, number = np.unique(at, return_inverse=True)
    size = np.bincount(number, minlength=len(spots))
    return spots, np.argsort(number, kind="stable"), np.cumsum(size) - size, size


def _spread(facility: Index, d: Array, size: Index, members: Index) -> tuple[Index, Array]:
    """The nearest facilities from the nearest spots, where there are `size` at each spot."""
    k, begin = facility.shape[1], np.cumsum(size) - size
    if (size == 1).all():
        return np.where(facility < 0, -1, np.append(members, -1)[facility]), d
    count = np.where(facility < 0, 0, size[facility])
    before = np.cumsum(count, axis=1) - count
    wide, far = np.full(facility.shape, -1), np.full(d.shape, np.inf)
    for turn in range(min(k, int(size.max(initial=1)))):  # the turn-th of each spot
        row, rank = np.nonzero((count > turn) & (before + turn < k))
        at = before[row, rank] + turn
        wide[row, at] = members[begin[facility[row, rank]] + turn]
        far[row, at] = d[row, rank]
    return wide, far


# --- columns of edges ---------------------------------------------------------------------------


def _checked(values: Float, name: str, streets: Streets) -> Float:
    """Weights, none of which is negative or missing."""
    if values.shape != streets.u.shape:
        raise ValueError(
            f"{name} is a number for each of {len(streets.u)} edges, got {values.shape}"
        )
    for word, wrong in (("missing", np.isnan(values)), ("negative", values < 0)):
        if wrong.any():
            e = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"{name!r} is {word} for {wrong.sum()} of {len(values)} edges, such as "
                f"{streets.edge_id(e)}: give each a number, inf closes one"
            )
    return values


def _with_length(streets: Streets) -> Streets:
    """Streets with a column "length", which is checked against the lines if it is there."""
    given = streets.columns.get("length")
    if given is None:
        return replace(streets, columns=dict(streets.columns) | {"length": streets.lengths})
    drawn = float(np.sum(streets.lengths))
    try:
        ratio = float(np.nansum(np.asarray(given, np.float64))) / drawn if drawn else 1.0
    except (TypeError, ValueError):
        ratio = 1.0  # refused if it is the weight
    if not 1 / _FACTOR < ratio < _FACTOR:
        warn(
            f"the column 'length' is {ratio:.3g} times as long as the lines are in metres: drop it "
            f"to have theirs, or divide it"
        )
    return streets


def _travel_times(streets: Streets, speed: Any) -> Float:
    """Seconds of each edge, by speeds in km/h."""
    if isinstance(speed, str):
        if speed not in streets.columns:
            raise ValueError(
                f"there is no column {speed!r} of speeds; there are "
                f"{', '.join(map(repr, streets.columns))}"
            )
        try:
            kmh = np.asarray(streets.columns[speed], np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"column {speed!r} is to hold numbers of km/h") from None
    elif isinstance(speed, Mapping):
        words = streets.columns.get("highway")
        if words is None:
            raise ValueError("speeds by words are of the column 'highway', which is not there")
        other = speed.get(None, np.nan)
        kmh = np.array(
            [speed.get(x[0] if isinstance(x, list) else x, other) for x in words.tolist()], float
        )
    else:
        kmh = np.full(len(streets.u), float(speed))
    wrong = np.flatnonzero(~(kmh > 0))
    if wrong.size:
        e = int(wrong[0])
        word = f" ({streets.columns['highway'][e]!r})" if isinstance(speed, Mapping) else ""
        raise ValueError(
            f"speeds are positive numbers of km/h, and {len(wrong)} of {len(kmh)} edges have none, "
            f"such as {streets.edge_id(e)}{word} with {kmh[e]:g}"
        )
    return _checked(np.asarray(streets.columns["length"], float), "length", streets) / (kmh / _KMH)


def _parts(streets: Streets, there: NDArray[np.bool_]) -> Index:
    """For each node the number of its strongly connected part, 0 for the largest."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n, u, v = len(streets.nodes), streets.u[there], streets.v[there]
    if not n:
        return np.zeros(0, np.int64)
    graph = csr_array((np.ones(len(u), np.int8), (u, v)), shape=(n, n))
    _, part = connected_components(graph, directed=True, connection="strong")
    order = np.argsort(-np.bincount(part), kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    found: Index = rank[part]
    return found


def _largest(streets: Streets) -> Streets:
    """The largest part of streets, in which every node reaches every other."""
    kept = _parts(streets, np.ones(len(streets.u), bool)) == 0
    edges = np.flatnonzero(kept[streets.u] & kept[streets.v])
    some, place = streets.taken(edges), np.cumsum(kept) - 1
    nodes = [label for label, keep in zip(streets.nodes, kept.tolist(), strict=True) if keep]
    x, y = streets.x[kept], streets.y[kept]
    return replace(some, nodes=nodes, x=x, y=y, u=place[some.u], v=place[some.v])
