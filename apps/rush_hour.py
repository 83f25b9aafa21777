"""
Rush hour
=========

How far does one get by car at eight in the morning, and is the way still the same as at night?

A network is prepared once, by the order in which its crossings are taken away; that depends on the
streets and not on their weights. So the travel times of another hour, over **min_plus**, are
*customized*, in a fraction of a millisecond here, and of a second for a large region. The
hours are columns of the streets' table; :meth:`~semiring_mm.geo.Network.customize` takes one by its
name, and places on the streets move along.

The streets are a piece of Helsinki, from ``examples/`` (© OpenStreetMap contributors), all of them
taken to lead both ways. Speeds and jams are made up::

    python apps/rush_hour.py
    python apps/rush_hour.py --minutes 3 --seed 7
"""

import argparse
import sys
import time
from pathlib import Path

import geopandas
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.collections import LineCollection
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import semiring_mm as sm

parser = argparse.ArgumentParser(description="Travel times by the hour of the day.")
parser.add_argument("--minutes", type=float, default=2, help="the time for the area; default 2")
parser.add_argument("--seed", type=int, default=0, help="of the jams")
parser.add_argument("--plot", help="file for the picture; default: show it")
args = parser.parse_args()
here = Path(sys.argv[0]).resolve().parents[1] / "examples"

# %%
# A column for each hour
# ----------------------
# Without traffic a car drives at the speed of the kind of its road. A jam multiplies the time: most
# on main roads, a little in side streets, at eight and at five, and not equally on each road.

kinds = {  # km/h without traffic, and by how much the worst jam slows down
    "primary": (35, 4.0), "primary_link": (30, 4.0), "secondary": (32, 3.0), "tertiary": (28, 2.0),
    "residential": (18, 0.5), "unclassified": (18, 0.5),
}  # fmt: skip
streets = geopandas.read_file(here / "streets.geojson")
roads = streets[streets.highway.isin(kinds)].reset_index(drop=True)
speed, worst = np.array([kinds[kind] for kind in roads.highway]).T
metres = roads.to_crs(roads.estimate_utm_crs()).length.to_numpy()
own = worst * np.random.default_rng(args.seed).uniform(0.6, 1.4, len(roads))

hours = [f"{h:02}:00" for h in range(24)]
clock = np.arange(24)
jam = np.exp(-(((clock - 8) / 1.5) ** 2)) + 0.9 * np.exp(-(((clock - 17) / 2) ** 2))
seconds = (3.6 * metres / speed)[:, None] * (1 + np.outer(own, jam))
roads = roads.join(pd.DataFrame(seconds, columns=hours))
net = sm.geo.network(roads, weight="00:00", largest=True)
print(net)

# %%
# Every hour, one customization
# -----------------------------
# From a pharmacy in the middle the kilometres of street that are within the time; and the best way
# between two shops on both sides of the district.

table = pd.read_csv(here / "places.csv").set_index("name")
ends = table.loc[["Erottajan Apteekki", "S-Market Kasarmitori", "K Market Lönnrotinkatu"]]
center, start, goal = net.snap(ends.longitude, ends.latitude, ids=[*ends.index])
limit = 60 * args.minutes
length, u, twin = net.streets.columns["length"], net.streets.u, net.streets.twin


def reached(away, weight):
    """Kilometres within the limit: the part of each street from one end, and from the other."""
    part = np.clip((limit - away[u]) / weight, 0, 1)
    return (np.minimum(part + part[twin], 1) * length).sum() / 2000


taken, area, routes, times = [], [], [], []
for hour in hours:
    begin = time.perf_counter()
    net.customize(hour)
    taken.append(time.perf_counter() - begin)
    times.append(np.asarray(net.distances(center))[0])
    area.append(reached(times[-1], net.streets.columns[hour]))
    routes.append(net.path(start, goal))
print(f"one customization: {1e3 * np.median(taken):.2f} ms in the median")
for h in (0, 8, 12, 17):
    print(f"    {hours[h]}  {area[h]:4.1f} km of street in {args.minutes:g} minutes;", end=" ")
    print(f"the way takes {routes[h].weight / 60:.1f} minutes")

# %%
# The same by SciPy, from every crossing at eight.

net.customize("08:00")
weight, v, n = net.streets.columns["08:00"], net.streets.v, len(net.nodes)
slow = np.argsort(-weight)  # of parallel streets the quickest comes last
pairs = zip(u[slow].tolist(), v[slow].tolist(), strict=True)
best = dict(zip(pairs, weight[slow], strict=True))
expected = dijkstra(csr_array((list(best.values()), np.array(list(best)).T), shape=(n, n)))
np.testing.assert_allclose(np.asarray(net.distances()), expected, rtol=1e-12)

# %%
# The picture
# -----------
# Grey is not reached in time. Red is the way between the shops, which leaves the main roads at
# eight.

figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), width_ratios=[1, 1, 0.8], layout="constrained")
colors = plt.get_cmap("viridis_r").with_extremes(over="0.85")
first, points = net.streets.lines
lines = np.split(points, first[1:-1])
for axis, h in zip(axes, (0, 8), strict=False):
    value = times[h][[u, v]].mean(axis=0) / 60
    drawn = LineCollection(lines, array=value, cmap=colors, linewidths=1.6)
    drawn.set_clim(0, args.minutes)
    axis.add_collection(drawn)
    axis.plot(*routes[h].line.T, color="#c0392b", linewidth=2.6)
    axis.plot([start.x, goal.x], [start.y, goal.y], "s", color="#c0392b", markersize=6)
    axis.plot(center.x, center.y, "o", color="black", markersize=6)
    axis.set_title(f"{hours[h]}: {area[h]:.1f} km of street", fontsize=10)
    axis.autoscale()
    axis.set_aspect(1 / np.cos(np.radians(points[:, 1].mean())))
    axis.set_axis_off()
figure.colorbar(drawn, ax=axes[:2], shrink=0.8, extend="max", label="minutes from the circle")
axes[2].plot(clock, area, color="#22303c")
axes[2].set(xlabel="hour", ylabel=f"km of street in {args.minutes:g} minutes", ylim=(0, None))
axes[2].set_xticks(range(0, 25, 6))
beside = axes[2].twinx()
beside.plot(clock, [route.weight / 60 for route in routes], color="#c0392b")
beside.set_ylim(0, None)
beside.set_ylabel("minutes of the red way", color="#c0392b")
if args.plot:
    figure.savefig(args.plot, dpi=150)
else:
    plt.show()
