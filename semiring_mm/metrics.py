"""Distances between rows of coordinates: the class Metric and the table of the built-in ones.

What all pairs of two sets of points need is a matrix product whose ⊗ is what a pair of coordinates
adds and whose ⊕ joins these over the coordinates. No identities are needed for that.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import expressions as ex
from .lazy import cached_property
from .semirings import Semiring

Array = Any

__all__ = [
    "ALSO", "BIT_METRICS", "BUILT_IN", "Metric", "Origin", "as_metric", "centred", "known_in_both",
    "on_sphere", "reach", "smooth", "weighted",
]  # fmt: skip

#: Of rows of bits, from how many bits they have, and have in common; kernels have their places.
BIT_METRICS = "hamming", "jaccard", "dice", "cosine", "intersection"

#: The ⊕ of a metric, and what a product's accumulators start from.
_STARTS = {"+": 0.0, "min": math.inf, "max": -math.inf}
_JOINS = {"+": np.add, "min": np.minimum, "max": np.maximum}


@dataclass(frozen=True)
class Metric:
    """A distance between two rows of coordinates, written as expressions.

    Parameters
    ----------
    name : str
        A name for messages: ``"canberra"``.
    pair : str
        What a pair of coordinates adds, in ``a`` (of a row of X) and ``b`` (of a row of Y):
        ``"abs(a - b)"``.
    join : str, default "a + b"
        How these are joined over the coordinates: ``"a + b"``, ``"min(a, b)"`` or ``"max(a, b)"``.
    final : str, default "a"
        The distance, in ``a``, which is what was joined, and ``b``, which is the number of
        coordinates, or the sum of their weights where there are any: ``"sqrt(a)"``, ``"a / b"``.

    Notes
    -----
    Expressions are written as those of a :class:`semiring_mm.Semiring`. Of weights w, a pair of
    coordinates adds w times `pair`.

    A metric can be called with two rows, as SciPy and scikit-learn call the ``metric`` that they
    are given, for each pair of rows: :func:`cdist` and :func:`knn` are faster by far.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> rms = sm.neighbours.Metric("rms", "(a - b) * (a - b)", final="sqrt(a / b)")
    >>> sm.neighbours.cdist(np.array([[0.0, 0.0]]), np.array([[1.0, 7.0], [0.0, 0.0]]), rms)
    array([[5., 0.]])
    >>> rms([0, 0], [1, 7])
    5.0
    """

    name: str
    pair: str
    join: str = "a + b"
    final: str = "a"

    # what is known of those of the table, see BuiltIn
    chooses = unit = centred = rising = counts = sphere = False
    over, order = "", 0.0

    def __post_init__(self) -> None:
        for text in (self.pair, self.join, self.final):
            ex.parse(text)
        kind = ex.joins(ex.parse(self.join))
        if kind not in _STARTS:
            raise ValueError(
                f"a metric's join is 'a + b', 'min(a, b)' or 'max(a, b)', got {self.join!r}"
            )
        _ = self.algebra  # refuses a name that is no identifier

    def __call__(self, x: ArrayLike, y: ArrayLike) -> float:
        """The distance between two rows.

        Parameters
        ----------
        x, y : array_like, shape (k,)
            Real numbers.

        Returns
        -------
        float
        """
        a, b = np.asarray(x), np.asarray(y)
        if a.ndim != 1 or a.shape != b.shape:
            raise ValueError(
                f"{self.name}: a metric is called with two rows of the same length, got shapes "
                f"{a.shape} and {b.shape}; semiring_mm.neighbours.cdist takes matrices"
            )
        if a.dtype.kind not in "fiub" or b.dtype.kind not in "fiub":
            raise TypeError(f"{self.name}: rows are of real numbers, got {a.dtype} and {b.dtype}")
        kind = ex.joins(ex.parse(self.join))
        with np.errstate(all="ignore"):
            terms = ex.evaluate(ex.parse(self.pair), a.astype(np.float64), b.astype(np.float64))
            terms = np.broadcast_to(np.asarray(terms, np.float64), a.shape)
            empty = 0.0 if kind == "max" else _STARTS[kind]  # as cdist has it
            joined = _JOINS[kind].reduce(terms) if len(a) else empty
            return float(ex.evaluate(self.final_expr, joined, float(len(a))))

    @cached_property
    def algebra(self) -> Semiring:
        """The metric as a product takes it.

        A metric has no identities: `zero` is what accumulators start from, and `one` is not read.
        """
        return Semiring(self.name, self.join, self.pair, _STARTS[ex.joins(ex.parse(self.join))], 0)

    @cached_property
    def weighted_algebra(self) -> Semiring:
        """The algebra of rows whose entries alternate with their weights."""
        return _Weighted(self.name, self.join, self.pair, self.algebra.zero, 0)

    @cached_property
    def final_expr(self) -> ex.Expr:
        return ex.parse(self.final)

    @cached_property
    def compares(self) -> bool:
        """Whether distances compare as what was joined."""
        return self.rising or self.plain

    @cached_property
    def plain(self) -> bool:
        """Whether distances are what was joined."""
        return self.final_expr == ex.A

    @cached_property
    def alone(self) -> bool:
        """Whether distances are functions of what was joined, and of nothing else."""
        return "b" not in self.final_expr.ops()

    @cached_property
    def ending(self) -> ex.Expr | None:
        """The function that a product ends with, where distances are one."""
        return self.final_expr if self.alone and not self.plain else None

    @cached_property
    def head(self) -> tuple[Any, ...]:
        """What its products are known by."""
        return "rows", self.join, self.pair, "" if self.ending is None else self.final

    @cached_property
    def over_metric(self) -> Metric:
        """`over` as a metric."""
        return Metric(self.name, self.over)


Metric.__module__ = "semiring_mm.neighbours"  # where users import it from


@dataclass(frozen=True)
class BuiltIn(Metric):
    """A metric and what is known of it."""

    chooses: bool = False  # whether weights only say which coordinates count
    over: str = ""  # a second `pair`; `final` has what is joined of it as ``b``
    # whether rows are divided by their Euclidean norms first; the roots of weights scale them
    unit: bool = False
    centred: bool = False  # whether their mean is subtracted before that
    rising: bool = True  # whether distances compare as what was joined, so that `final` can wait
    counts: bool = False  # whether `pair` is 0 or 1, for integers too
    order: float = 0.0  # of a p-norm, or its p-th power, p from 1 on; else 0
    # whether rows are latitudes and longitudes, in place of which unit vectors are joined, and
    # distances are twice the arcsine of `final`
    sphere: bool = False


BUILT_IN = (
    BuiltIn("cityblock", "abs(a - b)", order=1),
    BuiltIn("euclidean", "(a - b) * (a - b)", final="sqrt(a)", order=2),
    BuiltIn("sqeuclidean", "(a - b) * (a - b)", order=2),
    BuiltIn("chebyshev", "abs(a - b)", "max(a, b)", chooses=True, order=math.inf),
    BuiltIn("hamming", "a != b", final="a / b", counts=True),
    BuiltIn("canberra", "abs(a - b) / (abs(a) + abs(b) + ((a == 0) & (b == 0)))"),
    BuiltIn("braycurtis", "abs(a - b)", final="a / b", over="abs(a + b)", rising=False),
    BuiltIn("jaccard", "(a != 0) != (b != 0)", final="a / (b + (b == 0))",
            over="(a != 0) | (b != 0)", rising=False),
    BuiltIn("dice", "(a != 0) != (b != 0)", final="a / (b + (b == 0))",
            over="(a != 0) + (b != 0)", rising=False),
    # not "a * b", which a BLAS may add up in another order at the edges: equal rows tie exactly
    BuiltIn(
        "cosine", "b * a", final="min(max(1 - a, 0), 2)", unit=True, rising=False
    ),
    BuiltIn(
        "correlation", "b * a", final="min(max(1 - a, 0), 2)", unit=True, centred=True,
        rising=False,
    ),
    BuiltIn("haversine", "(a - b) * (a - b)", final="min(sqrt(a) / 2, 1)", order=2, sphere=True),
)  # fmt: skip
_NAMES = {metric.name: metric for metric in BUILT_IN}
#: Other names.
ALSO = {
    "l1": "cityblock", "manhattan": "cityblock", "l2": "euclidean", "linf": "chebyshev",
    "tanimoto": "jaccard",
}  # fmt: skip


def as_metric(metric: str | Metric, p: float = 2) -> Metric:
    """Look a metric up by its name; `p` is for Minkowski's."""
    if isinstance(metric, Metric):
        return metric
    if type(metric) is str and (found := _NAMES.get(metric)) is not None:
        return found
    if not isinstance(metric, str):
        raise TypeError(
            f"metric must be a name such as 'cityblock' or a semiring_mm.neighbours.Metric, got "
            f"{type(metric).__name__}"
        )
    name = metric.lower()
    if name == "minkowski":
        return _minkowski(p)
    found = _NAMES.get(ALSO.get(name, name))
    if found is None:
        raise ValueError(
            f"there is no metric {metric!r:.60}: choose one of "
            f"{', '.join([*_NAMES, 'minkowski', *ALSO])}, or write a semiring_mm.neighbours.Metric"
        )
    return found


def _minkowski(p: Any) -> Metric:
    """The metric (Σ |a - b|^p)^(1/p)."""
    if not isinstance(p, Real) or not float(p) > 0:
        raise ValueError(f"p must be a number above 0, got {p!r}")
    return _power_mean(float(p))


@functools.lru_cache(maxsize=64)
def _power_mean(p: float) -> Metric:
    if p in _SPECIAL:
        return _NAMES[_SPECIAL[p]]
    gap = "abs(a - b)"
    if 1 < p <= _BY_PRODUCTS and 2 * p == int(2 * p):
        pair = _power(gap, int(p)) + (f" * sqrt({gap})" if p % 1 else "")
    else:
        pair = f"exp({p!r} * log({gap}))"
    return BuiltIn("minkowski", pair, final=f"exp(log(a) / {p!r})", order=p if p > 1 else 0.0)


def known_in_both(metric: str | Metric, missing: Any) -> str | Metric:
    """Hamming's metric over the coordinates that neither row misses; others have no such twin."""
    if missing is None:
        return metric
    if not isinstance(metric, str) or metric.lower() != "hamming":
        raise ValueError(f"missing= is for the metric 'hamming', got {metric!r}")
    if not isinstance(missing, Real):
        raise TypeError(f"missing is the number that stands for no value, got {missing!r}")
    return _hamming_of_known(float(missing))


@functools.lru_cache(maxsize=64)
def _hamming_of_known(missing: float) -> Metric:
    known = "a == a", "b == b"
    if missing == missing:
        known = f"a != {missing!r}", f"b != {missing!r}"
    both = "({}) & ({})".format(*known)
    return BuiltIn("hamming", f"(a != b) & {both}", final="a / b", over=both, rising=False)


def smooth(metric: Metric) -> Metric:
    """A metric with a derivative, 0, of what equal coordinates add; Minkowski's has none there."""
    gap = "abs(a - b)"
    if f"log({gap})" not in metric.pair:
        return metric
    pair = metric.pair.replace(f"log({gap})", f"log({gap} + (a == b))")
    return Metric(metric.name, f"({pair}) * (a != b)", metric.join, metric.final)


_SPECIAL: dict[float, str] = {1: "cityblock", 2: "euclidean", math.inf: "chebyshev"}
_BY_PRODUCTS = 8  # the largest p of which powers are products and roots


def _power(x: str, n: int) -> str:
    if n == 1:
        return x
    half = _power(x, n // 2)
    return f"({half}) * ({half})" + (f" * {x}" if n % 2 else "")


class _Weighted(Semiring):
    """A product of :func:`weighted` rows: each second k of the right ones is a weight."""

    @cached_property
    def mul_expr(self) -> ex.Expr:
        return ex.Expr("*", (ex.W, ex.parse(self.mul)))


def centred(x: Array, w: Array | None = None) -> Array:
    """Rows less their means, of coordinates with weights; those of equal ones become 0 exactly."""
    with np.errstate(invalid="ignore", divide="ignore"):  # of infinities, and no weight at all
        x = x - x[:, :1]
        mean = x.mean(1, dtype=np.float64) if w is None else (x @ w.astype(x.dtype)) / w.sum()
        return x - mean[:, None].astype(x.dtype)


def on_sphere(xp: Any, x: Array) -> Array:
    """Unit vectors of rows of latitude and longitude, in radians."""
    latitude, longitude = x[..., 0], x[..., 1]
    across = xp.cos(latitude)
    return xp.stack((across * xp.cos(longitude), across * xp.sin(longitude), xp.sin(latitude)), -1)


def weighted(xp: Any, x: Array, y: Array, w: Array) -> tuple[Array, Array]:
    """Rows of X and of Y as a product with weights of the coordinates takes them."""
    left, right = (xp.zeros((len(v), 2 * v.shape[1]), v.dtype) for v in (x, y))
    left[:, ::2], right[:, ::2], right[:, 1::2] = x, y, w
    return left, right


def reach(
    metric: str, columns: int, radius: float, sizes: Array, low: int, high: int
) -> tuple[int, int]:
    """Which numbers of bits, of those in `sizes`, rows near one of `low` to `high` bits may have.

    The first and last one are returned; the last is the less where there are none. At best the
    row with fewer bits has them all in common (Swamidass and Baldi, 2007).
    """
    q = sizes.astype(np.float64)
    p = np.full_like(q, high) if metric == "intersection" else np.clip(q, low, high)
    least, most = np.minimum(p, q), np.maximum(p, q)
    if metric == "intersection":
        best = -least
    elif metric == "hamming":
        best = (most - least) / max(columns, 1)
    elif metric == "cosine":
        best = 1 - np.sqrt(least / np.maximum(most, 1))
    else:
        whole = most if metric == "jaccard" else most + least
        best = (most - least) / np.maximum(whole, 1)
    near = np.flatnonzero((best <= radius + 2.0**-40) | (most == 0))
    return (int(sizes[near[0]]), int(sizes[near[-1]])) if len(near) else (1, 0)


class Origin:
    """A point amid others, from which they are measured, and a unit.

    Products of two points that are small and near the origin lose few digits. Any point would
    serve. Of n points with coordinates in a range of `range_`, the farthest has a norm of `norm` at
    most, a power of two.
    """

    def __init__(self, points: Array, range_: float, norm: float = 1.0) -> None:
        n, width = points.shape
        self.center = points[:: max(1, n // 1000)].mean(axis=0, dtype=np.float64)
        self.scale = norm * 2.0 ** -math.ceil(math.log2(range_ * math.sqrt(width)))

    def moved(self, points: Array) -> tuple[Array, Array]:
        """Points in float32 as seen from here, and the squares of their norms in float64."""
        moved = ((points - self.center) * self.scale).astype(np.float32)
        return moved, (moved * moved.astype(np.float64)).sum(axis=1)
