"""Strassen's products: values, workspace, multiplications, errors; and sums of matrices."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import semiring_mm as sm
from semiring_mm.cpu import engine

inf, nan = np.inf, np.nan
SHAPES = [
    (1, 1, 1), (2, 2, 2), (3, 5, 1), (1, 8, 8), (8, 8, 8), (5, 7, 9), (16, 6, 10), (33, 65, 17),
    (64, 32, 128), (0, 3, 2), (3, 0, 2), (3, 2, 0),
]  # fmt: skip


def whole(shape, dtype="f8", seed=0):
    """Small whole numbers, of which every sum is exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def normal(shape, dtype="f4", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("levels", range(4))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(shape, levels):
    m, k, n = shape
    for dtype in ("f4", "f8"):
        a, b = whole((m, k), dtype), whole((k, n), dtype, 1)
        before = a.copy(), b.copy()
        wide_a, wide_b = np.zeros((2 * m, 3 * k), dtype), np.zeros((2 * k, 3 * n), dtype)
        wide_a[::2, ::3], wide_b[::2, ::3] = a, b
        for x, y in [
            (a, b), (np.asfortranarray(a), np.asfortranarray(b)), (a, np.asfortranarray(b)),
            (wide_a[::2, ::3], wide_b[::2, ::3]), (a[:, ::-1].copy()[:, ::-1], b),
        ]:  # fmt: skip
            c = sm.strassen(x, y, levels=levels)
            assert c.dtype == dtype
            assert_array_equal(c, a @ b)
        assert_array_equal(a, before[0])
        assert_array_equal(b, before[1])


def test_batches_broadcast():
    a, b = whole((2, 1, 6, 5)), whole((3, 5, 8), seed=1)
    assert_array_equal(sm.strassen(a, b), a @ b)
    assert sm.strassen(a[:0], b).shape == (0, 3, 6, 8)
    mixed = sm.strassen(a.astype("f4"), b)
    assert mixed.dtype == np.float64


def test_out():
    a, b = whole((6, 6)), whole((6, 6), seed=1)
    expected = a @ b
    for out in (np.empty((6, 6)), np.empty((6, 6)).T, np.empty((12, 12))[::2, ::-2]):
        assert sm.strassen(a, b, out=out) is out
        assert_array_equal(out, expected)
    assert sm.strassen(a, b, out=b) is b  # computed aside
    assert_array_equal(b, expected)
    with pytest.raises(ValueError, match=r"out has shape \(5, 6\)"):
        sm.strassen(a, b, out=np.empty((5, 6)))


@pytest.mark.parametrize(
    ("shape", "levels", "pairs"),
    [
        ((64, 64, 64), 1, 7 * 32**3),
        ((64, 64, 64), 2, 49 * 16**3),
        ((64, 32, 96), 2, 49 * 16 * 8 * 24),
        (
            (65, 67, 66),
            1,
            7 * 32 * 33 * 33 + 64 * 66 * 1 + 1 * 66 * 67,
        ),  # m, n, k with 1, 1, 0 over
        ((64, 64, 67), 2, 49 * 16**3 + 64 * 64 * 3),
    ],
)
def test_the_number_of_multiplications(shape, levels, pairs, monkeypatch):
    done = []
    product, gemv = engine.product, engine.gemv

    def counted(call):
        def run(semiring, a, b, c, *scaling, **options):
            done.append(c.size * a.shape[-1])
            call(semiring, a, b, c, *scaling, **options)

        return run

    monkeypatch.setattr(engine, "product", counted(product))
    monkeypatch.setattr(engine, "gemv", counted(gemv))
    m, n, k = shape
    a, b = whole((m, k)), whole((k, n), seed=1)
    assert_array_equal(sm.strassen(a, b, levels=levels), a @ b)
    assert sum(done) == pairs


@pytest.mark.parametrize("order", "CF")
def test_temporary_matrices_lie_as_the_operands(order, monkeypatch):
    """So that a pass reads and writes everything along memory."""
    seen, product = [], engine.product

    def look(semiring, a, b, c, *scaling, **options):
        seen.extend(x.strides[0] < x.strides[1] for x in (a, b, c))
        product(semiring, a, b, c, *scaling, **options)

    monkeypatch.setattr(engine, "product", look)
    a, b, c = (np.ones((8, 8), order=order) for _ in range(3))
    sm.strassen(a, b, levels=2, out=c)
    assert seen == [order == "F"] * 3 * 49


@pytest.mark.parametrize("shape", [(512, 512, 512), (401, 600, 1030)], ids=str)
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_workspace(shape, levels):
    """What the docstring says, but for what each thread keeps in its caches."""
    m, k, n = shape
    a, b, c = whole((m, k)), whole((k, n), seed=1), np.empty((m, n))
    sm.strassen(a, b, levels=levels, out=c)  # compiles, and makes the engine's buffers
    m, k, n = (x >> levels << levels for x in (m, k, n))
    expected = 8 * sum((m * max(k, n) + k * n) // 4**i for i in range(1, levels + 1))
    tracemalloc.start()
    sm.strassen(a, b, levels=levels, out=c)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert expected <= peak < expected + (512 + 100 * sm.get_num_threads() << 10)
    assert expected < 8 * (m * max(k, n) + k * n) / 3


# --- accuracy -----------------------------------------------------------------------------------


def spread(shape, dtype="f4", seed=0):
    """Entries of 16 orders of magnitude."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 10 ** rng.uniform(-8, 8, shape)).astype(dtype)


def exact(a, b):
    wide = np.float64 if a.dtype == np.float32 else np.longdouble
    return a.astype(wide) @ b.astype(wide)


@pytest.mark.parametrize("make", [normal, lambda *x: np.abs(normal(*x)), spread],
                         ids=["normal", "positive", "spread"])  # fmt: skip
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_bound_of_the_error(make, dtype):
    n = 96
    a, b = make((n, n), dtype), make((n, n), dtype, 9)
    unit = np.finfo(dtype).eps / 2 * np.abs(a).max() * np.abs(b).max()
    errors = []
    for levels in range(4):
        found = sm.strassen(a, b, levels=levels)
        errors.append(float(np.abs(found - exact(a, b)).max() / unit))
        k = n / 2**levels
        assert errors[-1] <= 18**levels * (k**2 + 6 * k) - 6 * n
    assert errors[3] < 1000  # the bound is far above what one meets


def test_small_entries_beside_large_ones():
    """The error is that of the norm: the plain product keeps digits that this one loses."""
    a = normal((64, 64))
    a[32:] *= 1e-8
    b, right = normal((64, 64), seed=1), exact(a, normal((64, 64), seed=1))
    plain = np.abs(sm.matmul(a, b) - right)[32:] / np.abs(a[32:] @ b).mean()
    ours = np.abs(sm.strassen(a, b) - right)[32:] / np.abs(a[32:] @ b).mean()
    assert plain.max() < 1e-5
    assert ours.max() > 0.1


def test_what_infinity_makes_of_other_entries():
    a, b = np.ones((4, 4)), np.ones((4, 4))
    a[3, 3] = inf
    plain, ours = sm.matmul(a, b), sm.strassen(a, b)
    assert_array_equal(np.isfinite(plain), [[True] * 4] * 3 + [[False] * 4])
    assert_array_equal(plain[3], inf)
    assert np.isnan(ours[1, 2:]).all()  # rows half a matrix above have a part in no infinity
    assert np.isfinite(ours[[0, 2]]).all()
    large = np.full((4, 4), 3e38, "f4")  # finite products, sums that are not
    small = np.full((4, 4), 1e-3, "f4")
    assert np.isfinite(sm.matmul(large, small)).all()
    assert np.isnan(sm.strassen(large, small)).any()


def test_denormals_are_numbers():
    a, b = np.full((4, 4), 2.0**-145, "f4"), np.full((4, 4), 2.0**100, "f4")
    assert_array_equal(sm.strassen(a, b), np.full((4, 4), 2.0**-43))


# --- what is refused ----------------------------------------------------------------------------

TWO = np.ones((2, 2))


@pytest.mark.parametrize("dtype", ["i4", "?", "f2", "c8", "u1"])
def test_refused_dtypes(dtype):
    x = TWO.astype(dtype)
    with pytest.raises(TypeError, match=r"float32 and float64, got a of dtype.*use matmul"):
        sm.strassen(x, TWO)
    with pytest.raises(TypeError, match=r"got b of dtype.*b\.astype"):
        sm.strassen(TWO, x)


def test_refused_arguments():
    with pytest.raises(TypeError, match=r"min_plus has no subtraction .*use matmul\(a, b, 'min_p"):
        sm.strassen(TWO, TWO, semiring="min_plus")
    with pytest.raises(ValueError, match="levels must be at least 0, got -1"):
        sm.strassen(TWO, TWO, levels=-1)
    with pytest.raises(TypeError, match=r"levels must be an integer, got 1\.5"):
        sm.strassen(TWO, TWO, levels=1.5)
    for x, y in [(TWO[0], TWO), (TWO, TWO[0]), (TWO, np.ones((3, 2)))]:
        with pytest.raises(ValueError, match=r"strassen takes matrices .* got shapes"):
            sm.strassen(x, y)
    with pytest.raises(ValueError, match="do not broadcast"):
        sm.strassen(np.ones((2, 2, 2)), np.ones((3, 2, 2)))


def test_a_twin_of_plus_times_will_do():
    twin = sm.Semiring("twin", "a+b", "a*b", 0, 1)
    assert_array_equal(sm.strassen(TWO, TWO, semiring=twin), TWO + TWO.T)


# --- sums of matrices ---------------------------------------------------------------------------

#: Each sum is of what those before it left behind; 3 is a temporary value.
SUMS = ((3, 0, 1, 1), (0, 3, -1, 2), (3, 3, 1, 0), (2, 3, -1, 2))


@pytest.mark.parametrize("order", ["C", "F", "strided"])
@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (300, 1000), (0, 3), (3, 0)], ids=str)
def test_sums(shape, order):
    """Some in place; those of large matrices take several strips."""
    x = [np.zeros((2 * shape[0], 2 * shape[1]))[::2, ::2] for _ in range(3)]
    if order != "strided":
        x = [np.zeros(shape, order=order) for _ in range(3)]
    for i, v in enumerate(x):
        v[...] = whole(shape, seed=i)
    a, b, c = (v.copy() for v in x)
    engine.combine(SUMS, x)
    for found, right in zip(x, (a + b - c, b, 2 * (a + b) - 2 * c), strict=True):
        assert_array_equal(found, right)
