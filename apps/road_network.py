"""
Shortest paths on a road network
================================

How long does it take from every crossing of a city to every other one, and which way does one go?

Over **min_plus**, ⊗ is a sum, which adds up the streets of a route, and ⊕ is a minimum, which keeps
the best route. The closure of the matrix of streets, :math:`A^* = I ⊕ A ⊕ A^2 ⊕ …`, then holds the
time of the quickest route between every two crossings. :func:`semiring_mm.apsp` computes it. A
dense graph costs :math:`n^3` pairs (⊗, ⊕); a road network, which falls apart when a few crossings
are taken out, is found to be sparse and costs :math:`n · f`, where :math:`f` is the number of edges
that an elimination of its crossings leaves (Planken, de Weerdt and van der Krogt, 2012). The usual
tool is Dijkstra's algorithm from each crossing in turn.

The city is made up here. To see a real one, give a file that :func:`semiring_mm.files.read_graph`
knows, such as those of the 9th DIMACS Implementation Challenge or of TransportationNetworks::

    python apps/road_network.py
    python apps/road_network.py --data rome99.gr
    python apps/road_network.py --data ChicagoRegional_net.tntp
"""

import argparse
import itertools
import time

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse
from matplotlib.collections import LineCollection
from matplotlib.patheffects import withStroke
from scipy.sparse import csgraph

import semiring_mm as sm
from semiring_mm.files import Graph, read_graph

parser = argparse.ArgumentParser(description="Shortest paths on a road network.")
parser.add_argument("--data", help="a road network (.gr, .tntp, .csv, ...); default: made up")
parser.add_argument("--nodes", help="a table of the nodes' coordinates, for an edge list")
parser.add_argument("--side", type=int, default=50, help="crossings a side of the made-up city")
parser.add_argument("--start", help="label of the first node; default: the two farthest apart")
parser.add_argument("--end", help="label of the last node")
parser.add_argument("--plot", help="file for the picture; default: show it")
args = parser.parse_args()

# %%
# A city
# ------
# Crossings stand on a grid, some steps off their places. Every sixth street is an avenue, the
# others are slower; some of these are closed, and some lead one way only. A river is crossed by
# avenues alone. A street weighs the seconds that it takes.


def city(side, seed=3):
    """Streets between side × side crossings, as a graph with coordinates in kilometres."""
    rng = np.random.default_rng(seed)
    step = 0.12
    y, x = np.mgrid[:side, :side] * step
    places = np.stack([x, y], axis=-1).reshape(-1, 2) + rng.normal(0, 0.18 * step, (side**2, 2))
    node = np.arange(side**2).reshape(side, side)
    along, up = (node[:, :-1], node[:, 1:]), (node[:-1], node[1:])
    a, b = (np.concatenate([p.ravel(), q.ravel()]) for p, q in zip(along, up, strict=True))
    lane = np.concatenate([along[0].ravel() // side, up[0].ravel() % side])
    avenue = lane % 6 == 3
    x, y = places.T
    across = x / (side * step)
    bank = y > side * step * (0.6 + 0.12 * np.sin(5 * across) - 0.2 * across)
    places[bank, 1] += 2 * step
    luck = rng.random(len(a))
    kept = np.where(bank[a] != bank[b], avenue & (lane % 12 == 3), avenue | (luck > 0.15))
    both = kept & (avenue | (luck > 0.4))
    turned = rng.random(len(a)) < 0.5
    start = np.concatenate([np.where(turned, a, b)[kept], np.where(turned, b, a)[both]])
    end = np.concatenate([np.where(turned, b, a)[kept], np.where(turned, a, b)[both]])
    speed = np.where(avenue, 60, 25) / 3600  # kilometres a second
    seconds = np.linalg.norm(places[a] - places[b], axis=1) / speed
    weight = np.concatenate([seconds[kept], seconds[both]])
    names = [str(k) for k in range(side**2)]
    return Graph(names, start, end, weight, directed=True, coordinates=places, unit="s")


graph = read_graph(args.data, nodes=args.nodes) if args.data else city(args.side)
n, unit = len(graph.nodes), f" {graph.unit}" if graph.unit else ""
print(f"{n:,} crossings, {len(graph.row):,} streets")


# %%
# All shortest paths
# ------------------
# One call. ``P[i, j]`` is the crossing before ``j`` on the best way from ``i``, from which
# :func:`semiring_mm.reconstruct_path` makes a route.


def timed(call, runs=1):
    """Return a call's result and its best time of several runs; the first run compiles."""
    seconds = []
    for _ in range(runs):
        result = None  # frees the one before
        begin = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - begin)
    return result, min(seconds)


(D, P), ours = timed(lambda: sm.apsp(graph, return_predecessors=True), runs=2)
D, P = np.asarray(D), np.asarray(P)  # crossings by number, as the map below has them

if args.start and args.end:
    start, end = graph.nodes.index(args.start), graph.nodes.index(args.end)
else:
    start, end = np.unravel_index(np.where(np.isfinite(D), D, -1).argmax(), D.shape)
path = sm.reconstruct_path(P, start, end)
print(f"from {graph.nodes[start]} to {graph.nodes[end]}: {D[start, end]:,.0f}{unit}")
print(f"through {len(path)} crossings: {' '.join(graph.nodes[k] for k in path[:8])} ...")

# %%
# Against Dijkstra's algorithm
# ----------------------------
# The usual tool is SciPy's. It starts from some of the crossings only if there are many, and the
# time for all is reckoned from these. Parallel streets have to be joined first: SciPy's sparse
# matrices would add them up.

best = {}
both = () if graph.directed else zip(graph.col, graph.row, graph.weight, strict=True)
for u, v, w in itertools.chain(zip(graph.row, graph.col, graph.weight, strict=True), both):
    best[u, v] = min(w, best.get((u, v), np.inf))
rows, cols = np.array(list(best)).T
streets = scipy.sparse.csr_array((list(best.values()), (rows, cols)), (n, n))

some = np.unique(np.linspace(0, n - 1, 300).astype(int))
(expected, _), seconds = timed(
    lambda: csgraph.dijkstra(streets, indices=some, return_predecessors=True)
)
np.testing.assert_allclose(D[some], expected, rtol=1e-10)
length = sum(best[edge] for edge in itertools.pairwise(path))
np.testing.assert_allclose(length, D[start, end], rtol=1e-10)
theirs = seconds * n / len(some)
print(f"semiring_mm {ours:.3f} s, SciPy's Dijkstra {theirs:.3f} s (× {theirs / ours:.1f})")


# %%
# The map
# -------
# A file without coordinates is drawn all the same: the distances between all crossings are known,
# and from these alone multidimensional scaling makes a map. Some hundred landmarks are placed so
# that their distances agree, and every crossing by its distances from the landmarks (de Silva and
# Tenenbaum, 2004).


def scaled(distances, landmarks=400):
    """Places in the plane whose distances are, nearly, the given ones."""
    some = np.unique(np.linspace(0, len(distances) - 1, landmarks).astype(int))
    known = (distances[some] + distances[:, some].T) / 2  # both ways
    known[~np.isfinite(known)] = known[np.isfinite(known)].max()
    squares = known**2
    inner = squares[:, some] - squares[:, some].mean(0)
    values, vectors = np.linalg.eigh(-0.5 * (inner - inner.mean(1, keepdims=True)))
    base = vectors[:, -2:] / np.sqrt(values[-2:])
    return 0.5 * (squares[:, some].mean(1)[:, None] - squares).T @ base


places = graph.coordinates if graph.coordinates is not None else scaled(D)

# %%
# The quickest ways from one crossing are a tree, row ``start`` of ``P``. It has the colour of the
# time at which one gets there, and is the wider the more crossings lie beyond.

reached = np.flatnonzero(P[start] >= 0)
beyond = np.zeros(n)
for k in reached:
    beyond[sm.reconstruct_path(P, start, k)] += 1

figure, axes = plt.subplots(figsize=(8, 7), layout="constrained")
streets = places[np.stack([graph.row, graph.col], axis=1)]
axes.add_collection(LineCollection(streets, colors="#c3ccd3", linewidths=0.5))
minutes, label = (D[start] / 60, "minutes") if graph.unit == "s" else (D[start], graph.unit)
lines = LineCollection(
    places[np.stack([P[start, reached], reached], axis=1)],
    array=minutes[reached],
    cmap="viridis_r",
    linewidths=0.6 + 5 * (beyond[reached] / n) ** 0.5,
    capstyle="round",
)
axes.add_collection(lines)
for colour, width in (("white", 4.5), ("#d1362f", 2.2)):
    axes.plot(*places[path].T, color=colour, lw=width, solid_capstyle="round")
for node, word in ((start, "start"), (end, "end")):
    axes.plot(*places[node], "o", color="#d1362f", mec="white", ms=9, zorder=5)
    axes.annotate(
        word, places[node], (9, 7), textcoords="offset points", weight="bold", zorder=6,
        path_effects=[withStroke(linewidth=3, foreground="white")],
    )  # fmt: skip
axes.set_title(f"From start to end: {D[start, end]:,.0f}{unit}, {len(path)} crossings")
axes.autoscale()
axes.set_aspect(1 / np.cos(np.radians(places[:, 1].mean())) if graph.geographic else 1)
axes.axis("off")
figure.colorbar(lines, label=f"from the start ({label})" if label else "from the start", shrink=0.6)
if args.plot:
    figure.savefig(args.plot, dpi=150)
else:
    plt.show()
