"""Families of sparse graphs × numbers of sources: this library, and SciPy's Dijkstra.

``python -m bench.families`` prints the table; ``--only NAME`` some of its rows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.csgraph as scipys

import semiring_mm as sm
from semiring_mm import csgraph

__all__ = ["FAMILIES", "cases", "run"]

#: Numbers of sources; None: all nodes.
COUNTS = (1, 10, 100, None)
#: SciPy's searches from all nodes of larger graphs take minutes.
_ALL = 8000
_ROUNDS, _SECONDS = 7, 6.0  # of a case, at most, after two rounds


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


def road(file: str) -> Any:
    """A real network."""
    import os
    from pathlib import Path

    from semiring_mm.files import read_graph

    from .machine import ROOT
    from .measure import Skip

    folder = Path(os.environ.get("SEMIRING_MM_DATA") or ROOT.parent / "shared" / "data")
    if not (folder / file).exists():
        raise Skip(f"no file {file}")
    graph = read_graph(folder / file)
    return _matrix(graph.n, (graph.row, graph.col), graph.weight, directed=graph.directed)


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
QUICK: dict[str, Callable[[], Any]] = {
    "random, 60 nodes": lambda: random(60, 2, directed=True),
    "2-D grid, 150 nodes": lambda: grid(10, 15),
}


def cases(*, quick: bool = False) -> Iterator[tuple[str, Any, int | None]]:
    """Name, graph and number of sources (None: all) of each case; graphs are made when needed."""
    from .measure import Skip

    for name, make in (QUICK if quick else FAMILIES).items():
        try:
            graph = make()
        except Skip:
            continue
        for count in COUNTS:
            if count is not None or graph.shape[0] <= _ALL:
                yield name, graph, count


def run(
    *, quick: bool = False, only: str = "", show: Callable[[dict[str, Any]], None] | None = None
) -> list[dict[str, Any]]:
    """Measure all cases, preparation included, the rivals in turn: seconds, the least of some.

    Returns
    -------
    list of dict
        name, nodes, arcs, sources, and the seconds of apsp, csgraph and SciPy.
    """
    rows = []
    for name, graph, count in cases(quick=quick):
        if only not in name:
            continue
        n = graph.shape[0]
        chosen = None if count is None else np.random.default_rng(1).integers(0, n, count)
        rivals = {
            "apsp": lambda g=graph, k=chosen: sm.apsp(g, sources=k),
            "csgraph": lambda g=graph, k=chosen: csgraph.dijkstra(g, indices=k),
            "SciPy": lambda g=graph, k=chosen: scipys.dijkstra(g, indices=k),
        }
        least, spent = dict.fromkeys(rivals, np.inf), 0.0
        expected = None
        for turn in range(_ROUNDS):
            if turn > (0 if spent > 4 * _SECONDS else 1) and spent > _SECONDS:
                break
            for rival, call in rivals.items():
                begin = time.perf_counter()
                found = call()
                took = time.perf_counter() - begin
                spent, least[rival] = spent + took, min(least[rival], took)
                if turn == 0 and rival == "apsp":
                    expected = found
                elif turn == 0:
                    np.testing.assert_allclose(found, expected, rtol=1e-9)
        row = {"name": name, "nodes": n, "arcs": graph.nnz, "sources": count or n} | least
        rows.append(row)
        if show is not None:
            show(row)
    return rows


def text(row: dict[str, Any]) -> str:
    """A row as a line."""
    times = "  ".join(f"{x} {1e3 * row[x]:10.2f} ms" for x in ("apsp", "csgraph", "SciPy"))
    faster = ", ".join(f"{row['SciPy'] / row[x]:.2f} x" for x in ("apsp", "csgraph"))
    return f"{row['name']:40} {row['sources']:6} sources  {times}  ({faster})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.families", description=__doc__)
    parser.add_argument("--only", default="", help="only the families whose names contain this")
    parser.add_argument("--quick", action="store_true", help="tiny graphs: does everything run?")
    args = parser.parse_args(arguments)
    run(quick=args.quick, only=args.only, show=lambda row: print(text(row), flush=True))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
