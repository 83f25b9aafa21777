"""Families of sparse graphs × numbers of sources: this library, and SciPy's Dijkstra.

``python -m bench sparse --families`` measures them, and ``--single`` what is asked of one source.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.csgraph as scipys

import semiring_mm as sm
from semiring_mm import csgraph

from . import report
from .cases import OURS, Case, Options
from .machine import ROOT
from .measure import Contender, Line, Skip

__all__ = ["CASES", "FAMILIES", "SINGLE", "graph", "single_table", "table_of"]


def _matrix(n: int, ends: Any, weight: Any, *, directed: bool = False) -> Any:
    """In CSR, without loops, each edge with its least weight."""
    row, col = ends
    kept = row != col
    row, col, weight = row[kept], col[kept], np.asarray(weight, np.float64)[kept]
    if not directed:
        row, col = np.concatenate([row, col]), np.concatenate([col, row])
        weight = np.concatenate([weight, weight])
    order = np.lexsort((weight, col, row))
    row, col, weight = row[order], col[order], weight[order]
    first = np.ones(len(row), bool)
    first[1:] = (np.diff(row) != 0) | (np.diff(col) != 0)
    return sp.csr_array((weight[first], (row[first], col[first])), shape=(n, n))


def _whole(m: int) -> Any:
    return np.random.default_rng(m).integers(1, 100, m)


def random(n: int, degree: int, *, directed: bool) -> Any:
    """Edges between any two nodes."""
    ends = np.random.default_rng(n).integers(0, n, (2, n * degree))
    return _matrix(n, ends, _whole(n * degree), directed=directed)


def power_law(n: int, degree: int) -> Any:
    """Directed; few nodes have most edges, and many are not reached, as in networks of links."""
    ends = (n * np.random.default_rng(n).random((2, n * degree)) ** 3).astype(int)
    return _matrix(n, ends, _whole(n * degree), directed=True)


def grid(*shape: int) -> Any:
    """Neighbours along each axis."""
    index = np.arange(np.prod(shape)).reshape(shape)
    pairs = [
        (np.take(index, range(k - 1), axis).ravel(), np.take(index, range(1, k), axis).ravel())
        for axis, k in enumerate(shape)
    ]
    ends = np.concatenate(pairs, axis=1)
    return _matrix(index.size, ends, _whole(ends.shape[1]))


def delaunay(n: int) -> Any:
    """A planar triangulation of random points."""
    from scipy.spatial import Delaunay

    points = np.random.default_rng(n).random((n, 2))
    corners = Delaunay(points).simplices
    ends = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]]).T
    return _matrix(n, ends, np.linalg.norm(points[ends[0]] - points[ends[1]], axis=1))


def geometric(n: int) -> Any:
    """Random points and their neighbours in a radius, eight on average."""
    from scipy.spatial import cKDTree

    points = np.random.default_rng(n).random((n, 2))
    radius = (8 / (np.pi * n)) ** 0.5
    ends = cKDTree(points).query_pairs(radius, output_type="ndarray").T
    return _matrix(n, ends, np.linalg.norm(points[ends[0]] - points[ends[1]], axis=1))


def small_world(n: int) -> Any:
    """A ring of six neighbours, a tenth of the edges moved (Watts and Strogatz)."""
    rng, row = np.random.default_rng(n), np.repeat(np.arange(n), 3)
    col = (row + np.tile([1, 2, 3], n)) % n
    moved = rng.random(3 * n) < 0.1
    col[moved] = rng.integers(0, n, moved.sum())
    return _matrix(n, (row, col), _whole(3 * n))


def tree(n: int) -> Any:
    """Each node hangs on a random earlier one."""
    child = np.arange(1, n)
    parent = (np.random.default_rng(n).random(n - 1) * child).astype(int)
    return _matrix(n, (child, parent), _whole(n - 1))


def heavy_tailed(n: int, edges: int) -> Any:
    """Degrees of a power law, up to a hundred times each other, as of friends at a university."""
    rng = np.random.default_rng(n)
    chance = np.minimum(rng.pareto(1.5, n) + 1, 60)
    ends = np.sort(rng.choice(n, (edges * 5 // 4, 2), p=chance / chance.sum()), axis=1)
    ends = rng.permutation(np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0))[:edges]
    return _matrix(n, ends.T, _whole(len(ends)))


def road(file: str) -> Any:
    """A real network."""
    from semiring_mm.files import read_graph

    folder = Path(os.environ.get("SEMIRING_MM_DATA") or ROOT.parent / "shared" / "data")
    if not (folder / file).exists():
        raise Skip(f"no file {file}")
    graph = read_graph(folder / file)
    return _matrix(graph.n, (graph.row, graph.col), graph.weight, directed=graph.directed)


def road_like(n: int, seed: int = 1) -> tuple[Any, Any, Any]:
    """A connected undirected network of n nodes like one of roads: tails, heads, travel times.

    Half of the nodes are crossings of a grid of streets. A border of blocks of 2ᵏ by 2ᵏ crossings,
    as a river or a railway is, is crossed by the fewer streets the larger the blocks are; so
    separators of k nodes grow slower than their square root, as those of roads do. The other nodes
    divide streets into chains, and are dead ends that begin there. Motorways lead over many
    crossings at once. Times are whole tenths of a second.

    Parameters
    ----------
    n : int
        At least 1,000.
    seed : int

    Returns
    -------
    tail, head, time : (m,) int32
    """
    rng, side = np.random.default_rng(seed), int((_CROSSINGS * n) ** 0.5)
    at, line = np.arange(side * side, dtype=np.int32).reshape(side, side), np.arange(1, side)
    chance = _KEPT * _RARER ** np.log2(line & -line)
    across, along = rng.random((2, side - 1, side), np.float32) < chance[:, np.newaxis]
    steps, far = slice(None, None, _EXIT), slice(_MOTORWAY // 2, None, _MOTORWAY)
    streets = [at.T[:-1][across], at[:-1][along]], [at.T[1:][across], at[1:][along]]
    motorways = [
        np.concatenate([x[steps][part, far].ravel() for x in (at, at.T)])
        for part in (slice(None, -1), slice(1, None))
    ]
    tail, head = (np.concatenate([*x, y]) for x, y in zip(streets, motorways, strict=True))
    fast = len(tail) - len(motorways[0])  # motorways are the last
    meters, speed = rng.gamma(4, 30, len(tail)) + 10, rng.choice([30.0, 50, 50, 70], len(tail))
    meters[fast:], speed[fast:] = 130 * _EXIT, 120
    time = 36 * meters / speed
    del at, across, along, streets, motorways, meters, speed

    there = sp.coo_array((np.ones(len(tail), bool), (tail, head)), shape=(side * side,) * 2)
    label = scipys.connected_components(there, directed=False)[1]
    inside = label == np.bincount(label).argmax()
    number, kept = np.cumsum(inside, dtype=np.int32) - np.int32(1), inside[tail]
    tail, head, time = number[tail[kept]], number[head[kept]], time[kept]
    crossings = int(number[-1]) + 1

    ends = int(_DEAD_ENDS * n)
    inner = n - crossings - ends
    cuts = np.cumsum(rng.exponential(size=len(tail)))
    upto = (cuts * (inner / cuts[-1])).astype(np.int32)  # inner nodes of the streets up to each
    upto[-1] = inner
    count = np.diff(upto, prepend=np.int32(0))
    node = np.arange(crossings, crossings + inner, dtype=np.int32)
    street = np.repeat(np.arange(len(tail), dtype=np.int32), count)
    first = np.diff(street, prepend=np.int32(-1)) > 0
    piece = np.maximum(np.rint(time / (count + 1)), 1).astype(np.int32)
    of = rng.choice(node, ends, replace=False, shuffle=False)
    return (
        np.concatenate([np.where(first, tail[street], node - 1),
                        np.where(count > 0, crossings + upto - 1, tail), of]),
        np.concatenate([node, head, np.arange(n - ends, n, dtype=np.int32)]),
        np.concatenate([piece[street], piece, rng.integers(10, 300, ends, np.int32)]),
    )  # fmt: skip


def percolated(side: int, kept: float = 0.6, seed: int = 1) -> tuple[int, Any, Any]:
    """Largest connected component of a square grid with a random part of its edges.

    Its separators grow as its side does, unlike those of roads: the sweeps of a continent's worst
    case. Undirected.

    Returns
    -------
    n : int
    tail, head : (m,) int32
    """
    rng = np.random.default_rng(seed)
    at = np.arange(side * side, dtype=np.int32).reshape(side, side)
    along, across = (rng.random((side, side - 1), np.float32) < kept for _ in range(2))
    tail, head = (
        np.concatenate([at[:, part][along], at.T[:, part][across]])
        for part in (slice(None, -1), slice(1, None))
    )
    there = sp.coo_array((np.ones(len(tail), bool), (tail, head)), shape=(side * side,) * 2)
    label = scipys.connected_components(there, directed=False)[1]
    inside = label == np.bincount(label).argmax()
    number, kept_edges = np.cumsum(inside, dtype=np.int32) - np.int32(1), inside[tail]
    return int(inside.sum()), number[tail[kept_edges]], number[head[kept_edges]]


def _reweighted(graph: Any) -> Any:
    """The same with whole weights, equal in both directions."""
    row = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    low, high = np.minimum(row, graph.indices), np.maximum(row, graph.indices)
    graph.data = 1.0 + (low * 7919 + high * 104_729) % 4999
    return graph


FAMILIES: dict[str, Callable[[], Any]] = {
    "random, 4,000 nodes, 8 edges": lambda: random(4000, 4, directed=False),
    "random, directed, 8,000 nodes, 4 edges": lambda: random(8000, 4, directed=True),
    "random, directed, 4,096 nodes, 8 edges": lambda: random(4096, 8, directed=True),
    "power law, directed, 7,000 nodes": lambda: power_law(7000, 15),
    "power law, directed, 1,900 nodes": lambda: power_law(1900, 16),
    "3-D grid, 4,096 nodes": lambda: grid(16, 16, 16),
    "2-D grid, 4,096 nodes": lambda: grid(64, 64),
    "2-D grid, 90,000 nodes": lambda: grid(300, 300),
    "Delaunay, 4,000 nodes": lambda: delaunay(4000),
    "geometric, 4,000 nodes": lambda: geometric(4000),
    "small world, 4,000 nodes": lambda: small_world(4000),
    "tree, 20,000 nodes": lambda: tree(20_000),
    "New York, 264,346 nodes": lambda: road("road_NY.gr.xz"),
}
#: Of which single sources are asked.
_SINGLE: dict[str, Callable[[], Any]] = {
    "random, directed, 50 nodes": lambda: random(50, 4, directed=True),
    "random, directed, 1,000 nodes": lambda: random(1000, 4, directed=True),
    "random, directed, 20,000 nodes": lambda: random(20_000, 4, directed=True),
    "Delaunay, 4,000 nodes": FAMILIES["Delaunay, 4,000 nodes"],
    "heavy-tailed, 6,402 nodes, 251,230 edges": lambda: heavy_tailed(6402, 251_230),
    "New York, 264,346 nodes, random weights": lambda: _reweighted(road("road_NY.gr.xz")),
}
_QUICK: dict[str, Callable[[], Any]] = {
    "random, 60 nodes": lambda: random(60, 2, directed=True),
    "2-D grid, 150 nodes": lambda: grid(10, 15),
}
#: From all nodes of these, SciPy's searches take minutes, and the result gigabytes.
_LARGE = ("2-D grid, 90,000 nodes", "tree, 20,000 nodes", "New York, 264,346 nodes")


#: Of networks like roads: crossings and dead ends a node; which part of the streets of the grid is
#: there, and which of these where they cross a border, each time that the blocks are twice as
#: large; crossings between motorways, and from one exit to the next.
_CROSSINGS, _DEAD_ENDS = 0.51, 0.2
_KEPT, _RARER = 0.97, 0.7
_MOTORWAY, _EXIT = 64, 8


@functools.lru_cache(maxsize=1)
def graph(name: str) -> Any:
    """The graph of a family, in CSR."""
    return (FAMILIES | _SINGLE | _QUICK)[name]()


def _case(title: str, count: int | None) -> Case:
    """Distances from some nodes, or all, preparation included."""

    def line(name: str, _: Options) -> Line:
        g = graph(name)
        rows = None if count is None else np.random.default_rng(1).integers(0, g.shape[0], count)
        expected = scipys.dijkstra(g, indices=rows)
        return Line(
            "", name, "", 0,
            [
                Contender(OURS, lambda: sm.apsp(g, sources=rows)),
                Contender("csgraph", lambda: csgraph.dijkstra(g, indices=rows), ours=True),
                Contender("SciPy", lambda: scipys.dijkstra(g, indices=rows)),
            ],
            check=lambda found: np.testing.assert_allclose(found, expected, rtol=1e-9),
        )  # fmt: skip

    names = [x for x in FAMILIES if count is not None or x not in _LARGE]
    return Case(title, line, tuple(names), quick=tuple(_QUICK))


CASES = [
    _case("one source", 1), _case("10 sources", 10), _case("100 sources", 100),
    _case("all nodes", None),
]  # fmt: skip


def _asked(title: str, count: int, ours: Callable[..., Any], **words: Any) -> Case:
    """What is asked of some sources; `words` are those of SciPy's function."""

    def line(name: str, _: Options) -> Line:
        g = graph(name)
        if "directed" in words:
            g = g.maximum(g.T).tocsr()
        rows, more = np.random.default_rng(1).integers(0, g.shape[0], count), dict(words)
        if "limit" in words:
            d = scipys.dijkstra(g, indices=rows)
            more["limit"] = float(np.quantile(d[d < np.inf], words["limit"]))
        expected = scipys.dijkstra(g, indices=rows, **more)
        contenders = [
            Contender(OURS, lambda: ours(g, rows, more)),
            Contender("SciPy", lambda: scipys.dijkstra(g, indices=rows, **more)),
        ]
        if "unweighted" in words:
            contenders.append(_igraph(g, rows))
        return Line(
            "", name, "", 0, contenders,
            check=lambda found: np.testing.assert_array_equal(np.asarray(found), expected),
        )  # fmt: skip

    return Case(title, line, tuple(_SINGLE), quick=tuple(_QUICK))


def _igraph(g: Any, rows: Any) -> Contender:
    try:
        import igraph
    except ImportError:
        return Contender("igraph", None, skipped="igraph is not installed")
    entries = g.tocoo()
    ends = np.stack([entries.row, entries.col], axis=1)
    there = igraph.Graph(g.shape[0], ends.tolist(), directed=True)
    return Contender("igraph", lambda: there.distances(rows.tolist()))


def _door(g: Any, rows: Any, words: Any) -> Any:
    return csgraph.dijkstra(g, indices=rows, **words)


SINGLE = [
    _asked("weights", 1, lambda g, rows, _: sm.apsp(g, sources=rows)),
    _asked("`csgraph`", 1, _door),
    _asked("`limit`, a tenth", 1, _door, limit=0.1),
    _asked("`limit`, half", 1, _door, limit=0.5),
    _asked("`directed=False`", 1, lambda g, rows, _: sm.apsp(g, sources=rows, directed=False),
           directed=False),
    _asked("hops", 1, lambda g, rows, _: sm.apsp(g, sources=rows, weight=None), unweighted=True),
    _asked("hops, 64 sources", 64, lambda g, rows, _: sm.apsp(g, sources=rows, weight=None),
           unweighted=True),
]  # fmt: skip


def single_table(result: dict[str, Any], source: str) -> str:
    """Families down, what is asked of one source across, as Markdown."""

    def cell(line: Line) -> str:
        others = [x.median / line.ours.median for x in line.contenders[1:] if x.samples]
        return f"{report.seconds(line.ours.median)} (× {', '.join(map(report.three, others))})"

    note = (
        "Medians of `sm.apsp(graph, sources=[s])` and, where the column says so or there is a "
        "limit, of `semiring_mm.csgraph.dijkstra`; in brackets, how many times as long SciPy's "
        "`dijkstra` takes, and igraph's `distances`, of a graph of its own. The limits are "
        "quantiles of the distances; with `directed=False` the matrix is symmetric."
    )
    return _table(result, source, [case.name for case in SINGLE], cell, note)


def table_of(result: dict[str, Any], source: str) -> str:
    """Families down, numbers of sources across, as Markdown."""

    def cell(line: Line) -> str:
        ours, drop_in, scipy = (x.median for x in line.contenders)
        times = f"× {report.three(scipy / ours)}, {report.three(scipy / drop_in)}"
        return f"{report.seconds(ours)} ({times})"

    note = (
        "Medians of `sm.apsp(graph, sources=…)`; in brackets, how many times as long SciPy's "
        "`dijkstra` takes as that, and as `semiring_mm.csgraph.dijkstra`."
    )
    return _table(result, source, [case.name for case in CASES], cell, note)


def _table(
    result: dict[str, Any], source: str, titles: list[str], cell: Callable[[Line], str], note: str
) -> str:
    rows = [f"| graph | {' | '.join(titles)} |", "| --- |" + " --- |" * len(titles)]
    found = {(x.size, x.case): x for x in map(Line.from_raw, result["lines"]) if not x.skipped}
    for name in dict.fromkeys(size for size, _ in found):
        lines = [found.get((name, title)) for title in titles]
        cells = ["–" if line is None else cell(line) for line in lines]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*rows, "", report.provenance(result, source, note)])
