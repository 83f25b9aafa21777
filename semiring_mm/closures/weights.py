"""A graph's weights: the type to compute in, ranges of all entries, negative cycles, rounding."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..lazy import cached_property
from ..plan import Facts, make_plan
from ..semirings import Semiring
from .edges import EdgeList
from .paths import NegativeCycleError, epsilon, find_negative_cycle

__all__ = [
    "Rounding", "Weights", "as_numbers", "check_dtype", "check_idempotent", "check_predecessors",
    "edges_of", "first_margins", "improved", "with_margins", "worsened",
]  # fmt: skip

Array = Any
T = TypeVar("T")


class Rounding(Exception):
    """A cycle of weight zero came out a little better than none.

    The run begins again with weights that are :func:`worsened` by the `margins` of the nodes.
    """

    def __init__(self, margins: NDArray[np.float64]) -> None:
        super().__init__()
        self.margins = margins


def with_margins(
    s: Semiring, dtype: np.dtype[Any], run: Callable[[NDArray[np.float64] | None], T],
    margins: NDArray[np.float64] | None = None,
) -> T:  # fmt: skip
    """What `run` returns without margins or, where it raises Rounding, with the first that do.

    It takes the margins of the nodes, (n,), for :func:`worsened`, or None. `margins` come first, if
    they are given.
    """
    if margins is None:
        try:
            return run(None)
        except Rounding as rounding:
            margins = rounding.margins
        # out here what the exception's frames held, a whole matrix, is free again
    while 0 < epsilon(dtype) * margins.max() < 0.25:
        with contextlib.suppress(Rounding):
            return run(margins)
        margins = 4 * margins
    raise ValueError(
        f"{s.name}: {dtype} rounds cycles of weight zero to negative ones; use float64"
    )


def worsened(s: Semiring, weights: Array, rows: Array, columns: Array) -> Array:
    """Weights made worse by some units of rounding, so that no cycle of them is better than one.

    Between two nodes that is the lesser of their margins; 0 leaves a weight as it is. The
    margins are relative, so that small weights keep all their digits beside large ones. `rows` has
    the margins of the nodes that edges leave, `columns` those of the nodes that edges reach; the
    two broadcast to the shape of `weights`, a matrix or the weights of edges.
    """
    sign = 1 if s.add_kind == "min" else -1
    units = sign * epsilon(weights.dtype) * np.minimum(rows, columns)
    exact = weights.astype(np.float64)
    return (exact * (1 + units * np.sign(exact))).astype(weights.dtype)


@dataclass(frozen=True)
class Weights:
    """The weights of a graph of n nodes, by their range."""

    s: Semiring
    dtype: np.dtype[Any]
    n: int
    facts: Facts

    @property
    def broken(self) -> bool:
        """Whether there is an entry that is no weight: NaN, or the opposite of no edge."""
        if self.dtype.kind in "iub" or not self.n:
            return False
        some = self.facts.lo <= self.facts.hi
        return self.facts.special or (some and self._worst in (self.facts.lo, self.facts.hi))

    @property
    def _worst(self) -> float:
        below = -self.s.zero
        return below if self.s.mul_kind == "+" and math.isinf(below) else math.nan

    def refuse(self, weights: Array, corner: tuple[int, int] = (0, 0)) -> None:
        """Raise ValueError at the first entry that is no weight; `corner`: where the array is."""
        wrong = np.isnan(weights) if self.facts.special else weights == self._worst
        places = np.argwhere(wrong)
        if len(places):
            at = places[0].tolist()
            at[-2:] = (int(x) + y for x, y in zip(at[-2:], corner, strict=True))
            what = "NaN" if self.facts.special else self._worst
            raise ValueError(f"the weight at {at} is {what}; use {self.s.zero:g} for no edge")

    @property
    def improving(self) -> bool:
        """Whether a cycle of real edges may be better than none, and it or an edge can be named."""
        if not self.s.selective:
            return False
        if self.s.mul_kind == "*":
            return bool(self.look(1))
        least = self.facts.lo if self.s.add_kind == "min" else -self.facts.hi
        return self.s.mul_kind == "+" and least < 0

    @cached_property
    def wide(self) -> np.dtype[Any]:
        """The type in which no path's weight can overflow: the graph's, or int64."""
        dtype, s, facts = self.dtype, self.s, self.facts
        if dtype.kind not in "iu" or s.order_only:
            return dtype
        if s.mul_kind != "+" or not s.selective:
            raise TypeError(
                f"a closure over {s.name} multiplies along paths, and integers would overflow; "
                f"use float32 or float64"
            )
        largest = max(abs(facts.lo), abs(facts.hi)) if facts.lo <= facts.hi else 0
        reach = (self.n + 1) * largest
        if reach <= 1 << (8 * dtype.itemsize - 5) and dtype.kind == "i":
            return dtype
        if reach > 1 << 59:
            raise OverflowError(
                f"{s.name}: {self.n} weights of up to {largest} may add up to {reach}, and in "
                f"integers a closure computes with numbers of up to 2**59; use float64"
            )
        return np.dtype(np.int64)

    @property
    def may_overflow(self) -> bool:
        """Whether sums of weights along a path may leave the range of a floating-point type."""
        wide = self.wide
        return self.s.mul_kind == "+" and wide.kind == "f" and self.known() is None

    def widen(self, d: Array) -> Array:
        """A matrix of the graph's type in the wide one."""
        wide = self.wide
        if wide == self.dtype:
            return d
        missing = d == self.s.identities(self.dtype)[0]
        result = d.astype(wide)
        result[missing] = self.s.identities(wide)[0]
        return result

    def narrow(self, d: Array) -> Array:
        """A matrix of the wide type in the graph's again, or OverflowError."""
        if d.dtype == self.dtype:
            return d
        info, inside = np.iinfo(self.dtype), self.s.zero > 0
        missing = d == self.s.identities(d.dtype)[0]
        # What is missing lies beyond the range, and its end stands for it: few passes are enough.
        end, clip = (info.max, np.minimum) if inside else (info.min, np.maximum)
        if end > np.iinfo(d.dtype).max:  # of uint64: all distances fit, and no edge is in the range
            result = d.astype(self.dtype)
            result[missing] = end
            return result
        beyond = d >= end if inside else d <= end
        fits = not d.size or (d.min() >= info.min if inside else d.max() <= info.max)
        if not (fits and (beyond == missing).all()):
            finite, lowest = d[~missing], info.min + (not inside)
            raise OverflowError(
                f"a distance of {finite.min() if finite.min() < lowest else finite.max()} does "
                f"not fit {self.dtype}; use int64"
            )
        return clip(d, end).astype(self.dtype)

    def known(self) -> tuple[Facts, Facts, Facts] | None:
        """Ranges of all entries throughout a closure, in the wide type; None: any number."""
        s, dtype, facts = self.s, self.wide, self.facts
        if dtype.kind in "iu" and not s.order_only:
            unit = 1 << (8 * dtype.itemsize - 4)
            limit = Facts(-unit, unit, True)
            return limit, limit, limit
        if dtype.kind == "f" or dtype.name == "bfloat16":
            lo, hi = min(facts.lo, s.one), max(facts.hi, s.one)
            if s.order_only:
                whole = Facts(-math.inf, math.inf, False)
            elif s.mul_kind == "+" and s.selective:
                least, most = 0 if math.isinf(lo) else abs(lo), 0 if math.isinf(hi) else abs(hi)
                highest = float(np.finfo(dtype).max) if dtype.kind == "f" else 3e38
                if (self.n + 1) * max(least, most) > highest:
                    return None
                whole = Facts(lo, math.inf, False) if s.zero > 0 else Facts(-math.inf, hi, False)
            elif s.mul_kind == "*" and not self.look(1):  # no factor is better than one
                whole = Facts(lo, hi if s.add_kind == "max" else math.inf, False)
            else:
                return None
            return whole, whole, whole
        return None

    def alike(self, facts: Facts) -> bool:
        """Whether a closure of weights with other facts takes the same steps, and no cycle's check.

        Of this dtype and as many nodes.
        """
        other = Weights(self.s, self.dtype, self.n, facts)
        with contextlib.suppress(OverflowError):
            same = (other.wide, other.known()) == (self.wide, self.known())
            return same and not (other.broken or other.look(1))
        return False

    def look(self, rows: int) -> int:
        """Least number of rows of a block whose diagonal is checked for improving cycles; 0: none.

        `rows` is the engine's choice for floating-point numbers.
        """
        s, dtype = self.s, self.wide
        least, most = self.facts.lo, self.facts.hi
        if s.add_kind in ("max", "|") and dtype.kind == "b":
            safe = bool(s.identities(dtype)[1])
        elif not s.selective:
            safe = False
        elif math.isinf(s.one):  # nothing is better
            safe = (s.one < 0) == (s.add_kind == "min")
        elif s.mul_kind == "+":
            safe = least >= 0 if s.add_kind == "min" else most <= 0
        else:
            safe = s.mul_kind == "*" and (
                least >= 1 if s.add_kind == "min" else least >= 0 and most <= 1
            )
        # a cycle doubles integers at each step, and soon they have no room left
        return 0 if safe else 1 if dtype.kind in "iu" else rows


def check_idempotent(s: Semiring, instead: str) -> None:
    """Raise ValueError if ⊕ is not idempotent, so that no closure exists; `instead` is advice."""
    if not s.idempotent:
        raise ValueError(
            f"a closure needs an idempotent ⊕ (a ⊕ a = a), and {s.name} has ⊕ = {s.add}; "
            f"use {instead} for a fixed number of steps"
        )


@functools.lru_cache(maxsize=256)
def check_dtype(s: Semiring, dtype: np.dtype[Any]) -> None:
    """Raise TypeError, as a product does, if the semiring makes no sense in a dtype."""
    bits = Facts(0, 1, False)
    make_plan(s, dtype, bits, bits, 1)


def check_predecessors(s: Semiring, dtype: np.dtype[Any]) -> None:
    """Raise ValueError if ⊕ does not choose one of its operands, so that none has a predecessor."""
    if not (s.selective or dtype.kind == "b"):
        raise ValueError(
            f"return_predecessors needs a semiring whose ⊕ chooses one of its operands; "
            f"{s.name} has ⊕ = {s.add}"
        )


def as_numbers(s: Semiring, dtype: np.dtype[Any]) -> bool:
    """Whether predecessors of truth values come from the numbers 0 and 1 under max and min.

    Where ⊕ is "or" no operand wins; there one k does.
    """
    return dtype.kind == "b" and (s.name == "max_min" or not s.selective)


def edges_of(s: Semiring, weights: Array) -> tuple[Array, Array, Array]:
    """Row, column and weight of the edges in a matrix on the host."""
    row, col = np.nonzero(weights != s.identities(weights.dtype)[0])
    return row, col, weights[row, col]


def first_margins(
    row: NDArray[np.int64], col: NDArray[np.int64], weight: Array, potentials: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Margins for the nodes on cycles whose weight may round to less than zero; 0 for others.

    Edges of such cycles nearly bridge the difference of the `potentials` of their ends, and they
    remain when edges from or to nodes without others are removed again and again. A few nodes more
    do no harm.
    """
    n, exact = len(potentials), weight.astype(np.float64)
    size = max(np.abs(exact).max(initial=0), np.abs(potentials).max(initial=0))
    near = exact + potentials[row] - potentials[col] <= 4 * n * epsilon(weight.dtype) * size
    while near.any():
        row, col = row[near], col[near]
        enters, leaves = np.zeros((2, n), bool)
        enters[col] = leaves[row] = True
        near = enters[row] & leaves[col]
        if near.all():
            break
    margins = np.zeros(n)
    margins[row[near]] = 1
    return margins


def improved(
    s: Semiring, n: int, node: int, value: Any, edges: Callable[[], EdgeList] | None,
    labels: Sequence[Any] | None,
) -> NoReturn:  # fmt: skip
    """Raise for a diagonal entry that is better than one: an error with the cycle, or Rounding.

    Rounding must not be ignored: an elimination doubles the gain of such a cycle at every step that
    goes around it once more.

    Parameters
    ----------
    s : Semiring
    n : int
        Nodes.
    node : int
        A node on such a cycle.
    value : scalar of NumPy
        The entry of the diagonal.
    edges : callable, optional
        The edges of the graph; None where they have been overwritten.
    labels : sequence, optional
        Names of the nodes.
    """
    if s.mul_kind == "+" and s.selective and edges is not None:
        row, col, weight = edges().arrays
        sign = 1 if s.add_kind == "min" else -1
        weight = weight.astype(np.int64) if weight.dtype.kind in "iu" else weight
        found = find_negative_cycle(row, col, sign * weight, n)
        if isinstance(found, tuple):
            cycle, total = found
            if s.name == "min_plus":
                raise NegativeCycleError(cycle, total, labels)
            raise ValueError(
                f"{s.name}: the cycle {' → '.join(map(str, [*cycle, cycle[0]]))} of weight "
                f"{sign * total:g} improves itself, so no closure exists"
            )
        if epsilon(weight.dtype) and value == value:
            raise Rounding(first_margins(row, col, sign * weight, found))
    if s.mul_kind == "*" and s.selective and edges is not None:
        raise ValueError(_beyond_one(s, node, value, edges(), labels))
    if value != value:
        raise ValueError(
            f"{s.name}: paths through node {node} leave the range of {value.dtype}; a closure "
            f"needs weights of which no cycle is better than one = {s.one:g}"
        )
    raise ValueError(
        f"{s.name}: a cycle through node {node} improves itself (its value "
        f"{value:g} is better than one = {s.one:g}), so no closure exists"
    )


def _beyond_one(
    s: Semiring, node: int, value: Any, edges: EdgeList, labels: Sequence[Any] | None
) -> str:
    """The message that names, of weights that are factors, the one furthest beyond one."""
    row, col, weight = edges.arrays
    above = s.add_kind == "max" and weight.max() > s.one
    i = int(weight.argmax() if above else weight.argmin())
    ends = [int(row[i]), int(col[i])]
    where, through = f"at {ends}", node
    if labels is not None:
        where, through = f"from {labels[ends[0]]} to {labels[ends[1]]}", labels[node]
    wanted = f"from 0 to {s.one:g}" if s.add_kind == "max" else f"of at least {s.one:g}"
    entry = f"the weight {where} is {weight[i]:g}"
    if value != value:
        problem = f"paths through node {through} leave the range of {weight.dtype}, as {entry}"
    else:
        problem = (
            f"{entry}, and a cycle through node {through} multiplies to {value:g}, better than "
            f"one = {s.one:g}, so no closure exists"
        )
    return f"{s.name}: {problem}; give weights {wanted}"
