"""Small towns to ask: random streets with bends, loops, one-way and parallel ones."""

import numpy as np

from semiring_mm.geo import Streets


def town(rng, *, side=5, crs=None, islands=0):
    """A grid of streets of (side × side) crossings, bent, some of them one-way, and some loops."""
    at = np.arange(side * side).reshape(side, side)
    ends = [(at[1:], at[:-1]), (at[:, 1:], at[:, :-1])]
    u, v = (np.concatenate([pair[i].ravel() for pair in ends]) for i in (0, 1))
    loop = rng.integers(0, side * side, 4)
    twice = rng.integers(0, len(u), 4)  # a street of other bends between the same ends
    u, v = np.concatenate([u, loop, u[twice]]), np.concatenate([v, loop, v[twice]])
    x, y = np.divmod(np.arange(side * side + islands), side) * np.array([[100.0], [90.0]])
    x, y = (z + rng.uniform(-20, 20, len(z)) for z in (x, y))
    if crs is not None:
        x, y = 24.9 + x / 60_000, 60.1 + y / 110_000
    scale = 1.0 if crs is None else 1e-5
    lines, edges = [], []
    for a, b in zip(u, v, strict=True):
        bends = rng.integers(2, 4) if a == b else rng.integers(0, 4)
        t = np.linspace(0, 1, bends + 2)[1:-1, np.newaxis]
        inner = (1 - t) * [x[a], y[a]] + t * [x[b], y[b]] + scale * rng.uniform(-25, 25, (bends, 2))
        lines.append(np.concatenate([[[x[a], y[a]]], inner, [[x[b], y[b]]]]))
        edges.append((a, b))
    for e in rng.permutation(len(u))[: int(0.7 * len(u))]:  # the others are one-way
        lines.append(lines[e][::-1])
        edges.append((v[e], u[e]))
    order = rng.permutation(len(edges))
    u, v = np.array(edges)[order].T
    lines = [lines[e] for e in order]
    first = np.cumsum([0, *map(len, lines)])
    labels = [f"n{i}" for i in range(len(x))]
    columns = {"row": order, "key": np.arange(len(u))}
    return Streets(labels, x, y, crs, u, v, columns, (first, np.concatenate(lines)))
