"""Linear algebra over GF(2), the field of two elements: exact, by blocked elimination.

Matrices are arrays of truth values (bool, or integers that are 0 or 1) or
:class:`semiring_mm.BitMatrix`, on the host or on a CUDA device; results are of the same kind.
Products are ``sm.matmul(A, B, "xor_land")``.

>>> import numpy as np
>>> import semiring_mm as sm
>>> A = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
>>> sm.gf2.rank(A)
2
>>> sm.gf2.null_space(A)
array([[1, 1, 1]])

Notes
-----
Gauss-Jordan elimination by panels of some hundred columns: a panel is reduced by itself, in one
block of the device or in a cache, and a product of packed bits over xor_land subtracts its pivots
from all other rows. n³ pairs for a square matrix (Albrecht, Bard and Hart, 2010, on elimination of
packed matrices).
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Call
from .bits import BitMatrix, eye_bits, pack
from .engine import Engine
from .naming import listing
from .plan import unpack_bits
from .semirings import semirings
from .verb import Verb

__all__ = ["det", "inv", "null_space", "rank", "row_reduce", "solve"]
__dir__ = listing(__all__)

Array = Any


def rank(a: Any, *, device: str | None = None) -> int:
    """The rank of a matrix over GF(2).

    Parameters
    ----------
    a : array_like or BitMatrix, shape (m, n)
        Truth values: bool, or integers that are 0 or 1.
    device : {None, "cpu", "cuda", "cuda:N"}
        Where to run. None: where the matrix lives.

    Returns
    -------
    int

    Raises
    ------
    TypeError, ValueError
        For other dtypes, other integers, and what is no matrix.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> sm.gf2.rank(np.ones((4, 4), bool))
    1
    """
    with _matrices("rank", "a MN", device, a=a) as (x,):
        return len(_eliminate(x.engine, x.room(), x.n, below=True))


def det(a: Any, *, device: str | None = None) -> int:
    """The determinant of a square matrix over GF(2): 1 if it has an inverse, else 0.

    Parameters
    ----------
    a, device
        As of :func:`rank`, shape (n, n).

    Returns
    -------
    int

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> sm.gf2.det(np.array([[1, 1], [0, 1]]))
    1
    """
    with _matrices("det", "a NN", device, a=a) as (x,):
        return int(len(_eliminate(x.engine, x.room(), x.n, below=True)) == x.n)


def row_reduce(a: Any, *, device: str | None = None) -> Any:
    """The reduced row echelon form of a matrix over GF(2).

    Parameters
    ----------
    a, device
        As of :func:`rank`.

    Returns
    -------
    array or BitMatrix, shape (m, n)
        Of the dtype of `a`. Rows of zeros come last.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> sm.gf2.row_reduce(np.array([[0, 1, 1], [1, 1, 0], [1, 0, 1]]))
    array([[1, 0, 1],
           [0, 1, 1],
           [0, 0, 0]])
    """
    with _matrices("row_reduce", "a MN", device, a=a) as (x,):
        room = x.room()
        _eliminate(x.engine, room, x.n)
        return x.give(room[:, : -(-x.n // 8)])


def inv(a: Any, *, device: str | None = None) -> Any:
    """The inverse of a square matrix over GF(2).

    Parameters
    ----------
    a, device
        As of :func:`rank`, shape (n, n).

    Returns
    -------
    array or BitMatrix, shape (n, n)
        Of the dtype of `a`.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is singular.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> sm.gf2.inv(np.array([[1, 1], [0, 1]]))
    array([[1, 1],
           [0, 1]])
    """
    with _matrices("inv", "a NN", device, a=a) as (x,):
        return x.give(_solution("inv", x, eye_bits(x.engine, x.n)))


def solve(a: Any, b: Any, *, device: str | None = None) -> Any:
    """The solution X of ``A X = B`` over GF(2).

    Parameters
    ----------
    a : array_like or BitMatrix, shape (n, n)
    b : array_like or BitMatrix, shape (n, k), or array_like, shape (n,)
    device
        As of :func:`rank`.

    Returns
    -------
    array or BitMatrix, shape of b
        Of the dtype of `b`.

    Raises
    ------
    ValueError
        If shapes do not match.
    numpy.linalg.LinAlgError
        If A is singular.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> A = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]])
    >>> sm.gf2.solve(A, np.array([1, 0, 1]))
    array([0, 1, 1])
    """
    with _matrices("solve", "a NN, b N[K]", device, a=a, b=b) as (x, right):
        return right.give(_solution("solve", x, right.bits))


def null_space(a: Any, *, device: str | None = None) -> Any:
    """A basis of the vectors x with ``A x = 0`` over GF(2), in reduced row echelon form.

    Parameters
    ----------
    a, device
        As of :func:`rank`.

    Returns
    -------
    array or BitMatrix, shape (n - rank, n)
        Rows are the basis; of the dtype of `a`.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> sm.gf2.null_space(np.array([[1, 0, 1], [0, 1, 1]], dtype=bool))
    array([[ True,  True,  True]])
    """
    with _matrices("null_space", "a MN", device, a=a) as (x,):
        engine, xp, room = x.engine, x.engine.xp, x.room()
        pivots = _eliminate(engine, room, x.n)
        free = np.setdiff1d(np.arange(x.n), pivots)
        basis = xp.zeros((len(free), x.n), bool)
        if len(free):
            reduced = unpack_bits(xp, room[: len(pivots)], x.n)
            basis[:, xp.asarray(pivots)] = reduced[:, xp.asarray(free)].T
            basis[xp.arange(len(free)), xp.asarray(free)] = True
        bits = pack(engine, basis)
        _eliminate(engine, bits, x.n)
        return x.give(bits)


@dataclass
class _Matrix:
    """An operand as packed bits of its engine, and the way back for results."""

    call: Call
    given: Any
    array: Array  # of the engine; packed if it was
    bits: Array

    @property
    def engine(self) -> Engine:
        return self.call.engine

    @property
    def n(self) -> int:
        return int(self.shape[1])

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.given.shape if isinstance(self.given, BitMatrix) else self.array.shape)

    def room(self, columns: int = 0) -> Array:
        """A copy of the matrix whose rows have so many more columns, from a multiple of 128 on."""
        size = -(-self.n // 128) * 16
        room = self.engine.xp.zeros((self.shape[0], size + -(-columns // 128) * 16), np.uint8)
        room[:, : self.bits.shape[1]] = self.bits
        if self.n % 8:
            room[:, self.n // 8] &= 256 - (256 >> self.n % 8)  # what is beyond the last column
        return room

    def give(self, bits: Array) -> Any:
        """Packed bits, of as many columns, as the operand was given."""
        xp = self.engine.xp
        if isinstance(self.given, BitMatrix):
            return BitMatrix(self.call.give(xp.ascontiguousarray(bits)), self.n)
        columns = math.prod(self.shape[1:])
        whole = unpack_bits(xp, bits, columns).astype(self.array.dtype, copy=False)
        return self.call.give(whole if len(self.shape) > 1 else whole[:, 0])


@contextlib.contextmanager
def _matrices(
    verb: str, signature: str, device: str | None, **given: Any
) -> Iterator[list[_Matrix]]:
    """Operands of a signature as of :class:`.verb.Verb`."""
    packed = {name: x.bits if isinstance(x, BitMatrix) else x for name, x in given.items()}
    with Call(device, **packed) as call:
        found = [_Matrix(call, x, call[name], call[name]) for name, x in given.items()]
        _verb(verb, signature).check(x.shape for x in found)
        for name, x in zip(given, found, strict=True):
            if not isinstance(x.given, BitMatrix):
                columns = x.array if x.array.ndim > 1 else x.array[:, np.newaxis]
                x.bits = pack(call.engine, columns, f"{verb}: {name}")
        yield found


_verb = functools.cache(Verb)


def _solution(verb: str, x: _Matrix, right: Array) -> Array:
    """A⁻¹ B of packed bits."""
    columns = 8 * right.shape[1]
    room = x.room(columns)
    start = room.shape[1] - -(-columns // 128) * 16
    room[:, start : start + right.shape[1]] = right
    found = len(_eliminate(x.engine, room, x.n))
    if found < x.n:
        raise np.linalg.LinAlgError(
            f"{verb}: the matrix of shape {x.shape} is singular over GF(2), of rank {found}; "
            f"semiring_mm.gf2.null_space tells what it maps to 0"
        )
    return room[:, start : start + right.shape[1]]


def _eliminate(engine: Engine, bits: Array, n: int, *, below: bool = False) -> NDArray[np.int64]:
    """Reduce packed rows in place, by pivots in the first n columns; return their columns.

    Row i has the i-th pivot. `below`: rows above a pivot keep its column, and pivots come in no
    order.
    """
    m, size = bits.shape
    xor, xp, panel = semirings["xor_land"], engine.xp, engine.PANEL
    pivots: list[int] = []
    for column in range(0, n, panel):
        width, at = min(panel, n - column), column // 8
        end, right = at + -(-width // 8), bits[:, at:]
        done = len(pivots)
        rows = np.arange(done, min(done + engine.ROWS, m))
        where: Any = slice(done, done + len(rows))
        while len(rows):
            first = len(pivots)
            top = first if below else 0
            strip = xp.ascontiguousarray(right[:, : end - at])
            sums, found = engine.reduce_bits(strip[where], width)
            there = np.flatnonzero(found >= 0)
            if len(there):
                chosen = rows[found[there]]
                reduced = xp.empty((width, size - at), np.uint8)
                engine.product_bits(xor, sums, right[where], reduced, 8 * (size - at))
                engine.product_bits(xor, strip[top:], reduced, right[top:], 8 * (size - at), True)
                last = first + len(there)
                # rows that are in the way of the pivots take the places that these leave
                inside = (chosen >= first) & (chosen < last)
                if not inside.all():
                    moved = np.setdiff1d(np.arange(first, last), chosen[inside])
                    places = xp.asarray(np.stack([chosen[~inside], moved]))
                    bits[places[0]] = bits[places[1]]
                whole = len(there) == width
                right[first:last] = reduced if whole else reduced[xp.asarray(there)]
                pivots += (column + there).tolist()
            if len(pivots) == m or len(pivots) - done == width:
                break
            # rows that the first ones do not tell anything of
            rest = engine.to_host(right[len(pivots) :, : end - at].any(1))
            rows = len(pivots) + np.flatnonzero(rest)[: engine.ROWS]
            where = xp.asarray(rows)
        if len(pivots) == m:
            break
    order = np.argsort(pivots, kind="stable")
    if not below and (np.diff(order) < 0).any():
        bits[: len(pivots)] = bits[: len(pivots)][xp.asarray(order)]
    return np.sort(np.array(pivots, np.int64))
