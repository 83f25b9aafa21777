"""
Widest and most reliable paths in a power grid
==============================================

Three questions about the same lines of a grid, and three semirings:

* **max_min**: how much power can a single path carry? A path is as wide as its narrowest line, ⊗
  being a minimum, and the widest path counts, ⊕ being a maximum.
* **max_times**: which path is most likely to stay in service? The probabilities of its lines are
  multiplied, and the largest product counts.
* **min_plus**: which path is the shortest?

:func:`semiring_mm.closure` answers for all pairs at once, in :math:`n^3` pairs (⊗, ⊕), half of that
where lines lead both ways. There are other tools: the widest paths lie in a maximum spanning tree
(Hu, 1961), and the most reliable ones are shortest for the weights :math:`-\\log p`. Both serve
here to check the results, and to compare times.

The grid is made up, or the German transmission grid of `SciGRID <https://www.scigrid.de>`_ in
PyPSA's form (a folder with ``buses.csv``, ``lines.csv`` and ``transformers.csv``, names may have a
prefix)::

    python apps/widest_paths.py
    python apps/widest_paths.py --data FOLDER
"""

import argparse
import csv
import itertools
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse
from matplotlib.collections import LineCollection
from scipy.sparse import csgraph
from scipy.spatial import Delaunay

import semiring_mm as sm
from semiring_mm.files import Graph

parser = argparse.ArgumentParser(description="Widest and most reliable paths in a power grid.")
parser.add_argument("--data", help="folder with a grid's buses, lines and transformers")
parser.add_argument("--size", type=int, default=240, help="substations of the made-up grid")
parser.add_argument(
    "--outage", type=float, default=0.01, help="of 100 km of a circuit, at any time"
)
parser.add_argument("--plot", help="file for the picture; default: show it")
args = parser.parse_args()

# %%
# A grid
# ------
# Substations are neighbours if no third one lies in the circle between them (a Gabriel graph).
# Every fourth also belongs to the grid of the highest voltage, whose lines are longer and carry
# more.


def made_up(size, seed=1):
    """Places in km; ends, length in km, capacity in MVA and circuits of each line."""
    rng = np.random.default_rng(seed)
    side = 8 * size**0.5 * 5
    spread = rng.random((20 * size, 2)) * (side, 1.2 * side)
    places = spread[:1]  # each the farthest from those before it, out of some
    for some in np.array_split(spread[1:], size - 1):
        gap = np.linalg.norm(some[:, None] - places, axis=2).min(1)
        places = np.concatenate([places, some[gap.argmax()][None]])

    def neighbours(which):
        a, b, c = Delaunay(places[which]).simplices.T
        ends = np.unique(np.sort(np.concatenate([[a, b], [b, c], [a, c]], axis=1), axis=0), axis=1)
        ends = which[ends]
        middle, radius = (
            places[ends].mean(0),
            np.linalg.norm(np.diff(places[ends], axis=0)[0], axis=1),
        )
        gap = np.sort(np.linalg.norm(middle[:, None] - places[which], axis=2), axis=1)
        return ends[:, gap[:, 0] >= 0.499 * radius]

    low, high = neighbours(np.arange(size)), neighbours(np.arange(0, size, 4))
    ends = np.concatenate([low, high], axis=1)
    length = 1.2 * np.linalg.norm(np.diff(places[ends], axis=0)[0], axis=1)
    circuits = rng.integers(1, 3, len(length))
    capacity = circuits * np.repeat([490, 1700], [low.shape[1], high.shape[1]])
    return places, ends, length, capacity.astype(float), circuits


# %%
# In SciGRID's data, a transformer joins two buses in one place.


def scigrid(folder):
    """The same from files."""

    def table(name):
        with next(Path(folder).glob(f"*{name}.csv")).open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    buses, lines, transformers = table("buses"), table("lines"), table("transformers")
    index = {bus["name"]: k for k, bus in enumerate(buses)}
    branches = lines + transformers
    ends = np.array([[index[b[end]] for b in branches] for end in ("bus0", "bus1")])
    length = np.array([float(b.get("length", 0)) for b in branches])
    capacity = np.array([float(b["s_nom"]) for b in branches])
    degrees = np.array([[float(bus["x"]), float(bus["y"])] for bus in buses])
    kilometres = 111.2 * np.array([np.cos(np.radians(degrees[:, 1].mean())), 1])
    circuits = np.array([max(1, float(b.get("cables") or 3) // 3) for b in branches])
    return degrees * kilometres, ends, length, capacity, circuits


places, ends, length, capacity, circuits = scigrid(args.data) if args.data else made_up(args.size)
n = len(places)
print(f"{n} substations, {ends.shape[1]} lines of {length.sum():,.0f} km")

# %%
# Three matrices
# --------------
# Where there is no line stands the semiring's zero, which no path is worse than: a width of −∞, a
# probability of 0, a length of ∞. Of parallel lines the best counts. :func:`semiring_mm.adjacency`
# sees to both. A line is in service as long as one of its circuits is, and a transformer counts as
# a kilometre of line.

out = 1 - (1 - args.outage) ** (np.maximum(length, 1) / 100)  # of a circuit, at any time
in_service = 1 - out**circuits


def matrix(values, semiring):
    """The adjacency matrix of lines with these values."""
    return sm.adjacency(Graph(list(range(n)), *ends, values, directed=False), semiring)[0]


widths = matrix(capacity, "max_min")
chances = matrix(in_service, "max_times")
lengths = matrix(length, "min_plus")

# %%
# Three closures
# --------------


def timed(call, runs=1):
    """Return a call's result and its best time of several runs; the first run compiles."""
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - begin)
    return result, min(seconds)


W, ours_wide = timed(lambda: sm.closure(widths, "max_min"), runs=2)
(R, R_before), ours_reliable = timed(
    lambda: sm.closure(chances, "max_times", return_predecessors=True), runs=2
)
D, D_before = sm.apsp(lengths, return_predecessors=True)

# %%
# Against other tools
# -------------------
# Widths, by a maximum spanning tree: from each substation, everything that the tree reaches is as
# wide as the narrowest line on the way. Probabilities, by Dijkstra's algorithm on their logarithms.


def by_spanning_tree():
    """Widths of the paths in a maximum spanning tree, by a walk from every node."""
    negative = scipy.sparse.csr_array(np.where(widths > 0, -widths, 0))
    tree = csgraph.minimum_spanning_tree(negative)
    found = np.full((n, n), -np.inf)
    for i in range(n):
        found[i, i] = np.inf
        order, before = csgraph.breadth_first_order(tree, i, directed=False)
        for j in order[1:]:
            found[i, j] = min(found[i, before[j]], widths[before[j], j])
    return found


def by_logarithms():
    """The least −log p of all paths, by Dijkstra's algorithm."""
    u, v = np.nonzero(chances)
    return csgraph.dijkstra(scipy.sparse.csr_array((-np.log(chances[u, v]), (u, v)), (n, n)))


expected, theirs_wide = timed(by_spanning_tree)
np.testing.assert_array_equal(W, expected)
expected, theirs_reliable = timed(by_logarithms)
np.testing.assert_allclose(R, np.exp(-expected), rtol=1e-12)
print(f"widest         semiring_mm {ours_wide:.4f} s, spanning tree {theirs_wide:.4f} s")
print(f"most reliable  semiring_mm {ours_reliable:.4f} s, Dijkstra {theirs_reliable:.4f} s")

# %%
# Three paths
# -----------
# From one end of the grid to the other. Many paths are as wide as the widest: of these the shortest
# is drawn, a second closure without the lines that are narrower.

strong = np.flatnonzero(widths.max(1) >= np.quantile(capacity, 0.8))  # as far apart as can be
start, end = strong[[f(places[strong] @ (1, -0.5)) for f in (np.argmin, np.argmax)]]
wide_enough = np.where(widths >= W[start, end], lengths, np.inf)
_, W_before = sm.apsp(wide_enough, sources=[start], return_predecessors=True)
paths = {
    "shortest": sm.reconstruct_path(D_before, start, end),
    "most reliable": sm.reconstruct_path(R_before, start, end),
    "widest": sm.reconstruct_path(W_before, start, end),
}


def along(path, a):
    return [a[edge] for edge in itertools.pairwise(path)]


for name, path in paths.items():
    km, mva, p = sum(along(path, lengths)), min(along(path, widths)), np.prod(along(path, chances))
    print(f"{name:13}  {km:6,.0f} km  {mva:7,.0f} MVA  {p:7.2%} in service  {len(path):3} stops")
    assert km >= D[start, end] * (1 - 1e-12)
    assert mva <= W[start, end]
    assert p <= R[start, end] * (1 + 1e-12)
    assert name != "widest" or mva == W[start, end]
    assert name != "most reliable" or np.isclose(p, R[start, end])

# %%
# A line is drawn the wider the more it carries.

figure, axes = plt.subplots(figsize=(7.5, 7.5), layout="constrained")
order = np.argsort(capacity)
axes.add_collection(
    LineCollection(
        places[ends.T[order]],
        colors="#a9b8c4",
        linewidths=0.5 + 2.5 * (capacity[order] / capacity.max()) ** 0.7,
    )
)
axes.scatter(*places.T, s=7, c="#22303c", zorder=2)
looks = {"widest": ("#2a78b5", 8), "shortest": ("#e8a33d", 5), "most reliable": ("#d1362f", 2.2)}
for name, (colour, width) in looks.items():
    x, y = places[paths[name]].T
    axes.plot(x, y, color=colour, lw=width, solid_capstyle="round", label=name, zorder=3)
axes.scatter(*places[[start, end]].T, s=70, c="#22303c", ec="white", zorder=4)
axes.set_title(
    f"The best of all paths: {W[start, end]:,.0f} MVA, "
    f"{R[start, end]:.1%} of the time in service, {D[start, end]:,.0f} km"
)
axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=3, frameon=False)
axes.set_aspect("equal")
axes.axis("off")
if args.plot:
    figure.savefig(args.plot, dpi=150)
else:
    plt.show()
