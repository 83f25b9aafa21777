"""Sparse and band left operands: against the dense verbs, on both engines, and what is refused.

The GPU engine runs on the host, where :class:`host_device.HostDevice` compiles its kernels with
g++, and on a CUDA device if one is there.
"""

import contextlib

import host_device
import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose, assert_array_equal
from reference import ALGEBRAS, EVERY, stored

import semiring_mm as sm
from semiring_mm import arrays
from semiring_mm.cpu import engine as cpu
from semiring_mm.cpu.sparse import even_rows
from semiring_mm.gpu import device, engine

scipy_sparse = pytest.importorskip("scipy.sparse")
inf, nan = np.inf, np.nan
HOST = host_device.HostDevice()


class Cpu:
    """SciPy's matrices and NumPy's arrays, on the CPU engine."""

    library, put, get = scipy_sparse, staticmethod(np.array), staticmethod(np.asarray)


class Host(Cpu):
    """The same, taken for those of a device."""


class Cuda:
    def __init__(self):
        import cupy
        import cupyx.scipy.sparse

        self.library, self.put, self.get = cupyx.scipy.sparse, cupy.asarray, cupy.asnumpy


@pytest.fixture(params=["cpu", "host", pytest.param("cuda", marks=pytest.mark.gpu)])
def there(request, monkeypatch):
    """Where the operands lie."""
    if request.param == "cpu":
        return Cpu()
    if request.param == "cuda":
        if reason := device.why_not():
            pytest.skip(reason)
        return Cuda()
    on_host(monkeypatch)
    return Host()


def on_host(monkeypatch):
    host_device.need_compiler()
    monkeypatch.setattr(device, "current", lambda: HOST)
    monkeypatch.setattr(device, "why_not", lambda: "")
    monkeypatch.setattr(engine, "on", lambda *_: contextlib.ExitStack())
    monkeypatch.setattr(arrays, "where", lambda x, name: 0)
    monkeypatch.setattr(arrays, "_PLAIN", set())
    monkeypatch.setattr(cpu, "csr_product", None)
    monkeypatch.setattr(cpu, "dia_product", None)


# --- matrices -----------------------------------------------------------------------------------


def rng(seed=0):
    return np.random.default_rng(seed)


def csr(there, data, indices, indptr, shape, *, index="i4"):
    parts = (there.put(x) for x in (data, np.asarray(indices, index), np.asarray(indptr, index)))
    return there.library.csr_matrix(tuple(parts), shape=shape)


def dia(there, data, offsets, shape):
    return there.library.dia_matrix((there.put(data), there.put(offsets)), shape=shape)


def zeros(name, shape, dtype):
    """What nothing is stored in."""
    return np.full(shape, stored(name, ALGEBRAS[name].zero, dtype), dtype)


def entries(random, name, shape, dtype):
    """Small numbers on which zero annihilates."""
    low = {"positive": 1, "nonnegative": 0}.get(sm.semirings[name].domain, -3)
    low = -3 if name == "max_times" else low
    return reference.small(random, name, shape, dtype, low)


def sparse(there, name, shape, dtype, *, density=0.2, seed=0, index="i4"):
    """A random matrix with empty rows, a full one and explicit zeros; and the same one, dense."""
    random = rng(seed)
    mask = random.random(shape) < density
    mask[:: max(1, shape[0] // 3)] = False
    mask[shape[0] // 2] = True
    values = entries(random, name, shape, dtype)
    dense = np.where(mask, values, zeros(name, shape, dtype)).astype(dtype)
    indptr = np.r_[0, np.cumsum(mask.sum(1))]
    return csr(there, values[mask], np.nonzero(mask)[1], indptr, shape, index=index), dense


def band(there, name, shape, dtype, offsets, *, slots=None, seed=0):
    """A band with entries in every slot, those outside of the matrix too; and the same, dense."""
    slots = shape[1] if slots is None else slots
    data = entries(rng(seed), name, (len(offsets), slots), dtype)
    dense = zeros(name, shape, dtype)
    for row, offset in zip(data, offsets, strict=True):
        for j in range(max(0, offset), min(slots, shape[1], shape[0] + offset)):
            dense[j - offset, j] = row[j]
    return dia(there, data, np.array(offsets, np.int32), shape), dense


def close(name, found, expected):
    """Exactly equal, but for the semiring that rounds."""
    assert found.dtype == expected.dtype
    if name == "log_plus":
        eps = 16 * float(np.finfo(found.dtype).eps)
        assert_allclose(found, expected, rtol=eps, atol=eps)
    else:
        assert_array_equal(found, expected)


def scalars(dtype):
    return (True, True) if dtype == np.bool_ else (2, 3)


#: What SciPy has of all semirings and dtypes; false ⊗ true is not min_times's zero, which is true.
SCIPY = [
    (name, dtype)
    for name, dtype in EVERY
    if dtype.isbuiltin == 1 and dtype != "f2" and (name, dtype) != ("min_times", np.bool_)
]


# --- results ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "dtype"), SCIPY, ids=str)
def test_every_semiring_and_dtype(name, dtype):
    """The dense product on the densified matrix; of bands with scalars and y."""
    shape, offsets, (alpha, beta) = (23, 31), [0, 3, -5, 30, -22, 7], scalars(dtype)
    a, dense = sparse(Cpu(), name, shape, dtype)
    d, full = band(Cpu(), name, shape, dtype, offsets)
    for n in (1, 21):
        x = entries(rng(n), name, (31, n), dtype)
        close(name, sm.matmul(a, x, name), reference.product(name, dense, x))
    x, y = x[:, :1], entries(rng(), name, (23, 1), dtype)
    found = sm.gemv(alpha, d, x[:, 0], beta, y[:, 0], semiring=name)
    close(name, found, reference.general(name, alpha, full, x, beta, y)[:, 0])


#: On the device: as many kinds of numbers and of kernels as there is patience to compile.
KERNELS = [
    ("min_plus", "f4", 1), ("min_plus", "f4", 32), ("max_times", "f8", 3), ("plus_times", "i4", 1),
    ("lor_land", "?", 8), ("min_plus", "f4", 33),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype", "n"), KERNELS)
def test_kernels(there, name, dtype, n):
    dtype, index = np.dtype(dtype), "i8" if n == 1 else "i4"
    if isinstance(there, Cuda) and dtype.kind == "i":
        pytest.skip("CuPy's sparse matrices have no integers")
    alpha, beta = scalars(dtype)
    for shape in ((70, 90), (1, 1), (700, 40)):
        x = reference.small(rng(n), name, (shape[1], n), dtype)
        y = reference.small(rng(n + 1), name, (shape[0], n), dtype)
        offsets = [0] if shape == (1, 1) else [0, 3, -5, 30, -60, 39, 7, 11, -8]
        for a, dense in (
            sparse(there, name, shape, dtype, index=index), band(there, name, shape, dtype, offsets)
        ):  # fmt: skip
            for trans in (False, True):
                op, b, c = (dense.T, y, x) if trans else (dense, x, y)
                found = sm.gemm(
                    alpha, a, there.put(b), beta, there.put(c), trans_a=trans, semiring=name
                )
                expected = reference.general(name, alpha, op, b, beta, c)
                assert_array_equal(there.get(found), expected, err_msg=f"{a.format} {trans}")
                if n == 1:
                    found = sm.gemv(alpha, a, there.put(b[:, 0]), trans=trans, semiring=name)
                    expected = reference.general(name, alpha, op, b)
                    assert_array_equal(there.get(found), expected[:, 0])


@pytest.mark.parametrize(
    ("rows", "most", "longest"), [(9001, 13, 12), (901, 60, 59), (61, 200, 5000), (60, 40, 1900)]
)
def test_rows_of_like_length(there, rows, most, longest):
    """Some of them empty; and beside a long one, which a warp or several tiles share."""
    counts = rng(4).integers(0, most, rows)
    counts[rows // 2] = longest
    ends = np.r_[0, np.cumsum(counts)]
    columns = rng(1).integers(0, 500, ends[-1])
    data = rng(2).integers(-9, 10, ends[-1]).astype("f4")
    a = csr(there, data, columns, ends, (rows, 500))
    x = rng(3).integers(-9, 10, 500).astype("f4")
    expected = np.zeros(rows)
    np.add.at(expected, np.repeat(np.arange(rows), counts), data * x[columns].astype("f8"))
    assert_array_equal(there.get(sm.matmul(a, there.put(x))), expected)


@pytest.mark.parametrize("n", [1, 32])
def test_long_rows_and_many_empty_ones(there, n):
    """Rows that span many tiles, rows that end where tiles do, tiles of empty rows alone."""
    counts = np.zeros(9000, int)
    counts[[0, 1, 5000, 8999]] = 4096, 5000, 2048, 3000
    counts[100:400] = 16
    total, k = counts.sum(), 6000
    columns = rng(1).integers(0, k, total)
    data = rng(2).integers(-9, 10, total).astype("f4")
    a = csr(there, data, columns, np.r_[0, np.cumsum(counts)], (9000, k))
    x = rng(3).integers(-9, 10, (k, n)).astype("f4")
    ours = there.get(sm.matmul(a, there.put(x)))
    rows = np.repeat(np.arange(9000), counts)
    expected = np.zeros((9000, n))
    np.add.at(expected, rows, data[:, None] * x[columns].astype("f8"))
    assert_array_equal(ours, expected)
    least = np.full((9000, n), inf)
    np.minimum.at(least, rows, data[:, None] + x[columns])
    assert_array_equal(there.get(sm.matmul(a, there.put(x), "min_plus")), least)


def test_what_is_stored_counts(there):
    """Explicit zeros are edges, entries of one place are joined, slots outside are not read."""
    a = csr(there, np.array([0, 5, 2, 3], "f4"), [1, 1, 0, 2], [0, 2, 2, 4], (3, 3))
    x = there.put(np.array([10, 20, 30], "f4"))
    assert_array_equal(there.get(sm.matmul(a, x, "min_plus")), [20, inf, 12])
    assert_array_equal(
        there.get(sm.gemv(None, a, x, trans=True, semiring="min_plus")), [32, 10, 33]
    )
    b = dia(there, np.array([[0, 1, nan], [nan, 0, 7]], "f4"), np.array([-1, 1], "i4"), (3, 3))
    assert_array_equal(there.get(sm.matmul(b, x, "min_plus")), [20, 10, 21])


def test_the_sum_of_few_terms_meets_zero(there):
    """max_times starts from -inf, but where an entry is absent, zero is one of the terms."""
    a = csr(there, -np.ones(3, "f4"), [0, 1, 0], [0, 2, 3], (2, 2))
    band = dia(there, -np.ones((2, 2), "f4"), np.array([0, 1], "i4"), (2, 2))
    for matrix in (a, band):
        for n in (1, 3):
            x = there.put(np.full((2, n), 2, "f4"))
            found = there.get(sm.matmul(matrix, x, "max_times"))
            assert_array_equal(found, np.repeat([[-2], [0]], n, 1))


def test_nan_goes_where_it_meets_an_entry(there):
    a = csr(there, np.array([1, nan, 2], "f4"), [0, 1, 2], [0, 1, 2, 3], (3, 3))
    x = np.array([nan, 5, 7], "f4")
    for name in ("min_plus", "plus_times"):
        found = there.get(sm.matmul(a, there.put(x), name))
        assert_array_equal(np.isnan(found), [True, True, False], err_msg=name)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (3, 4)])
def test_nothing_stored(there, shape):
    m, k = shape
    a = csr(there, np.zeros(0, "f4"), [], np.zeros(m + 1), shape)
    b = dia(there, np.zeros((0, k), "f4"), np.zeros(0, "i4"), shape)
    c = there.put(np.full((m, 2), 7, "f4"))
    for matrix in (a, b):
        for n in (0, 2):
            found = sm.matmul(matrix, there.put(np.ones((k, n), "f4")), "min_plus")
            assert_array_equal(there.get(found), np.full((m, n), inf))
        found = sm.gemm(None, matrix, there.put(np.ones((k, 2), "f4")), 1, c, semiring="min_plus")
        assert_array_equal(there.get(found), np.full((m, 2), 8))


def test_scalars_of_a_product_that_does_not_commute(there):
    """(α ⊗ A) ⊗ B in this order, though ⊗ neither commutes nor distributes with negative α."""
    odd = sm.Semiring("odd", "max(a, b)", "a * abs(b)", 0, 1, domain="nonnegative")
    a = csr(there, np.array([2, 3], "f4"), [0, 1], [0, 2], (1, 2))
    x = there.put(np.array([-5, 7], "f4"))
    assert_array_equal(there.get(sm.gemv(-1, a, x, semiring=odd)), [-10])


def test_layouts_and_promotion():
    a, dense = sparse(Cpu(), "min_plus", (40, 50), np.dtype("f4"), index="i8")
    b = rng(1).integers(0, 9, (50, 21)).astype("f4")
    expected = reference.product("min_plus", dense, b)
    for how, right in reference.layouts(b).items():
        for out in (None, np.empty((40, 21), "f4", order="F"), np.empty((80, 42), "f4")[::2, ::-2]):
            found = sm.matmul(a, right, "min_plus", out=out)
            assert out is None or found is out
            assert_array_equal(found, expected, err_msg=how)
            column = sm.gemv(None, a, right[:, 3], semiring="min_plus")
            assert_array_equal(column, expected[:, 3], err_msg=how)
    assert_array_equal(sm.gemm(None, a, b.T, trans_b=True, semiring="min_plus"), expected)
    shuffled = a.copy()
    for i in range(40):
        own = slice(a.indptr[i], a.indptr[i + 1])
        order = rng(i).permutation(own.stop - own.start)
        shuffled.indices[own], shuffled.data[own] = a.indices[own][order], a.data[own][order]
    for x in (shuffled.data, shuffled.indices, shuffled.indptr):
        x.flags.writeable = False
    assert_array_equal(sm.matmul(shuffled, b, "min_plus"), expected)
    double = sm.matmul(a, b.astype("i8"), "min_plus")
    assert double.dtype == np.float64
    assert_array_equal(double, expected)
    assert sm.sgemv(None, a, b[:, 0]).dtype == np.float32
    wide = dia(Cpu(), np.arange(40.0).reshape(2, 20)[:, ::2], np.array([0, 1]), (10, 10))
    assert_array_equal(sm.matmul(wide, np.ones(10)), wide @ np.ones(10))


def test_in_place():
    a, dense = sparse(Cpu(), "min_plus", (30, 30), np.dtype("f8"))
    y = rng(1).random(30)
    expected = np.minimum((dense + y).min(1), y)
    assert sm.gemv(None, a, y, 0, y, semiring="min_plus", out=y) is y
    assert_array_equal(y, expected)
    c = np.asfortranarray(rng(2).random((30, 5)))
    expected = np.minimum((dense[..., None] + c).min(1), c)
    sm.gemm(None, a, c, 0, c, semiring="min_plus", out=c)
    assert_array_equal(c, expected)


@pytest.mark.parametrize("form", ["csr", "dia"])
def test_threads_and_scipy(form):
    """Every bit is the same on any number of threads; and what SciPy has, but for rounding."""
    m, random = 20000, rng(5)
    if form == "dia":
        a = dia(Cpu(), random.random((9, m)), np.arange(-4, 5), (m, m))
    else:
        counts = np.minimum(random.pareto(1.1, m).astype(int), 3000)
        ends = np.r_[0, np.cumsum(counts)]
        a = csr(Cpu(), random.random(ends[-1]), random.integers(0, m, ends[-1]), ends, (m, m))
    for b in (random.random(m), random.random((m, 6))):
        found = []
        for threads in (1, 2, 3):
            sm.set_num_threads(threads)
            found.append(sm.matmul(a, b))
        assert_array_equal(found[1], found[0])
        assert_array_equal(found[2], found[0])
        assert_allclose(found[0], a @ b, rtol=1e-13)
        assert_allclose(sm.gemm(None, a, b.reshape(m, -1), trans_a=True),
                        a.T @ b.reshape(m, -1), rtol=1e-13)  # fmt: skip


def test_threads_share_entries_and_rows():
    counts = np.r_[np.zeros(1000, int), rng(1).integers(0, 40, 1000), 5000, np.zeros(1000, int)]
    indptr = np.r_[0, np.cumsum(counts)]
    cuts = [0, *even_rows(indptr, 8), len(counts)]
    work = np.diff(indptr[cuts]) + np.diff(cuts)
    assert len(cuts) == 9
    assert work.max() <= (len(counts) + indptr[-1]) / 8 + 5001


def test_integers_do_not_wrap(there):
    if isinstance(there, Cuda):
        pytest.skip("CuPy's sparse matrices have no integers")
    a = csr(there, np.array([100, 27], "i1"), [0, 1], [0, 1, 2], (2, 2))
    assert there.get(sm.matmul(a, there.put(np.array([1, 4], "i1")))).tolist() == [100, 108]
    with pytest.raises(OverflowError, match="does not fit int8"):
        sm.matmul(a, there.put(np.array([2, 1], "i1")))
    far = there.put(np.array([127, 5], "i1"))  # no edge
    assert there.get(sm.matmul(a, far, "min_plus")).tolist() == [127, 32]


def test_many_terms_in_a_row():
    """Duplicates may be more than columns: the range of a sum follows from the entries of a row."""
    a = csr(Cpu(), np.full(300, 100, "i1"), np.zeros(300), [0, 300], (1, 1))
    with pytest.raises(OverflowError):
        sm.matmul(a, np.array([1], "i1"))
    wide = csr(Cpu(), np.full(300, 2**53, "i8"), np.zeros(300), [0, 300], (1, 1))
    assert sm.matmul(wide, np.array([3], "i8")).item() == 900 * 2**53
    with pytest.raises(OverflowError):
        sm.matmul(wide, np.array([4], "i8"))


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["coo", "csc", "bsr", "lil"])
def test_other_formats(form):
    a = scipy_sparse.random_array((4, 4), density=0.5).asformat(form)
    with pytest.raises(TypeError, match=r"matmul: a is a \w+; CSR and DIA .* use a\.tocsr\(\)"):
        sm.matmul(a, np.ones(4))


def test_sparse_right_operands():
    a = scipy_sparse.eye_array(4, format="csr")
    for call in (
        lambda: sm.matmul(np.ones((4, 4)), a), lambda: sm.gemm(None, a, a),
        lambda: sm.gemv(None, np.ones((4, 4)), a),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=r"right operand is a sparse csr_array.*S\.T\.tocsr"):
            call()
    with pytest.raises(TypeError, match="c is a sparse"):
        sm.gemm(None, a, np.ones((4, 4)), 1, a)
    with pytest.raises(TypeError, match="return_arg takes dense operands"):
        sm.matmul(a, np.ones((4, 4)), "min_plus", return_arg=True)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a: sm.matmul(a, np.ones(4)), r"matmul: a, .* shape \(4, 5\), so b .* \(5,\) or"),
        (lambda a: sm.matmul(a, np.ones((2, 5, 3))), r"\(5, n\), got \(2, 5, 3\)"),
        (lambda a: sm.gemm(None, a, np.ones(5)), r"b must have shape \(5, n\), got \(5,\)"),
        (lambda a: sm.gemv(None, a, np.ones(5), trans=True), r"shape \(5, 4\) transposed, so x"),
        (lambda a: sm.gemv(None, a, np.ones(5), 1, np.ones(5)), r"y has shape \(5,\), the product"),
        (lambda a: sm.gemv(None, a, np.ones(5), 1), "beta and y go together"),
        (lambda a: sm.matmul(a, np.ones(5), out=np.ones(5)), r"out has shape \(5,\)"),
        (lambda a: sm.matmul(a[[0]].reshape(5).tocsr(), np.ones(5)), r"use a\.reshape\(1, -1\)"),
    ],
)
def test_shapes(call, words):
    a = scipy_sparse.random_array((4, 5), density=0.5, format="csr")
    with pytest.raises(ValueError, match=words):
        call(a)


def test_arrays_of_the_wrong_sizes():
    a = scipy_sparse.eye_array(4, format="csr")
    a.indptr = a.indptr[:-1]
    with pytest.raises(ValueError, match=r"indptr of shape \(4,\); a CSR matrix has"):
        sm.matmul(a, np.ones(4))
    b = scipy_sparse.eye_array(4, format="dia")
    b.offsets = np.zeros(2, "i4")
    with pytest.raises(ValueError, match=r"offsets of shape \(2,\); a band matrix has"):
        sm.matmul(b, np.ones(4))


def test_wide_indices_beside_narrow_pointers_are_not_cut_off():
    a = scipy_sparse.csr_array(np.eye(2, dtype="f4"))
    a.indices, a.indptr = np.array([0, 2**32], np.int64), a.indptr.astype(np.int32)
    with pytest.raises(ValueError, match="a's indices hold column indices out of range"):
        sm.matmul(a, np.eye(2, dtype="f4"))


@pytest.mark.parametrize("n", [1, 32])
@pytest.mark.parametrize("trans", [False, True])
def test_broken_indices_are_not_followed(there, n, trans):
    """An error; but NaN of a device's floats, which nobody waits for."""
    for spoil in ("column", "before", "pointer", "end"):
        a, _ = sparse(there, "plus_times", (50, 50), np.dtype("f4"), seed=3)
        match spoil:
            case "column":
                a.indices[7] = 2**30
            case "before":
                a.indices[7] = -1
            case "pointer":
                a.indptr[20] = a.indptr[30] + 1
            case "end":
                a.indptr[-1] = 2**30
        x = there.put(np.ones((50, n), "f4"))
        if type(there) is Cpu or trans:
            with pytest.raises(ValueError, match="a's indices hold column indices out of range"):
                sm.gemm(None, a, x, trans_a=trans)
            continue
        found, ends, data = there.get(sm.matmul(a, x)), there.get(a.indptr), there.get(a.data)
        wrong = np.isnan(found)
        assert_array_equal(wrong.all(1), wrong.any(1))
        if spoil in ("column", "before"):
            row = np.searchsorted(ends, 7, side="right") - 1
            assert_array_equal(np.flatnonzero(wrong.any(1)), [row])
        else:  # rows beside broken ones may be NaN, too; none has another's entries
            broken = (ends[:-1] > ends[1:]) | (ends[1:] > data.size)
            assert broken.any()
            assert wrong[broken].all()
            for i in np.flatnonzero(~wrong.any(1)):
                assert_array_equal(found[i], np.repeat(data[ends[i] : ends[i + 1]].sum(), n))


@pytest.mark.parametrize("n", [1, 32])
def test_row_pointers_that_were_changed(there, n):
    """What is kept of a matrix is only where to look first."""
    a, _ = sparse(there, "plus_times", (5000, 40), np.dtype("f4"), seed=3)
    x = rng(1).integers(-9, 10, (40, n)).astype("f4")
    sm.matmul(a, there.put(x))
    data, indices, ends = (there.get(y) for y in (a.data, a.indices, a.indptr))
    middle = rng(2).permutation(np.diff(ends))
    a.indptr[1:] = there.put(np.cumsum(middle).astype("i4"))
    expected = csr(Cpu(), data, indices, there.get(a.indptr), (5000, 40)) @ x
    for _ in range(2):
        assert_array_equal(there.get(sm.matmul(a, there.put(x))), expected)


def test_broken_indices_of_integers_are_an_error(there):
    if isinstance(there, Cuda):
        pytest.skip("CuPy's sparse matrices have no integers")
    a, _ = sparse(there, "min_plus", (50, 50), np.dtype("i4"))
    a.indices[3] = 50
    with pytest.raises(ValueError, match=r"a\.check_format\(\)"):
        sm.matmul(a, there.put(np.ones(50, "i4")), "min_plus")


def test_algebras_in_which_absent_entries_count():
    a = scipy_sparse.eye_array(3, format="csr")
    larger = sm.Semiring("larger", "max(a, b)", "max(a, b)", -inf, -inf)
    with pytest.raises(ValueError, match=r"a is sparse, but larger .* annihilates .*a dense a"):
        sm.matmul(a, np.ones(3), larger)
    with pytest.raises(ValueError, match="min_times on bool: zero annihilates"):
        sm.matmul(a.astype(bool), np.ones(3, bool), "min_times")


def test_duplicates_where_products_do_not_distribute():
    a = csr(Cpu(), np.array([1.0, 2.0]), [0, 0], [0, 2], (1, 2))
    with pytest.raises(ValueError, match=r"plus_min cannot join .* join them"):
        sm.matmul(a, np.ones(2), "plus_min")
    a.sum_duplicates()
    assert sm.matmul(a, np.array([2.5, 0.0]), "plus_min").tolist() == [2.5]


def test_dtypes():
    a = scipy_sparse.eye_array(3, format="csr", dtype="c16")
    with pytest.raises(TypeError, match="complex numbers"):
        sm.matmul(a, np.ones(3))
    with pytest.raises(TypeError, match="needs -inf"):
        sm.matmul(a.real.astype("u1"), np.ones(3, "u1"), "max_plus")
    with pytest.raises(TypeError, match="use dtype bool"):
        sm.matmul(a.real, np.ones(3), "lor_land")


def test_on_a_device_and_back(monkeypatch):
    """Host operands go to the device, and the result comes back."""
    on_host(monkeypatch)
    monkeypatch.setattr(arrays, "where", lambda x, name: None)
    monkeypatch.setattr(engine, "from_host", np.array)
    a, dense = sparse(Cpu(), "min_plus", (70, 90), np.dtype("f4"), index="i8")
    x = rng(1).integers(0, 9, 90).astype("f4")
    found = sm.gemv(None, a, x, semiring="min_plus", device="cuda")
    assert_array_equal(found, reference.matmul("min_plus", dense, x))


# --- kernels ------------------------------------------------------------------------------------


def test_nothing_is_read_behind_the_operands(monkeypatch):
    """Memory that ends where the operands do."""
    on_host(monkeypatch)
    a, dense = sparse(Cpu(), "min_plus", (70, 90), np.dtype("f4"), index="i8")

    def fenced(x):
        y = host_device.guarded(x.shape, x.dtype, 0)
        y[...] = x
        return y

    data, indices, indptr = map(fenced, (a.data, a.indices, a.indptr))
    bands = [
        band(Cpu(), "min_plus", (70, 90), np.dtype("f4"), (0, 5, -3), slots=s) for s in (90, 7)
    ]
    for n in (1, 32, 33):
        b, c = fenced(np.ones((90, n), "f4")), fenced(np.zeros((70, n), "f4"))
        engine.csr_product(sm.semirings["min_plus"], data, indices, indptr, b, c)
        assert_array_equal(c, reference.product("min_plus", dense, b))
        for diagonals, spelt_out in bands:  # with a slot for each column, and with fewer
            given = fenced(diagonals.data), fenced(diagonals.offsets)
            engine.dia_product(sm.semirings["min_plus"], *given, b, c)
            assert_array_equal(c, reference.product("min_plus", spelt_out, b))
            across = fenced(np.zeros((90, n), "f4"))
            engine.dia_product(sm.semirings["min_plus"], *given, b[:70], across, trans=True)
            assert_array_equal(across, reference.product("min_plus", spelt_out.T, b[:70]))
