"""
The fifteen-minute city
=======================

What can be reached on foot within fifteen minutes of each door? Planners ask for the area around a
place that is within reach, its isochrones, and for what each spot of a district reaches.

Distances along streets are those over **min_plus**. A place is no crossing: it lies somewhere along
a street, so it becomes a node in the middle of one. :func:`semiring_mm.geo.network` prepares the
streets once, places join them without a new preparation, and every question is answered from that:
here the isochrones of a pharmacy, and for each crossing how many shops, pharmacies, doctors and
libraries it reaches.

The district is a piece of Helsinki, from ``examples/`` (© OpenStreetMap contributors). Give a file
of lines that GeoPandas reads and a table of places for your own::

    python apps/fifteen_minutes.py
    python apps/fifteen_minutes.py --streets town.gpkg --places shops.csv --center "Main Street 1"
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import geopandas
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import shapely
from matplotlib.collections import LineCollection
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import semiring_mm as sm

parser = argparse.ArgumentParser(description="What is reached on foot within fifteen minutes.")
parser.add_argument("--streets", help="a file of lines; default: examples/streets.geojson")
parser.add_argument("--places", help="a table: name, kind, longitude, latitude; default: examples/")
parser.add_argument(
    "--center", help="the place whose isochrones are drawn; default: a central pharmacy"
)
parser.add_argument("--speed", type=float, default=4.8, help="km/h; default 4.8")
parser.add_argument("--plot", help="file for the picture; default: show it")
args = parser.parse_args()
here = Path(sys.argv[0]).resolve().parents[1] / "examples"

# %%
# Streets and places
# ------------------
# Lines meet where their ends are the same. Places are put on the nearest street within 100 m; those
# beyond are told, and reach nothing.

start = time.perf_counter()
net = sm.geo.network(
    args.streets or here / "streets.geojson", speed=args.speed, weight="travel_time"
)
table = pd.read_csv(args.places or here / "places.csv")
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    places = net.snap(
        table.longitude, table.latitude, crs="EPSG:4326", limit=100, ids=table.name.tolist()
    )
print(f"{net}\n{places}", *(f"note: {x.message}" for x in told), sep="\n")
print(f"read, prepared and snapped in {time.perf_counter() - start:.2f} s")

# %%
# What each crossing reaches
# --------------------------
# One call for several times at once. The same by SciPy, for one crossing: places are given to it as
# the ends of their streets.

minutes = np.array([5, 10, 15])
start = time.perf_counter()
count = net.accessibility(places, radius=60 * minutes)
print(f"all crossings in {1e3 * (time.perf_counter() - start):.1f} ms; on the average they reach")
for m, mean in zip(minutes, count.mean(axis=0), strict=True):
    print(f"    {mean:5.1f} of {len(places)} places in {m} minutes")

streets, seconds = net.streets, net.graph.edges.weight
n, node = len(net.nodes), int(np.argmax(count[:, 1]))
slow = np.argsort(-seconds)  # of parallel streets the quickest comes last
pairs = zip(streets.u[slow].tolist(), streets.v[slow].tolist(), strict=True)
best = dict(zip(pairs, seconds[slow], strict=True))
ends = np.array(list(best)).T
to = dijkstra(csr_array((list(best.values()), ends), shape=(n, n)), indices=node)
on = np.flatnonzero(~places.off)
e, f = places.edge[on], places.fraction[on]
both = streets.twin[e]
way = np.minimum(
    to[streets.u[e]] + f * seconds[e],
    np.where(both >= 0, to[streets.v[e]] + (1 - f) * seconds[both], np.inf),
)
assert [(way <= 60 * m).sum() for m in minutes] == count[node].tolist()

# %%
# The nearest of each kind
# ------------------------

kinds = {kind: places[np.flatnonzero(table.kind == kind)] for kind in table.kind.unique()}
for kind, found in net.nearest(kinds).items():
    print(f"    to a {kind}: {np.median(found.distance) / 60:.1f} minutes in the median")

# %%
# Isochrones
# ----------
# The times to all crossings say how far one gets along each street; what is reached of it within a
# time, with a margin on both sides, is the isochrone. That is geometry, shapely's.

if args.center:
    center = places[places.ids.index(args.center)]
else:  # the pharmacy from which most is near
    chosen = places[np.flatnonzero(table.kind == "pharmacy")]
    center = chosen[net.accessibility(places, radius=600, sources=chosen).argmax()]
away = np.asarray(net.distances(center))[0]


def reached(limit):
    """The area within a time: streets as far as one gets on them, and 25 m on both sides."""
    left = (limit - away[streets.u]) / seconds  # the part of each street that is reached
    some = np.flatnonzero(left > 0)
    lines = geopandas.GeoSeries(
        [shapely.LineString(streets.line(k)) for k in some], crs=streets.crs
    )
    metric = lines.to_crs(lines.estimate_utm_crs())
    parts = [
        shapely.ops.substring(line, 0, min(1.0, share), normalized=True)
        for line, share in zip(metric, left[some], strict=True)
    ]
    area = shapely.union_all(shapely.buffer(np.array(parts, object), 25))
    return geopandas.GeoSeries([area], crs=metric.crs).to_crs(streets.crs)


areas = [reached(60 * m) for m in minutes[::-1]]
sizes = [area.to_crs(area.estimate_utm_crs()).area[0] / 1e6 for area in areas]
assert sizes == sorted(sizes, reverse=True)
print(f"around {center.ids[0]}:", *(f"{x:.2f} km²" for x in sizes[::-1]), "in 5, 10, 15 minutes")

# %%
# The picture
# -----------
# Left the isochrones, right how many places each street reaches in ten minutes.

figure, axes = plt.subplots(1, 2, figsize=(11, 5.5), layout="constrained")
first, points = streets.lines
lines = np.split(points, first[1:-1])
for area, color in zip(areas, ("#d9e8f5", "#a6cbe8", "#5b9fd1"), strict=True):
    area.plot(ax=axes[0], color=color)
axes[0].add_collection(LineCollection(lines, colors="0.45", linewidths=0.4))
axes[0].plot(center.x, center.y, "o", color="#c0392b")
axes[0].set_title(f"5, 10 and 15 minutes around {center.ids[0]}", fontsize=10)
value = count[:, 1][[streets.u, streets.v]].mean(axis=0)
drawn = LineCollection(lines, array=value, cmap="viridis", linewidths=1.2)
axes[1].add_collection(drawn)
axes[1].plot(places.x[on], places.y[on], ".", color="#c0392b", markersize=4)
axes[1].set_title("places within 10 minutes", fontsize=10)
figure.colorbar(drawn, ax=axes[1], shrink=0.7)
for axis in axes:
    axis.set_xlim(points[:, 0].min(), points[:, 0].max())
    axis.set_ylim(points[:, 1].min(), points[:, 1].max())
    axis.set_aspect(1 / np.cos(np.radians(points[:, 1].mean())) if streets.geographic else 1)
    axis.set_axis_off()
if args.plot:
    figure.savefig(args.plot, dpi=150)
else:
    plt.show()
