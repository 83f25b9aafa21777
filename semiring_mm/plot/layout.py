"""Places in the plane for the nodes of a graph that has none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import semiring_mm as sm

from ..files import Graph

__all__ = ["layout", "neighbourhood"]

_NODES = 160  # around a single node that a picture without coordinates shows at most
_EDGES = 2000  # about as many as can be told apart
_STOPS = 300  # of a path; of a longer one some are shown, and nothing beside it


def neighbourhood(graph: Graph, path: Sequence[int]) -> NDArray[np.int64]:
    """The nodes to draw, sorted: all, or those of a path and the next around it.

    Without a path the node with the most edges stands for it.
    """
    n, m = len(graph.nodes), len(graph.row)
    # A longer path has more beside it; of a dense graph fewer nodes have as many edges.
    most = max(_NODES, min(4 * len(path), _STOPS))
    most = min(n, most, int((_EDGES / max(m, 1)) ** 0.5 * n) + 1)
    if n <= most:
        return np.arange(n)
    degree = np.bincount(graph.row, minlength=n) + np.bincount(graph.col, minlength=n)
    start = np.unique(path) if len(path) else np.array([degree.argmax()])
    seen = np.zeros(n, bool)
    seen[start] = True
    for _ in range(most):
        ahead = np.concatenate([graph.col[seen[graph.row]], graph.row[seen[graph.col]]])
        ahead = np.unique(ahead[~seen[ahead]])
        room = most - np.count_nonzero(seen)
        if not ahead.size or room <= 0:
            break
        # Of more than fit those with the most edges: they show how the network goes on.
        seen[ahead[np.argsort(-degree[ahead], kind="stable")[:room]]] = True
    return np.flatnonzero(seen)


def layout(graph: Graph, path: Sequence[int]) -> tuple[NDArray[np.float64], list[int]]:
    """Places for the nodes of a graph, or of a part of it, by the distances between them.

    Stress majorisation: the distance of two nodes in the picture comes close to the number of edges
    between them (E. R. Gansner, Y. Koren and S. North, Graph Drawing by Stress Majorization, Graph
    Drawing 2004). A path runs from left to right. Returns (n, 2), NaN for the nodes that are left
    out, and the nodes of the path that are shown.
    """
    shown = list(path)
    if len(shown) > _STOPS:
        shown = [path[k] for k in np.linspace(0, len(path) - 1, _STOPS).round().astype(int)]
        nodes = np.unique(shown)
    else:
        nodes = neighbourhood(graph, path)
    k, n = len(nodes), len(graph.nodes)
    position = np.full(n, -1)
    position[nodes] = np.arange(k)
    row, col = position[graph.row], position[graph.col]
    kept = (row >= 0) & (col >= 0) & (row != col)
    hops = np.full((k, k), np.inf)
    hops[row[kept], col[kept]] = hops[col[kept], row[kept]] = 1
    stops = position[shown]
    hops[stops[:-1], stops[1:]] = hops[stops[1:], stops[:-1]] = 1
    np.fill_diagonal(hops, 0)
    hops = np.asarray(sm.apsp(hops))
    apart = np.isinf(hops)
    if apart.any():  # parts of the graph stand beside each other
        hops[apart] = np.max(hops, where=~apart, initial=1) + 1
    flat = _stress(hops)
    if len(stops) > 1 and stops[0] != stops[-1]:
        along = flat[stops[-1]] - flat[stops[0]]
    elif k > 1:
        along = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)[2][0]
    else:
        along = np.array([1.0, 0.0])
    along = along / (np.hypot(*along) or 1.0)
    places = np.full((n, 2), np.nan)
    places[nodes] = np.stack([flat @ along, flat @ (-along[1], along[0])], axis=1)
    return places, shown


def _stress(wanted: NDArray[np.float64], steps: int = 150) -> NDArray[np.float64]:
    """Places in the plane at about the wanted distances, above zero but for a node's own."""
    k = len(wanted)
    if k < 3:
        return np.stack([np.arange(k, dtype=np.float64), np.zeros(k)], axis=1)
    # The start: the two longest axes of classical scaling. Its ties are broken by a little noise,
    # without which the leaves of a star would fall on one point and stay there.
    middle = np.eye(k) - 1 / k
    values, vectors = np.linalg.eigh(-0.5 * middle @ wanted**2 @ middle)
    places: NDArray[np.float64] = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 1e-9))
    places = places + np.random.default_rng(0).normal(scale=0.05, size=places.shape)
    weight = 1 / np.maximum(wanted, 1e-9) ** 2
    np.fill_diagonal(weight, 0)
    # Each step solves V x = B(x) x, V and B being the Laplacians of the weights and of weight ×
    # wanted / present distance; x is unique but for a shift, which adding 1 / k to V takes away.
    solve = np.linalg.inv(np.diag(weight.sum(axis=1)) - weight + 1 / k)
    for _ in range(steps):
        apart = np.hypot(*(np.subtract.outer(x, x) for x in places.T))
        pull = weight * wanted / np.maximum(apart, 1e-9)
        np.fill_diagonal(pull, 0)
        new = solve @ (places * pull.sum(axis=1)[:, None] - pull @ places)
        moved = float(np.abs(new - places).max())
        places = new
        if moved < 1e-3:
            break
    return places
