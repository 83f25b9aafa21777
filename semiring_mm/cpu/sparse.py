"""Products of sparse and band matrices, C ← (α ⊗ A ⊗ B) ⊕ (β ⊗ C): layouts, threads, errors."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..engine import PLAIN, Scaling
from ..kernel import Kernel
from ..memory import workspace
from ..plan import BROKEN, Plan, absent, overflow, scalar
from ..semirings import Semiring
from .codegen import Compiled, compiled
from .compiler import KEPT, host_target
from .kernels import sparse as kernels
from .vector import vector_plan
from .views import even_strides

__all__ = ["csr_product", "dia_product", "even_rows"]

Array = NDArray[Any]

_PIECE = 1 << 28  # pairs in a call, between which Ctrl-C is seen


def csr_product(
    semiring: Semiring, data: Array, indices: Array, indptr: Array, b: Array, c: Array,
    scaling: Scaling = PLAIN, *, trans: bool = False,
) -> None:  # fmt: skip
    """A in compressed rows times B; see :meth:`semiring_mm.engine.Engine.csr_product`."""
    data, indices, indptr = (np.ascontiguousarray(x) for x in (data, indices, indptr))
    if trans:
        data, indices, indptr = _transposed(data, indices, indptr, c.shape[0])
    depth = 1
    if data.dtype.kind in "iu" and semiring.add_kind == "+":  # entries of a row, at most
        depth = max(1, int(np.diff(indptr).max()))

    fields = {"data": data, "indices": indices, "ends": indptr, "entries": len(indices)}
    both = kernels.csr_vector, kernels.csr_matrix
    cut = functools.partial(even_rows, indptr)
    _sparse_product(semiring, data, both, fields, b, c, depth, scaling, cut)


def dia_product(
    semiring: Semiring, data: Array, offsets: Array, b: Array, c: Array,
    scaling: Scaling = PLAIN, *, trans: bool = False,
) -> None:  # fmt: skip
    """A stored by diagonals times B; see :meth:`semiring_mm.engine.Engine.dia_product`."""
    if data.strides[-1] != data.itemsize or not even_strides(data):
        data = np.ascontiguousarray(data)
    offsets = np.ascontiguousarray(-offsets if trans else offsets, np.int64)

    def cut(parts: int) -> list[int]:
        return [64 * round(x) for x in np.linspace(0, c.shape[0] // 64, parts + 1)[1:-1]]

    fields = {
        "data": data, "offsets": offsets, "count": len(offsets), "slots": data.shape[1],
        "trans": trans,
    }  # fmt: skip
    both = kernels.dia_vector, kernels.dia_matrix
    _sparse_product(semiring, data, both, fields, b, c, max(1, len(offsets)), scaling, cut)


def even_rows(indptr: Array, parts: int) -> list[int]:
    """Where to cut a matrix into parts of nearly as many entries and rows."""
    rows = len(indptr) - 1
    steps = np.linspace(0, rows + int(indptr[-1]), parts + 1)[1:-1]
    key = lambda i: i + int(indptr[i])  # noqa: E731
    return sorted(bisect.bisect_left(range(rows), step, key=key) for step in steps)


def _sparse_product(
    semiring: Semiring, data: Array, both: tuple[Kernel, Kernel], fields: dict[str, Any], b: Array,
    c: Array, depth: int, scaling: Scaling, cut: Callable[[int], list[int]],
) -> None:  # fmt: skip
    """A product of either format: the plan, B and C laid out for the kernels, threads.

    `both` are the kernels for a vector and for a matrix B.
    """
    m, n = c.shape
    plan, vector = vector_plan(semiring, data, b, c, depth, scaling), n == 1
    (call, zero), dtype = _code(both[not vector], semiring, plan, c.dtype), plan.computed_in
    if b.strides[0 if vector else 1] != b.itemsize or not even_strides(b):
        b = np.ascontiguousarray(b)
    to = c
    if (c.strides[1] != c.itemsize and not vector) or not even_strides(c):
        to = np.ascontiguousarray(c)
    fields |= {
        "k": len(b), "b": b[:, 0] if vector else b, "c": to, "more": scaling.accumulate,
        "alpha": scalar(plan, scaling.alpha), "beta": scalar(plan, scaling.beta), "absent": zero,
    }  # fmt: skip
    if not vector:
        width = host_target().vector_bytes // dtype.itemsize
        fields |= {"n": n, "width": width, "rest": -(-(n % (kernels.VECTORS * width)) // width)}
    shape = (1, kernels.CHUNK) if vector else (kernels.ROWS, len(data))
    end = 64 + (math.prod(shape) * dtype.itemsize if data.ndim == 2 else 0)

    def rows(i0: int, i1: int) -> None:
        buffer = workspace(end)
        room = {"room": buffer[64:end].view(dtype).reshape(shape)} if data.ndim == 2 else {}
        call(**fields, **room, i0=i0, i1=i1, wrong=buffer)
        overflows, broken = buffer[:2].tolist()
        buffer[:2] = 0
        if broken:
            raise ValueError(BROKEN)
        if overflows:
            raise overflow(semiring, c.dtype)

    workers, least = pool.get_num_threads(), data.size * n // _PIECE
    if (workers == 1 and not least) or data.size * n < 1 << 16 or m < 2 * workers:
        rows(0, m)
    else:
        cuts = [0, *cut(max(4 * workers, least)), m]
        pool.run([functools.partial(rows, i, j) for i, j in itertools.pairwise(cuts) if i < j])
    if to is not c:
        c[...] = to


@functools.lru_cache(maxsize=KEPT)
def _code(
    kernel: Kernel, semiring: Semiring, plan: Plan, dtype: np.dtype[Any]
) -> tuple[Compiled, float | int | None]:
    """A kernel for a plan, and what stands for absent entries."""
    return compiled(kernel, plan, plan.start), scalar(plan, absent(semiring, dtype, plan))


def _transposed(
    data: Array, indices: Array, indptr: Array, columns: int
) -> tuple[Array, Array, Array]:
    """Aᵀ in compressed rows, the entries of each in A's order."""
    ends = np.zeros(columns + 2, indptr.dtype)
    entries, places, wrong = np.empty_like(data), np.empty_like(indices), np.zeros(2, np.uint8)
    bits = f"u{data.itemsize}"
    compiled(kernels.transpose, bits)(
        m=len(indptr) - 1, k=columns, entries=len(indices), data=data.view(bits), indices=indices,
        ends=indptr, new_data=entries.view(bits), new_indices=places, new_ends=ends, wrong=wrong,
    )  # fmt: skip
    if wrong[1]:
        raise ValueError(BROKEN)
    return entries, places, ends[:-1]
