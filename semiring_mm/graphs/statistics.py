"""Statistics of all distances of a graph: eccentricity, closeness, histogram, and so on."""

from __future__ import annotations

import hashlib
import io
import math
import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import check_memory
from ..closures.edges import EdgeList
from ..closures.labelled import pandas
from ..closures.solve import Problem
from ..closures.sources import EdgeSource
from ..deprecated import apart
from ..display import Shown, Table, cell
from ..hierarchy.collector import Collector, LoadCollector, Wanted, zero_bin
from ..hierarchy.demand import Demand
from ..hierarchy.metric import Metric, customize
from ..naming import named
from ..progress import Progress, reporter
from ..semirings import semirings
from ..storage import atomic_write, digest, read_arrays, seal, unseal, unusable
from ..tiles import TileOptions, Tiles
from .bounds import Bounds
from .choice import Request
from .inputs import positions
from .methods import plan
from .prepared import PreparedGraph, distances_of
from .rows import HopRows, Rows, Searches, Sweeps

__all__ = [
    "FEW", "OF_PATHS", "Histogram", "Statistics", "collect", "extremes", "finder", "loads",
    "of_all_edges", "request_of", "rows_for", "statistics",
]  # fmt: skip

Array = NDArray[Any]
Index = NDArray[np.int64]

#: What there is, and of which pass it is: over distances from a node, or to it, or over paths.
_KINDS = {
    "eccentricity": ("out", {"largest", "count"}),
    "mean": ("out", {"sum", "count"}),
    "closeness": ("in", {"sum", "count"}),
    "harmonic": ("in", {"inverse"}),
    "histogram": ("out", {"bins"}),
    "within": ("out", {"within"}),
    "diameter": ("out", {"largest", "count"}),
    "radius": ("out", {"largest", "count"}),
    "center": ("out", {"largest", "count"}),
    "betweenness": ("paths", {"shares"}),
    "edge_betweenness": ("paths", {"shares"}),
    "stress": ("paths", {"paths"}),
}
#: Statistics for which shortest paths are counted.
OF_PATHS = tuple(name for name, (side, _) in _KINDS.items() if side == "paths")
_EXTREMES = {"diameter", "radius", "center"}  # by bounds, where they are all that is asked for
_DEFAULT = ("eccentricity", "mean", "closeness", "harmonic", "histogram")
_FORMAT = 2
FEW = 64  # searches that usually decide a diameter
_EVERY = 10.0  # seconds between checkpoints


@dataclass(frozen=True, repr=False)
class Histogram:
    """How many pairs of different nodes are how far apart.

    Attributes
    ----------
    counts : (bins,) int64
    edges : (bins + 1,) array
        Bin i has distances d with ``edges[i] <= d < edges[i + 1]``; the last has both its edges.
    """

    __module__ = "semiring_mm"  # where users import it from

    counts: NDArray[np.int64]
    edges: Array

    def __repr__(self) -> str:
        first, last = (cell(self.edges[k]) for k in (0, -1))
        return (
            f"<Histogram: {self.counts.sum()} pairs in {len(self.counts)} bins from {first} to "
            f"{last}>"
        )


@dataclass(frozen=True, repr=False)
class Statistics(Shown):
    """Statistics of the distances of a graph; None is what was not asked for.

    Distances are from each of the `nodes` to all others, or to the targets, but closeness and
    harmonic closeness are of the distances to it, as in NetworkX. Pairs without a path do not
    count.

    Attributes
    ----------
    nodes : sequence
        The nodes of which the arrays are, in their order.
    n : int
        Nodes of the graph, or how many targets there are.
    reached : (nodes,) int64
        To how many nodes there is a path, itself included.
    eccentricity : (nodes,) array
        The distance to the farthest node that is reached.
    mean : (nodes,) float64
        The mean distance to the other nodes reached; NaN where there are none.
    closeness : (nodes,) float64
        ``(r - 1) / total * (r - 1) / (n - 1)`` of the r nodes from which there is a path, and of
        the total of their distances: as ``networkx.closeness_centrality``.
    harmonic : (nodes,) float64
        The sum of the inverse distances that are not zero, as ``networkx.harmonic_centrality``.
    within : (nodes, radii) array
        Number of nodes at most so far away, itself included, or the sum of their attribute.
    histogram : Histogram
    radius, diameter : int or float
        The least and the largest eccentricity; the least of those nodes that reach the most.
    ends : tuple
        Two nodes that are the diameter apart.
    center : sequence
        The nodes whose eccentricity is the radius, of those that reach the most.
    mean_distance : float
        Over all pairs of different nodes with a path.
    betweenness : (nodes,) float64
        For each node the sum over pairs of other nodes, of the sources and of the targets, of the
        share of their shortest paths that passes through it, as ``networkx.betweenness_centrality``
        with ``normalized=False``: of an undirected graph each pair counts once.
    edge_betweenness : (edges,) float64
        The same for the edges of the graph, in their order. Shortest paths are told apart by their
        nodes; the shortest of parallel edges share what passes between their ends.
    stress : (nodes,) float64
        As `betweenness`, with the number of shortest paths in place of their share.
    """

    __module__ = "semiring_mm"  # where users import it from

    nodes: Sequence[Any]
    n: int
    reached: NDArray[np.int64] | None = None
    eccentricity: Array | None = None
    mean: NDArray[np.float64] | None = None
    closeness: NDArray[np.float64] | None = None
    harmonic: NDArray[np.float64] | None = None
    within: Array | None = None
    histogram: Histogram | None = None
    radius: Any = None
    diameter: Any = None
    ends: tuple[Any, Any] | None = None
    center: Sequence[Any] | None = None
    mean_distance: float | None = None
    betweenness: NDArray[np.float64] | None = None
    edge_betweenness: NDArray[np.float64] | None = None
    stress: NDArray[np.float64] | None = None
    radii: tuple[Any, ...] = ()

    def _title(self) -> str:
        count = f"{self.n} nodes"
        words = [count if len(self.nodes) == self.n else f"{len(self.nodes)} of {count}"]
        for name in ("radius", "diameter", "mean_distance"):
            if (value := getattr(self, name)) is not None:
                words.append(f"{name.replace('_', ' ')} {value:.8g}")
        return f"Statistics: {', '.join(words)}"

    def _table(self) -> Table:
        columns = {"node": self.nodes} | self.columns()
        return [*columns], len(self.nodes), lambda i: [x[i] for x in columns.values()]

    @property
    def connected(self) -> bool | None:
        """Whether each of the nodes reaches all; None if that was not asked for."""
        return None if self.reached is None else bool((self.reached == self.n).all())

    def to_frame(self) -> Any:
        """A table of pandas with a row for each node.

        Returns
        -------
        pandas.DataFrame
            Columns reached, eccentricity, mean, closeness, harmonic, betweenness, stress and, for
            each radius r, ``within r``, what there is of them.
        """
        pd = pandas()
        return pd.DataFrame(self.columns(), pd.Index(list(self.nodes), tupleize_cols=False))

    def columns(self) -> dict[str, Array]:
        """The arrays with a number for each node, by name.

        Returns
        -------
        dict of str to (n,) array
        """
        names = (
            "reached", "eccentricity", "mean", "closeness", "harmonic", "betweenness", "stress",
        )  # fmt: skip
        found = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.within is not None:
            found |= {f"within {r:g}": self.within[:, i] for i, r in enumerate(self.radii)}
        return found


@apart(resume=True)
def statistics(
    graph: Any,
    what: str | Sequence[str] | None = None,
    *,
    weight: str | int | None = "weight",
    source: Any = None,
    target: Any = None,
    dtype: Any = None,
    directed: bool | None = None,
    sources: Any = None,
    targets: Any = None,
    bins: int | Sequence[Any] = 50,
    radius: Any = None,
    attribute: Any = None,
    device: str | None = None,
    progress: Progress = None,
    tiles: Tiles | None = None,
) -> Statistics:
    """Statistics of the distances between all nodes, none of which are kept.

    Parameters
    ----------
    graph : any graph that :func:`adjacency` takes, or a prepared one of :func:`prepare`
    what : str or sequence of str, optional
        Of "eccentricity" (with the next three), "diameter" (with its ends), "radius", "center",
        "mean", "closeness", "harmonic", "histogram", "within", "betweenness", "edge_betweenness"
        and "stress". Default: the first eight, and "within" if a `radius` is given.
    weight : str or None, default "weight"
        As for :func:`adjacency`; None: each edge counts 1.
    source, target : optional
        The columns of a table, or of a file, that hold the ends of edges.
    dtype : dtype, optional
        Of the distances. Default: float32 for float32 weights, int64 for whole numbers in an
        integer dtype, and float64 for others.
    directed : bool, optional
        False also reads every edge backwards. Default: what the graph says of itself.
    sources : node, or sequence of nodes, optional
        Whose statistics are wanted; default: of all nodes. Betweenness and stress are those of all
        nodes in the paths from the sources.
    targets : node, or sequence of nodes, optional
        The nodes to which distances count (and from which, for closeness and harmonic closeness);
        default: all nodes. Computed on the CPU, but for betweenness and stress.
    bins : int or sequence, default 50
        Of the histogram: the edges, ascending; or about how many bins, of a round width from 0 on.
    radius : number or sequence of them, optional
        For "within".
    attribute : array_like of shape (n,), optional
        A number for each node, such as inhabitants, of which the sum within the radius is taken.
        Default: nodes are counted.
    device : {None, "cpu", "cuda", "cuda:N"}
        Where sweeps and breadth-first searches run; of betweenness and stress searches alone, where
        all edges count the same. None: on a CUDA device if there is one and the work is large, else
        on the CPU.
    progress : bool or callable, optional
        As for :func:`apsp`.
    tiles : Tiles, optional
        ``devices`` share the sources; ``out``, an ``.npz`` file, has the state of the run until
        its end. See :class:`Tiles`.

    Returns
    -------
    Statistics

    Raises
    ------
    ValueError
        If there is no such node or statistic, a cycle has negative weight
        (:class:`NegativeCycleError`) or, for betweenness, weight 0, or the state to resume from is
        of other work.
    FileExistsError
        If there is a state, and ``tiles.resume`` is not asked for.

    Notes
    -----
    O(f) a source on a sparse graph, f being the edges of an elimination (see :func:`prepare`), by
    sweeps from many sources at once whose labels stay in the cache (PHAST: Delling, Goldberg,
    Nowatzyk and Werneck, 2013). Where each edge counts 1 and paths have few edges, by breadth-first
    searches from 512 sources at once and more (Then et al., 2014). Whole numbers are added up
    exactly, others with compensation, on a device in float64. Diameter, radius and center alone, of
    an undirected graph, take few searches if bounds decide them (Takes and Kosters, 2011), and on
    the CPU at most about twice the time of all eccentricities.

    Betweenness is the gradient of the sum of distances: sweeps over pairs (distance, number of
    shortest paths) run backwards, on a device adding up loads in any order. Equal lengths of paths
    are told from others exactly, for whole numbers and for decimals of up to 12 digits; other
    lengths are equal if they differ by at most 2⁻⁵⁰ of the largest distance. Numbers of paths may
    have any size. Where separators are large, or there are few sources, by a search from each
    source and back (Brandes, 2001), where each edge counts 1 for 16 sources at once, or about 1,000
    on a device, else on the CPU: other lengths are equal there if their sums from the source on
    are, weights are positive, and there are at most 10³⁰⁰ paths.

    Examples
    --------
    >>> import networkx as nx
    >>> import semiring_mm as sm
    >>> found = sm.statistics(nx.path_graph(5))
    >>> found.radius, found.diameter, found.ends, found.mean_distance
    (2.0, 4.0, (0, 4), 2.0)
    >>> found.closeness.round(2)
    array([0.4 , 0.57, 0.67, 0.57, 0.4 ])
    >>> found.histogram.counts
    array([0, 8, 6, 4, 2])
    """
    asked = _asked(what, radius)
    options = TileOptions.of(device, tiles, "memory")
    of_paths = set(OF_PATHS) & set(asked)
    away = options.devices is not None or device not in (None, "cpu")
    if sources is not None and of_paths and not of_paths >= set(asked):
        raise ValueError(
            f"{min(of_paths)!r} is of all nodes, the other statistics are of the sources: ask for "
            f"them in two calls"
        )
    paths = options.paths(False, "ending in .npz")
    edges, metric = distances_of(graph, weight, directed, source, target, dtype)
    own = edges.original
    rows = positions(sources, own.n, own.nodes)
    rows = np.arange(own.n) if rows is None else rows
    columns = positions(targets, own.n, own.nodes, "targets")
    if columns is not None and not columns.size:
        raise ValueError("targets: at least one node")
    if columns is None and edges.ends is not None:
        columns = np.arange(own.n)
    if away and columns is not None and not of_paths >= set(asked):
        what = "targets" if edges.ends is None else "zone centroids"
        raise ValueError(f"{what}: statistics of some are computed on the CPU: leave out device")
    where = options.indices()
    work = _Work(edges, rows, asked, *_wanted(asked, own.n, bins, radius, attribute), columns)
    reporter(progress, 1.0)  # the argument's own errors come first
    state = None if paths is None else _State(paths[0], work, options)
    whole = sources is None or len(np.unique(rows)) == edges.n
    extreme = set(asked) <= _EXTREMES and whole
    if extreme and edges.n and columns is None and where is None and state is None:
        found = _by_bounds(edges, metric, set(asked), progress)
        if found is not None:
            return found
    counter: Rows | None = None
    if of_paths and away:
        counter = _on_device(edges, metric, len(rows), min(of_paths))
    if metric is None and of_paths >= set(asked):
        way = counter = counter or finder(request_of(edges, len(rows), loads=True))
    elif metric is None:
        device_, some = None if where is None else "cuda", not work.mass is work.columns is None
        way = finder(request_of(edges, len(rows), device=device_, metric=some))
    else:
        way = Sweeps(*metric)
    if counter is None and of_paths:
        counter = way
        if not isinstance(way, Sweeps):
            counter = finder(request_of(edges, len(rows), loads=True))
    automatic = where is None and device is None
    if counter is not None:
        _place(counter, len(rows), where, automatic=automatic, paths=True)
    if counter is not way and columns is None:
        _place(way, len(rows), where, automatic=automatic)
    if isinstance(graph, PreparedGraph):
        way.placed = graph.placed
    found = work.run(way, counter or way, state, progress)
    if state is not None:
        state.remove()
    return found


def _by_bounds(
    edges: EdgeList, metric: tuple[Metric, Problem] | None, asked: set[str], progress: Progress
) -> Statistics | None:
    """Some of diameter, radius and center by few searches; None if distances are asymmetric."""
    if metric is not None:
        way: Rows = Sweeps(*metric)
    elif (request := request_of(edges, FEW)).sparse.source.symmetric():
        way = finder(request)
    else:  # before anything is prepared
        return None
    if not way.symmetric:
        return None
    bounds = extremes(way, asked, reporter(progress, float(edges.n), way.method, "nodes"))
    fields: dict[str, Any] = {}
    if "diameter" in asked:
        fields["diameter"] = bounds.diameter.item()
        fields["ends"] = tuple(edges.nodes[i] for i in bounds.ends)
    if asked & {"radius", "center"}:
        fields["radius"] = bounds.radius.item()
    if "center" in asked:
        fields["center"] = [edges.nodes[i] for i in bounds.center.tolist()]
    return Statistics(edges.nodes, edges.n, **fields)


def extremes(way: Rows, asked: set[str], tick: Any = None) -> Bounds:
    """Bounds of all eccentricities that decide diameter, periphery, radius or center."""
    collector = way.collector(Wanted(frozenset({"largest"})))
    missing = way.problem.steps.identities[0]

    def rows(sources: Index) -> Array:
        if isinstance(way, HopRows):
            return way.graph.distances(sources)
        d = way.computed(sources)
        return np.where(d == missing, -1, d)

    def eccentricities(sources: Index) -> Array:
        return _pass(collector, sources, way.order(sources))["largest"]

    source = way.problem.source
    assert isinstance(source, EdgeSource)
    bounds = Bounds(source.given, way.dtype.kind != "f")
    return bounds.decide(asked, rows, eccentricities, way.cheaper, tick)


def _asked(what: str | Sequence[str] | None, radius: Any) -> tuple[str, ...]:
    if what is None:
        return (*_DEFAULT, *(("within",) if radius is not None else ()))
    names = (what,) if isinstance(what, str) else tuple(what)
    for name in names:
        if name not in _KINDS:
            raise ValueError(f"what: statistics are {', '.join(_KINDS)}, got {name!r}")
    if ("within" in names) != (radius is not None):
        raise ValueError("'within' takes a radius, and a radius is for 'within': give both")
    return names


def _wanted(
    asked: tuple[str, ...], n: int, bins: int | Sequence[Any], radius: Any, attribute: Any
) -> tuple[int, Array | None, Array | None, Array | None]:
    """The number of bins, or their edges, the radii, and the attribute of the nodes."""
    count, edges, radii, mass = 0, None, None, None
    if "histogram" in asked:
        if isinstance(bins, (int, np.integer)) and not isinstance(bins, bool):
            count = int(bins)
            if not 1 <= count <= 1 << 20:
                raise ValueError(f"bins: a number from 1 to {1 << 20}, got {count}")
        else:
            edges = np.asarray(bins)
            good = edges.ndim == 1 and len(edges) >= 2 and edges.dtype.kind in "iuf"
            if not good or not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
                raise ValueError(
                    f"bins: a number of them, or at least two finite edges in ascending order, got "
                    f"{bins!r}"
                )
    if radius is not None:
        radii = np.atleast_1d(np.asarray(radius))
        if radii.ndim != 1 or radii.dtype.kind not in "iuf" or np.isnan(radii).any():
            raise ValueError(f"radius: a number or several, got {radius!r}")
    if attribute is not None:
        if radius is None:
            raise ValueError("attribute: its sum is taken within a radius: give radius, too")
        mass = np.asarray(attribute)
        if mass.shape != (n,) or mass.dtype.kind not in "biuf":
            raise ValueError(
                f"attribute: a number for each of the {n} nodes, got shape {mass.shape} and dtype "
                f"{mass.dtype}"
            )
        mass = mass.astype(np.float64 if mass.dtype.kind == "f" else np.int64)
        if mass.dtype.kind == "i" and sum(map(abs, mass.tolist())) >= 1 << 63:
            raise OverflowError("attribute: its sum does not fit 64 bits; give floats")
    return count, edges, radii, mass


def request_of(edges: EdgeList, count: int, **more: Any) -> Request:
    """The request for distances from some nodes that pass, and are not kept."""
    problem = problem_of(edges)
    request = Request(
        problem.source.s, edges.n, problem.dtype, len(edges.row), sources=count,
        undirected=not edges.directed, kept=False, **more,
    )  # fmt: skip
    request.sparse = problem
    return request


def rows_for(
    edges: EdgeList, count: int, known: tuple[Metric, Problem] | None, **more: Any
) -> Rows:
    """What finds rows from so many nodes: sweeps of a prepared graph, or the cheapest method."""
    return finder(request_of(edges, count, **more)) if known is None else Sweeps(*known)


def finder(request: Request, *refused: str) -> Rows:
    """Rows of distances, or with numbers of paths, by the cheapest method that is not refused."""
    best = plan(request, dict.fromkeys(refused, "is refused"))
    method = best.name
    if request.loads:
        rows: Rows = best.run(request)
        return rows
    if method == "a search from each source":
        return Searches(request.sparse)
    if method == "breadth-first searches":
        assert request.hop_graph is not None
        return HopRows(request.hop_graph, request.sparse)
    structure = request.structure
    assert structure is not None
    metric = request.sparse.solve(lambda x: customize(structure, x, trees=False))
    return Sweeps(metric, request.sparse, request.count)


def _on_device(
    edges: EdgeList, metric: tuple[Metric, Problem] | None, count: int, name: str
) -> Rows:
    """Rows that count shortest paths on a device, for a statistic."""
    if metric is not None:
        rows: Rows = Sweeps(*metric)
    else:
        request = request_of(edges, count, loads=True)
        rows = finder(request)
        if not rows.counts_there:
            rows = finder(request, "searches and back")
    if not rows.counts_there:
        raise ValueError(
            f"{name!r} of this graph, with large separators, takes a search from each source, on "
            f"the CPU: leave out device"
        )
    return rows


def collect(
    edges: EdgeList, sources: Index, kinds: set[str], device: str | None = None
) -> dict[str, Array]:
    """Results of one pass over the distances from some nodes: see :class:`Wanted`."""
    where = TileOptions(device=device).indices()
    rows = finder(request_of(edges, len(sources), device=None if where is None else "cuda"))
    _place(rows, len(sources), where, automatic=device is None)
    collector = rows.collector(Wanted(frozenset(kinds)))
    check_memory(collector.bytes(), f"the work by {rows.method} over {edges.n} nodes")
    return _pass(collector, sources, rows.order(sources))


def loads(
    edges: EdgeList, sources: Index, demand: Demand | None = None, *, of_edges: bool = True,
    device: str | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """Loads of nodes and edges in the shortest paths from some nodes: :class:`LoadCollector`.

    A device is taken where it counts them.
    """
    where = TileOptions(device=device).indices()
    rows = finder(request_of(edges, len(sources), loads=True))
    there = where if rows.counts_there else None
    _place(rows, len(sources), there, automatic=device is None, paths=True)
    collector = rows.loads(demand, of_edges=of_edges)
    check_memory(collector.bytes(), f"the work by {rows.method} over {edges.n} nodes")
    return collector.loads(_pass(collector, sources, rows.order(sources)))


def _pass(
    collector: Collector, sources: Index, order: Index, name: str = "out",
    state: _State | None = None, tick: Callable[[int], None] | None = None,
) -> dict[str, Array]:  # fmt: skip
    """Results of some sources, taken in an order of :meth:`Rows.order`, a batch at a time."""
    done, found = 0, collector.empty(len(order))
    if state is not None:
        done, found = state.begin(name, len(order), found)
    while done < len(order):
        some = order[done : done + collector.batch]
        collector.run(sources[some], some, found)
        done += len(some)
        if state is not None:
            state.keep(name, done, found, last=done == len(order))
        if tick is not None:
            tick(done)
    return found


def _place(
    rows: Rows, count: int, where: Sequence[int] | None, *, automatic: bool, paths: bool = False
) -> None:  # fmt: skip
    """Collect on some devices or, `automatic`, on the current one if there is much to do."""
    own = rows.device(count, paths=paths) if automatic else None
    rows.devices = where if own is None else [own]
    if rows.devices is not None and isinstance(rows, Sweeps):
        rows.method = "sweeps on CUDA"


def of_all_edges(edges: EdgeList, loads: Array) -> Array:
    """Loads of all edges, from those of edges that have an end."""
    if len(loads) == len(edges.col):
        return loads
    every = np.zeros(len(edges.col))
    every[edges.weight < np.inf] = loads
    return every


def problem_of(graph: EdgeList) -> Problem:
    """The shortest paths of a graph, of whole numbers where its weights are of such a type."""
    weight = graph.weight
    kind = np.float32 if weight.dtype == np.float32 else np.float64
    dtype = np.dtype(np.int64 if weight.dtype.kind in "biu" else kind)
    if weight.dtype.kind == "u" and weight.size and int(weight.max()) >= 1 << 62:
        dtype = np.dtype(np.float64)
    labels = graph.nodes
    if dtype.kind == "f":
        if (lowest := np.flatnonzero(weight == -np.inf)).size:
            u, v = (labels[x[lowest[0]]] for x in (graph.row, graph.col))
            raise ValueError(f"the weight of edge {u!r} - {v!r} is -inf; use inf for no edge")
        graph = graph.kept(weight < np.inf)
    return Problem.of(EdgeSource(semirings["min_plus"], graph, dtype), labels=labels)


class _Work:
    """What to compute, of which nodes, and how far that is."""

    def __init__(
        self, edges: EdgeList, rows: Index, asked: tuple[str, ...], bins: int,
        limits: Array | None, radii: Array | None, mass: Array | None,
        columns: Index | None = None,
    ) -> None:  # fmt: skip
        self.edges, self.rows, self.asked = edges, rows, asked
        self.own = edges.original  # of which the results are
        self.bins, self.limits, self.radii, self.mass = bins, limits, radii, mass
        self.columns = None if columns is None else np.unique(columns)
        self.n = edges.n if self.columns is None else len(self.columns)
        if self.columns is not None and mass is not None:
            self.mass = mass[self.columns]

    def _ends(self, nodes: Index) -> Index:
        """Where paths to some nodes end."""
        return nodes if self.edges.ends is None else self.edges.ends[nodes]

    def fingerprint(self) -> str:
        """A digest of all that decides the result."""
        x = self.edges
        mark = hashlib.sha256(f"{_FORMAT} {x.n} {x.directed} {self.asked} {self.bins}".encode())
        given = (self.rows, self.limits, self.radii, self.mass, self.columns)
        for array in (x.row, x.col, x.weight, *given):
            if array is not None:
                mark.update(f"{array.dtype} {array.shape}".encode())
                mark.update(np.ascontiguousarray(array).tobytes())
        return mark.hexdigest()

    def run(self, way: Rows, counter: Rows, state: _State | None, progress: Progress) -> Statistics:
        kinds: dict[str, set[str]] = {"out": set(), "in": set()}
        loads: set[str] = set()
        for name in self.asked:
            side, needed = _KINDS[name]
            if side == "paths":
                loads |= needed
            else:
                kinds["out" if way.symmetric else side] |= needed
        radii, mass, limits = self.radii, self.mass, self.limits
        every = len(self.rows) == self.edges.n and bool((np.bincount(self.rows) == 1).all())
        every = every and self.columns is None
        wanted = Wanted(frozenset(kinds["out"]), limits, radii, mass, every)
        ends = None if self.columns is None else self._ends(self.columns)
        collector, later = way.collector(wanted, ends), False
        if "bins" in wanted.kinds and limits is None:
            # The range of the histogram has to be known: by a bound, or after a first pass.
            if collector.negative:
                raise ValueError("bins: some weights are negative; give the edges of the bins")
            if collector.tight:
                limits = _round_bins(collector.bound, self.bins, collector.whole)
                collector.want(replace(wanted, edges=limits))
            else:
                later = True
                collector.want(replace(wanted, kinds=wanted.kinds - {"bins"} | {"largest"}))
        passes = (["out"] if kinds["out"] else []) + ["bins"] * later + ["in"] * bool(kinds["in"])
        passes += sorted(loads)
        order = way.order(self.rows)
        total = float(len(passes)) * len(order) * self.edges.n
        tick = reporter(progress, total, way.method, "entries")
        found: dict[str, dict[str, Array]] = {}
        for number, name in enumerate(passes):
            if name == "in":
                collector = way.collector(
                    Wanted(frozenset(kinds["in"])), self.columns, backward=True
                )
            if name in loads:
                demand = None if ends is None else Demand.to(self.edges.n, ends)
                edges = "edge_betweenness" in self.asked
                collector = counter.loads(demand, stress=name == "paths", of_edges=edges)
            if name == "bins":
                most = found["out"]["largest"].max(initial=0).item()
                limits = _round_bins(most, self.bins, collector.whole)
                collector.want(Wanted(frozenset({"bins"}), limits, every=every))
            check_memory(collector.bytes(), f"the work by {way.method} over {self.edges.n} nodes")
            found[name] = _pass(
                collector, self._ends(self.rows) if name == "in" else self.rows, order, name, state,
                None if tick is None else _shifted(tick, number * len(order), self.edges.n),
            )  # fmt: skip
            if isinstance(collector, LoadCollector):
                found[name] = self._loads(*collector.loads(found[name]))
        return self._result(way, found, limits)

    def _loads(self, nodes: Array, edges: Array) -> dict[str, Array]:
        """Loads of nodes and of all edges; each pair of nodes of an undirected graph once."""
        scale, own = 1.0 if self.edges.directed else 0.5, self.own
        every = of_all_edges(self.edges, edges)[: len(own.col)]
        return {"nodes": scale * nodes[: own.n], "edges": scale * every}

    def _result(
        self, way: Rows, found: dict[str, dict[str, Array]],
        limits: Array | None,
    ) -> Statistics:  # fmt: skip
        x, n, rows, asked = self.own, self.n, self.rows, self.asked
        ends = np.arange(n) if self.columns is None else self.columns
        own = np.isin(rows, ends).astype(np.int64)  # the distance of a node to itself
        out = found.get("out", {})
        inward = out if way.symmetric else found.get("in", {})
        kind = way.dtype.type if way.dtype.kind == "f" else np.int64
        nodes: Sequence[Any] = x.nodes
        of_all = set(asked) <= set(OF_PATHS)
        if not of_all and not (len(rows) == x.n and (rows == np.arange(x.n)).all()):
            nodes = [x.nodes[i] for i in rows.tolist()]
        fields: dict[str, Any] = {}
        if "betweenness" in asked:
            fields["betweenness"] = found["shares"]["nodes"]
        if "edge_betweenness" in asked:
            fields["edge_betweenness"] = found["shares"]["edges"]
        if "stress" in asked:
            fields["stress"] = found["paths"]["nodes"]
        if "count" in out:
            fields["reached"] = out["count"]
        if "largest" in out and "count" in out:
            far = out["largest"].astype(kind)
            if "eccentricity" in asked:
                fields["eccentricity"] = far
            if len(rows):
                top = int(np.argmax(far))
                most = out["count"] == out["count"].max()
                least = far[most].min()
                fields |= {"diameter": far[top].item(), "radius": least.item()}
                last = way.farthest(int(rows[top]), self._ends(ends))
                last = int(ends[self._ends(ends) == last][0])
                fields["ends"] = x.nodes[rows[top]], x.nodes[last]
                center = np.flatnonzero(most & (far == least))
                fields["center"] = [x.nodes[i] for i in rows[center].tolist()]
        if "mean" in asked:
            others = out["count"] - own
            with np.errstate(invalid="ignore", divide="ignore"):
                fields["mean"] = out["sum"] / others
            pairs, total = int(others.sum()), _total(out["sum"])
            fields["mean_distance"] = total / pairs if pairs else math.nan
        if "closeness" in asked:
            others, sums = inward["count"] - 1.0 * own, inward["sum"].astype(np.float64)
            there = (sums > 0) & (n > own)
            closeness = np.zeros(len(rows))
            np.divide(others, sums, out=closeness, where=there)
            fields["closeness"] = closeness * (others / np.maximum(n - own, 1))
        if "harmonic" in asked:
            fields["harmonic"] = inward["inverse"]
        if "within" in asked:
            assert self.radii is not None
            fields |= {"within": out["within"], "radii": tuple(self.radii.tolist())}
        if "histogram" in asked:
            assert limits is not None
            counts = (found.get("bins") or out)["bins"].copy()
            zero = zero_bin(limits)
            if zero is not None:
                counts[zero] -= own.sum()
            if self.limits is None:
                kept = int(np.flatnonzero(counts)[-1]) + 1 if counts.any() else 1
                counts, limits = counts[:kept], limits[: kept + 1]
            fields["histogram"] = Histogram(counts, limits)
        return Statistics(nodes, x.n if of_all else n, **fields)


def _shifted(tick: Any, sources: int, n: int) -> Callable[[int], None]:
    return lambda done: tick(float(sources + done) * n)


def _total(sums: Array) -> Any:
    """Without wrapping, and rounded once."""
    if sums.dtype.kind == "i":
        return (int((sums >> 32).sum()) << 32) + int((sums & 0xFFFFFFFF).sum())
    return math.fsum(sums.tolist())


def _round_bins(bound: float, bins: int, whole: bool) -> Array:
    """Edges from 0 to a bound at a distance of 1, 2 or 5 times a power of ten."""
    raw = bound / bins if bound > 0 else 1.0
    scale = 10.0 ** math.floor(math.log10(raw))
    width = next(f * scale for f in (1, 2, 5, 10) if f * scale >= raw * (1 - 1e-9))
    if whole:
        step = max(1, round(width))
        return np.arange(int(bound) // step + 2, dtype=np.int64) * step
    return np.arange(int(bound / width) + 2) * width


class _State:
    """The state of an unfinished run in a file that is checked."""

    def __init__(self, path: Path, work: _Work, options: TileOptions) -> None:
        if path.suffix != ".npz":
            raise ValueError(f"{named('tiles.out')}: a name that ends in .npz, got {str(path)!r}")
        self.path, self.task, self.every = path, work.fingerprint(), options.checkpoint
        self.passes: dict[str, tuple[int, dict[str, Array]]] = {}
        self.last, self.steps = time.monotonic(), 0
        if not path.exists():
            return
        if not options.resume:
            raise FileExistsError(
                f"{named('tiles.out')}: {path} is left from a run that did not end: "
                f"{named('tiles.resume', True)} goes on with it, or remove it"
            )
        self._load()

    def _load(self) -> None:
        try:
            arrays = read_arrays(self.path)
            fields = unseal(str(arrays.pop("state")))
            if fields["format"] != _FORMAT or fields["arrays"] != digest(arrays).hex():
                raise ValueError("another version's, or damaged")
            task, done = fields["task"], fields["done"]
            for name, count in done.items():
                mine = {x.split(".")[1]: a for x, a in arrays.items() if x.split(".")[0] == name}
                self.passes[name] = operator.index(count), mine
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            raise unusable(self.path, "it") from None
        if task != self.task:
            raise ValueError(
                f"{named('tiles.resume')}: {self.path} is the state of other work: of another "
                f"graph, other sources or other statistics; give the same, or another path"
            )

    def begin(self, name: str, count: int, empty: dict[str, Array]) -> tuple[int, dict[str, Array]]:
        """How many of some sources are done, and their results."""
        done, kept = self.passes.get(name, (0, empty))
        same = 0 <= done <= count and kept.keys() == empty.keys()
        for x, room in empty.items():
            same = same and (kept[x].shape, kept[x].dtype) == (room.shape, room.dtype)
        return (done, kept) if same else (0, empty)

    def keep(self, name: str, done: int, found: dict[str, Array], *, last: bool) -> None:
        """Write the state, after so many steps or seconds."""
        self.passes[name] = done, found
        self.steps += 1
        due = self.steps % self.every == 0 if self.every else time.monotonic() - self.last >= _EVERY
        if not (last or due):
            return
        arrays = {
            f"{p}.{x}": a for p, (_, results) in self.passes.items() for x, a in results.items()
        }
        fields = {
            "format": _FORMAT, "task": self.task, "arrays": digest(arrays).hex(),
            "done": {p: count for p, (count, _) in self.passes.items()},
        }  # fmt: skip
        held = io.BytesIO()
        everything: dict[str, Any] = arrays | {"state": np.array(seal(fields))}
        np.savez(held, **everything)
        with atomic_write(self.path) as part:
            part.write_bytes(held.getbuffer())
        self.last = time.monotonic()

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
