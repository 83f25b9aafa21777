"""The matrix-vector product y ← (α ⊗ A ⊗ x) ⊕ (β ⊗ y), bound by reading A once."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..engine import PLAIN, Scaling
from ..expressions import joins_logarithms
from ..memory import workspace
from ..plan import Plan, is_sum, make_plan, overflow, scalar, unseen_plan
from ..semirings import Semiring
from . import product
from .codegen import Compiled, compiled
from .compiler import KEPT, host_target
from .facts import facts
from .kernels import gemv as kernels
from .views import even_strides

__all__ = ["gemv", "vector_plan"]

Array = NDArray[Any]

_PIECE = 1 << 28  # pairs in a call, between which Ctrl-C is seen
_ALONE = 1 << 19  # entries below which a second thread takes longer to begin than it saves


def gemv(
    semiring: Semiring, a: Array, x: Array, y: Array, scaling: Scaling = PLAIN, *,
    scale_x: bool = False,
) -> None:  # fmt: skip
    """y ← ((α ⊗ A) ⊗ x) ⊕ (β ⊗ y); see :meth:`semiring_mm.engine.Engine.gemv`."""
    if scaling == PLAIN and product.blas_serves(semiring, a, x, y):
        product.by_blas(a, x, y)
        return
    if not even_strides(y):
        out = np.ascontiguousarray(y)
        gemv(semiring, a, x, out, scaling, scale_x=scale_x)
        y[...] = out
        return
    m, depth = a.shape[-2:]
    x = x if even_strides(x) else np.ascontiguousarray(x)
    left, right = (x, a) if scale_x else (a, x)
    plan = vector_plan(semiring, left, right, y, depth, scaling)
    stack = a if a.ndim == 3 else a[np.newaxis]
    (call, statics), dtype = _code(plan), plan.computed_in
    size = 64 + (2 * kernels.CHUNK + depth) * dtype.itemsize
    alpha, beta = scalar(plan, scaling.alpha), scalar(plan, scaling.beta)
    fields = {
        **statics, **_forms(stack), "depth": depth, "x": x[:, np.newaxis],
        "y": y.reshape(len(stack), m, 1), "alpha": None if scale_x else alpha,
        "factor": alpha if scale_x else None, "beta": beta, "more": scaling.accumulate,
    }  # fmt: skip

    def part(b0: int, b1: int, i0: int, i1: int) -> None:
        """Rows i0 to i1 - 1 of matrices b0 to b1 - 1."""
        buffer = workspace(size)
        room = buffer[64:size].view(dtype)
        call(**fields, b0=b0, b1=b1, i0=i0, i1=i1, room=room, wrong=buffer)
        if buffer[0]:
            buffer[0] = 0
            raise overflow(semiring, y.dtype)

    workers = pool.get_num_threads()
    whole_matrices, least = len(stack) >= 2 * workers, a.size // _PIECE
    few = m < 2 * workers and not whole_matrices
    if a.size < _ALONE or (workers == 1 and not least) or few:
        part(0, len(stack), 0, m)
        return
    if whole_matrices:
        pool.run_parts(lambda i, j: part(i, j, 0, m), len(stack), max(workers, least))
    else:  # rows by 16
        pool.run_parts(
            lambda i, j: part(0, len(stack), 16 * i, min(16 * j, m)), -(-m // 16),
            max(workers, least),
        )  # fmt: skip


@functools.lru_cache(maxsize=KEPT)
def _code(plan: Plan) -> tuple[Compiled, dict[str, int]]:
    """The kernel of a plan, and its static parameters."""
    logarithms, exactly = joins_logarithms(plan.add), is_sum(plan)
    together = kernels.BLOCK if exactly else 16 if logarithms else 4
    statics = {
        "logarithms": logarithms, "exactly": exactly, "together": together,
        "width": host_target().vector_bytes // plan.computed_in.itemsize,
    }  # fmt: skip
    return compiled(kernels.gemv, plan, plan.start), statics


def _forms(a: Array) -> dict[str, Array | None]:
    """A stack of matrices as one of the arrays by which the kernel reads them."""
    size = a.itemsize
    if not even_strides(a):
        a = np.ascontiguousarray(a)
    down, across = a.strides[-2:]
    given: dict[str, Array | None] = {"a": None, "turned": None, "apart": None}
    if across == size:
        given["a"] = a
    elif down == size:
        given["turned"] = a.transpose(0, 2, 1)
    else:
        given["apart"] = a[..., np.newaxis]
    return given


def vector_plan(
    semiring: Semiring, a: Array, x: Array, y: Array, depth: int, scaling: Scaling
) -> Plan:
    """The plan of a product whose time is that of reading A: if possible without a scan of it.

    α scales `a`; `depth`: how many products an entry of y joins, at most.
    """
    dtype, alpha, beta = a.dtype, scaling.alpha, scaling.beta
    depth = depth if dtype.kind in "iu" else 1
    try:
        return unseen_plan(semiring, dtype, depth, alpha, beta, scaling.accumulate, nan=True)
    except OverflowError:
        third = facts(semiring, y) if scaling.accumulate else None
        left, right = facts(semiring, a), facts(semiring, x)
        return make_plan(semiring, dtype, left, right, depth, c=third, alpha=alpha, beta=beta)
