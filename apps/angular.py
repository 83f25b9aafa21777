"""
The streets that people walk along
==================================

People do not measure streets, they turn as little as they can. Space syntax therefore asks by which
streets the ways with the least *turning* lead: angular betweenness, or choice (Turner, 2007), which
tells much about where shops and crowds are.

Streets are the nodes of a *dual graph* then, joined where they meet and weighted by the angle
there; :func:`semiring_mm.geo.dual` makes it. Betweenness is the derivative of all shortest
distances, over **min_plus**, in the weights, and so it costs about as much as the distances.

The streets are a piece of Helsinki, from ``examples/`` (© OpenStreetMap contributors)::

    python apps/angular.py
    python apps/angular.py --streets town.gpkg
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import geopandas
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from matplotlib.collections import LineCollection

import semiring_mm as sm

parser = argparse.ArgumentParser(description="Streets by which ways with the least turning lead.")
parser.add_argument(
    "--streets", help="lines with a column highway; default: examples/streets.geojson"
)
parser.add_argument("--plot", help="file for the picture; default: show it")
args = parser.parse_args()
here = Path(sys.argv[0]).resolve().parents[1] / "examples"

# %%
# The dual graph
# --------------
# Footways along each road would hide what the roads do, and are left out. Angles are rounded to
# whole degrees, and each is one at least: so ways that turn equally share their weight, and a way
# with fewer streets is better.

everything = geopandas.read_file(args.streets or here / "streets.geojson")
paths = everything.highway.isin(["footway", "steps", "path", "cycleway"])
net = sm.geo.network(everything[~paths], largest=True)
graph = sm.geo.dual(net.streets, least=1)
graph = replace(graph, weight=np.round(graph.weight))
print(f"{net}\n{len(graph.nodes)} streets meet in {len(graph.weight)} pairs")

# %%
# Betweenness
# -----------
# Of the dual graph, and beside it that of the streets by metres. The same by NetworkX, if there are
# not too many.

start = time.perf_counter()
choice = sm.statistics(graph, "betweenness").betweenness
print(f"angular betweenness in {time.perf_counter() - start:.3f} s", end="")
if len(graph.nodes) <= 1000:
    start = time.perf_counter()
    G = nx.Graph()
    G.add_nodes_from(range(len(graph.nodes)))
    for a, b, angle in zip(graph.row.tolist(), graph.col.tolist(), graph.weight, strict=True):
        G.add_edge(a, b, weight=min(angle, G.get_edge_data(a, b, {"weight": angle})["weight"]))
    expected = nx.betweenness_centrality(G, weight="weight", normalized=False)
    print(f", by NetworkX in {time.perf_counter() - start:.3f} s", end="")
    np.testing.assert_allclose(choice, [expected[k] for k in range(len(choice))], atol=1e-6)
print()
metric = sm.statistics(net.graph, "edge_betweenness").edge_betweenness

# %%
# Between crossings
# -----------------
# :class:`semiring_mm.geo.TurnNetwork` asks for ways from crossing to crossing in place of from
# street to street, and may weigh turns and metres together: here a right angle is as much as 50 m.

turning = sm.geo.TurnNetwork(net.streets, "length", angle=50 / 90, bans=())
mixed = turning.betweenness()

# %%
# The picture
# -----------
# Width and colour are the share of the largest. Shortest ways zigzag through the grid; those with
# the least turning keep to the long boulevards, which are the main streets of the city.

figure, axes = plt.subplots(1, 3, figsize=(13, 4.8), layout="constrained")
first, points = net.streets.lines
lines = np.split(points, first[1:-1])
label = np.asarray(graph.nodes)  # the first edge of each street
loads = metric[label], mixed[label], choice
titles = "shortest ways", "a right angle counts as 50 m", "least turning"
for axis, load, title in zip(axes, loads, titles, strict=True):
    share = load / load.max()
    order = np.argsort(share)  # the largest on top
    some, width = [lines[label[k]] for k in order], 0.8 + 3.5 * share[order]
    drawn = LineCollection(some, array=share[order], linewidths=width, cmap="magma_r")
    drawn.set_capstyle("round")
    axis.add_collection(drawn)
    drawn.set_clim(-0.15, 1)
    axis.set_title(title, fontsize=10)
    axis.autoscale()
    axis.set_aspect(1 / np.cos(np.radians(points[:, 1].mean())) if net.streets.geographic else 1)
    axis.set_axis_off()
if args.plot:
    figure.savefig(args.plot, dpi=150)
else:
    plt.show()
