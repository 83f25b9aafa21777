"""Graph kernels of the plain engine: the families of :mod:`semiring_mm.graph_kernels` in Python."""

import itertools
from types import SimpleNamespace

import numpy as np

from semiring_mm.expressions import evaluate
from semiring_mm.graph_kernels import NOWHERE
from semiring_mm.plan import computed, stored

LANES = 4  # sources of a chunk
NONE = -9999  # no predecessor


def family(*functions):
    """Functions of arguments by name, called with a dictionary of them."""
    taken = {f.__name__: lambda fields, f=f: f(SimpleNamespace(**fields)) for f in functions}
    return SimpleNamespace(**taken)


def ranges(first, *columns):
    """For each row of lists the entries of the columns, one tuple each."""
    return [
        list(zip(*(x[a:b].tolist() for x in columns), strict=True))
        for a, b in itertools.pairwise(first)
    ]


# --- symbolic elimination -----------------------------------------------------------------------


def adjacency(x):
    near = [{} for _ in range(x.n)]
    for u, v in zip(x.row.tolist(), x.col.tolist(), strict=True):
        near[u][v] = near[v][u] = None
    flat = [v for some in near for v in some]
    x.first[:] = np.cumsum([0, *map(len, near)])
    x.near[: len(flat)] = flat


def repack(x):
    for v in range(x.n):
        x.larger[x.place[v] :][: x.size[v]] = x.pool[x.begin[v] :][: x.size[v]]


def minimum_degree(x):
    """All vertices but a clique."""
    near = [set(x.pool[a : a + k].tolist()) for a, k in zip(x.begin, x.size, strict=True)]
    left = set(range(x.n))
    while left:
        v = min(left, key=lambda u: (len(near[u]), u))
        if len(near[v]) == len(left) - 1 <= x.least:
            break
        done = x.n - len(left)
        x.order[done], x.degree[done] = v, len(near[v])
        left.remove(v)
        for u in near[v]:
            near[u] = (near[u] | near[v]) - {u, v}
    x.state[0], x.state[4] = x.n - len(left), 0


def structures(n, stop, first, near, order, rank):
    """struct(v) = adj⁺(v) ∪ struct(children) - {v}, by positions."""
    found = []
    children = [[] for _ in range(n + 1)]
    for v in range(stop):
        node = order[v]
        mine = {int(rank[u]) for u in near[first[node] : first[node + 1]]}
        mine = {u for u in mine.union(*(found[c] for c in children[v])) if u > v}
        children[min(mine, default=n)].append(v)
        found.append(mine)
    return found


def elimination_tree(x):
    found = structures(x.n, x.n, x.first, x.near, x.order, x.rank)
    x.parent[:] = [min(mine, default=x.n) for mine in found]


def symbolic(x):
    found = structures(x.n, x.stop, x.near_first, x.near, x.order, x.rank)
    flat = [u for mine in found for u in mine]
    x.state[1] = len(flat) > x.capacity
    if not x.state[1]:
        x.first[: x.stop + 1] = np.cumsum([0, *map(len, found)])
        x.head[: len(flat)] = flat
        x.parent[:] = [min(mine, default=x.n) for mine in found]


def postorder(x):
    children = [[] for _ in range(x.n + 1)]
    for v in range(x.n):
        up = min(int(x.parent[v]), x.n)
        children[up].append(v)
        if up < x.n:
            x.level[up] = max(x.level[up], x.level[v] + 1)
    line = []

    def visit(v):
        for c in children[v]:
            visit(c)
        line.append(v)

    visit(x.n)
    x.position[line[:-1]] = np.arange(x.n)


def transpose(x):
    for v, edges in enumerate(ranges(x.first, np.arange(len(x.head)), x.head)):
        for e, u in edges:
            x.tail[x.place[u]], x.edge[x.place[u]] = v, e
            x.place[u] += 1


def locate(x):
    for i, (u, v) in enumerate(zip(x.row.tolist(), x.col.tolist(), strict=True)):
        low, high = min(u, v), max(u, v)
        begin, end = x.first[low], x.first[low + 1]
        e = begin + np.searchsorted(x.head[begin:end], high)
        x.slot[i] = 2 * min(e, len(x.head) - 1) + (u > v)


def totals(x):
    for v, up in enumerate(x.parent[: x.n]):
        if up < x.n:
            x.work[up] += x.work[v]
            x.size[up] += x.size[v]


def climb(x):
    for v in x.start.tolist():
        while v < x.fringe:
            x.mark[v] = 1
            v = x.parent[v]


elimination = family(
    adjacency, climb, elimination_tree, locate, minimum_degree, postorder, repack, symbolic,
    totals, transpose,
)  # fmt: skip


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


class FactorCode:
    def __init__(self, plan, zero, one, trees, *, symmetric=False):
        self.algebra, self.zero, self.one = Algebra(plan), zero, one
        self.trees, self.symmetric = trees, symmetric

    def __call__(self, name, fields):
        getattr(self, name)(SimpleNamespace(**fields))

    def place(self, x):
        weights = computed(self.algebra.plan, x.weight)
        for slot, w in zip(x.slot.tolist(), weights, strict=True):
            along = x.back if slot & 1 else x.out
            along[slot >> 1] = self.algebra.add(along[slot >> 1], w)

    def _join(self, along, e, through, pred, before):
        if self.algebra.better(through, along[e]):
            along[e] = through
            if self.trees:
                pred[e] = before

    def customize(self, x):
        mul = self.algebra.mul
        for v in x.nodes[x.begin : x.end]:
            edge = {int(x.head[e]): e for e in range(x.first[v], x.first[v + 1])}
            for k in range(x.low_first[v], x.low_first[v + 1]):
                down = x.low_edge[k]
                for g in range(down + 1, x.first[x.low_tail[k] + 1]):
                    e, ahead = edge[int(x.head[g])], x.out_pred[g] if self.trees else None
                    own = x.out_pred[down] if self.trees else None
                    self._join(x.out, e, mul(x.back[down], x.out[g]), x.out_pred, ahead)
                    if not self.symmetric:
                        self._join(x.back, e, mul(x.back[g], x.out[down]), x.back_pred, own)

    def join_core(self, x):
        matrix = x.matrix.reshape(-1)
        pred = x.core_pred.reshape(-1) if self.trees else None
        for i in range(x.begin, x.end):
            for k in range(x.low_first[i + x.fringe], x.low_first[i + x.fringe + 1]):
                u, down = x.low_tail[k], x.low_edge[k]
                for g in range(x.first[u], x.first[u + 1]):
                    b = x.head[g] - x.fringe
                    if b < 0 or b == i:
                        continue
                    at = i * x.core + b
                    through = np.asarray(self.algebra.mul(x.back[down], x.out[g]))
                    if self.algebra.better(through, computed(self.algebra.plan, matrix[at])):
                        matrix[at] = stored(self.algebra.plan, through, matrix.dtype)
                        if self.trees:
                            pred[at] = x.out_pred[g]

    def _own(self, x):
        for lane, v in enumerate(x.source[: x.label.shape[1]]):
            x.label[v, lane] = self.one
            if self.trees:
                x.pred[v, lane] = NONE

    def _edge(self, x, v, u, e, along, before):
        new = np.asarray(self.algebra.mul(x.label[v], along[e]))
        wins = self.algebra.better(new, x.label[u])
        x.label[u] = np.where(wins, new, x.label[u])
        if self.trees:
            x.pred[u] = np.where(wins, before[e], x.pred[u])

    def rise(self, x):
        met = set()
        for v in x.source[: x.label.shape[1]].tolist():
            while v < x.fringe:
                met.add(v)
                v = int(x.parent[v])
        x.visits[0] = len(met)
        x.visited[: len(met)] = sorted(met)
        for v in met:
            x.label[v] = self.zero
            if self.trees:
                x.pred[v] = NONE
        self._own(x)
        for v in sorted(met):
            for e in range(x.first[v], x.first[v + 1]):
                self._edge(x, v, x.head[e], e, x.out, x.out_pred)

    def fall(self, x):
        met = set(x.visited[: x.visits[0]].tolist())
        for v in x.order[: x.falls].tolist():
            if v not in met:
                x.label[v] = self.zero
                if self.trees:
                    x.pred[v] = NONE
            for e in range(x.first[v], x.first[v + 1]):
                self._edge(x, x.head[e], v, e, x.back, x.back_pred)
        self._own(x)

    def write_values(self, x):
        self._write(x, stored(self.algebra.plan, x.label[x.where], x.rows.dtype))

    def write_nodes(self, x):
        self._write(x, x.label[x.where])

    def _write(self, x, labels):
        for lane, offset in enumerate(x.offsets.tolist()):
            x.rows[offset // x.rows.strides[0], : x.n] = labels[:, lane]


factor = SimpleNamespace(
    Code=FactorCode, chunk_width=lambda itemsize: LANES, turned_bytes=lambda: 1
)


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


def depths(x):
    for v in range(x.n - 1, -1, -1):
        x.depth[v] = x.depth[x.parent[v]] + 1 if x.parent[v] < x.n else 0


sums = SimpleNamespace(
    Code=SumCode, SEGMENT=64, chunk_width=lambda itemsize: LANES, vectors=lambda: 1, far_of=far_of,
    **vars(family(depths)),
)  # fmt: skip


class PathQuery:
    def __init__(self, factor, low_first, low_tail, low_edge):
        self.factor, self.algebra = factor, Algebra(factor.plan)
        ends = factor.semiring.identities(factor.dtype)
        self.zero, self.one = (computed(factor.plan, x) for x in ends)

    def _labels(self, v, along, *, up):
        x = self.factor.structure
        labels = np.full(x.n, self.zero, self.factor.out.dtype)
        labels[v] = self.one
        for v in range(x.fringe):
            for e in range(x.first[v], x.first[v + 1]):
                pair = (labels[v], along[e]) if up else (along[e], labels[v])
                labels[x.head[e]] = self.algebra.add(labels[x.head[e]], self.algebra.mul(*pair))
        return labels

    def meet(self, source, target):
        x, best = self.factor, self.zero
        up, down = (
            self._labels(v, along, up=up)
            for v, along, up in ((source, x.out, True), (target, x.back, False))
        )
        core = computed(x.plan, x.core)
        for v in range(x.structure.fringe):
            best = self.algebra.add(best, self.algebra.mul(up[v], down[v]))
        for i, j in np.ndindex(core.shape):
            fringe = x.structure.fringe
            through = self.algebra.mul(up[fringe + i], core[i, j])
            best = self.algebra.add(best, self.algebra.mul(through, down[fringe + j]))
        return np.asarray(best).item()

    def route(self, source, target):
        return self.meet(source, target), None


def rise_and_fall(dtype, far, fields):
    x = SimpleNamespace(**fields)
    n, label, place = x.fringe + x.core, x.label, x.place
    lists = [
        {int(p): d for p, d in zip(place[v], label[v], strict=True) if p != NOWHERE}
        for v in range(n)
    ]

    def merge(u, other, w):
        for p, d in list(other.items()) if w != far else ():
            lists[u][p] = min(lists[u].get(p, d + w), d + w)

    edges = [(v, e) for v in range(x.fringe) for e in range(x.first[v], x.first[v + 1])]
    for v, e in edges:
        merge(x.head[e], lists[v], x.out[e])
    before = [dict(some) for some in lists[x.fringe :]]
    for i, j in np.ndindex(x.core, x.core):
        merge(x.fringe + j, before[i], x.matrix[i, j])
    for v, e in reversed(edges):
        merge(v, lists[x.head[e]], x.back[e])
    for v, some in enumerate(lists):
        label[v], place[v] = far, NOWHERE
        best = sorted((d, p) for p, d in some.items())[: x.k]
        for r, (d, p) in enumerate(best):
            label[v, r], place[v, r] = d, p


nearest = SimpleNamespace(rise_and_fall=rise_and_fall)


# --- forests ------------------------------------------------------------------------------------


def root(parent, v):
    while parent[v] != v:
        v = parent[v]
    return v


def kruskal(x):
    lines = {v: ([v], []) for v in range(x.n)}  # nodes, and the edges between them
    for e, ends in enumerate(zip(x.row.tolist(), x.col.tolist(), strict=True)):
        u, v = (root(x.parent, y) for y in ends)
        if u != v:
            x.parent[v] = u
            nodes, edges = lines.pop(v)
            lines[u] = lines[u][0] + nodes, [*lines[u][1], e, *edges]
    x.order[:] = [v for nodes, _ in lines.values() for v in nodes]
    x.gap[:] = [e for _, edges in lines.values() for e in [*edges, -1]]


def grow(x):
    while True:
        best, known = {}, {}
        for i in np.flatnonzero(x.near >= 0).tolist():
            some = best if x.group[x.near[i]] != x.group[i] else known
            c = int(x.group[i])
            some[c] = min(some.get(c, (1 << 63, 0)), (int(x.key[i]), i))
        before = int(x.state[0])
        for c, (key, i) in sorted(best.items()):
            u, v = root(x.parent, c), root(x.parent, int(x.group[x.near[i]]))
            if u != v and known.get(c, (key,))[0] >= key:
                x.parent[v] = u
                x.joined[x.state[0]] = i
                x.state[0] += 1
        if x.state[0] == before:
            break
        x.group[:] = [root(x.parent, v) for v in x.group]
    again = []
    if x.state[0] < x.n - 1:
        inside = [i for i in np.flatnonzero(x.near >= 0) if x.group[x.near[i]] == x.group[i]]
        fresh = {}
        for i in np.flatnonzero(x.near >= 0).tolist():
            if i not in inside:
                c = int(x.group[i])
                fresh[c] = min(fresh.get(c, 1 << 63), int(x.key[i]))
        again = [i for i in inside if x.key[i] < fresh.get(int(x.group[i]), 1 << 63)]
    x.state[1] = len(again)
    x.rows[: len(again)] = again


def preorder(x):
    near, places = ranges(x.first, x.near[: x.first[-1]]), []

    def visit(v, up):
        place = len(places)
        x.above[v] = x.up[place] = up
        places.append(v)
        for (u,) in near[v]:
            if x.above[u] == -2:
                visit(u, place)
        x.order[place], x.last[place] = v, len(places)

    for v in range(x.n):
        if x.above[v] == -2:
            visit(v, -1)


forest = family(grow, kruskal, preorder)


# --- searches -----------------------------------------------------------------------------------


def lists(plan, fields):
    x = SimpleNamespace(**fields)
    arcs = list(zip(x.row.tolist(), x.col.tolist(), x.given, strict=True))
    arcs += [(v, u, w) for u, v, w in arcs] if x.both else []
    arcs.sort(key=lambda arc: arc[0])
    x.first[:] = np.searchsorted([arc[0] for arc in arcs], np.arange(x.n + 1))
    x.head[:] = [arc[1] for arc in arcs]
    x.weight[:] = [arc[2] for arc in arcs]


def search(plan, zero, one, fields):
    x, algebra = SimpleNamespace(**fields), Algebra(plan)
    arcs = ranges(x.first, x.head, np.arange(len(x.head)))
    for i, source in enumerate(x.source.tolist()):
        label, left = np.full(x.n, zero, x.weight.dtype), set(range(x.n))
        pred = np.full(x.n, NONE, np.int32)
        label[source] = one
        while left:
            best = next(iter(left))
            for v in left:
                best = v if algebra.better(label[v], label[best]) else best
            left.remove(best)
            for u, e in arcs[best] if label[best] != zero else ():
                through = algebra.mul(label[best], x.weight[e])
                if algebra.better(through, label[u]):
                    label[u], pred[u] = through, best
        x.label[i] = label
        if x.pred is not None:
            x.pred[i] = pred


searches = SimpleNamespace(lists=lists, search=search)


def settle(x):
    for label in x.d:
        for _ in range(x.n):
            for v, arcs in enumerate(ranges(x.first, x.head, x.weight)):
                for u, w in arcs:
                    label[u] = min(label[u], label[v] + w)


def order(x):
    arcs = ranges(x.first, x.head, x.weight)
    for i, source in enumerate(x.source.tolist()):
        line, pred, slot, group = x.order[i], x.pred[i], x.slot[i], x.group[i]

        def put(u, before, line=line, pred=pred, slot=slot, group=group):
            pred[u] = before
            line[slot[group[u]]] = u
            slot[group[u]] += 1

        put(source, source)
        for v in line:  # which grows meanwhile
            if v < 0:
                break
            for u, w in arcs[v]:
                if pred[u] < 0 and x.d[i, v] + w == x.d[i, u]:
                    put(u, v)


def dependencies(fields, *, late):
    x = SimpleNamespace(**fields)
    out = ranges(x.first, x.head, x.weight)
    back = ranges(x.back_first, x.tail, x.back_weight, x.edge)
    for i, source in enumerate(x.source.tolist()):
        d, sigma, line = x.d[i], x.sigma[i], [v for v in x.order[i].tolist() if v >= 0]
        sigma[source] = 1
        for v in line:
            sigma[v] += sigma[x.pred[i, v]] if late and v != source else 0
            for u, w in out[v]:
                if d[v] + w == d[u] and not (late and x.pred[i, u] == v):
                    sigma[u] += sigma[v]
        for u in reversed(line):
            for v, w, e in back[u]:
                if d[v] + w == d[u]:
                    x.share[i, e] = sigma[v] * ((x.delta[i, u] + 1) / sigma[u])
                    x.delta[i, v] += x.share[i, e]


orders = SimpleNamespace(**vars(family(settle, order)), dependencies=dependencies)


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
