"""
Two series aligned: dynamic time warping
========================================

The same gesture twice, at another pace: now faster, now slower. Which point of the one series
belongs to which of the other? *Dynamic time warping* matches every point with one or more, in
order, so that the differences add up to as little as possible. That is a shortest path through a
table of all pairs of points, one cell right, down or both at a time: products over **min_plus**, as
many as the table has antidiagonals. :func:`semiring_mm.alignment.dtw` goes through them in vectors,
at a cost of :math:`n m` cells::

    python apps/align_series.py
    python apps/align_series.py --length 1000 --noise 0.1
"""

import argparse
import math
import time

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection

from semiring_mm import alignment

parser = argparse.ArgumentParser(description="Two series aligned by dynamic time warping.")
parser.add_argument("--length", type=int, default=300, help="points of the first series")
parser.add_argument("--noise", type=float, default=0.05)
parser.add_argument("--band", type=float, default=0.2, help="largest shift, a part of the length")
parser.add_argument("--plot", help="file for the picture; default: show it")
args = parser.parse_args()

# %%
# One gesture, twice
# ------------------
# A curve of some bumps. The second time it is gone through at a pace that changes, in a fifth more
# points; at its point j the gesture is where the first series has point ``pace[j]``.

rng = np.random.default_rng(4)
n, m = args.length, args.length * 6 // 5


def gesture(t):
    """Where a hand is, from the beginning (0) to the end (1)."""
    bumps = [(0.15, 0.04, 1.0), (0.3, 0.06, -0.7), (0.5, 0.03, 0.8), (0.62, 0.05, 0.5),
             (0.85, 0.07, -1.0)]  # fmt: skip
    return sum(high * np.exp(-(((t - at) / wide) ** 2)) for at, wide, high in bumps)


there = np.linspace(0, 1, m)
pace = (n - 1) * (there + 0.12 * np.sin(2 * np.pi * there) * there)  # (m,)
first = gesture(np.linspace(0, 1, n)) + args.noise * rng.standard_normal(n)
second = gesture(pace / (n - 1)) + args.noise * rng.standard_normal(m)

# %%
# The alignment
# -------------
# A band around the diagonal keeps points together that are near in time, and saves most cells.

band = max(m - n, round(args.band * m))
for _ in range(2):  # the first call compiles
    begin = time.perf_counter()
    distance, path = alignment.dtw(first, second, band=band, return_path=True)
    seconds = time.perf_counter() - begin
i, j = path.T  # (pairs,) each: point i of the first series belongs to point j of the second

by_index = np.abs(np.linspace(0, n - 1, m) - pace).mean()
off = np.abs(i - pace[j]).mean()
print(f"{len(path)} pairs of points, distance {distance:.2f}")
print(f"points off the true one: {by_index:.1f} stretched evenly, {off:.1f} aligned")

# %%
# Against plain loops
# -------------------
# Cell by cell: the cost of a pair of points and the least of the three cells before.


def by_hand(x, y):
    costs = [[math.inf] * (len(y) + 1) for _ in range(len(x) + 1)]
    costs[0][0] = 0.0
    for i in range(1, len(x) + 1):
        for j in range(max(1, i - band), min(len(y), i + band) + 1):
            before = min(costs[i - 1][j - 1], costs[i - 1][j], costs[i][j - 1])
            costs[i][j] = abs(x[i - 1] - y[j - 1]) + before
    return costs[-1][-1]


begin = time.perf_counter()
expected = by_hand(first.tolist(), second.tolist())
plain = time.perf_counter() - begin
np.testing.assert_allclose(distance, expected, rtol=1e-12)
np.testing.assert_allclose(np.abs(first[i] - second[j]).sum(), expected, rtol=1e-12)
print(f"{1e3 * seconds:.1f} ms with the path, plain loops {1e3 * plain:.1f} ms without")

# %%
# A picture
# ---------
# Lines join points that belong together. Below, the difference of each pair of points, dark where
# they are alike, with the alignment along a valley of it.

figure, axes = plt.subplots(2, 1, figsize=(9, 8), height_ratios=[1, 1.3], layout="constrained")
lift = 2.5
ends = np.stack([np.column_stack([i, first[i] + lift]), np.column_stack([j, second[j]])], 1)
axes[0].add_collection(LineCollection(ends[::3], colors="#9aa7b1", linewidths=0.6))
axes[0].plot(first + lift, color="#1f5fa8", label="first")
axes[0].plot(second, color="#d1362f", label="second")
axes[0].set(xlabel="point", yticks=[])
axes[0].set_title("The same gesture at another pace", loc="left")
axes[0].legend(ncols=2, loc="upper right", frameon=False)
axes[1].imshow(
    np.abs(first[:, None] - second), origin="lower", aspect="auto", cmap="bone", vmax=1.5
)
axes[1].plot(np.arange(m), pace, color="#6fa8dc", lw=3, label="true")
axes[1].plot(j, i, color="#e8a33d", lw=1.5, label="aligned")
axes[1].set(xlabel="point of the second", ylabel="point of the first")
axes[1].legend(loc="lower right")
if args.plot:
    figure.savefig(args.plot, dpi=150)
else:
    plt.show()
