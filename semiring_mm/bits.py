"""Matrices of truth values, packed eight to a byte: products that never unpack them."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from .arrays import Call, repeat
from .engine import Engine
from .naming import integer
from .plan import unpack_bits, words_of_bits
from .products import check_inner, join_leading, raised
from .semirings import Semiring

__all__ = [
    "BitMatrix", "eye_bits", "matmul_bits", "pack", "power_bits", "product_of_bits",
]  # fmt: skip

Array = Any


class BitMatrix:
    """A matrix of truth values, or a stack of them, packed eight to a byte.

    :func:`matmul` and :func:`matrix_power` over lor_land and xor_land, :func:`closure` over
    lor_land and the functions of ``sm.gf2`` take and return it: an eighth of the memory of dtype
    bool, and no time to pack and unpack between products. Other functions take ``A.unpack()``.

    Parameters
    ----------
    bits : array of uint8, shape (..., m, ceil(n / 8))
        Rows as of ``numpy.packbits(A, axis=-1)``: column j is bit ``7 - j % 8`` of byte ``j // 8``.
        Bits beyond the last column do not count. An array of NumPy, CuPy, PyTorch or JAX, of any
        strides; it is not copied.
    columns : int, optional
        The number n; by default 8 for each byte of a row.

    Attributes
    ----------
    bits : array
    shape : tuple of int
        (..., m, n), of the matrix.

    Raises
    ------
    TypeError
        If `bits` is no array of dtype uint8.
    ValueError
        If it has fewer than two axes, or another number of bytes than n columns take.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> A = sm.BitMatrix.pack(np.eye(3, dtype=bool)[::-1])
    >>> A
    BitMatrix(3 x 3)
    >>> A.bits.ravel().tolist()
    [32, 64, 128]
    >>> sm.matmul(A, A, "xor_land").unpack().astype(int)
    array([[1, 0, 0],
           [0, 1, 0],
           [0, 0, 1]])
    """

    __module__ = "semiring_mm"  # where users import it from
    __slots__ = ("bits", "shape")

    bits: Any
    shape: tuple[int, ...]

    def __init__(self, bits: Any, columns: int | None = None) -> None:
        kind = str(getattr(bits, "dtype", "")).rpartition(".")[2]  # PyTorch's is torch.uint8
        if kind != "uint8":
            came = f"dtype {kind}" if kind else f"a {type(bits).__name__}"
            raise TypeError(
                f"BitMatrix takes packed bits, an array of dtype uint8, and got {came}: "
                f"BitMatrix.pack(A) packs truth values"
            )
        if bits.ndim < 2:
            raise ValueError(
                f"BitMatrix takes bits of at least two axes, (..., m, bytes), got shape "
                f"{tuple(bits.shape)}"
            )
        size = int(bits.shape[-1])
        columns = 8 * size if columns is None else integer(columns, "BitMatrix: columns")
        if columns < 0 or -(-columns // 8) != size:
            raise ValueError(
                f"BitMatrix: rows of {columns} columns take {-(-columns // 8)} bytes, and bits has "
                f"shape {tuple(bits.shape)}"
            )
        self.bits = bits
        self.shape = (*map(int, bits.shape[:-1]), columns)

    @classmethod
    def pack(cls, a: Any) -> BitMatrix:
        """Pack an array of truth values, (..., m, n), where it lives.

        Parameters
        ----------
        a : array_like of bool, or of integers that are 0 or 1

        Raises
        ------
        TypeError
            For other dtypes.
        ValueError
            For other integers, and for fewer than two axes.
        """
        with Call(None, a=a) as call:
            return cls(call.give(pack(call.engine, call["a"])), call["a"].shape[-1])

    def unpack(self) -> Any:
        """The matrix as an array of bool, in the library and memory of `bits`.

        Returns
        -------
        array of bool, shape (..., m, n)
        """
        with Call(None, bits=self.bits) as call:
            return call.give(unpack_bits(call.engine.xp, call["bits"], self.shape[-1]))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"BitMatrix({' x '.join(map(str, self.shape))})"


def pack(engine: Engine, x: Array, name: str = "BitMatrix.pack") -> Array:
    """Packed bits of truth values that an engine has, checked."""
    if x.ndim < 2:
        raise ValueError(f"{name} takes matrices, (..., m, n), got shape {x.shape}")
    if x.dtype.kind in "iu":
        if x.size and not bool(((x == 0) | (x == 1)).all()):
            raise ValueError(f"{name}: integers must be 0 or 1; reduce them first, with A % 2")
        x = x.astype(bool)
    elif x.dtype.kind != "b":
        raise TypeError(
            f"{name} takes truth values (bool, or integers that are 0 or 1), got dtype {x.dtype}"
        )
    lead, (m, n) = x.shape[:-2], x.shape[-2:]
    if x.size == 0:
        return engine.xp.zeros((*lead, m, -(-n // 8)), np.uint8)
    flat = x.reshape(-1, m, n) if len(lead) > 1 else x
    return engine.pack_bits(flat).reshape(*lead, m, -1)


def eye_bits(engine: Engine, n: int, lead: tuple[int, ...] = ()) -> Array:
    """Packed identity matrices."""
    bits = engine.xp.zeros((*lead, n, -(-n // 8)), np.uint8)
    at = engine.xp.arange(n)
    bits[..., at, at // 8] = (128 >> at % 8).astype(np.uint8)
    return bits


def product_of_bits(engine: Engine, s: Semiring, a: Array, b: Array, n: int) -> Array:
    """A ⊗ B of packed bits of any leading dimensions, which broadcast."""
    xp, (m, size) = engine.xp, (a.shape[-2], b.shape[-1])
    lead = join_leading("matmul", (a.shape[:-2], b.shape[:-2]))
    if 0 in (m, n, b.shape[-2], *lead):
        return xp.zeros((*lead, m, size), np.uint8)
    c = xp.empty((math.prod(lead), m, size) if lead else (m, size), np.uint8)
    if lead:
        a, b = (
            xp.broadcast_to(x, (*lead, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for x in (a, b)
        )
    engine.product_bits(s, a, b, c, n)
    return c.reshape(*lead, m, size)


def matmul_bits(s: Semiring, a: Any, b: Any, device: str | None = None) -> BitMatrix:
    """:func:`matmul` where an operand is packed; the other one is packed first."""
    head = None
    if isinstance(a, BitMatrix) and isinstance(b, BitMatrix) and a.ndim == b.ndim == 2:
        head = ("matmul of bits", s, a.shape[1], b.shape)
        c = repeat(head, (a.bits, b.bits)) if device is None else None
        if c is not None:
            return BitMatrix(c, b.shape[1])
    words_of_bits(s)
    given = {name: x.bits if isinstance(x, BitMatrix) else x for name, x in (("a", a), ("b", b))}
    with Call(device, None, head, **given) as call:
        (left, shape), (right, other) = (
            (call[name], x.shape) if isinstance(x, BitMatrix)
            else (pack(call.engine, call[name], _BESIDE.format(name)), call[name].shape)
            for name, x in (("a", a), ("b", b))
        )  # fmt: skip
        check_inner(shape, other)
        c = product_of_bits(call.engine, s, left, right, other[-1])
        return BitMatrix(call.give(c), other[-1])


_BESIDE = "matmul: {}, beside a BitMatrix,"


def power_bits(s: Semiring, a: BitMatrix, k: int, device: str | None = None) -> BitMatrix:
    """:func:`matrix_power` of a packed square matrix; k is at least 0."""
    words_of_bits(s)
    n = a.shape[-1]
    with Call(device, a=a.bits) as call:
        if k == 0:
            return BitMatrix(call.give(eye_bits(call.engine, n, a.shape[:-2])), n)
        product = functools.partial(product_of_bits, call.engine, s, n=n)
        return BitMatrix(call.give(raised(call["a"], k, product)), n)
