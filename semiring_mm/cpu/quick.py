"""Small products in floating point with nothing looked up: one call of compiled code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..plan import Facts, Plan, needs_facts
from ..semirings import Semiring
from .compiler import compile_functions, host_target
from .facts import facts_of_kinds, guarded_function
from .product_code import SLAB, ProductCode

__all__ = ["Quick"]

Array = NDArray[Any]


class Quick:
    """The compiled call and its arguments for small products of one semiring and dtype.

    Its parameters fit any shape within the limits; pages of the workspace that a small product
    does not use are never touched.
    """

    def __init__(
        self, semiring: Semiring, dtype: np.dtype[Any], plan: Plan, code: ProductCode
    ) -> None:
        self.plan, self.code = plan, code
        self.n = code.n_slab // code.shape.nr * code.shape.nr
        self.params = code.params(code.shape.mc, SLAB, self.n)
        self.size = code.shape.workspace(code.size, code.shape.mc, SLAB, self.n, arg=False)
        self.product = ctypes.cast(code.call, ctypes.c_void_p)
        self.table = np.zeros(64, np.uint64)
        if needs_facts(semiring, dtype):
            function = guarded_function(plan, host_target())
            objects = [ctypes.py_object] * 4
            self.call = compile_functions([function], host_target()).function(
                "guarded", *objects, ctypes.c_char_p, ctypes.py_object, ctypes.c_void_p
            )
            self.tail: tuple[Any, ...] = (self.table, self.product)
        else:
            self.call, self.tail = code.call, (self.table, self.table)

    def learn(self, buffer: Array, plan_for: Callable[[Facts, Facts], Plan]) -> bool:
        """Whether the plan serves operands of the kinds that were refused; remember it."""
        kinds = [int(x) for x in buffer[8:24].view(np.int64)]
        buffer[:64] = 0
        fits = plan_for(*(facts_of_kinds(mask) for mask in kinds)) == self.plan
        if fits:
            self.table[kinds[0]] |= np.uint64(1 << kinds[1])
        return fits
