"""
Nearest digits: k nearest neighbours under several metrics
==========================================================

Which digit is it? The k pictures most like it, of those whose digit is known, vote. What "like"
means is a *metric*: what a pair of pixels adds, and how that is joined over all pixels. The nearest
neighbours of all queries are a product of two matrices over these two operations, of which
:func:`semiring_mm.neighbours.knn` never holds more than a tile::

    python apps/nearest_digits.py
    python apps/nearest_digits.py --known 60000 --queries 10000

The digits are made up: those of Matplotlib's own fonts, turned, slanted, shifted and stretched at
random, on 16 × 16 pixels.
"""

import argparse
import time

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from scipy.spatial.distance import cdist

import semiring_mm as sm

parser = argparse.ArgumentParser(description="Digits by their k nearest neighbours.")
parser.add_argument("--known", type=int, default=3000, help="pictures whose digit is known")
parser.add_argument("--queries", type=int, default=500)
parser.add_argument("--k", type=int, default=5, help="neighbours that vote")
parser.add_argument("--plot", help="file for the picture; default: show it")
args = parser.parse_args()

# %%
# Digits
# ------
# An outline of each digit in twelve faces. A pixel is the share of its 2 × 2 points inside.
# The scan is poor: one pixel in seven is dust.

SIDE = 16
FACES = [
    FontProperties(family=f"DejaVu {family}", weight=weight, style=style)
    for family in ("Sans", "Serif", "Sans Mono")
    for weight in ("normal", "bold")
    for style in ("normal", "italic")
]
outlines = [[TextPath((0, 0), str(digit), prop=face) for face in FACES] for digit in range(10)]
grid = (np.mgrid[: 2 * SIDE, : 2 * SIDE].reshape(2, -1).T[:, ::-1] + 0.5) / SIDE - 1


def draw(digit, rng):
    """One picture: SIDE² grey values from 0 to 1."""
    outline = outlines[digit][rng.integers(len(FACES))]
    low, high = outline.get_extents().get_points()
    angle, slant = rng.normal(0, 0.15, 2)
    turn = np.array([[np.cos(angle), np.sin(angle)], [slant - np.sin(angle), np.cos(angle)]])
    size = rng.uniform(0.55, 0.8, 2) / (high - low).max() * 2
    corners = ((outline.vertices - (low + high) / 2) * size) @ turn + rng.normal(0, 0.08, 2)
    inside = Path(corners, outline.codes).contains_points(grid * (1, -1))
    return inside.reshape(SIDE, 2, SIDE, 2).mean((1, 3)).ravel()


rng = np.random.default_rng(1)
digits = rng.integers(10, size=args.known + args.queries)
pictures = np.array([draw(digit, rng) for digit in digits], np.float32)
dust = rng.random(pictures.shape) < 0.15
pictures[dust] = rng.random(dust.sum())
known, queries = pictures[: args.known], pictures[args.known :]
labels, truth = digits[: args.known], digits[args.known :]

# %%
# Neighbours and votes
# --------------------
# A metric is a name of SciPy's, or two expressions. In the last one no pixel adds more than 0.6,
# however wrong it is.

capped = sm.neighbours.Metric("capped", "min(abs(a - b), 0.6)")
found = {}
print(f"{args.queries} queries, {args.known} known digits, {args.k} neighbours")
for metric in ("cityblock", "euclidean", "chebyshev", "cosine", capped):
    name = getattr(metric, "name", metric)
    sm.neighbours.knn(queries[:1], known, args.k, metric)  # compiled by the first call
    begin = time.perf_counter()
    distances, indices = sm.neighbours.knn(queries, known, args.k, metric)
    seconds = time.perf_counter() - begin
    votes = np.zeros((len(queries), 10))
    np.add.at(votes, (np.arange(len(queries))[:, None], labels[indices]), 1)
    guess = votes.argmax(1)
    found[name] = distances, indices, guess
    print(f"{name:>10}: {(guess != truth).mean():6.1%} wrong, {1e3 * seconds:6.1f} ms")

# %%
# The same by SciPy's matrix of all distances and NumPy's selection.

begin = time.perf_counter()
D = cdist(queries, known, "cityblock")
nearest = np.argpartition(D, args.k - 1)[:, : args.k]
seconds = time.perf_counter() - begin
print(f"cdist and argpartition, cityblock: {1e3 * seconds:.1f} ms, {D.nbytes / 1e6:.0f} MB")
expected = np.sort(np.take_along_axis(D, nearest, 1))
np.testing.assert_allclose(found["cityblock"][0], expected, rtol=1e-5)

# %%
# A picture
# ---------
# A query on the left of each row, misclassified ones first, and its nearest neighbours beside it.

distances, indices, guess = found["euclidean"]
shown = np.argsort(guess == truth, kind="stable")[:8]
figure, axes = plt.subplots(len(shown), 1 + args.k, figsize=(0.9 * (2 + args.k), 0.9 * len(shown)))
for row, q in zip(axes, shown, strict=True):
    for cell, picture in zip(row, [queries[q], *known[indices[q]]], strict=True):
        cell.imshow(picture.reshape(SIDE, SIDE), cmap="gray_r", vmin=0, vmax=1)
        cell.set(xticks=[], yticks=[])
    right = guess[q] == truth[q]
    row[0].set_ylabel(f"{truth[q]} → {guess[q]}", color="tab:green" if right else "tab:red")
    for spine in row[0].spines.values():
        spine.set(color="tab:green" if right else "tab:red", linewidth=2)
    for cell, d in zip(row[1:], distances[q], strict=True):
        cell.set_xlabel(f"{d:.1f}", fontsize=7, labelpad=1)
axes[0, 0].set_title("query", fontsize=9)
axes[0, 1].set_title("nearest", fontsize=9)
figure.tight_layout()
if args.plot:
    figure.savefig(args.plot, dpi=120)
else:
    plt.show()
