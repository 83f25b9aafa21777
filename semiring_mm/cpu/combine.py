"""Functions of the entries of matrices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..expressions import Expr
from ..plan import Plan
from .algebra import Algebra, storage_type
from .compiler import KEPT, host_target
from .ir import PTR, Function, Type, Value, Var
from .views import ArrayView, array_function

__all__ = ["apply", "unit_rows"]

Array = NDArray[Any]

_STRIP = 64 << 10  # bytes of each matrix that stay in the second-level cache


def apply(expr: Expr, x: Array, other: Array | float) -> None:
    """x ← expr(x, other): see :meth:`semiring_mm.engine.Engine.apply`."""
    to = x if x.strides[1] == x.itemsize else np.ascontiguousarray(x)
    if alone := not isinstance(other, np.ndarray):
        second = np.array(other, x.dtype)
    else:
        second = np.ascontiguousarray(other, x.dtype)
    _compiled(expr, x.dtype, alone)(to, second)
    if to is not x:
        x[...] = to


@functools.lru_cache(maxsize=KEPT)
def _compiled(expr: Expr, dtype: np.dtype[Any], alone: bool) -> Any:
    t, target = storage_type(dtype.name), host_target()
    lanes = target.vector_bytes // t.size
    f = Function("apply", [PTR, PTR])
    x, other = (ArrayView(f, array) for array in f.args)
    algebra = Algebra(f, Plan(expr, expr, dtype.name, f"f{t.bits}", keep_nan=True))
    columns, vector = x.dim(-1), t.vector(lanes)
    one = f.load(other.data, t, t.size).splat(lanes) if alone else None
    with f.loop(0, x.dim(-2)) as r:
        row = x.data.at(r * x.stride(-2))
        second = other.data if alone else other.data.at(r * other.stride(-2))
        with f.loop(0, columns, lanes) as c:
            inside = f.below(columns - c, lanes)
            place = row.at(c * t.size)
            b = one or f.load_masked(second.at(c * t.size), vector, inside, t.size)
            a = f.load_masked(place, vector, inside, t.size)
            f.store_masked(algebra.mul(a, b), place, inside, t.size)
    return array_function([f], 2)


def unit_rows(x: Array) -> Array:
    """The rows divided by their norms: see :meth:`semiring_mm.engine.Engine.unit_rows`."""
    unit = np.empty(x.shape, x.dtype)
    code = _unit_code(x.dtype)
    if x.nbytes < 2 * _STRIP:
        code(x, unit)
    elif x.size:
        step = max(1, _STRIP // (x.shape[1] * x.itemsize))
        pool.run([
            functools.partial(code, x[i : i + step], unit[i : i + step])
            for i in range(0, len(x), step)
        ])  # fmt: skip
    return unit


@functools.cache
def _unit_code(dtype: np.dtype[Any]) -> Any:
    """Compiled ``unit(X, U)``; the rows of U are contiguous."""
    t, target = storage_type(dtype.name), host_target()
    lanes = target.vector_bytes // t.size
    vector, bits = t.vector(lanes), Type("i", t.bits)
    f = Function("unit", [PTR, PTR])
    x, unit = (ArrayView(f, array) for array in f.args)
    columns = x.dim(-1)
    straight = x.stride(-1).cmp("==", t.size)

    def each(source: Value, body: Callable[[Value], None]) -> None:
        """Visit the vectors of a row; behind its end they are zero."""
        with f.loop(0, columns, lanes) as c:
            inside = f.below(columns - c, lanes)
            body(f.load_masked(source.at(c * t.size), vector, inside, t.size))

    def fold(name: str, v: Value, *start: Value) -> Value:
        return f.call(f"llvm.vector.reduce.{name}.{vector.suffix()}", t, [*start, v])

    with f.loop(0, x.dim(-2)) as r:
        row, to = x.data.at(r * x.stride(-2)), unit.data.at(r * unit.stride(-2))
        with f.if_(straight ^ 1), f.loop(0, columns) as c:
            f.store(f.load(row.at(c * x.stride(-1)), t), to.at(c * t.size), t.size)
        greatest, squares = (f.var(f.const(0.0, vector)) for _ in range(2))
        source = f.select(straight, row, to)

        def look(v: Value, greatest: Var = greatest) -> None:
            size = f.intrinsic("fabs", v)
            greatest.set(f.select(size.cmp(">", greatest.get()), size, greatest.get()))

        each(source, look)
        # a power of two, by which squares neither overflow nor vanish
        mantissa, bias = (23, 127) if t.bits == 32 else (52, 1023)
        exponent = fold("fmax", greatest.get()).bits_as(bits) >> mantissa
        power = f.const(2 * bias - 1, bits) - exponent
        power = f.select(power.cmp("<", 1), f.const(1, bits), power)
        factor = (power << f.const(mantissa, bits)).bits_as(t).splat(lanes)

        def add(v: Value, squares: Var = squares, factor: Value = factor) -> None:
            v = v * factor
            squares.set(f.fma(v, v, squares.get()))

        each(source, add)
        total = fold("fadd", squares.get(), f.const(0.0, t))
        norm = f.intrinsic("sqrt", total).splat(lanes)
        with f.loop(0, columns, lanes) as c:
            inside = f.below(columns - c, lanes)
            v = f.load_masked(source.at(c * t.size), vector, inside, t.size)
            f.store_masked(v * factor / norm, to.at(c * t.size), inside, t.size)
    return array_function([f], 2)
