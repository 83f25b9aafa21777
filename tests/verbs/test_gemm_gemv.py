"""gemm and gemv: scalars, C, transposes, in place; and their names in BLAS."""

import numpy as np
import pytest
import reference
from numpy.testing import assert_array_equal

import semiring_mm as sm
from semiring_mm.cpu import product

inf, nan = np.inf, np.nan


@pytest.mark.parametrize(
    ("name", "dtype", "k", "beta"),
    [("plus_times", "i4", 7000, 2), ("plus_times", "f8", 7000, 2), ("min_plus", "f4", 7000, -2),
     ("max_plus", "i8", 7000, 2), ("lor_land", "?", 20_000, False)],
)  # fmt: skip
def test_scalars_count_once_over_a_k_of_several_slabs(name, dtype, k, beta, monkeypatch):
    monkeypatch.setattr(product, "blas_serves", lambda *_: False)  # whose k is its own
    rng, algebra = np.random.default_rng(3), reference.ALGEBRAS[name]
    a, b, c = (rng.integers(0, 2, s).astype(dtype) for s in ((5, k), (k, 6), (5, 6)))
    a[:, 100:] = 0  # so that C counts beside a long sum
    alpha = np.dtype(dtype).type(3)
    terms = algebra.mul(algebra.mul(alpha, a)[:, :, None], b)
    joined = algebra.add(algebra.add.reduce(terms, 1), algebra.mul(np.dtype(dtype).type(beta), c))
    assert_array_equal(sm.gemm(alpha, a, b, beta, c, semiring=name), joined)
    found = sm.gemv(alpha, a, b[:, 0], beta, c[:, 0], semiring=name)
    assert_array_equal(found, joined[:, 0])


def test_scalars_stand_on_the_left_of_a_multiplication_with_sides():
    s = sm.Semiring("sided", "min(a, b)", "a - 2*b", inf, 0)
    rng = np.random.default_rng(10)
    for m, n in ((20, 25), (1, 25), (20, 1), (1, 1)):
        a, b, c = (rng.integers(-9, 10, x) * 1.0 for x in ((m, 7), (7, n), (m, n)))
        product = (3 - 2 * a)[:, :, None] - 2 * b
        expected = np.minimum(product.min(1), 5 - 2 * c)
        assert_array_equal(sm.gemm(3, a, b, 5, c, semiring=s), expected)
        plain = np.minimum((a[:, :, None] - 2 * b).min(1), 5 - 2 * c)
        assert_array_equal(sm.gemm(None, a, b, 5, c, semiring=s), plain)


@pytest.mark.parametrize(("name", "alpha", "a", "b", "expected"), reference.SCALED_FIRST)
def test_alpha_scales_the_entries_of_a_in_every_verb(name, alpha, a, b, expected):
    """Where a product overflows or is rounded depends on the order."""
    scipy_sparse = pytest.importorskip("scipy.sparse")
    left, right = np.full((40, 30), a, "f4"), np.full((30, 50), b, "f4")
    for m, k, n in ((40, 30, 50), (40, 30, 1), (1, 30, 50), (1, 1, 1), (40, 1, 3)):
        x, y = left[:m, :k], right[:k, :n]
        for layout in (np.ascontiguousarray, np.asfortranarray):
            result = sm.gemm(alpha, layout(x), layout(y), semiring=name)
            assert_array_equal(result, np.full((m, n), expected, "f4"))
            result = sm.gemv(alpha, layout(x), y[:, 0].copy(), semiring=name)
            assert_array_equal(result, np.full(m, expected, "f4"))
        x = scipy_sparse.csr_array((x.ravel(), np.tile(np.arange(k), m), np.arange(m + 1) * k))
        result = sm.gemm(alpha, x, y, semiring=name)
        assert_array_equal(result, np.full((m, n), expected, "f4"))


def test_alpha_stands_left_of_a_that_is_multiplied_by_a_vector():
    """⊗ need not commute: (α ⊗ A) ⊗ x where ⊗ is a - 2 b."""
    s = sm.Semiring("sided", "min(a, b)", "a - 2 * b", inf, 0)
    a, x = np.arange(12.0).reshape(3, 4), np.arange(4.0)
    assert_array_equal(sm.gemv(5, a, x, semiring=s), ((5 - 2 * a) - 2 * x).min(1))
    whole = a.astype("i4")
    assert_array_equal(sm.gemv(5, whole, x.astype("i4"), semiring=s), ((5 - 2 * a) - 2 * x).min(1))


@pytest.mark.parametrize(
    ("mul", "zero", "one"),
    [("abs(a - b)", inf, 0), ("a + b + 1", inf, -1), ("a - b", inf, 0), ("a * b + 1", 5, 1)],
)
def test_the_product_over_an_empty_k_is_zero_whatever_its_square_is(mul, zero, one):
    s = sm.Semiring("odd", "min(a, b)", mul, zero, one)
    c = np.arange(6.0).reshape(3, 2)
    for batch in ((), (2,), (2, 3)):
        a, b, z = np.empty((3, 0)), np.empty((*batch, 0, 2)), np.broadcast_to(c, (*batch, 3, 2))
        assert_array_equal(sm.matmul(a, b, s), np.full(z.shape, zero))
        expected = np.minimum(zero, eval(mul, {"a": one, "b": z, "abs": abs}))
        assert_array_equal(sm.gemm(7, a, b, one, z, semiring=s), expected)
    assert_array_equal(sm.gemv(7, a, np.empty(0), one, c[:, 0], semiring=s), expected[0, 0, :, 0])


def test_scalars_of_truth_values_keep_to_the_table():
    x = np.array([[True, False], [True, True]])
    for name in ("lor_land", "max_times", "min_max"):
        for scale in (True, False):
            exact = reference.general(name, scale, x, x, scale, x)
            result = sm.gemm(scale, x, x, scale, x, semiring=name)
            assert_array_equal(result.view(np.uint8), exact.view(np.uint8))
    for alpha, beta in ((True, None), (None, True)):  # 1 + 1 is 2: this is refused as matmul is
        with pytest.raises(TypeError, match="min_plus is not closed on bool"):
            sm.gemm(alpha, x, x, beta, None if beta is None else x, semiring="min_plus")


def test_scalars_beyond_float32_are_infinite_there():
    x = np.ones((2, 2), "f4")
    for value in (1e300, -1e300):
        for result in (
            sm.gemm(value, x, x, semiring="min_plus"),
            sm.gemm(None, x, x, value, x, semiring="plus_times"),
            sm.gemv(value, x, x[0], semiring="min_plus"),
            sm.matmul(x, x, sm.Semiring("far", "min(a, b)", f"a + b + {value}", inf, 0)),
        ):
            assert_array_equal(result, np.full(result.shape, np.sign(value) * inf, "f4"))


def test_nan_in_c_is_kept():
    c = np.zeros((30, 40), "f4")
    c[3, 5] = c[29, 39] = nan
    a, b = np.ones((30, 8), "f4"), np.ones((8, 40), "f4")
    result = sm.gemm(None, a, b, 0, c, semiring="min_plus")
    assert_array_equal(result, np.where(np.isnan(c), c, 0))
    result = sm.gemm(None, a, b, inf, -inf * np.ones_like(c), semiring="min_plus")
    assert np.isnan(result).all()
    assert np.isnan(sm.gemm(nan, a, b, semiring="min_plus")).all()
    assert_array_equal(sm.gemv(None, a, b[:, 0], 0, c[:, 5], semiring="max_plus")[3], nan)


def test_infinite_scalars_of_integers():
    a = np.arange(12, dtype="i4").reshape(3, 4)
    far = np.iinfo("i4").max
    assert_array_equal(sm.gemm(inf, a, a.T, semiring="min_plus"), np.full((3, 3), far))
    assert_array_equal(sm.gemm(far, a, a.T, semiring="min_plus"), np.full((3, 3), far))
    plain = sm.matmul(a, a.T, "max_min")
    assert_array_equal(sm.gemm(inf, a, a.T, semiring="max_min"), plain)
    assert_array_equal(sm.gemm(None, a, a.T, -inf, a[:, :3], semiring="max_min"), plain)
    assert_array_equal(sm.gemm(inf, a, a.T, semiring="plus_min"), sm.matmul(a, a.T, "plus_min"))


def test_precision_is_the_least_that_will_do():
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 9, 9)).astype("f4")
    for precision in (None, "ieee", "tf32", "float32_emulated"):
        assert_array_equal(sm.gemm(2.0, a, b, precision=precision), sm.gemm(2.0, a, b))
        assert_array_equal(sm.sgemm(None, a, b, precision=precision), sm.gemm(None, a, b))
    shortest = sm.gemm(None, a, b, semiring="min_plus", precision="ieee")
    assert_array_equal(shortest, sm.matmul(a, b, "min_plus"))


def test_blas_names():
    rng = np.random.default_rng(11)
    for dtype, gemm, gemv in (("f4", sm.sgemm, sm.sgemv), ("f8", sm.dgemm, sm.dgemv)):
        a, b = (rng.integers(-9, 10, s).astype(dtype) for s in ((5, 6), (6, 7)))
        c, y = (rng.integers(-9, 10, s).astype(dtype) for s in ((5, 7), (5,)))
        assert_array_equal(gemm(2, a, b, 3, c), 2 * a @ b + 3 * c)
        assert_array_equal(gemv(2, a, b[:, 0], 3, y), 2 * a @ b[:, 0] + 3 * y)
        assert_array_equal(gemv(1, a, a[:, 0], trans=True), a.T @ a[:, 0])
        assert gemm(1, a.tolist(), b.tolist()).dtype == dtype
        with pytest.raises(TypeError, match=rf"{gemm.__name__} is plus-times; use gemm"):
            gemm(1, a, b, semiring="min_plus")
        for call, x in ((gemm, b), (gemv, b[:, 0])):
            words = rf"^{call.__name__}\(\) got an unexpected keyword argument 'trans_c'"
            with pytest.raises(TypeError, match=words):
                call(1, a, x, trans_c=True)
    assert sm.sgemm.__name__ == "sgemm"
    with pytest.raises(
        TypeError, match=r"dgemm works on float64, got b of dtype float32: use sgemm"
    ):
        sm.dgemm(1, np.ones((2, 2)), np.ones((2, 2), "f4"))
    with pytest.raises(TypeError, match=r"sgemv works on float32, got x of dtype int64: use dgemv"):
        sm.sgemv(1, np.ones((2, 2), "f4"), np.ones(2, "i8"))
    with pytest.raises(TypeError, match=r"sgemm works on float32, got c of dtype float64"):
        sm.sgemm(1, np.ones((2, 2), "f4"), np.ones((2, 2), "f4"), 1, np.ones((2, 2)))


TWO, VECTOR = np.ones((2, 2)), np.ones(2)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: sm.gemm(1, TWO, VECTOR), ValueError, r"gemm takes matrices, got shapes \(2, 2\)"),
        (lambda: sm.gemm(1, TWO, TWO, 1), ValueError, "gemm: beta and c go together"),
        (lambda: sm.gemm(1, TWO, TWO, None, TWO), ValueError, "gemm: beta and c go together"),
        (lambda: sm.gemm(1, TWO, np.ones((3, 2))), ValueError,
         r"op\(a\) of shape \(2, 2\) has k = 2, but op\(b\) of shape \(3, 2\) has k = 3"),
        (lambda: sm.gemm(1, np.ones((3, 2)), TWO, trans_a=True), ValueError,
         r"op\(a\) of shape \(2, 3\) has k = 3, but op\(b\) of shape \(2, 2\) has k = 2"),
        (lambda: sm.gemm(1, TWO, TWO, 1, np.ones((2, 3))), ValueError,
         r"gemm: c has shape \(2, 3\), the product \(2, 2\)"),
        (lambda: sm.gemm("1", TWO, TWO), TypeError, "alpha must be a real number or None, got '1'"),
        (lambda: sm.gemm(1j, TWO, TWO), TypeError, "alpha must be a real number or None, got 1j"),
        (lambda: sm.gemm(np.complex64(1), TWO, TWO), TypeError, "alpha must be a real number"),
        (lambda: sm.gemm(VECTOR, TWO, TWO), TypeError, "alpha must be a real number or None"),
        (lambda: sm.gemm(1, TWO, TWO, "x", TWO), TypeError, "beta must be a real number"),
        (lambda: sm.gemm(10**400, TWO, TWO), ValueError, "alpha is larger than float64 holds"),
        (lambda: sm.gemm(0.5, TWO.astype("i4"), TWO.astype("i4")), ValueError,
         "alpha = 0.5 is not a int32"),
        (lambda: sm.gemm(300, TWO.astype("u1"), TWO.astype("u1")), ValueError,
         "alpha = 300 is not a uint8"),
        (lambda: sm.gemm(nan, TWO.astype("i4"), TWO.astype("i4")), ValueError, "alpha = nan is"),
        (lambda: sm.gemm(2, TWO > 0, TWO > 0, semiring="lor_land"), ValueError,
         "alpha = 2 is not a bool"),
        (lambda: sm.gemm(1, TWO, TWO, out=TWO[:1]), ValueError, r"out has shape \(1, 2\)"),
        (lambda: sm.gemm(1, TWO, TWO * 1j), TypeError, "complex numbers have no order"),
        (lambda: sm.gemm(1, TWO, TWO, device="cuda"), ValueError, "device='cuda'"),
        (lambda: sm.gemm(1, TWO, TWO, precision="high"), ValueError,
         "precision='high'; \"ieee\", \"tf32\" and \"float32_emulated\" are accepted"),
        (lambda: sm.gemm(1, TWO, TWO, precision="tf32"), ValueError,
         "precision='tf32' is for plus_times in float32, not for plus_times in float64"),
        (lambda: sm.gemm(1, TWO.astype("f4"), TWO.astype("f4"), semiring="min_plus",
                         precision="float32_emulated"), ValueError,
         "is for plus_times in float32, not for min_plus in float32; leave it out"),
        (lambda: sm.gemv(1, VECTOR, VECTOR), ValueError, r"and a vector, got shapes \(2,\)"),
        (lambda: sm.gemv(1, TWO, TWO), ValueError, "gemv takes a matrix and a vector"),
        (lambda: sm.gemv(1, TWO, np.ones(3)), ValueError, r"k = 2, but x of shape \(3,\) has k"),
        (lambda: sm.gemv(1, TWO, VECTOR, 1), ValueError, "gemv: beta and y go together"),
        (lambda: sm.gemv(1, TWO, VECTOR, 1, np.ones(3)), ValueError,
         r"y has shape \(3,\), the product \(2,\)"),
        (lambda: sm.gemv(1, TWO, VECTOR, out=np.ones(3)), ValueError, r"out has shape \(3,\)"),
        (lambda: sm.gemv(1, TWO, VECTOR, semiring="x"), ValueError, "no built-in semiring 'x'"),
    ],
)  # fmt: skip
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call()
