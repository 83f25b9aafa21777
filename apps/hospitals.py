"""
Doctors for everyone
====================

How many doctors are there for each inhabitant? A number for the whole town hides who is far from
them, and a count of the practices nearby hides who shares them.

*Two-step floating catchment areas* (Luo and Wang, 2003) take both: the doctors of a practice are
divided among the people who reach it, and each spot adds up its shares of all that it reaches. In
the enhanced form (E2SFCA, Luo and Qi, 2009) those who are nearer count more, by zones of time. Both
steps are sums over distances of **min_plus**, and one call of
:meth:`~semiring_mm.geo.Network.accessibility` with ``competition=``.

The district is a piece of Helsinki, from ``examples/`` (© OpenStreetMap contributors); how many
doctors there are and where people live is made up::

    python apps/hospitals.py
    python apps/hospitals.py --speed 3 --seed 5
"""

import argparse
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.collections import LineCollection

import semiring_mm as sm

parser = argparse.ArgumentParser(description="Access to doctors, shared by those who reach them.")
parser.add_argument("--speed", type=float, default=4.8, help="km/h; default 4.8")
parser.add_argument("--seed", type=int, default=0, help="of the inhabitants")
parser.add_argument("--plot", help="file for the picture; default: show it")
args = parser.parse_args()
here = Path(sys.argv[0]).resolve().parents[1] / "examples"

# %%
# Supply and demand
# -----------------
# Three practices have some doctors each. People live at the crossings, more of them in the south.

net = sm.geo.network(here / "streets.geojson", speed=args.speed, weight="travel_time")
table = pd.read_csv(here / "places.csv")


def on_streets(kind):
    """The places of a kind."""
    some = table[table.kind == kind]
    return net.snap(some.longitude, some.latitude, crs="EPSG:4326", ids=some.name.tolist())


practices, doctors = on_streets("doctors"), np.array([4, 10, 3])
x, y = net.streets.x, net.streets.y
south = (y.max() - y) / np.ptp(y)
people = np.random.default_rng(args.seed).poisson(20 * south)
print(f"{net}\n{doctors.sum()} doctors for {people.sum():,} people")

# %%
# Two steps in one call
# ---------------------
# Within five minutes on foot a person counts whole, within ten 0.68, within fifteen 0.22. All
# doctors are shared out: what the people have, added up, are the doctors again.

zones = {300: 1.0, 600: 0.68, 900: 0.22}
access = net.accessibility(practices, doctors, decay=zones, competition=people)
np.testing.assert_allclose(people @ access, doctors.sum())

# %%
# The same from the table of all distances, by NumPy.

D = np.asarray(net.distances(None, practices))
f = np.select([limit >= D for limit in zones], list(zones.values()), 0.0)
np.testing.assert_allclose(access, f @ (doctors / (people @ f)), rtol=1e-12)

# %%
# Where should the next practice be?
# ----------------------------------
# Four more doctors may work at one of the pharmacies. Best is that by which the tenth of the people
# who have least gets most.


def least(access):
    """Doctors per thousand people that nine tenths of all have, or more."""
    order = np.argsort(access)
    return 1000 * access[order[np.searchsorted(np.cumsum(people[order]), people.sum() / 10)]]


options, trials = on_streets("pharmacy"), []
start = time.perf_counter()
for k in range(len(options)):
    both = net.snap([*practices.x, *options.x[[k]]], [*practices.y, *options.y[[k]]])
    trials.append(net.accessibility(both, [*doctors, 4], decay=zones, competition=people))
spent = 1e3 * (time.perf_counter() - start)
print(f"{len(options)} trials in {spent:.0f} ms; nine tenths of the people have at least")
for name, trial in zip(options.ids, trials, strict=True):
    print(f"    {least(trial):.2f} doctors per thousand with {name}")
chosen = int(np.argmax([least(trial) for trial in trials]))
print(f"    {least(access):.2f} now")

# %%
# The picture
# -----------
# Doctors per thousand people, now and with the new practice; the area of a dot is how many work
# there.

figure, axes = plt.subplots(1, 2, figsize=(11, 5.2), layout="constrained")
first, points = net.streets.lines
lines = np.split(points, first[1:-1])
top = 1000 * max(access.max(), trials[chosen].max())
titles = ("now", f"with 4 more at {options.ids[chosen]}")
for axis, per, title in zip(axes, (access, trials[chosen]), titles, strict=True):
    value = 1000 * per[[net.streets.u, net.streets.v]].mean(axis=0)
    drawn = LineCollection(lines, array=value, cmap="viridis", linewidths=1.4)
    drawn.set_clim(0, top)
    axis.add_collection(drawn)
    axis.scatter(practices.x, practices.y, s=15 * doctors, c="#c0392b", ec="white", zorder=3)
    axis.set_title(title, fontsize=10)
    axis.autoscale()
    axis.set_aspect(1 / np.cos(np.radians(y.mean())))
    axis.set_axis_off()
new = options[chosen]
axes[1].scatter(new.x, new.y, s=60, c="#e67e22", ec="white", zorder=3)
figure.colorbar(drawn, ax=axes, shrink=0.7, label="doctors per 1000 people")
if args.plot:
    figure.savefig(args.plot, dpi=150)
else:
    plt.show()
