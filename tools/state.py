"""The picture of docs/sparse-graphs.md: a state's road network, coloured by closeness.

``python tools/state.py road_FLA.gr.xz docs/florida.png`` reads a road network without coordinates.
So the places are found from the distances, too: by pivot multidimensional scaling of the distances
from some nodes to all (U. Brandes and C. Pich, Eigensolver Methods for Progressive Multidimensional
Scaling of Large Data, Graph Drawing 2006). The network is seen turned and mirrored as it falls out.
"""

from __future__ import annotations

import lzma
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import scipy.sparse
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection

import semiring_mm as sm

PIVOTS = 100


def network(path: str) -> Any:
    """A symmetric matrix of ones from a file of the PACE challenge of 2016."""
    with lzma.open(path) as file:
        n = int(file.readline().split()[2])
        row, col = np.array(file.read().split(), np.int64).reshape(-1, 2).T - 1
    return scipy.sparse.coo_array((np.ones(len(row)), (row, col)), shape=(n, n))


def places(net: Any, n: int) -> Any:
    """Nodes in the plane, by their distances from pivots that are far from each other."""
    pivots = [0]
    nearest = np.full(n, np.inf)
    while len(pivots) < PIVOTS:
        np.minimum(nearest, net.distances(pivots[-1:])[0], out=nearest)
        pivots.append(int(nearest.argmax()))
    square = net.distances(pivots).T ** 2
    square -= square.mean(axis=0)
    square -= square.mean(axis=1, keepdims=True)
    _, vectors = np.linalg.eigh(square.T @ square)
    return square @ vectors[:, -2:] * [1, -1]


def main(source: str, target: str) -> None:
    """Draw."""
    edges = network(source)
    net = sm.prepare(edges, directed=False)
    found = sm.statistics(net, "closeness", progress=True)
    at = places(net, edges.shape[0])
    close = found.closeness
    assert close is not None
    shade = np.searchsorted(np.sort(close), close[edges.row]) / len(close)
    order = np.argsort(shade)
    figure, axes = plt.subplots(figsize=(7, 6.4), layout="constrained")
    lines = LineCollection(
        np.stack([at[edges.row], at[edges.col]], axis=1)[order],
        array=shade[order], cmap=mpl.colormaps["plasma"], linewidths=0.16, rasterized=True,
    )  # fmt: skip
    axes.add_collection(lines)
    axes.autoscale()
    axes.set_aspect("equal")
    axes.set_axis_off()
    figure.savefig(Path(target), dpi=110, facecolor="#101018", bbox_inches="tight", pad_inches=0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
