"""Distances between all rows of two matrices, and the nearest rows without that matrix.

Both are the product X ⊗ Yᵀ over a metric. :func:`cdist` keeps it whole; the others look at one
tile at a time, while it is in a cache.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import bit_rows, pool
from . import engine as engines
from . import expressions as ex
from .arrays import Call, check_memory
from .bits import BitMatrix
from .engine import PLAIN, Known, Screen, Sieve
from .metrics import (
    ALSO,
    BIT_METRICS,
    BUILT_IN,
    BuiltIn,
    Metric,
    as_metric,
    centred,
    known_in_both,
    on_sphere,
    weighted,
)  # fmt: skip
from .naming import integer, listing, optional
from .plan import Facts, needs_facts
from .products import check_out, overlaps
from .semirings import Semiring, semirings
from .verb import Verb

__all__ = ["Metric", "Within", "argbest", "cdist", "knn", "radius_count", "within"]
__dir__ = listing(__all__)

Array = Any

#: The operands of all functions here, with a point in each row.
POINTS = Verb("points", "X MK, Y NK")
_FEWER = "take fewer rows at a time"  # where there is too little memory
_WIDE = 8  # coordinates from which Euclidean distances are screened
_FAR = 1e150  # the largest range of these, and the inverse of the smallest
_CANDIDATES = 1 / 16  # the share of a tile up to which that pays
_ORDER = semirings["min_max"]
_WITHIN = ex.parse("a <= b")
_ROOT = ex.parse("sqrt(a)")
# 1 - x·y of unit vectors is |x - y|² / 2, by which neighbours are screened on a device
_CHORDS = BuiltIn("cosine", "(a - b) * (a - b)", final="min(a / 2, 2)", unit=True)
_HEAD, _HEADS = 256, 16  # columns, and times k, that fill the heaps before others are screened
_TILES = 8  # times as many, from which a screen repays what it prepares
# work, of an entry its columns and _ENTRY, below which a second thread costs more than it brings
_ALONE, _ENTRY = 1 << 20, 16
_SIEVED = 1 << 28  # distances from which a sieve repays its copies and passes
_MANY = 8192  # points, of which a device repays copies (_Pairs.lay_by_coordinates)
_SHORT = 8  # of k: the columns that a thread has at least, or few rows are not shared by columns
_OF_NUMBERS = {x.name: x for x in BUILT_IN if x.name not in BIT_METRICS}
_OF_BITS = {*BIT_METRICS, *(name for name, own in ALSO.items() if own in BIT_METRICS)}
_PLANTED = 1 << 22  # distances from which SciPy's tree repays that it is built and asked, by
_ASKED = 512  # so many rows at least
_FLAT = 3  # coordinates up to which it does
_PROPOSED, _AGAIN = 1 / 64, 1 / 512  # the share of its rows that it proposes, and if asked again
_NEAR = 1 / 32  # the share of all pairs up to which near ones are found in it
_STRIP, _FOUND = 4096, 1 << 16  # rows that it is asked for together, and pairs that these have
_POLE = 1.572  # the largest latitude in radians, and what 16 bits round
_POWERS = 1000  # below which logarithms of sums of powers are in the range of its floats
_EXACT = 1 << 24  # integers below are exact in float32
_ALIGNED = 16  # bytes, of which each row of a tile begins at a multiple


def cdist(
    X: ArrayLike | BitMatrix,
    Y: ArrayLike | BitMatrix,
    metric: str | Metric = "euclidean",
    *,
    p: float = 2,
    w: ArrayLike | None = None,
    missing: float | None = None,
    out: Any = None,
    device: str | None = None,
) -> Any:
    """Distances between all rows of two matrices, as :func:`scipy.spatial.distance.cdist`.

    Parameters
    ----------
    X : array_like or BitMatrix, shape (m, k)
        A point in each row. Any strides.
    Y : array_like or BitMatrix, shape (n, k)
        The other points.
    metric : str or Metric, default "euclidean"
        ``"cityblock"`` (or ``"l1"``, ``"manhattan"``), ``"euclidean"`` (``"l2"``),
        ``"sqeuclidean"``, ``"chebyshev"`` (``"linf"``), ``"minkowski"``, ``"hamming"``,
        ``"canberra"``, ``"braycurtis"``, ``"cosine"``, ``"correlation"``, ``"jaccard"``
        (``"tanimoto"``), ``"dice"``, ``"haversine"``, of rows of bits ``"intersection"``, or a
        :class:`Metric`.
    p : float, default 2
        Of Minkowski's metric, the p-norm of the difference. Others do not read it.
    w : array_like, shape (k,), optional
        Weights of the coordinates, finite and not negative.
    missing : float, optional
        Of ``"hamming"``: a number, or NaN, that stands for no value. The fraction is that of the
        coordinates that both rows have; NaN where there are none.
    out : array, shape (m, n), optional
        Where to put the result.
    device : {None, "cpu", "cuda", "cuda:N"}
        As for :func:`semiring_mm.matmul`.

    Returns
    -------
    ndarray, shape (m, n)
        float32 for operands in float32 or 16-bit floats, else float64. Of ``"intersection"`` how
        many bits are in both rows.

    Raises
    ------
    ValueError
        For shapes that do not match, weights that are negative or not finite, and names that
        stand for no metric.
    TypeError
        For dtypes that are neither real numbers nor bool.

    Notes
    -----
    O(m·n·k) in blocks for the caches, on all threads. Differences are taken before they are
    squared, so near points far from the origin keep their digits.

    Results are SciPy's to rounding, with these differences: float32 stays float32; NaN makes every
    distance NaN, Chebyshev's too (hamming only compares, and NaN differs from all). Where a
    coordinate is 0 in both points, it adds 0 to ``"canberra"``; ``"cosine"`` of a zero vector and
    ``"braycurtis"`` of two are NaN.

    Weights multiply what pairs of coordinates add, after their difference is taken: weighted sums
    of small integers are exact. That takes copies of twice the size of X and Y. Of ``"cosine"``
    their roots multiply the coordinates; ``"chebyshev"`` leaves out coordinates of weight 0.

    ``"haversine"`` is the angle between places on a sphere, rows (latitude, longitude), all in
    radians: times 6,371,000 a distance on the Earth in metres. It is that of the chord between unit
    vectors, wrong by a nanometre in float64, of opposite places by up to 20 cm; by a metre in
    float32, and some kilometres.

    Rows of bits, a :class:`semiring_mm.BitMatrix` or arrays of bool, have the metrics
    ``"hamming"``, ``"jaccard"``, ``"dice"``, ``"cosine"`` and ``"intersection"``, whose whole
    numbers are population counts: O(m·n·k / 512) instructions where a vector has 512 bits. They
    are never NaN: two rows without bits are equal, at 0, and by Jaccard, Dice and cosine such a
    row is at 1 from all others.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> sm.neighbours.cdist(np.array([[0, 0], [3, 4]]), np.array([[0, 0], [6, 8]]))
    array([[ 0., 10.],
           [ 5.,  5.]])
    >>> sm.neighbours.cdist([[0, 0]], [[3, 4]], "l1", w=[1, 10])
    array([[43.]])
    >>> bits = sm.BitMatrix.pack(np.array([[1, 1, 0, 1], [0, 1, 0, 1]]))
    >>> sm.neighbours.cdist(bits, bits, "jaccard")
    array([[0.        , 0.33333333],
           [0.33333333, 0.        ]])
    """
    metric = _chosen("cdist", metric, p, w, missing, X, Y)
    if isinstance(metric, str):
        return bit_rows.cdist(metric, X, Y, out, device)
    if device is w is None:
        found = _again(metric, X, Y, out)
        if found is not None:
            return found
    with Call(device, out, X=X, Y=Y, w=w) as call:
        engine = call.engine
        pairs = _Pairs("cdist", call, metric)
        m, n = pairs.shape
        target = call.out
        if target is not None:
            check_out(target, (m, n), pairs.dtype)
        if target is None or overlaps(engine.xp, target, call["X"], call["Y"]):
            check_memory(
                m * n * pairs.dtype.itemsize,
                f"a matrix of {m} × {n} distances",
                engine,
                bit_rows.FEWER,
            )
            target = engine.xp.empty((m, n), pairs.dtype)

        def block(i: int, j: int, start: int, end: int) -> None:
            # what is done with a tile after its product is done while it is in a cache
            for first, last in _cut(end - start, width if pairs.passes else max(n, 1), start):
                pairs.distances(slice(i, j), slice(first, last), target[i:j, first:last])

        if engine.HOST:
            size, width = pairs.tiles(1)
            _run(pairs, block, size)
        else:
            pairs.lay_by_coordinates()
            pairs.distances(slice(0, m), slice(0, n), target)
        if call.out is not None and target is not call.out:
            call.out[...] = target
            target = call.out
        return call.give(target)


def knn(
    X: ArrayLike | BitMatrix,
    Y: ArrayLike | BitMatrix | None = None,
    k: int | None = None,
    metric: str | Metric = "euclidean",
    *,
    p: float = 2,
    w: ArrayLike | None = None,
    missing: float | None = None,
    device: str | None = None,
) -> Any:
    """The k rows of Y that are nearest to each row of X.

    Parameters
    ----------
    X : array_like or BitMatrix, shape (m, columns)
        The queries, one in each row.
    Y : array_like or BitMatrix, shape (n, columns), optional
        The points among which the nearest are found. Without it the other rows of X.
    k : int
        From 1 to n, or without Y to m - 1; on a device at most 1,024.
    metric, p, w, missing, device
        As for :func:`cdist`.

    Returns
    -------
    distances : ndarray, shape (m, k)
        Ascending in each row, but descending numbers of ``"intersection"``; NaN after all numbers.
    indices : ndarray of int64, shape (m, k)
        Rows of Y. Of equally near rows the lower comes first.

    Raises
    ------
    ValueError
        If k is larger than n, or on a device larger than 1,024; and as :func:`cdist`.

    Notes
    -----
    O(m·n·(columns + log k)) at worst; on points in random order few reach the log k. The matrix of
    distances is never in memory: a tile of it is compared with the k-th best of each row, which is
    the root of a heap. Besides the results it takes a megabyte or two for each thread.

    Euclidean neighbours without weights, among many points of eight columns or more, are found in
    two steps: a product in float32 excludes the points that it puts beyond the k-th best by more
    than its error bound, and the squared distances of the rest are summed up directly. That takes
    a copy of operands in float64, or far from the origin, and changes no bit of the result on the
    CPU; on a device the product is one of tensor cores in float16 or TF32, with its own bound, and
    sums may differ in the last bit. There ``"cosine"`` is half of the squared distance of unit
    vectors, and screened, too.

    Among many points of up to three columns, by euclidean, sqeuclidean, cityblock, chebyshev,
    haversine, or minkowski with p from 1 on, without weights on the CPU, SciPy's k-d tree proposes
    neighbours where SciPy is installed, in O((m + n) log n) for points that are not all equally
    near. Results are the same to the last bit: distances are summed up directly, and where those
    beyond the k-th are not farther for sure, all points are looked at. It needs memory as three
    copies of Y.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> points = np.array([[0.0], [1.0], [5.0], [1.0]])
    >>> distances, indices = sm.neighbours.knn(np.array([[1.5]]), points, k=3)
    >>> distances, indices
    (array([[0.5, 0.5, 1.5]]), array([[1, 3, 0]]))
    """
    if k is None:
        raise TypeError("knn: k, how many rows are wanted, is missing: knn(X, Y, k)")
    if Y is not None:
        return _k_nearest("knn", X, Y, k, metric, p, w, missing, device)
    count = integer(k, "knn: k")
    with Call(device, None, X=X.bits if type(X) is BitMatrix else X) as call:
        n, xp = len(call["X"]), call.engine.xp
        if not 1 <= count < n:
            raise ValueError(
                f"knn: k is from 1 to the {max(n - 1, 0)} other rows that each of {n} has, got {k}"
            )
        distances, indices = _k_nearest(
            "knn", X, X, count + 1, metric, p, w, missing, device
        )  # fmt: skip
    with Call(device, None, distances=distances, indices=indices) as call:
        return call.give(without_itself(xp, call["distances"], call["indices"]))


def without_itself(xp: Any, distances: Array, indices: Array) -> tuple[Array, Array]:
    """The nearest rows of a set to each of it without that one, of one more than are wanted."""
    others = indices != xp.arange(len(indices))[:, None]
    others[others.all(1), -1] = False  # as near as others of lower numbers
    return tuple(x[others].reshape(len(x), -1) for x in (distances, indices))


def k_least(distances: Array, k: int) -> tuple[Array, Array]:
    """The k least of each row of distances on the host, floats, with their columns."""
    (m, n), select = distances.shape, engines.named("cpu").select
    value, index = select.empty(m, k, distances.dtype)

    def block(i: int, j: int) -> None:
        select.put(value[i:j], index[i:j], np.ascontiguousarray(distances[i:j]), 0)
        select.finish(value[i:j], index[i:j])

    select.run([
        functools.partial(block, *rows) for rows in _cut(m, select.room_of(m, n, k, value.dtype)[0])
    ])  # fmt: skip
    return value, index


def argbest(
    X: ArrayLike | BitMatrix,
    Y: ArrayLike | BitMatrix,
    metric: str | Metric = "euclidean",
    *,
    p: float = 2,
    w: ArrayLike | None = None,
    missing: float | None = None,
    device: str | None = None,
) -> Any:
    """The row of Y that is nearest to each row of X: :func:`knn` for k = 1.

    Parameters
    ----------
    X, Y, metric, p, w, missing, device
        As for :func:`knn`.

    Returns
    -------
    distances : ndarray, shape (m,)
    indices : ndarray of int64, shape (m,)
        The lowest of equally near rows.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> points = np.array([[3.0, 4.0], [9.0, 8.0]])
    >>> sm.neighbours.argbest(np.array([[0.0, 0.0], [9.0, 9.0]]), points)
    (array([5., 1.]), array([0, 1]))
    """
    distances, indices = _k_nearest("argbest", X, Y, 1, metric, p, w, missing, device)
    return distances[:, 0], indices[:, 0]


def radius_count(
    X: ArrayLike | BitMatrix,
    Y: ArrayLike | BitMatrix,
    r: float,
    metric: str | Metric = "euclidean",
    *,
    p: float = 2,
    w: ArrayLike | None = None,
    missing: float | None = None,
    device: str | None = None,
) -> Any:
    """How many rows of Y lie within a distance of each row of X.

    Parameters
    ----------
    X, Y : array_like, shapes (m, columns) and (n, columns)
    r : float
        The largest distance that counts; of ``"intersection"`` the least number of common bits.
    metric, p, w, missing, device
        As for :func:`knn`.

    Returns
    -------
    ndarray of int64, shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> sm.neighbours.radius_count(np.array([[0.0], [9.0]]), np.array([[1.0], [2.0], [3.0]]), 2)
    array([2, 0])
    """
    limit = check_radius("radius_count", r)
    metric = _chosen("radius_count", metric, p, w, missing, X, Y)
    if isinstance(metric, str):
        return bit_rows.count(metric, X, Y, limit, device)
    if device is w is None:
        squares = metric.final_expr == _ROOT
        found = _again(metric, X, Y, joined=squares)
        if found is not None:
            return _count(found, limit_of(limit, found.dtype, squares))
    with Call(device, None, X=X, Y=Y, w=w) as call:
        engine, xp = call.engine, call.engine.xp
        pairs = _Pairs("radius_count", call, metric)
        direct = pairs.final in (ex.A, _ROOT) and pairs.joined == pairs.dtype
        within = (_WITHIN, limit_of(limit, pairs.dtype, direct and pairs.final == _ROOT))
        counts: list[tuple[slice, Array]] = []
        size, width = pairs.tiles(1)
        tree = _tree(pairs)
        if tree is not None and tree.serves(limit := limit_of(limit, pairs.dtype)):
            return call.give(tree.count(limit))

        def block(i: int, j: int, start: int, end: int) -> None:
            tile = xp.empty((j - i, width), pairs.dtype)
            found = xp.zeros(j - i, np.int64)
            for first, last in _cut(end - start, width, start):
                d = tile[:, : last - first]
                if direct:
                    pairs.join(slice(i, j), slice(first, last), d, within)
                else:
                    pairs.distances(slice(i, j), slice(first, last), d)
                    engine.apply(within[0], d, within[1])
                # a sum of floats takes a fraction of the time that one of booleans does
                found += d.sum(axis=1).astype(np.int64)
            counts.append((slice(i, j), found))

        _run(pairs, block, size)
        total = xp.zeros(pairs.shape[0], np.int64)
        for rows, found in counts:
            total[rows] += found
        return call.give(total)


@dataclass(frozen=True, eq=False)
class Within:
    """Pairs of near rows, as compressed sparse rows: what :func:`within` returns.

    Attributes
    ----------
    indptr : array of int64, shape (m + 1,)
        Row i has the entries ``indptr[i]`` to ``indptr[i + 1] - 1``.
    indices : array of int64
        Rows of Y, ascending for each row of X.
    distance : array
        How far they are.
    shape : tuple of int
        (m, n), rows of X and of Y.
    """

    __module__ = "semiring_mm.neighbours"

    indptr: Any
    indices: Any
    distance: Any
    shape: tuple[int, int]

    def __repr__(self) -> str:
        return f"Within({self.shape[0]} x {self.shape[1]}, {len(self.indices)} pairs)"

    def to_scipy(self) -> Any:
        """The distances as a sparse matrix, whose zeros are stored.

        Returns
        -------
        scipy.sparse.csr_array
        """
        sparse = optional("scipy.sparse", "a matrix of SciPy's needs SciPy", "scipy")
        with Call(
            None, data=self.distance, indices=self.indices, indptr=self.indptr
        ) as call:  # fmt: skip
            parts = (call.engine.to_host(call[name]) for name in ("data", "indices", "indptr"))
            return sparse.csr_array(tuple(parts), shape=self.shape)


def within(
    X: ArrayLike | BitMatrix,
    Y: ArrayLike | BitMatrix | None = None,
    *,
    radius: float,
    metric: str | Metric = "euclidean",
    p: float = 2,
    w: ArrayLike | None = None,
    missing: float | None = None,
    device: str | None = None,
) -> Within:
    """All pairs of rows that are at most a radius apart, as sparse rows.

    Parameters
    ----------
    X : array_like or BitMatrix, shape (m, columns)
    Y : array_like or BitMatrix, shape (n, columns), optional
        Without it the pairs of different rows of X, in both directions.
    radius : float
        The largest distance; of ``"intersection"`` the least number of common bits.
    metric, p, w, missing, device
        As for :func:`cdist`.

    Returns
    -------
    Within
        With the pairs for which :func:`cdist` has at most `radius`, and these distances.

    Raises
    ------
    ValueError
        For a radius that is no number; and as :func:`cdist`.

    Notes
    -----
    O(m·n·columns), by tiles that are compared while they are in a cache: the memory is that of the
    result. Few pairs of points of up to three columns are found in SciPy's tree, as by
    :func:`knn`. Of rows of bits within themselves each pair is computed once.

    A similarity of at least 0.8 is a distance of at most ``0.2``; ``1 - 0.8`` is a little less, and
    leaves out pairs that are just that similar.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> near = sm.neighbours.within(np.array([[0.0], [1.0], [5.0]]), radius=2)
    >>> near
    Within(3 x 3, 2 pairs)
    >>> near.indptr, near.indices, near.distance
    (array([0, 1, 2, 2]), array([1, 0]), array([1., 1.]))
    """
    limit = check_radius("within", radius)
    metric = _chosen("within", metric, p, w, missing, X, Y)
    if isinstance(metric, str):
        return Within(*bit_rows.within(metric, X, Y, limit, device))
    with Call(device, None, X=X, Y=X if Y is None else Y, w=w) as call:
        xp, pairs = call.engine.xp, _Pairs("within", call, metric)
        limit = limit_of(limit, pairs.dtype)
        parts: dict[tuple[int, int], Any] = {}
        size, width = pairs.tiles(1)
        tree = _tree(pairs)

        def keep(i: int, first: int, row: Array, column: Array, value: Array) -> None:
            if Y is None:
                others = row != column
                row, column, value = row[others], column[others], value[others]
            parts[i, first] = row, column, value

        def block(i: int, j: int, start: int, end: int) -> None:
            room = xp.empty((j - i, width), pairs.dtype)
            for first, last in _cut(end - start, width, start):
                d = room[:, : last - first]
                pairs.distances(slice(i, j), slice(first, last), d)
                row, column = xp.nonzero(d <= limit)
                keep(i, first, row + i, column + first, d[row, column])

        if tree is not None and tree.serves(limit):
            tree.near(limit, keep)
        else:
            _run(pairs, block, size)
        found = [parts[at] for at in sorted(parts)]
        indptr, indices, distance = call.give(
            bit_rows.in_rows(xp, pairs.shape, found, pairs.dtype, mirror=False)
        )
        return Within(indptr, indices, distance, pairs.shape)


def check_radius(verb: str, r: Any) -> float:
    """A radius, if it is a number."""
    if not isinstance(r, Real) or r != r:
        raise ValueError(f"{verb}: the radius is a number, the largest distance, got {r!r}")
    try:
        return float(r)
    except OverflowError:
        raise ValueError(f"{verb}: the radius is beyond the range of float64; use inf") from None


def limit_of(limit: float, dtype: np.dtype[Any], squares: bool = False) -> float:
    """A radius as distances of a dtype, or their squares, are compared with it."""
    with np.errstate(over="ignore"):
        limit = float(dtype.type(limit))
    return _largest_square(limit, dtype) if squares else limit


def _count(d: Array, most: float) -> NDArray[np.int64]:
    """How many entries of each row are at most `most`; they are overwritten."""
    engines.named("cpu").apply(_WITHIN, d, most)
    # a sum of floats takes a fraction of the time that one of booleans does
    counts: NDArray[np.int64] = d.sum(axis=1).astype(np.int64)
    return counts


def _largest_square(limit: float, dtype: np.dtype[Any]) -> float:
    """The greatest number of a dtype whose square root is at most a limit; -1 if there is none."""
    if limit < 0:
        return -1.0
    bound, end = dtype.type(limit), dtype.type(np.inf)
    with np.errstate(over="ignore", under="ignore"):
        found = bound * bound
        while np.sqrt(found) > bound:
            found = np.nextafter(found, -end)
        while found < end and np.sqrt(above := np.nextafter(found, end)) <= bound:
            found = above
    return float(found)


# --- repeated small calls -----------------------------------------------------------------------


def _small(m: int, columns: int, n: int) -> bool:
    """Whether m · n distances are computed soonest by one thread."""
    return m * n * (columns + _ENTRY) < _ALONE


def _operands(metric: Metric, x: Any, y: Any) -> tuple[Array, Array] | None:
    """Two small NumPy matrices of one floating dtype, whole numbers as float64; None for others."""
    if type(x) is not np.ndarray or type(y) is not np.ndarray or not x.ndim == y.ndim == 2:
        return None
    if metric.sphere or not _small(len(x), x.shape[1], len(y)):
        return None
    if x.dtype is y.dtype and x.dtype.char in "fd":
        return x, y
    if metric.counts or x.dtype.kind not in "iub" or y.dtype.kind not in "iub":
        return None
    return x.astype(np.float64), y.astype(np.float64)


def _again(
    metric: Metric, x: Any, y: Any, out: Any = None, *, joined: bool = False
) -> Array | None:  # fmt: skip
    """The distances of a small call like earlier ones; None where the general way is to be taken.

    `joined`: what is joined over the coordinates instead.
    """
    host = engines.named("cpu")
    calls, head, final = host.calls, metric.head, metric.ending
    if joined:
        head, final = (*head[:3], ""), None
    whole = joined or metric.alone
    if whole and type(y) is np.ndarray and not (metric.unit or metric.sphere):
        d = calls.repeat(head, (x, y.T), out)
        if d is not None:
            return d
    given = _operands(metric, x, y)
    if given is None:
        return None
    x, y = given
    if metric.unit:
        if metric.centred and x.shape[1]:
            x, y = centred(x), centred(y)
        x, y = host.unit_rows(x), host.unit_rows(y)
    d = calls.prepared(head, metric.algebra, x, y.T, out, PLAIN, final)
    if d is None or whole:
        return d
    total: Any = float(x.shape[1])
    if metric.over:
        over = metric.over_metric
        total = calls.prepared(over.head, over.algebra, x, y.T)
        if total is None:
            return None
    host.apply(metric.final_expr, d, total)
    return d


def _nearest_again(metric: Metric, x: Any, y: Any, k: Any) -> tuple[Array, Array] | None:
    """The nearest rows of a small call like earlier ones, or None as of :func:`_again`."""
    given = _operands(metric, x, y)
    if given is None or type(k) is not int or not 1 <= k <= len(given[1]):
        return None
    (m, columns), n = given[0].shape, len(given[1])
    host = engines.named("cpu")
    select = host.select
    tile = np.empty((m, n), given[0].dtype)
    if _again(metric, *given, tile, joined=metric.compares) is None:
        return None
    value, index = select.empty(m, k, tile.dtype)
    select.put(value, index, tile, 0)
    select.finish(value, index)
    if metric.compares and not metric.plain:
        host.apply(metric.final_expr, value, float(columns))
    return value, index


# --- pairs of rows ------------------------------------------------------------------------------


class _Pairs:
    """The distances between the rows of two matrices, to be computed by rectangles.

    They are of `dtype`, and what is joined over the coordinates of dtype `joined`: it compares as
    distances do where they are `rising`, and is these where they are `plain`. If it `passes`, a
    rectangle is more than one product.
    """

    def __init__(self, verb: str, call: Call, metric: Metric) -> None:
        x, y, w, engine = call["X"], call["Y"], call["w"], call.engine
        POINTS.check((None if v is None else v.shape for v in (x, y)), verb=verb)
        self.engine, self.final, self.plain = engine, metric.final_expr, metric.plain
        self.rising = metric.compares
        self.order = metric.order if w is None and engine.HOST else 0.0
        self.sphere = metric.sphere
        self.shape, columns = (x.shape[0], y.shape[0]), x.shape[1]
        counted = columns if metric.counts else None
        self.joined = _work_dtype(verb, metric.name, x.dtype, y.dtype, counted)
        self.dtype = self.joined if self.joined.kind == "f" else np.dtype(np.float64)
        self.total: Any = float(columns)
        # of rows of length 1, whose products lose no digits: on tensor cores where there are any
        fast = metric.unit and not engine.HOST and self.dtype == np.float32
        self.precision = "float32_emulated" if fast else None
        self.empty = math.nan if metric.unit else _EMPTY[metric.algebra.add_kind]
        if self.joined.kind == "i" and max(x.itemsize, y.itemsize) >= 4:
            x, y = _ranks(engine.xp, x, y)
        exact = (x.size + y.size if self.joined.itemsize > 2 else columns) < _EXACT
        inside = w is not None and not (metric.unit or metric.chooses)  # the sums
        if inside:
            self.joined = self.dtype
        elif self.joined.kind == "i" and not engine.HOST and exact:
            self.joined = np.dtype(np.float32)  # of which devices compare more in a time
        if metric.sphere:
            x, y = (_on_sphere(verb, engine.xp, v, w) for v in (x, y))
        x, y = (v.astype(self.joined, copy=False) for v in (x, y))
        centres = metric.centred and columns
        if centres and w is None:
            x, y = centred(x), centred(y)
        if w is not None:
            weights = _weights(verb, engine.to_host(w), columns)
            self.total = float(weights.sum())
            with np.errstate(over="ignore"):
                own = engine.xp.asarray(weights.astype(self.joined))
            if centres:
                x, y = centred(x, own), centred(y, own)
            if inside:
                x, y = weighted(engine.xp, x, y, own)
            elif metric.chooses:
                chosen = engine.xp.asarray(np.flatnonzero(weights > 0))
                x, y = x[:, chosen], y[:, chosen]
            else:
                with np.errstate(invalid="ignore"):  # 0 times infinity
                    x, y = x * engine.xp.sqrt(own), y * engine.xp.sqrt(own)
        self.algebra = metric.weighted_algebra if inside else metric.algebra
        self.over: Semiring | None = None
        if metric.over:
            over = metric.over_metric
            self.over = over.weighted_algebra if inside else over.algebra
        if metric.unit and columns:
            x, y = engine.unit_rows(x), engine.unit_rows(y)
        self.x, self.y = x, y
        self.few = self.shape[0] <= engine.select.FEW
        self.small = _small(self.shape[0], columns, self.shape[1])
        self.known: Known | None = None
        if engine.HOST and not self.small:  # once, not for each tile
            self.known = (_NO_RANGE,) * 3
            if needs_facts(self.algebra, x.dtype):
                own = self.algebra
                self.known = engine.facts(own, x), engine.facts(own, y), _NO_RANGE
        self.passes = self.over is not None or not self.plain or self.joined != self.dtype

    def tiles(self, k: int) -> tuple[int, int]:
        """Rows and columns of the tiles, of which the k best of each row are wanted."""
        (m, n), select = self.shape, self.engine.select
        if self.small:
            return max(m, 1), max(n, 1)
        return select.room_of(m, n, k, self.dtype)

    def across(self, k: int) -> list[tuple[int, int]]:
        """Columns that threads take, each for all rows, where there are too few rows to share."""
        n = self.shape[1]
        parts = pool.get_num_threads() if self.few and not self.small else 1
        return _cut(n, max(1, -(-n // parts))) if k * parts * _SHORT <= n else [(0, n)]

    def lay_by_coordinates(self) -> None:
        """Let points be adjacent, not their coordinates, where a device then adds up faster."""
        if self.algebra.add_kind == "+" and self.precision is None and min(self.shape) >= _MANY:
            self.x, self.y = (_by_coordinates(self.engine.xp, v) for v in (self.x, self.y))

    def join(
        self, rows: slice, columns: slice, out: Array, final: tuple[ex.Expr, float] | None = None,
        algebra: Semiring | None = None,
    ) -> None:  # fmt: skip
        """What is joined over the coordinates, of dtype `joined`, or a function of floats of it."""
        if not self.x.shape[1]:
            out[...] = self.empty
            if final is not None:
                self.engine.apply(final[0], out, final[1])
            return
        # not as matmul, which takes a single row another way: equal rows are to tie exactly
        self.engine.product(
            algebra or self.algebra, self.x[rows], self.y[columns].T, out, known=self.known,
            precision=self.precision, final=final,
        )  # fmt: skip

    def distances(self, rows: slice, columns: slice, out: Array) -> None:
        """Distances, of dtype `dtype`."""
        if self.joined == self.dtype and self.over is None:
            self.join(rows, columns, out, None if self.plain else (self.final, self.total))
            self.turn(out)
            return
        xp, total = self.engine.xp, self.total
        joined = out if self.joined == self.dtype else xp.empty(out.shape, self.joined)
        self.join(rows, columns, joined)
        if self.over is not None:  # of floats, then
            total = xp.empty(out.shape, self.joined)
            self.join(rows, columns, total, algebra=self.over)
        if joined is not out:
            out[...] = joined
        if not self.plain:
            self.engine.apply(self.final, out, total)

    def finished(self, joined: Array) -> Array:
        """The distances of what was joined, in a metric of one number."""
        joined = joined.astype(self.dtype, copy=False)
        if not self.plain:
            self.engine.apply(self.final, joined, self.total)
        self.turn(joined)
        return joined

    def turn(self, halves: Array) -> None:
        """Half chords to angles, where distances are such."""
        if self.sphere:
            self.engine.xp.arcsin(halves, out=halves)
            halves *= 2


_NO_RANGE = Facts(math.inf, -math.inf, False)
_EMPTY = {"+": 0.0, "min": math.inf, "max": 0.0}  # of points without coordinates


@functools.lru_cache(maxsize=256)
def _work_dtype(
    verb: str, metric: str, x: np.dtype[Any], y: np.dtype[Any], columns: int | None
) -> np.dtype[Any]:
    """The dtype computed in; `columns` are given where pairs are 0 or 1, for integers too."""
    try:
        dtype = np.result_type(x, y)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind in "iub":
        if columns is None:
            return np.dtype(np.float64)
        short = dtype.itemsize < 4 and columns < np.iinfo(np.int16).max
        return np.promote_types(dtype if short else np.int32, np.int16)
    if dtype.name in ("float16", "bfloat16", "float32"):
        return np.dtype(np.float32)
    if dtype.name == "float64":
        return np.dtype(np.float64)
    raise TypeError(
        f"{verb}: {metric} of dtypes {x} and {y}: floats of 16, 32 and 64 bits, "
        f"integers and bool are accepted"
    )


def _ranks(xp: Any, x: Array, y: Array) -> tuple[Array, Array]:
    """Small integers that are equal where those of two matrices are."""
    _, ranks = xp.unique(xp.concatenate([x.ravel(), y.ravel()]), return_inverse=True)
    ranks = ranks.ravel()
    return ranks[: x.size].reshape(x.shape), ranks[x.size :].reshape(y.shape)


def _weights(verb: str, w: Array, columns: int) -> NDArray[np.float64]:
    if w.shape != (columns,) or w.dtype.kind not in "fiub":
        raise ValueError(
            f"{verb}: w has a number for each of {columns} columns, got shape {w.shape} and dtype "
            f"{w.dtype}"
        )
    if (w < 0).any():
        raise ValueError(f"{verb}: w has negative weights; they must be at least 0")
    if not np.isfinite(w).all():
        raise ValueError(f"{verb}: w has weights that are infinite or NaN; they must be finite")
    weights: NDArray[np.float64] = w.astype(np.float64)
    return weights


def _on_sphere(verb: str, xp: Any, x: Array, w: Any) -> Array:
    """Unit vectors of places."""
    if x.shape[1] != 2 or w is not None:
        raise ValueError(
            f"{verb}: haversine is of rows (latitude, longitude), without weights, got "
            f"{'w' if w is not None else f'{x.shape[1]} columns'}"
        )
    x = x.astype(np.float64)
    beyond = x[:, 0][abs(x[:, 0]) > _POLE]
    if len(beyond):
        raise ValueError(
            f"{verb}: haversine is of radians, latitudes from -π / 2 to π / 2, got a latitude of "
            f"{float(beyond[0]):g}: convert degrees by numpy.radians"
        )
    with np.errstate(invalid="ignore"):
        return on_sphere(xp, x)


def _by_coordinates(xp: Any, points: Array) -> Array:
    """A copy whose columns are contiguous, at multiples of 16 bytes; or what is laid out so."""
    m, columns = points.shape
    if points.strides[0] == points.itemsize and points.strides[1] % 16 == 0:
        return points
    room = xp.empty((columns, -(-m // 4) * 4), points.dtype)[:, :m]
    room[...] = points.T
    return room.T


# --- tiles --------------------------------------------------------------------------------------


def _cut(extent: int, size: int, start: int = 0) -> list[tuple[int, int]]:
    """Cut a range into nearly equal parts of at most `size`."""
    pieces = -(-extent // size)
    cuts = [start + i * extent // pieces for i in range(pieces + 1)] if pieces else [start]
    return list(itertools.pairwise(cuts))


def _chosen(
    verb: str, metric: str | Metric, p: float, w: Any, missing: Any, x: Any, y: Any
) -> str | Metric:
    """The metric, or the name of one of rows of bits: see :func:`.bit_rows.metric_of`."""
    if missing is not None:
        metric = known_in_both(metric, missing)
    packed = type(x) is BitMatrix or type(y) is BitMatrix
    if not packed and type(metric) is str and (found := _OF_NUMBERS.get(metric)) is not None:
        return found
    if packed or (isinstance(metric, str) and metric.lower() in _OF_BITS):
        bits = bit_rows.metric_of(verb, metric, w, x, y)
        if bits is not None:
            return bits
    return as_metric(metric, p)


def _k_nearest(
    verb: str, X: Any, Y: Any, k: int, metric: str | Metric, p: float, w: Any, missing: Any,
    device: str | None,
) -> Any:  # fmt: skip
    metric = _chosen(verb, metric, p, w, missing, X, Y)
    if isinstance(metric, str):
        return bit_rows.k_nearest(verb, metric, X, Y, k, device)
    if device is w is None:
        found = _nearest_again(metric, X, Y, k)
        if found is not None:
            return found
    with Call(device, None, X=X, Y=Y, w=w) as call:
        return call.give(_nearest(verb, call, metric, k))


def _nearest(verb: str, call: Call, metric: Metric, k: int) -> tuple[Array, Array]:
    select, xp = call.engine.select, call.engine.xp
    if not call.engine.HOST and metric.unit:
        metric = replace(_CHORDS, centred=metric.centred)
    pairs = _Pairs(verb, call, metric)
    m, n = pairs.shape
    k = bit_rows.check_k(verb, k, n, select.MOST)
    dtype, fill = (pairs.joined, pairs.join) if pairs.rising else (pairs.dtype, pairs.distances)
    check_memory(
        m * k * (8 + dtype.itemsize),
        f"a matrix of the {k} nearest of {m} rows",
        call.engine,
        _FEWER,
    )
    size, width = pairs.tiles(k)
    across = pairs.across(k)
    value, index = select.empty(len(across) * m, k, dtype)
    screen = _screen(pairs, k, width)
    sieve = _sieve(pairs, k) if screen is None else None
    rest = None if screen is None else screen.search(value, index, fill)
    tree = _tree(pairs, k)
    if tree is not None:
        rest = tree.search(value, index)
    if sieve is not None:
        rest = sieve.search(value, index)

    def find(chosen: slice | Array, start: int, end: int, value: Array, index: Array) -> None:
        def tile_of(columns: int, dtype: np.dtype[Any]) -> Array:
            pitch = -(-columns * dtype.itemsize // _ALIGNED) * _ALIGNED
            whole = room[: count * pitch].view(dtype).reshape(count, pitch // dtype.itemsize)
            return whole[:, :columns]

        count = len(value)
        room = xp.empty(count * (width * dtype.itemsize + _ALIGNED), np.uint8)
        wait, pause = 1, 1  # tiles until the next one is screened; the first one fills the heaps
        head = min(width, end - start, max(_HEAD, _HEADS * k)) if screen is not None else 0
        tiles = [(start, start + head)] if head else []
        for first, last in [*tiles, *_cut(end - start - head, width, start + head)]:
            columns = slice(first, last)
            if screen is not None and rest is None and not wait:
                tile = tile_of(last - first, screen.dtype)
                candidates = screen.put(chosen, columns, tile, value, index)
                if candidates > _CANDIDATES * tile.size:  # it did not pay
                    wait, pause = pause, 2 * pause
                continue
            wait -= 1
            tile = tile_of(last - first, dtype)
            fill(chosen, columns, tile)
            select.put(value, index, tile, first)
        if len(across) == 1:
            select.finish(value, index)

    def block(i: int, j: int, part: int) -> None:
        own = slice(part * m + i, part * m + j)
        find(slice(i, j), *across[part], value[own], index[own])

    def again(some: Array) -> None:
        found = select.empty(len(some), k, dtype)
        find(some, 0, n, *found)
        value[some], index[some] = found

    if rest is None:
        select.run([
            functools.partial(block, i, j, part)
            for i, j in _cut(m, size) for part in range(len(across))
        ])  # fmt: skip
    else:
        select.run([
            functools.partial(again, rest[i : i + size]) for i in range(0, len(rest), size)
        ])  # fmt: skip
    if len(across) > 1:
        value, index = (x.reshape(-1, m, k).swapaxes(0, 1).reshape(m, -1) for x in (value, index))
        best = xp.lexsort((index, value))[:, :k]
        value, index = (xp.take_along_axis(x, best, 1) for x in (value, index))
    return (pairs.finished(value) if pairs.rising else value), index


def _screen(pairs: _Pairs, k: int, width: int) -> Screen | None:
    """A screen for Euclidean distances in which it pays."""
    x, y, own, n = pairs.x, pairs.y, as_metric("sqeuclidean").algebra, pairs.shape[1]
    same = (pairs.algebra.add_expr, pairs.algebra.mul_expr) == (own.add_expr, own.mul_expr)
    if (
        not same
        or pairs.few
        or x.shape[1] < _WIDE
        or k > width
        or n < _TILES * min(width, max(_HEAD, _HEADS * k))
    ):
        return None
    seen = pairs.engine.facts(_ORDER, x).join(pairs.engine.facts(_ORDER, y))
    if seen.special or not 1 / _FAR <= seen.hi - seen.lo <= _FAR:
        return None
    return pairs.engine.Screen(x, y, seen.hi - seen.lo)


def _sieve(pairs: _Pairs, k: int) -> Sieve | None:
    """What keeps the best of any metric, on an engine that has such, of one product of floats."""
    (m, n), make = pairs.shape, pairs.engine.Sieve
    plain = pairs.over is None and pairs.joined.kind == "f" and pairs.x.shape[1]
    if make is None or not plain:
        return None
    if m * n < _SIEVED or n < 16 * k:
        return None
    final = None if pairs.rising else (pairs.final, pairs.total)
    return make(pairs.algebra, pairs.x, pairs.y, final)


def _run(pairs: _Pairs, task: Callable[[int, int, int, int], None], size: int) -> None:
    """Call a function with the first and last row and column of parts of at most `size` rows."""
    pairs.engine.select.run([
        functools.partial(task, i, j, start, end)
        for i, j in _cut(pairs.shape[0], size) for start, end in pairs.across(1)
    ])  # fmt: skip


# --- few coordinates ----------------------------------------------------------------------------


def _tree(pairs: _Pairs, k: int = 1) -> _Tree | None:
    """A tree for the p-norms of few coordinates, where there are many rows, and SciPy."""
    (m, n), columns = pairs.shape, pairs.x.shape[1]
    if not (1 <= pairs.order <= 64 or pairs.order == math.inf) or not 1 <= columns <= _FLAT:
        return None
    if m < _ASKED or m * n < _PLANTED or k > _PROPOSED * n:
        return None
    try:
        from scipy.spatial import cKDTree
    except ImportError:
        return None
    tree = _Tree(pairs, cKDTree)
    return tree if tree.power * math.log2(tree.range + 1) < _POWERS else None


class _Tree:
    """Finite rows of Y in SciPy's k-d tree, whose distances are not ours to the last bit.

    It proposes rows of Y by what its distances bound. What is joined of these is the same product
    as that of :meth:`_Pairs.join`, of the gaps and 0.
    """

    def __init__(self, pairs: _Pairs, make: Any) -> None:
        self.pairs, self.make, self.order = pairs, make, pairs.order
        self.rows, self.kept = (self.finite(v) for v in (pairs.x, pairs.y))
        points = pairs.y[self.kept]
        ends = [pairs.engine.facts(_ORDER, v) for v in (pairs.x[self.rows], points) if len(v)]
        self.range = 6.0 * max((max(abs(x.lo), abs(x.hi)) for x in ends), default=0.0)
        self.tree = make(points, balanced_tree=False)
        self.power = 1.0 if self.order == math.inf else self.order
        own = np.finfo(pairs.joined)
        # some roundings of a sum, of powers by logarithms 745 at most, and those of the tree
        roundings = 16 + (1024 * self.power if "log" in pairs.algebra.mul_expr.ops() else 0)
        self.error = self.power * 2.0**-40 + roundings * float(own.eps)
        self.least = 16 * float(own.tiny)  # where squares are no normal numbers
        self.mean = 0.0  # pairs of a row within a limit

    def finite(self, points: Array) -> Array:
        """Rows of finite numbers."""
        seen = self.pairs.engine.facts(_ORDER, points)
        if not seen.special and math.isfinite(seen.hi - seen.lo):
            return np.arange(len(points))
        return np.flatnonzero(np.isfinite(points).all(1))

    def joined(self, gaps: Array) -> Array:
        """What is joined of differences of rows."""
        flat = gaps.reshape(-1, gaps.shape[-1])
        out, none = np.empty((len(flat), 1), flat.dtype), np.zeros((flat.shape[1], 1), flat.dtype)
        self.pairs.engine.product(self.pairs.algebra, flat, none, out)
        return out.reshape(gaps.shape[:-1])

    def search(self, value: Array, index: Array) -> Array:
        """Find the nearest rows; returns the rows of X of which it did not."""
        x, y, k = self.pairs.x, self.pairs.y, value.shape[1]

        def part(i: int, j: int) -> None:
            some = rows[i:j]
            far, at = self.tree.query(x[some], count, p=self.order)
            near = self.kept.take(at)
            with np.errstate(over="ignore"):  # of float32
                joined = self.joined(x[some, np.newaxis] - y.take(near, 0))
            least = far[:, -1] ** self.power * (1 - self.error) - self.least
            mixed = np.unique(np.nonzero(joined[:, 1:] <= joined[:, :-1])[0])
            order = np.lexsort((near[mixed], joined[mixed]))
            for v in (joined, near):
                v[mixed] = np.take_along_axis(v[mixed], order, 1)
            done = joined[:, k - 1] < least
            value[some[done]], index[some[done]] = joined[done, :k], near[done, :k]
            left.append(some[~done])
            pool.look()

        rows, count = self.rows, k + 1
        most = min(max(count, int(_AGAIN * len(self.kept))), len(self.kept))
        while len(rows) and count <= most:
            left: list[Array] = []
            pool.run_parts(part, len(rows), -(-len(rows) // self.strip(4 * count)))
            rows, count = np.concatenate(left), 4 * count
        others = np.ones(len(x), bool)
        others[self.rows] = False
        return np.concatenate([np.flatnonzero(others), rows])

    def reaches(self, limit: float) -> tuple[float, float]:
        """Distances of the tree up to which all rows are within a limit, beyond which none is."""
        exponent = 1.0 if self.pairs.plain else self.power
        if self.pairs.sphere:
            limit = 2 * math.sin(min(limit, math.pi) / 2)
        with np.errstate(over="ignore"):
            joined = np.float64(max(limit, 0)) ** exponent
            ends = joined * (1 - self.error) - self.least, joined * (1 + self.error) + self.least
            low, high = np.maximum(ends, 0) ** (1 / self.power)
            return float(low * (1 - 2.0**-40)), float(high * (1 + 2.0**-40))

    def serves(self, limit: float) -> bool:
        """Whether pairs within a limit are few, as some rows tell."""
        reach = self.reaches(limit)[1]
        some = self.pairs.x[self.rows[:: max(1, len(self.rows) // 64)]]
        if limit < 0 or not math.isfinite(reach) or not len(some) or not len(self.kept):
            return False
        found = self.tree.query_ball_point(some, reach, self.order, return_length=True)
        self.mean = float(found.mean())
        return self.mean <= float(_NEAR * self.pairs.shape[1])

    def strip(self, found: float) -> int:
        """Rows of which so many others are found each, taken together."""
        return max(1, min(_STRIP, int(_FOUND / (found + 1))))

    def _parts(self, part: Callable[[Array], None], rows: Array) -> None:
        """Call a function of rows of X that lie in strips."""
        rows = rows[np.argsort(self.pairs.x[rows, 0])]
        pool.run_parts(
            lambda i, j: part(rows[i:j]), len(rows), -(-len(rows) // self.strip(self.mean))
        )

    def near(self, limit: float, keep: Callable[..., None], rows: Array | None = None) -> None:
        """Pass pairs within a limit on, strip by strip, in no order."""
        x, y = self.pairs.x, self.pairs.y
        reach = self.reaches(limit)[1]

        def part(some: Array) -> None:
            own = self.make(x[some], balanced_tree=False)
            found = own.sparse_distance_matrix(self.tree, reach, self.order, "ndarray")
            row, column = some[found["i"]], self.kept[found["j"]]
            with np.errstate(over="ignore"):
                joined = self.joined(x.take(row, 0) - y.take(column, 0))
            d = self.pairs.finished(joined[np.newaxis])[0]
            inside = d <= limit
            keep(int(some[0]), 0, row[inside], column[inside], d[inside])
            pool.look()

        self._parts(part, self.rows if rows is None else rows)

    def count(self, limit: float) -> Array:
        """How many rows of Y are within a limit of each row of X."""
        counts = np.zeros(self.pairs.shape[0], np.int64)
        ends = np.zeros((2, len(counts)), np.int64)

        def part(some: Array) -> None:
            for end, reach in zip(ends, self.reaches(limit), strict=True):
                end[some] = self.tree.query_ball_point(
                    self.pairs.x[some], reach, self.order, return_length=True
                )
            pool.look()

        self._parts(part, self.rows)
        at_the_limit = np.flatnonzero(ends[0] != ends[1])
        counts[:] = ends[0]
        counts[at_the_limit] = 0
        self.near(limit, lambda i, j, row, column, d: np.add.at(counts, row, 1), at_the_limit)
        return counts
