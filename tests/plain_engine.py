"""A third engine: the contract of :mod:`semiring_mm.engine` in NumPy, slow and plain.

Numbers are computed in float64, an integer's "no edge" as an infinity, one k after the other.
"""

import contextlib
import functools
import itertools

import numpy as np
import plain_graphs

from semiring_mm.engine import JOIN, PLAIN
from semiring_mm.expressions import evaluate
from semiring_mm.plan import Facts, infinite_zero, overflow

xp = np
HOST, WHERE = True, " in the plain engine"
TILE, BASE, LEAF, LOOK, BATCH, SPARSE, PANEL, ROWS = 8, 4, 4, 1, 8, False, 8, 11
rows, HopSearches = plain_graphs.rows, plain_graphs.HopSearches
FactorSweeps = ReverseSweeps = Customizer = HopDependencies = edit_rows = None
compiled = plain_graphs.compiled
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


def facts_later(semiring, x):
    return functools.partial(facts, semiring, x)


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
    if final is not None:
        apply(final[0], c, final[1])
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
    if predecessors is not None or a.dtype.kind in "iu" or not semiring.idempotent:
        return False
    zero, one = semiring.identities(a.dtype)
    for x, closed in zip(*(v.reshape(-1, *v.shape[-2:]) for v in (a, out)), strict=True):
        unit = np.where(np.eye(len(x), dtype=bool), one, zero).astype(x.dtype)
        closed[...] = evaluate(semiring.add_expr, unit, x)
        closure_block(semiring, closed, None)
    return True


def eliminate(semiring, d, p, steps, known, one, improves, tick):
    if len(d) % 2:  # the steps one by one are to be seen, too
        return False
    closure_block(semiring, d, known, p)
    if any(step.kind == "look" for step in steps.steps):
        for node in np.flatnonzero(d.diagonal() != one):
            improves(node, d[node, node])
    if tick is not None:
        tick(steps.pairs)
    return True


class trees:
    def predecessors(semiring, weights, closed, p, known):
        algebra = Algebra(semiring, closed.dtype)
        *_, n, _ = closed.shape
        zero, nodes = algebra.zero(), np.arange(n)
        for w, d, out in zip(*(x.reshape(-1, n, n) for x in (weights, closed, p)), strict=True):
            through = algebra.times(algebra.decode(d)[:, :, None], algebra.decode(w))
            tight = (through == algebra.decode(d)[:, None]) & (algebra.decode(w) != zero)
            tight[:, nodes, nodes] = False
            out[...] = np.where(tight.any(1), tight.argmax(1), -9999)
            out[nodes, nodes] = -9999
        return np.ones(closed.shape[:-1], np.uint8)  # whether they are trees is not known

    def splits(semiring, dtype, n):
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
    return contextlib.ExitStack()


def capturing():
    return False


def wait():
    pass


# --- calls that come again: none is prepared ----------------------------------------------------


class calls:
    def repeat(head, operands, out=None, dtype=""):
        return None

    def prepared(head, semiring, a, b, out=None, scaling=None, final=None):
        return None

    def recorded():
        return contextlib.nullcontext()

    def learn(notes, head, operands, out, given, arrays, result, holds=None):
        pass


# --- entry by entry, and rows ---------------------------------------------------------------------


def apply(expr, x, other):
    with np.errstate(all="ignore"):
        x[...] = evaluate(expr, x, other)


def unit_rows(x):
    with np.errstate(all="ignore"):
        return x / np.sqrt((x * x).sum(1, keepdims=True))


def log_shares(g, a, b, c, left, right):
    with np.errstate(invalid="ignore"):
        shares = np.exp(a[..., :, :, None] + b[..., None, :, :] - c[..., :, None, :])
    shares = np.where(c[..., :, None, :] == -np.inf, 0, shares) * g[..., :, None, :]
    if left is not None:
        left[...] = shares.sum(-1)
    if right is not None:
        right[...] = shares.sum(-3)


# --- the nearest rows ----------------------------------------------------------------------------


class select:
    MOST, FEW = 1000, 0

    def empty(rows, k, dtype):
        worst = np.nan if dtype.kind == "f" else np.iinfo(dtype).max
        return np.full((rows, k), worst, dtype), np.full((rows, k), np.iinfo(np.int64).max)

    def room_of(m, n, k, dtype):
        return max(1, min(m, 5)), max(1, min(n, 7))

    def run(tasks):
        for task in tasks:
            task()

    def put(value, index, tile, base):
        values = np.hstack([value, tile.astype(value.dtype)])
        numbers = np.hstack([index, np.broadcast_to(base + np.arange(tile.shape[1]), tile.shape)])
        best = np.lexsort((numbers, values))[:, : value.shape[1]]  # NaN is behind all others
        value[...] = np.take_along_axis(values, best, 1)
        index[...] = np.take_along_axis(numbers, best, 1)

    def finish(value, index):
        pass


class Screen:
    dtype = np.dtype(np.float64)

    def __init__(self, x, y, range_):
        self.x, self.y = x, y

    def put(self, rows, columns, tile, value, index):
        gaps = self.x[rows, None] - self.y[columns]
        select.put(value, index, (gaps * gaps).sum(-1), columns.start)
        return 0

    def search(self, value, index, fill):
        return None


class Sieve:
    def __init__(self, algebra, x, y, final):
        self.given = algebra, x, y.T
        self.final = final

    def search(self, value, index):
        tile = np.empty((len(value), self.given[2].shape[1]), value.dtype)
        product(*self.given, tile, final=self.final)
        select.put(value, index, tile, 0)
        return np.empty(0, np.int64)


class bit_rows:
    MOST = 1000

    def distances(metric, columns, x, y, out):
        common = np.bitwise_count(x[:, None] & y).sum(-1, dtype=float)
        p, q = (np.bitwise_count(v).sum(-1, dtype=float) for v in (x, y))
        both = p[:, None] + q
        with np.errstate(all="ignore"):
            if metric == "hamming":
                out[...] = (both - 2 * common) / columns
            elif metric == "jaccard":
                out[...] = (both - 2 * common) / (both - common)
            elif metric == "dice":
                out[...] = (both - 2 * common) / both
            elif metric == "cosine":
                mean = np.sqrt(p[:, None] * q)
                out[...] = np.where(mean > 0, (mean - common) / mean, 1)
            else:
                out[...] = -common
        if metric != "intersection":
            out[both == 0] = 0

    def nearest(metric, columns, x, y, k):
        bit_rows.distances(metric, columns, x, y, d := np.empty((len(x), len(y))))
        index = np.argsort(d, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(d, index, 1), index

    def within(metric, columns, x, y, radius, itself, lists):
        bit_rows.distances(metric, columns, x, y, d := np.empty((len(x), len(y))))
        near = np.triu(d <= radius, 1) if itself else d <= radius
        row, column = np.nonzero(near)
        return near.sum(1), [(row, column, d[near])] if lists else []


# --- sequences -----------------------------------------------------------------------------------


def joined(algebra, a, b):
    """A ⊗ B of decoded matrices."""
    terms = algebra.times(a[:, :, None], b)
    return functools.reduce(algebra.plus, (terms[:, k] for k in range(terms.shape[1])))


def sequences_of(a, e, x, end, b, length):
    """All sequences of states of a chain, in order, and the sum of the terms of each."""
    states = np.array(list(itertools.product(range(a.shape[-1]), repeat=length)))
    score = x[b, states[:, 0]] + end[b, states[:, -1]]
    for t in range(1, length):
        score = score + a[b, t - 1, states[:, t - 1], states[:, t]] + e[b, t, states[:, t]]
    return states, score


def chains_of(lengths):
    return [(b, int(length)) for b, length in enumerate(lengths) if length]


class chains:
    POINTERS, Model = (), None

    def carry(semiring, a, e, x, y, lengths, *, every, reverse, exclusive):
        algebra = Algebra(semiring, a.dtype)
        for b, length in chains_of(lengths):
            now = None if x is None else algebra.decode(x[b])
            for step in range(length - exclusive):
                at = length - 1 - step if reverse else step
                matrix = algebra.decode(a[b, at])
                if e is not None:
                    matrix = algebra.times(matrix, algebra.decode(e[b, at]))
                matrix = matrix.T if reverse else matrix
                now = matrix if now is None else joined(algebra, now, matrix)
                if every or step == length - exclusive - 1:
                    place = at - exclusive if reverse else at + exclusive
                    y[b, place if every else 0] = algebra.encode(now)

    def first(start, e):
        return start + e

    def best_path(semiring, a, e, x, end, path, score, lengths, *, symbols=None):
        e, sign = e if symbols is None else e[symbols], 1 if semiring.add_kind == "max" else -1
        for b, length in chains_of(lengths):
            states, scores = sequences_of(a, e, x, end, b, length)
            best = (sign * scores).argmax()
            path[b, :length], score[b] = states[best], scores[best]

    def best_paths(semiring, a, e, x, end, paths, scores, lengths):
        for b, length in chains_of(lengths):
            states, found = sequences_of(a, e, x, end, b, length)
            best = np.argsort(-found, kind="stable")[: paths.shape[1]]
            best = best[found[best] > -np.inf]
            paths[b, : len(best), :length], scores[b, : len(best)] = states[best], found[best]

    def draw(a, e, x, end, uniforms, paths, lengths):
        for b, length in chains_of(lengths):
            rows = [x[b]]
            for t in range(1, length):
                rows.append(np.logaddexp.reduce(rows[-1][:, None] + a[b, t - 1], 0) + e[b, t])
            for uniform, path in zip(uniforms[:, b], paths[:, b], strict=True):
                behind = end[b]
                for t in reversed(range(length)):
                    sums = np.exp(rows[t] + behind - (rows[t] + behind).max()).cumsum()
                    path[t] = np.argmax(sums > uniform[t] * sums[-1])
                    behind = a[b, t - 1, :, path[t]]

    def posterior(a, e, x, end, total, out, pairs, lengths, *, symbols=None):
        e = e if symbols is None else e[symbols]
        for b, length in chains_of(lengths):
            states, scores = sequences_of(a, e, x, end, b, length)
            total[b] = np.logaddexp.reduce(scores)
            shares, steps = np.exp(scores - total[b]), np.arange(length)
            if out is not None:
                out[b, :length] = 0
                np.add.at(out[b], (steps, states), shares[:, None])
            if pairs is not None:
                places = (0 if pairs.shape[1] == 1 else steps[:-1], states[:, :-1], states[:, 1:])
                np.add.at(pairs[b], places, shares[:, None])


def align(rule, x, y, band, gaps, table, *, keep, tick=None):
    opening, extending, equal, other = gaps
    costs = np.empty(len(x.starts), rule.dtype)
    opening = opening if rule.affine else 0
    for pair in range(len(costs)):
        p, q = (s.entries[s.starts[pair] : s.starts[pair] + s.lengths[pair]] for s in (x, y))
        d = np.full((len(p) + 1, len(q) + 1), np.inf)
        up, left = d.copy(), d.copy()
        for i, j in np.ndindex(d.shape):
            if band is not None and abs(i - j) > band:
                continue
            if not i or not j:
                gap = (i + j) * extending + opening if i + j else 0.0
                free = rule.local or rule.ends & (1 if i else 4)
                d[i, j] = 0 if free else np.inf if rule.warp and i + j else gap
                continue
            step = p[i - 1] - q[j - 1] if rule.warp else p[i - 1] == q[j - 1]
            if rule.cost == "table":
                step = table[p[i - 1], q[j - 1]]
            elif rule.cost == "equal":
                step = equal if step else other
            else:
                step = np.sum(np.abs(step) if rule.cost == "absolute" else step * step)
            if rule.warp:
                d[i, j] = step + min(d[i - 1, j], d[i, j - 1], d[i - 1, j - 1])
                continue
            up[i, j] = min(d[i - 1, j] + opening, up[i - 1, j]) + extending
            left[i, j] = min(d[i, j - 1] + opening, left[i, j - 1]) + extending
            d[i, j] = min(up[i, j], left[i, j], d[i - 1, j - 1] + step, 0 if rule.local else np.inf)
        costs[pair] = d.min() if rule.local else d[-1, -1]
        if rule.ends:
            last = d[:, -1] if rule.ends & 2 else np.inf, d[-1] if rule.ends & 8 else np.inf
            costs[pair] = min(d[-1, -1], *map(np.min, last))
        if tick is not None:
            tick((pair + 1) / len(costs))
    if not keep:
        return costs, None
    (i, j), path = (len(p), len(q)), []
    while i and j:
        path.append((i - 1, j - 1))
        before = d[i - 1, j - 1], d[i - 1, j], d[i, j - 1]
        i, j = [(i - 1, j - 1), (i - 1, j), (i, j - 1)][int(np.argmin(before))]
    return costs, np.array(path[::-1], np.int64).reshape(-1, 2)


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
