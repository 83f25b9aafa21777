"""The CPU engine reads and writes nothing beside its operands, whatever their shapes and strides.

Each operand lies against a page that nobody may touch: behind its last entry, or before its first.
A touch ends the process, so the calls run in one of their own, which names them as it goes.
"""

import functools
import itertools
import os
import sys

import numpy as np
import pytest
import reference
from host_device import guarded
from numpy.testing import assert_allclose
from processes import script
from reference import BFLOAT16, FLOATS

import semiring_mm as sm
from semiring_mm.cpu import engine

SHAPES = [(1, 1, 1), (7, 13, 5), (33, 31, 65), (3, 100, 129), (50, 3, 1), (5, 3, 71), (2, 2, 37)]
#: What is packed, moved and converted in ways of its own.
PAIRS = [
    ("plus_times", "f4"), ("min_plus", "f8"), ("min_plus", "f2"), ("min_plus", "i1"),
    ("max_min", "i4"), ("lor_land", "?"), *(("max_plus", x) for x in FLOATS if x == BFLOAT16),
]  # fmt: skip


def fenced(x, how, *, first):
    """An array equal to `x` whose outermost entry lies against a page that nobody may touch."""
    match how:
        case "C":
            y = guarded(x.shape, x.dtype, 0, first=first)
        case "F":
            y = guarded(x.shape[::-1], x.dtype, 0, first=first).T
        case "strided":
            y = guarded(tuple(2 * n - 1 for n in x.shape), x.dtype, 0, first=first)
            y = y[(slice(None, None, 2),) * x.ndim]
        case "reversed":
            y = guarded(x.shape, x.dtype, 0, first=first)[(slice(None, None, -1),) * x.ndim]
    y[...] = x
    return y


def drawn(name, dtype, *shapes):
    rng = np.random.default_rng(1)
    return [reference.small(rng, name, shape, np.dtype(dtype)) for shape in shapes]


# Each call with the operands that it takes, which may be its results.


def products():
    for (name, dtype), (m, k, n) in itertools.product(PAIRS, SHAPES):
        operands = drawn(name, dtype, (m, k), (k, n), (m, n))
        yield functools.partial(sm.gemm, None, semiring=name), operands[:2]
        if dtype not in ("f2", "i1"):
            yield joined(sm.gemm, name, dtype), operands
        if dtype == "f8":
            yield lambda a, b: sm.matmul(a, b, "min_plus", return_arg=True)[1], operands[:2]


def joined(verb, name, dtype):
    """α, β and C, which is written to."""
    two = True if dtype == "?" else 2
    return lambda a, b, c: verb(two, a, b, two, c, semiring=name, out=c)


def vectors():
    for (name, dtype), (m, k, _) in itertools.product([*PAIRS, ("log_plus", "f4")], SHAPES):
        yield joined(sm.gemv, name, dtype), drawn(name, dtype, (m, k), (k,), (m,))


def exponentials():
    yield functools.partial(sm.matmul, semiring="log_plus"), drawn(
        "log_plus", "f4", (163, 161), (161, 167)
    )  # fmt: skip


def closures():
    for name, dtype, n in [("min_plus", "f4", 9), ("min_plus", "i2", 67), ("lor_land", "?", 67)]:
        (w,) = drawn(name, dtype, (n, n))
        yield lambda w, s=name: sm.closure(w, s, overwrite=True), [abs(w)]
        if name == "min_plus":
            yield lambda w: sm.apsp(w, return_predecessors=True)[1], [abs(w)]


def sparse():
    for (name, dtype), n in itertools.product(
        [("min_plus", "f4"), ("plus_times", "i2")], (1, 3, 32)
    ):
        semiring = sm.semirings[name]
        a, b, c = drawn(name, dtype, (33, 37), (37, n), (33, n))
        stored = a != semiring.identities(a.dtype)[0]
        parts = [a[stored], np.nonzero(stored)[1], np.r_[0, np.cumsum(stored.sum(1))]]

        def csr(*arrays, s=semiring):
            engine.csr_product(s, *arrays)
            return arrays[-1]

        def dia(*arrays, s=semiring):
            engine.dia_product(s, *arrays)
            return arrays[-1]

        yield csr, [*parts, b, c]
        (data,) = drawn(name, dtype, (3, 7))
        yield dia, [data, np.array([-1, 0, 30]), b, c]


CALLS = {x.__name__: x for x in (products, vectors, exponentials, closures, sparse)}


def run(calls):
    for number, (call, operands) in enumerate(CALLS[calls]()):
        expected = call(*(x.copy() for x in operands))
        for how, first in itertools.product(("C", "F", "strided", "reversed"), (False, True)):
            about = [(x.dtype.name, x.shape) for x in operands]
            print(number, how, first, about, file=sys.stderr, flush=True)
            found = call(*(fenced(x, how, first=first) for x in operands))
            assert_allclose(
                *map(reference.comparable, (found, expected)), rtol=1e-6
            )  # log_plus rounds


@pytest.mark.skipif(not hasattr(os, "fork"), reason="pages are guarded by mprotect")
@pytest.mark.parametrize("calls", CALLS)
def test_operands_at_the_edge_of_memory(calls):
    script(f"from tests.cpu import test_guard_pages as t; t.run({calls!r})")
