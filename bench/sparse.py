"""Shortest paths of large sparse graphs beside other libraries: ``python -m bench sparse``.

``--gpu`` measures a CUDA device; ``--families`` small graphs of many kinds, from one source to all
nodes; ``--single`` what is asked of one source; ``--continent`` networks like roads of up to 24
million nodes; ``--table`` only writes the newest tables again
into docs/sparse-graphs.md. Road networks are read from the folder that ``SEMIRING_MM_DATA`` names;
``ROUTINGKIT`` names one with the sources of RoutingKit. Where a contender is too slow to do the
whole work, it does a part, which its name tells, and its time is scaled.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import lzma
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse.csgraph import dijkstra

import semiring_mm as sm

from . import families, machine, report, routingkit
from .cases import OURS, Case, Options
from .measure import Contender, Line, Skip, sample

PAGE = machine.ROOT / "docs" / "sparse-graphs.md"
DATA = Path(os.environ.get("SEMIRING_MM_DATA", machine.ROOT.parent / "shared" / "data"))
WARM = 10.0  # seconds; a first call that takes less is not counted: it may compile code
TITLES = {"NY": "New York", "FLA": "Florida", "Chicago": "Chicago region"}


# Graphs


class Network:
    """Edges with whole weights; those of an undirected graph once."""

    def __init__(self, n: int, row: Any, col: Any, weight: Any, *, directed: bool = False) -> None:
        self.n, self.row, self.col, self.weight, self.directed = n, row, col, weight, directed

    @functools.cached_property
    def edges(self) -> Any:
        """As sm.prepare takes them."""
        return scipy.sparse.coo_array((self.weight, (self.row, self.col)), shape=(self.n, self.n))

    @functools.cached_property
    def arcs(self) -> tuple[Any, Any, Any]:
        """Tails, heads and weights, both ways."""
        if self.directed:
            return self.row, self.col, self.weight
        return (
            np.concatenate([self.row, self.col]),
            np.concatenate([self.col, self.row]),
            np.tile(self.weight, 2),
        )

    @functools.cached_property
    def csr(self) -> Any:
        """As SciPy takes them."""
        tail, head, weight = self.arcs
        shape = self.n, self.n
        return scipy.sparse.csr_array((weight.astype(np.float64), (tail, head)), shape=shape)

    def of(self, dtype: str) -> Network:
        weight = self.weight.astype(dtype)
        return Network(self.n, self.row, self.col, weight, directed=self.directed)

    def random(self, count: int, seed: int) -> Any:
        return np.random.default_rng(seed).integers(0, self.n, count)


@functools.lru_cache(maxsize=2)
def network(name: str) -> Network:
    """A road network, one "like N" nodes of roads, a grid of so many streets, or one "percolated".

    Weights are as in the table of the page, but for travel times of what is like roads.
    """
    if name.startswith("like "):
        n = int(name[5:])
        return Network(n, *families.road_like(n))
    if name.startswith("percolated "):
        n, row, col = families.percolated(int(name[11:]))
    elif name.isdecimal():
        side = int(name)
        at = np.arange(side * side).reshape(side, side)
        row = np.concatenate([at[:, 1:].ravel(), at[1:].ravel()])
        col = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
        n = side * side
    elif name == "Chicago":
        graph = sm.files.read_graph(data_file("ChicagoRegional_net.tntp"))
        return Network(graph.n, graph.row, graph.col, graph.weight, directed=True)
    else:
        with lzma.open(data_file(f"road_{name}.gr.xz")) as file:
            n = int(file.readline().split()[2])
            row, col = np.array(file.read().split(), np.int64).reshape(-1, 2).T - 1
    weight = np.random.default_rng(5).integers(1, 5000, len(row))
    return Network(n, row, col, weight.astype(np.int32))


def data_file(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        raise Skip(f"{name} is not there; SEMIRING_MM_DATA names its folder")
    return path


def randomly(n: int, edges: int) -> Network:
    """A random undirected graph."""
    rng = np.random.default_rng(n)
    ends = np.unique(np.sort(rng.integers(0, n, (edges * 21 // 20, 2))), axis=0)
    ends = rng.permutation(ends[ends[:, 0] != ends[:, 1]])[:edges]
    return Network(n, *ends.T, rng.integers(1, 5000, len(ends)).astype(np.int32))


@functools.lru_cache(maxsize=2)
def prepared(name: str, dtype: str = "float64") -> Any:
    x = network(name).of(dtype)
    return sm.prepare(x.edges, directed=x.directed, dtype=dtype)


@functools.lru_cache(maxsize=2)
def metis(name: str) -> Any:
    """METIS's order by nested dissection."""
    try:
        import pymetis
    except ImportError:
        raise Skip("pymetis is not installed") from None
    csr = network(name).csr
    return np.array(pymetis.nested_dissection(pymetis.CSRAdjacency(csr.indptr, csr.indices))[0])


@functools.lru_cache(maxsize=2)
def rival(name: str, threads: int) -> routingkit.Net:
    """The network in RoutingKit, customized."""
    tail, head, weight = network(name).arcs
    found = routingkit.Net(metis(name), tail, head)
    found.customize(np.ascontiguousarray(weight, np.uint32), threads)
    return found


# Contenders


def part(
    name: str,
    call: Callable[[], Any],
    scale: float = 1.0,
    check: Any = None,
    *,
    told: str = "",
    ours: bool = False,
) -> Contender:
    """A contender whose time counts so many times; its first result is checked.

    `ours`: this library's, done in another way.
    """
    new = [True]

    def timed() -> tuple[float, float, Any]:
        wall, processor = time.perf_counter(), time.process_time()
        result = call()
        return time.perf_counter() - wall, time.process_time() - processor, result

    def run() -> float:
        spent, busy, result = timed()
        if new:
            new.clear()
            if check is not None:
                check(result)
            if spent < WARM:  # code may have been compiled
                spent, busy, _ = timed()
        found.processor.append(busy * scale)
        return spent * scale

    found = Contender(name + told, run, ours=ours, own_clock=True)
    return found


own = functools.partial(part, ours=True)


def line(size: str, contenders: Sequence[Contender | Callable[[], Contender]], **more: Any) -> Line:
    """A line with the contenders that there are here."""
    found: list[Contender] = []
    for one in contenders:
        try:
            found.append(one if isinstance(one, Contender) else one())
        except (Skip, ImportError) as reason:
            skipped = getattr(reason, "msg", None) or str(reason)
            found.append(
                Contender(getattr(one, "__name__", "").replace("_", " "), None, skipped=skipped)
            )
    return Line("", size, "", 0, found, **more)


def titled(name: str) -> str:
    if name.startswith("like "):
        return f"like roads, {int(name[5:]):,} nodes"
    if name.startswith("percolated "):
        return f"percolated grid, {network(name).n:,} nodes"
    return TITLES.get(name, f"grid, {name} × {name}")


def _same(expected: Any) -> Callable[[Any], None]:
    def check(found: Any) -> None:
        found = np.asarray(found, float)
        found[found == np.finfo(float).max] = np.inf  # NetworKit's
        np.testing.assert_array_equal(found, expected)

    return check


def prepare(name: str, options: Options) -> Line:
    x = network(name)
    tail, head, _ = x.arcs

    def METIS() -> Contender:
        import pymetis

        beside = pymetis.CSRAdjacency(x.csr.indptr, x.csr.indices)
        return part("METIS's order alone", lambda: pymetis.nested_dissection(beside))

    def RoutingKit() -> Contender:
        order = metis(name)
        routingkit.library()
        return part("RoutingKit, given that order", lambda: routingkit.Net(order, tail, head))

    return line(
        titled(name),
        [
            part(OURS, lambda: sm.prepare(x.edges, directed=False)),
            own(
                "by minimum degree",
                lambda: sm.prepare(x.edges, directed=False, order="minimum_degree"),
            ),
            METIS,
            RoutingKit,
        ],
        most=3,
    )


def customize(name: str, options: Options) -> Line:
    net, weight = prepared(name), network(name).weight.astype(np.float64)

    def RoutingKit() -> Contender:
        other, tiled = (
            rival(name, options.threads),
            np.tile(network(name).weight, 2).astype(np.uint32),
        )
        return part("RoutingKit", lambda: other.customize(tiled, options.threads))

    return line(titled(name), [part(OURS, lambda: net.customize(weight)), RoutingKit])


def pair(name: str, options: Options) -> Line:
    """A thousand pairs, one after the other."""
    x, net = network(name), prepared(name)
    pairs = np.stack([x.random(1000, 1), x.random(1000, 2)], axis=1).tolist()
    some = [dijkstra(x.csr, indices=i)[j] for i, j in pairs[:3]]
    call = net.distance

    def each(f: Callable[[int, int], Any]) -> list[Any]:
        return [f(i, j) for i, j in pairs]

    def RoutingKit() -> Contender:
        other = rival(name, options.threads)
        return part("RoutingKit", lambda: each(other.distance), 1e-3, first)

    def first(found: Any) -> None:
        np.testing.assert_array_equal(found[:3], some)

    return line(
        titled(name),
        [
            part(OURS, lambda: each(call), 1e-3, first),
            RoutingKit,
            part("SciPy", lambda: dijkstra(x.csr, indices=pairs[0][0])),
        ],
    )


def path(name: str, options: Options) -> Line:
    x, net = network(name), prepared(name)
    pairs = np.stack([x.random(100, 1), x.random(100, 2)], axis=1).tolist()
    lengths = [net.distance(i, j) for i, j in pairs]

    def check(found: Any) -> None:
        for nodes, length in zip(found, lengths, strict=True):
            assert sum(x.csr[u, v] for u, v in itertools.pairwise(nodes)) == length

    def RoutingKit() -> Contender:
        other = rival(name, options.threads)
        return part("RoutingKit", lambda: [other.path(i, j) for i, j in pairs], 1e-2)

    return line(
        titled(name),
        [
            part(
                OURS,
                lambda: [net.path(i, j) for i, j in pairs],
                1e-2,
                check if len(x.row) < 1e6 else None,
            ),
            RoutingKit,
        ],
    )


def rows(dtype: str) -> Callable[[str, Options], Line]:
    """The distances to all nodes from many sources; the time of one."""

    def build(name: str, options: Options) -> Line:
        x, net = network(name), prepared(name, dtype)
        sources, count = x.random(2048, 3), 2048
        few = sources[:4]
        expected = dijkstra(x.csr, indices=few)

        def RoutingKit() -> Contender:
            other, targets = rival(name, options.threads), np.arange(x.n)
            return part(
                "RoutingKit",
                lambda: other.table(few, targets),
                1 / 4,
                _same(expected),
                told=", 4 of them",
            )

        def igraph() -> Contender:
            import igraph

            graph = igraph.Graph(x.n, np.stack([x.row, x.col], axis=1).tolist())
            weight = x.weight.tolist()
            return part(
                "igraph",
                lambda: graph.distances(few.tolist(), weights=weight),
                1 / 4,
                _same(expected),
                told=", 4 of them",
            )

        def NetworKit() -> Contender:
            return _networkit(x, few, expected)

        def first(found: Any) -> None:
            np.testing.assert_array_equal(found[:4], expected)

        return line(
            f"{titled(name)}, {count:,} sources",
            [
                part(OURS, lambda: net.distances(sources), 1 / count, first),
                RoutingKit,
                part("SciPy", lambda: dijkstra(x.csr, indices=few), 1 / 4, told=", 4 of them"),
                igraph,
                NetworKit,
            ],
        )

    return build


def source(name: str, options: Options) -> Line:
    """The distances from one source, and from several at once into fresh memory."""
    x, net = network(name), prepared(name)
    sources = x.random(64, 3)
    expected = dijkstra(x.csr, indices=sources[:1])

    def first(found: Any) -> None:
        np.testing.assert_array_equal(found[:1], expected)

    def some(count: int) -> Contender:
        call = functools.partial(net.distances, sources[:count])
        return own(f"{count} at once", call, check=first)

    def RoutingKit() -> Contender:
        other, targets = rival(name, options.threads), np.arange(x.n)
        return part("RoutingKit", lambda: other.table(sources[:1], targets), check=first)

    return line(
        titled(name),
        [
            part(OURS, lambda: net.distances(sources[:1]), check=first),
            *map(some, (4, 16, 64)),
            own("an array of 64 rows, filled", lambda: np.full((64, x.n), 1.0)),
            RoutingKit,
            part("SciPy", lambda: dijkstra(x.csr, indices=sources[:1]), check=first),
        ],
    )


def _networkit(x: Network, few: Any, expected: Any) -> Contender:
    import networkit

    graph = in_networkit(x)

    def run() -> list[Any]:
        return [networkit.distance.Dijkstra(graph, s).run().getDistances() for s in few.tolist()]

    return part("NetworKit", run, 1 / len(few), _same(expected), told=f", {len(few)} of them")


def in_networkit(x: Network, *, weighted: bool = True) -> Any:
    import networkit

    ends = x.row.astype(np.uint64), x.col.astype(np.uint64)
    weight = x.weight.astype(np.float64)
    return networkit.GraphFromCoo((weight, ends), x.n, weighted=weighted, directed=x.directed)


def table(size: tuple[str, int, int], options: Options) -> Line:
    """Tables between random nodes, of few pairs several, one after the other."""
    name, rows, columns = size
    x, times = network(name), max(1, 1000 // (size[1] + size[2]))
    sources = x.random(times * rows, 4).reshape(times, rows)
    targets = x.random(times * columns, 5).reshape(times, columns)
    ends, few = [*zip(sources, targets, strict=True)], min(rows, 2)
    expected = dijkstra(x.csr, indices=sources[0, :few])[:, targets[0]]

    def first(found: Any) -> None:
        np.testing.assert_array_equal(found[0][:few], expected)

    def each(call: Callable[[Any, Any], Any]) -> Callable[[], list[Any]]:
        return lambda: [call(*some) for some in ends]

    def ours(dtype: str) -> Contender:
        call = each(prepared(name, dtype).distances)
        if dtype == "float64":
            return part(OURS, call, 1 / times, first)
        return own(f"in {dtype}", call, 1 / times, check=first)

    def RoutingKit() -> Contender:
        return part("RoutingKit", each(rival(name, options.threads).table), 1 / times, first)

    def SciPy() -> Contender:
        some = sources[0, :4]
        told = f", {len(some)} rows" if len(some) < rows else ""
        return part("SciPy", lambda: dijkstra(x.csr, indices=some), rows / len(some), told=told)

    return line(
        f"{titled(name)}, {rows:,}{'²' if rows == columns else f' × {columns:,}'}",
        [
            ours("float64"),
            *([ours("float32")] if rows == columns == 1000 else []),
            RoutingKit,
            SciPy,
        ],
    )


def stats(name: str, options: Options) -> Line:
    """Eccentricities, means, closeness, harmonic closeness, histogram: all pairs."""
    x = network(name)
    few = x.random(4, 6)
    rows = dijkstra(x.csr, indices=few)

    def check(found: Any) -> None:
        np.testing.assert_array_equal(found.eccentricity[few], rows.max(axis=1))
        np.testing.assert_allclose(found.mean[few], rows.sum(axis=1) / (x.n - 1), rtol=1e-14)

    return line(
        titled(name),
        [
            part(OURS, lambda: sm.statistics(x.edges, directed=False), check=check),
            part(
                "SciPy", lambda: dijkstra(x.csr, indices=few), x.n / 4, told=", 4 rows, not reduced"
            ),
        ],
        most=1,
    )


def continent(name: str, options: Options) -> Line:
    """From a city to a continent: a network's preparation, and what is asked of it."""
    x = network(name)
    net = sm.prepare(x.edges, directed=False, dtype="int32")
    sources, targets = x.random(100, 4), x.random(100, 5)
    many = x.random(min(1000, x.n), 6), x.random(min(1000, x.n), 7)
    expected = dijkstra(x.csr, indices=sources[0])

    def check(found: Any) -> None:
        np.testing.assert_array_equal(found[0], expected[targets])

    def to_all(found: Any) -> None:
        np.testing.assert_array_equal(found[0], expected)

    pairs = np.stack([sources, targets], axis=1).tolist()
    return line(
        titled(name),
        [
            part(OURS, lambda: sm.prepare(x.edges, directed=False, dtype="int32")),
            own("new weights", lambda: net.customize(x.weight)),
            own("one pair", lambda: [net.distance(i, j) for i, j in pairs], 1e-2),
            own("one path", lambda: [net.path(i, j) for i, j in pairs], 1e-2),
            own("one source to all", lambda: net.distances(sources[:1]), check=to_all),
            own("table, 1 × 10", lambda: net.distances(sources[:1], targets[:10])),
            own("table, 100²", lambda: net.distances(sources, targets), check=check),
            own("table, 1,000²", lambda: net.distances(*many)),
            own(
                "a source's eccentricity",
                lambda: sm.statistics(net, "eccentricity", sources=sources[:64]),
                1 / 64,
            ),
        ],
        most=3,
    )


@functools.lru_cache(maxsize=2)
def social(name: str, size: tuple[int, int]) -> tuple[Any, Network]:
    """A random graph of NetworkX, nodes and edges for each, and its edges, of weight 1."""
    import networkx as nx

    n, k = size
    if name == "Erdős–Rényi":
        G = nx.gnm_random_graph(n, k * n, seed=1)
    else:
        G = nx.barabasi_albert_graph(n, k, seed=1)
    row, col = np.array(G.edges()).T
    return G, Network(n, row, col, np.ones(len(row)))


def in_igraph(x: Network) -> Any:
    import igraph

    return igraph.Graph(x.n, np.stack([x.row, x.col], axis=1).tolist(), directed=x.directed)


def flows(name: str, options: Options) -> Line:
    """All trips of a demand on shortest paths."""
    x, net = network(name), prepared(name)
    zones = np.random.default_rng(7).permutation(x.n)[:10_000]
    trips = 100 * len(zones)
    ends = zones[np.random.default_rng(8).integers(0, len(zones), (2, trips))]
    demand = scipy.sparse.csr_array((np.ones(trips), ends), shape=(x.n, x.n))
    few = zones[:4]
    expected = dijkstra(x.csr, indices=few, directed=True)
    expected[np.isinf(expected)] = 0

    def check(found: Any) -> None:
        np.testing.assert_allclose(found.load @ net.edges.weight, found.distance, rtol=1e-12)
        some = net.flows(demand[few], sources=few)
        np.testing.assert_allclose(some.distance, demand[few].multiply(expected).sum(), rtol=1e-9)

    return line(
        f"{titled(name)}, {trips:,} trips between {len(zones):,} zones",
        [
            part(OURS, lambda: net.flows(demand), check=check),
            own("ties on one path", lambda: net.flows(demand, ties="one"), check=check),
            own("as arrays of labels", lambda: net.flows((*ends, np.ones(trips))), check=check),
            part(
                "SciPy's searches alone",
                lambda: dijkstra(x.csr, indices=zones[:16], return_predecessors=True),
                len(zones) / 16, told=", from 16 of them",
            ),
        ],
        most=5,
    )  # fmt: skip


def within(name: str, options: Options) -> Line:
    """Pairs within a radius of all nodes, which about 560 others are in New York."""
    x, net = network(name), prepared(name)
    few, radius = x.random(16, 9), 40_000
    expected = dijkstra(x.csr, indices=few, limit=radius)

    def check(_: Any) -> None:
        found = net.within(radius, few).to_scipy().toarray()
        np.testing.assert_array_equal(found, np.where(np.isfinite(expected), expected, 0))

    pairs = sum(map(len, net.within(radius, batch="auto")))
    return line(
        f"{titled(name)}, {pairs:,} pairs",
        [
            part(OURS, lambda: sum(map(len, net.within(radius, batch="auto"))), check=check),
            part(
                "SciPy", lambda: dijkstra(x.csr, indices=few, limit=radius), x.n / len(few),
                told=f", {len(few)} rows",
            ),
        ],
        most=5,
    )  # fmt: skip


def accessibility(name: str, options: Options) -> Line:
    """Sums of the weights of places, of all nodes: within a radius, and by a decay."""
    x, net = network(name), prepared(name)
    rng, radius, rate = np.random.default_rng(10), 100_000, 1 / 40_000
    places = rng.permutation(x.n)[:49_000]
    weights = rng.integers(1, 100, len(places))
    few = x.random(4, 9)
    d = dijkstra(x.csr, indices=few)[:, places]

    def check(found: Any) -> None:
        np.testing.assert_array_equal(found[few], (d <= radius) @ weights)

    def check_decay(found: Any) -> None:
        np.testing.assert_allclose(found[few], np.exp(-rate * d) @ weights, rtol=1e-12)

    def decay() -> Any:
        return net.accessibility(places, weights, decay=("exponential", rate))

    return line(
        f"{titled(name)}, {len(places):,} places",
        [
            part(OURS, lambda: net.accessibility(places, weights, radius=radius), check=check),
            own("by an exponential decay", decay, check=check_decay),
            part(
                "SciPy's searches alone",
                lambda: dijkstra(x.csr, indices=places[:8], limit=radius), len(places) / 8,
                told=", from 8 of them",
            ),
        ],
        most=3,
    )  # fmt: skip


def trees(name: str, options: Options) -> Line:
    """Rows with predecessors; between the zones of Chicago and its streets edges have length 0."""
    x = network(name)
    sources = np.arange(0, x.n, max(1, x.n // 1000))[:1000]
    solve = functools.partial(sm.apsp, x.edges, directed=x.directed, sources=sources)
    few = sources[:: max(1, len(sources) // 16)]
    expected = dijkstra(x.csr, indices=sources[:2])

    def check(found: Any) -> None:
        np.testing.assert_allclose(np.asarray(found[0][:2]), expected, rtol=1e-12)
        for row, root in enumerate(sources[:2]):
            before, depth = np.asarray(found[1][row]), 0
            node = np.flatnonzero(before >= 0)
            while len(node := node[node != root]):
                node, depth = before[node], depth + 1
                assert depth <= x.n, "predecessors close a cycle"

    return line(
        f"{titled(name)}, {len(sources):,} sources",
        [
            part(
                OURS,
                lambda: solve(return_predecessors=True),
                check=check,
            ),
            own("without predecessors", solve),
            part(
                "SciPy", lambda: dijkstra(x.csr, indices=few, return_predecessors=True),
                len(sources) / len(few), told=f", {len(few)} rows",
            ),
        ],
        most=5,
    )  # fmt: skip


def matrix(name: str, options: Options) -> Line:
    """All pairs as a matrix."""
    x = randomly(4096, 4 * 4096) if name == "random" else network(name)
    expected = dijkstra(x.csr, indices=[0, 1], directed=x.directed)
    given = x.csr

    def NetworKit() -> Contender:
        import networkit

        graph = in_networkit(x)
        return part(
            "NetworKit",
            lambda: networkit.distance.APSP(graph).run().getDistances(asarray=True)[:2],
            check=_same(expected),
        )

    def igraph() -> Contender:
        import igraph

        graph = igraph.Graph(x.n, np.stack([x.row, x.col], axis=1).tolist(), directed=x.directed)
        weight = x.weight.tolist()
        few = list(range(16))
        return part(
            "igraph",
            lambda: graph.distances(few, weights=weight)[:2],
            x.n / 16,
            _same(expected),
            told=", 16 rows",
        )

    title = "random, 4,096 nodes, 8 edges a node" if name == "random" else titled(name)
    return line(
        title,
        [
            part(
                OURS,
                lambda: sm.apsp(given)[:2],
                check=lambda d: np.testing.assert_allclose(d, expected, rtol=1e-12),
            ),
            part(
                "SciPy", lambda: dijkstra(x.csr, indices=np.arange(64)), x.n / 64, told=", 64 rows"
            ),
            NetworKit,
            igraph,
        ],
        most=3,
    )


def hops(size: tuple[int, int], options: Options) -> Line:
    """Statistics of hop counts; the time of one source."""
    n, edges = size
    x = randomly(n, edges)
    x = Network(x.n, x.row, x.col, np.ones(len(x.row)))
    count = min(8192, n)
    sources = np.arange(count)
    expected = dijkstra(x.csr, indices=[0, 1], unweighted=True)

    def check(found: Any) -> None:
        there = np.where(np.isfinite(expected), expected, 0)
        np.testing.assert_array_equal(found.eccentricity[:2], there.max(axis=1))

    def NetworKit() -> Contender:
        import networkit

        graph = in_networkit(x)
        return part(
            "NetworKit",
            lambda: [networkit.distance.BFS(graph, s, storePaths=False).run() for s in range(8)],
            1 / 8,
            told=", 8 of them",
        )

    def igraph() -> Contender:
        import igraph

        graph = igraph.Graph(n, np.stack([x.row, x.col], axis=1).tolist())
        return part("igraph", lambda: graph.distances(list(range(8))), 1 / 8, told=", 8 of them")

    return line(
        f"random, {n:,} nodes, {len(x.row):,} edges, {count:,} sources",
        [
            part(
                OURS,
                lambda: sm.statistics(x.edges, directed=False, sources=sources),
                1 / count,
                check,
            ),
            part(
                "SciPy",
                lambda: dijkstra(x.csr, indices=np.arange(8), unweighted=True),
                1 / 8,
                told=", 8 of them",
            ),
            NetworKit,
            igraph,
        ],
        most=3,
    )


def widest(n: int, options: Options) -> Line:
    """The closure of a dense undirected graph over max_min, beside its elimination."""
    a = np.random.default_rng(n).random((n, n), dtype=np.float32)
    a = np.maximum(a, a.T)
    several = a[np.newaxis]

    return line(
        f"dense, {n:,} nodes",
        [
            part(OURS, lambda: sm.closure(a, "max_min")),
            own("directed, by elimination", lambda: _directed(several)),
        ],
        most=3,
    )


def _directed(several: Any) -> Any:
    a = several[0].copy()
    a[0, 1] += 1  # no longer symmetric
    return sm.closure(a, "max_min", overwrite=True)


# On a CUDA device; results are of the host where nothing else is said, and calls end with it


def _there(call: Callable[[], Any]) -> Callable[[], Any]:
    """A call whose result stays on the device, until it is there."""
    import cupy

    def run() -> Any:
        result = call()
        cupy.cuda.Device().synchronize()
        return result

    return run


def _on_device(x: Any) -> Any:
    import cupy

    return cupy.asarray(x)


def gpu_customize(name: str, _: Options) -> Line:
    net, weight = prepared(name, "int32"), network(name).weight
    there = _on_device(weight)
    return line(
        titled(name),
        [
            part(OURS, _there(lambda: net.customize(weight, device="cuda"))),
            own("weights on the device", _there(lambda: net.customize(there))),
            own("on the CPU", lambda: net.customize(weight)),
        ],
    )


def gpu_stats(name: str, _: Options) -> Line:
    """Eccentricities and means of all pairs."""
    x, net = network(name), prepared(name, "int32")
    few, kinds = x.random(4, 6), ["eccentricity", "mean"]
    rows = dijkstra(x.csr, indices=few)
    several = sm.Tiles(devices="all")

    def check(found: Any) -> None:
        np.testing.assert_array_equal(found.eccentricity[few], rows.max(axis=1))
        np.testing.assert_allclose(found.mean[few], rows.sum(axis=1) / (x.n - 1), rtol=1e-14)

    def whole() -> Any:
        return sm.statistics(x.edges, kinds, directed=False, device="cuda")

    return line(
        titled(name),
        [
            part(OURS, lambda: sm.statistics(net, kinds, device="cuda"), check=check),
            own("with preparation", whole, check=check),
            own("all statistics", lambda: sm.statistics(net, device="cuda"), check=check),
            *several_devices(lambda: sm.statistics(net, kinds, tiles=several), check),
            part(
                "SciPy on the CPU", lambda: dijkstra(x.csr, indices=few), x.n / 4, told=", 4 rows"
            ),
        ],
        most=3,
    )


def several_devices(
    call: Callable[[], Any], check: Callable[[Any], None], scale: float = 1.0
) -> list[Any]:
    """A contender that uses all devices, where there are several."""
    import cupy

    count = cupy.cuda.runtime.getDeviceCount()
    return [own(f"on {count} devices", call, scale, check)] if count > 1 else []


def gpu_source(name: str, _: Options) -> Line:
    """A source among millions of nodes: statistics of some, divided by their number.

    Those near each other share their ways up, as when all sources are asked for.
    """
    x = network(name)
    net = sm.prepare(x.edges, directed=False, dtype="int32")
    count, runs = min(1 << 15, x.n), 8
    kinds, order = ["eccentricity", "mean"], net.metric.structure.order
    begins = np.linspace(0, x.n - count // runs, runs).astype(np.int64)
    near = np.concatenate([order[i : i + count // runs] for i in begins])
    rows = dijkstra(x.csr, indices=near[:2])

    def check(found: Any) -> None:
        np.testing.assert_array_equal(found.eccentricity[:2], rows.max(axis=1))
        np.testing.assert_allclose(found.mean[:2], rows.sum(axis=1) / (x.n - 1), rtol=1e-14)

    def of(sources: Any, what: Any = None, **more: Any) -> Callable[[], Any]:
        return lambda: sm.statistics(net, what, sources=sources, **(more or {"device": "cuda"}))

    several = sm.Tiles(devices="all")
    for where in ({"device": "cuda"}, {"tiles": several}):  # lays the graph out, and compiles
        of(near[:256], kinds, **where)()
    return line(
        titled(name),
        [
            part(OURS, of(near, kinds), 1 / len(near), check=check),
            own("all statistics", of(near), 1 / len(near)),
            own("of random sources", of(x.random(count, 8), kinds), 1 / count),
            *several_devices(of(near, kinds, tiles=several), check, 1 / len(near)),
        ],
        most=2,
    )


def gpu_loads(name: str, _: Options) -> Line:
    """Betweenness of all nodes and edges."""
    x, net = network(name), prepared(name, "int32")
    kinds, some = ["betweenness", "edge_betweenness"], min(1024, x.n)

    def check(found: Any) -> None:
        few = sm.statistics(net, kinds, sources=range(64), device="cpu")
        there = sm.statistics(net, kinds, sources=range(64), device="cuda")
        for kind in kinds:
            expected = getattr(few, kind)
            np.testing.assert_allclose(getattr(there, kind), expected, rtol=1e-9, atol=1e-9)
            assert (getattr(found, kind) >= expected * (1 - 1e-9)).all()

    return line(
        titled(name),
        [
            part(OURS, lambda: sm.statistics(net, kinds, device="cuda"), check=check),
            own(
                "on the CPU",
                lambda: sm.statistics(net, kinds, sources=range(some), device="cpu"),
                x.n / some, told=f", {some:,} sources",
            ),
        ],
        most=1,  # half a minute
    )  # fmt: skip


def gpu_table(name: str, _: Options) -> Line:
    x, net = network(name), prepared(name, "int32")
    count = min(10_000, x.n)
    ends = x.random(count, 4), x.random(count, 5)
    there = [_on_device(y) for y in ends]
    expected = dijkstra(x.csr, indices=ends[0][:2])[:, ends[1]]

    def first(found: Any) -> None:
        few = found[:2]
        np.testing.assert_array_equal(few.get() if hasattr(few, "get") else few, expected)

    return line(
        f"{titled(name)}, {count:,}²",
        [
            part(OURS, lambda: net.distances(*ends, device="cuda"), check=first),
            own("that stays on the device", _there(lambda: net.distances(*there)), check=first),
            own("on the CPU", lambda: net.distances(*ends, device="cpu"), check=first),
        ],
        most=3,
    )


def gpu_matrix(name: str, _: Options) -> Line:
    x = network(name).of("float32")
    given, net = x.csr.astype(np.float32), prepared(name, "float32")
    nodes = _on_device(np.arange(x.n))
    return line(
        f"{titled(name)}, float32",
        [
            part(OURS, lambda: sm.apsp(given, device="cuda")),
            own("prepared, stays on the device", _there(lambda: net.distances(nodes))),
            own("on the CPU", lambda: sm.apsp(given, device="cpu")),
        ],
        most=3,
    )


def gpu_hops(size: tuple[int, int], _: Options) -> Line:
    """Statistics of the hop counts of all pairs."""
    n, edges = size
    x = randomly(n, edges)
    ones = Network(x.n, x.row, x.col, np.ones(len(x.row)))
    kinds = ["eccentricity", "mean"]
    few = np.arange(4)
    return line(
        f"random, {n:,} nodes, {len(x.row):,} edges",
        [
            part(OURS, lambda: sm.statistics(ones.edges, kinds, directed=False, device="cuda")),
            own("all statistics", lambda: sm.statistics(ones.edges, directed=False, device="cuda")),
            part(
                "SciPy on the CPU",
                lambda: dijkstra(ones.csr, indices=few, unweighted=True),
                n / 4,
                told=", 4 rows",
            ),
        ],
        most=3,
    )


def gpu_betweenness(size: tuple[int, int], _: Options) -> Line:
    """Of all nodes and edges of a graph by Barabási and Albert, where each edge counts 1."""
    import networkx as nx

    n, k = size
    row, col = np.array(nx.barabasi_albert_graph(n, k, seed=1).edges()).T
    x = Network(n, row, col, np.ones(len(row)))
    few = np.arange(0, n, max(1, n // 1000))

    def all_of(device: str) -> Any:
        return sm.statistics(x.edges, "betweenness", directed=False, device=device)

    def some(device: str) -> Any:
        return sm.statistics(x.edges, "betweenness", directed=False, sources=few, device=device)

    expected = some("cpu").betweenness

    def check(found: Any) -> None:
        np.testing.assert_allclose(found.betweenness, expected, 1e-11, 1e-9)

    def igraph() -> Contender:
        import igraph

        graph = igraph.Graph(n, np.stack([row, col], axis=1).tolist())
        return part("igraph on the CPU", graph.betweenness)

    return line(
        f"Barabási–Albert, {n:,} × {k}",
        [
            part(OURS, lambda: all_of("cuda")),
            own(f"from {len(few):,} nodes", lambda: some("cuda"), check=check),
            own("on the CPU", lambda: all_of("cpu")),
            *([igraph] if n <= 10_000 else []),
        ],
        most=3,
    )


def gpu_widest(n: int, _: Options) -> Line:
    """The closure of a dense undirected graph over max_min, on the device."""
    import cupy

    a = cupy.random.default_rng(1).random((n, n), dtype=np.float32)
    for i in range(0, n, 4096):  # symmetric, without a copy of it
        a[i : i + 4096] = cupy.maximum(a[i : i + 4096], a[:, i : i + 4096].T)
        a[:, i : i + 4096] = a[i : i + 4096].T
    return line(f"dense, {n:,} nodes", [part(OURS, _there(lambda: sm.closure(a, "max_min")))])


GPU_CASES = [
    Case("customize: new weights", gpu_customize, ("NY", "FLA"), quick=("12",)),
    Case("statistics of all pairs", gpu_stats, ("NY", "FLA"), quick=("12",)),
    Case("a source", gpu_source, ("percolated 2500", "like 5000000"), quick=("percolated 60",)),
    Case("betweenness", gpu_loads, ("NY", "FLA"), quick=("12",)),
    Case("table", gpu_table, ("FLA",), quick=("12",)),
    Case("all pairs as a matrix", gpu_matrix, ("Chicago",), quick=("12",)),
    Case("hop counts of all pairs", gpu_hops, ((100_000, 1_000_000),), quick=((200, 600),)),
    Case("betweenness in hops", gpu_betweenness, ((10_000, 3), (100_000, 5)), quick=((200, 3),)),
    Case("widest paths, undirected", gpu_widest, (65_536,), quick=(64,)),
]
CONTINENT = [
    Case(
        "prepare and ask", continent, ("NY", "FLA", "like 5000000", "like 24000000"),
        quick=("like 2000",),
    ),
]  # fmt: skip
TABLES = tuple(
    (name, *shape)
    for shape in ((1, 10), (3, 3), (10, 10), (1, 1000), (100, 1), (100, 100), (1000, 1000))
    for name in ("NY", "FLA")
)
CASES = [
    Case("prepare", prepare, ("NY", "FLA"), quick=("12",)),
    Case("customize: new weights", customize, ("NY", "FLA"), quick=("12",)),
    Case("one pair", pair, ("NY", "FLA"), quick=("12",)),
    Case("one path, unpacked", path, ("NY", "FLA"), quick=("12",)),
    Case("one source", source, ("NY", "FLA"), quick=("12",)),
    Case("one source to all", rows("float64"), ("NY",), quick=("12",)),
    Case("one source to all, float32", rows("float32"), ("NY",), quick=("12",)),
    Case("table", table, TABLES, quick=(("12", 3, 5), ("12", 40, 40))),
    Case("statistics of all pairs", stats, ("NY",), quick=("12",), full=("FLA",)),
    Case("pairs within a radius", within, ("NY",), quick=("12",)),
    Case("accessibility", accessibility, ("FLA",), quick=("12",)),
    Case("flows of a demand", flows, ("Chicago",), quick=("12",)),
    Case("rows with predecessors", trees, ("Chicago",), quick=("12",)),
    Case("all pairs as a matrix", matrix, ("Chicago", "random"), quick=("12",)),
    Case("hop counts, one source", hops, ((100_000, 1_000_000),), quick=((200, 600),)),
    Case("widest paths, undirected", widest, (4096,), quick=(64,), full=(16384,)),
]  # fmt: skip


# Results


def table_of(result: dict[str, Any], source: str) -> str:
    """The lines as Markdown, and what they were measured on."""
    rows = ["| work | graph | time | beside it |", "| --- | --- | --- | --- |"]
    for raw in result["lines"]:
        found = Line.from_raw(raw)
        cells = [found.case, found.size]
        if found.skipped or found.ours.skipped:
            cells += [f"skipped: {found.skipped or found.ours.skipped}", ""]
        else:
            others = [
                f"{x.name} {report.seconds(x.median)}" if x.ours else report.compared(found, x)
                for x in found.contenders[1:]
                if x.samples
            ]
            cells += [report.seconds(found.ours.median), "; ".join(others)]
        rows.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    note = "Medians; × says how many times slower."
    return "\n".join([*rows, "", report.provenance(result, source, note)])


def continent_table(result: dict[str, Any], source: str) -> str:
    """Questions down, networks across, as Markdown."""
    lines = [x for x in map(Line.from_raw, result["lines"]) if not x.skipped]
    rows = [
        f"| question | {' | '.join(x.size for x in lines)} |", f"| --- |{' --- |' * len(lines)}"
    ]  # fmt: skip
    for asked in zip(*(x.contenders for x in lines), strict=True):
        name = "prepare" if asked[0].name == OURS else asked[0].name
        rows.append(f"| {name} | {' | '.join(report.seconds(x.median) for x in asked)} |")
    return "\n".join([*rows, "", report.provenance(result, source, "Medians.")])


def renew() -> int:
    """Renew the tables from the newest results."""
    done = report.renew_page(PAGE, ("sparse-graphs-cpu", "sparse-graphs-gpu"), table_of)
    done = done or report.renew_page(PAGE, ("sparse-graphs-continent",), continent_table)
    done = done or report.renew_page(PAGE, ("sparse-graphs-families",), families.table_of)
    return done or report.renew_page(PAGE, ("sparse-graphs-single",), families.single_table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench sparse", description=__doc__)
    parser.add_argument("--table", action="store_true", help="only write the tables again")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    parser.add_argument("--full", action="store_true", help="add the lines that take minutes")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--gpu", action="store_true", help="on a CUDA device")
    part.add_argument("--families", action="store_true", help="small graphs of many kinds")
    part.add_argument("--continent", action="store_true", help="networks of millions of nodes")
    part.add_argument("--single", action="store_true", help="what is asked of one source")
    parser.add_argument("--only", default="", help="only the lines whose names contain this")
    parser.add_argument("--out", type=Path, metavar="FILE", help="raw results")
    args = parser.parse_args(arguments)
    if args.table:
        return renew()
    threads = 0 if args.gpu else sm.get_num_threads()
    options = Options(threads, quick=args.quick, full=args.full)
    result = report.begin(threads, on_device=args.gpu)
    kind, cases = (
        ("gpu", GPU_CASES) if args.gpu else ("families", families.CASES) if args.families
        else ("single", families.SINGLE) if args.single
        else ("continent", CONTINENT) if args.continent else ("cpu", CASES)
    )  # fmt: skip
    keep = functools.partial(
        report.keep, result, f"sparse-graphs-{kind}", args.out,
        scratch=bool(args.quick or args.only),
    )  # fmt: skip
    for case in cases:
        if args.only not in case.name:
            continue
        for made in case.lines(options):
            if not made.skipped:
                sample(made, quick=args.quick)
            print(report.text(made), flush=True)
            result["lines"].append(made.raw())
            made.contenders.clear()  # their data may fill the memory
            keep(quiet=True)  # a run that is cut off leaves its first lines
    kept = keep(quiet=False)
    return 0 if args.out or not kept else renew()


if __name__ == "__main__":
    sys.exit(main())
