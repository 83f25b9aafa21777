"""Each verb with a gradient as a function of JAX, and JAX's functions for the formulas."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from ..differentiable.rows import VERBS
from ..verb import Verb, refuse_ragged

__all__ = ["LIBRARY", "Jax"]

Array = Any


class Jax:
    """What :class:`semiring_mm.verb.Library` has, of JAX."""

    ARRAY = "Array"
    xp = jnp
    broadcast_shapes = staticmethod(np.broadcast_shapes)

    def run(self, name: str, /, *args: Any) -> tuple[Any, ...]:
        count = len(VERBS[name].operands)
        found: tuple[Any, ...] = _functions[name](args[count:], *args[:count])
        return found

    def fused(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return _jitted(function)  # a function of jax.numpy alone takes tens of microseconds

    def take(self, x: Array, index: Array, axis: int) -> Array:
        return jnp.take_along_axis(x, index, axis)

    def add_at(self, shape: Sequence[int], axis: int, index: Array, values: Array) -> Array:
        at = [jax.lax.broadcasted_iota(jnp.int32, index.shape, i) for i in range(index.ndim)]
        at[axis] = index
        zeros = jnp.zeros(shape, jnp.promote_types(values.dtype, jnp.float32))
        return zeros.at[tuple(at)].add(values.astype(zeros.dtype))

    def count(self, n: int, like: Array) -> Array:
        return jnp.arange(n)

    def arrays(self, verb: str, /, **operands: Any) -> list[Any]:
        refuse_ragged(verb, **operands)
        return [None if x is None else jnp.asarray(x) for x in operands.values()]

    def promoted(self, *arrays: Array) -> list[Any]:
        dtype = jnp.result_type(*(x for x in arrays if x is not None))
        return [None if x is None else x.astype(dtype) for x in arrays]

    def real(self, verb: str, *arrays: Array) -> list[Any]:
        dtype = jnp.result_type(jnp.float32, *(x for x in arrays if x is not None))
        if not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(f"{verb} takes real numbers, got dtype {dtype}: use float32")
        return [None if x is None else x.astype(dtype) for x in arrays]

    def lengths(self, lengths: Any, like: Array) -> Array:
        return jnp.asarray(lengths)

    def concrete(self, x: Array) -> bool:
        return not isinstance(x, jax.core.Tracer)

    def differentiated(self, *arrays: Array) -> list[bool]:
        return [False] * len(arrays)  # JAX asks for what a gradient needs by itself

    def cast(self, x: Array, dtype: Any) -> Array:
        return x.astype(dtype)

    def wide(self, x: Array) -> Array:
        return x.astype(jnp.float32) if x.dtype in (jnp.float16, jnp.bfloat16) else x

    def repeated(self, verb: str, *arguments: Any) -> Any:
        return None


LIBRARY = Jax()


@functools.cache
def _jitted(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = jax.jit(function, static_argnums=0)
    return compiled


# --- operators ------------------------------------------------------------------------------------


def _define(verb: Verb) -> Any:
    """A function of a row: of the arguments that are no operands, in a tuple, and the operands.

    A result that is not computed is None.
    """
    names = [x.name for x in verb.operands]
    outcomes = [x.name for x in verb.results]

    def compute(more: tuple[Any, ...], *operands: Array | None) -> tuple[Array | None, ...]:
        present = [(i, x) for i, x in enumerate(operands) if x is not None]
        there, arrays = [i for i, _ in present], [x for _, x in present]
        shapes = verb.result_shapes((*operands, *more))
        wanted = [i for i, shape in enumerate(shapes) if shape is not None]
        results = [
            jax.ShapeDtypeStruct(shapes[i], verb.results[i].dtype or arrays[0].dtype)
            for i in wanted
        ]

        def call(*arrays: Array) -> tuple[Any, ...]:
            given: list[Any] = [None] * len(operands)
            for i, x in zip(there, arrays, strict=True):
                given[i] = x
            found = verb.compute(*given, *more)
            return tuple(found[i] for i in wanted)

        if any(isinstance(x, jax.core.Tracer) for x in arrays):
            own = [len(verb.operands[i].axes) for i in there]
            rank = max(x.ndim - n for x, n in zip(arrays, own, strict=True))
            arrays = [
                x.reshape((1,) * (rank + n - x.ndim) + x.shape)
                for x, n in zip(arrays, own, strict=True)
            ]
        some = any(isinstance(x, tuple) for x in more)  # nodes of one graph
        found = iter(run(call, results, *arrays, batched="sequential" if some else "expand_dims"))
        return tuple(None if shape is None else jnp.asarray(next(found)) for shape in shapes)

    def forward(more: tuple[Any, ...], *operands: Array | None) -> tuple[Any, Any]:
        if verb.gradient is None:
            verb.backward(LIBRARY, (), {}, {}, {})  # says so
        wide = more
        if verb.prepared is not None:
            wide = verb.prepared([None if x is None else x.shape for x in operands], *more)
        results = operator(wide, *operands)
        there = verb.present(dict(zip(verb.names, (*operands, *more), strict=True)))
        own = tuple(x if axes is not None else None for x, axes in zip(results, there, strict=True))
        return own, (operands, results)

    def backward(more: tuple[Any, ...], kept: Any, came: Any) -> tuple[Any, ...]:
        operands, results = kept
        given = dict(zip(verb.names, (*operands, *more), strict=True))
        given |= dict(zip(outcomes, results, strict=True))
        shapes = {n: None if x is None else x.shape for n, x in zip(names, operands, strict=True)}
        found = verb.backward(LIBRARY, came, given, shapes, dict.fromkeys(names, True))
        return tuple(
            None if g is None or x is None else g.astype(x.dtype)
            for g, x in zip(found, operands, strict=True)
        )

    operator: Any = jax.custom_vjp(compute, nondiff_argnums=(0,))
    operator.defvjp(forward, backward)
    return operator


_functions = {name: _define(verb) for name, verb in VERBS.items()}


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
