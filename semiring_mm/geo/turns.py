"""Turn costs and bans: street networks whose states are edges, prepared as any other graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import check_memory
from ..closures.edges import EdgeList
from ..closures.labelled import Labels, labelled
from ..graph_kernels import Index, offsets, ranges
from ..graphs.inputs import positions
from ..graphs.prepared import PreparedGraph, prepare
from ..lazy import cached_property
from ..progress import Progress, reporter
from ..semirings import semirings
from .places import Places, check_single
from .streets import Streets

__all__ = ["TurnNetwork", "dual", "turn_angles"]

Edges = tuple[int, ...]
Float = NDArray[np.float64]
Array = NDArray[Any]

#: What ``angle`` may be: a cost for each degree, or what makes costs of signed degrees.
Angle = float | Callable[[Float], Any]

_BATCH = 1 << 24  # entries of the demand that betweenness makes at a time


class TurnNetwork:
    """Street network with turn costs and turn restrictions, prepared for many questions.

    Nodes at which a turn costs anything are expanded: each edge that ends there is a state, from
    which those edges are entered to which a turn is allowed, at the cost of the turn and of the
    edge; besides there is a departure, from which all its edges are entered, and an arrival. Other
    nodes stay as they are. A ban of several edges in a row, as by a restriction via a way, adds a
    state for each of its edges but the first and the last, of having come by those before. So all
    that works on a prepared graph works here: ask ``net.graph`` with ``net.departures`` and
    ``net.arrivals``.

    Parameters
    ----------
    streets : Streets, or (u, v)
        The network, or the ends of directed edges as two integer arrays, of the nodes 0, 1, ...
    weight : str, (m,) array_like, or None
        The cost of each edge, not negative, inf where it is closed: a column of the streets or
        numbers. None: turns alone cost.
    turns : (from, to, cost), optional
        Three arrays: positions of two edges, of which the second begins where the first ends, and
        the cost of the turn, not negative, in the unit of `weight`; inf: banned. Costs of a turn
        that is named twice, and of `u_turn` and `angle`, are added up.
    bans : sequence of sequences of int, or (k, l) array, optional
        What is banned: turns, as positions of two edges, and more edges that one after the other
        may not be taken, though each turn of them may. Rows of an array end with -1 where they have
        fewer. Default: the bans of :func:`read_osm`'s streets; ``()``: none.
    u_turn : float, default 0
        The cost of turning around onto the same street; inf bans it, but in dead ends, where it is
        the only way on, and costs nothing then.
    angle : float or callable, default 0
        The cost of a degree by which a turn deviates from straight on; or a function of an array of
        signed degrees, positive to the left, that gives an array of costs. It needs streets.
    chord : bool, default False
        Whether angles are between the straight lines from end to end of the edges, as momepy takes
        them, and not between their last and first pieces.
    order, progress
        As for :func:`semiring_mm.prepare`.

    Attributes
    ----------
    nodes : sequence
        Labels of the n nodes of the streets.
    graph : PreparedGraph
        Its nodes are the n departures, the states, and the arrivals of expanded nodes.
    departures, arrivals : (n,) int64
        Where they are in ``graph.nodes``; the same for nodes that are not expanded.

    Raises
    ------
    ValueError
        If there is no such column or edge, two edges do not meet, or a cost is negative or NaN.

    Notes
    -----
    O(Σ in-degree x out-degree) turns are looked at, by NumPy; longer bans by Python. These are an
    automaton over edges, as of Aho and Corasick (1975), so that they may overlap; Villeneuve and
    Desaulniers (2005), "The shortest path problem with forbidden paths". The separators of a
    network that is expanded everywhere, as by `angle` or `u_turn`, are about three times as large
    as those of the streets, and the elimination ten times; a few bans cost next to nothing. Winter
    (2002),
    "Modeling costs of turns in route planning"; Buchhold, Wagner, Zeitz and Zündorf (2020),
    "Customizable contraction hierarchies with turn costs".

    Examples
    --------
    >>> import numpy as np
    >>> from semiring_mm.geo import TurnNetwork
    >>> u, v = np.array([0, 1, 0, 2]), np.array([1, 2, 2, 3])  # 0 -> 1 -> 2 -> 3, and 0 -> 2
    >>> net = TurnNetwork((u, v), [1, 1, 5, 1])
    >>> net.distance(0, 3), net.path(0, 3)
    (3.0, [0, 1, 2, 3])
    >>> net = TurnNetwork((u, v), [1, 1, 5, 1], bans=[(1, 3)])
    >>> net.distance(0, 3), net.path(0, 3), net.edges(0, 3)
    (6.0, [0, 2, 3], [2, 3])
    >>> TurnNetwork((u, v), [1, 1, 5, 1], bans=[(0, 1, 3)]).distances([0, 1], [3])  # from 1 one may
    array([[6.],
           [2.]])
    """

    def __init__(
        self,
        streets: Streets | tuple[Any, Any],
        weight: Any = "travel_time",
        *,
        turns: tuple[Any, Any, Any] | None = None,
        bans: Any = None,
        u_turn: float = 0.0,
        angle: Angle = 0.0,
        chord: bool = False,
        order: str = "auto",
        progress: Progress = None,
    ) -> None:
        self.streets = streets if isinstance(streets, Streets) else None
        if isinstance(streets, Streets):
            self.nodes: Sequence[Any] = streets.nodes
            self._u, self._v = streets.u, streets.v
        else:
            self._u, self._v = _ends(streets)
            last = max(self._u.max(initial=-1), self._v.max(initial=-1))
            self.nodes = range(int(last) + 1)
        numbered = isinstance(self.nodes, range)
        self._labels = None if numbered else Labels(self.nodes).unique()
        n, m = len(self.nodes), len(self._u)
        leaving = np.argsort(self._u, kind="stable")
        first = offsets(np.bincount(self._u, minlength=n))
        count = np.diff(first)[self._v]
        tail, head = np.repeat(np.arange(m), count), leaving[ranges(first[self._v], count)]
        # an edge is the how-manieth that leaves its node, and so of those that follow another
        rank = np.empty(m, np.int64)
        rank[leaving] = np.arange(m) - first[self._u[leaving]]
        begin = offsets(count)
        cost = self._u_turns(tail, head, _number(u_turn, "u_turn"))
        if callable(angle) or _number(angle, "angle"):
            cost += _angular(self.streets, tail, head, angle, chord)
        if bans is None:
            bans = getattr(streets, "bans", ())
        pairs, longer = self._banned(bans)
        tables = [(pairs[:, 0], pairs[:, 1], np.full(len(pairs), np.inf))]
        if turns is not None:
            tables.append(_table(turns))
        for start, end, extra in tables:
            self._check_turns(start, end)
            np.add.at(cost, begin[start] + rank[end], extra)
        self._expand(tail, head, cost, longer)
        self._weight = self._weights(weight)
        ends, weights = (self._tail, self._head), self._turned(self._weight)
        size = n + self._states + int((self.arrivals >= n).sum())
        found = EdgeList(range(size), *ends, weights, True)
        self.graph: PreparedGraph = prepare(found, order=order, progress=progress)

    def _expand(self, tail: Index, head: Index, cost: Float, longer: Sequence[Edges]) -> None:
        """Number departures, states and arrivals, and the arcs between them.

        Each arc but those to arrivals, which come last, enters an edge, at the cost of a turn.
        """
        n, u, v = len(self.nodes), self._u, self._v
        states = _Memory(longer)
        expanded = np.zeros(n, bool)
        expanded[v[tail[cost != 0]]] = True
        expanded[v[[e for ban in longer for e in ban[:-1]]]] = True
        last = np.flatnonzero(expanded[v])  # edges that are states
        #: Where one is after each edge, if it is of no matter which were before.
        self._after = v.copy()
        self._after[last] = n + np.arange(len(last))
        copied = np.array([way[-1] for way in states.places], np.int64)  # after longer ways
        last = np.concatenate([last, copied])
        self._states = len(last)
        self.departures, self.arrivals = np.arange(n), np.arange(n)
        self.arrivals[expanded] = n + len(last) + np.arange(int(expanded.sum()))
        turned = np.isfinite(cost) & expanded[v[tail]]
        tail, head, cost = tail[turned], head[turned], cost[turned]
        start, goal = self._after[tail], self._after[head]
        first = n + len(last) - len(copied)
        begins = np.searchsorted(tail, np.arange(len(u) + 1))
        more: list[tuple[int, int, int, float]] = []
        for way, place in states.places.items():
            if len(way) == 2:
                some = np.arange(begins[way[0]], begins[way[0] + 1])
                goal[some[head[some] == way[1]]] = first + place
            for arc in range(begins[way[-1]], begins[way[-1] + 1]):
                edge = int(head[arc])
                if not states.banned((*way, edge)):
                    then = states.place((*way, edge))
                    at = int(self._after[edge]) if then is None else first + then
                    more.append((first + place, edge, at, cost[arc]))
        extra = np.array(more, np.float64).reshape(-1, 4).T
        from_copies, onto, at = extra[:3].astype(np.int64)
        every = np.arange(len(u))
        entered = np.concatenate([head, onto, every])
        start = np.concatenate([start, from_copies, u])
        goal = np.concatenate([goal, at, self._after])
        order = np.argsort(entered, kind="stable")
        self._entered, begin = entered[order], np.bincount(entered, minlength=len(u))
        self._first = offsets(begin)  # of the arcs that enter each edge
        self._turn = np.concatenate([cost, extra[3], np.zeros(len(u))])[order]
        self._tail = np.concatenate([start[order], n + np.arange(len(last))])
        self._head = np.concatenate([goal[order], self.arrivals[v[last]]])

    def __repr__(self) -> str:
        n, m = len(self.nodes), len(self._u)
        expanded = int((self.arrivals >= n).sum())
        return f"<TurnNetwork: {n} nodes, {expanded} expanded, {m} directed edges>"

    def _u_turns(self, tail: Index, head: Index, cost: float) -> Float:
        """Costs of turns around, and 0 of the others."""
        found = np.zeros(len(tail))
        if not cost:
            return found
        if self.streets is None:
            back = self._v[head] == self._u[tail]
        else:
            back = self.streets.twin[tail] == head
        found[back] = cost
        if np.isinf(cost):
            others = np.bincount(tail[~back], minlength=len(self._u))
            found[back & (others[tail] == 0)] = 0.0
        return found

    def _banned(self, bans: Any) -> tuple[Index, list[Edges]]:
        """Turns that are banned, (k, 2), and longer ways."""
        if not isinstance(bans, np.ndarray):
            bans = [*zip(*zip_longest(*bans, fillvalue=-1), strict=True)]
        given = np.asarray(bans) if len(bans) else np.empty((0, 2), np.int64)
        if given.ndim != 2 or given.dtype.kind not in "iu":
            raise TypeError(
                f"bans are rows of positions of edges, got dtype {given.dtype} {given.shape}"
            )
        given = given.astype(np.int64)
        there = given >= 0
        size = there.sum(axis=1)
        if (size < 2).any() or (there[:, 1:] > there[:, :-1]).any():
            raise ValueError(
                "a ban is of two edges or more, one after the other; rows of an array that have "
                "fewer than others end with -1"
            )
        both = there[:, 1:]
        self._check_turns(given[:, :-1][both], given[:, 1:][both])
        longer = np.flatnonzero(size > 2)
        ways = [tuple(given[k, : size[k]].tolist()) for k in longer.tolist()]
        return given[size == 2][:, :2].reshape(-1, 2), ways

    def _check_turns(self, start: Index, end: Index) -> None:
        m = len(self._u)
        for edge in (start, end):
            if edge.size and not 0 <= edge.min() <= edge.max() < m:
                bad = edge[(edge < 0) | (edge >= m)][0]
                raise ValueError(f"turns: there is no edge {bad}, they are 0 to {m - 1}")
        apart = np.flatnonzero(self._v[start] != self._u[end])
        if apart.size:
            e, f = int(start[apart[0]]), int(end[apart[0]])
            raise ValueError(
                f"turns lead from an edge to one that begins where it ends: edge {e} ends at "
                f"{self.nodes[self._v[e]]!r}, edge {f} begins at {self.nodes[self._u[f]]!r}"
            )

    def _weights(self, weight: Any) -> Float:
        """The weight of each edge of the streets."""
        m = len(self._u)
        if weight is None:
            weight = np.zeros(m)
        elif isinstance(weight, str):
            columns = {} if self.streets is None else self.streets.columns
            if weight not in columns:
                some = ", ".join(map(repr, columns)) or "none"
                raise ValueError(f"there is no column {weight!r} of edges; columns are {some}")
            weight = columns[weight]
        given = np.asarray(weight)
        if given.dtype.kind not in "biuf":
            raise TypeError(f"weights are real numbers, got dtype {given.dtype}")
        values: Float = given.astype(np.float64)
        if values.shape != (m,):
            raise ValueError(f"the streets have {m} edges, one weight each, got {values.shape}")
        wrong = np.flatnonzero(~(values >= 0))
        if wrong.size:
            e = int(wrong[0])
            raise ValueError(f"weights are not negative, and that of edge {e} is {values[e]:g}")
        return values

    def _turned(self, weight: Float) -> Float:
        """The weight of each edge of the graph."""
        return np.concatenate([weight[self._entered] + self._turn, np.zeros(self._states)])

    def customize(
        self, weight: Any, *, device: str | None = None, progress: Progress = None
    ) -> None:
        """Give the edges new costs; those of turns stay.

        Parameters
        ----------
        weight : str, (m,) array_like, or None
            As for the class, whose errors there are; the weights are as before then.
        device, progress
            As for :meth:`semiring_mm.PreparedGraph.customize`.
        """
        values = self._weights(weight)
        self.graph.customize(self._turned(values), device=device, progress=progress)
        self._weight = values

    def distances(
        self, sources: Any = None, targets: Any = None, *, device: str | None = None,
        progress: Progress = None,
    ) -> Any:  # fmt: skip
        """Costs of the best routes from some nodes or places to some, turns included.

        Parameters
        ----------
        sources, targets : node, sequence of nodes, or Places, optional
            Default: all nodes. On its way from or to a place one is on its street, either way.
        device, progress
            As for :meth:`semiring_mm.PreparedGraph.distances`.

        Returns
        -------
        ndarray or LabelledArray, shape (sources, targets)
            0 from a node or place to itself, inf where there is no route.

        Raises
        ------
        ValueError
            If there is no such node.
        MemoryError
            If there is not the memory for the result.
        """
        start, end = self._starts(sources), self._goals(targets)
        check_memory(
            9 * len(start.node) * len(end.node),
            f"a table between {len(start.node)} and {len(end.node)} ends of edges",
        )
        d = self.graph.distances(start.node, end.node, device=device, progress=progress)
        if start.rest is None and end.rest is None:
            d[start.owner[:, None] == end.owner] = 0.0
            if self._labels is None:
                return d
        elif d.size:
            d += start.extra[:, None]
            d += end.extra
            if start.rest is not None and end.rest is not None:  # along the edge itself
                i, j = np.nonzero((start.owner[:, None] == end.owner) & (end.owner >= 0))
                along = start.rest[i] - end.rest[j]
                d[i, j] = np.where(along >= 0, np.minimum(along, d[i, j]), d[i, j])
            for axis, x in enumerate((start, end)):
                d = np.minimum.reduceat(d, x.first, axis)
        else:
            d = np.empty((len(start.names), len(end.names)))
        names = [*start.names, *end.names]
        which = range(len(start.names)), range(len(start.names), len(names))
        return labelled(d, None, semirings["min_plus"], names, *which)[0]

    def _starts(self, given: Any) -> _Stops:
        """Where one is at nodes, or at the end of the edge on either side of places."""
        if not isinstance(given, Places):
            return self._at(given, "sources", self.departures)
        edge, part, weight = self._on_edges(given)
        rest = (1.0 - part) * weight
        extra = np.where(edge < 0, np.inf, rest)
        first = 2 * np.arange(len(given))
        return _Stops(self._after[np.maximum(edge, 0)], extra, edge, first, given.ids, rest)

    def _goals(self, given: Any) -> _Stops:
        """Where one reaches nodes, or from where the edges are entered that places are on."""
        if not isinstance(given, Places):
            return self._at(given, "targets", self.arrivals)
        edge, part, weight = self._on_edges(given)
        some = np.maximum(edge, 0)
        count = np.where(edge < 0, 1, self._first[some + 1] - self._first[some])
        arc, row = ranges(self._first[some], count), np.repeat(np.arange(len(edge)), count)
        extra = np.where(edge[row] < 0, np.inf, self._turn[arc] + (part * weight)[row])
        rest, first = ((1.0 - part) * weight)[row], offsets(count)[:-1][::2]
        return _Stops(self._tail[arc], extra, edge[row], first, given.ids, rest)

    def _at(self, given: Any, name: str, where: Index) -> _Stops:
        at = self._positions(given, name)
        names = [self.nodes[i] for i in at]
        return _Stops(where[at], np.zeros(len(at)), at, np.arange(len(at)), names)

    def _on_edges(self, places: Places) -> tuple[Index, Float, Float]:
        """Two edges of each place (-1: none that is open), fractions of them, and their weights."""
        if self.streets is None:
            raise ValueError("places need streets with coordinates, not u and v alone")
        if len(places) and places.edge.max() >= len(self._u):
            raise ValueError(
                f"places are on edge {places.edge.max()} of {len(self._u)}: they are of another "
                f"network"
            )
        twin = np.append(self.streets.twin, -1)[places.edge]
        edge = np.stack([places.edge, twin], axis=1).ravel()
        part = np.stack([places.fraction, 1.0 - places.fraction], axis=1).ravel()
        weight = np.append(self._weight, np.inf)[edge]
        closed = np.isinf(weight)
        part[closed], weight[closed], edge[closed] = 0.0, 0.0, -1
        return edge, part, weight

    def distance(self, source: Any, target: Any) -> float:
        """The cost of a best route between two nodes, turns included; inf if there is none.

        Parameters
        ----------
        source, target : node, or Places of one

        Returns
        -------
        float
        """
        check_single(source, "source")
        check_single(target, "target")
        if isinstance(source, Places) or isinstance(target, Places):
            return float(np.asarray(self.distances(source, target))[0, 0])
        i, j = self._place(source), self._place(target)
        return 0.0 if i == j else float(self.graph.distance(self.departures[i], self.arrivals[j]))

    def edges(self, source: Any, target: Any) -> list[int]:
        """The positions of the edges of a best route, in their order.

        Parameters
        ----------
        source, target : node

        Returns
        -------
        list of int
            Empty if they are the same. ``streets.edge_id`` has the ids (u, v, key).

        Raises
        ------
        ValueError
            If there is no route, or no such node.
        """
        i, j = self._place(source), self._place(target)
        if i == j:
            return []
        start, end = int(self.departures[i]), int(self.arrivals[j])
        try:
            walk = np.array(self.graph.path(start, end))
        except ValueError:
            raise ValueError(f"there is no path from {source!r} to {target!r}") from None
        if walk[-1] >= len(self.nodes):  # the arrival at a node that is expanded
            walk = walk[:-1]
        ends, order = self._by_ends
        step = walk[:-1] * len(self.graph.nodes) + walk[1:]
        first, last = (np.searchsorted(ends, step, side) for side in ("left", "right"))
        found = []
        for a, b in zip(first, last, strict=True):  # of parallel edges the lightest
            edge = self._entered[order[a:b]]
            weight = self._weight[edge] + self._turn[order[a:b]]
            found.append(int(edge[np.argmin(weight)]))
        return found

    @cached_property
    def _by_ends(self) -> tuple[Index, Index]:
        """The ends of arcs that enter edges, as ascending numbers, and these arcs."""
        k = len(self._entered)
        ends = self._tail[:k] * len(self.graph.nodes) + self._head[:k]
        order = np.argsort(ends, kind="stable")
        return ends[order], order

    def path(self, source: Any, target: Any) -> list[Any]:
        """The nodes of a best route, of which one may come twice where turns are banned.

        Parameters
        ----------
        source, target : node

        Returns
        -------
        list
            From `source` to `target`; ``[source]`` if they are the same.

        Raises
        ------
        ValueError
            If there is no route, or no such node.
        """
        found = self.edges(source, target)
        ends = self._v[np.array(found, np.int64)].tolist()
        return [source, *map(self.nodes.__getitem__, ends)]

    def flows(self, demand: Any, sources: Any = None, targets: Any = None) -> Float:
        """Trips along each edge if everybody takes a best route: an assignment of a demand.

        Parameters
        ----------
        demand : (sources, targets) array_like
            How many trips lead from where to where; those from a node to itself use no edge.
        sources, targets : sequence of nodes, optional
            Of the rows and columns; default: all nodes.

        Returns
        -------
        (m,) float64
            Of routes that cost the same each has its share, as of :func:`semiring_mm.flows`.

        Raises
        ------
        ValueError
            If the demand has another shape, or routes may turn in a ring at no cost.
        """
        from ..graphs.flows import flows

        rows, columns = self._positions(sources, "sources"), self._positions(targets, "targets")
        wanted = np.array(demand, np.float64)
        if wanted.shape != (len(rows), len(columns)):
            raise ValueError(
                f"a demand has a row for each of the {len(rows)} sources and a column for each of "
                f"the {len(columns)} targets, got shape {wanted.shape}"
            )
        wanted[rows[:, None] == columns] = 0.0
        start, end = self.departures[rows], self.arrivals[columns]
        found = flows(self.graph, wanted, sources=start, targets=end)
        entered = len(self._entered)
        load = found.load[:entered]
        return np.bincount(self._entered, load, len(self._u)).astype(np.float64, copy=False)

    def betweenness(self, progress: Progress = None) -> Float:
        """Betweenness of each edge: over pairs of different nodes, the share of their best routes.

        With ``weight=None`` and ``angle=1`` it is angular: of the routes with the least turning.

        Parameters
        ----------
        progress : bool or callable, optional
            As for :func:`semiring_mm.apsp`, of the nodes from which routes start.

        Returns
        -------
        (m,) float64

        Raises
        ------
        ValueError
            As for :meth:`flows`.

        Notes
        -----
        The gradient of the sum of distances (Brandes, 2001, by sweeps of the hierarchy), in O(n)
        times the edges of the elimination.

        Examples
        --------
        >>> import numpy as np
        >>> from semiring_mm.geo import TurnNetwork
        >>> u, v = np.array([0, 1, 0, 2]), np.array([1, 2, 2, 3])
        >>> TurnNetwork((u, v), [1, 1, 5, 1], bans=[(1, 3)]).betweenness()
        array([2., 2., 1., 2.])
        """
        n = len(self.nodes)
        load = np.zeros(len(self._u))
        step = max(1, _BATCH // max(1, n))
        tick = reporter(progress, float(n), "betweenness", "sources")
        everywhere = np.arange(n)
        for k in range(0, n, step):
            some = everywhere[k : k + step]
            chosen = some.tolist() if self._labels is None else [self.nodes[i] for i in some]
            load += self.flows(np.ones((len(some), n)), chosen)
            if tick is not None:
                tick(float(some[-1] + 1))
        return load

    def _positions(self, nodes: Any, name: str) -> Index:
        found = positions(nodes, len(self.nodes), self._labels, name)
        return np.arange(len(self.nodes)) if found is None else found

    def _place(self, node: Any) -> int:
        if isinstance(node, Places):
            raise TypeError("paths lead from node to node here, and distances from places, too")
        if self._labels is not None:
            return self._labels.place(node)
        return int(self._positions([node], "nodes")[0])


class _Memory:
    """What has to be remembered of the edges before, so that no way is gone that is banned.

    The `bans` are ways of more than two edges.
    """

    def __init__(self, bans: Sequence[Edges]) -> None:
        self._bans = set(bans)
        self.places = dict[Edges, int]()  # beginnings of two edges and more, and their numbers
        for ban in bans:
            for k in range(2, len(ban)):
                self.places.setdefault(ban[:k], len(self.places))

    def banned(self, way: Edges) -> bool:
        """Whether a way ends with one that is banned."""
        return any(way[k:] in self._bans for k in range(len(way) - 2))

    def place(self, way: Edges) -> int | None:
        """The longest beginning with which a way ends; None: there is none."""
        ends = (self.places.get(way[k:]) for k in range(len(way) - 1))
        return next((place for place in ends if place is not None), None)


@dataclass(frozen=True)
class _Stops:
    """Nodes or places, and the nodes of the graph by which they are left or reached."""

    node: Index  # (k,) in the graph
    extra: Float  # (k,): the cost from there, or to there
    owner: Index  # (k,): positions of nodes, or edges of places (-1: none)
    first: Index  # (l,): where those of each node or place begin
    names: Sequence[Any]
    rest: Float | None = None  # (k,), of places: the cost of the rest of their edge


def _ends(given: Any) -> tuple[Index, Index]:
    """Ends of edges as given in two arrays."""
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise TypeError(
            f"a TurnNetwork is made of Streets, or of two arrays (u, v) of the ends of edges, got "
            f"{type(given).__name__}: semiring_mm.geo has readers of streets"
        )
    u, v = (np.asarray(x) for x in given)
    if u.ndim != 1 or u.shape != v.shape or not {u.dtype.kind, v.dtype.kind} <= {"i", "u"}:
        raise ValueError(
            f"u and v are integers, one of each for an edge, got {u.dtype} {u.shape} and "
            f"{v.dtype} {v.shape}"
        )
    if u.size and min(u.min(), v.min()) < 0:
        raise ValueError(f"u and v are numbers of nodes from 0 on, got {min(u.min(), v.min())}")
    return u.astype(np.int64), v.astype(np.int64)


def _number(x: Any, name: str) -> float:
    value = float(x)
    if not value >= 0:
        raise ValueError(f"{name} is a cost that is not negative, got {x!r}")
    return value


def _table(turns: tuple[Any, Any, Any]) -> tuple[Index, Index, Float]:
    """Edges from, edges to, and costs."""
    if len(turns) != 3:
        raise ValueError(f"turns are three arrays, (from, to, cost), got {len(turns)}")
    start, end = (np.asarray(x) for x in turns[:2])
    cost = np.asarray(turns[2], np.float64)
    if not start.shape == end.shape == cost.shape or start.ndim != 1:
        raise ValueError(
            f"turns are three arrays of one length, got {start.shape}, {end.shape}, {cost.shape}"
        )
    if start.size and not {start.dtype.kind, end.dtype.kind} <= {"i", "u"}:
        raise TypeError(f"turns are between positions of edges, got {start.dtype} and {end.dtype}")
    wrong = np.flatnonzero(~(cost >= 0))
    if wrong.size:
        i = int(wrong[0])
        raise ValueError(
            f"costs of turns are not negative, and that from edge {start[i]} to edge {end[i]} is "
            f"{cost[i]:g}"
        )
    return start.astype(np.int64), end.astype(np.int64), cost


# Angles


def _headings(streets: Streets, chord: bool) -> tuple[Array, Array]:
    """Directions in which edges begin and end, as complex numbers; 0 of those without a length."""
    first, points = streets.lines
    begin, last = first[:-1], first[1:] - 1
    z = points[:, 0] + 1j * points[:, 1]
    whole = z[last] - z[begin]
    start, end = (whole, whole) if chord else (z[begin + 1] - z[begin], z[last] - z[last - 1])
    found = []
    for heading, latitude in ((start, points[begin, 1]), (end, points[last, 1])):
        heading = np.where(heading == 0, whole, heading)  # the same point twice
        scale = np.cos(np.radians(latitude)) if streets.geographic else 1.0
        found.append(heading.real * scale + 1j * heading.imag)
    return found[0], found[1]


def _signed(a: Array, b: Array) -> Float:
    """Degrees from a direction to another, positive to the left."""
    degrees = np.degrees(np.angle(b * np.conj(a)))
    return np.where(degrees == -180.0, 180.0, degrees)


def turn_angles(streets: Streets, start: Any, end: Any, *, chord: bool = False) -> Float:
    """Angles of turns in degrees: 0 straight on, positive to the left, up to 180 around.

    Parameters
    ----------
    streets : Streets
    start, end : (k,) int64
        Edges from which and to which turns lead.
    chord : bool, default False
        As of :class:`TurnNetwork`.

    Returns
    -------
    (k,) float64
        0 where an edge has no length.

    Examples
    --------
    >>> import numpy as np
    >>> from semiring_mm.geo import Streets, turn_angles
    >>> x, y = np.array([0.0, 1.0, 1.0]), np.array([0.0, 0.0, 1.0])
    >>> streets = Streets(range(3), x, y, None, np.array([0, 1]), np.array([1, 2]), {})
    >>> turn_angles(streets, [0], [1])
    array([90.])
    """
    begins, ends = _headings(streets, chord)
    return _signed(ends[np.asarray(start)], begins[np.asarray(end)])


def _angular(streets: Streets | None, tail: Index, head: Index, angle: Angle, chord: bool) -> Float:
    """Costs of turns by their angles."""
    if streets is None:
        raise ValueError("angles of turns need streets with coordinates, not u and v alone")
    degrees = turn_angles(streets, tail, head, chord=chord)
    if not callable(angle):
        return float(angle) * np.abs(degrees)
    cost = np.asarray(angle(degrees), np.float64)
    if cost.shape != degrees.shape or not (cost >= 0).all():
        raise ValueError(
            f"angle gives a cost that is not negative for each of {len(degrees)} turns, got an "
            f"array of shape {cost.shape}, least {cost.min(initial=np.inf):g}"
        )
    return cost


def dual(streets: Streets, *, chord: bool = False, least: float = 0.0) -> EdgeList:
    """Dual graph: streets as nodes, joined where they meet, weighted by the angle there.

    Its betweenness is momepy's angular betweenness, and the angular choice of space syntax:
    ``sm.statistics(dual(streets), "betweenness")``.

    Parameters
    ----------
    streets : Streets
        Directions do not matter: the two edges of a street are one node, labelled by the first.
    chord : bool, default False
        As of :class:`TurnNetwork`; True for momepy's angles.
    least : float, default 0
        Degrees that each angle counts at least. Betweenness needs more than 0 where streets lead
        exactly straight on, since there and back would cost nothing.

    Returns
    -------
    EdgeList
        Undirected; weights are degrees from 0, straight on, to 180.

    Raises
    ------
    ValueError
        If `least` is negative.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> from semiring_mm.geo import Streets, dual
    >>> x, y = np.array([0.0, 1.0, 2.0, 1.0]), np.array([0.0, 0.0, 0.0, 1.0])
    >>> ends = np.array([0, 1, 1]), np.array([1, 2, 3])
    >>> graph = dual(Streets(range(4), x, y, None, *ends, {}))
    >>> graph.row, graph.col, graph.weight
    (array([1, 0, 0]), array([2, 1, 2]), array([90.,  0., 90.]))
    """
    twin = streets.twin
    own = np.flatnonzero((twin < 0) | (np.arange(len(twin)) < twin))
    begins, ends = _headings(streets, chord)
    # the two ends of each street, and the directions from there into it
    node = np.concatenate([streets.u[own], streets.v[own]])
    into = np.concatenate([begins[own], -ends[own]])
    street = np.tile(np.arange(len(own)), 2)
    order = np.argsort(node, kind="stable")
    first = offsets(np.bincount(node, minlength=len(streets.nodes)))
    place = np.arange(len(node))
    count = first[node[order] + 1] - place - 1  # of the ends that follow at its node
    a, b = order[np.repeat(place, count)], order[ranges(place + 1, count)]
    apart = street[a] != street[b]
    a, b = a[apart], b[apart]
    row, col = np.minimum(street[a], street[b]), np.maximum(street[a], street[b])
    weight = np.maximum(np.abs(_signed(-into[a], into[b])), _number(least, "least"))
    return EdgeList(own.tolist(), row, col, weight, False)
