"""What the operators share: calls of the engines, and JAX's functions for the formulas."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

__all__ = ["Functions", "once", "run"]

Array = Any


class Functions:
    """JAX's functions for the formulas of :mod:`semiring_mm.gradients`."""

    xp = jnp

    @staticmethod
    def take(x: Array, index: Array, axis: int) -> Array:
        return jnp.take_along_axis(x, index, axis)

    @staticmethod
    def add_at(shape: Sequence[int], axis: int, index: Array, values: Array) -> Array:
        at = [jax.lax.broadcasted_iota(jnp.int32, index.shape, i) for i in range(index.ndim)]
        at[axis] = index
        zeros = jnp.zeros(shape, jnp.promote_types(values.dtype, jnp.float32))
        return zeros.at[tuple(at)].add(values.astype(zeros.dtype))


# --- calls of the engines -------------------------------------------------------------------------


def run(
    function: Callable[..., Any], results: Sequence[Any], *args: Array, batched: str = "expand_dims"
) -> tuple[Array, ...]:
    """Call a function on concrete arrays in place, or on traced ones by a host callback."""
    if not any(isinstance(x, jax.core.Tracer) for x in args):
        return tuple(function(*args))

    def call(*arrays: Any) -> tuple[Any, ...]:
        try:
            return tuple(function(*map(np.asarray, arrays)))
        except Exception as error:
            if jax.config.jax_traceback_filtering != "off":
                next(_raising(error))
            raise

    def on_host(*args: Array) -> Any:
        return tuple(jax.pure_callback(call, tuple(results), *args, vmap_method=batched))

    def refused(*args: Array) -> Any:
        return tuple(_refused.bind(*args, results=tuple((x.shape, x.dtype) for x in results)))

    return tuple(jax.lax.platform_dependent(*args, cpu=on_host, default=refused))


def _raising(error: Exception) -> Iterator[None]:
    """Raise an error without the lines that lead to it.

    XLA writes the stack of the innermost frame to its message; that of a generator is one frame.
    """
    raise error.with_traceback(None)
    yield  # type: ignore[unreachable]


def _is_new(record: logging.LogRecord) -> bool:
    """Whether a record of JAX's says more than the error that is raised besides."""
    trace = record.exc_info[2] if record.exc_info else None
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or trace.tb_frame.f_code is not _raising.__code__


logging.getLogger("jax._src.callback").addFilter(_is_new)


def once(function: Callable[..., Any], results: Sequence[Any], *args: Array) -> tuple[Array, ...]:
    """:func:`run` on arrays of one batch, without a derivative."""

    def refused(*_: Any) -> Any:
        raise NotImplementedError(
            "semiring_mm.jax has second derivatives of products whose ⊕ is min or max and over "
            "plus_times: none of other products, and none of closures"
        )

    guarded = jax.custom_vjp(lambda *args: run(function, results, *args, batched="broadcast_all"))
    guarded.defvjp(refused, refused)
    found: tuple[Array, ...] = guarded(*args)
    return found


def _refuse(*_: Any, **__: Any) -> Any:
    raise NotImplementedError(
        "semiring_mm.jax inside jit or vmap runs on the CPU only: from another device each call "
        "would take the operands to the host and back. Call it outside jit, where it runs on the "
        "arrays' CUDA device, or place the arrays and the jitted function on jax.devices('cpu')[0]"
    )


def _refused_batch(args: Any, dims: Any, *, results: Any) -> Any:
    size = next(x.shape[i] for x, i in zip(args, dims, strict=True) if i is not None)
    wide = tuple(((size, *shape), dtype) for shape, dtype in results)
    return _refused.bind(*args, results=wide), (0,) * len(wide)


_refused = Primitive("semiring_mm_on_this_device")
_refused.multiple_results = True
_refused.def_abstract_eval(
    lambda *_, results: [jax.core.ShapedArray(shape, dtype) for shape, dtype in results]
)
mlir.register_lowering(_refused, _refuse)
batching.primitive_batchers[_refused] = _refused_batch
