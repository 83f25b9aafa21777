"""matmul: every semiring, dtype, shape and layout against the plain reference."""

import numpy as np
import pytest
import reference
from numpy.testing import assert_array_equal
from reference import ALGEBRAS, BFLOAT16, BOOL, EVERY, FLOATS, check

import semiring_mm as sm
from semiring_mm.expressions import evaluate

inf, nan = np.inf, np.nan
#: One below, at and above the blocks that the caches hold.
BLOCKS = [
    (11, 255, 31), (12, 256, 32), (13, 257, 33), (14, 64, 16), (15, 65, 17), (28, 63, 15),
    (287, 9, 255), (288, 9, 256), (289, 9, 257), (48, 5, 1030), (600, 3, 40),
]  # fmt: skip


@pytest.mark.parametrize("shape", BLOCKS, ids=str)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("plus_times", "f4"), ("min_plus", "f4"), ("max_min", "f8"), ("min_plus", "i2"),
     ("max_times", "i4"), ("lor_land", "?"), ("xor_land", "?"), ("plus_times", "f2")],
)  # fmt: skip
def test_sizes_around_the_blocks(name, dtype, shape):
    m, k, n = shape
    rng = np.random.default_rng(2)
    a = reference.small(rng, name, (m, k), np.dtype(dtype))
    b = reference.small(rng, name, (k, n), np.dtype(dtype))
    check(name, sm.matmul(a, b, name), reference.product(name, a, b))


# --- special values -----------------------------------------------------------------------------

TINY = 2.0**-149  # the smallest float32; small integer multiples are exact


def test_denormals_are_not_flushed():
    rng = np.random.default_rng(7)
    a, b = (rng.integers(1, 50, s).astype("f4") for s in ((30, 9), (9, 34)))
    tiny_a, tiny_b = a * np.float32(TINY), b * np.float32(TINY)
    for name in ("min_plus", "max_plus", "max_min", "plus_min"):
        expected = reference.product(name, a, b) * np.float32(TINY)
        assert (expected != 0).all()
        assert_array_equal(sm.matmul(tiny_a, tiny_b, name), expected)
    assert_array_equal(sm.matmul(tiny_a, b), (a @ b) * np.float32(TINY))


def test_rounding_is_that_of_one_addition():
    """Whatever instruction adds, a sum of two is rounded as NumPy rounds it."""
    rng = np.random.default_rng(8)
    for dtype in ("f4", "f8"):
        a, b = (
            rng.standard_normal((35, 60)).astype(dtype),
            rng.standard_normal((60, 50)).astype(dtype),
        )
        assert_array_equal(sm.matmul(a, b, "min_plus"), (a[:, :, None] + b).min(1))
        assert_array_equal(sm.matmul(a, b, "max_times"), (a[:, :, None] * b).max(1))


@pytest.mark.parametrize("dtype", ["f2", BFLOAT16], ids=str)
@pytest.mark.parametrize("k", [300, 5000], ids=["one slab", "three slabs"])
def test_sixteen_bit_floats_are_rounded_once(dtype, k):
    """Products of small fractions, whose float32 sums are exact in any order."""
    rng = np.random.default_rng(9)
    a, b = ((rng.integers(-32, 33, s) / 32).astype(dtype) for s in ((9, k), (k, 10)))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    expected = exact.astype(np.float32).astype(dtype)
    assert (expected.astype(np.float64) != exact).any()
    assert_array_equal(sm.matmul(a, b), expected)
    least = (a.astype("f4")[:, :, None] + b.astype("f4")).min(1).astype(dtype)
    assert_array_equal(sm.matmul(a, b, "min_plus"), least)


def test_sixteen_bit_floats_overflow_to_infinity_and_round_to_even():
    a = np.array([[60000.0, 1.0], [-60000.0, -1.0]], "f2")
    result = sm.matmul(a, np.array([[1.0, 2.0], [2.0**-11, 3 * 2.0**-11]], "f2"), "max_plus")
    assert_array_equal(result[0], a[0, 0] + np.array([1.0, 2.0], "f2"))
    one = np.ones((2, 2), "f2")
    steps = np.array([[2.0**-11, 3 * 2.0**-11], [-1.0, -1.0]], "f2")
    assert_array_equal(sm.matmul(one, steps, "max_plus")[0], np.array([1, 1 + 2.0**-9], "f2"))
    assert sm.matmul(a, a)[0, 0] == inf
    bf = np.array([[3e38, 1.0], [1.0, 1.0]], BFLOAT16)
    assert sm.matmul(bf, bf, "max_plus")[0, 0] == inf
    assert np.isnan(sm.matmul(bf * BFLOAT16.type(nan), bf, "min_plus").astype("f4")).all()


# --- shapes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((1,), (1,)), ((4,), (2, 4, 5)),
        ((2, 3, 4), (4,)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 3, 4), (2, 4, 5)),
        ((2, 3, 4), (1, 4, 5)), ((2, 1, 3, 4), (6, 4, 5)), ((5, 1, 3, 4), (1, 6, 4, 5)),
        ((2, 6, 3, 4), (1, 6, 4, 5)), ((0, 3, 4), (4, 5)), ((2, 0, 4), (4, 5)),
        ((2, 1, 3, 3, 4), (3, 4, 5)), ((2, 3, 0), (0, 5)), ((0,), (0,)), ((0,), (0, 3)),
        ((3, 1, 4), (3, 4, 1)), ((30, 2, 3), (30, 3, 2)), ((3000, 4, 4),) * 2,
    ],
    ids=str,
)  # fmt: skip
def test_shapes_are_those_of_numpy(left, right):
    rng = np.random.default_rng(10)
    a, b = (rng.integers(-9, 10, s).astype("f8") for s in (left, right))
    expected = np.matmul(a, b)
    result = sm.matmul(a, b)
    assert np.shape(result) == expected.shape
    assert type(result) is type(expected)
    assert_array_equal(result, expected)
    assert_array_equal(sm.matmul(a, b, "min_plus"), reference.matmul("min_plus", a, b))


def test_a_batch_axis_of_length_one_between_others():
    """Its stride means nothing, whatever it is."""
    rng = np.random.default_rng(12)
    a = rng.integers(-9, 10, (3, 4, 5)).astype("f4")
    whole = rng.integers(-9, 10, (3, 5, 6)).astype("f4")
    b = np.broadcast_to(whole, (2, 1, 3, 5, 6))
    expected = np.matmul(a, b)
    assert_array_equal(sm.matmul(a, b), expected)
    parent = np.full((2, 1, 4, 4, 6), 77, "f4")
    sm.matmul(a, b, out=parent[:, :, :3])
    assert_array_equal(parent[:, :, :3], expected)
    assert (parent[:, :, 3] == 77).all()


# --- out ----------------------------------------------------------------------------------------


def test_out_of_a_vector_and_of_a_scalar():
    a, x = np.arange(12.0).reshape(3, 4), np.arange(4.0)
    vector = np.empty(6)[::2]
    assert sm.matmul(a, x, out=vector) is vector
    assert_array_equal(vector, a @ x)
    row = np.empty(3)
    sm.matmul(x, a.T, "min_plus", out=row)
    assert_array_equal(row, (a + x).min(1))
    scalar = np.empty(())
    assert sm.matmul(x, x, out=scalar) is scalar
    assert scalar == 14


def test_sizes_that_differ_are_refused_whenever_they_come():
    wide, square = np.ones((5, 4)), np.ones((4, 4))
    for _ in range(3):
        assert_array_equal(sm.matmul(wide, square), 4 * wide)
    for x in (wide[:3], wide.T):
        with pytest.raises(ValueError, match=r"\(\d, \d\) .*\(5, 3\)"):
            sm.matmul(x[:, :4], wide[:, :3])


# --- return_arg ---------------------------------------------------------------------------------

ARG_CASES = [
    ("min_plus", "f4"), ("min_plus", "f8"), ("min_plus", "f2"), ("min_plus", BFLOAT16),
    ("max_plus", "f4"), ("min_plus", "i4"), ("max_plus", "i1"), ("min_times", "u2"),
    ("max_times", "i8"), ("max_min", "f4"), ("min_max", "i2"), ("any_pair", "f8"),
    ("max_min", "?"), ("min_max", "?"), ("min_times", "?"),
]  # fmt: skip


def check_arg(name, a, b):
    all_terms = reference.terms(name, a, b)
    best = np.argmin if ALGEBRAS[name].add is np.minimum else np.argmax
    result, arg = sm.matmul(a, b, name, return_arg=True)
    assert arg.dtype == np.int32
    assert_array_equal(result, reference.product(name, a, b))
    assert_array_equal(arg, best(all_terms, axis=0))  # the first of equals; NaN before all


@pytest.mark.parametrize(("name", "dtype"), ARG_CASES[:7], ids=str)
def test_return_arg_across_slabs_of_k(name, dtype):
    """Equal terms far apart, and the best at any place."""
    rng = np.random.default_rng(17)
    k = 4500
    a = np.full((30, k), 5).astype(dtype)
    b = np.zeros((k, 20), dtype)
    better = -1 if name == "min_plus" else 1
    for i in range(1, 30):
        a[i, rng.integers(0, k, 1 + i % 3)] = 5 + better
    check_arg(name, a, b)


def test_return_arg_of_integers_that_reach_nothing():
    for name, zero in (("min_plus", 2**31 - 1), ("max_plus", -(2**31))):
        a = np.full((3, 70), zero, "i4")
        a[1, 69] = -5
        result, arg = sm.matmul(a, np.zeros((70, 2), "i4"), name, return_arg=True)
        assert_array_equal(result, [[zero] * 2, [-5] * 2, [zero] * 2])
        assert_array_equal(arg, [[0, 0], [69, 69], [0, 0]])


def test_return_arg_with_vectors_out_and_batches():
    rng = np.random.default_rng(18)
    a = rng.integers(0, 5, (2, 3, 6, 40)).astype("f4")
    x = rng.integers(0, 5, 40).astype("f4")
    result, arg = sm.matmul(a, x, "min_plus", return_arg=True)
    assert_array_equal(result, (a + x).min(-1))
    assert_array_equal(arg, (a + x).argmin(-1))
    out = np.empty((3, 6), "f4")
    result, arg = sm.matmul(a[1], x, "min_plus", return_arg=True, out=out)
    assert result is out
    assert_array_equal(arg, (a[1] + x).argmin(-1))
    value, k = sm.matmul(x, x, "max_plus", return_arg=True)
    assert (value, k) == (2 * x.max(), x.argmax())


def test_return_arg_is_refused_where_no_k_attains():
    a = np.ones((2, 2))
    with pytest.raises(
        ValueError, match=r"return_arg needs a semiring .*plus_times has ⊕ = a \+ b"
    ):
        sm.matmul(a, a, return_arg=True)
    with pytest.raises(ValueError, match=r"over an empty k no index"):
        sm.matmul(np.ones((2, 0)), np.ones((0, 2)), "min_plus", return_arg=True)


# --- dtypes and operands ------------------------------------------------------------------------


def test_lists_and_subclasses_are_taken():
    assert_array_equal(sm.matmul([[1, 2], [3, 4]], [[0], [1]], "min_plus"), [[1], [3]])
    record = np.rec.array(np.ones((2, 2)))
    assert type(sm.matmul(record, record)) is np.ndarray


def test_noncommutative_multiplication_keeps_its_sides():
    """A vector on either side, whichever way the engine reads the matrix."""
    for mul, function in (
        ("a - 2*b", lambda a, b: a - 2 * b),
        (" a - 2*b ", lambda a, b: a - 2 * b),
        ("a if a > 1 else b", lambda a, b: np.where(a > 1, a, b)),
    ):
        s = sm.Semiring("sided", "min(a, b)", mul, inf, 0)
        rng = np.random.default_rng(19)
        a, b = (rng.integers(-9, 10, x).astype("f4") for x in ((30, 20), (20, 26)))
        expected = function(a[:, :, None], b).min(1)
        assert_array_equal(sm.matmul(a, b, s), expected)
        assert_array_equal(sm.matmul(a[4], b, s), expected[4])
        assert_array_equal(sm.matmul(a[4], np.asfortranarray(b), s), expected[4])
        assert_array_equal(sm.matmul(a, b[:, 3], s), expected[:, 3])
        assert_array_equal(sm.matmul(a[4], b[:, 3], s), expected[4, 3])


@pytest.mark.parametrize("mul", ["(a + 1) * b", "a * a", "abs(a) + b", "a + b", "b * a"])
@pytest.mark.parametrize("add", ["a + b", "min(a, b)"])
def test_operations_that_look_like_an_instruction(add, mul):
    """Only a + (b * c) of the operands themselves is a multiply-add."""
    s = sm.Semiring("mine", add, mul, 0, 0)
    rng = np.random.default_rng(29)
    a, b = (rng.integers(-4, 5, x).astype("f4") for x in ((30, 7), (7, 40)))
    terms = np.broadcast_to(evaluate(s.mul_expr, a[:, :, None], b), (30, 7, 40))
    assert_array_equal(sm.matmul(a, b, s), terms.sum(1) if add == "a + b" else terms.min(1))


# --- bad input ----------------------------------------------------------------------------------

SPARSE = pytest.importorskip("scipy.sparse").csr_array(np.eye(2))
TWO = np.ones((2, 2))


@pytest.mark.parametrize(
    ("a", "error", "words"),
    [
        (TWO * 1j, TypeError, "complex128.*complex numbers have no order"),
        (TWO.astype(object), TypeError, r"dtype object.*A.astype\(float\)"),
        ([[object()] * 2] * 2, TypeError, "a has dtype object; numbers are accepted"),
        (np.array([["x", "y"]] * 2), TypeError, "float16, bfloat16, float32"),
        ([["x", "y"]] * 2, TypeError, "a has dtype <U1; numbers are accepted"),
        (TWO.astype("M8[s]"), TypeError, r"datetime64\[s\]"),
        (TWO.astype(np.longdouble), TypeError, "use float64"),
        (TWO.astype("f8,f8"), TypeError, "no common dtype|float16, bfloat16"),
        (SPARSE.tocoo(), TypeError, r"a is a coo_array; CSR and DIA .* use a.tocsr\(\)"),
        (np.ma.masked_array(TWO), TypeError, r"a is a masked array.*a.filled"),
        (np.float64(3), ValueError, r"matrices and vectors, got shapes \(\) and \(2, 2\)"),
        (3, ValueError, "use gemm"),
        (np.ones((2, 3)), ValueError, r"a of shape \(2, 3\) has k = 3, but b of shape \(2, 2\) has "
                                      r"k = 2: the last axis of a must match the second last"),
    ],
)  # fmt: skip
def test_refused_operands(a, error, words):
    with pytest.raises(error, match=words):
        sm.matmul(a, TWO)


def test_other_refusals():
    with pytest.raises(ValueError, match=r"b of shape .* the only axis of b|only axis of b"):
        sm.matmul(TWO, np.ones(3))
    with pytest.raises(ValueError, match=r"leading dimensions \(2,\), \(3,\) do not broadcast"):
        sm.matmul(np.ones((2, 2, 2)), np.ones((3, 2, 2)))
    with pytest.raises(
        ValueError, match=r"no built-in semiring 'of my own': choose one of plus_times"
    ):
        sm.matmul(TWO, TWO, "of my own")
    with pytest.raises(TypeError, match=r"semiring must be a name .* got int"):
        sm.matmul(TWO, TWO, 3)
    with pytest.raises(ValueError, match=r"None, 'cpu', 'cuda' or 'cuda:N', got 'tpu'"):
        sm.matmul(TWO, TWO, device="tpu")
    with pytest.raises(TypeError, match=r"bfloat16 and float16 have no common dtype"):
        sm.matmul(TWO.astype(BFLOAT16), TWO.astype("f2"))
    eighth = TWO.astype(pytest.importorskip("ml_dtypes").float8_e4m3fn)
    with pytest.raises(TypeError, match=r"float8_e4m3fn: float16, bfloat16"):
        sm.matmul(eighth, eighth)
    with pytest.raises(TypeError, match=r"b is a masked array"):
        sm.matmul(TWO, np.ma.masked_array(TWO))
    with pytest.raises(
        TypeError, match=r"min_plus is not closed on bool: with a = 1, b = 1 .*gives 2"
    ):
        sm.matmul(TWO > 0, TWO > 0, "min_plus")
    with pytest.raises(TypeError, match=r"max_plus needs -inf .* uint8"):
        sm.matmul(TWO.astype("u1"), TWO.astype("u1"), "max_plus")


@pytest.mark.parametrize(
    ("a", "k", "error", "words"),
    [
        (np.ones((2, 3)), 2, ValueError, r"square matrices, got shape \(2, 3\)"),
        (np.ones(3), 2, ValueError, r"square matrices, got shape \(3,\)"),
        (TWO, -1, ValueError, "at least 0, got -1"),
        (TWO, 2.5, TypeError, "k must be an integer, got 2.5"),
    ],
)
def test_refused_powers(a, k, error, words):
    with pytest.raises(error, match=words):
        sm.matrix_power(a, k)


def test_every_pair_is_covered_or_refused():
    """What the table leaves out is refused with a reason, not computed."""
    every = [*FLOATS, *map(np.dtype, ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")), BOOL]
    for name in sm.semirings:
        for dtype in every:
            if (name, dtype) in EVERY:
                continue
            one = np.ones((2, 2), dtype)
            with pytest.raises(TypeError, match=r"use|cannot"):
                sm.matmul(one, one, name)
