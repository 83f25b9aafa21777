"""The matrix product, in one memory or over tiles of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .. import blas
from ..arrays import check_memory, repeat
from ..bits import BitMatrix
from ..deprecated import apart
from ..products import common_dtype
from ..progress import Progress, reporter
from ..semirings import Semiring, as_semiring
from ..sparse import is_sparse

if TYPE_CHECKING:
    from ..tiles import Tiles

__all__ = ["matmul"]


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
    if not (tiles or progress):
        c = repeat(("matmul", semiring, return_arg), (a, b), out) if device is None else None
        if c is not None:
            return c
        return blas.matmul(a, b, semiring, out=out, return_arg=return_arg, device=device)
    s = as_semiring(semiring)
    if isinstance(a, BitMatrix) or isinstance(b, BitMatrix):
        raise TypeError(blas.BITS_ALONE)
    if not tiles:
        raise ValueError("progress is told of work over tiles: give tiles=sm.Tiles(...), too")
    if return_arg or out is not None:
        raise ValueError("over tiles a product has neither return_arg nor out: leave out tiles")
    return _over_tiles(s, *_by_blocks(s, a, b), device, tiles, progress)


def _over_tiles(
    s: Semiring, a: Any, b: Any, dtype: np.dtype[Any], device: str | None, tiles: Tiles,
    progress: Progress,
) -> Any:  # fmt: skip
    from ..tiles import TileOptions  # imported lazily: most products are in one memory
    from .stored import multiply_streamed

    options = TileOptions.of(device, tiles)
    devices, limit, paths = options.indices(), options.limit(), options.paths(False)
    (m, depth), n = a.shape, b.shape[1]
    tick = reporter(progress, float(m) * n * depth)
    if paths is None:
        check_memory(m * n * dtype.itemsize, f"the {m} x {n} result in {dtype}")
    return multiply_streamed(
        s, a, b, out=np.empty((m, n), dtype) if paths is None else paths[0], dtype=dtype,
        devices=devices, memory_limit=limit, checkpoint=options.checkpoint or 1,
        resume=options.resume, tick=tick,
    )  # fmt: skip


def _by_blocks(s: Semiring, a: Any, b: Any) -> tuple[Any, Any, np.dtype[Any]]:
    """Operands that can be read by blocks as NumPy arrays, and the dtype of their product."""
    a, b = (np.asarray(x) if isinstance(x, (list, tuple)) else x for x in (a, b))
    for name, x in (("a", a), ("b", b)):
        sliced = all(hasattr(x, word) for word in ("shape", "dtype", "__getitem__"))
        there = sliced and isinstance(x.dtype, np.dtype) and not is_sparse(x)
        there = there and not hasattr(x, "__cuda_array_interface__")
        if not there or len(x.shape) != 2:
            came = f"shape {x.shape}" if there else type(x).__name__
            raise TypeError(
                f"matmul: over tiles {name} is a matrix on the host (NumPy, numpy.memmap, Zarr), "
                f"got {came}"
            )
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"matmul: shapes {tuple(a.shape)} and {tuple(b.shape)} do not match: a has "
            f"{a.shape[1]} columns and b has {b.shape[0]} rows"
        )
    dtype = common_dtype(s, np.empty(0, a.dtype), np.empty(0, b.dtype))[0].dtype
    return a, b, dtype
