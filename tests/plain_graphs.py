"""Graph kernels of the plain engine: the families of :mod:`semiring_mm.graph_kernels` in Python."""

import functools
import itertools
from types import SimpleNamespace

import numpy as np

from semiring_mm.expressions import evaluate
from semiring_mm.kernel import Operations
from semiring_mm.plan import Plan, computed, stored

LANES = 4  # sources of a chunk


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
        kernel.plain(operations, **fields)

    call.bind = lambda **fields: functools.partial(call, **fields)
    return call


def write_values(plan, fields):
    x = SimpleNamespace(**fields)
    _write(x, stored(plan, x.label[x.where], x.rows.dtype))


def write_nodes(plan, fields):
    x = SimpleNamespace(**fields)
    _write(x, x.label[x.where])


def _write(x, labels):
    for lane, offset in enumerate(x.offsets.tolist()):
        x.rows[offset // x.rows.strides[0], : x.n] = labels[:, lane]


factor = SimpleNamespace(
    chunk_width=lambda itemsize: LANES, turned_bytes=lambda: 1, write_values=write_values,
    write_nodes=write_nodes,
)  # fmt: skip


class SumCode:
    def __init__(self, dtype, kinds, negative, mass=""):
        self.kinds, self.far = kinds, far_of(dtype)

    def __call__(self, name, fields):
        getattr(self, name)(SimpleNamespace(**fields))

    def _edge(self, tail, w, old):
        through = np.where((tail == self.far) | (w == self.far), self.far, tail + w)
        return np.minimum(through, old)

    def climb(self, x):
        core, met = int(x.visits[1]), set()
        for v in x.source[:-1].tolist():
            while v < x.fringe:
                met.add(v)
                v = int(x.parent[v])
        x.visits[0] = len(met)
        x.visited[: len(met)] = sorted(met)
        for i, v in enumerate(sorted(met)):
            x.place[v] = core + i
            x.risen[core + i] = np.where(x.source[:-1] == v, 0, self.far)
        for v in sorted(met):
            for e in range(x.first[v], x.first[v + 1]):
                u = x.place[x.head[e]]
                x.risen[u] = self._edge(x.risen[x.place[v]], x.out[e], x.risen[u])

    def fall(self, x):
        core = int(x.visits[1])
        met = dict(zip(x.visited[: x.visits[0]].tolist(), range(core, 1 << 30), strict=False))
        for i in range(x.core):
            self.take(x, x.fringe + i, x.label[i])
        for v in range(x.fringe - 1, -1, -1):
            label = x.risen[met[v]] if v in met else np.full(x.label.shape[1], self.far)
            for e in range(x.first[v], x.first[v + 1]):
                label = self._edge(x.label[x.slot[e]], x.back[e], label)
            x.label[x.own[v]] = np.where(x.source[:-1] == v, 0, label)
            self.take(x, v, x.label[x.own[v]])

    def take(self, x, v, label):
        there = label != self.far
        finite = np.where(there, label, 0)
        x.counts += there
        x.total += finite.astype(x.total.dtype)
        np.maximum(x.largest, finite, out=x.largest)
        x.inverse[finite != 0] += 1 / finite[finite != 0]
        if "within" in self.kinds:
            mass = x.mass[v] if hasattr(x, "mass") else 1
            x.within += mass * (label <= x.radius[:, np.newaxis])
        if self.kinds & {"bins", "even", "edges"}:
            limits = x.edges if "edges" in self.kinds else x.edges[1:-1]
            counted = there & (x.source[:-1] > v) if "half" in self.kinds else there
            lanes = np.flatnonzero(counted)
            row = np.searchsorted(limits, label[lanes], side="right")
            np.add.at(x.table, (np.minimum(row, len(x.table) - 1), lanes), 1)


def far_of(dtype):
    return {"int32": (1 << 30) - 1, "int64": (1 << 62) - 1}.get(dtype, np.inf)


def depths(fields):
    x = SimpleNamespace(**fields)
    for v in range(x.n - 1, -1, -1):
        x.depth[v] = x.depth[x.parent[v]] + 1 if x.parent[v] < x.n else 0


sums = SimpleNamespace(
    Code=SumCode, SEGMENT=64, chunk_width=lambda itemsize: LANES, vectors=lambda: 1, far_of=far_of,
    depths=depths,
)  # fmt: skip


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
