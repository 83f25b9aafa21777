"""Products over a semiring: check the arguments, then call the engine, or several over tiles.

The verbs follow NumPy in shapes and behaviour and BLAS in the names of arguments.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Call, repeat
from .bits import BitMatrix, matmul_bits, power_bits
from .deprecated import apart
from .engine import Engine, Scalar, Scaling
from .naming import integer
from .products import (
    check_out,
    common_dtype,
    join_leading,
    multiply,
    multiply_into,
    overlaps,
    raised,
)
from .progress import Progress
from .registry import provided
from .semirings import Semiring, as_semiring
from .sparse import arrays_of, is_sparse, multiply_sparse, repeatable, take_apart

if TYPE_CHECKING:
    from .tiles import Tiles

__all__ = ["dgemm", "dgemv", "gemm", "gemv", "matmul", "matrix_power", "sgemm", "sgemv"]

Array = Any  # NumPy or CuPy; results have the operands' library


@apart()
def matmul(
    a: ArrayLike | BitMatrix,
    b: ArrayLike | BitMatrix,
    semiring: str | Semiring = "plus_times",
    *,
    out: Any = None,
    return_arg: bool = False,
    device: str | None = None,
    progress: Progress = None,
    tiles: Tiles | None = None,
) -> Any:
    """Matrix product over a semiring: ``C[i, j] = ⊕_k A[i, k] ⊗ B[k, j]``.

    Parameters
    ----------
    a : array_like, shape (..., m, k) or (k,), or sparse matrix, shape (m, k)
        Left operand. Any strides: transposed and sliced views are read as they lie. CSR and DIA of
        SciPy and CuPy are taken, too: what is not stored is the semiring's zero. Over lor_land and
        xor_land one or both operands may be a :class:`BitMatrix`; the result is one then.
    b : array_like, shape (..., k, n) or (k,)
        Right operand. Leading dimensions broadcast, and 1-D operands are treated, as in
        :func:`numpy.matmul`.
    semiring : str or Semiring, default "plus_times"
        A name from :data:`semiring_mm.semirings` or your own.
    out : array, optional
        Where to put the result: of its shape and dtype, any strides, where the operands live. If it
        overlaps an operand, the product is computed aside first.
    return_arg : bool, default False
        Also return, for a semiring whose ⊕ is min or max, the k that attained each entry.
    device : {None, "cpu", "cuda", "cuda:N"}
        Where to run. None: where the operands live. "cuda" takes host arrays to the current CUDA
        device, "cuda:N" to another, and brings the result back.
    progress : bool or callable, optional
        As for :func:`apsp`, of work over tiles.
    tiles : Tiles, optional
        See :class:`Tiles`; for two matrices on the host, which may be larger than memory
        (numpy.memmap, Zarr). Batches, vectors, `out` and `return_arg` are not for tiles, nor are
        16-bit floats out of core. Partial sums of integers have to fit, too.

    Returns
    -------
    c : ndarray or BitMatrix, shape (..., m, n)
        In NumPy's promoted dtype of the operands. A scalar for two 1-D operands. Over an empty k,
        the semiring's zero. With ``tiles.out`` the file, open to be read: numpy.memmap or
        zarr.Array.
    arg : ndarray of int32, shape (..., m, n)
        Only with `return_arg`. The smallest k on ties; where an entry is NaN, the first k that gave
        NaN.

    Raises
    ------
    TypeError
        For dtypes that the semiring has no meaning in.
    ValueError
        For shapes that do not match.
    OverflowError
        If an integer result does not fit its dtype: integers never wrap. `out` may be partly
        written by then.

    Notes
    -----
    Arrays of CuPy, PyTorch and JAX, and others with DLPack or ``__cuda_array_interface__``, are
    used where they lie, and the result is of the same library on the same device. On a CUDA device
    the call returns at once, on the current stream (that of PyTorch for its tensors), and can be
    captured in a CUDA graph; integers, and JAX's arrays, wait for the device.

    Of a sparse `a`, every stored entry counts, explicit zeros too; `b` has one or two axes then.

    O(m·n·k) pairs (⊗, ⊕), in blocks for the caches (Goto and van de Geijn, 2008); the memory used
    is the result and a buffer of some tens of megabytes at most for each thread; on a Hopper GPU,
    products of float32 may need copies of operands, of at most 1 GiB. 16-bit floats
    compute in float32 and are rounded once. NaN propagates as in :func:`numpy.minimum`.
    plus_times in float32 and float64 is handed to NumPy's BLAS where the operands lie as a BLAS
    wants them, unless the number of threads was set; else the order in which a sum is added up does
    not depend on it.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> inf = np.inf
    >>> D = np.array([[0, 3, inf], [inf, 0, 1], [2, inf, 0]])
    >>> sm.matmul(D, D, semiring="min_plus")
    array([[0., 3., 4.],
           [3., 0., 1.],
           [2., 5., 0.]])
    """
    if tiles or progress:
        if isinstance(a, BitMatrix) or isinstance(b, BitMatrix):
            raise TypeError(_BITS_ALONE)
        if not tiles:
            raise ValueError(
                "progress= reports products over tiles only: give tiles=sm.Tiles(...), too"
            )
        if return_arg or out is not None:
            raise ValueError("over tiles a product has neither return_arg nor out: leave out tiles")
        return provided("multiply_tiles")(as_semiring(semiring), a, b, device, tiles, progress)
    head = ("matmul", semiring, return_arg)
    if device is None:
        c = repeat(head, (a, b), out)
        if c is not None:
            return c
    s = as_semiring(semiring)
    if isinstance(a, BitMatrix) or isinstance(b, BitMatrix):
        if return_arg or out is not None:
            raise TypeError(_BITS_ALONE)
        return matmul_bits(s, a, b, device)
    if is_sparse(a) or is_sparse(b):
        if return_arg:
            raise TypeError("return_arg takes dense operands, and one of these is sparse")
        return _sparse("matmul", s, None, a, b, None, None, out, device)
    with Call(device, out, head if device is None else None, a=a, b=b) as call:
        x, y = call["a"], call["b"]
        return call.give(multiply(call.engine, s, x, y, call.out, return_arg, head))


#: What is said of other arguments than a BitMatrix takes.
_BITS_ALONE = (
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
    return _general(
        "gemm", semiring, alpha, a, b, beta, c, out, device, trans_a, trans_b, precision
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
    return _general("gemv", semiring, alpha, a, x, beta, y, out, device, trans)


def _general(
    verb: str, semiring: str | Semiring, alpha: Scalar, a: Any, b: Any, beta: Scalar, c: Any,
    out: Any, device: str | None, trans_a: bool = False, trans_b: bool = False,
    precision: str | None = None, dtype: str = "",
) -> Any:  # fmt: skip
    """:func:`gemm`, and :func:`gemv` of x = `b` and y = `c`; with `dtype` of such arrays alone."""
    head = None
    if device is None and type(a) is not np.ndarray:
        head = _scaled_head(verb, semiring, alpha, beta, trans_a, trans_b, precision)
        operands = (a, b) if c is None else (a, b, c)
        result = None if head is None else repeat(head, operands, out, dtype)
        if result is not None:
            return result
    s, kept = as_semiring(semiring), None
    if (
        device is None and precision is None and type(a) is np.ndarray and type(b) is np.ndarray
        and b.ndim == (1 if verb == "gemv" else 2)
    ):  # fmt: skip
        if beta is None and c is None and _scales_nothing(s, alpha):
            kept = ("matmul", s, False)
        else:
            kept = _scaled_head("gemm", s, alpha, beta)
        operands = a.T if trans_a else a, b.T if trans_b else b  # of stacks none is prepared
        if c is not None:
            operands += (c,)
        result = None if kept is None else repeat(kept, operands, out, dtype)
        if result is not None:
            return result
    second, added = _OPERANDS[verb]
    if dtype:
        a, b = _of_dtype(verb, dtype, {"a": a, second: b, added: c})
    if is_sparse(a) or is_sparse(b):
        return _sparse(verb, s, alpha, a, b, beta, c, out, device, trans_a, trans_b, precision)
    with Call(device, out, head, **{"a": a, second: b, added: c}) as call:
        x, y, z = call["a"], call[second], call[added]
        if verb == "gemv" and (x.ndim != 2 or y.ndim != 1):
            raise ValueError(
                f"gemv takes a matrix and a vector, got shapes {x.shape} and {y.shape}; use matmul "
                f"for batches"
            )
        if verb == "gemm" and (x.ndim < 2 or y.ndim < 2):
            raise ValueError(
                f"gemm takes matrices, got shapes {x.shape} and {y.shape}; use gemv or matmul"
            )
        x = x.swapaxes(-1, -2) if trans_a else x
        y = y.swapaxes(-1, -2) if trans_b else y
        columns = y.shape[-1:] if verb == "gemm" else ()
        depth = y.shape[-1 - len(columns)]
        if x.shape[-1] != depth:
            raise ValueError(
                f"{verb}: op(a) of shape {x.shape} has k = {x.shape[-1]}, but "
                f"{'op(b)' if columns else 'x'} of shape {y.shape} has k = {depth}"
            )
        batch = join_leading(verb, (x.shape[:-2], y.shape[:-2]))
        shape = (*batch, x.shape[-2], *columns)
        return call.give(
            _scaled(
                call.engine, s, verb, alpha, x, y, beta, z, call.out, shape, precision, head=kept
            )
        )


#: What the right operand is called, and what is added.
_OPERANDS = {"matmul": ("b", "c"), "gemm": ("b", "c"), "gemv": ("x", "y")}
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


def _scaled(
    engine: Engine, s: Semiring, verb: str, alpha: Scalar, x: Array, y: Array, beta: Scalar,
    z: Array | None, out: Array | None, shape: tuple[int, ...], precision: str | None = None,
    fill: Callable[..., None] | None = None, head: tuple[Any, ...] | None = None,
) -> Array:  # fmt: skip
    """:func:`gemm` and :func:`gemv` on arrays of one engine, transposed where they are to be.

    The call is kept under the `head`. `fill`, if given, multiplies; `x` are then the entries of a
    sparse matrix.
    """
    xp, added = engine.xp, _OPERANDS[verb][1]
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
        multiply_into(engine, s, x, y, c, scaling, precision=precision, head=head)
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
        result = None if head is None else repeat(head, (*known, b), out)
        if result is not None:
            return result
    arrays = take_apart(verb, a, b)
    right, added = _OPERANDS[verb]
    if head and not (known and repeatable(s, a, arrays, known, b)):
        head = None
    with Call(device, out, head, **arrays, **{right: b, added: c}) as call:
        y, z = call[right], call[added]
        left = [call[name] for name in arrays]
        y = y.swapaxes(-1, -2) if trans_b and y.ndim > 1 else y
        m, k = a.shape[::-1] if trans_a else a.shape
        ranks = {"matmul": (1, 2), "gemm": (2,), "gemv": (1,)}[verb]
        if y.ndim not in ranks or y.shape[0] != k:
            wanted = " or ".join(f"({k},)" if rank == 1 else f"({k}, n)" for rank in ranks)
            raise ValueError(
                f"{verb}: a, a sparse {type(a).__name__}, has shape {(m, k)}"
                f"{' transposed' if trans_a else ''}, so {right} must have shape {wanted}, got "
                f"{y.shape}"
            )

        def fill(x: Array, y: Array, c: Array, scaling: Scaling) -> None:
            y, c = (v[:, np.newaxis] if v.ndim == 1 else v for v in (y, c))
            multiply_sparse(call.engine, s, a, [x, *left[1:]], y, c, scaling, trans=trans_a)

        shape = (m, *y.shape[1:])
        return call.give(
            _scaled(
                call.engine, s, verb, alpha, left[0], y, beta, z, call.out, shape, precision, fill
            )
        )


def _of_dtype(verb: str, dtype: str, operands: dict[str, Any]) -> list[Any]:
    """Both factors as arrays, after a check that all operands that are arrays have a dtype."""
    for what, x in operands.items():
        given = getattr(x, "dtype", dtype)
        if given != dtype and str(given).rpartition(".")[2] != dtype:  # as libraries write it
            letter, other = "sd" if dtype == "float32" else "ds"
            raise TypeError(
                f"{letter}{verb} works on {dtype}, got {what} of dtype {given}: use "
                f"{other}{verb} or {verb}, or x.astype(np.{dtype})"
            )
    factors = [*operands.values()][:2]
    return [x if hasattr(x, "dtype") else np.asarray(x, dtype) for x in factors]


def _blas_name(letter: str, dtype: str, verb: str) -> Any:
    second, third = _OPERANDS[verb]
    flags = "trans_a, trans_b" if verb == "gemm" else "trans"
    name = f"{letter}{verb}"

    def refuse(options: dict[str, Any]) -> None:
        if "semiring" in options:
            raise TypeError(f"{name} is plus-times; use {verb}(..., semiring=...)")
        if options:
            raise TypeError(f"{name}() got an unexpected keyword argument {min(options)!r}")

    if verb == "gemm":

        def call(
            alpha: Scalar, a: ArrayLike, b: ArrayLike, beta: Scalar = None,
            c: ArrayLike | None = None, *, trans_a: bool = False, trans_b: bool = False,
            out: Array | None = None, device: str | None = None, precision: str | None = None,
            **kwargs: Any,
        ) -> Array:  # fmt: skip
            refuse(kwargs)
            return _general(
                verb, "plus_times", alpha, a, b, beta, c, out, device, trans_a, trans_b, precision,
                dtype,
            )  # fmt: skip
    else:

        def call(  # type: ignore[misc]
            alpha: Scalar, a: ArrayLike, x: ArrayLike, beta: Scalar = None,
            y: ArrayLike | None = None, *, trans: bool = False, out: Array | None = None,
            device: str | None = None, **kwargs: Any,
        ) -> Array:  # fmt: skip
            refuse(kwargs)
            return _general(
                verb, "plus_times", alpha, a, x, beta, y, out, device, trans, dtype=dtype
            )

    shown = inspect.signature(call)
    known = [x for x in shown.parameters.values() if x.kind is not inspect.Parameter.VAR_KEYWORD]
    call.__signature__ = shown.replace(parameters=known)  # type: ignore[attr-defined]
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""{"Matrix" if verb == "gemm" else "Matrix-vector"} product in {dtype}: \
:func:`{verb}` over plus_times, under its BLAS name.

    Parameters
    ----------
    alpha, a, {second}, beta, {third}, {flags}, out, device{", precision" if verb == "gemm" else ""}
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
