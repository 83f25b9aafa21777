"""A third engine: the contract of :mod:`semiring_mm.engine` in NumPy, slow and plain.

Numbers are computed in float64, an integer's "no edge" as an infinity, one k after the other.
"""

import contextlib
import functools

import numpy as np

from semiring_mm.engine import JOIN, PLAIN
from semiring_mm.expressions import evaluate
from semiring_mm.plan import Facts, infinite_zero, overflow

xp = np
HOST, WHERE = True, " in the plain engine"
TILE, BASE, LEAF, LOOK, BATCH, SPARSE, PANEL, ROWS = 8, 4, 4, 1, 0, False, 8, 11
align = chains = eliminate = trees = select = Screen = Sieve = apply = None
unit_rows = log_shares = HopSearches = FactorSweeps = Customizer = None
scratch = np.empty


# --- the algebra on whole arrays ----------------------------------------------------------------


class Algebra:
    def __init__(self, semiring, dtype):
        self.semiring, self.dtype = semiring, dtype
        self.missing = infinite_zero(semiring, dtype)

    def decode(self, x):
        if self.dtype == bool:
            return np.array(x, bool)
        wide = np.array(x, np.float64)
        if self.missing is not None:
            wide[np.equal(x, self.missing)] = self.semiring.zero
        return wide

    def encode(self, x):
        with np.errstate(all="ignore"):
            if self.dtype.kind not in "iu":
                return x.astype(self.dtype)
            far = np.isinf(x)
            result = np.where(far, 0, x).astype(self.dtype)
            if not np.array_equal(result.astype(np.float64), np.where(far, 0, x)):
                raise overflow(self.semiring, self.dtype)
            info = np.iinfo(self.dtype)
            return np.where(far, np.where(x > 0, info.max, info.min), result).astype(self.dtype)

    def zero(self):
        return self.decode(self.semiring.identities(self.dtype)[0])

    def plus(self, x, y):
        return y if x is None else evaluate(self.semiring.add_expr, x, y)

    def times(self, x, y):
        product = evaluate(self.semiring.mul_expr, x, y)
        if self.missing is None:
            return product
        gone = (x == self.semiring.zero) | (y == self.semiring.zero)
        return np.where(gone, self.semiring.zero, product)

    def scale(self, factor, x):
        return x if factor is None else self.times(self.decode(np.asarray(factor, self.dtype)), x)

    def join(self, total, c, scaling):
        """C, once the product is there."""
        if scaling.accumulate:
            total = self.plus(total, self.scale(scaling.beta, self.decode(c)))
        c[...] = self.encode(np.broadcast_to(total, c.shape))


# --- the verbs ----------------------------------------------------------------------------------


def facts_beside(semiring, x, launch):
    return launch(), functools.partial(facts, semiring, x)


def facts(semiring, x):
    missing = infinite_zero(semiring, x.dtype)
    odd = x == missing if missing is not None else np.isnan(x) if x.dtype.kind == "f" else x != x
    rest = x[~odd]
    if not rest.size:
        return Facts(np.inf, -np.inf, bool(odd.any()))
    return Facts(rest.min().item(), rest.max().item(), bool(odd.any()))


def product(
    semiring, a, b, c, scaling=PLAIN, *, arg=None, gather=None, known=None, overlap="",
    triangle=False, precision=None, final=None, on_done=None,
):  # fmt: skip
    algebra = Algebra(semiring, a.dtype)
    x, y = algebra.scale(scaling.alpha, algebra.decode(a)), algebra.decode(b)
    keys = None if gather is None else gather.copy()
    total = algebra.decode(c) if gather is not None else None
    for k in range(a.shape[-1]):
        term = algebra.times(x[..., :, k, None], y[..., k, None, :])
        term = np.broadcast_to(term, c.shape)
        if arg is not None:
            better = np.less if semiring.add_kind == "min" else np.greater
            wins = np.full(c.shape, True) if total is None else better(term, total)
            arg[wins] = k if keys is None else np.broadcast_to(keys[k], c.shape)[wins]
        total = algebra.plus(total, term)
    algebra.join(total, c, PLAIN if gather is not None else scaling)
    assert final is None  # as there is no `apply`
    if on_done is not None:
        on_done(1.0)


def gemv(semiring, a, x, y, scaling=PLAIN, *, scale_x=False):
    algebra = Algebra(semiring, a.dtype)
    left, right, total = algebra.decode(a), algebra.decode(x), None
    if scale_x:
        right = algebra.scale(scaling.alpha, right)
    else:
        left = algebra.scale(scaling.alpha, left)
    for k in range(a.shape[-1]):
        total = algebra.plus(total, algebra.times(left[..., k], right[k]))
    algebra.join(total, y, scaling)


def csr_product(semiring, data, indices, indptr, b, c, scaling=PLAIN, *, trans=False):
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    _sparse_product(semiring, data, rows, indices, b, c, scaling, trans)


def dia_product(semiring, data, offsets, b, c, scaling=PLAIN, *, trans=False):
    rows, columns = c.shape[0], b.shape[0]
    shape = (columns, rows) if trans else (rows, columns)
    column = np.broadcast_to(np.arange(data.shape[1]), data.shape)
    row = column - offsets[:, None]
    inside = (row >= 0) & (row < shape[0]) & (column < shape[1])
    _sparse_product(semiring, data[inside], row[inside], column[inside], b, c, scaling, trans)


def _sparse_product(semiring, data, rows, columns, b, c, scaling, trans):
    algebra = Algebra(semiring, data.dtype)
    if trans:
        rows, columns = columns, rows
    entries = algebra.scale(scaling.alpha, algebra.decode(data))
    right, result = algebra.decode(b), c.copy()
    for i in range(c.shape[0]):
        total = None if (rows == i).sum() == b.shape[0] > 0 else algebra.zero()
        for e in np.flatnonzero(rows == i):
            total = algebra.plus(total, algebra.times(entries[e], right[columns[e]]))
        algebra.join(total, result[i], scaling)
    c[...] = result


def closure_block(semiring, a, known, predecessors=None):
    for k in range(a.shape[0]):
        row, column = a[k : k + 1].copy(), a[:, k : k + 1].copy()
        marks = None if predecessors is None else predecessors[k : k + 1].copy()
        product(semiring, column, row, a, JOIN, arg=predecessors, gather=marks)


def closure_batch(semiring, a, known, out, predecessors=None):
    return False


def doubtful(semiring, d, p):
    algebra = Algebra(semiring, d.dtype)
    found = []
    for i, (row, marks) in enumerate(zip(algebra.decode(d), p, strict=True)):
        for j, k in enumerate(marks):
            nearer = k >= 0 and row[k] != row[j] and algebra.plus(row[k], row[j]) == row[k]
            if k >= 0 and not nearer:
                found.append(i)
                break
    return np.array(found, np.int64)


def best_outside(semiring, a, group, rows, at, value):
    algebra = Algebra(semiring, a.dtype)
    for k, i in enumerate(rows):
        at[k], best = -1, algebra.zero()
        for j in np.flatnonzero(group != group[i]):
            entry = algebra.decode(a[i, j])
            if entry != best and algebra.plus(entry, best) == entry:
                at[k], best = j, entry
        value[k] = algebra.encode(best)


def between(semiring, gaps, place, rows, out):
    algebra = Algebra(semiring, gaps.dtype)
    one = algebra.decode(np.asarray(semiring.identities(gaps.dtype)[1]))
    for i, p in zip(rows, place[rows], strict=True):
        for j, q in enumerate(place):
            worst = one
            for gap in gaps[min(p, q) : max(p, q)]:
                worst = algebra.times(worst, algebra.decode(gap))
            out[list(rows).index(i), j] = algebra.encode(worst)


def towards(forest, rows, out):
    order, up, last = (x.tolist() for x in forest)
    out[...] = -9999
    for line, i in zip(out, rows, strict=True):
        reached = [order.index(i)]
        for v in reached:  # a walk over the tree from the row's node
            near = [w for w in range(len(up)) if up[w] == v or up[v] == w]
            for w in near:
                if w not in reached:
                    line[order[w]] = order[v]
                    reached.append(w)
        assert set(reached) <= set(range(last[min(reached)]))


def symmetric(x):
    return np.array_equal(x, x.T)


def mirror(x):
    above = np.triu_indices(x.shape[0], 1)
    x.T[above] = x[above]


def from_host(x):
    return x


def to_host(x):
    return x


def why_not():
    return ""


def current():
    return -1


def count():
    return 1


def describe():
    return {"name": "NumPy"}


def free_memory():
    return None


def copy(x, to):
    to[...] = x


def fill(x, byte):
    x.view(np.uint8)[...] = byte
    return x


def on(index, stream=None, allocate=None):
    return contextlib.nullcontext()


def capturing():
    return False


def wait():
    pass


# --- packed bits --------------------------------------------------------------------------------


def pack_bits(x):
    return np.packbits(x, axis=-1)


def product_bits(semiring, a, b, c, n, accumulate=False):
    k = b.shape[-2]
    left, right, old = (
        np.unpackbits(x, axis=-1)[..., :size].astype(bool) for x, size in ((a, k), (b, n), (c, n))
    )
    product(semiring, left, right, old, JOIN if accumulate else PLAIN)
    c[...] = np.packbits(old, axis=-1)


def reduce_bits(rows, columns):
    left = np.unpackbits(rows, axis=-1)
    both, pivots = np.hstack([left, np.eye(len(left), dtype=np.uint8)]), np.full(columns, -1, "i4")
    for j in range(columns):
        there = [i for i in np.flatnonzero(both[:, j]) if i not in pivots]
        if there:
            pivots[j] = there[0]
            others = np.flatnonzero(both[:, j])
            both[others[others != there[0]]] ^= both[there[0]]
    sums = both[pivots, left.shape[1] :] * (pivots >= 0)[:, None]
    return np.packbits(sums.astype(np.uint8), axis=-1), pivots
