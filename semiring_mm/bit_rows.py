"""Rows of bits as points: what :mod:`semiring_mm.neighbours` does with a BitMatrix, or bool."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .arrays import Call, check_memory
from .bits import BitMatrix, pack
from .engine import BitRows, Engine
from .metrics import ALSO, BIT_METRICS
from .naming import integer
from .products import check_out, overlaps
from .verb import Verb

__all__ = ["FEWER", "cdist", "check_k", "count", "in_rows", "k_nearest", "metric_of", "within"]

Array = Any

#: Where there is too little memory for all distances.
FEWER = "keep the near pairs alone, by within() or knn(), take fewer rows at a time"
_ROWS = Verb("rows of bits", "X MK, Y NK")
_WORD = 8  # bytes


def metric_of(verb: str, metric: Any, w: Any, *operands: Any) -> str | None:
    """The name of the metric, if these operands are rows of bits: a BitMatrix, or bool alone.

    Raises
    ------
    ValueError
        For a BitMatrix and another metric, or weights; for other rows and "intersection".
    """
    packed = any(type(x) is BitMatrix for x in operands)
    name = metric.lower() if isinstance(metric, str) else getattr(metric, "name", "")
    name = ALSO.get(name, name)
    known = isinstance(metric, str) and name in BIT_METRICS
    if packed and (not known or w is not None):
        came = "weights" if known else f"metric={name or metric!r}"
        raise ValueError(
            f"{verb}: a BitMatrix has the metrics {', '.join(BIT_METRICS)}, without weights; got "
            f"{came}: A.unpack() has its truth values as an array"
        )
    if not known or w is not None:
        return None
    if packed or all(x is None or _of_bool(x) for x in operands):
        return str(name)
    if name == "intersection":
        raise ValueError(
            f"{verb}: the intersection is of rows of bits, each a BitMatrix or an array of bool: "
            f"write X > 0, for one"
        )
    return None


def _of_bool(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        x = np.asarray(x)
    return str(getattr(x, "dtype", "")).rpartition(".")[2] == "bool"  # PyTorch's is torch.bool


class _Given(NamedTuple):
    """Rows of an open call."""

    call: Call
    engine: Engine
    verbs: BitRows
    x: Array  # (m, words)
    y: Array  # (n, words); `x` itself where there is no Y
    columns: int


@contextlib.contextmanager
def _opened(verb: str, device: str | None, out: Any, **operands: Any) -> Iterator[_Given]:
    bits = {name: x.bits if type(x) is BitMatrix else x for name, x in operands.items()}
    with Call(device, out, **bits) as call:
        engine, shapes = call.engine, list[Any]()
        for name, x in operands.items():
            shapes.append(x.shape if type(x) is BitMatrix else getattr(call[name], "shape", None))
        _ROWS.check((shapes[0] if s is None else s for s in shapes), verb=verb)
        x, y = (
            None if given is None
            else _words(
                engine,
                call[name] if type(given) is BitMatrix else pack(engine, call[name], verb), shape[1]
            ) for (name, given), shape in zip(operands.items(), shapes, strict=True)
        )  # fmt: skip
        yield _Given(call, engine, engine.bit_rows, x, x if y is None else y, shapes[0][1])


def _words(engine: Engine, bits: Array, columns: int) -> Array:
    """Packed rows as words, whose bits past the last column are 0: a view, or a copy."""
    m, size = bits.shape
    words = max(1, -(-size // _WORD))
    if columns and columns % (8 * _WORD) == 0 and bits.flags.c_contiguous:
        view = bits.view(np.uint64)
        if getattr(view.flags, "aligned", True):
            return view
    check_memory(m * words * _WORD, f"a copy of {m} rows of {columns} bits", engine)
    room = engine.xp.zeros((m, words * _WORD), np.uint8)
    room[:, :size] = bits
    if columns % 8:
        room[:, size - 1] &= np.uint8(0xFF << (8 - columns % 8) & 0xFF)
    return room.view(np.uint64)


def cdist(metric: str, X: Any, Y: Any, out: Any, device: str | None) -> Any:
    """All distances; see :func:`semiring_mm.neighbours.cdist`."""
    with _opened("cdist", device, out, X=X, Y=Y) as given:
        call, shape = given.call, (len(given.x), len(given.y))
        target = call.out
        if target is not None:
            check_out(target, shape, np.dtype(np.float64))
        apart = target is not None and not overlaps(given.engine.xp, target, given.x, given.y)
        if not apart or target.strides[-1] != target.itemsize:
            what = f"a matrix of {shape[0]} × {shape[1]} distances"
            check_memory(8 * math.prod(shape), what, given.engine, FEWER, halves=False)
            target = given.engine.xp.empty(shape)
        if target.size:
            given.verbs.distances(metric, given.columns, given.x, given.y, target)
        if call.out is not None and target is not call.out:
            call.out[...] = target
            target = call.out
        if metric == "intersection":
            given.engine.xp.negative(target, out=target)
        return call.give(target)


def k_nearest(verb: str, metric: str, X: Any, Y: Any, k: Any, device: str | None) -> Any:
    """The k nearest rows; see :func:`semiring_mm.neighbours.knn`."""
    with _opened(verb, device, None, X=X, Y=Y) as given:
        k = check_k(verb, k, len(given.y), given.verbs.MOST)
        check_memory(16 * len(given.x) * k, f"the {k} nearest of {len(given.x)} rows", given.engine)
        found = given.verbs.nearest(metric, given.columns, given.x, given.y, k)
        return given.call.give((-found[0] if metric == "intersection" else found[0], found[1]))


def check_k(verb: str, k: Any, n: int, most: int) -> int:
    """How many of n rows are wanted, if so many can be found."""
    k = integer(k, f"{verb}: k")
    if not n:
        raise ValueError(f"{verb}: Y has no rows, and so no point is the nearest")
    if not 1 <= k <= n:
        raise ValueError(f"{verb}: k is from 1 to the {n} rows of Y, got {k}")
    if k > most:
        raise ValueError(
            f"{verb}: on a device k is at most {most}, got {k}; more are for arrays on the host"
        )
    return int(k)


def count(metric: str, X: Any, Y: Any, radius: float, device: str | None) -> Any:
    """How many rows are near; see :func:`semiring_mm.neighbours.radius_count`."""
    with _opened("radius_count", device, None, X=X, Y=Y) as given:
        limit = -radius if metric == "intersection" else radius
        counts, _ = given.verbs.within(
            metric, given.columns, given.x, given.y, limit, False, lists=False
        )
        return given.call.give(counts)


def within(metric: str, X: Any, Y: Any, radius: float, device: str | None) -> tuple[Any, ...]:
    """The near pairs as CSR; see :func:`semiring_mm.neighbours.within`."""
    with _opened("within", device, None, X=X, Y=Y) as given:
        limit = -radius if metric == "intersection" else radius
        _, parts = given.verbs.within(
            metric, given.columns, given.x, given.y, limit, Y is None, lists=True
        )
        shape = len(given.x), len(given.y)
        *places, distance = in_rows(given.engine.xp, shape, parts, np.float64, mirror=Y is None)
        distance = -distance if metric == "intersection" else distance
        return *given.call.give((*places, distance)), shape


def in_rows(
    xp: Any, shape: tuple[int, int], parts: list[tuple[Array, ...]], dtype: Any, *, mirror: bool
) -> tuple[Array, Array, Array]:
    """Row pointers, columns and values of pieces of rows, columns and values.

    `mirror`: for each (i, j) there is (j, i), too.
    """
    if not parts:
        parts = [tuple(xp.zeros(0, of) for of in (np.int64, np.int64, dtype))]
    row, column, value = (
        v[0] if len(v) == 1 else xp.concatenate(v) for v in zip(*parts, strict=True)
    )
    if mirror:
        row, column = xp.concatenate([column, row]), xp.concatenate([row, column])
        value = xp.concatenate([value, value])
    order = xp.argsort(row * shape[1] + column, kind="stable")
    row, column, value = row[order], column[order], value[order]
    rows = xp.arange(shape[0] + 1)
    return xp.searchsorted(row, rows) if row.size else 0 * rows, column, value
