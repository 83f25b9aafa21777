"""Graph kernels of the plain engine: the families of :mod:`semiring_mm.graph_kernels` in Python."""

import functools
import itertools
from types import SimpleNamespace

import numpy as np

from semiring_mm.expressions import evaluate
from semiring_mm.kernel import Operations
from semiring_mm.plan import Plan, computed, stored

LANES = 2  # of a vector


def ranges(first, *columns):
    """For each row of lists the entries of the columns, one tuple each."""
    return [
        list(zip(*(x[a:b].tolist() for x in columns), strict=True))
        for a, b in itertools.pairwise(first)
    ]


# --- labels over a factor -----------------------------------------------------------------------


class Algebra:
    """⊕ and ⊗ in the type that a plan computes in."""

    def __init__(self, plan):
        assert plan.codec in ("plain", "sentinel")
        self.plan = plan

    def add(self, a, b):
        return evaluate(self.plan.add, a, b)

    def mul(self, a, b):
        with np.errstate(over="ignore"):
            product = np.asarray(evaluate(self.plan.mul, a, b))
        if not self.plan.annihilate:
            return product
        far = self.plan.infinite
        return np.where((a == far) | (b == far), far, product).astype(product.dtype)

    def better(self, a, b):
        return (self.add(a, b) == a) & (a != b)


def compiled(kernel, plan, zero, one):
    """A kernel as it reads, in Python."""
    operations = None
    if isinstance(plan, Plan):
        x, dtype = Algebra(plan), np.dtype(plan.storage)
        operations = Operations(
            x.add,
            x.mul,
            x.better,
            zero,
            one,
            functools.partial(computed, plan),
            lambda value: stored(plan, np.asarray(value, plan.computed_in), dtype),
        )

    def call(**fields):
        return kernel.plain(operations, **fields)

    call.bind = lambda **fields: functools.partial(call, **fields)
    return call


rows = SimpleNamespace(lanes=lambda itemsize: LANES, vectors=lambda: 1)


# --- searches -----------------------------------------------------------------------------------


class HopSearches:
    LANES = 8

    def __init__(self, n, out, back):
        self.n, self.near = n, ranges(out[0], out[1])

    @staticmethod
    def bytes(n, arcs, count, *, labels):
        return n * count

    def _levels(self, source):
        d, line = {source: 0}, [source]
        for v in line:
            for (u,) in self.near[v]:
                if u not in d:
                    d[u] = d[v] + 1
                    line.append(u)
        return d

    def rows(self, sources, dtype, unreached, out=None, done=None):
        out = np.empty((len(sources), self.n), dtype) if out is None else out
        out[...] = unreached
        for i, source in enumerate(sources.tolist()):
            for v, d in self._levels(source).items():
                out[i, v] = d
        if done is not None:
            done(len(sources))
        return out

    def statistics(self, sources, radii):
        d = self.rows(sources, np.int64, -1)
        apart = d > 0
        inverse = np.divide(1, d, out=np.zeros(d.shape), where=apart).sum(1)
        return {
            "reached": apart.sum(1), "total": np.where(apart, d, 0).sum(1), "inverse": inverse,
            "far": d.max(1, initial=0), "table": np.bincount(d[apart], minlength=self.n + 2),
            "within": np.stack([(apart & (d <= r)).sum(1) for r in radii])
            if len(radii) else np.zeros((0, len(d)), np.int64),
        }  # fmt: skip
