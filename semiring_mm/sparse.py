"""Check sparse and band left operands (CSR, DIA of SciPy and CuPy) and convert them to arrays.

Matrices are recognised by their attributes, so that neither SciPy nor CuPy is imported for that.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .engine import Engine, Scaling
from .laws import SemiringLawError, check_laws
from .semirings import Semiring

__all__ = ["arrays_of", "is_sparse", "multiply_sparse", "repeatable", "take_apart"]

Array = Any


def is_sparse(x: Any) -> bool:
    """Whether `x` is a sparse matrix or array of SciPy or CuPy."""
    return hasattr(x, "tocsr") and hasattr(x, "format")


def arrays_of(a: Any) -> tuple[Array, ...] | None:
    """The arrays of a CSR or DIA matrix, as they are; None for anything else."""
    form = getattr(a, "format", None)
    if form == "csr":
        return a.data, a.indices, a.indptr
    return (a.data, a.offsets) if form == "dia" else None


def take_apart(verb: str, a: Any, b: Any) -> dict[str, Array]:
    """The arrays of a verb's sparse left operand, by the names used in messages.

    Raises TypeError or ValueError for what is not supported.
    """
    kind = type(a).__name__
    if is_sparse(b):
        raise TypeError(
            f"{verb}: the right operand is a sparse {type(b).__name__}, and only the left one may "
            f"be sparse: where ⊗ commutes, A S is the transpose of {verb} of S.T.tocsr() and A.T"
        )
    if a.format not in ("csr", "dia"):
        raise TypeError(
            f"{verb}: a is a {kind}; CSR and DIA are multiplied as they lie: use a.tocsr(), and "
            f"keep it for the next product"
        )
    if len(a.shape) != 2:
        raise ValueError(f"{verb}: a is a {kind} of shape {a.shape}; use a.reshape(1, -1)")
    data = a.data
    if a.format == "dia":
        if data.ndim != 2 or a.offsets.shape != data.shape[:1]:
            raise ValueError(
                f"{verb}: a has data of shape {data.shape} and offsets of shape {a.offsets.shape}; "
                f"a band matrix has a row of data for each offset"
            )
        (offsets,) = _indices(a.offsets)
        return {"a.data": data, "a.offsets": offsets}
    indices, indptr = a.indices, a.indptr
    if indptr.shape != (a.shape[0] + 1,) or data.ndim != 1 or data.shape != indices.shape:
        raise ValueError(
            f"{verb}: a of shape {a.shape} has data of shape {data.shape}, indices of shape "
            f"{indices.shape} and indptr of shape {indptr.shape}; a CSR matrix has an index for "
            f"each entry, and a row pointer more than rows"
        )
    indices, indptr = _indices(indices, indptr)
    return {"a.data": data, "a.indices": indices, "a.indptr": indptr}


def _indices(*given: Array) -> list[Array]:
    """Return index arrays in one dtype, int32 or int64, as the kernels read them."""
    dtype = given[0].dtype
    if dtype in (np.dtype(np.int32), np.dtype(np.int64)) and all(x.dtype == dtype for x in given):
        return list(given)
    return [x.astype(np.int64) for x in given]


def multiply_sparse(
    engine: Engine, s: Semiring, matrix: Any, arrays: list[Array], b: Array, c: Array,
    scaling: Scaling, *, trans: bool = False,
) -> None:  # fmt: skip
    """Multiply a sparse matrix and checked dense operands of two dimensions on the engine."""
    _need_laws(s, b.dtype)
    if c.size == 0:
        return
    if matrix.format == "dia":
        data, offsets = arrays
        engine.dia_product(s, data, offsets, b, c, scaling, trans=trans)
        return
    if not _distributes(s, b.dtype) and not matrix.has_canonical_format:
        raise ValueError(
            f"a may have several entries at one place, which {s.name} cannot join in a product, "
            f"since its ⊗ does not distribute over ⊕: join them, and sort a's indices, before"
        )
    data, indices, indptr = arrays
    engine.csr_product(s, data, indices, indptr, b, c, scaling, trans=trans)


def repeatable(
    s: Semiring, matrix: Any, arrays: dict[str, Array], known: tuple[Array, ...], b: Any
) -> bool:
    """Whether a product depends on no more than the types of its operands, and converts none."""
    if not all(x is y for x, y in zip(arrays.values(), known, strict=True)):
        return False
    return matrix.format == "dia" or _distributes(s, np.dtype(str(b.dtype).rpartition(".")[2]))


@functools.lru_cache(maxsize=1024)
def _need_laws(s: Semiring, dtype: np.dtype[Any]) -> None:
    domain = "binary" if dtype.kind == "b" else s.domain  # the values of a bool
    try:
        check_laws(s, dtype, domain, None, only=("zero annihilates", "zero is"))
    except SemiringLawError as error:
        raise ValueError(
            f"a is sparse, but {error}. Entries that are not stored count over {s.name}: use a "
            f"dense a, with {s.zero:g} where nothing is stored"
        ) from error
    except TypeError:  # not defined in this dtype: the engine's message says more
        pass


@functools.lru_cache(maxsize=1024)
def _distributes(s: Semiring, dtype: np.dtype[Any]) -> bool:
    try:
        check_laws(s, dtype, s.domain, None, only=("⊗ distributes",))
    except (SemiringLawError, TypeError):
        return False
    return True
