"""Every method for paths, wherever it applies, against plain loops and paths that are walked.

A row of :data:`semiring_mm.graphs.methods.METHODS` is left alone with one that refuses, and asked
for the paths of all families of graphs in every form; a new row is asked, too.
"""

import functools
import itertools
import math

import numpy as np
import pytest
from optional import sp
from reference import ALGEBRAS, naive, stored
from walks import brute, check_paths, potentials, weights

import semiring_mm as sm
from semiring_mm.graphs import methods
from semiring_mm.graphs.methods import METHODS, Method

N = 70  # more than a block


class DoesNotApply(Exception):
    """The method that is left refuses a request."""


def refuse(request):
    raise DoesNotApply


NOTHING = Method("nothing", lambda _: "", lambda *_: math.inf, refuse, stacks=True)


def families():
    """The name of a semiring, a matrix, and whether its edges are read both ways."""
    rng = np.random.default_rng(7)
    plain = weights(rng, N, density=0.15)
    both = np.minimum(plain, plain.T)
    yield "min_plus", plain, True
    yield "min_plus", both, False
    yield "min_plus", weights(rng, N, density=0.1, hi=1), True  # which are hops
    yield "min_plus", weights(rng, N, density=0.5, hi=1, directed=False), False
    yield "min_plus", potentials(rng, plain), True
    tree = np.full((N, N), np.inf)
    tree[np.arange(1, N), np.arange(1, N) // 2] = rng.integers(1, 9, N - 1)
    yield "min_plus", np.minimum(tree, tree.T), False
    for name, zero in (("max_min", -np.inf), ("max_times", 0.0)):
        wide = np.where(np.isinf(plain), zero, 1 / plain if name == "max_times" else plain)
        yield name, wide, True
        yield name, np.maximum(wide, wide.T), False
    yield "min_plus", np.stack([plain, potentials(rng, both)]), True


def forms(name, w, tmp_path):
    """The graph as a matrix and as a sparse one, and what may be asked of it."""
    zero = ALGEBRAS[name].zero
    graphs = [w]
    if w.ndim == 2 and zero != 0:
        row, col = np.nonzero(w != zero)
        graphs.append(sp.csr_array((w[row, col], (row, col)), w.shape))
    asked = [{}, {"return_predecessors": True}]
    if w.ndim == 2:
        asked += [x | {"sources": [5, 0, 5]} for x in asked[:2]]
    if name == "min_plus":
        asked += [{"method": "squaring"}]
        asked += [{"max_hops": 3}, {"max_hops": 2, "sources": [3]}] if w.ndim == 2 else []
    if w.ndim == 2:
        asked += [{"tiles": sm.Tiles(out=str(tmp_path / "d.npy"), memory="1MB")}]
    return itertools.product(graphs, asked)


@functools.cache
def closed(name, content):
    """Distances by plain loops."""
    return naive.closure(np.frombuffer(content).reshape(N, N), semiring=name)


def expected(name, w, options):
    """What is asked for of them, of a stack one by one."""
    if w.ndim == 3:
        return np.stack([expected(name, x, options) for x in w])
    rows = options.get("sources", slice(None))
    if "max_hops" in options:
        return brute(w, options["max_hops"])[rows]
    return closed(name, w.tobytes())[rows]


def compare(name, w, found, options):
    d, p = found if isinstance(found, tuple) else (found, None)
    near = 1e-13 if name == "max_times" else 0
    np.testing.assert_allclose(
        np.asarray(d), expected(name, w, options), near, err_msg=f"{options}"
    )
    algebra, one = ALGEBRAS[name], stored(name, ALGEBRAS[name].one, w.dtype)
    for i in range(len(w) if p is not None and w.ndim == 3 else p is not None):
        stack = w.ndim == 3
        check_paths(
            w[i] if stack else w, d[i] if stack else d, p[i] if stack else p, mul=algebra.mul,
            zero=algebra.zero, one=one, sources=options.get("sources"), tol=near,
        )  # fmt: skip


OF_DISTANCES = [x for x in METHODS if not x.loads]


@pytest.mark.parametrize("method", OF_DISTANCES, ids=lambda method: method.name)
def test_wherever_it_applies(method, monkeypatch, tmp_path):
    stacks = method.name == "each of a batch"  # by another one
    left = [x for x in METHODS if stacks and x.name == "elimination in blocks"]
    monkeypatch.setattr(methods, "METHODS", [method, *left, NOTHING])
    served = 0
    for name, w, directed in families():
        for graph, options in forms(name, w, tmp_path):
            (tmp_path / "d.npy").unlink(missing_ok=True)
            if stacks and w.ndim == 2:
                continue
            given = {"directed": directed, **options}
            if name != "min_plus":
                given["semiring"] = name
            try:
                found = (sm.apsp if name == "min_plus" else sm.closure)(graph, **given)
            except DoesNotApply:
                continue
            compare(name, w, found, options)
            served += 1
    assert served or method.name == "one launch", "no request that it takes"
