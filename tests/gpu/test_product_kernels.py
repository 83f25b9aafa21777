"""Kernels of products but the dense one, compiled, against the same text in Python."""

import math
import operator
from itertools import pairwise

import numpy as np
import pytest
from plain_kernels import MIN_PLUS, both

from semiring_mm.cpu.compiler import host_target
from semiring_mm.cpu.kernels import gemv, logsum, sparse
from semiring_mm.kernel import Operations
from semiring_mm.plan import Facts, make_plan
from semiring_mm.semirings import Semiring, semirings

KNOWN = Facts(-1e3, 1e3, False)
LOG_PLUS = Operations(np.logaddexp, operator.add, operator.gt, -math.inf, 0.0)
SUM = Operations(operator.add, lambda a, _: a, operator.gt, 0.0, 1.0)
LANES = host_target().vector_bytes // 4


def plan_of(semiring):
    return make_plan(semiring, np.dtype("f4"), KNOWN, KNOWN, 1)


@pytest.fixture
def numbers():
    rng = np.random.default_rng(5)
    return lambda *shape: rng.integers(0, 9, shape).astype("f4")


@pytest.mark.parametrize("lies", ["a", "turned", "apart"])
@pytest.mark.parametrize("kind", ["min_plus", "scaled", "log_plus", "sum"])
def test_gemv(lies, kind, numbers):
    depth = 5 * LANES + 3
    a = numbers(2, 6, depth)
    given = {"a": a, "turned": a.transpose(0, 2, 1).copy(), "apart": a[..., np.newaxis]}
    total = Semiring("total", "a + b", "a", 0, 1)
    semiring, operations = {
        "log_plus": (semirings["log_plus"], LOG_PLUS), "sum": (total, SUM),
    }.get(kind, (semirings["min_plus"], MIN_PLUS))  # fmt: skip
    scalars = {"alpha": 2.0, "factor": 3.0, "beta": 1.0} if kind == "scaled" else {}
    fields = dict.fromkeys(["a", "turned", "apart", "alpha", "factor", "beta"]) | scalars
    fields[lies] = given[lies]
    both(
        gemv.gemv, operations, plan_of(semiring), ("room",), 1e-5 * (kind == "log_plus"),
        b0=0, b1=2, i0=1, i1=6, depth=depth, x=numbers(depth, 1), y=numbers(2, 6, 1),
        room=np.zeros(2 * gemv.CHUNK + depth, "f4"), wrong=np.zeros(64, "u1"), width=LANES,
        more=kind == "scaled", logarithms=kind == "log_plus", exactly=kind == "sum",
        together=gemv.BLOCK if kind == "sum" else 4, **fields,
    )  # fmt: skip


def of_product(numbers, columns):
    """Parameters of products with 9 rows and 30 columns of A."""
    fields = {"b": numbers(30) if columns == 1 else numbers(30, columns)}
    if columns > 1:
        left = columns % (sparse.VECTORS * LANES)
        fields |= {"n": columns, "width": LANES, "rest": -(-left // LANES)}
    return fields | {
        "i0": 1, "i1": 9, "k": 30, "c": numbers(9, columns), "alpha": 2.0, "beta": 1.0,
        "absent": 5.0, "more": True, "wrong": np.zeros(64, "u1"),
    }  # fmt: skip


@pytest.mark.parametrize("columns", [1, 3, 2 * LANES + 1, 6 * LANES])
@pytest.mark.parametrize("index", ["i4", "i8"])
def test_compressed_rows(columns, index, numbers):
    ends = np.array([0, 3, 3, 33, 36, 44, 45, 50, 59, 60], index)
    indices = np.concatenate([np.arange(j - i) * 3 % 30 for i, j in pairwise(ends)]).astype(index)
    both(
        sparse.csr_vector if columns == 1 else sparse.csr_matrix, MIN_PLUS,
        plan_of(semirings["min_plus"]), entries=60, data=numbers(60), indices=indices, ends=ends,
        **of_product(numbers, columns),
    )  # fmt: skip


@pytest.mark.parametrize("columns", [1, 3, 5 * LANES])
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("slots", [30, 7])
def test_diagonals(columns, trans, slots, numbers):
    offsets = np.array([0, -3, 5, 29, -40, 2])
    shape = (1, sparse.CHUNK) if columns == 1 else (sparse.ROWS, 6)
    both(
        sparse.dia_vector if columns == 1 else sparse.dia_matrix, MIN_PLUS,
        plan_of(semirings["min_plus"]), ("room",), count=6, slots=slots, data=numbers(6, slots),
        offsets=offsets, trans=trans, room=np.zeros(shape, "f4"), **of_product(numbers, columns),
    )  # fmt: skip


@pytest.mark.parametrize("spoil", [None, "column", "pointer"])
def test_transposing(spoil, numbers):
    ends, indices = np.array([0, 2, 2, 5], "i4"), np.array([3, 0, 3, 1, 3], "i4")
    if spoil == "column":
        indices[2] = 4
    elif spoil == "pointer":
        ends[1] = 3
    got = both(
        sparse.transpose, None, "u4", m=3, k=4, entries=5, data=numbers(5).view("u4"),
        indices=indices, ends=ends, new_data=np.zeros(5, "u4"), new_indices=np.zeros(5, "i4"),
        new_ends=np.zeros(6, "i4"), wrong=np.zeros(2, "u1"),
    )  # fmt: skip
    if spoil is None:
        assert got["new_ends"][:-1].tolist() == [0, 1, 2, 2, 5]
        assert got["new_indices"].tolist() == [0, 2, 0, 2, 2]
    assert got["wrong"][1] == (spoil is not None)


@pytest.mark.parametrize("n", [3, 2 * LANES, 2 * LANES + 5])
@pytest.mark.parametrize("by", ["down", "along"])
def test_shifted_exponentials(n, by, numbers):
    x = numbers(4, n) - 9
    x[1, 2] = -200
    r = {"down": None, "along": None, by: x.max(axis=1 if by == "down" else 0)}
    both(
        logsum.shift, None, "f4", (), 1e-6, rows=4, n=n, x=x, lift=52, least=-63,
        to=np.zeros((4, n), "f4"), **r,
    )  # fmt: skip


@pytest.mark.parametrize("scalars", [{}, {"alpha": 0.5, "beta": -1.0}])
def test_logarithms_of_sums(scalars, numbers):
    n = LANES + 3
    sums = numbers(6, n) * 2.0**104
    got = both(
        logsum.finish, LOG_PLUS, plan_of(semirings["log_plus"]), (), 1e-5, i0=1, i1=6, n=n,
        sums=sums, factor=2.0**-104, rows=numbers(6), columns=numbers(n), c=numbers(6, n),
        more=bool(scalars), least=1.0, left=np.zeros(6, "u1"),
        **{"alpha": None, "beta": None} | scalars,
    )  # fmt: skip
    assert got["left"][1:].tolist() == (sums[1:] == 0).any(axis=1).tolist()


def test_single_logarithms_of_sums(numbers):
    """In Python lanes go one after the other: one has all of a row."""
    places = np.random.default_rng(0).integers(0, 4, (2, 9))
    both(
        logsum.entries, None, "f4", (), 1e-6, first=2, last=9, n=64, a=numbers(4, 64),
        b=numbers(4, 64), places=places, to=np.zeros(9, "f4"), width=1,
    )  # fmt: skip
