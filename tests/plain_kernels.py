"""Compiled kernels against the same text in Python."""

import operator

import numpy as np

from semiring_mm.cpu.codegen import compiled
from semiring_mm.kernel import Operations

MIN_PLUS = Operations(min, operator.add, operator.lt, np.inf, 0.0)


def both(kernel, operations=None, plan=None, scratch=(), rtol=0, /, **fields):
    """The fields after the compiled kernel; those after the same in Python are equal, or near.

    Those of the names in `scratch` may differ.
    """
    copies = [
        {n: x.copy() if isinstance(x, np.ndarray) else x for n, x in fields.items()}
        for _ in range(2)
    ]
    given = (plan,) if operations is None else (plan, operations.zero, operations.one)
    compiled(kernel, *given)(**copies[0])
    kernel.plain(operations, **copies[1])
    for name, x in copies[0].items():
        if name not in scratch:
            if rtol and x is not None:
                # of sums that cancel the last digits of the terms are left
                last = np.finfo(np.float64).eps * np.abs(
                    x, where=np.isfinite(x), out=np.zeros(np.shape(x))
                ).max(initial=0)
                np.testing.assert_allclose(x, copies[1][name], rtol, last, err_msg=name)
            else:
                np.testing.assert_array_equal(x, copies[1][name], err_msg=name)
    return copies[0]
