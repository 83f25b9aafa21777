"""Strassen–Winograd products: seven half-sized products instead of eight."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Call
from .engine import JOIN, Engine
from .naming import integer
from .products import check_out, common_dtype, join_leading, multiply_into, overlaps
from .semirings import Semiring, as_semiring, semirings

__all__ = ["strassen"]

Array = Any  # NumPy or CuPy; results have the operands' library


def strassen(
    a: ArrayLike,
    b: ArrayLike,
    *,
    levels: int = 1,
    semiring: str | Semiring = "plus_times",
    out: Array | None = None,
    device: str | None = None,
) -> Any:
    """Matrix product in floating point, by Strassen's algorithm in Winograd's form.

    Each level replaces eight products of half the size by seven and 15 additions. Faster than
    :func:`matmul` for large matrices, and less accurate for entries of very different sizes.

    Parameters
    ----------
    a : array_like, shape (..., m, k)
        Left operand, of float32 or float64. Any strides.
    b : array_like, shape (..., k, n)
        Right operand. Leading dimensions broadcast, and the products of a batch are computed one
        after the other.
    levels : int, default 1
        How many times the matrices are halved; 0 is the plain product. Rows and columns by which a
        side exceeds a multiple of ``2**levels`` are multiplied plainly.
    semiring : str or Semiring, default "plus_times"
        The only one: the algorithm subtracts, and a minimum, say, cannot be taken back.
    out : array, optional
        Where to put the result: of its shape and dtype, any strides, where the operands live. If it
        overlaps an operand, the product is computed aside first.
    device : {None, "cpu", "cuda", "cuda:N"}
        Where to run, as for :func:`matmul`.

    Returns
    -------
    ndarray, shape (..., m, n)
        In NumPy's promoted dtype of the operands.

    Raises
    ------
    TypeError
        For other dtypes and other semirings.
    ValueError
        For shapes that do not match.

    Notes
    -----
    ``(7/8)**levels`` of the m·n·k multiplications. With m, n and k rounded down to multiples of
    ``2**levels``, the workspace beside the result is the sum over l = 1, …, levels of

        (m·max(k, n) + k·n) / 4ˡ entries,

    which is less than (m·max(k, n) + k·n) / 3. The result itself serves as workspace.

    The error is bounded by the largest entries, not entry by entry as that of :func:`matmul`:
    with u the unit roundoff, L = `levels`, k₀ = k / 2ᴸ and ‖·‖ the largest magnitude of an entry,

        ‖C − AB‖ ≤ (18ᴸ (k₀² + 6 k₀) − 6 k) u ‖A‖ ‖B‖ + O(u²)

    (Higham, 2002, section 23.2.2). So small entries of C beside large ones may have no correct
    digit. An infinity or a NaN in an operand, or a sum of entries that overflows, makes NaN of
    entries of C that it has no part in. Integers are refused, since sums of entries may leave
    their range: use :func:`matmul`, or float64 where every sum stays below ``2**53``.

    Winograd's form has 15 additions, Strassen's own 18. The order of the steps is such that two
    temporary matrices do (Douglas, Heroux, Slishman and Smith, 1994; Boyer, Dumas, Pernet and Zhou,
    2009). From which size a level pays: ``docs/strassen.md``.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> A = np.arange(9.0).reshape(3, 3)
    >>> sm.strassen(A, A)
    array([[ 15.,  18.,  21.],
           [ 42.,  54.,  66.],
           [ 69.,  90., 111.]])
    """
    s = as_semiring(semiring)
    ring = semirings["plus_times"]
    if (s.add_expr, s.mul_expr) != (ring.add_expr, ring.mul_expr):
        raise TypeError(
            f"strassen subtracts, and {s.name} has no subtraction (⊕ = {s.add}): use "
            f"matmul(a, b, {s.name!r})"
        )
    levels = integer(levels, "strassen: levels")
    if levels < 0:
        raise ValueError(f"strassen: levels must be at least 0, got {levels}")
    with Call(device, out, a=a, b=b) as call:
        return call.give(_products(call.engine, call["a"], call["b"], levels, call.out))


def _products(engine: Engine, a: Array, b: Array, levels: int, out: Array | None) -> Array:
    """:func:`strassen` on arrays of one engine."""
    s, xp = semirings["plus_times"], engine.xp
    for name, x in (("a", a), ("b", b)):
        if x.dtype.name not in ("float32", "float64"):
            raise TypeError(
                f"strassen takes float32 and float64, got {name} of dtype {x.dtype}: use matmul, "
                f"which is exact for integers, or {name}.astype(np.float64)"
            )
    a, b = common_dtype(s, a, b)
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"strassen takes matrices (..., m, k) and (..., k, n), got shapes {a.shape} and "
            f"{b.shape}"
        )
    (m, k), n = a.shape[-2:], b.shape[-1]
    shape = (*join_leading("strassen", (a.shape[:-2], b.shape[:-2])), m, n)
    if out is not None:
        check_out(out, shape, a.dtype)
    aside = out is None or overlaps(xp, out, a, b)
    c: Array = xp.empty(shape, a.dtype) if aside else out
    batch = shape[:-2]
    a, b = xp.broadcast_to(a, (*batch, m, k)), xp.broadcast_to(b, (*batch, k, n))
    work = xp.empty(_entries(m >> levels, k >> levels, n >> levels, levels), a.dtype)
    for i in np.ndindex(batch):
        _peeled(engine, a[i], b[i], c[i], levels, work)
    if out is not None and aside:
        out[...] = c
        return out
    return c


def _entries(m: int, k: int, n: int, levels: int) -> int:
    """Return the number of entries of the workspace for innermost products of this size."""
    return (m * max(k, n) + k * n) * (((1 << 2 * levels) - 1) // 3)


def _peeled(engine: Engine, a: Array, b: Array, c: Array, levels: int, work: Array) -> None:
    """C ← A B: the part that halves `levels` times, then the remaining rows and columns."""
    s = semirings["plus_times"]
    m, k, n = (size >> levels << levels for size in (*a.shape, b.shape[1]))
    if not (levels and m and k and n):
        multiply_into(engine, s, a, b, c)
        return
    _winograd(engine, a[:m, :k], b[:k, :n], c[:m, :n], levels, work)
    if k < a.shape[1]:
        multiply_into(engine, s, a[:m, k:], b[k:, :n], c[:m, :n], JOIN)
    multiply_into(engine, s, a[:m], b[:, n:], c[:m, n:])
    multiply_into(engine, s, a[m:], b, c[m:])


#: Of P₁, P₆, P₇, P₅, P₃, in whose places are then U₃, U₇, U₅: (to, left, sign, right).
_JOIN = (
    (5, 0, 1, 1),  # U₂ ← P₁ + P₆
    (2, 5, 1, 2),  # U₃ ← U₂ + P₇
    (5, 5, 1, 3),  # U₄ ← U₂ + P₅
    (3, 2, 1, 3),  # U₇ ← U₃ + P₅
    (1, 5, 1, 4),  # U₅ ← U₄ + P₃
)


def _winograd(engine: Engine, a: Array, b: Array, c: Array, levels: int, work: Array) -> None:
    """C ← A B for sides that halve `levels` times.

    Of two temporary matrices, X holds S₃, S₁, S₂, S₄ and P₁ in turn, Y holds T₃, T₁, T₂ and T₄.
    """
    if not levels:
        multiply_into(engine, semirings["plus_times"], a, b, c)
        return
    (a11, a12, a21, a22), (b11, b12, b21, b22), (c11, c12, c21, c22) = map(_quarters, (a, b, c))
    (m, k), n = a11.shape, b11.shape[1]
    first = m * max(k, n)
    second = first + k * n
    x, y = _laid(work[: m * k], a11), _laid(work[first:second], b11)
    p1 = _laid(work[: m * n], c11)

    def add(left: Array, right: Array, to: Array) -> None:
        engine.combine(((2, 0, 1, 1),), (left, right, to))

    def subtract(left: Array, right: Array, to: Array) -> None:
        engine.combine(((2, 0, -1, 1),), (left, right, to))

    def multiply(left: Array, right: Array, to: Array) -> None:
        _winograd(engine, left, right, to, levels - 1, work[second:])

    subtract(a11, a21, x)  # S₃
    subtract(b22, b12, y)  # T₃
    multiply(x, y, c21)  # P₇
    add(a21, a22, x)  # S₁
    subtract(b12, b11, y)  # T₁
    multiply(x, y, c22)  # P₅
    subtract(x, a11, x)  # S₂
    subtract(b22, y, y)  # T₂
    multiply(x, y, c12)  # P₆
    subtract(a12, x, x)  # S₄
    multiply(x, b22, c11)  # P₃
    multiply(a11, b11, p1)  # P₁
    engine.combine(_JOIN, (p1, c12, c21, c22, c11))  # U₃ in c21, U₇ in c22, U₅ in c12
    subtract(y, b21, y)  # T₄
    multiply(a22, y, c11)  # P₄
    subtract(c21, c11, c21)  # U₆
    multiply(a12, b21, c11)  # P₂
    add(p1, c11, c11)  # U₁


def _quarters(x: Array) -> tuple[Array, Array, Array, Array]:
    i, j = x.shape[0] // 2, x.shape[1] // 2
    return x[:i, :j], x[:i, j:], x[i:, :j], x[i:, j:]


def _laid(memory: Array, like: Array) -> Array:
    """Return a view of the workspace with another matrix's shape and order of strides."""
    m, n = like.shape
    by_columns = abs(like.strides[0]) < abs(like.strides[1])
    return memory.reshape(n, m).T if by_columns else memory.reshape(m, n)
