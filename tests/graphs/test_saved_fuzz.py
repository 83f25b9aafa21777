"""Saved networks whose contents were changed, and whose digest was made anew.

Each is refused in one line, or is a network that answers as the closure of its edges does. They are
read in a process of their own, which may not crash. SEMIRING_MM_FUZZ=COUNT tries so many files of
each network, from a seed of the clock.
"""

import contextlib
import itertools
import json
import os
import time
from pathlib import Path

import numpy as np
import processes
import pytest
from metrics import leave_core

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.storage import digest

NETWORKS = ["directed", "undirected", "core", "labels", "integers", "truth", "table", "none"]


def network(name):
    """A small prepared graph of some kind."""
    rng = np.random.default_rng(3)
    i = np.arange(20).reshape(4, 5)
    row = np.concatenate([i[:, 1:].ravel(), i[1:].ravel(), rng.integers(0, 20, 9)])
    col = np.concatenate([i[:, :-1].ravel(), i[:-1].ravel(), rng.integers(0, 20, 9)])
    n, given = 22, {}
    if name == "none":
        n, row, col = 0, row[:0], col[:0]
    nodes = [f"node {k}" for k in range(n)] if name == "labels" else range(n)
    if name == "integers":
        given = {"dtype": "int16"}
    if name == "truth":
        given = {"semiring": "lor_land"}
    weight = rng.integers(0, 9, len(row)).astype(float)
    with pytest.MonkeyPatch.context() as patched:
        if name == "core":
            leave_core(patched)
        rows = np.arange(len(row)) // 2 if name == "table" else None
        edges = EdgeList(nodes, row, col, weight, name != "undirected", table_rows=rows)
        return sm.prepare(edges, **given)


def number(rng, x, n):
    """A number in place of one of an array."""
    near = [*x.ravel()[:30].tolist(), 0] if x.dtype.kind in "iuf" else [0]
    limits = [-1, 0, 1, n - 1, n, n + 1, 1 << 20]
    if x.dtype.kind in "iu":
        limits += [np.iinfo(x.dtype).min, np.iinfo(x.dtype).max]
    if x.dtype.kind == "f":
        limits += [np.inf, np.nan, -3.5, -np.inf, 1e308]
    value = near[rng.integers(len(near))] + int(rng.integers(-1, 2))
    if rng.random() < 0.5:
        value = limits[rng.integers(len(limits))]
    if x.dtype.kind in "iu":
        value = int(np.clip(value, np.iinfo(x.dtype).min, np.iinfo(x.dtype).max))
    return value


def changed(rng, x, n):
    """An array after one change."""
    x = np.array(x, order="C")
    at = rng.integers(len(x), size=2) if len(x) else [0, 0]
    match rng.integers(12):
        case 0 | 1 | 2 | 3 | 4 if len(x):
            x[at[0]] = number(rng, x, n)
        case 5 if len(x):
            x[at] = x[at[::-1]]
        case 6 if len(x):
            x = np.delete(x, at[0])
        case 7:
            x = np.insert(x, at[0], number(rng, x, n))
        case 8:
            x = x[: at[0]]
        case 9:
            x = x.astype(["int8", "int64", "float32", "S3", ">i4", "uint32"][rng.integers(6)])
        case 10:
            x = [x.reshape(-1, 1), x.reshape(1, -1), np.tile(x, 3), x[::-1]][rng.integers(4)]
        case 11:
            if x.nbytes:
                bit = np.uint8(1 << rng.integers(8))
                x.ravel().view(np.uint8)[rng.integers(x.nbytes, size=3)] ^= bit
    return x


VALUES = [
    None, -1, 0, 1, 7, 22, 10**400, 1.5, "", "x", [], [1], {}, True, "min(a, b)", "a + b",
    "max(a, b)", "a * b", "a - b", "inf", "-inf", "nan", "float32", "int64", "complex128", "O",
    "x" * 100_000, [[[[]]]], "float128", "float16", "(" * 500,
]  # fmt: skip


def reworded(rng, x):
    """JSON after one change."""
    value = VALUES[rng.integers(len(VALUES))]
    if isinstance(x, (dict, list)) and len(x) and rng.random() < 0.95:
        x = x.copy()
        key = [*x][rng.integers(len(x))] if isinstance(x, dict) else int(rng.integers(len(x)))
        if rng.random() < 0.1:
            del x[key]
        else:
            x[key] = reworded(rng, x[key])
        return x
    return value


def forge(rng, arrays):
    """The arrays of a file after one or two changes, with the digest of what they are now."""
    arrays = {**arrays}
    n = len(arrays["node"])
    for _ in range(rng.integers(1, 3)):
        word = [*arrays][rng.integers(len(arrays))]
        if word in ("about", "labels") and rng.random() < 0.9:
            try:
                text = json.dumps(reworded(rng, json.loads(bytes(arrays[word]))))
                arrays[word] = np.frombuffer(text.encode(), np.uint8)
            except ValueError:  # it was changed before
                pass
        else:
            arrays[word] = changed(rng, arrays[word], n)
    if rng.random() < 0.02:
        del arrays[[*arrays][rng.integers(len(arrays))]]
    return arrays | {"digest": np.frombuffer(digest(arrays), np.uint8)}


def ask(net, rng):
    """All questions are answered: as the closure does, where laws hold and no weight overflows."""
    n, s, weight = len(net.nodes), net.semiring, net.edges.weight
    some = rng.integers(n, size=5).tolist() if n else []
    nodes = [net.nodes[k] for k in some]
    known = s in [sm.semirings[x] for x in ("min_plus", "max_min", "min_max", "lor_land")]
    small = (abs(weight[np.isfinite(weight)].astype(float)) < 1e6).all()
    try:
        found = np.asarray(net.distances())
        part = np.asarray(net.distances(nodes, nodes[:2]))
        pairs = [(net.distance(u, v), found[i, j]) for (u, i), (v, j) in ends(nodes, some)]
        paths = {}
        for (u, i), (v, j) in ends(nodes, some):
            with contextlib.suppress(ValueError):
                paths[i, j] = net.path(u, v)
    except OverflowError:
        return
    if not (known and small):
        return
    np.testing.assert_array_equal(part, found[some][:, some[:2]])
    assert all(x == y for x, y in pairs)
    for i, j in itertools.pairwise(some):
        assert ((i, j) in paths) == (i == j or found[i, j] != s.identities(net.dtype)[0])
    for (i, j), path in paths.items():
        assert (path[0], path[-1]) == (net.nodes[i], net.nodes[j])
    edges = EdgeList(range(n), net.edges.row, net.edges.col, weight, net.directed)
    expected = sm.closure(sm.adjacency(edges, s, dtype=net.dtype)[0], s)
    np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=1e-6)


def ends(nodes, places):
    """Pairs of nodes, each with its position."""
    return itertools.pairwise(zip(nodes, places, strict=True))


def attack(folder, name, seed, count):
    """Read forged files of one network; print how many were refused, and how many answered."""
    path = Path(folder, "net.npz")
    network(name).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    del arrays["digest"]
    refused = 0
    for k in range(count):
        rng = np.random.default_rng([seed, k])
        print("file", k, flush=True)  # the last line tells which one it was
        path.unlink()
        np.savez(path, **forge(rng, arrays))
        try:
            net = sm.load(path)
        except ValueError as error:
            text = str(error)
            assert text.startswith(repr(str(path)))
            assert "\n" not in text
            assert len(text) < len(str(path)) + 300
            refused += 1
        else:
            ask(net, rng)
    print("refused", refused, "answered", count - refused)


@pytest.mark.parametrize("name", NETWORKS)
def test_forged_files(name, tmp_path):
    count = int(os.environ.get("SEMIRING_MM_FUZZ", 400))
    seed = time.time_ns() if "SEMIRING_MM_FUZZ" in os.environ else 5
    attack = f"t.attack({str(tmp_path)!r}, {name!r}, {seed}, {count})"
    done = processes.run(
        "-W", "ignore", "-c", f"from tests.graphs import test_saved_fuzz as t; {attack}"
    )
    last = done.stdout.splitlines()[-1]
    assert done.returncode == 0, f"seed {seed}, {last}: {done.stderr[-3000:]}"
    _, refused, _, answered = last.split()
    assert int(refused) > count / 3
    assert int(answered) > 0
