"""
Strassen's products: seven multiplications instead of eight
===========================================================

A product of matrices is eight products of half the size. Strassen found in 1969 that seven do, if
one adds and subtracts; in Winograd's form, which this is, that takes 15 additions of quarters. Each
level saves an eighth of the multiplications, and costs accuracy: errors are bounded by the largest
entries, no longer entry by entry. It needs subtraction, and so works over **plus_times** only: a
minimum cannot be taken back.

The function below computes :math:`(7/8)^L` of the :math:`m n k` multiplications with products of
:func:`semiring_mm.matmul` and two temporary matrices. From which size that is faster, and how large
errors become, is measured on the page *Strassen's products*::

    python apps/strassen.py
    python apps/strassen.py --side 4096 --dtype float64
"""

import argparse
import time

import numpy as np

import semiring_mm as sm


def strassen(a, b, levels=1, out=None):
    """Matrix product in floating point, by Strassen's algorithm in Winograd's form.

    Parameters
    ----------
    a, b : array, shapes (m, k) and (k, n)
        Of NumPy or CuPy, both float32 or both float64. Any strides.
    levels : int, default 1
        How many times the matrices are halved; 0 is the plain product. Rows and columns by which a
        side exceeds a multiple of ``2**levels`` are multiplied plainly.
    out : array, shape (m, n), optional
        Where to put the result, of the operands' dtype; it shares no memory with `a` and `b`. None:
        a new array of the library of `a`.

    Returns
    -------
    array, shape (m, n)

    Raises
    ------
    TypeError
        For other dtypes: sums of integers may leave their range.
    ValueError
        For shapes that do not match, and a negative number of levels.

    Notes
    -----
    With m, n and k rounded down to multiples of ``2**levels``, the workspace beside the result is
    the sum over l = 1, …, levels of (m·max(k, n) + k·n) / 4ˡ entries. The result itself serves as
    workspace. The order of the steps is such that two temporary matrices do (Douglas, Heroux,
    Slishman and Smith, 1994; Boyer, Dumas, Pernet and Zhou, 2009).

    With u the unit roundoff, L = `levels`, k₀ = k / 2ᴸ and ‖·‖ the largest magnitude of an entry,

        ‖C − AB‖ ≤ (18ᴸ (k₀² + 6 k₀) − 6 k) u ‖A‖ ‖B‖ + O(u²)

    (Higham, 2002, section 23.2.2). An infinity or a NaN in an operand, or a sum of entries that
    overflows, makes NaN of entries of C that it has no part in.
    """
    if a.dtype != b.dtype or a.dtype.name not in ("float32", "float64"):
        raise TypeError(
            f"strassen takes float32 or float64 twice, got {a.dtype} and {b.dtype}: use "
            f"sm.matmul, which is exact for integers, or astype(np.float64)"
        )
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            f"strassen takes matrices (m, k) and (k, n), got shapes {a.shape} and {b.shape}"
        )
    if levels < 0:
        raise ValueError(f"strassen: levels must be at least 0, got {levels}")
    (m, k), n = a.shape, b.shape[1]
    out = np.empty_like(a, shape=(m, n)) if out is None else out
    if out.shape != (m, n) or out.dtype != a.dtype:
        raise ValueError(f"out is ({m}, {n}) of {a.dtype}, got {out.shape} of {out.dtype}")
    if np.may_share_memory(out, a) or np.may_share_memory(out, b):
        raise ValueError("out shares memory with an operand: leave it out, or give another array")
    m2, k2, n2 = (size >> levels << levels for size in (m, k, n))
    if not (levels and m2 and k2 and n2):
        return sm.matmul(a, b, out=out)
    entries = (m2 * max(k2, n2) + k2 * n2) // 4**levels * ((4**levels - 1) // 3)
    work = np.empty_like(a, shape=entries)
    with np.errstate(all="ignore"):
        winograd(a[:m2, :k2], b[:k2, :n2], out[:m2, :n2], levels, work)
    if k2 < k:
        corner = out[:m2, :n2]
        sm.gemm(None, a[:m2, k2:], b[k2:, :n2], 1.0, corner, out=corner)
    sm.matmul(a, b[:, n2:], out=out[:, n2:])
    sm.matmul(a[m2:], b[:, :n2], out=out[m2:, :n2])
    return out


def winograd(a, b, c, levels, work):
    """C ← A B for sides that halve `levels` times.

    Of two temporary matrices, X holds S₃, S₁, S₂, S₄ and P₁ in turn, Y holds T₃, T₁, T₂ and T₄.
    """
    if not levels:
        sm.matmul(a, b, out=c)
        return
    (a11, a12, a21, a22), (b11, b12, b21, b22), (c11, c12, c21, c22) = map(quarters, (a, b, c))
    (m, k), n = a11.shape, b11.shape[1]
    first = m * max(k, n)
    second = first + k * n
    x, y = laid(work[: m * k], a11), laid(work[first:second], b11)
    p1 = laid(work[: m * n], c11)

    def multiply(left, right, to):
        winograd(left, right, to, levels - 1, work[second:])

    np.subtract(a11, a21, out=x)  # S₃
    np.subtract(b22, b12, out=y)  # T₃
    multiply(x, y, c21)  # P₇
    np.add(a21, a22, out=x)  # S₁
    np.subtract(b12, b11, out=y)  # T₁
    multiply(x, y, c22)  # P₅
    np.subtract(x, a11, out=x)  # S₂
    np.subtract(b22, y, out=y)  # T₂
    multiply(x, y, c12)  # P₆
    np.subtract(a12, x, out=x)  # S₄
    multiply(x, b22, c11)  # P₃
    multiply(a11, b11, p1)  # P₁
    np.add(p1, c12, out=c12)  # U₂ ← P₁ + P₆
    np.add(c12, c21, out=c21)  # U₃ ← U₂ + P₇
    np.add(c12, c22, out=c12)  # U₄ ← U₂ + P₅
    np.add(c21, c22, out=c22)  # U₇ ← U₃ + P₅
    np.add(c12, c11, out=c12)  # U₅ ← U₄ + P₃
    np.subtract(y, b21, out=y)  # T₄
    multiply(a22, y, c11)  # P₄
    np.subtract(c21, c11, out=c21)  # U₆
    multiply(a12, b21, c11)  # P₂
    np.add(p1, c11, out=c11)  # U₁


def quarters(x):
    i, j = x.shape[0] // 2, x.shape[1] // 2
    return x[:i, :j], x[:i, j:], x[i:, :j], x[i:, j:]


def laid(memory, like):
    """A view of the workspace with another matrix's shape and order of strides."""
    m, n = like.shape
    by_columns = abs(like.strides[0]) < abs(like.strides[1])
    return memory.reshape(n, m).T if by_columns else memory.reshape(m, n)


# %%
# Time and errors
# ---------------
# The plain product and up to three levels, of random normal entries; the lower half of A is a
# millionth of the upper one. The error of an entry is relative to the size of the rows and columns
# that it comes from: the plain product keeps the digits of small rows, Strassen's does not.

if __name__ == "__main__":
    import matplotlib.pyplot as plt

    parser = argparse.ArgumentParser(description="Strassen's products beside the plain one.")
    parser.add_argument("--side", type=int, default=512, help="rows and columns of the matrices")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--plot", help="file for the picture; default: show it")
    args = parser.parse_args()

    n, rng = args.side, np.random.default_rng(1)
    a, b = (rng.standard_normal((n, n)) for _ in "ab")
    a[n // 2 :] *= 1e-6
    a, b = a.astype(args.dtype), b.astype(args.dtype)
    wide = np.float64 if args.dtype == "float32" else np.longdouble
    exact = a.astype(wide) @ b.astype(wide)
    sizes = np.outer(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=0))
    errors = []
    for levels in range(4):
        strassen(a, b, levels)  # compiled, and in the caches
        begin = time.perf_counter()
        c = strassen(a, b, levels)
        seconds = time.perf_counter() - begin
        errors.append(np.abs(c - exact).astype(float) / sizes / np.finfo(a.dtype).eps)
        large, small = (errors[-1][half].max() for half in (slice(n // 2), slice(n // 2, None)))
        print(
            f"{levels} level{'s' * (levels != 1)}: {1e3 * seconds:8.2f} ms, "
            f"{0.875**levels:.2f} of the multiplications; "
            f"error in units of the roundoff {large:.2g}, of small rows {small:.2g}"
        )

    figure, axes = plt.subplots(1, 4, figsize=(12, 3.4), layout="constrained")
    for levels, (axis, error) in enumerate(zip(axes, errors, strict=True)):
        drawn = np.log10(np.maximum(error, 1e-2))
        image = axis.imshow(drawn, vmin=-2, vmax=6, cmap="magma")
        axis.set(xticks=[], yticks=[], title="plain" if not levels else f"levels = {levels}")
    figure.colorbar(image, ax=axes, label="log₁₀ of the error / roundoff")
    if args.plot:
        figure.savefig(args.plot, dpi=150)
    else:
        plt.show()
