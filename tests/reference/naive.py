"""Every verb in plain NumPy, for one item of a batch: what the package's results must equal.

Of the package only the table of semirings is used. Arguments are named as in :mod:`reference.rows`.
"""

import functools
import itertools

import numpy as np

from . import ALGEBRAS, general, product, stored, terms, times, widen

INF = np.inf


# --- products -----------------------------------------------------------------------------------


def gemm(a, b, c=None, *, semiring="plus_times", alpha=None, beta=None, trans_a=0, trans_b=0):
    a, b = a.T if trans_a else a, b.T if trans_b else b
    if not a.shape[1]:  # only C is left
        a, b = (np.full(s, stored(semiring, ALGEBRAS[semiring].zero, a.dtype), a.dtype)
                for s in ((len(a), 1), (1, b.shape[1])))  # fmt: skip
        alpha = None
    return general(semiring, alpha, a, b, None if c is None else beta, c)


def gemv(a, x, y=None, *, trans=False, **options):
    y = None if y is None else y[:, np.newaxis]
    return gemm(a, x[:, np.newaxis], y, trans_a=trans, **options)[:, 0]


def matmul(a, b, *, semiring="plus_times", return_arg=False):
    c = product(semiring, a, b)
    if not return_arg:
        return c
    best = np.argmin if ALGEBRAS[semiring].add is np.minimum else np.argmax
    return c, best(terms(semiring, a, b), axis=0).astype(np.int32)  # the first; NaN before all


def matrix_power(a, *, k, semiring="plus_times"):
    return functools.reduce(lambda c, _: product(semiring, c, a), range(k), identity(semiring, a))


def identity(semiring, a):
    algebra, n = ALGEBRAS[semiring], a.shape[-1]
    values = [stored(semiring, v, a.dtype) for v in (algebra.one, algebra.zero)]
    return np.where(np.eye(n, dtype=bool), *values).astype(a.dtype)


def einsum(*operands, subscripts, semiring="plus_times"):
    """⊕ over the values of all indices of ⊗ over the operands, from left to right."""
    inputs, output = subscripts.split("->")
    letters = sorted(set(inputs) - {","})
    sizes = {c: n for term, x in zip(inputs.split(","), operands, strict=True)
             for c, n in zip(term, x.shape, strict=True)}  # fmt: skip
    algebra, dtype = ALGEBRAS[semiring], operands[0].dtype
    zero = stored(semiring, algebra.zero, dtype)
    found = np.full([sizes[c] for c in output], zero, dtype)
    reached = set()
    for values in itertools.product(*(range(sizes[c]) for c in letters)):
        at = dict(zip(letters, values, strict=True))
        factors = (widen(semiring, np.asarray(x[tuple(at[c] for c in term)]))
                   for term, x in zip(inputs.split(","), operands, strict=True))  # fmt: skip
        value = functools.reduce(lambda p, q: times(semiring, p, q, dtype), factors)
        place = tuple(at[c] for c in output)
        if place in reached:
            value = algebra.add(widen(semiring, np.asarray(found[place])), value)
        reached.add(place)
        infinite = dtype.kind in "iu" and np.isinf(value)
        found[place] = stored(semiring, float(value), dtype) if infinite else value
    return found


# --- chains and models of sequences -------------------------------------------------------------


def steps_of(a, emissions, lengths, semiring):
    """The matrices of the steps: A ⊗ diag(e) each."""
    count = a.shape[0] if emissions is None else len(emissions)
    count = count if lengths is None else int(lengths)
    found = []
    for t in range(count):
        m = a[min(t, len(a) - 1)]
        if emissions is not None:
            columns = [product(semiring, m[:, [j]], emissions[t][[j], np.newaxis])
                       for j in range(len(m))]  # fmt: skip
            m = np.concatenate([*columns, m[:, :0]], 1)
        found.append(m)
    return found


def scan(a, emissions=None, x=None, lengths=None, *, semiring="plus_times", reverse=False,
         inclusive=True):  # fmt: skip
    """All prefixes, or suffixes, one product after the other; the zero behind the end."""
    matrices = steps_of(a, emissions, lengths, semiring)
    now = None if x is None else (x[:, np.newaxis] if reverse else x[np.newaxis])
    first = identity(semiring, a) if x is None else now
    found = {}
    places = range(len(matrices))
    for t in reversed(places) if reverse else places:
        before, m = now, matrices[t]
        now = m if now is None else product(semiring, *((m, now) if reverse else (now, m)))
        found[t] = now if inclusive else (first if before is None else before)
    size = a.shape[0] if emissions is None else len(emissions)
    shape = (size, *a.shape[1:]) if x is None else (size, len(x))
    out = np.full(shape, stored(semiring, ALGEBRAS[semiring].zero, a.dtype), a.dtype)
    for t, value in found.items():
        out[t] = value.reshape(shape[1:])
    return out


def chain(a, emissions=None, x=None, lengths=None, *, semiring="plus_times", reverse=False):
    matrices = steps_of(a, emissions, lengths, semiring)
    if x is None:
        return functools.reduce(functools.partial(product, semiring), matrices,
                                identity(semiring, a))  # fmt: skip
    if reverse:
        return functools.reduce(
            lambda v, m: product(semiring, m, v), reversed(matrices), x[:, np.newaxis]
        )[:, 0]
    return functools.reduce(lambda v, m: product(semiring, v, m), matrices, x[np.newaxis])[0]


class Paths:
    """All sequences of states of a model, and their scores, one by one."""

    def __init__(self, emissions, transitions, start=None, end=None, lengths=None):
        self.steps, states = emissions.shape
        self.n = self.steps if lengths is None else int(lengths)
        self.states = states
        self.paths = list(itertools.product(range(states), repeat=self.n))
        each = transitions.ndim > 2
        self.pairs = transitions.shape[0] if each else 1
        e, a = emissions.astype(float), transitions.astype(float)
        self.scores = np.zeros(len(self.paths))
        for i, y in enumerate(self.paths if self.n else ()):
            terms = [e[t, s] for t, s in enumerate(y)]
            terms += [
                (a[min(t, len(a) - 1)] if each else a)[y[t], y[t + 1]] for t in range(self.n - 1)
            ]
            terms += [] if start is None else [float(start[y[0]])]
            terms += [] if end is None else [float(end[y[-1]])]
            self.scores[i] = sum(terms)
        self.total = np.logaddexp.reduce(self.scores)

    def path(self, i):
        return np.array([*self.paths[i], *[-1] * (self.steps - self.n)], np.int32)


def viterbi(emissions, transitions, start=None, end=None, lengths=None, *, k=None):
    """Sequences by their scores, of equals that of the first states from the end; -1: none."""
    m = Paths(emissions, transitions, start, end, lengths)
    if k is None:
        equal = np.flatnonzero(m.scores == m.scores.max())
        return m.path(min(equal, key=lambda i: m.paths[i][::-1])), m.scores.max()
    order = [i for i in np.argsort(-m.scores, kind="stable")[:k] if m.scores[i] > -INF]
    paths, scores = np.full((k, m.steps), -1, np.int32), np.full(k, -INF)
    for row, i in enumerate(order):
        paths[row], scores[row] = m.path(i), m.scores[i]
    return paths, scores


def log_partition(*model, **named):
    return Paths(*model, **named).total


def marginals(emissions, transitions, start=None, end=None, lengths=None, *, pairs=False):
    m = Paths(emissions, transitions, start, end, lengths)
    states = np.zeros((m.steps, m.states))
    each = transitions.ndim > 2
    both = np.zeros((m.pairs, m.states, m.states))
    for y, p in zip(m.paths, np.exp(m.scores - m.total), strict=True):
        for t, s in enumerate(y):
            states[t, s] += p
            if t:
                both[min(t - 1, m.pairs - 1), y[t - 1], s] += p
    return (states, both if each else both[0]) if pairs else states


def forward(emissions, transitions, start=None, lengths=None):
    """The sums over all beginnings, each of them the paths of a shorter model."""
    found = np.full(emissions.shape, -INF)
    for t in range(emissions.shape[0] if lengths is None else int(lengths)):
        m = Paths(emissions[: t + 1], transitions, start)
        for s in range(m.states):
            ends = [x for y, x in zip(m.paths, m.scores, strict=True) if y[-1] == s]
            found[t, s] = np.logaddexp.reduce(ends)
    return found


def backward(emissions, transitions, end=None, lengths=None):
    count = emissions.shape[0] if lengths is None else int(lengths)
    found = np.full(emissions.shape, -INF)
    for t in range(count):
        each = transitions.ndim > 2 and len(transitions) > 1
        m = Paths(emissions[t:count], transitions[t:] if each else transitions, None, end)
        for s in range(m.states):
            starts = [x for y, x in zip(m.paths, m.scores, strict=True) if y[0] == s]
            found[t, s] = np.logaddexp.reduce(starts) - float(emissions[t, s])
    return found


def score(emissions, transitions, tags, start=None, end=None, lengths=None):
    m = Paths(emissions, transitions, start, end, lengths)
    return m.scores[m.paths.index(tuple(tags[: m.n].tolist()))]


def crf_loss(emissions, transitions, tags, start=None, end=None, lengths=None):
    """The loss; its gradients are compared with differences."""
    model = emissions, transitions
    total = log_partition(*model, start, end, lengths)
    return total - score(*model, tags, start, end, lengths)


# --- graphs -------------------------------------------------------------------------------------


def closure(a, *, semiring, sources=None, targets=None):
    """Paths of ever more edges, until nothing is better."""
    add = ALGEBRAS[semiring].add
    wide, unit = widen(semiring, a), widen(semiring, identity(semiring, a))
    found = add(wide, unit)
    for _ in range(len(a)):
        longer = [times(semiring, found[:, [k]], wide[[k]], a.dtype) for k in range(len(a))]
        found = functools.reduce(add, longer, found)
    rows = slice(None) if sources is None else list(sources)
    columns = slice(None) if targets is None else list(targets)
    found = found[rows][:, columns]
    infinite = np.isinf(found)
    out = np.where(infinite, 0, found).astype(a.dtype)
    for sign in (INF, -INF):
        out[found == sign] = stored(semiring, sign, a.dtype)
    return out


def apsp(graph, *, sources=None, targets=None, **_):
    return closure(graph, semiring="min_plus", sources=sources, targets=targets)


# --- alignment ----------------------------------------------------------------------------------


def dtw(x, y, first=None, second=None, *, cost="absolute", band=None):
    """The table of dynamic time warping, cell by cell."""
    x, y = (v if n is None else v[: int(n)] for v, n in ((x, first), (y, second)))
    d = np.full((len(x) + 1, len(y) + 1), INF)
    d[0, 0] = 0
    for i, j in itertools.product(range(1, len(x) + 1), range(1, len(y) + 1)):
        if band is None or abs(i - j) <= band:
            gap = np.abs(x[i - 1] - y[j - 1])
            own = np.sum(gap if cost == "absolute" else gap * gap)
            d[i, j] = own + np.minimum(np.minimum(d[i - 1, j], d[i, j - 1]), d[i - 1, j - 1])
    return d[-1, -1].astype("f4" if x.dtype == "f4" else "f8")


def aligned(
    x, y, *, match=1, mismatch=-1, gap=-1, gap_open=0, matrix=None, band=None, local=False,
    free_ends=(),
):  # fmt: skip
    """The best score: every length of every gap is tried, cell by cell."""
    names = {free_ends} if isinstance(free_ends, str) else {*free_ends}

    def free(axis, end):
        return bool({axis, f"{axis}_{end}"} & names)

    d = np.full((len(x) + 1, len(y) + 1), -INF)
    for i, j in itertools.product(range(len(x) + 1), range(len(y) + 1)):
        if band is not None and abs(i - j) > band:
            continue
        start = i == j == 0 or (not j and free("x", "start")) or (not i and free("y", "start"))
        best = [0.0] if local or start else []
        if i and j:
            same = match if x[i - 1] == y[j - 1] else mismatch
            own = same if matrix is None else matrix[x[i - 1], y[j - 1]]
            best.append(d[i - 1, j - 1] + own)
        best += [d[i - k, j] + gap_open + k * gap for k in range(1, i + 1)
                 if band is None or abs(i - k - j) <= band]  # fmt: skip
        best += [d[i, j - k] + gap_open + k * gap for k in range(1, j + 1)
                 if band is None or abs(j - k - i) <= band]  # fmt: skip
        d[i, j] = max(best)
    if local:
        return d.max()
    last = [d[:, -1]] * free("x", "end") + [d[-1]] * free("y", "end")
    return np.concatenate([*last, d[-1, -1:]]).max()


needleman_wunsch = aligned
smith_waterman = functools.partial(aligned, local=True)


def edit_distance(x, y, *, band=None, free_ends=()):
    found = -aligned(x, y, match=0, band=band, free_ends=free_ends)
    return -1 if np.isinf(found) else int(found)


# --- distances ----------------------------------------------------------------------------------

#: Of the gaps, the rows and the weights; sums run along the last axis.
METRICS = {
    "cityblock": lambda x, y, w: (w * abs(x - y)).sum(-1),
    "euclidean": lambda x, y, w: np.sqrt((w * (x - y) ** 2).sum(-1)),
    "sqeuclidean": lambda x, y, w: (w * (x - y) ** 2).sum(-1),
    "chebyshev": lambda x, y, w: ((w > 0) * abs(x - y)).max(-1, initial=0),
    "hamming": lambda x, y, w: (w * (x != y)).sum(-1) / w.sum(),
    "canberra": lambda x, y, w: (w * np.nan_to_num(abs(x - y) / (abs(x) + abs(y)))).sum(-1),
    "braycurtis": lambda x, y, w: (w * abs(x - y)).sum(-1) / (w * abs(x + y)).sum(-1),
    "correlation": lambda x, y, w: METRICS["cosine"](
        x - ((w * x).sum(-1) / w.sum())[..., None], y - ((w * y).sum(-1) / w.sum())[..., None], w
    ),
    "cosine": lambda x, y, w: 1 - (w * x * y).sum(-1)
    / np.sqrt((w * x * x).sum(-1) * (w * y * y).sum(-1)),
}  # fmt: skip


def cdist(X, Y, *, metric, p=2, w=None):
    x, y = X.astype(float)[:, np.newaxis], Y.astype(float)[np.newaxis]
    w = np.ones(x.shape[-1]) if w is None else np.asarray(w)
    with np.errstate(all="ignore"):
        if metric == "minkowski":
            return ((w * abs(x - y) ** p).sum(-1)) ** (1 / p)
        return METRICS[metric](x, y, w)


def knn(X, Y, *, k, **metric):
    d = cdist(X, Y, **metric)
    order = np.argsort(d, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(d, order, 1), order


def argbest(X, Y, **metric):
    d, i = knn(X, Y, k=1, **metric)
    return d[:, 0], i[:, 0]


def radius_count(X, Y, *, r, **metric):
    return (cdist(X, Y, **metric) <= r).sum(1)


# --- truth values modulo 2 ----------------------------------------------------------------------


def row_reduce(a):
    """The reduced row echelon form."""
    a, row = a.copy(), 0
    for column in range(a.shape[1]):
        there = np.flatnonzero(a[row:, column])
        if len(there):
            a[[row, row + there[0]]] = a[[row + there[0], row]]
            others = np.flatnonzero(a[:, column])
            a[others[others != row]] ^= a[row]
            row += 1
    return a


def rank(a):
    return int(row_reduce(a).any(1).sum())


def det(a):
    return int(rank(a) == len(a))
