"""
Centrality: who is close to everyone
====================================

Which airport is nearest to all others, which two are the farthest apart, and how far is it between
two of them on average? All of these are sums and maxima over the matrix of shortest distances, the
closure over **min_plus**: :math:`n^3` pairs (⊗, ⊕), half of that where edges lead both ways.

NetworkX has a function for each, which searches from every node in Python. With this library as its
*backend* the calls stay as they are, and so do the results, to the last bit; what is behind them is
one call of :func:`semiring_mm.apsp`::

    python apps/centrality.py
    python apps/centrality.py --data edges.csv --places nodes.csv
    python apps/centrality.py --data FOLDER-OF-OPENFLIGHTS

The last one reads ``airports.dat`` and ``routes.dat`` of `OpenFlights
<https://openflights.org/data.php>`_.
"""

import argparse
import csv
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import semiring_mm as sm
from semiring_mm.files import Graph, great_circle, read_graph
from semiring_mm.plot import draw_network, view_of

examples = Path(sys.argv[0]).resolve().parents[1] / "examples"
parser = argparse.ArgumentParser(description="Closeness, diameter and average distance.")
parser.add_argument("--data", help="edges in a file, or OpenFlights' folder; default: examples/")
parser.add_argument("--places", help="a table of the nodes, for edges in a file")
parser.add_argument("--nodes", type=int, default=600, help="of the graph that is timed")
parser.add_argument("--plot", help="file for the picture; default: show it")
args = parser.parse_args()

# %%
# A network of airports
# ---------------------
# Eighty-five airports and four hundred routes come with the library. A route has no length in the
# file; it is measured along the great circle.


def openflights(folder):
    """Airports that have a route, and routes, flown both ways."""

    def rows(name):
        with (Path(folder) / name).open(newline="", encoding="utf-8") as file:
            return list(csv.reader(file))

    routes = {tuple(sorted((row[3], row[5]))) for row in rows("routes.dat")}
    known = {row[0]: row for row in rows("airports.dat")}
    routes = [(a, b) for a, b in sorted(routes) if a != b and a in known and b in known]
    index = {name: k for k, name in enumerate(sorted({x for route in routes for x in route}))}
    places = np.array([[float(known[x][7]), float(known[x][6])] for x in index])
    row, col = np.array([[index[a], index[b]] for a, b in routes]).T
    km = great_circle(places[row], places[col])
    names = [known[x][2] or known[x][1] for x in index]
    codes = [known[x][4] for x in index]
    return Graph(codes, row, col, km, False, places, geographic=True, names=names, unit="km")


if args.data is None:
    edges, places = examples / "routes.csv", examples / "airports.csv"
    graph = read_graph(edges, nodes=places, directed=False)
elif Path(args.data).is_dir():
    graph = openflights(args.data)
else:
    graph = read_graph(args.data, nodes=args.places, directed=False)

# %%
# Distances, and what they say
# ----------------------------
# *Closeness* is one over the average distance to all others. The *eccentricity* of a node is the
# distance to the farthest one, and the *diameter* the largest of these. A network may fall into
# pieces that do not reach each other; then the largest is taken.

D, P = map(np.asarray, sm.apsp(graph, return_predecessors=True))  # airports by number
reach = np.isfinite(D)
kept = np.flatnonzero(reach[reach.sum(1).argmax()])
n, D = len(kept), D[np.ix_(kept, kept)]

mean = D.sum(1) / (n - 1)
closeness = 1 / mean
eccentricity, diameter = D.max(1), D.max()
average = mean.mean()

names = [(graph.names or graph.nodes)[k] for k in kept]
start, end = np.unravel_index(D.argmax(), D.shape)
print(f"{n} airports, {len(graph.row)} routes; on average {average:,.0f} {graph.unit}")
print(f"the longest way: {names[start]} to {names[end]}, {diameter:,.0f} {graph.unit}")
for k in np.argsort(mean)[:5]:
    near, far = mean[k], eccentricity[k]
    print(f"  {names[k]:12} {near:7,.0f} {graph.unit} on average, {far:7,.0f} at most")

# %%
# The same by NetworkX
# --------------------
# Alone and with the backend: the numbers are equal, not just close.


def measures(G, **backend):
    """What NetworkX says, by the names of its functions."""
    return {
        "closeness_centrality": nx.closeness_centrality(G, distance="weight", **backend),
        "diameter": nx.diameter(G, weight="weight", **backend),
        "average_shortest_path_length": nx.average_shortest_path_length(G, "weight", **backend),
    }


whole = nx.Graph()
whole.add_nodes_from(range(len(graph.nodes)))
for a, b, km in zip(graph.row.tolist(), graph.col.tolist(), graph.weight.tolist(), strict=True):
    whole.add_edge(a, b, weight=min(km, whole.get_edge_data(a, b, {"weight": km})["weight"]))
piece = whole.subgraph(kept.tolist()).copy()

found = measures(piece, backend="semiring_mm")
np.testing.assert_allclose(closeness, [found["closeness_centrality"][k] for k in kept], rtol=1e-12)
np.testing.assert_allclose(diameter, found["diameter"], rtol=1e-12)
np.testing.assert_allclose(average, found["average_shortest_path_length"], rtol=1e-12)
if n <= 200:  # else it takes minutes
    assert found == measures(piece)

# %%
# Time
# ----
# On a graph with more nodes: points of the plane, each joined to those nearby.

G = nx.random_geometric_graph(args.nodes, (8 / np.pi / args.nodes) ** 0.5, seed=2)
G = G.subgraph(max(nx.connected_components(G), key=len)).copy()
for a, b, edge in G.edges(data=True):
    edge["weight"] = float(np.hypot(*np.subtract(G.nodes[a]["pos"], G.nodes[b]["pos"])))


def timed(call, runs=1):
    """Return a call's result and its best time of several runs; the first run compiles."""
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - begin)
    return result, min(seconds)


found, ours = timed(lambda: measures(G, backend="semiring_mm"), runs=2)
expected, theirs = timed(lambda: measures(G))
assert found == expected
print(f"{len(G)} nodes, {G.size()} edges, three measures: NetworkX {theirs:.2f} s,", end=" ")
print(f"with the backend {ours:.2f} s (× {theirs / ours:.0f})")

# %%
# The map
# -------
# An airport has the colour of its average distance to all others; the longest of all shortest ways
# is red.

figure, (axes, beside) = plt.subplots(
    1, 2, figsize=(12.5, 3.9), width_ratios=[2.7, 1], layout="constrained"
)
route = sm.reconstruct_path(P, kept[start], kept[end])
view = view_of(graph, route)
seen = np.argsort(-mean)  # the closest on top
thin = (85 / n) ** 0.5
dots = axes.scatter(
    *view.places[kept[seen]].T, c=mean[seen], s=60 * thin, vmax=np.quantile(mean, 0.99),
    cmap="plasma", ec="white", lw=0.6 * thin, zorder=3.5,
)  # fmt: skip
figure.colorbar(dots, ax=axes, label=f"average distance ({graph.unit})", extend="max", shrink=0.8)
axes.set_title(f"{names[seen[-1]]} is the closest to all others")
draw_network(axes, graph, view)

beside.hist(D[~np.eye(n, dtype=bool)], bins=60, color="#9fb3c2")
beside.axvline(average, color="#22303c", lw=1.6)
beside.axvline(diameter, color="#d1362f", lw=1.6)
beside.set(xlabel=f"distance ({graph.unit})", yticks=[])
beside.set_title(f"All pairs: {average:,.0f} on average, {diameter:,.0f} at most", fontsize=10)
beside.spines[["top", "right", "left"]].set_visible(False)
if args.plot:
    figure.savefig(args.plot, dpi=150)
else:
    plt.show()
