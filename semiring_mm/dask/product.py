"""Products of Dask arrays as graphs of tasks."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np

from .. import blas
from .. import engine as engines
from ..expressions import evaluate
from ..products import check_inner, multiply
from ..semirings import Semiring

__all__ = ["product"]

Array = Any
_CHAIN = 8  # products that one task adds up, and sums that one task joins


def product(s: Semiring, a: Any, b: Any) -> Any:
    """:func:`semiring_mm.dask.matmul` ."""
    for name, x in (("a", a), ("b", b)):
        if not isinstance(x, da.Array):
            raise TypeError(
                f"{name} is a {type(x).__name__}, and semiring_mm.dask multiplies Dask arrays: use "
                f"dask.array.from_array({name}), or semiring_mm.matmul for other arrays"
            )
        if x.ndim not in (1, 2):
            raise ValueError(
                f"{name} has shape {x.shape}: semiring_mm.dask multiplies matrices and vectors; "
                f"for a batch, multiply its matrices one by one"
            )
        if any(math.isnan(size) for size in x.shape):
            raise ValueError(
                f"{name} has chunks of unknown size: call {name}.compute_chunk_sizes() first"
            )
    left = a[np.newaxis] if a.ndim == 1 else a
    right = b[:, np.newaxis] if b.ndim == 1 else b
    check_inner(a.shape, b.shape)
    host, (x, y) = engines.named("cpu"), (np.empty((0, 0), v.dtype) for v in (a, b))
    dtype = multiply(host, s, x, y).dtype
    if dtype.kind in "iu":
        left = left.rechunk({1: -1})
    right = right.rechunk({0: left.chunks[1]})
    wide = np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype
    found = _product(s, left, right, wide).astype(dtype)
    if b.ndim == 1:
        found = found[:, 0]
    return found[0] if a.ndim == 1 else found


def _product(s: Semiring, a: Any, b: Any, dtype: np.dtype[Any]) -> Any:
    rows, depth, columns = (range(x) for x in (*a.numblocks, b.numblocks[1]))
    left, right = a.__dask_keys__(), b.__dask_keys__()
    name = f"product-{dask.base.tokenize(s, a, b)}"
    graph: dict[Any, Any] = {}
    for i in rows:
        for j in columns:
            parts: list[Any] = []
            for k in depth[::_CHAIN]:
                chain = depth[k : k + _CHAIN]
                parts.append((f"part-{name}", i, j, k))
                graph[parts[-1]] = (
                    functools.partial(_sum_of_products, s, dtype),
                    [left[i][x] for x in chain], [right[x][j] for x in chain],
                )  # fmt: skip
            level = 0
            while len(parts) > 1:
                groups = [parts[x : x + _CHAIN] for x in range(0, len(parts), _CHAIN)]
                level += 1
                parts = [(f"join-{name}", level, i, j, x) for x in range(len(groups))]
                for part, group in zip(parts, groups, strict=True):
                    graph[part] = (functools.partial(_join, s), group)
            graph[name, i, j] = graph.pop(parts[0])
    layers = dask.highlevelgraph.HighLevelGraph.from_collections(name, graph, dependencies=[a, b])
    meta = a._meta.astype(dtype)
    return da.Array(layers, name, (a.chunks[0], b.chunks[1]), meta=meta, dtype=dtype)


def _sum_of_products(
    s: Semiring, dtype: np.dtype[Any], lefts: Sequence[Array], rights: Sequence[Array]
) -> Array:
    pairs = ((x.astype(dtype, copy=False), y.astype(dtype, copy=False))
             for x, y in zip(lefts, rights, strict=True))  # fmt: skip
    total = blas.matmul(*next(pairs), s)
    one = s.identities(dtype)[1]
    for x, y in pairs:
        total = blas.gemm(None, x, y, one, total, semiring=s, out=total)
    return total


def _join(s: Semiring, parts: Sequence[Array]) -> Array:
    return functools.reduce(functools.partial(evaluate, s.add_expr), parts)
