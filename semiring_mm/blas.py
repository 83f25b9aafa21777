"""Products over a semiring: check the arguments, then call the engine.

The verbs follow NumPy in shapes and behaviour and BLAS in the names of arguments.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import engine as engines
from .arrays import Call, repeat
from .bits import BitMatrix, matmul_bits, power_bits
from .engine import Engine, Scalar, Scaling
from .naming import integer
from .products import (
    check_dtype,
    check_out,
    common_dtype,
    join_leading,
    multiply,
    multiply_into,
    overlaps,
    raised,
)
from .semirings import Semiring, as_semiring
from .sparse import arrays_of, is_sparse, multiply_sparse, repeatable, take_apart

__all__ = ["dgemm", "dgemv", "gemm", "gemv", "matmul", "matrix_power", "sgemm", "sgemv"]

Array = Any  # NumPy or CuPy; results have the operands' library


def matmul(
    a: ArrayLike | BitMatrix,
    b: ArrayLike | BitMatrix,
    semiring: str | Semiring = "plus_times",
    *,
    out: Any = None,
    return_arg: bool = False,
    device: str | None = None,
) -> Any:
    """Matrix product in one memory; see :func:`semiring_mm.matmul`."""
    head = ("matmul", semiring, return_arg)
    if device is None:
        c = repeat(head, (a, b), out)
        if c is not None:
            return c
    s = as_semiring(semiring)
    if isinstance(a, BitMatrix) or isinstance(b, BitMatrix):
        if return_arg or out is not None:
            raise TypeError(BITS_ALONE)
        return matmul_bits(s, a, b, device)
    if device is None and not return_arg:
        c = _plain_product(semiring, a, b, (1, 2), out)
        if c is not None:
            return c
    if is_sparse(a) or is_sparse(b):
        if return_arg:
            raise TypeError("return_arg takes dense operands, and one of these is sparse")
        return _sparse("matmul", s, None, a, b, None, None, out, device)
    with Call(device, out, head if device is None else None, a=a, b=b) as call:
        return call.give(multiply(call.engine, s, call["a"], call["b"], call.out, return_arg))


#: What is said of other arguments than a BitMatrix takes.
BITS_ALONE = (
    "matmul of a BitMatrix takes no argument but the semiring and the device: leave the others "
    "out, or unpack the operands"
)


def gemm(
    alpha: Scalar,
    a: ArrayLike,
    b: ArrayLike,
    beta: Scalar = None,
    c: ArrayLike | None = None,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    semiring: str | Semiring = "plus_times",
    precision: str | None = None,
    out: Array | None = None,
    device: str | None = None,
) -> Array:
    """General product ``((alpha ⊗ op(A)) ⊗ op(B)) ⊕ (beta ⊗ C)``.

    Parameters
    ----------
    alpha : scalar or None
        Scales the entries of A with ⊗, before they meet those of B; None leaves them as they are.
        Over plus_times and log_plus in floating point, whose sums have no order either, a finite
        `alpha` may scale the sums instead.
    a, b : array_like, shapes (..., m, k) and (..., k, n) after `trans_a`, `trans_b`
        Operands; leading dimensions broadcast. `a` may be sparse, as in :func:`matmul`.
    beta : scalar, optional
        Scales `c` with ⊗. Absent: C is not read.
    c : array_like, shape (..., m, n), optional
        Joined to the product with ⊕. It is not changed, unless it is also `out`.
    trans_a, trans_b : bool
        Read the operand transposed (its last two axes swapped), without a copy; but CSR is turned
        in each call, so keep ``a.T.tocsr()`` for several.
    semiring : str or Semiring, default "plus_times"
    precision : {None, "ieee", "tf32", "float32_emulated"}
        The least precise arithmetic that will do, over plus_times; what has none of it computes
        more precisely. "ieee": float32 throughout. "tf32", for float32: operands rounded to 11
        significant bits, sums in float32, on tensor cores. "float32_emulated": as precise as
        "ieee", from three products of 11 bits each. None: "ieee", but 16-bit floats, whose products
        fit float32, are multiplied by tensor cores.
    out : ndarray, optional
        Where to put the result; may be `c` itself.
    device : {None, "cpu", "cuda", "cuda:N"}

    Returns
    -------
    ndarray, shape (..., m, n)

    Raises
    ------
    ValueError
        For a precision that the semiring or the dtype does not have; and as :func:`matmul`.

    Notes
    -----
    Tensor cores add in float32 and cut off what does not fit, instead of rounding. Emulated, an
    operand is the sum of two numbers of 11 bits each (the product of the two small ones is left
    out) and sums on tensor cores end after 64 steps of k, so that the error stays below that of
    float32 arithmetic (Markidis et al., 2018; Ootomo and Yokota, 2022). The numbers are float16,
    with rows of A and columns of B scaled by powers of two, or tf32 where that range is too narrow.
    Where an entry is infinite, NaN, at least 2¹²⁷, or below 2⁻⁵⁰ but not 0, float32 arithmetic
    computes the whole product. The device finds all that out, and the host does not wait.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> A = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> sm.gemm(10, A, A, 0, np.zeros((2, 2)), semiring="min_plus")
    array([[0., 0.],
           [0., 0.]])
    """
    head = None
    if device is None and type(a) is not np.ndarray:
        head = _scaled_head("gemm", semiring, alpha, beta, trans_a, trans_b, precision)
        result = head and repeat(head, (a, b) if c is None else (a, b, c), out)
        if result is not None:
            return result
    s = as_semiring(semiring)
    if device is precision is None and beta is c is None and _scales_nothing(s, alpha):
        result = _plain_product(s, a, b, (2,), out, trans_a, trans_b)
        if result is not None:
            return result
    if is_sparse(a) or is_sparse(b):
        return _sparse("gemm", s, alpha, a, b, beta, c, out, device, trans_a, trans_b, precision)
    with Call(device, out, head, a=a, b=b, c=c) as call:
        x, y, z, target = call["a"], call["b"], call["c"], call.out
        if x.ndim < 2 or y.ndim < 2:
            raise ValueError(
                f"gemm takes matrices, got shapes {x.shape} and {y.shape}; use gemv or matmul"
            )
        x = x.swapaxes(-1, -2) if trans_a else x
        y = y.swapaxes(-1, -2) if trans_b else y
        if x.shape[-1] != y.shape[-2]:
            raise ValueError(
                f"gemm: op(a) of shape {x.shape} has k = {x.shape[-1]}, but op(b) of shape "
                f"{y.shape} has k = {y.shape[-2]}"
            )
        shape = (*join_leading("gemm", (x.shape[:-2], y.shape[:-2])), x.shape[-2], y.shape[-1])
        return call.give(
            _scaled(call.engine, s, "gemm", alpha, x, y, beta, z, target, shape, precision)
        )


def gemv(
    alpha: Scalar,
    a: ArrayLike,
    x: ArrayLike,
    beta: Scalar = None,
    y: ArrayLike | None = None,
    *,
    trans: bool = False,
    semiring: str | Semiring = "plus_times",
    out: Array | None = None,
    device: str | None = None,
) -> Array:
    """Matrix-vector product ``((alpha ⊗ op(A)) ⊗ x) ⊕ (beta ⊗ y)``.

    Parameters
    ----------
    alpha : scalar or None
        Scales the entries of A with ⊗, before they meet those of x; None leaves them as they are.
    a : array_like or sparse matrix, shape (m, k) after `trans`
        CSR and DIA of SciPy and CuPy are taken, as in :func:`matmul`.
    x : array_like, shape (k,)
    beta : scalar, optional
        Scales `y` with ⊗. Absent: y is not read.
    y : array_like, shape (m,), optional
    trans : bool
        Use the transpose of A, without a copy; but CSR is turned in each call, so keep
        ``a.T.tocsr()`` for several.
    semiring : str or Semiring, default "plus_times"
    out : ndarray, shape (m,), optional
        Where to put the result; may be `y` itself.
    device : {None, "cpu", "cuda", "cuda:N"}

    Returns
    -------
    ndarray, shape (m,)

    Notes
    -----
    Bound by reading A once, from memory, in whichever orientation it lies.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> sm.gemv(None, np.array([[0.0, 2.0], [5.0, 0.0]]), np.array([1.0, 9.0]), semiring="min_plus")
    array([1., 6.])
    """
    head = None
    if device is None and type(a) is not np.ndarray:
        head = _scaled_head("gemv", semiring, alpha, beta, trans)
        result = head and repeat(head, (a, x) if y is None else (a, x, y), out)
        if result is not None:
            return result
    s = as_semiring(semiring)
    if device is out is beta is y is None and _scales_nothing(s, alpha):
        result = _plain_product(s, a, x, (1,), None, trans)
        if result is not None:
            return result
    if is_sparse(a) or is_sparse(x):
        return _sparse("gemv", s, alpha, a, x, beta, y, out, device, trans)
    with Call(device, out, head, a=a, x=x, y=y) as call:
        matrix, vector, z, target = call["a"], call["x"], call["y"], call.out
        if matrix.ndim != 2 or vector.ndim != 1:
            raise ValueError(
                f"gemv takes a matrix and a vector, got shapes {matrix.shape} and {vector.shape}; "
                f"use matmul for batches"
            )
        matrix = matrix.T if trans else matrix
        m, k = matrix.shape
        if vector.shape != (k,):
            raise ValueError(f"gemv: op(a) has k = {k}, but x has shape {vector.shape}")
        return call.give(
            _scaled(call.engine, s, "gemv", alpha, matrix, vector, beta, z, target, (m,))
        )


_REAL = frozenset((float, int, type(None)))


def _scaled_head(
    verb: str, semiring: Any, alpha: Any, beta: Any, *flags: Any
) -> tuple[Any, ...] | None:
    """The key of a repeated call, without its arrays; None for scalars of other types."""
    if type(alpha) in _REAL and type(beta) in _REAL:
        if not alpha and alpha is not None:  # 0.0 is not -0.0
            alpha = repr(alpha)
        if not beta and beta is not None:
            beta = repr(beta)
        return verb, semiring, alpha, beta, *flags
    return None


def _scales_nothing(s: Semiring, alpha: Scalar) -> bool:
    """Whether α is None, or the semiring's one in every dtype."""
    return alpha is None or (type(alpha) is float and alpha == s.one in (0, 1))


def _plain_product(
    semiring: str | Semiring, a: Any, b: Any, ranks: tuple[int, ...], out: Any = None,
    trans_a: bool = False, trans_b: bool = False,
) -> Array | None:  # fmt: skip
    """A ⊗ B of NumPy arrays of one native dtype, without the conversions that others need.

    None for all other operands, and where shapes are empty or need an error message.
    """
    if not (type(a) is np.ndarray is type(b) and a.dtype is b.dtype and a.dtype.isnative):
        return None
    if a.ndim != 2 or b.ndim not in ranks:
        return None
    a, b = a.T if trans_a else a, b.T if trans_b else b
    (m, k), (inner, *columns) = a.shape, b.shape
    if inner != k or not k or not m or (columns and (m == 1 or columns[0] < 2)):
        return None
    s = as_semiring(semiring)
    check_dtype(s, a.dtype)
    host = engines.named("cpu")
    if columns:
        c = host.calls.prepared(("matmul", semiring, False), s, a, b, out)
        if c is not None:
            return c
    if out is not None:
        return None
    c = np.empty((m, *columns), a.dtype)
    (host.product if columns else host.gemv)(s, a, b, c)
    return c


def _scaled(
    engine: Engine, s: Semiring, verb: str, alpha: Scalar, x: Array, y: Array, beta: Scalar,
    z: Array | None, out: Array | None, shape: tuple[int, ...], precision: str | None = None,
    fill: Callable[..., None] | None = None,
) -> Array:  # fmt: skip
    """:func:`gemm` and :func:`gemv` on arrays of one engine, transposed where they are to be.

    `fill`, if given, multiplies; `x` are then the entries of a sparse matrix.
    """
    xp, added = engine.xp, "y" if verb == "gemv" else "c"
    if (beta is None) != (z is None):
        raise ValueError(
            f"{verb}: beta and {added} go together; pass both to join {added} to the product, or "
            f"neither (out= says where the result goes)"
        )
    x, y, *rest = common_dtype(s, x, y, *([] if z is None else [z]))
    z = rest[0] if rest else None
    if precision is not None:
        _check_precision(s, x.dtype, precision)
    if z is not None and z.shape != shape:
        raise ValueError(f"{verb}: {added} has shape {z.shape}, the product {shape}")
    if out is not None:
        check_out(out, shape, x.dtype)
    in_place = out is not None and z is not None and _same(out, z)
    target: Array = out
    aside = z is not None and not in_place and out is not None and overlaps(xp, out, z)
    if out is None or aside or overlaps(xp, out, x, y):
        target = xp.empty(shape, x.dtype)
    alpha, beta = _scalar(s, alpha, x.dtype, "alpha"), _scalar(s, beta, x.dtype, "beta")
    scaling = Scaling(z is not None, alpha, beta)
    if z is not None and not (in_place and target is out):
        engine.copy(z, target)
    c = target
    if fill is not None:
        fill(x, y, c, scaling)
    else:
        if y.ndim == 1:
            y, c = y[:, np.newaxis], target[:, np.newaxis]
        multiply_into(engine, s, x, y, c, scaling, precision=precision)
    if out is not None and target is not out:
        out[...] = target
        return out
    return target


def _check_precision(s: Semiring, dtype: np.dtype[Any], precision: str) -> None:
    if precision not in ("ieee", "tf32", "float32_emulated"):
        raise ValueError(
            f'gemm: precision={precision!r}; "ieee", "tf32" and "float32_emulated" are accepted'
        )
    if precision != "ieee" and (s.add_kind, s.mul_kind, str(dtype)) != ("+", "*", "float32"):
        raise ValueError(
            f"gemm: precision={precision!r} is for plus_times in float32, not for {s.name} in "
            f'{dtype}; leave it out, or pass "ieee"'
        )


def _sparse(
    verb: str, s: Semiring, alpha: Scalar, a: Any, b: Any, beta: Scalar, c: Any, out: Array | None,
    device: str | None, trans_a: bool = False, trans_b: bool = False, precision: str | None = None,
) -> Any:  # fmt: skip
    """matmul, gemm and gemv of a sparse `a`."""
    head, known = None, arrays_of(a)
    on_device = type(b) is not np.ndarray and hasattr(b, "ndim")
    if device is c is precision is None and known and on_device:
        head = _scaled_head("sparse", s, alpha, None, verb, a.shape, trans_a, trans_b)
        result = head and repeat(head, (*known, b), out)
        if result is not None:
            return result
    matrix, arrays = take_apart(verb, a, b)
    right, added = ("x", "y") if verb == "gemv" else ("b", "c")
    if head and not (known and repeatable(s, matrix, arrays, known, b)):
        head = None
    with Call(device, out, head, **arrays, **{right: b, added: c}) as call:
        y, z = call[right], call[added]
        left = [call[name] for name in arrays]
        y = y.swapaxes(-1, -2) if trans_b and y.ndim > 1 else y
        m, k = matrix.shape[::-1] if trans_a else matrix.shape
        ranks = {"matmul": (1, 2), "gemm": (2,), "gemv": (1,)}[verb]
        if y.ndim not in ranks or y.shape[0] != k:
            wanted = " or ".join(f"({k},)" if rank == 1 else f"({k}, n)" for rank in ranks)
            raise ValueError(
                f"{verb}: a, a sparse {type(matrix).__name__}, has shape {(m, k)}"
                f"{' transposed' if trans_a else ''}, so {right} must have shape {wanted}, got "
                f"{y.shape}"
            )

        def fill(x: Array, y: Array, c: Array, scaling: Scaling) -> None:
            y, c = (v[:, np.newaxis] if v.ndim == 1 else v for v in (y, c))
            multiply_sparse(call.engine, s, matrix, [x, *left[1:]], y, c, scaling, trans=trans_a)

        shape = (m, *y.shape[1:])
        return call.give(
            _scaled(
                call.engine, s, verb, alpha, left[0], y, beta, z, call.out, shape, precision, fill
            )
        )


def _blas_name(letter: str, dtype: str, verb: str) -> Any:
    general: Any = gemm if verb == "gemm" else gemv
    accepted: set[Any] = {np.dtype(dtype)}  # as libraries write it
    second, third = ("b", "c") if verb == "gemm" else ("x", "y")
    flags = "trans_a, trans_b" if verb == "gemm" else "trans"
    name = f"{letter}{verb}"

    def checked(alpha: Scalar, a: Any, b: Any, beta: Scalar, c: Any, **kwargs: Any) -> Array:
        if "semiring" in kwargs:
            raise TypeError(f"{name} is plus-times; use {verb}(..., semiring=...)")
        if unknown := kwargs.keys() - general.__kwdefaults__.keys():
            raise TypeError(f"{name}() got an unexpected keyword argument {min(unknown)!r}")
        for what, x in (("a", a), (second, b), (third, c)):
            found = getattr(x, "dtype", None)
            if found is None or found in accepted:
                continue
            if str(found).rpartition(".")[2] != dtype:
                other = {"sgemm": "dgemm", "dgemm": "sgemm", "sgemv": "dgemv", "dgemv": "sgemv"}
                raise TypeError(
                    f"{name} works on {dtype}, got {what} of dtype {found}: use {other[name]} or "
                    f"{verb}, or x.astype(np.{dtype})"
                )
            accepted.add(found)
        left, right = (x if hasattr(x, "dtype") else np.asarray(x, dtype) for x in (a, b))
        return general(alpha, left, right, beta, c, **kwargs)

    if verb == "gemm":

        def call(
            alpha: Scalar, a: ArrayLike, b: ArrayLike, beta: Scalar = None,
            c: ArrayLike | None = None, *, trans_a: bool = False, trans_b: bool = False,
            out: Array | None = None, **kwargs: Any,
        ) -> Array:  # fmt: skip
            if not kwargs and type(a) is not np.ndarray:
                head = _scaled_head("gemm", "plus_times", alpha, beta, trans_a, trans_b, None)
                if head is not None:
                    result = repeat(head, (a, b) if c is None else (a, b, c), out, dtype)
                    if result is not None:
                        return result
            return checked(
                alpha, a, b, beta, c, trans_a=trans_a, trans_b=trans_b, out=out, **kwargs
            )
    else:

        def call(  # type: ignore[misc]
            alpha: Scalar, a: ArrayLike, x: ArrayLike, beta: Scalar = None,
            y: ArrayLike | None = None, *, trans: bool = False, out: Array | None = None,
            **kwargs: Any,
        ) -> Array:  # fmt: skip
            if not kwargs and type(a) is not np.ndarray:
                head = _scaled_head("gemv", "plus_times", alpha, beta, trans)
                if head is not None:
                    result = repeat(head, (a, x) if y is None else (a, x, y), out, dtype)
                    if result is not None:
                        return result
            return checked(alpha, a, x, beta, y, trans=trans, out=out, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""{"Matrix" if verb == "gemm" else "Matrix-vector"} product in {dtype}: \
:func:`{verb}` over plus_times, under its BLAS name.

    Parameters
    ----------
    alpha, a, {second}, beta, {third}, {flags}, out, **kwargs
        The arguments of :func:`{verb}` without `semiring`; arrays are of dtype {dtype}.

    Returns
    -------
    ndarray of {dtype}
        As of :func:`{verb}`.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> A = np.eye(2, dtype=np.{dtype})
    >>> sm.{letter}{verb}(2.0, A, A{"" if verb == "gemm" else "[0]"}).tolist()
    {"[[2.0, 0.0], [0.0, 2.0]]" if verb == "gemm" else "[2.0, 0.0]"}
    """
    return call


sgemm = _blas_name("s", "float32", "gemm")
dgemm = _blas_name("d", "float64", "gemm")
sgemv = _blas_name("s", "float32", "gemv")
dgemv = _blas_name("d", "float64", "gemv")


def matrix_power(
    a: ArrayLike | BitMatrix,
    k: int,
    semiring: str | Semiring = "plus_times",
    *,
    device: str | None = None,
) -> Any:
    """The k-th power of a square matrix, by repeated squaring.

    Parameters
    ----------
    a : array_like or BitMatrix, shape (..., n, n)
    k : int
        At least 0; the 0th power has one on the diagonal and zero elsewhere.
    semiring : str or Semiring, default "plus_times"
    device : {None, "cpu", "cuda", "cuda:N"}

    Returns
    -------
    ndarray or BitMatrix, shape (..., n, n)
        Over min_plus: lengths of the shortest walks of exactly k edges.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> sm.matrix_power(np.array([[1, 1], [1, 0]]), 10)
    array([[89, 55],
           [55, 34]])
    """
    s = as_semiring(semiring)
    if isinstance(a, BitMatrix):
        return power_bits(s, a, _exponent(a.shape, k), device)
    with Call(device, a=a) as call:
        return call.give(_power(call.engine, s, call["a"], k))


def _exponent(shape: tuple[int, ...], k: int) -> int:
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ValueError(f"matrix_power takes square matrices, got shape {shape}")
    k = integer(k, "matrix_power: k")
    if k < 0:
        raise ValueError(f"matrix_power: k must be at least 0, got {k}: ⊗ has no inverse")
    return k


def _power(engine: Engine, s: Semiring, base: Array, k: int) -> Array:
    (base,) = common_dtype(s, base)
    k = _exponent(base.shape, k)
    if k == 0:
        zero, one = s.identities(base.dtype)
        result = engine.xp.full(base.shape, zero, base.dtype)
        diagonal = engine.xp.arange(base.shape[-1])
        result[..., diagonal, diagonal] = one
        return result
    return raised(base, k, functools.partial(multiply, engine, s))


# --- checks at the door -------------------------------------------------------------------------


def _same(x: Array, y: Array) -> bool:
    """Whether two arrays are the same memory in the same layout."""
    first, second = (a.ctypes.data if isinstance(a, np.ndarray) else a.data.ptr for a in (x, y))
    return bool(first == second and x.shape == y.shape and x.strides == y.strides)


def _scalar(s: Semiring, value: Scalar, dtype: np.dtype[Any], name: str) -> Scalar:
    """A scalar as Python's number, an infinity of an integer dtype as its sentinel; one is None."""
    if value is None:
        return None
    if not isinstance(value, (bool, int, float, np.integer, np.floating, np.bool_)):
        raise TypeError(f"{name} must be a real number or None, got {value!r}")
    number = value.item() if isinstance(value, np.generic) else value
    try:
        float(number)
    except OverflowError:
        raise ValueError(f"{name} is larger than float64 holds") from None
    zero, one = s.identities(dtype)
    if dtype.kind in "iu":
        for constant, stored in ((s.zero, zero), (s.one, one)):
            if number == constant and math.isinf(constant):
                number = int(stored)
        info = np.iinfo(dtype)
        if (isinstance(number, float) and not number.is_integer()) or not (
            info.min <= number <= info.max
        ):
            raise ValueError(f"{name} = {number} is not a {dtype}")
        number = int(number)
    elif dtype.kind == "b":
        if number not in (0, 1, math.inf, -math.inf):
            raise ValueError(f"{name} = {number} is not a bool")
        number = number > 0
    else:
        number, one = float(number), float(one)
    if name == "alpha" and number == one:
        return None
    return number
