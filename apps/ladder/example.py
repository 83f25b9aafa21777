"""A worked example: five nodes, and every intermediate matrix of their distances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import semiring_mm as sm

__all__ = ["EDGES", "five_nodes", "powers", "text", "through"]

#: From, to, weight; the nodes are 1 to 5.
EDGES = (
    (1, 2, 3), (1, 3, 8), (1, 5, 4), (2, 4, 1), (2, 5, 7), (3, 2, 4), (4, 1, 2), (4, 3, 5),
    (5, 4, 6),
)  # fmt: skip
Matrix = NDArray[np.float64]


def five_nodes() -> Matrix:
    """The weights as a matrix: 0 from a node to itself, ∞ where there is no edge.

    Examples
    --------
    >>> five_nodes()[0]
    array([ 0.,  3.,  8., inf,  4.])
    """
    weights: Matrix = np.full((5, 5), np.inf)
    np.fill_diagonal(weights, 0)
    for start, end, weight in EDGES:
        weights[start - 1, end - 1] = weight
    return weights


def powers(weights: Matrix) -> Iterator[Matrix]:
    """W, W ⊗ W, W ⊗ W ⊗ W, ... over (min, +), up to paths of n - 1 edges.

    The k-th has the lengths of the best paths of at most k edges. Its definition, entry by entry
    d(i, j) = min over l of d(i, l) + w(l, j), is a matrix product with other signs.
    """
    distances = weights
    yield distances
    for _ in range(len(weights) - 2):
        distances = sm.matmul(distances, weights, semiring="min_plus")
        yield distances


def through(weights: Matrix) -> Iterator[Matrix]:
    """Floyd and Warshall's D⁰, D¹, ..., Dⁿ: paths whose inner nodes are among the first k.

    Step k is the outer product of a column and a row: D ← D ⊕ D[:, k] ⊗ D[k, :].
    """
    distances = weights.copy()
    yield distances
    for k in range(len(weights)):
        column, row = distances[:, k : k + 1], distances[k : k + 1]
        distances = np.minimum(distances, sm.matmul(column, row, semiring="min_plus"))
        yield distances


def text() -> str:
    """Return every D^k, by powers and by Floyd and Warshall's steps, and the library's result."""
    weights = five_nodes()
    lines = ["Edges: " + ", ".join(f"{a}→{b} {w}" for a, b, w in EDGES), ""]
    lines.append("Powers over (min, +): D^k has the best paths of at most k edges.")
    for k, matrix in enumerate(powers(weights), 1):
        lines += ["", *_labelled(f"D^{k}", matrix)]
    lines += ["", "Floyd and Warshall: D^(k) has the best paths by way of nodes 1 to k only."]
    for k, matrix in enumerate(through(weights)):
        lines += ["", *_labelled(f"D^({k})", matrix)]
    distances, before = sm.apsp(weights, return_predecessors=True)
    lines += ["", *_labelled("apsp", distances), ""]
    path = [node + 1 for node in sm.reconstruct_path(before, 2, 4)]
    lines.append(
        f"From 3 to 5: {' → '.join(map(str, path))}, {distances[2, 4]:g} in {len(path) - 1} edges."
    )
    return "\n".join(lines)


def _labelled(name: str, matrix: NDArray[Any]) -> list[str]:
    rows = [" ".join("  ∞" if x == np.inf else f"{x:3g}" for x in row) for row in matrix]
    label = f"{name} = "
    return [f"{label if i == 0 else ' ' * len(label)}{row}" for i, row in enumerate(rows)]
