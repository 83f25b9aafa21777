"""NetworkX's functions, with its names, parameters and order of results."""

from __future__ import annotations

import ast
import bisect
import inspect
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from ..closures.edges import EdgeList
from ..closures.paths import NO_PREDECESSOR
from ..graph_kernels import ranges
from ..graphs.apsp import apsp
from ..graphs.dependencies import Dependencies
from ..graphs.statistics import loads
from ..hierarchy.demand import Demand
from .convert import Graph, Network
from .distances import (
    Reached,
    device_name,
    extreme_eccentricities,
    from_several,
    matrix,
    measures,
    on_device,
    refuse_negative,
    rows,
    searches,
)

Array = NDArray[Any]
#: Entries of a batch of matrices, at most.
_STACK = 2**24


# --- searches

#: Functions of searches, by what each tells of them; and others of one kind.
_ROWS = """
all_pairs_shortest_path_length(G, cutoff=None): lengths
all_pairs_shortest_path(G, cutoff=None): paths
all_pairs_dijkstra_path_length(G, cutoff=None, weight='weight'): lengths
all_pairs_dijkstra_path(G, cutoff=None, weight='weight'): paths
all_pairs_dijkstra(G, cutoff=None, weight='weight'): both
all_pairs_bellman_ford_path_length(G, weight='weight'): lengths
all_pairs_bellman_ford_path(G, weight='weight'): paths
johnson(G, weight='weight'): paths
single_source_shortest_path_length(G, source, cutoff=None): lengths
single_source_shortest_path(G, source, cutoff=None): paths
single_source_dijkstra_path_length(G, source, cutoff=None, weight='weight'): lengths
single_source_dijkstra_path(G, source, cutoff=None, weight='weight'): paths
single_source_dijkstra(G, source, target=None, cutoff=None, weight='weight'): both
multi_source_dijkstra(G, sources, target=None, cutoff=None, weight='weight'): both
multi_source_dijkstra_path(G, sources, cutoff=None, weight='weight'): paths
multi_source_dijkstra_path_length(G, sources, cutoff=None, weight='weight'): lengths
diameter(G, e=None, usebounds=False, weight=None): eccentricities
radius(G, e=None, usebounds=False, weight=None): eccentricities
periphery(G, e=None, usebounds=False, weight=None): eccentricities
center(G, e=None, usebounds=False, weight=None): eccentricities
hyper_wiener_index(G, weight=None): terms
schultz_index(G, weight=None): terms
gutman_index(G, weight=None): terms
shortest_path(G, source=None, target=None, weight=None, method='dijkstra'): paths
shortest_path_length(G, source=None, target=None, weight=None, method='dijkstra'): lengths
"""
_TOLD: dict[str, Callable[[Reached], Any]] = {
    "lengths": lambda x: dict(zip(x.nodes, x.lengths, strict=True)),
    "paths": Reached.paths,
    "both": lambda x: (dict(zip(x.nodes, x.lengths, strict=True)), x.paths()),
}


def _function(name: str, parameters: str, told: str) -> Callable[..., Any]:
    """The function of a row."""
    words = (x.partition("=") for x in parameters.split(", "))
    signature = inspect.Signature([
        inspect.Parameter(
            x, inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=ast.literal_eval(value) if value else inspect.Parameter.empty,
        )
        for x, _, value in words
    ])  # fmt: skip

    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        if told == "eccentricities":
            return _of_eccentricities(name, given["G"], given["weight"])
        if told == "terms":
            return _sum_of_terms(name, given["G"], given["weight"])
        if name.startswith("shortest_path"):
            return _shortest_path(told, **given)
        return _searched(name, told, **given)

    function.__name__, function.__signature__ = name, signature  # type: ignore[attr-defined]
    return function


def _searched(
    name: str, told: str, G: Graph, source: Any = None, sources: Any = None, target: Any = None,
    cutoff: float | None = None, weight: Any = None,
) -> Any:  # fmt: skip
    tell, paths = _TOLD[told], told != "lengths"
    if "shortest" in name and cutoff is not None and not math.isinf(cutoff):
        cutoff = math.ceil(cutoff)  # a breadth-first search finishes the level that it began
    if name.startswith("multi"):
        return tell(_from_several(name, G, sources, weight, cutoff))
    if name.startswith("single"):
        if source not in G.graph:
            _networkx(name)(G.graph, source)  # raises the error
        net = G.network(weight)
        return tell(_within(next(searches(net, net.positions([source]))), cutoff))
    try:
        found = searches(
            G.network(weight), negative="bellman" in name or name == "johnson", paths=paths
        )
    except nx.NetworkXUnbounded:
        if name == "johnson":
            raise
        raise NotImplementedError(
            "the graph has a cycle of negative weight: networkx goes through the nodes before the "
            "first that reaches it"
        ) from None
    pairs = ((x.nodes[0], tell(_within(x, cutoff))) for x in found)
    return dict(pairs) if name == "johnson" else pairs


globals().update({row[0]: _function(*row) for row in re.findall(r"(\w+)\((.*)\): (\w+)", _ROWS)})


def _shortest_path(told: str, G: Graph, source: Any, target: Any, weight: Any, method: str) -> Any:
    if method not in ("dijkstra", "bellman-ford"):
        raise ValueError(f"method not supported: {method}")
    if method == "bellman-ford" and source is not None:
        raise NotImplementedError(
            "one search by Bellman and Ford's algorithm is left to networkx; without negative "
            "weights use method='dijkstra'"
        )
    begins = "all_pairs" if source is None else "single_source"
    kind = "shortest" if weight is None else method.replace("-", "_")
    name = f"{begins}_{kind}_path{'_length' if told == 'lengths' else ''}"
    return _searched(name, told, G, source, weight=weight)


def _within(x: Reached, cutoff: float | None) -> Reached:
    if cutoff is None:
        return x
    end = max(1, bisect.bisect_right(x.lengths, cutoff))
    return Reached(x.nodes[:end], x.lengths[:end], x.before[: end - 1])


def voronoi_cells(G: Graph, center_nodes: Any, weight: Any = "weight") -> dict[Any, set[Any]]:
    found = _from_several("voronoi_cells", G, center_nodes, weight, None)
    center = {node: node for node in found.nodes[: found.starts]}
    for node, last in zip(found.nodes[found.starts :], found.before, strict=True):
        center[node] = center[last]
    cells: dict[Any, set[Any]] = nx.utils.groups(center)
    unreachable = set(G.graph) - center.keys()
    return cells | ({"unreachable": unreachable} if unreachable else {})


def _from_several(name: str, G: Graph, sources: Any, weight: Any, cutoff: Any) -> Reached:
    """A search that begins with several nodes."""
    if not isinstance(sources, Collection):
        raise NotImplementedError("sources that can be read once only are left to networkx")
    starts = list(dict.fromkeys(sources))
    if not starts or not all(node in G.graph for node in starts):
        _networkx(name)(G.graph, sources)  # raises the error
    net = G.network(weight)
    found = next(searches(*from_several(net, net.positions(starts))))
    end = len(found.nodes)
    if cutoff is not None:
        end = max(len(starts) + 1, bisect.bisect_right(found.lengths, cutoff))
    lengths = [0] * len(starts) + found.lengths[len(starts) + 1 : end]
    return Reached(found.nodes[1:end], lengths, found.before[len(starts) : end - 1])


# --- Floyd and Warshall


def floyd_warshall_numpy(G: Graph, nodelist: Any = None, weight: Any = "weight") -> Array:
    graph = G.graph
    net = G.network(weight, mixed=True)
    if nodelist is not None and not (len(nodelist) == len(graph) and set(nodelist) == set(graph)):
        nx.floyd_warshall_numpy.orig_func(graph, nodelist, weight)  # raises the error
    d: Array = matrix(net).astype(np.float64, copy=False)
    if nodelist is None:
        return d
    index = {node: i for i, node in enumerate(graph)}
    order = [index[node] for node in nodelist]
    return d[np.ix_(order, order)]


def floyd_warshall(G: Graph, weight: Any = "weight") -> dict[Any, Any]:
    net = G.network(weight, default=1.0)
    return _distance_dicts(net, matrix(net), np.ones(len(net.nodes), bool))


def floyd_warshall_predecessor_and_distance(
    G: Graph, weight: Any = "weight"
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    net = G.network(weight, default=1.0)
    d, pred = _floyd_warshall_trees(net)
    return pred, _distance_dicts(net, d, np.ones(len(d), bool))


def floyd_warshall_tree(G: Graph, weight: Any = "weight") -> tuple[dict[Any, Any], dict[Any, Any]]:
    net = G.network(weight, default=1.0)
    d, pred = _floyd_warshall_trees(net)
    # networkx starts from nodes with edges only: others get no entry where they are not reached.
    return pred, _distance_dicts(net, d, np.diff(net.arcs.starts) > 0)


def _floyd_warshall_trees(net: Network) -> tuple[Array, dict[Any, dict[Any, Any]]]:
    d, p = matrix(net, True)
    tail, head = net.arcs.row, net.arcs.col
    direct = net.arcs.weight <= d[tail, head]
    # an equally short path does not replace a direct edge
    p[tail[direct], head[direct]] = tail[direct]
    ends = zip(tail.tolist(), head.tolist(), strict=True)
    if net.directed:
        begun = dict.fromkeys(tail.tolist())
    else:
        begun = dict.fromkeys(itertools.chain.from_iterable(e for e in ends if e[0] <= e[1]))
    touched, loops = _touched(net), set(tail[tail == head].tolist())
    pred = {}
    for x in begun:
        p[x, x] = x if x in loops else NO_PREDECESSOR
        line = _first(touched[x], len(d))
        line = line[p[x, line] != NO_PREDECESSOR]
        pairs = zip(net.nodes[line].tolist(), net.nodes[p[x, line]].tolist(), strict=True)
        pred[net.nodes[x]] = dict(pairs)
    return d, pred


def _touched(net: Network) -> list[Array]:
    """Return the heads of each node's edges, in the order of the graph's edges."""
    tail, head, n = net.arcs.row, net.arcs.col, len(net.nodes)
    place = np.arange(len(head))
    if not net.directed:  # an edge is listed at the earlier of its ends
        place = np.where(head < tail, head, n + place)
    line = head[np.lexsort((place, tail))]
    return np.split(line, net.arcs.starts[1:-1]) if n else []


def _first(some: Array, n: int) -> Array:
    """Return all positions: these first, then the others in order."""
    others = np.ones(n, bool)
    others[some] = False
    return np.concatenate([some, np.flatnonzero(others)])


def _distance_dicts(net: Network, d: Array, looked_from: Array) -> dict[Any, Any]:
    """Return rows as dicts in networkx's order: the node, its neighbours, the other nodes."""
    tail, head = net.arcs.row, net.arcs.col
    free = set(tail[(tail == head) & (net.arcs.weight == 0)].tolist())
    found = {}
    for x, near in enumerate(_touched(net)):
        line = np.concatenate([[x], _first(near, len(d))])
        line = line[np.concatenate([[True], line[1:] != x])]
        missing = np.isinf(d[x, line])
        line, missing = (y[looked_from[line] | ~missing] for y in (line, missing))
        values = net.lengths(np.where(missing, 0, d[x, line]))
        if x in free:
            values[0] = net.numbers(np.zeros(1))[0]
        for i in np.flatnonzero(missing).tolist():
            values[i] = math.inf
        row = zip(net.nodes[line].tolist(), values, strict=True)
        found[net.nodes[x]] = defaultdict(_infinity, row)
    return found


def _infinity() -> float:
    return math.inf


# --- measures of distances


def average_shortest_path_length(G: Graph, weight: Any = None, method: str | None = None) -> Any:
    graph, n = G.graph, len(G)
    known = ("unweighted", "dijkstra", "bellman-ford", "floyd-warshall", "floyd-warshall-numpy")
    if method is None:
        method = "unweighted" if weight is None else "dijkstra"
    if method not in known or n < 2:
        return _networkx("average_shortest_path_length")(graph, weight, method)
    floyd = method.startswith("floyd")
    net = G.network(None if method == "unweighted" else weight, default=1.0 if floyd else 1)
    if not net.exact and method not in ("unweighted", "dijkstra"):
        raise NotImplementedError(
            f"sums of rounded distances in the order of method={method!r} are left to networkx"
        )
    if method == "dijkstra":
        refuse_negative(net)
    total = _total(net) if net.connected else None
    if total is None:
        return _networkx("average_shortest_path_length")(graph, weight, method)
    return (float(total) if method == "floyd-warshall-numpy" else total) / (n * (n - 1))


def _total(net: Network) -> Any:
    """Return the sum of all distances, added source by source in order of distance."""
    if len(net.nodes) < 2:
        return 0
    if net.exact:
        total = sum(measures(net, {"sum"}, negative=True)["sum"])
        if net.kind is int or total < 2.0 ** (53 - (net.power or 0)):
            return total
    return sum(itertools.chain.from_iterable(
        net.lengths(row) for part in rows(net) for row in np.sort(part.d)
    ))  # fmt: skip


def _networkx(name: str) -> Any:
    """Call networkx's own function, to raise its error."""
    return getattr(nx, name).orig_func


def eccentricity(G: Graph, v: Any = None, sp: Any = None, weight: Any = None) -> Any:
    graph, net = G.graph, G.network(weight)
    alone = v is not None and v in graph
    nodes = net.nodes.tolist() if v is None else [v] if alone else list(graph.nbunch_iter(v))
    if v is None and not net.connected:
        return _networkx("eccentricity")(graph, weight=weight)  # raises the error
    found = measures(net, {"largest", "count"}, net.positions(nodes))
    few = [node for node, k in zip(nodes, found["count"], strict=True) if k < len(graph)]
    if few:
        return _networkx("eccentricity")(graph, few[:1], weight=weight)
    # The first of equal values is the distance from a node to itself, which is an int.
    far = {x: e if e else 0 for x, e in zip(nodes, found["largest"], strict=True)}
    return far[v] if alone else far


def _of_eccentricities(name: str, G: Graph, weight: Any) -> Any:
    if name == "center":
        _leave_trees(G, weight)
    net = G.network(weight)
    if not len(G):
        known = {"weight": weight}
    elif net.directed or not net.connected or on_device():
        known = {"e": eccentricity(G, weight=weight)}
    else:  # NetworkX's function looks for the extreme of these, and for the nodes that have it
        bounds = extreme_eccentricities(net, name)
        found = bounds.lower if name in ("diameter", "periphery") else bounds.upper
        known = {
            "e": dict(zip(net.nodes.tolist(), (e or 0 for e in net.numbers(found)), strict=True))
        }
    return _networkx(name)(G.graph, **known)


def barycenter(G: Graph, weight: Any = None, attr: Any = None, sp: Any = None) -> list[Any]:
    _leave_trees(G, weight)
    graph, net = G.graph, G.network(weight)
    if not len(graph) or not net.connected:
        found: list[Any] = _networkx("barycenter")(graph, weight=weight)
        return found
    sums = measures(net, {"sum"})["sum"]
    least = min(sums)
    return [node for node, total in zip(net.nodes, sums, strict=True) if total == least]


def _leave_trees(G: Graph, weight: Any) -> None:
    graph = G.graph
    if weight is None and len(graph) and not graph.is_directed() and nx.is_tree(graph):
        raise NotImplementedError("networkx takes time in proportion to n only for a tree")


def wiener_index(G: Graph, weight: Any = None) -> Any:
    graph, net = G.graph, G.network(weight)
    if not _connected(net):
        return math.inf
    total = _total(net)
    return total if graph.is_directed() else total / 2


def _connected(net: Network) -> bool:
    if not len(net.nodes):
        raise nx.NetworkXPointlessConcept("Connectivity is undefined for the null graph.")
    return net.connected


#: Terms of a pair of nodes, by their distance and degrees.
_TERMS: dict[str, Callable[[Array, Array, Array], Array]] = {
    "hyper_wiener_index": lambda d, a, b: d + d * d,
    "schultz_index": lambda d, a, b: d * (a + b),
    "gutman_index": lambda d, a, b: d * a * b,
}


def _sum_of_terms(name: str, G: Graph, weight: Any) -> float:
    """Half the sum of a term of all pairs."""
    net = G.network(weight)
    if net.kind is not int:
        raise NotImplementedError("this sum of rounded numbers is left to networkx")
    if not _connected(net):
        return math.inf
    degrees = dict(G.graph.degree, weight=weight)  # as networkx has it: the number of edges
    degree = np.array([degrees[x] for x in net.nodes], np.float64)
    total = 0
    for part in rows(net):
        terms = _TERMS[name](part.d.astype(np.float64), degree[part.sources, np.newaxis], degree)
        if terms.max(initial=0) * terms.shape[1] >= 2**53:
            raise NotImplementedError("sums of 2**53 and more are left to networkx")
        total += sum(terms.sum(axis=1).astype(np.int64).tolist())
    return total / 2


def harmonic_diameter(G: Graph, sp: Any = None, *, weight: Any = None) -> float:
    net = G.network(weight)
    n, total = len(net.nodes), _inverse_sum(net)
    if total:
        mean: float = n * (n - 1) / net.floats(np.array([total]))[0]
        return mean
    return math.inf if n > 1 else math.nan


def global_efficiency(G: Graph) -> float:
    graph = G.graph
    pairs = len(graph) * (len(graph) - 1)
    return _inverse_sum(G.network(None)) / pairs if pairs else 0


def local_efficiency(G: Graph) -> float:
    return sum(_efficiencies(G)) / len(G)


def _efficiencies(G: Graph) -> list[float]:
    """The global efficiency of the neighbours of each node; those of one degree are a stack."""
    graph, net = G.graph, G.network(None)
    near = [net.positions(graph.subgraph(graph[node])) for node in graph]
    alike: defaultdict[int, list[int]] = defaultdict(list)
    for i, nodes in enumerate(near):
        alike[len(nodes)].append(i)
    found: list[float] = [0] * len(near)
    place = np.full(len(near), -1)
    for k in alike.keys() - {0, 1}:
        step = max(1, _STACK // k**2)
        for begin in range(0, len(alike[k]), step):
            chosen = alike[k][begin : begin + step]
            edge = np.full((len(chosen), k, k), np.inf, np.float32)
            for i, own in zip(chosen, edge, strict=True):
                _join(net.arcs, near[i], place, own)
            for i, d in zip(chosen, apsp(edge), strict=True):
                found[i] = _add_inverses(0, d) / (k * (k - 1))
    return found


def _join(arcs: EdgeList, nodes: Array, place: Array, edge: Array) -> None:
    """Write 1 for the edges between some nodes; `place` is -1 for all nodes, and again then."""
    place[nodes] = np.arange(len(nodes))
    first = arcs.starts[nodes]
    degree = arcs.starts[nodes + 1] - first
    tail, head = np.repeat(np.arange(len(nodes)), degree), place[arcs.col[ranges(first, degree)]]
    edge[tail[head >= 0], head[head >= 0]] = 1
    place[nodes] = -1


def _inverse_sum(net: Network) -> Any:
    """Return Σ 1/d over all pairs, added source by source in order of distance."""
    total: Any = 0
    for part in rows(net):
        total = _add_inverses(total, part.d)
    return total


def _add_inverses(total: Any, d: Array) -> Any:
    d = np.sort(d.astype(np.float64, copy=False)).ravel()
    terms = 1 / d[(d > 0) & np.isfinite(d)]
    return np.add.accumulate(np.append(total, terms))[-1].item() if terms.size else total


def closeness_centrality(
    G: Graph, u: Any = None, distance: Any = None, wf_improved: bool = True
) -> Any:
    graph = G.graph
    if u is not None and u not in graph:
        return _networkx("closeness_centrality")(graph, u, distance, wf_improved)
    net = G.network(distance, reverse=True)
    nodes, chosen = (net.nodes.tolist(), None) if u is None else ([u], net.positions([u]))
    n, found = len(graph), {}
    sums = measures(net, {"count", "sum"}, chosen)
    for node, reached, total in zip(nodes, sums["count"], sums["sum"], strict=True):
        closeness = 0.0
        if total > 0.0 and n > 1:
            closeness = (reached - 1.0) / total
            if wf_improved:
                closeness *= (reached - 1.0) / (n - 1)
        found[node] = closeness
    return found if u is None else found[u]


def harmonic_centrality(
    G: Graph, nbunch: Any = None, distance: Any = None, sources: Any = None
) -> dict[Any, Any]:
    graph = G.graph
    to, ends = (set(graph if x is None else graph.nbunch_iter(x)) for x in (nbunch, sources))
    turned = len(to) < len(ends)  # networkx searches from the fewer, in the order of the set
    net = G.network(distance, reverse=turned)
    chosen, others = (net.positions(x) for x in ((to, ends) if turned else (ends, to)))
    total, sums = np.zeros(len(others)), []
    for part in rows(net, chosen):
        d = part.d[:, others].astype(np.float64)
        d[d == 0] = np.inf
        for row in d:
            if turned:
                sums.append(_add_inverses(0, row))
            else:
                total += 1 / row
    values = net.floats(np.array(sums) if turned else total)
    return {node: value or 0 for node, value in zip(to, values, strict=True)}


# --- betweenness


def betweenness_centrality(
    G: Graph, k: Any = None, normalized: bool = True, weight: Any = None, endpoints: bool = False,
    seed: Any = None,
) -> dict[Any, float]:  # fmt: skip
    net, n = G.network(weight), len(G)
    sources = _sampled(net, k, seed)
    total, ends, through = _loads(net, sources, of_edges=endpoints)
    if endpoints:  # as many paths begin and end at a node as leave and enter it, but pass it twice
        total = np.bincount(ends.row, through, n) + np.bincount(ends.col, through, n) - total
    pairs = n if endpoints else n - 1
    scaled = _rescaled(total, pairs, normalized, net.directed, k)
    if k is not None and not endpoints and pairs > 1:  # a source is none of its own targets
        scaled[sources] *= k / (k - 1) if k > 1 else math.nan
    return dict(zip(net.nodes.tolist(), scaled.tolist(), strict=True))


def betweenness_centrality_subset(
    G: Graph, sources: Any, targets: Any, normalized: bool = False, weight: Any = None
) -> dict[Any, float]:
    net, n = G.network(weight), len(G)
    begins, demand = _subsets("betweenness_centrality_subset", G, net, sources, targets)
    total, *_ = _loads(net, begins, demand)
    scaled = _rescaled(total, n - 1, normalized, net.directed)
    return dict(zip(net.nodes.tolist(), scaled.tolist(), strict=True))


def edge_betweenness_centrality(
    G: Graph, k: Any = None, normalized: bool = True, weight: Any = None, seed: Any = None
) -> dict[Any, float]:
    net = G.network(weight)
    if k is not None and nx.__version__ < "3.6":
        raise NotImplementedError("sums over k sources are left to networkx 3.5: it divides by n")
    return _of_edges(G, net, weight, normalized, _sampled(net, k, seed), k)


def edge_betweenness_centrality_subset(
    G: Graph, sources: Any, targets: Any, normalized: bool = False, weight: Any = None
) -> dict[Any, float]:
    net = G.network(weight)
    begins, demand = _subsets("edge_betweenness_centrality_subset", G, net, sources, targets)
    if not demand.all():
        raise NotImplementedError(
            "some nodes are no targets: networkx divides what passes through these evenly among "
            "their predecessors, however many shortest paths come from each; this is left to it"
        )
    return _of_edges(G, net, weight, normalized, begins)


def _sampled(net: Network, k: Any, seed: Any) -> Array:
    """The sources: all nodes, or NetworkX's sample of them."""
    if k is None:
        return np.arange(len(net.nodes))
    return net.positions(nx.utils.create_py_random_state(seed).sample(net.nodes.tolist(), k))


def _subsets(name: str, G: Graph, net: Network, sources: Any, targets: Any) -> tuple[Array, Array]:
    """The sources, and 1 for the nodes that are targets."""
    if not isinstance(sources, Collection) or not isinstance(targets, Collection):
        raise NotImplementedError("nodes that can be read once only are left to networkx")
    if not all(node in G.graph for node in sources):
        _networkx(name)(G.graph, sources, targets)  # raises the error
    ends = set(targets)
    return net.positions(sources), np.array([node in ends for node in net.nodes], np.float64)


def _loads(
    net: Network, sources: Array, targets: Array | None = None, *, of_edges: bool = False
) -> tuple[Array, EdgeList, Any]:
    """Sums over the sources of the shares of shortest paths through nodes, and along these edges.

    `targets` has 1 for the nodes to which paths count. Where sums of weights are rounded, they are
    added up from the source on, as networkx does, whose ties these are.
    """
    refuse_negative(net)
    demand = None if targets is None else Demand.to(len(targets), np.flatnonzero(targets))
    try:
        if net.power is not None and net.arcs.weight.min(initial=1) > 0:
            edges = net.edges(np.ldexp(net.arcs.weight, net.power))
            nodes, through = loads(
                edges, sources, demand, of_edges=of_edges, device=device_name()
            )  # fmt: skip
            return nodes, edges, through
        nodes, along, _ = Dependencies(net.arcs).loads(sources, demand, edges=of_edges)
        return nodes, net.arcs, along
    except (ValueError, OverflowError) as error:
        raise NotImplementedError(f"{error}; this is left to networkx") from None


def _of_edges(
    G: Graph, net: Network, weight: Any, normalized: bool, sources: Array, k: int | None = None
) -> dict[Any, float]:
    """Betweenness of the edges from some sources."""
    graph = G.graph
    _, edges, through = _loads(net, sources, of_edges=True)
    ends = net.nodes[edges.row].tolist(), net.nodes[edges.col].tolist()
    total = dict.fromkeys(graph.edges(), 0.0)
    scaled = _rescaled(through, len(graph), normalized, net.directed, k)
    for u, v, x in zip(*ends, scaled.tolist(), strict=True):
        total[(u, v) if (u, v) in total else (v, u)] += x
    return _of_parallel_edges(graph, total, weight) if graph.is_multigraph() else total


def _of_parallel_edges(graph: Any, total: dict[Any, float], weight: Any) -> dict[Any, float]:
    """Share the number of an edge among the parallel ones, of the least weight."""
    found = dict.fromkeys(graph.edges, 0.0)
    for (u, v), value in total.items():
        weights = {key: data.get(weight, 1) for key, data in graph[u][v].items()}
        least = min(weights.values())
        keys = [key for key, x in weights.items() if x == least]
        found |= {(u, v, key): value / len(keys) for key in keys}
    return found


def _rescaled(
    total: Array, n: int, normalized: bool, directed: bool, k: int | None = None
) -> Array:
    """Centralities from sums over n sources, or over k of them."""
    if n < 2:
        return total
    count = n if k is None else k
    return total * (1 / (count * (n - 1)) if normalized else n / (count * (1 if directed else 2)))


# --- closures


def transitive_closure(G: Graph, reflexive: bool | None = False) -> Any:
    graph = G.graph
    if reflexive not in (None, True, False):
        return _networkx("transitive_closure")(graph, reflexive)
    closed = graph.copy()
    # Distances say more than reachability does: from them comes the order of networkx's searches.
    for x in searches(G.network(None)):
        v, others = x.nodes[0], x.nodes[1:]
        if reflexive is False:
            ends: Iterable[Any] = _with_cycle(graph, x) if graph.is_directed() else others
        else:  # networkx takes the order of a set
            ends = set(others) | {v} if reflexive else set(others)
        closed.add_edges_from((v, u) for u in ends if u not in closed[v])
    return closed


def transitive_closure_dag(G: Graph, topo_order: Any = None) -> Any:
    graph = G.graph
    if not nx.is_directed_acyclic_graph(graph):
        return _networkx("transitive_closure_dag")(graph)  # raises the error
    return transitive_closure(G)


def _with_cycle(graph: Any, x: Reached) -> list[Any]:
    """Return the nodes that a search by edges enters, its source at the position of return."""
    v = x.nodes[0]
    last = next((node for node in x.nodes if v in graph._adj[node]), None)
    if last is None:
        return x.nodes[1:]
    place = {node: i for i, node in enumerate(x.nodes)}
    earlier = set(itertools.takewhile(lambda node: node != v, graph._adj[last]))
    entered = [
        node
        for node, before in zip(x.nodes[1:], x.before, strict=True)
        if place[before] < place[last] or (before == last and node in earlier)
    ]
    return [*entered, v, *x.nodes[1 + len(entered) :]]


__all__ = [
    name
    for name, x in globals().items()
    if inspect.isfunction(x) and x.__module__ == __name__ and not name.startswith("_")
]
