"""All-pairs shortest paths, and closures over any idempotent semiring."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..blas import _check_device, matmul
from ..cpu import engine, threads
from ..cpu.base import BASE
from ..cpu.engine import Facts
from ..expressions import evaluate
from ..semirings import Semiring, as_semiring, semirings
from .inputs import adjacency, check_memory, edge_list, is_symmetric, symmetrize
from .kleene import Closure
from .paths import NO_PREDECESSOR, NegativeCycleError, find_negative_cycle
from .progress import Progress, reporter
from .sparse import dense_pairs, solve, solve_edges
from .trees import mend

__all__ = ["apsp", "closure"]

Array = NDArray[Any]
Tick = Callable[[float], None] | None


def apsp(
    graph: Any,
    *,
    method: str = "auto",
    directed: bool | None = None,
    return_predecessors: bool = False,
    sources: Any = None,
    max_hops: int | None = None,
    overwrite: bool = False,
    device: str | None = None,
    progress: Progress = None,
) -> Any:
    """All-pairs shortest paths.

    Parameters
    ----------
    graph : array_like, SciPy sparse matrix, NetworkX graph, semiring_mm.files.Graph, or path
        A dense (n, n) matrix holds edge weights, inf (in an integer dtype its largest value) where
        there is no edge; a 0 diagonal is implied. A (b, n, n) array is a batch of graphs. For
        other kinds see :func:`adjacency`.
    method : {"auto", "floyd_warshall", "squaring", "sparse"}
        ``"floyd_warshall"``: Kleene's elimination in blocks, n³ steps. ``"squaring"``: repeated
        min-plus squaring, at most ⌈log₂ n⌉ products, fewer if nothing changes any more.
        ``"sparse"``: elimination of vertices and a sweep from each source, for graphs with small
        separators such as road networks. ``"auto"`` takes the last if it is the faster for a graph
        with few edges, squaring if `max_hops` asks for it, and else the first.
    directed : bool, optional
        False reads every edge both ways. Default: what the graph says; a matrix that is symmetric
        is found to be undirected, which halves the work.
    return_predecessors : bool, default False
        Also return the predecessor matrix.
    sources : int or sequence of int, optional
        Only paths from these nodes: the result has a row for each. NetworkX graphs take node
        labels.
    max_hops : int, optional
        Only paths of at most this many edges.
    overwrite : bool, default False
        Use the memory of `graph`, a dense matrix, for the result.
    device : {None, "cpu"}
    progress : bool or callable, optional
        True shows a line on the terminal for work over a second; a callable is called with
        (pairs done, pairs in all), and may raise to stop the work.

    Returns
    -------
    distances : ndarray, shape (n, n), (sources, n) or (b, n, n)
        In the dtype of a dense input; float64 for other graphs unless their weights are float32.
    predecessors : ndarray of int32
        Only with `return_predecessors`. ``P[i, j]`` is the node before `j` on a shortest path from
        `i`; -9999 if there is none, and on the diagonal. See :func:`reconstruct_path`.

    Raises
    ------
    NegativeCycleError
        With the cycle in it.
    MemoryError
        Before any work, if the matrix does not fit in memory.
    OverflowError
        If an integer distance does not fit the dtype.

    Notes
    -----
    Negative weights and cycles of weight zero are welcome. n³ pairs, or n³/2 undirected; in place
    but for one copy of the input. Floyd (1962), Warshall (1962), Kleene (1956); the blocked form
    after Park, Penner and Prasanna (2004).

    ``"sparse"`` takes n·f pairs, f being the edges after an elimination by minimum degree: O(n) for
    bounded treewidth, O(n log n) for planar graphs with the best order. There is no n × n matrix
    beside the result, and with `sources` none at all. Planken, de Weerdt and van der Krogt (2012);
    the sweeps after Delling, Goldberg, Nowatzyk and Werneck (2013).

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> inf = np.inf
    >>> W = np.array([[0, 3, 8], [inf, 0, 1], [2, inf, 0]])
    >>> D, P = sm.apsp(W, return_predecessors=True)
    >>> D
    array([[0., 3., 4.],
           [3., 0., 1.],
           [2., 5., 0.]])
    >>> sm.reconstruct_path(P, 0, 2)
    [0, 1, 2]
    """
    if method not in ("auto", "floyd_warshall", "squaring", "sparse"):
        raise ValueError(
            f"method is 'auto', 'floyd_warshall', 'squaring' or 'sparse', got {method!r}"
        )
    if max_hops is not None:
        max_hops = _index(max_hops, "max_hops")
        if max_hops < 0:
            raise ValueError(f"max_hops must be at least 0, got {max_hops}")
        if return_predecessors:
            raise ValueError(
                "max_hops: shortest paths of limited length do not form trees, so one predecessor "
                "a node cannot describe them; leave out return_predecessors"
            )
        if method in ("floyd_warshall", "sparse"):
            raise ValueError("max_hops needs method='squaring' (or 'auto')")
    s = semirings["min_plus"]
    return _solve(
        s, graph, method, directed, return_predecessors, sources, max_hops, overwrite, device,
        progress,
    )  # fmt: skip


def closure(
    a: Any,
    semiring: str | Semiring = "max_min",
    *,
    return_predecessors: bool = False,
    directed: bool | None = None,
    overwrite: bool = False,
    device: str | None = None,
    progress: Progress = None,
) -> Any:
    """The closure ``A* = I ⊕ A ⊕ A² ⊕ …``: the best path between every two nodes.

    Widest paths over max_min, minimax over min_max, most reliable over max_times, reachability
    over lor_land (dtype bool, 32 columns to a word), shortest over min_plus.

    Parameters
    ----------
    a : array_like of shape (n, n) or (b, n, n), or any graph that :func:`adjacency` takes
        The semiring's zero means no edge.
    semiring : str or Semiring, default "max_min"
        With an idempotent ⊕.
    return_predecessors, directed, overwrite, device, progress
        As for :func:`apsp`.

    Returns
    -------
    closure : ndarray
        ``one`` on the diagonal.
    predecessors : ndarray of int32
        Only with `return_predecessors` (⊕ must choose one of its operands: min, max, or).

    Raises
    ------
    ValueError
        If ⊕ is not idempotent, or a cycle improves itself (over min_plus as
        :class:`NegativeCycleError`), so that no closure exists.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> A = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    >>> sm.closure(A, "lor_land").astype(int)
    array([[1, 1, 1],
           [0, 1, 1],
           [0, 0, 1]])
    """
    s = as_semiring(semiring)
    if not s.idempotent:
        raise ValueError(
            f"a closure needs an idempotent ⊕ (a ⊕ a = a), and {s.name} has ⊕ = {s.add}; "
            f"use matrix_power for a fixed number of steps"
        )
    return _solve(
        s, a, "auto", directed, return_predecessors, None, None, overwrite, device, progress
    )


def _solve(
    s: Semiring,
    graph: Any,
    method: str,
    directed: bool | None,
    return_predecessors: bool,
    sources: Any,
    max_hops: int | None,
    overwrite: bool,
    device: str | None,
    progress: Progress,
) -> Any:
    _check_device(device)
    reporter(progress, 1.0)  # the argument's own errors come first
    dense = isinstance(graph, (np.ndarray, list, tuple)) or (
        hasattr(graph, "__array__") and not hasattr(graph, "tocoo") and not hasattr(graph, "edges")
    )
    if overwrite and not isinstance(graph, np.ndarray):
        raise ValueError(
            f"overwrite=True needs a NumPy array to overwrite, got {type(graph).__name__}"
        )
    if isinstance(graph, np.ma.MaskedArray):
        raise TypeError(f"the graph is a masked array: use graph.filled({s.zero:g})")
    if dense and np.ndim(graph) == 3:
        if sources is not None or max_hops is not None:
            raise ValueError("sources and max_hops are for one graph, not for a batch")
        return _batch(s, np.asarray(graph), directed, return_predecessors, overwrite, progress)
    sparse = s.name == "min_plus" and max_hops is None and method in ("auto", "sparse")
    given = graph
    if sparse and not dense and (edges := edge_list(graph, directed=directed)) is not None:
        graph, nodes = edges, edges.nodes
        rows = None if sources is None else _sources(sources, nodes, len(nodes), given)
        solved = solve_edges(edges, method, rows, return_predecessors, progress)
        if solved is not None:
            return solved if return_predecessors else solved[0]
    original: Array | None = None
    if dense and overwrite:
        if not graph.flags.writeable:
            raise ValueError("overwrite=True: the array is read-only")
        _check_graph_array(graph)
        d, nodes = graph, list(range(graph.shape[0]))
        if directed is False:
            symmetrize(s, d)
    else:
        d, nodes = adjacency(graph, s, directed=directed)
        original = graph if isinstance(graph, np.ndarray) and directed is not False else None
    n = d.shape[0]
    if d.dtype.kind not in "biuf" and d.dtype.name != "bfloat16":
        raise TypeError(f"a graph's weights are real numbers, got dtype {d.dtype}")
    if return_predecessors and not (s.selective or d.dtype.kind == "b"):
        raise ValueError(
            f"return_predecessors needs a semiring whose ⊕ chooses one of its operands; {s.name} "
            f"has ⊕ = {s.add}"
        )
    rows = None if sources is None else _sources(sources, nodes, n, given)
    extra = n * n * 4 if return_predecessors and rows is None else 0
    if method == "squaring" and rows is None:
        extra += 2 * n * n * d.dtype.itemsize
    check_memory(extra, f"the work beside the {n} x {n} matrix")
    labels = nodes if not dense else None
    run = _Run(s, d, original, labels)

    def work() -> tuple[Array, NDArray[np.int32] | None]:
        if sparse and dense:
            solved = run.sparse(method, rows, return_predecessors, progress)
            if solved is not None:
                return solved
        if rows is not None:
            return run.rows(rows, max_hops, return_predecessors, progress)
        if max_hops is not None:
            return run.hops(max_hops, progress), None
        if method == "squaring":
            return run.squaring(return_predecessors, progress)
        undirected = directed is False or (
            directed is None and not return_predecessors and is_symmetric(d)
        )
        return run.elimination(return_predecessors, undirected, progress)

    try:
        try:
            result = work()
        except _Rounding as rounding:
            run.lift(rounding.potentials)
            result = work()
            run.lower(rounding.potentials, result[0], rows)
    finally:
        run.close()
    distances, predecessors = result
    if run.back is not None:
        distances = run.restore(distances, graph if overwrite else None)
    return (distances, predecessors) if return_predecessors else distances


def _check_graph_array(x: Array) -> None:
    if x.ndim != 2 or x.shape[0] != x.shape[1]:
        raise ValueError(f"a graph's matrix is square, got shape {x.shape}")


def _index(value: Any, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None


def _sources(sources: Any, nodes: list[Any], n: int, graph: Any) -> NDArray[np.int64]:
    named = hasattr(graph, "edges")
    chosen = [sources] if np.ndim(sources) == 0 else list(sources)
    if named:
        index = {node: i for i, node in enumerate(nodes)}
        missing = [x for x in chosen if x not in index]
        if missing:
            raise ValueError(f"sources: {missing[0]!r} is not a node of the graph")
        return np.array([index[x] for x in chosen], np.int64)
    rows = np.array([_index(x, "sources") for x in chosen], np.int64)
    if ((rows < 0) | (rows >= n)).any():
        bad = int(rows[(rows < 0) | (rows >= n)][0])
        raise ValueError(f"sources: there is no node {bad}, they are 0 to {n - 1}")
    return rows


class _Rounding(Exception):
    """A cycle of weight zero came out a little better than none; again, with these potentials."""

    def __init__(self, potentials: NDArray[np.float64]) -> None:
        super().__init__()
        self.potentials = potentials


class _Run:
    """One computation on the matrix `d`, which it overwrites."""

    def __init__(
        self, s: Semiring, d: Array, original: Array | None, labels: list[Any] | None
    ) -> None:
        self.s, self.d, self.labels = s, d, labels
        self.n = d.shape[0]
        self.back: np.dtype[Any] | None = None  # the dtype to return to
        self.original = original
        facts = engine.facts(s, d)
        self._refuse_nan(facts)
        self._widen(facts)
        self.zero, self.one = s.identities(self.d.dtype)
        diagonal = np.arange(self.n)
        loops = self.d[diagonal, diagonal]
        improving = s.add_kind in ("min", "max") and s.mul_expr.op == "+"
        lowest = facts.lo if s.add_kind == "min" else -facts.hi
        if improving and lowest < 0 and self.original is None:
            self.original = self.d.copy()  # to name a cycle that improves itself
        self.d[diagonal, diagonal] = evaluate(s.add_expr, loops, self.one)
        self.known = self._known(facts)

    def _refuse_nan(self, facts: Facts) -> None:
        if self.d.dtype.kind != "f" or not self.n:
            return
        if facts.special or engine.facts(self.s, self.d).special:
            i, j = np.argwhere(np.isnan(self.d))[0]
            raise ValueError(f"the weight at [{i}, {j}] is NaN; use {self.s.zero:g} for no edge")
        worst = -self.s.zero
        if self.s.mul_expr.op == "+" and math.isinf(worst) and worst in (facts.lo, facts.hi):
            i, j = np.argwhere(self.d == worst)[0]
            raise ValueError(
                f"the weight at [{i}, {j}] is {worst}; use {self.s.zero:g} for no edge"
            )

    def _widen(self, facts: Facts) -> None:
        """Move integers to a type in which no path's weight can overflow."""
        dtype, s = self.d.dtype, self.s
        if dtype.kind not in "iu" or s.order_only:
            return
        if s.mul_expr.op != "+" or not s.selective:
            raise TypeError(
                f"a closure over {s.name} multiplies along paths, and integers would overflow; "
                f"use float32 or float64"
            )
        largest = max(abs(facts.lo), abs(facts.hi)) if facts.lo <= facts.hi else 0
        reach = (self.n + 1) * largest
        if reach <= 1 << (8 * dtype.itemsize - 5) and dtype.kind == "i":
            return
        if reach > 1 << 58:
            raise OverflowError(
                f"{s.name}: {self.n} weights of up to {largest} may add up to more than 64 bits "
                f"hold; use float64"
            )
        missing = self.d == s.identities(dtype)[0]
        wide = self.d.astype(np.int64)
        wide[missing] = s.identities(np.int64)[0]
        self.d, self.back = wide, dtype

    def restore(self, distances: Array, out: Array | None) -> Array:
        """Bring integers back to the input's dtype, if they fit."""
        assert self.back is not None
        info = np.iinfo(self.back)
        missing = distances == self.zero
        finite = distances[~missing]
        inside = self.s.zero > 0
        lowest, highest = info.min + (not inside), info.max - inside
        if finite.size and not (lowest <= finite.min() and finite.max() <= highest):
            raise OverflowError(
                f"a distance of {finite.min() if finite.min() < lowest else finite.max()} does "
                f"not fit {self.back}; use int64"
            )
        result = distances.astype(self.back)
        result[missing] = self.s.identities(self.back)[0]
        if out is None:
            return result
        out[...] = result
        return out

    def _known(self, facts: Facts) -> tuple[Facts, Facts, Facts] | None:
        """Ranges that stay true of all entries through the whole computation."""
        s, dtype = self.s, self.d.dtype
        if dtype.kind in "iu" and not s.order_only:
            unit = 1 << (8 * dtype.itemsize - 4)
            limit = Facts(-unit, unit, True)
            return limit, limit, limit
        if dtype.kind == "f" or dtype.name == "bfloat16":
            lo, hi = min(facts.lo, self.s.one), max(facts.hi, self.s.one)
            if s.order_only:
                whole = Facts(-math.inf, math.inf, False)
            elif s.mul_expr.op == "+" and s.selective:
                largest = max((abs(x) for x in (lo, hi) if math.isfinite(x)), default=0.0)
                highest = float(np.finfo(dtype).max) if dtype.kind == "f" else 3e38
                if (self.n + 1) * largest > highest:
                    return None
                whole = Facts(lo, math.inf, False) if s.zero > 0 else Facts(-math.inf, hi, False)
            else:
                return None
            return whole, whole, whole
        return None

    def _predecessors(self, rows: NDArray[np.int64] | None = None) -> NDArray[np.int32]:
        n = self.n
        index = np.arange(n) if rows is None else rows
        p = np.empty((len(index), n), np.int32)
        for first in range(0, len(index), 256):  # a block at a time: no second matrix
            part = index[first : first + 256]
            block = p[first : first + 256]
            block[...] = part[:, np.newaxis]
            block[self.d[part] == self.zero] = NO_PREDECESSOR
            block[np.arange(len(part)), part] = NO_PREDECESSOR
        return p

    def improved(self, first: int, diagonal: Array) -> NoReturn:
        """A diagonal entry got better than one: name the cycle, or say that it was rounding.

        Rounding is not passed over: in an elimination what it lets a cycle gain doubles at every
        step that goes around once more.
        """
        s = self.s
        at = first + int(np.flatnonzero(diagonal != self.one)[0])
        if s.mul_expr.op == "+" and s.selective and self.original is not None:
            w = self.original
            row, col = np.nonzero(w != s.identities(w.dtype)[0])
            sign = 1 if s.add_kind == "min" else -1
            weight = sign * w[row, col].astype(np.float64)
            rounding = 0.0 if w.dtype.kind in "iu" else _epsilon(w.dtype)
            found = find_negative_cycle(row, col, weight, self.n, rounding)
            if isinstance(found, tuple):
                cycle, total = found
                if s.name == "min_plus":
                    raise NegativeCycleError(cycle, total, self.labels)
                raise ValueError(
                    f"{s.name}: the cycle {' → '.join(map(str, [*cycle, cycle[0]]))} of weight "
                    f"{sign * total:g} improves itself, so no closure exists"
                )
            if rounding:
                raise _Rounding(sign * found)
        value = diagonal[at - first]
        if value != value:
            raise ValueError(
                f"{s.name}: paths through node {at} leave the range of {self.d.dtype}; a closure "
                f"needs weights of which no cycle is better than one = {s.one:g}"
            )
        raise ValueError(
            f"{s.name}: a cycle through node {at} improves itself (its value "
            f"{value:g} is better than one = {s.one:g}), so no closure exists"
        )

    def sparse(
        self,
        method: str,
        rows: NDArray[np.int64] | None,
        predecessors: bool,
        progress: Progress,
    ) -> tuple[Array, NDArray[np.int32] | None] | None:
        """Distances by sparse elimination, or None where it would be slower."""
        d, n = self.d, self.n
        there = d != self.zero
        pairs = dense_pairs(n, np.count_nonzero(there) - n, method, rows)
        if not pairs:
            return None
        np.fill_diagonal(there, d.diagonal() != self.one)
        row, col = np.nonzero(there)
        del there
        small = {"i": np.int32, "f": np.float32, "V": np.float32}[d.dtype.kind]
        weight = d[row, col].astype(d.dtype if d.dtype.itemsize >= 4 else small)
        whole = rows is None and weight.dtype == d.dtype and d.strides[1] == d.itemsize
        solved = solve(
            n, row, col, weight, sources=rows, trees=predecessors, pairs=pairs,
            out=d if whole else None, labels=self.labels, progress=progress,
        )  # fmt: skip
        if solved is None or whole:
            return solved
        distances, p = solved
        narrow = distances.astype(d.dtype)
        narrow[distances == semirings["min_plus"].identities(distances.dtype)[0]] = self.zero
        if rows is not None:
            return narrow, p
        d[...] = narrow
        return d, p

    def elimination(
        self, predecessors: bool, symmetric: bool, progress: Progress
    ) -> tuple[Array, NDArray[np.int32] | None]:
        n = float(self.n)
        if predecessors and self.d.dtype.kind == "b":
            return self._bool_predecessors(progress)
        p = self._predecessors() if predecessors else None
        tick = reporter(progress, n**3 / 2 if symmetric else n**3)
        Closure(self.s, self.known, self.one, self.improved, tick).run(
            self.d, p, symmetric=symmetric
        )
        if tick is not None:
            tick(n**3)
        if p is not None:
            mend(self.s, self.d, p)
        return self.d, p

    def _bool_predecessors(self, progress: Progress) -> tuple[Array, NDArray[np.int32]]:
        """Truth values as 0 and 1 under max and min, where one k wins."""
        numbers = _Run(semirings["max_min"], self.d.astype(np.uint8), None, self.labels)
        numbers.zero, numbers.one = np.uint8(0), np.uint8(1)
        diagonal = np.arange(self.n)
        numbers.d[diagonal, diagonal] = 1
        result, p = numbers.elimination(True, False, progress)
        self.d[...] = result != 0
        assert p is not None
        return self.d, p

    def squaring(
        self, predecessors: bool, progress: Progress
    ) -> tuple[Array, NDArray[np.int32] | None]:
        n = self.n
        p = self._predecessors() if predecessors else None
        steps = max(1, math.ceil(math.log2(max(n - 1, 1))) + 1)
        tick = reporter(progress, steps * float(n) ** 3)
        d = self.d
        for step in range(steps):
            following = d.copy()
            marks = None if p is None else p.copy()
            before = step * float(n) ** 3
            engine.product(
                self.s, d, d, following, accumulate=True, known=self.known, arg=marks, gather=p,
                on_done=None if tick is None else functools.partial(_add, tick, before, n**3),
            )  # fmt: skip
            diagonal = following.diagonal()
            if not (diagonal == self.one).all():
                self.improved(0, diagonal)
            same = np.array_equal(following, d)
            d, p = following, marks
            if same:
                break
        if tick is not None:
            tick(math.inf)
        self.d[...] = d
        if p is not None:
            mend(self.s, self.d, p)
        return self.d, p

    def hops(self, limit: int, progress: Progress) -> Array:
        """Distances over at most `limit` edges: a power of the matrix with one on its diagonal."""
        result: Array | None = None
        square = self.d
        steps = max(1, limit.bit_length() + limit.bit_count() - 1)
        tick = reporter(progress, float(steps))
        done = 0
        if limit == 0:
            result = np.full_like(self.d, self.zero)
            np.fill_diagonal(result, self.one)
        while limit:
            if limit & 1:
                result = square.copy() if result is None else matmul(result, square, self.s)
                done += 1
            limit >>= 1
            if limit:
                square = matmul(square, square, self.s)
                done += 1
            if tick is not None:
                tick(float(done))
        assert result is not None
        diagonal = result.diagonal()
        if not (diagonal == self.one).all():
            self.improved(0, diagonal)
        self.d[...] = result
        return self.d

    def rows(
        self, rows: NDArray[np.int64], limit: int | None, predecessors: bool, progress: Progress
    ) -> tuple[Array, NDArray[np.int32] | None]:
        """Paths from some nodes: rounds of Bellman and Ford for all of them at once.

        After as many rounds as the elimination of the whole matrix would cost, that is done
        instead; so the work is at most twice the cheaper of the two.
        """
        n = self.n
        x = self.d[rows]
        if limit == 0:
            x[...] = self.zero
            x[np.arange(len(rows)), rows] = self.one
            return x, None
        p = self._predecessors(rows) if predecessors else None
        worth = limit - 1 if limit is not None else max(4, n // max(1, len(rows)))
        tick = reporter(progress, float(max(1, worth)))
        for step in range(worth):
            following = x.copy()
            arg = None if p is None else p.copy()
            engine.product(self.s, x, self.d, following, accumulate=True, known=self.known, arg=arg)
            own = following[np.arange(len(rows)), rows]
            if not (own == self.one).all():
                self.improved(int(rows[np.flatnonzero(own != self.one)[0]]), own)
            same = np.array_equal(following, x)
            x, p = following, arg
            if tick is not None:
                tick(float(step + 1))
            if same:
                break
        else:
            if limit is None:
                whole, trees = self.elimination(predecessors, False, None)
                return whole[rows], None if trees is None else trees[rows]
        if p is not None:
            mend(self.s, x, p, rows, self.d)
        return x, p

    def lift(self, potentials: NDArray[np.float64]) -> None:
        """Begin again with weights of one sign: no path's order changes by potentials (Johnson)."""
        assert self.original is not None
        end = np.minimum if self.s.zero < 0 else np.maximum
        for i, row in enumerate(self.original):
            self.d[i] = end(row.astype(np.float64) + potentials[i] - potentials, 0)
        np.fill_diagonal(self.d, self.one)
        self.known = self._known(engine.facts(self.s, self.d))

    def lower(
        self, potentials: NDArray[np.float64], d: Array, rows: NDArray[np.int64] | None
    ) -> None:
        """Take the potentials off the distances again."""
        for i, start in enumerate(range(self.n) if rows is None else rows.tolist()):
            d[i] = d[i].astype(np.float64) - potentials[start] + potentials

    def close(self) -> None:
        self.original = None


def _epsilon(dtype: np.dtype[Any]) -> float:
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else 2.0**-7


def _add(tick: Callable[[float], None], before: float, pairs: float, part: float) -> None:
    tick(before + part * pairs)


def _batch(
    s: Semiring,
    graphs: Array,
    directed: bool | None,
    return_predecessors: bool,
    overwrite: bool,
    progress: Progress,
) -> Any:
    """Many graphs, each a matrix of its own; small ones spread over the threads."""
    b, n = graphs.shape[:2]
    if graphs.shape[1] != graphs.shape[2]:
        raise ValueError(f"a batch of graphs has shape (b, n, n), got {graphs.shape}")
    d = graphs if overwrite else graphs.copy()
    p = np.empty(d.shape, np.int32) if return_predecessors else None
    tick = reporter(progress, float(b))

    def one(i: int) -> None:
        solved = _solve(
            s, d[i], "auto", directed, return_predecessors, None, None, True, None, None
        )
        if p is not None:
            p[i] = solved[1]

    def some(first: int, last: int) -> None:
        for i in range(first, last):
            one(i)

    if n > 4 * BASE:
        for i in range(b):
            one(i)
            if tick is not None:
                tick(float(i + 1))
    elif b:
        cuts = np.linspace(0, b, min(b, 8 * threads.get_num_threads()) + 1).astype(int).tolist()
        ends: Sequence[int] = cuts[1:]
        threads.run(
            [functools.partial(some, i, j) for i, j in zip(cuts, ends, strict=False)],
            None if tick is None else (lambda k: tick(float(cuts[k]))),
        )
    return (d, p) if return_predecessors else d
