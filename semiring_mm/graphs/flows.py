"""Flows: what the edges of a graph carry if everybody takes a shortest path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..closures.edges import EdgeList, both_ways, is_table
from ..closures.labelled import objects, pandas
from ..display import Shown, Table
from ..hierarchy.demand import Demand, DemandRows
from ..progress import Progress, reporter
from .inputs import are_paths, as_graph, positions
from .prepared import distances_of
from .rows import Rows
from .statistics import of_all_edges, rows_for

__all__ = ["Flows", "Gravity", "flows"]

Array = NDArray[Any]
Float = NDArray[np.float64]
Index = NDArray[np.int64]

_ENDS = "origins", "destinations"
_FORMS = (
    "a demand is a table or file of origins, destinations and trips, a tuple of three such "
    "sequences, a dict {'a': {'b': 120}}, a matrix (dense, or sparse of SciPy's), or sm.Gravity"
)


@dataclass(frozen=True, repr=False)
class Flows(Shown):
    """Flows along the edges of a graph: an all-or-nothing assignment of trips.

    Attributes
    ----------
    edges : EdgeList
        The edges of the graph: ``row`` and ``col``, positions in ``nodes``, and ``weight``.
    load : (edges,) float64
        The trips along each edge, in their order; of an undirected one either way.
    trips : float
        All trips between different nodes.
    without_path : float
        Those of them that cannot be made, since there is no path. No edge carries them.
    """

    __module__ = "semiring_mm"  # where users import it from

    edges: EdgeList
    load: Float
    trips: float
    without_path: float

    @property
    def distance(self) -> float:
        """The length of all trips that are made: of each load times the weight of its edge."""
        used = self.load != 0
        return float(np.dot(self.load[used], self.edges.weight[used]))

    def _title(self) -> str:
        lost = f", {self.without_path:,.8g} without a path" if self.without_path else ""
        return f"Flows: {self.trips:,.8g} trips on {len(self.load)} edges{lost}"

    def _table(self) -> Table:
        head, count, edge = self.edges._table()
        return [*head, "load"], count, lambda e: [*edge(e), self.load[e]]

    def to_frame(self) -> Any:
        """A table of pandas with a row for each edge.

        Returns
        -------
        pandas.DataFrame
            Columns from, to, weight and load.
        """
        x, names = self.edges, objects(self.edges.nodes)
        return pandas().DataFrame(
            {"from": names[x.row], "to": names[x.col], "weight": x.weight, "load": self.load}
        )


@dataclass(frozen=True)
class Gravity:
    """Gravity model of trips: they grow with both masses, and decay with the distance.

    From node i to node j lead ``origins[i] * destinations[j] * f(d)`` trips, with
    ``f(d) = exp(-exponential * d)`` or ``f(d) = d ** -power``, d being their distance.

    Parameters
    ----------
    origins, destinations : array_like
        The masses of the sources and the targets of :func:`flows`, by default of all nodes; such as
        inhabitants, and places of work.
    exponential, power : float, optional
        Not negative; one of them.
    constrained : bool, default False
        Whether as many trips begin at each origin as its mass says, to whatever it reaches.

    Examples
    --------
    >>> import semiring_mm as sm
    >>> net = sm.prepare({"a": {"b": 1.0}, "b": {"c": 2.0}})
    >>> net.flows(sm.Gravity([90, 0, 0], [0, 2, 3], power=1, constrained=True)).load
    array([90., 30.])
    """

    __module__ = "semiring_mm"  # where users import it from

    origins: Any
    destinations: Any
    exponential: float | None = None
    power: float | None = None
    constrained: bool = False

    def __post_init__(self) -> None:
        given = [x for x in (self.exponential, self.power) if x is not None]
        number = len(given) == 1 and isinstance(given[0], (int, float, np.number))
        if not number or not 0 <= given[0] < np.inf:
            raise ValueError(
                f"Gravity takes one of exponential= and power=, a number that is not negative, got "
                f"exponential={self.exponential!r} and power={self.power!r}"
            )

    def decay(self, d: Float) -> Float:
        """Decay of trips with distance: f(d).

        Parameters
        ----------
        d : array of float64
            Distances.

        Returns
        -------
        array of float64
            0 where there is no path.
        """
        if self.exponential is not None:
            factor: Float = np.exp(-self.exponential * d)
        else:
            assert self.power is not None
            with np.errstate(divide="ignore"):
                factor = d**-self.power
        return np.where(np.isinf(d), 0.0, factor)


def flows(
    graph: Any,
    demand: Any,
    *,
    weight: str | int | None = "weight",
    source: Any = None,
    target: Any = None,
    dtype: Any = None,
    directed: bool | None = None,
    trips: str | int = "trips",
    sources: Any = None,
    targets: Any = None,
    ties: str = "share",
    progress: Progress = None,
) -> Flows:
    """Flows along the edges of a graph if every trip takes a shortest path.

    That is the all-or-nothing assignment of a demand.

    Parameters
    ----------
    graph : any graph that :func:`adjacency` takes, or a prepared one of :func:`prepare`
    demand : table, path, tuple, dict, matrix or Gravity
        How many trips lead from where to where. A table of pandas, Polars or Arrow, or a file,
        with the columns origin, destination (or others that :func:`adjacency` reads) and `trips`;
        a tuple of three sequences, origins, destinations and trips, or a dict or structured array
        of these; or ``{"a": {"b": 120}}``. Those of a pair that comes twice are added up. A dense
        matrix, or a sparse one of SciPy's, with a row for each of the `sources` and a column for
        each of the `targets`, which a DataFrame has as its labels; or masses and a decay,
        :class:`Gravity`. Trips from a node to itself use no edge.
    weight, source, target, dtype, directed : optional
        As for :func:`statistics`.
    trips : str or int, default "trips"
        The column of a table or file that holds the trips, by name or number.
    sources, targets : sequence of nodes, optional
        Of the rows and columns of a matrix, or of the masses; default: all nodes.
    ties : {"share", "one"}
        Whether all shortest paths of a pair share its trips evenly, and so do the shortest of
        parallel edges; or one of them carries all.
    progress : bool or callable, optional
        As for :func:`apsp`, of the sources.

    Returns
    -------
    Flows

    Raises
    ------
    ValueError
        If there is no such node, trips are negative or not finite, a cycle has negative weight
        (:class:`NegativeCycleError`) or, where trips are shared, weight 0.

    Notes
    -----
    The sum of load times weight is that of trips times distance. Reverse sweeps (see
    :func:`statistics`) from the origins, O(f) each, f being the edges of an elimination above the
    destinations; or searches where separators are large. With ``ties="one"`` whole trips stay
    whole, and the path of a pair is that of :meth:`PreparedGraph.path` where there is only one.

    Examples
    --------
    >>> import semiring_mm as sm
    >>> streets = {"a": {"b": 3, "c": 3}, "b": {"d": 1}, "c": {"d": 1}}
    >>> found = sm.flows(streets, {"a": {"d": 100, "b": 20}})
    >>> found.load
    array([70., 50., 50., 50.])
    >>> found.distance, found.without_path
    (460.0, 0.0)
    """
    if ties not in ("share", "one"):
        raise ValueError(f"ties is 'share' or 'one', got {ties!r}")
    edges, metric = distances_of(graph, weight, directed, source, target, dtype)
    own = edges.original
    asked: Demand | DemandRows
    if isinstance(demand, Gravity):
        asked = _Model(own, demand, sources, targets)
    else:
        asked = _given(own, demand, trips, sources, targets)
    if edges.ends is not None:
        if not isinstance(asked, Demand):
            raise ValueError("demand: trips to zone centroids are given by pairs, not as a matrix")
        asked = asked.ending(edges.ends, edges.n)
    reporter(progress, 1.0)  # the argument's own errors come first
    rows = rows_for(edges, len(asked.sources), metric, loads=True)
    if isinstance(asked, _Model):
        asked.rows = rows
    tick = reporter(progress, float(len(asked.sources)), rows.method, "sources")
    load, lost = rows.edge_loads(asked, single=ties == "one", tick=tick)
    return Flows(own, of_all_edges(edges, load)[: len(own.col)], asked.total, lost)


def _given(
    edges: EdgeList, demand: Any, trips: str | int, sources: Any, targets: Any
) -> Demand | DemandRows:
    """The demand that is given by pairs or as a matrix."""
    columns = _columns(demand, trips)
    matrix = is_table(demand) and _is_labelled(edges, demand, trips)
    listed = isinstance(demand, (EdgeList, Mapping, str, PathLike)) or are_paths(demand)
    if columns is None and (matrix or not (listed or is_table(demand))):
        if matrix and sources is targets is None:
            sources, targets = list(demand.index), list(demand.columns)
        return _of_matrix(edges, demand, sources, targets)
    if sources is not None or targets is not None:
        raise ValueError(
            "sources and targets name the rows and columns of a matrix; a table has the nodes in "
            "its rows: leave them out"
        )
    if columns is None:
        plain = isinstance(demand, (EdgeList, Mapping))
        found, labels = as_graph(demand, weight="weight" if plain else trips)
        known = _positions(list(range(found.n) if labels is None else labels), edges, "demand")
        (row, col), amount = (known[x] for x in (found.row, found.col)), found.weight
        if not found.directed:
            (row, col), amount = both_ways(row, col), np.tile(amount, 2)
    else:
        row, col = (_places(x, edges, name) for x, name in zip(columns, _ENDS, strict=False))
        amount = np.asarray(columns[2])
        if not len(row) == len(col) == amount.size == len(amount.ravel()) or amount.ndim != 1:
            raise ValueError(
                f"demand: origins, destinations and trips are of one length, got {len(row)}, "
                f"{len(col)} and shape {amount.shape}"
            )
    _check(amount, lambda k: f"from {edges.nodes[row[k]]!r} to {edges.nodes[col[k]]!r}")
    return Demand.between(edges.n, row, col, amount)


def _is_labelled(edges: EdgeList, table: Any, trips: str | int) -> bool:
    """Whether a table is a matrix with nodes as its row and column labels."""
    names = list(table.columns)
    return hasattr(table, "index") and trips not in names and {*names} <= {*edges.nodes}


def _columns(demand: Any, trips: str | int) -> tuple[Any, Any, Any] | None:
    """Origins, destinations and trips of what has them as three sequences."""
    if isinstance(demand, Mapping) and trips in demand:
        demand = (*(x for name, x in demand.items() if name != trips), demand[trips])
    elif names := getattr(getattr(demand, "dtype", None), "names", None):
        demand = tuple(demand[name] for name in names)
    if not isinstance(demand, tuple):
        return None
    if len(demand) != 3:
        raise ValueError(
            f"demand: three columns, origins, destinations and trips, got {len(demand)}"
        )
    return demand


def _of_matrix(edges: EdgeList, demand: Any, sources: Any, targets: Any) -> Demand | DemandRows:
    start, end = _positions(sources, edges, "sources"), _positions(targets, edges, "targets")
    sparse, given = hasattr(demand, "tocoo"), type(demand).__name__
    if not sparse:
        demand = np.asarray(demand)
    if demand.dtype.kind not in "biuf" or demand.ndim != 2:
        raise TypeError(f"{_FORMS}, got a {given} of dtype {demand.dtype} with {demand.ndim} axes")
    if demand.shape != (len(start), len(end)):
        raise ValueError(
            f"demand: a matrix has a row for each of the {len(start)} sources and a column for "
            f"each of the {len(end)} targets, got shape {demand.shape}"
        )
    values = demand.tocoo() if sparse else demand

    def pair(k: int) -> str:
        i, j = (values.row[k], values.col[k]) if sparse else divmod(k, len(end))
        return f"from {edges.nodes[start[i]]!r} to {edges.nodes[end[j]]!r}"

    _check(values.data if sparse else values.ravel(), pair)
    if sparse or any(len(np.unique(x)) < len(x) for x in (start, end)):
        return Demand.of(edges.n, start, end, demand)
    return _Matrix(edges.n, start, end, demand)


def _check(amount: Array, pair: Callable[[int], str]) -> None:
    """Raise an error for trips that are no numbers, negative or without end."""
    if amount.dtype.kind not in "biuf":
        raise TypeError(f"demand: trips are numbers, got {amount.dtype}")
    wrong = ~((amount >= 0) & (amount < np.inf))
    if wrong.any():
        k = int(wrong.argmax())
        raise ValueError(
            f"demand: trips are finite numbers and not negative, got {amount[k]} {pair(k)}"
        )


def _positions(nodes: Any, edges: EdgeList, name: str) -> Index:
    found = positions(nodes, edges.n, edges.nodes, name)
    return np.arange(edges.n) if found is None else found


def _places(labels: Any, edges: EdgeList, name: str) -> Index:
    """Positions of labels, each of which is looked up once."""
    labels = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    different = list(dict.fromkeys(labels))
    place = dict(zip(different, _positions(different, edges, name).tolist(), strict=True))
    return np.fromiter(map(place.__getitem__, labels), np.int64, len(labels))


class _Matrix(DemandRows):
    """A dense matrix of different sources and targets."""

    def __init__(self, n: int, sources: Index, targets: Index, matrix: Array) -> None:
        there = matrix.any(axis=1)
        super().__init__(n, sources[there], targets)
        self.matrix, self.place = matrix, np.empty(n, np.int64)
        self.place[sources] = np.arange(len(sources))

    def amounts(self, sources: Index) -> Array:
        return self.matrix[self.place[sources]].astype(np.float64)


class _Model(DemandRows):
    """Trips of a gravity model."""

    rows: Rows  # what finds the distances; chosen when the number of sources is known

    def __init__(self, edges: EdgeList, model: Gravity, sources: Any, targets: Any) -> None:
        self.labels, self.model = edges.nodes, model
        nodes, masses = list[Index](), list[Float]()
        for name, given, wanted in (
            ("origins", model.origins, sources), ("destinations", model.destinations, targets)
        ):  # fmt: skip
            some = _positions(wanted, edges, "sources" if name == "origins" else "targets")
            mass = np.asarray(given)
            if mass.shape != some.shape or mass.dtype.kind not in "biuf":
                raise ValueError(
                    f"Gravity: {name} has a mass for each of the {len(some)} nodes, got shape "
                    f"{mass.shape} and dtype {mass.dtype}"
                )
            if len(np.unique(some)) < len(some):
                raise ValueError(f"Gravity: a node comes twice among those of the {name}")
            if not ((mass >= 0) & (mass < np.inf)).all():
                raise ValueError(f"Gravity: {name} are finite and not negative")
            nodes.append(some[mass > 0])
            masses.append(mass[mass > 0].astype(np.float64))
        super().__init__(edges.n, *nodes)
        self.attraction, self.mass = masses[1], np.zeros(edges.n)
        self.mass[nodes[0]] = masses[0]

    def amounts(self, sources: Index) -> Float:
        d = self.rows.rows(sources, None if len(self.targets) == self.n else self.targets)
        if len(self.targets) == self.n:
            d = d[:, self.targets]
        with np.errstate(over="ignore"):
            trips = self.attraction * self.model.decay(d)
            trips[sources[:, np.newaxis] == self.targets] = 0.0
            mass = self.mass[sources, np.newaxis]
            if self.model.constrained:
                total = trips.sum(axis=1, keepdims=True)
                mass = np.divide(mass, total, out=np.zeros_like(mass), where=total > 0)
            trips *= mass
        if not np.isfinite(trips).all():
            i, j = np.argwhere(~np.isfinite(trips))[0].tolist()
            u, v = self.labels[sources[i]], self.labels[self.targets[j]]
            raise ValueError(
                f"Gravity: the number of trips from {u!r} to {v!r}, {d[i, j]} apart, is not finite"
            )
        return trips
