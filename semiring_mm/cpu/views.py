"""NumPy arrays as compiled code sees them: the fields of the array object itself."""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compiler import Library
from .ir import I32, I64, PTR, Function, Type, Value

__all__ = [
    "HEAD", "ArrayView", "address", "check_array_layout", "even_strides", "function_of_arrays",
    "unpacking",
]  # fmt: skip

HEAD = object.__basicsize__  # bytes of the C struct that every Python object begins with
_ITEMS = tuple.__basicsize__  # bytes before the items of a tuple


class ArrayView:
    """The fields of a NumPy array object: data, dimensions, strides (part of NumPy's C ABI)."""

    def __init__(self, f: Function, array: Value) -> None:
        self.f = f
        self.data = f.load(array.at(HEAD), PTR, 8)
        self.ndim = f.load(array.at(HEAD + 8), I32, 4).to(I64)
        self.dims = f.load(array.at(HEAD + 16), PTR, 8)
        self.strides = f.load(array.at(HEAD + 24), PTR, 8)

    def _at(self, where: Value, axis: int) -> Value:
        """Dimension or stride of an axis counted from the end."""
        return self.f.load(where.at((self.ndim + axis) * 8), I64, 8)

    def dim(self, axis: int) -> Value:
        return self._at(self.dims, axis)

    def stride(self, axis: int) -> Value:
        return self._at(self.strides, axis)


_pointer_at = ctypes.c_void_p.from_address


def address(x: NDArray[Any]) -> int:
    """Where an array's entries begin: ``x.ctypes.data``, which takes five times as long."""
    return _pointer_at(id(x) + HEAD).value or 0


def even_strides(x: NDArray[Any]) -> bool:
    """Whether entries are whole entries apart; those of a field of a structure may not be."""
    return math.gcd(x.itemsize, *x.strides) == x.itemsize


@functools.cache
def check_array_layout() -> None:
    """The kernels read NumPy's array struct; make sure that it lies as its C API says."""
    probe = np.zeros((3, 5), np.int16)[:, ::2]
    address = id(probe) + HEAD
    data = ctypes.c_void_p.from_address(address).value
    ndim = ctypes.c_int.from_address(address + 8).value
    dims = (ctypes.c_ssize_t * 2).from_address(
        ctypes.c_void_p.from_address(address + 16).value or 0
    )
    strides = (ctypes.c_ssize_t * 2).from_address(
        ctypes.c_void_p.from_address(address + 24).value or 0
    )
    item = ctypes.c_void_p.from_address(id(pair := (None, probe)) + _ITEMS + 8).value
    seen = (data, ndim, tuple(dims), tuple(strides), item)
    if seen != (probe.ctypes.data, 2, probe.shape, probe.strides, id(pair[1])):
        raise RuntimeError(
            f"NumPy {np.__version__} on this interpreter lays its arrays out in an unknown way; "
            f"please report it"
        )


def unpacking(name: str, function: Function) -> Function:
    """Generate what calls a function with the items of a tuple, the fifth of which are bytes.

    ctypes takes 0.1 us for each argument. It returns the first byte of the fourth, an array: the
    flags of a workspace.
    """
    f = Function(name, [PTR], result=I64)
    given = [f.load(f.args[0].at(_ITEMS + 8 * i), PTR, 8) for i in range(len(function.args))]
    given[4] = given[4].at(bytes.__basicsize__ - 1)  # but for the byte that ends them
    f.invoke(function, given)
    flags = f.load(given[3].at(HEAD), PTR, 8)
    f.result.set(f.load(flags, Type("u", 8)).to(I64))
    return f


def function_of_arrays(library: Library, name: str, params: Any = ctypes.c_char_p) -> Any:
    """A function (A, B, C, workspace, params, K, P) of a library, the fifth argument bytes."""
    check_array_layout()
    arrays = [ctypes.py_object] * 4
    return library.function(name, *arrays, params, *arrays[:2])
