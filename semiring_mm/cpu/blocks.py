"""Parameter blocks: how compiled functions are given numbers and arrays.

A layout names the fields: numbers, then after colons int64 arrays, int32 arrays, and others.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .ir import I32, I64, PTR, Function, Type, Value
from .views import HEAD, check_array_layout

__all__ = ["Items", "address", "block", "load_block", "load_item"]


class Items:
    """An array of a parameter block: loads widen to int64, stores narrow."""

    def __init__(self, f: Function, base: Value, type_: Type) -> None:
        self.f, self.base, self.type = f, base, type_

    def __getitem__(self, index: Value | int) -> Value:
        return self.f.load(self._place(index), self.type, self.type.size).to(I64)

    def __setitem__(self, index: Value | int, value: Value | int) -> None:
        value = self.f.const(value, I64) if isinstance(value, int) else value
        self.f.store(value.to(self.type), self._place(index), self.type.size)

    def _place(self, index: Value | int) -> Value:
        return self.base.at(index * self.type.size)


def block(layout: str, fields: Mapping[str, Any]) -> NDArray[np.int64]:
    """The numbers and addresses of a layout's fields; 0 for what is not given."""
    return np.array([_word(fields.get(name)) for name in _names(layout)], np.int64)


_pointer_at = ctypes.c_void_p.from_address


@functools.cache
def _names(layout: str) -> list[str]:
    check_array_layout()
    return [name for name in layout.split() if name != ":"]


def _word(x: Any) -> int:
    return address(x) if isinstance(x, np.ndarray) else x or 0


def address(x: NDArray[Any]) -> int:
    """Where an array's entries begin: ``x.ctypes.data``, which takes five times as long."""
    return _pointer_at(id(x) + HEAD).value or 0


def load_block(f: Function, layout: str) -> dict[str, Any]:
    """The fields of the block that a function's first argument points to.

    Numbers, :class:`Items`, and the addresses of other arrays.
    """
    found: dict[str, Any] = {}
    for k, names in enumerate(layout.split(":")):
        for name in names.split():
            value = f.load(f.args[0].at(8 * len(found)), PTR if k else I64, 8)
            found[name] = Items(f, value, (I64, I32)[k - 1]) if k in (1, 2) else value
    return found


def load_item(f: Function, base: Value, index: Value, t: Type) -> Value:
    """The item of an array of a type at an address."""
    return f.load(base.at(index * t.size), t, t.size)
