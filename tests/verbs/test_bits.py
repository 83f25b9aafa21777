"""Packed truth values, and linear algebra over GF(2): on the CPU, on kernels, on a device."""

import numpy as np
import pytest
import reference
from engines import HOST, Cuda, on_host
from host_device import guarded
from numpy.testing import assert_array_equal
from plain_kernels import both
from reference import naive

import semiring_mm as sm
from semiring_mm import arrays
from semiring_mm.closures import bits
from semiring_mm.cpu import engine as cpu
from semiring_mm.cpu.kernels import gf2 as kernels
from semiring_mm.gpu import device
from semiring_mm.gpu import engine as gpu

NAMES = ["lor_land", "xor_land"]
TILES = sm.Tiles(memory="1GB")


class Here:
    """The CPU."""

    put = get = staticmethod(lambda x: x)


def on_cuda():
    if reason := device.why_not():
        pytest.skip(reason)
    return Cuda()


CUDA = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.fixture(params=["cpu", CUDA])
def there(request):
    """Where arrays live: `put` takes them there and `get` back."""
    return Here() if request.param == "cpu" else on_cuda()


@pytest.fixture(params=["cpu", "host", CUDA])
def anywhere(request, monkeypatch):
    """The same; on "host" the kernels are compiled for it."""
    if request.param == "cuda":
        return on_cuda()
    if request.param == "host":
        on_host(monkeypatch)
        monkeypatch.setattr(arrays, "where", lambda x, name: 0)
        monkeypatch.setattr(arrays, "_PLAIN", set())
        for verb in ("pack_bits", "product_bits", "reduce_bits"):
            monkeypatch.setattr(cpu, verb, None)
        monkeypatch.setattr(gpu, "PANEL", 64)
        monkeypatch.setattr(gpu, "ROWS", 96)
    return Here()


def truth(*shape, share=0.3, seed=1):
    return np.random.default_rng(seed).random(shape) < share


def packed(there, x):
    return sm.BitMatrix.pack(there.put(x))


def product(name, a, b):
    return np.stack([reference.product(name, x, y) for x, y in zip(a, b, strict=True)])


@pytest.mark.parametrize("name", NAMES)
def test_products(anywhere, name):
    a, b = truth(70, 300), truth(300, 41, seed=2)
    expected = reference.product(name, a, b)
    x, y = packed(anywhere, a), packed(anywhere, b)
    assert x.shape == (70, 300)
    assert x.ndim == 2
    assert_array_equal(anywhere.get(x.bits), np.packbits(a, axis=-1))
    for left, right in ((x, y), (x, anywhere.put(b)), (anywhere.put(a), y)):
        found = sm.matmul(left, right, name)
        assert isinstance(found, sm.BitMatrix)
        assert found.shape == (70, 41)
        assert_array_equal(anywhere.get(found.bits), np.packbits(expected, axis=-1))
        assert_array_equal(anywhere.get(found.unpack()), expected)


@pytest.mark.parametrize("name", NAMES)
def test_chains(there, name):
    a, b = truth(70, 300), truth(300, 41, seed=2)
    once = sm.matmul(packed(there, a), packed(there, b), name)
    both = sm.matmul(once, there.put(b.T.copy()), name)
    expected = reference.product(name, reference.product(name, a, b), b.T)
    assert_array_equal(there.get(both.unpack()), expected)


@pytest.mark.parametrize("name", NAMES)
def test_products_on_other_chips(name, monkeypatch):
    on_host(monkeypatch)
    monkeypatch.setattr(HOST, "arch", 80)
    a, b, c = truth(20, 70), truth(70, 41, seed=2), truth(20, 41, seed=3)
    expected = reference.general(name, None, a, b, None, c)
    result = np.packbits(c, axis=-1)
    gpu.product_bits(
        sm.semirings[name], np.packbits(a, axis=-1), np.packbits(b, axis=-1), result, 41, True
    )
    assert_array_equal(result, np.packbits(expected, axis=-1))


def test_stacks_and_empty_operands(there):
    a, b = truth(2, 3, 9, 20), truth(3, 20, 17, seed=2)
    found = sm.matmul(packed(there, a), packed(there, b), "xor_land")
    assert found.shape == (2, 3, 9, 17)
    assert_array_equal(there.get(found.unpack()), np.stack([product("xor_land", x, b) for x in a]))
    for m, k, n in ((4, 0, 3), (0, 2, 3), (2, 3, 0)):
        found = sm.matmul(packed(there, truth(m, k)), packed(there, truth(k, n)), "lor_land")
        assert_array_equal(there.get(found.unpack()), np.zeros((m, n), bool))


def test_what_lies_beyond_the_last_column_does_not_count(there):
    a, b = truth(19, 21), truth(21, 13, seed=2)
    left, right = (np.packbits(x, axis=-1) for x in (a, b))
    left[:, -1] |= 0b111
    right[:, -1] |= 0b111
    x, y = (sm.BitMatrix(there.put(bits), n) for bits, n in ((left, 21), (right, 13)))
    found = sm.matmul(x, y, "xor_land").unpack()
    assert_array_equal(there.get(found), reference.product("xor_land", a, b))
    expected, pivots = reduced(a)
    assert sm.gf2.rank(x) == len(pivots)
    found = sm.gf2.row_reduce(x)
    assert_array_equal(there.get(found.unpack()), expected)
    assert_array_equal(there.get(found.bits), np.packbits(expected, axis=-1))
    assert sm.gf2.rank(sm.BitMatrix(there.put(np.full((9, 1), 255, "u1")), 3)) == 1


def test_a_refused_operand_leaves_the_device(monkeypatch):
    entered = []
    enter, leave = arrays.Call.__enter__, arrays.Call.__exit__
    monkeypatch.setattr(arrays.Call, "__enter__", lambda c: entered.append(c) or enter(c))
    monkeypatch.setattr(arrays.Call, "__exit__", lambda c, *e: entered.remove(c) or leave(c, *e))
    with pytest.raises(TypeError, match="takes truth values"):
        sm.gf2.rank(np.zeros((2, 2)))
    assert sm.gf2.rank(np.eye(2, dtype=bool)) == 2
    assert not entered


def test_a_kernel_reads_no_word_beyond_the_columns(monkeypatch):
    """Of rows that end at a page that nobody may touch."""
    on_host(monkeypatch)
    rows = guarded((40, 4), np.dtype("u1"), 0)
    rows[:] = np.random.default_rng(0).integers(0, 256, rows.shape)
    rows[:, 0] &= 15  # four columns have no pivot
    whole = np.unpackbits(rows, axis=1)
    sums, pivots = gpu.reduce_bits(rows, 32)
    expected, columns = reduced(whole)
    assert_array_equal(np.flatnonzero(pivots >= 0), columns)
    combined = np.unpackbits(sums, axis=1) @ whole.astype(int) % 2
    assert_array_equal(combined[pivots >= 0], expected[: len(columns)])
    assert not sums[pivots < 0].any()


@pytest.mark.parametrize("either", [False, True])
def test_the_kernel_of_packed_products_in_python(either):
    """Edges of bytes, of tables and of a strip; what C held is joined, and padding is not."""
    rng = np.random.default_rng(0)
    for m, k, n in ((3, 5, 7), (2, 35, 8 * kernels.STRIP + 20)):
        a, b, c = (rng.random(shape) < 0.3 for shape in ((m, k), (k, n), (m, n)))
        packed = np.packbits(a, 1), np.packbits(b, 1), np.packbits(c, 1)
        packed[0][:, -1] |= 1  # beyond the last column
        found = both(
            kernels.multiply, either=either, m=m, depth=-(-k // 8), k=k, width=-(-n // 8),
            a=packed[0], b=packed[1], c=packed[2],
            table=np.empty((16 * kernels.TABLES, kernels.STRIP), np.uint8),
        )["c"]  # fmt: skip
        sums = c + a.astype(int) @ b
        expected = sums > 0 if either else sums % 2 == 1
        assert_array_equal(np.unpackbits(found, 1, n), expected)


def test_the_kernel_of_elimination_in_python():
    rng = np.random.default_rng(0)
    rows = rng.integers(-(2**62), 2**62, (11, 8)) & rng.integers(-(2**62), 2**62, (11, 8))
    rows[5] = rows[2] ^ rows[3]
    found = both(
        kernels.reduce, columns=128, count=11, width=8, own=rows, free=np.ones(11, np.uint8),
        pivots=np.empty(128, np.int32),
    )  # fmt: skip
    at = found["pivots"]
    assert sorted(at[at >= 0].tolist()) == sorted(np.flatnonzero(found["free"] == 0).tolist())
    for j in np.flatnonzero(at >= 0):
        bit = found["own"][:, j // 64] >> (j % 64 ^ 7) & 1
        assert_array_equal(np.flatnonzero(bit), [at[j]])


def test_views_of_packed_bits(anywhere):
    """Bytes of a larger matrix, at any address; bits of either byte order are the same."""
    whole = truth(40, 900)
    bits = anywhere.put(np.packbits(whole, axis=-1))
    view = sm.BitMatrix(bits[3:35:2, 5:70])
    right = truth(520, 30, seed=2)
    found = sm.matmul(view, packed(anywhere, right), "xor_land").unpack()
    expected = reference.product("xor_land", whole[3:35:2, 40:560], right)
    assert_array_equal(anywhere.get(found), expected)


@pytest.mark.parametrize("name", NAMES)
def test_powers(there, name):
    a = truth(33, 33, share=0.1)
    for k in (0, 1, 6):
        found, power = sm.matrix_power(packed(there, a), k, name), np.eye(33, dtype=bool)
        for _ in range(k):
            power = reference.product(name, power, a)
        assert_array_equal(there.get(found.unpack()), power)


def test_closures(there, monkeypatch):
    monkeypatch.setattr(bits, "_BLOCK", 64)
    n = 150
    path = np.eye(n, k=1, dtype=bool)
    found = sm.closure(packed(there, path), "lor_land")
    assert_array_equal(there.get(found.unpack()), np.triu(np.ones((n, n), bool)))
    sparse = truth(n, n, share=0.01)
    found = sm.closure(packed(there, sparse), "lor_land")
    reach = np.eye(n) + sparse > 0
    for _ in range(8):
        reach = reach.astype(float) @ reach > 0
    assert_array_equal(there.get(found.unpack()), reach)


# --- GF(2) --------------------------------------------------------------------------------------


def reduced(a):
    """The reduced row echelon form, and the columns of its pivots."""
    found = naive.row_reduce(a.astype(bool))
    return found, [row.argmax() for row in found if row.any()]


def of_rank(m, n, r, seed=3):
    left, right = truth(m, r, share=0.5, seed=seed), truth(r, n, share=0.5, seed=seed + 1)
    return left.astype(int) @ right % 2 == 1


MATRICES = {
    "of one entry": np.ones((1, 1), bool),
    "square": truth(300, 300, share=0.5),
    "wide": truth(40, 700, share=0.5),
    "tall": truth(700, 40, share=0.5),
    "of low rank": of_rank(420, 530, 37),
    "sparse": truth(290, 610, share=0.004),
    "of equal rows": np.repeat(truth(1, 300), 400, 0),
    "zero": np.zeros((30, 300), bool),
    "without columns": np.zeros((3, 0), bool),
    "last rows first": np.eye(900, dtype=bool)[::-1],
}


def check_elimination(there, a):
    expected, pivots = reduced(a)
    assert sm.gf2.rank(there.put(a)) == len(pivots)
    found = sm.gf2.row_reduce(there.put(a))
    assert found.dtype == bool
    assert_array_equal(there.get(found), expected)


def test_elimination_by_kernels(anywhere):
    check_elimination(anywhere, of_rank(110, 130, 37))


@pytest.mark.parametrize("case", MATRICES)
def test_elimination(there, case):
    a = MATRICES[case]
    check_elimination(there, a)
    expected, pivots = reduced(a)
    assert_array_equal(there.get(sm.gf2.row_reduce(packed(there, a)).unpack()), expected)
    basis = there.get(sm.gf2.null_space(there.put(a)))
    assert basis.shape == (a.shape[1] - len(pivots), a.shape[1])
    assert not (a.astype(int) @ basis.T % 2).any()
    assert_array_equal(reduced(basis)[0], basis)


def regular(n):
    """A matrix that has an inverse: a permuted triangle."""
    a = np.triu(truth(n, n, share=0.5), 1) | np.eye(n, dtype=bool)
    return a[np.random.default_rng(4).permutation(n)]


def test_inverse_and_solution(there):
    n = 270
    a, b = regular(n), truth(n, 19, seed=5)
    inverse = there.get(sm.gf2.inv(there.put(a)))
    assert_array_equal(a.astype(int) @ inverse % 2, np.eye(n))
    assert sm.gf2.det(there.put(a)) == 1
    x = sm.gf2.solve(there.put(a), there.put(b.astype("u1")))
    assert x.dtype == np.uint8
    assert_array_equal(a.astype(int) @ there.get(x) % 2, b)
    x = sm.gf2.solve(packed(there, a), packed(there, b))
    assert x.shape == (n, 19)
    assert_array_equal(a.astype(int) @ there.get(x.unpack()) % 2, b)
    x = sm.gf2.solve(packed(there, a), there.put(b[:, 3]))
    assert_array_equal(a.astype(int) @ there.get(x) % 2, b[:, 3])
    a[:, 90] = a[:, 7] ^ a[:, 9]
    assert sm.gf2.det(there.put(a)) == 0
    with pytest.raises(
        np.linalg.LinAlgError, match=rf"inv: .* is singular over GF.2., of rank {n - 1}"
    ):
        sm.gf2.inv(there.put(a))
    with pytest.raises(np.linalg.LinAlgError, match=r"solve: the matrix .*null_space"):
        sm.gf2.solve(there.put(a), there.put(b))


def test_operands_are_not_changed(there):
    a, b = regular(60), truth(60, 8)
    for x, y in ((there.put(a), there.put(b)), (packed(there, a), packed(there, b))):
        sm.gf2.inv(x)
        sm.gf2.solve(x, y)
        sm.gf2.rank(x)
        if isinstance(x, sm.BitMatrix):
            sm.closure(x, "lor_land")
            sm.matrix_power(x, 1, "xor_land").bits[...] = 0
            x, y = x.unpack(), y.unpack()
        assert_array_equal(there.get(x), a)
        assert_array_equal(there.get(y), b)


BITS = sm.BitMatrix(np.zeros((6, 2), np.uint8), 9)
SQUARE = sm.BitMatrix(np.zeros((8, 1), np.uint8))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sm.BitMatrix(np.zeros((2, 2))), TypeError, "dtype float64: BitMatrix.pack"),
        (lambda: sm.BitMatrix([[1]]), TypeError, "got a list"),
        (lambda: sm.BitMatrix(np.zeros(3, np.uint8)), ValueError, "at least two axes"),
        (lambda: sm.BitMatrix(np.zeros((2, 2), np.uint8), 17), ValueError, "17 columns take 3"),
        (lambda: sm.BitMatrix(np.zeros((2, 2), np.uint8), 8), ValueError, "8 columns take 1"),
        (lambda: sm.BitMatrix.pack(np.ones((2, 2))), TypeError, "got dtype float64"),
        (lambda: sm.BitMatrix.pack(np.full((2, 2), 2)), ValueError, "0 or 1"),
        (lambda: sm.BitMatrix.pack(np.ones(2, bool)), ValueError, "takes matrices"),
        (lambda: sm.matmul(BITS, BITS, "lor_land"), ValueError, "k = 9, but b .* k = 6"),
        (lambda: sm.matmul(BITS, BITS, "min_plus"), TypeError, "not closed on bool"),
        (lambda: sm.matmul(SQUARE, np.ones((8, 2)), "lor_land"), TypeError, "b, beside a BitM"),
        (lambda: sm.matmul(SQUARE, SQUARE, "lor_land", out=BITS), TypeError, "no argument but"),
        (lambda: sm.gemm(None, SQUARE, SQUARE, semiring="lor_land"), TypeError, "use a.unpack"),
        (lambda: sm.matrix_power(BITS, 2, "xor_land"), ValueError, "square"),
        (lambda: sm.matrix_power(SQUARE, -1, "xor_land"), ValueError, "at least 0"),
        (lambda: sm.closure(SQUARE, "xor_land"), ValueError, "idempotent"),
        (lambda: sm.closure(BITS, "lor_land"), ValueError, "takes a square BitMatrix"),
        (lambda: sm.closure(SQUARE, "lor_land", sources=[1]), TypeError, "no argument but"),
        (lambda: sm.closure(SQUARE, "lor_land", directed=False), TypeError, "no argument but"),
        (lambda: sm.closure(SQUARE, "min_max"), TypeError, "over lor_land, and not min_max"),
        (lambda: sm.matmul(SQUARE, SQUARE, "xor_land", tiles=TILES), TypeError, "no argument but"),
        (lambda: sm.gf2.rank(np.zeros((2, 2))), TypeError, "rank: a takes truth values"),
        (lambda: sm.gf2.rank(np.zeros(3, bool)), ValueError, r"rank: a is of shape \(M, N\); got"),
        (lambda: sm.gf2.inv(BITS), ValueError, r"inv: a is of shape \(N, N\); got"),
        (lambda: sm.gf2.det(np.full((2, 2), -1)), ValueError, "0 or 1"),
        (lambda: sm.gf2.solve(SQUARE, BITS), ValueError, "b is of .* with N = 8 as in a; got"),
        (lambda: sm.gf2.solve(SQUARE, np.zeros((1, 8, 2), bool)), ValueError, r"\(N, K\) or \(N,"),
    ],
)  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
