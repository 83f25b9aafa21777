"""What the products mean, written a second time: plainly, in NumPy, one k after the other.

Of the package only the table of semirings is used. Integers are computed as float64 (exact for the
small numbers of the tests that do so) or, in :func:`exact_product`, as Python's integers.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import semiring_mm as sm

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

INF = np.inf
finfo = ml_dtypes.finfo if ml_dtypes else np.finfo
#: Without ml_dtypes a type that is like no other: conftest.py skips the tests that it names.
BFLOAT16 = np.dtype(ml_dtypes.bfloat16 if ml_dtypes else "V2")
FLOATS = [np.dtype("f2"), *([BFLOAT16] if ml_dtypes else []), np.dtype("f4"), np.dtype("f8")]
SIGNED = [np.dtype(x) for x in ("i1", "i2", "i4", "i8")]
UNSIGNED = [np.dtype(x) for x in ("u1", "u2", "u4", "u8")]
BOOL = np.dtype("?")


@dataclass(frozen=True)
class Algebra:
    """⊕ and ⊗ as functions of arrays, and the identity of ⊕."""

    add: Callable[[Any, Any], Any]
    mul: Callable[[Any, Any], Any]
    zero: float
    one: float
    dtypes: tuple[np.dtype, ...]


def _pair(a, b):
    return ((a != 0) & (b != 0)) * 1.0


def _read(text):
    """Return an expression as a function of arrays: Python's own reading, NumPy's functions."""

    def whole(a, b):
        names = {"min": np.minimum, "max": np.maximum, "inf": INF, "a": a, "b": b}
        return eval(text, {name: getattr(np, name) for name in _FUNCTIONS}, names)

    def apply(a, b):
        try:
            return whole(a, b)
        except ValueError:  # a choice, which Python makes of one number at a time
            return np.vectorize(whole, otypes=[np.result_type(a, b)])(a, b)

    return apply


def _row(row):
    """A semiring that has no second meaning below, in the dtypes that the package takes it in."""
    dtypes = []
    for dtype in (*FLOATS, *SIGNED, *UNSIGNED, BOOL):
        with contextlib.suppress(TypeError):
            sm.matmul(np.ones((1, 1), dtype), np.ones((1, 1), dtype), row)
            dtypes.append(dtype)
    return Algebra(_read(row.add), _read(row.mul), row.zero, row.one, tuple(dtypes))


_FUNCTIONS = ("abs", "exp", "log", "log1p", "expm1", "sqrt", "logaddexp")
_NUMBERS = (*FLOATS, *SIGNED, *UNSIGNED)
MEANT = {
    "plus_times": Algebra(np.add, np.multiply, 0, 1, _NUMBERS),
    "min_plus": Algebra(np.minimum, np.add, INF, 0, _NUMBERS),
    "max_plus": Algebra(np.maximum, np.add, -INF, 0, (*FLOATS, *SIGNED)),
    "min_times": Algebra(np.minimum, np.multiply, INF, 1, (*_NUMBERS, BOOL)),
    "max_times": Algebra(np.maximum, np.multiply, 0, 1, (*_NUMBERS, BOOL)),
    "min_max": Algebra(np.minimum, np.maximum, INF, -INF, (*_NUMBERS, BOOL)),
    "max_min": Algebra(np.maximum, np.minimum, -INF, INF, (*_NUMBERS, BOOL)),
    "lor_land": Algebra(np.maximum, np.multiply, 0, 1, (BOOL,)),
    "xor_land": Algebra(lambda a, b: (a + b) % 2, np.multiply, 0, 1, (BOOL,)),
    "any_pair": Algebra(np.maximum, _pair, 0, 1, (*_NUMBERS, BOOL)),
    "plus_min": Algebra(np.add, np.minimum, 0, INF, _NUMBERS),
    "log_plus": Algebra(np.logaddexp, np.add, -INF, 0, tuple(FLOATS)),
}
ALGEBRAS = {row.name: MEANT.get(row.name) or _row(row) for row in sm.semirings.values()}
EVERY = [(name, dtype) for name, algebra in ALGEBRAS.items() for dtype in algebra.dtypes]


def stored(name, value, dtype):
    """How an identity lies in an array of `dtype`."""
    if dtype.kind in "iu" and np.isinf(value):
        info = np.iinfo(dtype)
        return info.max if value > 0 else info.min
    return value > 0 if dtype == BOOL else value


def widen(name, x):
    """An array in the type that the reference computes in, an integer's "no edge" as ±inf."""
    if x.dtype.kind == "f" or x.dtype == BFLOAT16:
        return x.astype(np.float64 if x.dtype.itemsize == 8 else np.float32)
    wide = x.astype(np.float64)
    zero = ALGEBRAS[name].zero
    if x.dtype.kind in "iu" and np.isinf(zero):
        wide[x == stored(name, zero, x.dtype)] = zero
    return wide


def narrow(name, x, dtype):
    """The way back; every value must fit."""
    if dtype.kind not in "iu":
        with np.errstate(all="ignore"):
            return x.astype(dtype)
    far = np.isinf(x)
    result = np.where(far, 0, x).astype(dtype)
    assert np.array_equal(result.astype(np.float64), np.where(far, 0, x)), "a test beyond its range"
    for sign in (INF, -INF):
        result[x == sign] = stored(name, sign, dtype)
    return result


def times(name, a, b, dtype=None):
    """a ⊗ b of widened arrays; among integers an infinite zero annihilates."""
    algebra = ALGEBRAS[name]
    with np.errstate(all="ignore"):
        result = algebra.mul(a, b)
    if dtype is not None and dtype.kind in "iu" and np.isinf(algebra.zero):
        gone = (a == algebra.zero) | (b == algebra.zero)
        result = np.where(gone, algebra.zero, result)
    return result


def comparable(x):
    """Where NumPy's tests do not know that a bfloat16 can be NaN."""
    return x.astype(np.float32) if x.dtype == BFLOAT16 else x


def check(name, result, expected):
    """Exactly equal, but for semirings whose functions round."""
    assert result.dtype == expected.dtype
    text = sm.semirings[name].add + sm.semirings[name].mul
    rounds = any(word in text for word in ("exp", "log", "sqrt", " / "))
    eps = float(finfo(result.dtype).eps) if rounds else 0
    result, expected = comparable(result), comparable(expected)
    if rounds:
        np.testing.assert_allclose(result, expected, rtol=8 * eps, atol=8 * eps, err_msg=name)
    else:
        np.testing.assert_array_equal(result, expected, err_msg=name)


def terms(name, a, b):
    """All A[i, k] ⊗ B[k, j], k leading."""
    x, y = widen(name, a), widen(name, b)
    return np.stack(
        [times(name, x[..., :, k, None], y[..., k, None, :], a.dtype) for k in range(x.shape[-1])]
    )


def product(name, a, b):
    """A ⊗ B for arrays of one dtype with two axes or more."""
    algebra = ALGEBRAS[name]
    x, y = widen(name, a), widen(name, b)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    if a.shape[-1] == 0:
        return np.full(shape, stored(name, algebra.zero, a.dtype), a.dtype)
    total = None
    with np.errstate(all="ignore"):
        for k in range(a.shape[-1]):
            term = times(name, x[..., :, k, None], y[..., k, None, :], a.dtype)
            total = term if total is None else algebra.add(total, term)
    return narrow(name, np.broadcast_to(total, shape), a.dtype)


def matmul(name, a, b):
    """NumPy's rules for vectors."""
    left = a[np.newaxis] if a.ndim == 1 else a
    right = b[:, np.newaxis] if b.ndim == 1 else b
    c = product(name, left, right)
    c = c[..., 0] if b.ndim == 1 else c
    return c if a.ndim > 1 else (c[..., 0] if b.ndim == 1 else c[..., 0, :])


def general(name, alpha, a, b, beta=None, c=None):
    """(α ⊗ A ⊗ B) ⊕ (β ⊗ C), each scalar None or a number as it lies in an array."""
    algebra, dtype = ALGEBRAS[name], a.dtype

    def scaled(scalar, x):
        wide = widen(name, x)
        if scalar is None:
            return wide
        return times(name, widen(name, np.asarray(scalar, dtype)), wide, dtype)

    x, y = scaled(alpha, a), widen(name, b)
    total = None
    with np.errstate(all="ignore"):
        for k in range(a.shape[-1]):
            term = times(name, x[..., :, k, None], y[..., k, None, :], dtype)
            total = term if total is None else algebra.add(total, term)
        if c is not None:
            total = algebra.add(total, scaled(beta, c))
    return narrow(name, total, dtype)


#: (semiring, α, A's entry, B's entry, (α ⊗ A) ⊗ B): B or the sum scaled first gives another number.
SCALED_FIRST = [
    ("max_times", 3.0, 2e38, 0.0, np.nan),
    ("max_times", 1e-30, 1e-30, 1e30, 0.0),
    ("min_plus", 1e8, -1e8, 1.0, 1.0),
    ("max_plus", -3e38, 3e38, 3e38, 3e38),
    ("min_plus", INF, 1.0, -INF, np.nan),
    ("plus_times", INF, 0.0, 1.0, np.nan),
]


def exact_product(add, mul, zero, missing, a, b):
    """A triple loop over Python's integers; `missing` stands for an infinite zero, or is None.

    Returns rows of integers, with the float `zero` where nothing is reached.
    """
    rows = []
    for row in a.tolist():
        out = []
        for column in zip(*b.tolist(), strict=True):
            total = None
            for x, y in zip(row, column, strict=True):
                gone = missing is not None and missing in (x, y)
                term = zero if gone else mul(x, y)
                total = term if total is None else add(total, term)
            out.append(zero if total is None else total)
        rows.append(out)
    return rows


def small(rng, name, shape, dtype, low=-3, high=3):
    """Small integers that every dtype holds, with some zeros of the semiring where it has them."""
    zero = ALGEBRAS[name].zero
    if dtype == BOOL:
        return rng.random(shape) < 0.3
    if dtype.kind == "u":
        low = 0
    x = rng.integers(low, high + 1, shape).astype(dtype)
    # 0 * inf is NaN in floating point: specials have tests of their own
    if np.isinf(zero) and (dtype.kind in "iu" or name not in ("min_times",)):
        x[rng.random(shape) < 0.2] = stored(name, zero, dtype)
    return x


def layouts(x):
    """Arrays equal to `x` that lie in memory in every way the kernels must read."""
    m, n = x.shape
    flat = np.empty((m, n), x.dtype, order="F")
    flat[...] = x
    wide = np.zeros((2 * m, 3 * n), x.dtype)
    wide[::2, ::3] = x
    back = np.ascontiguousarray(x[::-1, ::-1])
    raw = np.zeros(x.nbytes + 1, np.uint8)
    odd = raw[1:].view(x.dtype).reshape(m, n)
    odd[...] = x
    fixed = x.copy()
    fixed.flags.writeable = False
    found = {
        "C": np.ascontiguousarray(x),
        "F": flat,
        "strided": wide[::2, ::3],
        "reversed": back[::-1, ::-1],
        "unaligned": odd,
        "read-only": fixed,
    }
    if x.dtype.kind in "iuf" and x.dtype.itemsize > 1:
        found["big-endian"] = x.astype(x.dtype.newbyteorder(">"))
    for layout, y in found.items():
        np.testing.assert_array_equal(y, x, err_msg=layout)
    return found
