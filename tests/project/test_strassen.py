"""Strassen's products (apps/strassen.py): values, workspace, multiplications, errors."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import semiring_mm as sm
from apps.strassen import strassen

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
            c = strassen(x, y, levels=levels)
            assert c.dtype == dtype
            assert_array_equal(c, a @ b)
        assert_array_equal(a, before[0])
        assert_array_equal(b, before[1])


def test_out():
    a, b = whole((6, 6)), whole((6, 6), seed=1)
    for out in (np.empty((6, 6)), np.empty((6, 6)).T, np.empty((12, 12))[::2, ::-2]):
        assert strassen(a, b, out=out) is out
        assert_array_equal(out, a @ b)
    with pytest.raises(ValueError, match="shares memory with an operand"):
        strassen(a, b, out=b)
    with pytest.raises(ValueError, match=r"out is \(6, 6\) of float64, got \(5, 6\)"):
        strassen(a, b, out=np.empty((5, 6)))


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
    matmul, gemm = sm.matmul, sm.gemm

    def counted_matmul(a, b, *, out):
        done.append(out.size * a.shape[-1])
        return matmul(a, b, out=out)

    def counted_gemm(alpha, a, *others, out):
        done.append(out.size * a.shape[-1])
        return gemm(alpha, a, *others, out=out)

    monkeypatch.setattr(sm, "matmul", counted_matmul)
    monkeypatch.setattr(sm, "gemm", counted_gemm)
    m, n, k = shape
    a, b = whole((m, k)), whole((k, n), seed=1)
    assert_array_equal(strassen(a, b, levels), a @ b)
    assert sum(done) == pairs


@pytest.mark.parametrize("order", "CF")
def test_temporary_matrices_lie_as_the_operands(order, monkeypatch):
    """So that a pass reads and writes everything along memory."""
    seen, matmul = [], sm.matmul

    def look(a, b, *, out):
        seen.extend(x.strides[0] < x.strides[1] for x in (a, b, out) if x.size > 1)
        return matmul(a, b, out=out)

    monkeypatch.setattr(sm, "matmul", look)
    a, b, c = (np.ones((8, 8), order=order) for _ in range(3))
    strassen(a, b, 2, out=c)
    assert len(seen) >= 3 * 49
    assert set(seen) == {order == "F"}


@pytest.mark.parametrize("shape", [(512, 512, 512), (401, 600, 1030)], ids=str)
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_workspace(shape, levels):
    """What the docstring says, but for what each thread keeps in its caches."""
    m, k, n = shape
    a, b, c = whole((m, k)), whole((k, n), seed=1), np.empty((m, n))
    strassen(a, b, levels=levels, out=c)  # compiles, and makes the engine's buffers
    m, k, n = (x >> levels << levels for x in (m, k, n))
    expected = 8 * sum((m * max(k, n) + k * n) // 4**i for i in range(1, levels + 1))
    tracemalloc.start()
    strassen(a, b, levels=levels, out=c)
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
        found = strassen(a, b, levels=levels)
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
    ours = np.abs(strassen(a, b) - right)[32:] / np.abs(a[32:] @ b).mean()
    assert plain.max() < 1e-5
    assert ours.max() > 0.1


def test_what_infinity_makes_of_other_entries():
    a, b = np.ones((4, 4)), np.ones((4, 4))
    a[3, 3] = inf
    plain, ours = sm.matmul(a, b), strassen(a, b)
    assert_array_equal(np.isfinite(plain), [[True] * 4] * 3 + [[False] * 4])
    assert_array_equal(plain[3], inf)
    assert np.isnan(ours[1, 2:]).all()  # rows half a matrix above have a part in no infinity
    assert np.isfinite(ours[[0, 2]]).all()
    large = np.full((4, 4), 3e38, "f4")  # finite products, sums that are not
    small = np.full((4, 4), 1e-3, "f4")
    assert np.isfinite(sm.matmul(large, small)).all()
    assert np.isnan(strassen(large, small)).any()


def test_denormals_are_numbers():
    a, b = np.full((4, 4), 2.0**-145, "f4"), np.full((4, 4), 2.0**100, "f4")
    assert_array_equal(strassen(a, b), np.full((4, 4), 2.0**-43))


# --- what is refused ----------------------------------------------------------------------------

TWO = np.ones((2, 2))


@pytest.mark.parametrize("dtype", ["i4", "?", "f2", "c8", "u1", "f4"])
def test_refused_dtypes(dtype):
    for x, y in [(TWO.astype(dtype), TWO), (TWO, TWO.astype(dtype))]:
        with pytest.raises(TypeError, match=r"float32 or float64 twice, got .* use sm\.matmul"):
            strassen(x, y)


def test_refused_arguments():
    with pytest.raises(ValueError, match="levels must be at least 0, got -1"):
        strassen(TWO, TWO, -1)
    for x, y in [(TWO[0], TWO), (TWO, TWO[0]), (TWO, np.ones((3, 2)))]:
        with pytest.raises(ValueError, match=r"strassen takes matrices .* got shapes"):
            strassen(x, y)
