"""The CUDA kernels on the host: every verb of the GPU engine against the plain reference.

The device is :class:`host_device.HostDevice`, which compiles ``kernels/*.cuh`` with g++ and refuses
what a device would refuse. Operands lie within poison, so that a read beyond one shows.
"""

import math
import mmap
import struct
from types import SimpleNamespace

import host_device
import numpy as np
import pytest
import reference
from host_device import HostDevice, guarded, on_all_cores
from numpy.testing import assert_allclose, assert_array_equal
from reference import ALGEBRAS, BFLOAT16, BOOL, EVERY, check

import semiring_mm as sm
from semiring_mm.closures import memory
from semiring_mm.closures.solve import Problem
from semiring_mm.closures.sources import ArraySource
from semiring_mm.cpu import engine as cpu
from semiring_mm.engine import JOIN, Scaling
from semiring_mm.gpu import bulk, device, engine, launch, packing, tensor, tiles, trees
from semiring_mm.gpu import closure as closing
from semiring_mm.gpu import facts as scan
from semiring_mm.gpu import product as products
from semiring_mm.gpu import vector as vectors
from semiring_mm.gpu.source import KINDS
from semiring_mm.gpu.tiles import Launch, Tile
from semiring_mm.gpu.vector import gemv
from semiring_mm.plan import Facts
from semiring_mm.products import multiply_into

inf, nan = np.inf, np.nan
pytestmark = pytest.mark.usefixtures("gxx")
HOST = HostDevice()
SMALL = Tile(16, 16, 8, 2, 4, 8)
SMALL_MATRIX = {
    "matrix": Tile(32, 32, 32, 4, 8, 8, 1, 4), "matrix wide": Tile(32, 32, 16, 2, 4, 8, 1, 8, 3),
}  # fmt: skip
SMALL_PAIRS = Tile(32, 32, 16, 4, 8, 8, pairs=True)


@pytest.fixture(autouse=True)
def _host(monkeypatch):
    monkeypatch.setattr(device, "current", lambda: HOST)
    forget()
    yield
    forget()


def forget():
    """What was remembered of tiles and launches."""
    tiles.choose.cache_clear()
    products._plans.cache_clear()
    vectors.shape.cache_clear()
    launch.forget()


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 16 x 16 x 8 (of matrix instructions, 32 x 32), so that small matrices have edges,
    several blocks and parts."""
    use_tile(monkeypatch, SMALL, SMALL_MATRIX)


def split_in(splits, whole):
    """A choice of tiles in which k is split for all but the `whole` first tiles of C."""

    def choose(kind, m, words, k, batch, sms, *, clusters, **_):
        tile = SMALL_MATRIX.get(kind, SMALL)
        tiles_of_c = -(-m // tile.bm) * -(-words // tile.bn) * batch
        if tiles_of_c <= whole:
            return Launch(tile, tiles_of_c)
        return tiles.split_k(tile, whole, k, splits, clusters=clusters)

    return choose


def use_tile(monkeypatch, tile, others=None):
    one = {kind: {(others or {}).get(kind, tile): 1.0} for kind in tiles.TILES}
    monkeypatch.setattr(tiles, "TILES", one)


# --- the host as a device -----------------------------------------------------------------------

LONE = """#include "base.cuh"
struct Params {{ int* out; int n; }};
extern "C" __global__ void __launch_bounds__(64) kernel(const __grid_constant__ Params p) {{
  [[maybe_unused]] int* shared = sr::shared_memory<int>();
  [[maybe_unused]] const int t = int(threadIdx.x);
  {}
}}
"""


def run_lone(body, blocks=1, threads=64, shared=256):
    out = np.full(threads, -7, np.int32)
    params = struct.pack("qi4x", out.ctypes.data, threads)
    HOST.kernel(LONE.format(body)).launch(blocks, threads, shared, params)
    return out


def test_barriers_of_the_host():
    reverse = "shared[t] = t; {}; p.out[t] = shared[p.n - 1 - t];"
    assert_array_equal(run_lone(reverse.format("__syncthreads()")), np.arange(64)[::-1])
    assert -1 in run_lone(reverse.format(""))  # what shared memory holds at first
    turned = "shared[t] = t; {}; p.out[t] = shared[t ^ 31];"
    assert_array_equal(run_lone(turned.format("__syncwarp()")), np.arange(64) ^ 31)
    assert -1 in run_lone(turned.format(""))


def test_order_of_the_threads_of_the_host():
    """A block runs upwards, the next one downwards."""
    assert run_lone("if (p.out[0] < 0) p.out[0] = t;")[0] == 0
    assert run_lone("if (blockIdx.x == 1 && p.out[0] < 0) p.out[0] = t;", blocks=2)[0] == 63


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("if (t < 40) __syncthreads(); else __syncwarp();", "waits for threads that never come"),
        ("if (t == 5) *(int*)(4ll * p.n) = 1;", "block 0, thread 5: access to 0x"),
        ("if (t == 0) shared[p.n] = 1;", "block 0 wrote 0 bytes behind its 256"),
        ("*(long long*)(shared + 2 * t + 1) = 1;", "misaligned access"),
    ],
)  # fmt: skip
def test_the_host_refuses(body, words):
    with pytest.raises(RuntimeError, match=words):
        run_lone(body)


def test_the_host_refuses_parameters_of_another_size():
    with pytest.raises(RuntimeError, match="a struct of 12 bytes came, the kernel takes 16"):
        HOST.kernel(LONE.format("")).launch(1, 64, 0, bytes(12))


def test_under_ci_a_missing_compiler_fails(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    for ci, outcome in (("true", pytest.fail.Exception), ("", pytest.skip.Exception)):
        monkeypatch.setenv("CI", ci)
        with pytest.raises(outcome, match=r"no g\+\+ to compile the kernels with"):
            host_device.need_compiler()


# --- operands in poison -------------------------------------------------------------------------


def poison(name, dtype):
    """A value that shows in any result that it gets into."""
    least = ALGEBRAS[name].add is np.minimum
    if dtype == BOOL:
        return not least
    if dtype.kind in "iu":
        low, high = (0, 99) if dtype.kind == "u" else (-60, 60)
        return low if least else high
    return nan


LAYOUTS = ("C", "F", "odd", "padded", "strided", "reversed", "apart")


def lay(x, how, fill):
    """An array equal to `x` that lies as `how` says, with `fill` around and nothing behind it."""
    *batch, m, n = x.shape
    match how:
        case "C":
            y = guarded((*batch, m, n), x.dtype, fill)
        case "F":
            y = guarded((*batch, n, m), x.dtype, fill).swapaxes(-1, -2)
        case "odd":  # no row begins at a multiple of 16 bytes
            y = guarded((*batch, m, n // 4 * 4 + 5), x.dtype, fill)[..., 1 : n + 1]
        case "padded":
            y = guarded((*batch, m, n // 16 * 16 + 32), x.dtype, fill)[..., :n]
        case "strided":
            y = guarded((*batch, 2 * m, 3 * n), x.dtype, fill)[..., ::2, 1::3]
        case "reversed":
            y = guarded((*batch, m, n), x.dtype, fill)[..., ::-1, ::-1]
        case "apart":  # one matrix of a stack is aligned, the next one is not
            wide, count = n // 16 * 16 + 32, math.prod(batch)
            y = guarded((-(-count // 16) * 16, m * wide + 1), x.dtype, fill)
            y = y[:count, :-1].reshape(*batch, m, wide)[..., :n]
    y[...] = x
    return y


def known_of(name, *arrays):
    return tuple(cpu.facts(sm.semirings[name], x) for x in arrays)


def scaling_of(c, options):
    """The scaling of a product that joins `c`, if that is an array; α and β are taken out."""
    return Scaling(c is not None, options.pop("alpha", None), options.pop("beta", None))


def multiply(name, a, b, c=None, how="CCC", known=(), **options):
    """A ⊗ B by the engine, with each operand laid out as `how` says by its initial.

    Facts are found on the CPU where none are given; for None the engine looks itself.
    """
    full = {layout[0]: layout for layout in LAYOUTS}
    fill = poison(name, a.dtype)
    start = np.full((*a.shape[:-1], b.shape[-1]), fill, a.dtype) if c is None else c
    a, b, out = (lay(x, full[w], fill) for x, w in zip((a, b, start), how, strict=True))
    root = out
    while isinstance(root.base, np.ndarray):
        root = root.base
    if known == ():
        known = known_of(name, a, b, start)
    semiring = sm.semirings[name]
    engine.product(semiring, a, b, out, scaling_of(c, options), known=known, **options)
    result = out.copy()
    out[...] = fill  # nothing is written around the result
    around = np.ndarray((root.size // out.itemsize,), out.dtype, root)
    assert_array_equal(reference.comparable(around), np.full(around.shape, fill, "f4"))
    return result


# --- the product --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALGEBRAS)
@pytest.mark.usefixtures("small_tiles")
def test_every_semiring_and_dtype(name):
    def run(dtype):
        rng = np.random.default_rng(1)
        a, b = (reference.small(rng, name, s, dtype) for s in ((17, 11), (11, 35)))
        check(name, multiply(name, a, b), reference.product(name, a, b))

    on_all_cores(run, ALGEBRAS[name].dtypes)


@pytest.mark.parametrize("with_nan", [True, False], ids=["nan", "no nan"])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("min_plus", "f4"), ("max_times", "f4"), ("max_min", "f4"), ("min_max", "f2"),
     ("plus_times", "f8"), ("any_pair", "f4"), ("max_plus", BFLOAT16), ("log_plus", "f4")],
    ids=str,
)  # fmt: skip
@pytest.mark.usefixtures("small_tiles")
def test_special_values(name, dtype, with_nan):
    """As NumPy's ufuncs have them: inf - inf and 0 * inf are NaN, and min and max keep a NaN."""
    rng = np.random.default_rng(2)
    special = [nan, inf, -inf, -0.0, 0.0, 1.0, -2.0, 3.0][not with_nan :]
    a, b = (rng.choice(special, s).astype(dtype) for s in ((39, 3), (3, 51)))
    a[::3], b[:, ::3] = 2, -1
    check(name, multiply(name, a, b), reference.product(name, a, b))


#: What each step is for, and entries that it may meet; TINY and HUGE leave the normal numbers.
TINY, HUGE = "TINY", "HUGE"
FUSED = [
    ("Nonnegative", "min_plus", "f4", (0, 1, 2.5, 1e-3, TINY, HUGE, inf)),
    ("Nonnegative", "max_plus", "f4", (0, 1, 2.5, 1e-3, TINY, HUGE, inf)),
    ("Nonnegative", "min_times", "f4", (0, 1, 2.5, 1e-3, TINY, HUGE)),
    ("Nonnegative", "max_times", "f4", (0, 1, 2.5, 1e-3, TINY, HUGE)),
    ("FloatsJoined", "min_plus", "f2", (0, 1, 2.5, 1e-3, TINY, HUGE, inf)),
    ("FloatsJoined", "max_times", BFLOAT16, (0, 1, 2.5, 1e-3, TINY, HUGE)),
    ("FloatsJoined", "min_plus", BFLOAT16, (nan, inf, -inf, 0, 1, -2.5, 1e-3, TINY, HUGE)),
    ("FloatsJoined", "max_plus", "f2", (inf, -2.5, -1e-3, TINY, HUGE)),
    ("FloatsJoined", "min_times", "f2", (-inf, 0, 3, -2.5, 1e-3, TINY, HUGE)),
    ("FloatsPaired", "min_plus", "f2", (nan, inf, -inf, 0, 1, -2.5, 1e-3, TINY, HUGE)),
    ("Ordered", "max_min", "f4", (inf, -inf, 0, 1, -2.5, TINY, HUGE)),
    ("Ordered", "min_max", BFLOAT16, (inf, -inf, 0, 1, -2.5, TINY, HUGE)),
    ("Ordered", "max_min", "i1", (-128, 127, 0, 5)),
    ("Ordered", "min_max", "u2", (65535, 0, 5, 32768)),
    ("Ordered", "min_max", "i4", (-(2**31), 2**31 - 1, 0, 5)),
    ("Sums", "min_plus", "i4", (2**31 - 1, 2**26, -(2**26), 0, 1, -7)),
    ("Sums", "max_plus", "i4", (-(2**31), 2**26, -(2**26), 0, 1, -7)),
    ("SumsPaired", "min_plus", "i2", (2**15 - 1, 2**11, -(2**11), 0, 1, -7)),
    ("SumsPaired", "max_plus", "i2", (-(2**15), 2**11, -(2**11), 0, 1, -7)),
    ("Packed", "plus_times", "f4", (0, 1, -2, 8)),
    ("Packed", "min_plus", "f4", (nan, inf, -inf, 0, 1, -2.5, 1e-3, TINY, HUGE)),
    ("Twice", "max_min", "f4", (nan, inf, -inf, 0, 1, -2.5, TINY, HUGE)),
]
#: Architectures that have such a step, where not 90.
ARCHITECTURE = {"Packed": 100, "Twice": 110, "FloatsPaired": 120}


def entries(rng, values, shape, dtype):
    """Each row and column of its own range, so that every value wins somewhere."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "iu":
        info = reference.finfo(dtype)
        ends = {TINY: float(info.smallest_subnormal), HUGE: float(info.max)}
        values = [ends.get(x, x) for x in values]
    return rng.choice(np.array(values).astype(dtype), shape)


@pytest.mark.parametrize(("step", "name", "dtype", "values"), FUSED, ids=str)
@pytest.mark.usefixtures("small_tiles")
def test_fused_steps_equal_the_general_one(step, name, dtype, values, monkeypatch):
    """Bit for bit, with the operands for which they are chosen, and with α, β and C."""
    rng = np.random.default_rng(3)
    known = known_of(name, entries(rng, values, (len(values), 99), dtype))
    for depth in (1, 7):
        for picked in (values, values[depth % 3 :: 2]):  # fewer leave something to win for others
            a, b, c = (entries(rng, picked, s, dtype) for s in ((17, depth), (depth, 35), (17, 35)))
            for options in ({}, {"c": c}, {"c": c, "beta": 1}, {"alpha": 1}):
                scaled = "alpha" in options or "beta" in options
                if scaled and step == "Ordered":
                    continue
                options["known"] = known * 3
                monkeypatch.setattr(HOST, "arch", 75)  # where only the general step is used
                general = multiply(name, a, b, **options)
                monkeypatch.setattr(HOST, "arch", ARCHITECTURE.get(step, 90))
                HOST.launched.clear()
                check(name, multiply(name, a, b, **options), general)
                # α of floats scales A in a pass of its own, whose range is not known
                narrow = step in ("SumsPaired", "FloatsPaired", "FloatsJoined")
                if not scaled or not (narrow or "alpha" in options):
                    assert f"sr::{step}<" in HOST.launched[0]
                if options.keys() == {"known"}:
                    check(name, general, reference.product(name, a, b))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("min_plus", "f4"), ("min_plus", "i2"), ("lor_land", "?"), ("plus_times", "f8")],
)
@pytest.mark.usefixtures("small_tiles")
def test_every_layout(name, dtype):
    """Of A, B and C, by their initials."""

    def run(how):
        rng = np.random.default_rng(4)
        for m, k, n in [(36, 20, 48), (31, 21, 17)]:
            a, b = (reference.small(rng, name, s, np.dtype(dtype)) for s in ((m, k), (k, n)))
            check(name, multiply(name, a, b, how=how), reference.product(name, a, b))

    on_all_cores(run, "CCC CFF FCs FFC oor pps srF FpC".split())


@pytest.mark.parametrize(("name", "dtype"), [("min_plus", "f4"), ("max_plus", "f2")])
def test_pairs_of_k_in_every_layout(name, dtype, monkeypatch):
    """Copied, or through registers; k odd and even, whole tiles and a rest."""
    use_tile(monkeypatch, SMALL_PAIRS)

    def run(how):
        rng = np.random.default_rng(4)
        for m, k, n in [(40, 48, 64), (31, 21, 17), (65, 34, 70)]:
            a, b = (rng.integers(0, 99, s).astype(dtype) for s in ((m, k), (k, n)))
            check(name, multiply(name, a, b, how=how), reference.product(name, a, b))

    on_all_cores(run, "CCC CFF FCs FFC oor".split())
    assert all("8, true>;" in text for text in HOST.launched[-15:])


#: Each tile once, with the first kind that has it.
#: What is computed with the tiles of a kind.
KINDS_OF_PRODUCT = {
    "fma": ("plus_times", "f4"), "word": ("min_plus", "f4"), "coded": ("plus_times", "i1"),
    "nonnegative": ("min_plus", "f4"), "sum": ("plus_min", "f4"), "slow": ("log_plus", "f4"),
    "pair": ("min_plus", "i2"), "halves": ("min_plus", "f2"), "joined halves": ("min_plus", "f2"),
    "joined halves, B along k": ("min_plus", "f2"), "bits": ("lor_land", "?"),
    "wide": ("min_plus", "f8"), "arg": ("min_plus", "f4"), "arg wide": ("max_plus", "f8"),
    "matrix": ("plus_times", "f2"), "matrix wide": ("plus_times", "f8"),
}  # fmt: skip
#: Every tile with words of 4 and of 8 bytes and with arg, where it is used so.
EVERY_TILE = {
    (tile, "wide" in kind, "arg" in kind): kind
    for kind in reversed(tiles.TILES)
    for tile in tiles.TILES[kind]
}


def test_kinds_of_tiles():
    assert tiles.TILES.keys() <= KINDS_OF_PRODUCT.keys()


@pytest.mark.parametrize(
    ("kind", "tile"), [(kind, key[0]) for key, kind in EVERY_TILE.items()], ids=str
)
def test_every_tile_at_its_edges(kind, tile, monkeypatch):
    name, dtype = KINDS_OF_PRODUCT[kind]
    use_tile(monkeypatch, tile)
    rng = np.random.default_rng(5)
    columns = tile.bn * {"pair": 2, "halves": 2, "joined": 2, "bits": 32}.get(kind.split()[0], 1)
    for m, k, n in [
        (tile.bm - 1, tile.bk - 1, columns - 1),
        (tile.bm + 1, tile.bk + 1, columns + 1),
        (3, 2 * tile.bk + 3, columns + 3),
        (tile.bm, 3 * tile.bk, columns),  # all of it whole and aligned
    ]:
        low = 0 if kind == "nonnegative" else -3
        a, b = (reference.small(rng, name, s, np.dtype(dtype), low) for s in ((m, k), (k, n)))
        if kind.startswith("arg"):
            check_arg(name, a, b)
        else:
            how = "CFC" if "B along k" in kind else "CCC"
            check(name, multiply(name, a, b, how=how), reference.product(name, a, b))
        product = HOST.launched[-2 if kind.startswith("arg") else -1]
        assert f"sr::{tile.struct()}" in product


@pytest.mark.usefixtures("small_tiles")
def test_more_rows_of_tiles_than_a_group_of_them_has():
    rng = np.random.default_rng(1)
    a, b = (reference.small(rng, "min_plus", s, np.dtype("f4")) for s in ((147, 5), (5, 70)))
    check("min_plus", multiply("min_plus", a, b), reference.product("min_plus", a, b))


def test_the_same_strides_at_another_alignment():
    """A launch is prepared for what lies at the same place within 32 bytes."""
    rng = np.random.default_rng(2)
    a, b = (rng.integers(0, 9, s).astype("f4") for s in ((40, 68), (64, 68)))
    c = np.empty((40, 40), "f4")
    known = known_of("min_plus", a, b, c)
    for x, y, z in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]:
        left, right, out = a[:, x : x + 64], b[:, y : y + 32], c[:, z : z + 32]
        engine.product(sm.semirings["min_plus"], left, right, out, known=known)
        assert_array_equal(out, (left[:, :, None] + right).min(1))


CASES = [
    ("plus_times", "f4"), ("plus_times", "i4"), ("min_plus", "f8"), ("min_plus", "i4"),
    ("min_plus", "u2"), ("max_plus", "f2"), ("max_plus", BFLOAT16), ("min_plus", "i2"),
    ("min_times", "i8"), ("plus_min", "i2"), ("max_min", "f4"), ("lor_land", "?"),
    ("xor_land", "?"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
@pytest.mark.usefixtures("small_tiles")
def test_scalars_and_joins(name, dtype):
    dtype, rng = np.dtype(dtype), np.random.default_rng(6)
    zero, one = sm.semirings[name].identities(dtype)
    two = True if dtype == BOOL else 2
    if dtype.kind not in "iub":
        zero, one, two = float(zero), float(one), 2.0
    scalars = [two, one, zero]
    a, b, c = (reference.small(rng, name, s, dtype) for s in ((19, 9), (9, 21), (19, 21)))
    for alpha in (None, *scalars):
        result = multiply(name, a, b, alpha=alpha)
        check(name, result, reference.general(name, alpha, a, b))
    for alpha, beta in [(None, None), (None, two), (one, zero), *((x, two) for x in scalars)]:
        result = multiply(name, a, b, c, alpha=alpha, beta=beta, how="CCF")
        check(name, result, reference.general(name, alpha, a, b, beta, c))


@pytest.mark.usefixtures("small_tiles")
def test_scalars_that_cannot_be_taken_out_of_the_sum():
    rng = np.random.default_rng(61)
    a, b = (rng.integers(-5, 6, s).astype("f4") for s in ((7, 9), (9, 8)))
    for name in ("max_times", "min_times"):
        check(name, multiply(name, a, b, alpha=-2.0), reference.general(name, -2.0, a, b))
        with pytest.raises(ValueError, match="scale it first, or use float64"):
            multiply(name, a.astype("i4"), b.astype("i4"), alpha=-2)


@pytest.mark.parametrize(("name", "alpha", "a", "b", "expected"), reference.SCALED_FIRST)
@pytest.mark.usefixtures("small_tiles")
def test_alpha_scales_the_spreadof_a_in_every_verb(name, alpha, a, b, expected):
    """Where a product overflows or is rounded depends on the order; it is that of the CPU."""
    semiring = sm.semirings[name]
    left, right = np.full((7, 5), a, "f4"), np.full((5, 6), b, "f4")
    for m, k, n in ((7, 5, 6), (7, 5, 1), (1, 5, 6)):
        for order in "CF":
            c = np.empty((m, n), "f4", order)
            multiply_into(engine, semiring, left[:m, :k], right[:k, :n], c, Scaling(alpha=alpha))
            assert_array_equal(c, np.full((m, n), expected, "f4"))
    data, columns, rows = left.ravel(), np.tile(np.arange(5), 7), np.arange(8) * 5
    c = np.empty((7, 6), "f4")
    engine.csr_product(semiring, data, columns, rows, right, c, Scaling(alpha=alpha))
    assert_array_equal(c, np.full((7, 6), expected, "f4"))


@pytest.mark.parametrize("dtype", ["f2", BFLOAT16], ids=str)
@pytest.mark.usefixtures("small_tiles")
def test_scaled_16_bit_floats_are_rounded_once(dtype):
    rng = np.random.default_rng(62)
    a, b, c = (rng.uniform(1, 2, s).astype(dtype) for s in ((7, 9), (9, 8), (7, 8)))
    wide = (np.float32(1 / 3) * a.astype("f4"))[:, :, None] * b.astype("f4")
    joined = np.maximum(wide.max(1), np.float32(0.7) * c.astype("f4")).astype(dtype)
    result = multiply("max_times", a, b, c, alpha=1 / 3, beta=0.7)
    check("max_times", result, joined)


@pytest.mark.usefixtures("small_tiles")
def test_over_an_empty_k_the_product_is_zero():
    semiring = sm.Semiring("odd", "min(a, b)", "abs(a - b)", inf, 0)
    c = np.arange(6.0).reshape(2, 3)
    a, b = np.empty((2, 0)), np.empty((0, 3))
    multiply_into(engine, semiring, a, b, c, Scaling(accumulate=True, beta=1.0))
    assert_array_equal(c, abs(1 - np.arange(6.0).reshape(2, 3)))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("plus_times", "f4"), ("plus_times", "i4"), ("min_plus", "f8"), ("max_plus", BFLOAT16),
     ("min_plus", "i2"), ("max_min", "f4"), ("xor_land", "?")],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize(("splits", "whole"), [(2, 0), (11, 0), (7, 1)])
def test_k_in_parts(name, dtype, splits, whole, monkeypatch):
    """Parts of k are joined in their order: by a cluster of blocks, or from memory."""
    monkeypatch.setattr(products, "choose", split_in(splits, whole))
    dtype, rng = np.dtype(dtype), np.random.default_rng(7)
    a, b, c = (reference.small(rng, name, s, dtype, 0, 1) for s in ((17, 241), (241, 19), (17, 19)))
    known = known_of(name, a, b, c)
    HOST.launched.clear()
    check(name, multiply(name, a, b, known=known), reference.product(name, a, b))
    cluster = splits <= tiles.CLUSTER and not whole
    by = f"__cluster_dims__({splits})" if cluster else "sr::ReduceSplits<"
    assert by in HOST.launched[-1]
    one = sm.semirings[name].identities(dtype)[1]
    one = one if dtype.kind in "iub" else float(one)
    result = multiply(name, a, b, c, alpha=one, beta=one, known=known, how="CCs")
    check(name, result, reference.general(name, one, a, b, one, c))


@pytest.mark.parametrize(
    ("name", "dtype"), [("plus_times", "f4"), ("min_plus", "i2"), ("lor_land", "?")]
)
@pytest.mark.parametrize("whole", [99, 2, 0], ids=["whole", "some in parts", "in parts"])
def test_stacks(name, dtype, whole, monkeypatch):
    k = 67
    monkeypatch.setattr(products, "choose", split_in(3, whole))
    rng = np.random.default_rng(8)
    a, b, c = (
        reference.small(rng, name, s, np.dtype(dtype), 0, 1)
        for s in ((3, 18, k), (3, k, 20), (3, 18, 20))
    )
    expected = reference.product(name, a, b)
    for how in ("CCC", "FFs", "ror", "aaa"):
        check(name, multiply(name, a, b, how=how), expected)
    check(name, multiply(name, a, b, c), reference.general(name, None, a, b, None, c))
    fixed = np.broadcast_to(b[1], b.shape)  # one matrix for the whole stack
    out = np.empty_like(c)
    engine.product(sm.semirings[name], a, fixed, out, known=known_of(name, a, b, c))
    check(name, out, reference.product(name, a, fixed))


ARG_CASES = [
    ("min_plus", "f4"), ("min_plus", "f8"), ("min_plus", BFLOAT16), ("max_plus", "i1"),
    ("min_times", "u2"), ("max_times", "i8"), ("max_min", "f4"), ("min_max", "?"), ("max_min", "?"),
]  # fmt: skip


def check_arg(name, a, b, how="C"):
    """The smallest k that attains the result; NaN before all."""
    best = np.argmin if ALGEBRAS[name].add is np.minimum else np.argmax
    expected = best(reference.terms(name, a, b), axis=0)
    arg = lay(np.full(expected.shape, -5, np.int32), how, -5)
    check(name, multiply(name, a, b, arg=arg), reference.product(name, a, b))
    assert_array_equal(arg, expected)


@pytest.mark.parametrize(("name", "dtype"), ARG_CASES, ids=str)
@pytest.mark.usefixtures("small_tiles")
def test_the_k_that_won(name, dtype):
    rng = np.random.default_rng(9)
    for m, k, n in [(1, 1, 3), (3, 41, 5), (17, 31, 33), (5, 99, 17)]:
        a, b = (reference.small(rng, name, s, np.dtype(dtype)) for s in ((m, k), (k, n)))
        check_arg(name, a, b)
        check_arg(name, a, b, "strided")
    check_arg(name, np.stack([a, a[::-1]]), np.stack([b, b]))


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
@pytest.mark.usefixtures("small_tiles")
def test_the_k_that_won_among_nan_and_nothing_reached(dtype):
    for name, zero in (("min_plus", inf), ("max_plus", -inf), ("max_min", -inf)):
        a = np.full((18, 71), zero, dtype)
        b = np.arange(71 * 21, dtype="f8").reshape(71, 21).astype(dtype) % 11
        check_arg(name, a, b)
        a[3, 40:] = 1
        a[4, [33, 50]] = nan
        b[66, 5] = nan
        check_arg(name, a, b)


@pytest.mark.parametrize(("name", "dtype"), [("min_plus", "f4"), ("max_min", "i4")])
@pytest.mark.usefixtures("small_tiles")
def test_predecessors_change_where_an_entry_improves(name, dtype):
    """P[i, j] becomes P[k, j] for the smallest k that improves C[i, j], and stays on a tie."""
    rng = np.random.default_rng(10)
    n = 37
    c, a, b = (reference.small(rng, name, (n, n), np.dtype(dtype), -9, 9) for _ in range(3))
    own, other = (rng.integers(0, 1000, (n, n)).astype(np.int32) for _ in range(2))
    terms = reference.terms(name, a, b)
    least = name == "min_plus"
    best = terms.min(0) if least else terms.max(0)
    k = terms.argmin(0) if least else terms.argmax(0)
    wide = reference.widen(name, c)
    better = best < wide if least else best > wide
    assert better.any()
    assert (best == wide).any()
    expected = np.where(better, np.take_along_axis(other, k, 0), own)
    for how in ("C", "F"):
        marks = lay(own, how, -5)
        result = multiply(name, a, b, c, arg=marks, gather=lay(other, how, -5))
        check(name, result, reference.general(name, None, a, b, None, c))
        assert_array_equal(marks, expected)


@pytest.mark.usefixtures("small_tiles")
def test_triangle_leaves_tiles_below_the_diagonal(monkeypatch):
    monkeypatch.setattr(products, "BASE", 16)  # squares on the diagonal that are computed whole
    rng = np.random.default_rng(11)
    a, b = (reference.small(rng, "min_plus", (60, 60), np.dtype("f4")) for _ in range(2))
    expected = reference.product("min_plus", a, b)
    i, j = np.indices(expected.shape) // 16
    expected[i > j] = 1000
    start = np.where(i > j, np.float32(1000), np.float32(inf))
    check("min_plus", multiply("min_plus", a, b, start, triangle=True), expected)


@pytest.mark.parametrize("overlap", ["a", "b"])
@pytest.mark.usefixtures("small_tiles")
def test_in_place_of_an_operand(overlap):
    rng = np.random.default_rng(12)
    a, b = (reference.small(rng, "min_plus", (40, 40), np.dtype("f4")) for _ in range(2))
    p = rng.integers(0, 99, (40, 40)).astype(np.int32)
    q, semiring = p.copy(), sm.semirings["min_plus"]
    terms = reference.terms("min_plus", a, b)
    c = (a if overlap == "a" else b).copy()
    better = terms.min(0) < c
    expected = np.where(better, np.take_along_axis(p, terms.argmin(0), 0), p)
    operands = (c, b) if overlap == "a" else (a, c)
    result = reference.general("min_plus", None, a, b, None, c)
    engine.product(semiring, *operands, c, JOIN, overlap=overlap, arg=q, gather=q)
    assert_array_equal(c, result)
    if overlap == "b":
        assert_array_equal(q, expected)


# --- a product chooses its kernel ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dtype", "bad"),
    [("min_plus", "f4", -1.0), ("max_times", "f4", inf), ("min_max", "f4", nan),
     ("min_plus", "f2", -inf)],
)  # fmt: skip
@pytest.mark.usefixtures("small_tiles")
def test_a_scan_on_the_device_decides(name, dtype, bad, monkeypatch):
    """Both kernels are launched, and the one that suits the operands writes C."""
    monkeypatch.setattr(products, "_WORTH_A_SCAN", 0)
    rng = np.random.default_rng(13)
    a, b = (rng.integers(0, 9, s).astype(dtype) for s in ((17, 9), (9, 33)))
    a[3, 5] = 0
    for spoilt in (None, a, b):
        if spoilt is not None:
            spoilt[3, 5] = bad
        check(name, multiply(name, a, b, known=None), reference.product(name, a, b))
        if spoilt is not None:
            spoilt[3, 5] = 0


@pytest.mark.parametrize(("name", "value"), [("plus_times", 60), ("min_plus", 100)])
@pytest.mark.usefixtures("small_tiles")
def test_a_result_that_does_not_fit_is_an_error(name, value):
    a, b = np.ones((19, 5), "i1"), np.ones((5, 21), "i1")
    check(name, multiply(name, a, b, known=None), reference.product(name, a, b))
    a[18], b[:, 20] = value, value
    with pytest.raises(OverflowError, match=f"a result of {name} does not fit int8: use a wider"):
        multiply(name, a, b, known=None)


@pytest.mark.parametrize(
    ("name", "dtype"), [("min_plus", "i1"), ("max_plus", "i2"), ("min_plus", "i8")]
)
@pytest.mark.usefixtures("small_tiles")
def test_sums_at_the_ends_of_the_type_computed_in(name, dtype):
    """Sums of the largest entries are no infinity, and infinity plus the least of them is one."""
    dtype, most = np.dtype(dtype), 2 ** (np.iinfo(dtype).bits - 4)
    far = reference.stored(name, ALGEBRAS[name].zero, dtype)
    a = np.array([[most, -most, 0, far]], dtype).T
    check(name, multiply(name, a, a.T), reference.product(name, a, a.T))
    check(name, apply(name, a, a[:1, 0]), reference.matmul(name, a, a[:1, 0]))


OWN = {
    "mixed": ("min(a, b)", "a * 2 + b / 2", lambda a, b: a * 2 + b / 2, np.min, inf),
    "compared": ("max(a, b)", "(a > b) + (a == b)", lambda a, b: 1.0 * (a >= b), np.max, -inf),
    "chosen": ("a + b", "a if a > b else -b", lambda a, b: np.where(a > b, a, -b), np.sum, 0),
    "floored": ("a + b", "a // 3 + b % -4", lambda a, b: a // 3 + b % -4, np.sum, 0),
    "rooted": ("max(a, b)", "sqrt(abs(a)) - abs(b)", lambda a, b: np.sqrt(abs(a)) - abs(b), np.max,
               -inf),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("case", OWN)
@pytest.mark.usefixtures("small_tiles")
def test_semirings_of_the_user(case, dtype):
    add, mul, times, fold, zero = OWN[case]
    semiring = sm.Semiring(case, add, mul, zero, 0)
    rng = np.random.default_rng(14)
    a, b = (rng.integers(-9, 10, s).astype(dtype) for s in ((17, 11), (11, 19)))
    c = np.empty((17, 19), dtype)
    engine.product(semiring, a, b, c)
    assert_array_equal(c, fold(times(a[:, :, None], b), 1))


@pytest.mark.parametrize("verb", [engine.product, cpu.product])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sums_contract_products(dtype, verb):
    """A product is not rounded before it is added, to the sum or to a number; of two both are."""
    x = np.array(1 + 3 * np.finfo(dtype).eps, dtype)
    lost = (int(x * 2**60) ** 2 - int(x * x * 2**60) * 2**60) / 2**120  # by rounding x * x
    assert lost > 0
    for mul, a, b, left in [
        ("a * (b + 0)", [1, x], [-x * x, x], lost),
        (f"(a + 0) * b + {-float(x * x)!r}", [x], [x], lost),
        ("a * b - b * a", [x], [x], 0),
    ]:
        c = np.empty((1, 1), dtype)
        row, column = np.array([a], dtype), np.array([b], dtype).T.copy()
        verb(sm.Semiring("own", "a + b", mul, 0, 0), row, column, c)
        assert c[0, 0] == left, mul


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_functions_agree_with_numpy(dtype):
    """Over k = 1 the sum is one term: a function of a and b."""
    a = np.array([[-inf, -3.5, -0.5, -0.0, 0.0, 1e-3, 0.5, 1.0, 2.5, 20.0, inf, nan]]).T
    a = a.astype(dtype)
    eps = np.finfo(dtype).eps
    for mul, function in {
        "exp(a) + 0 * b": lambda a, b: np.exp(a) + 0 * b,
        "log(a) - expm1(b)": lambda a, b: np.log(a) - np.expm1(b),
        "log1p(a) + 0 * b": lambda a, b: np.log1p(a) + 0 * b,
        "logaddexp(a, b)": np.logaddexp,
        "a // b": np.floor_divide,
        "a % b": np.remainder,
        "a / b": np.divide,
    }.items():
        c = np.empty((a.size, a.size), dtype)
        engine.product(sm.Semiring("one", "a + b", mul, 0, 0), a, a.T.copy(), c)
        with np.errstate(all="ignore"):
            assert_allclose(c, function(a, a.T), rtol=4 * eps, atol=4 * eps, err_msg=mul)


# --- tensor cores -------------------------------------------------------------------------------

PRECISIONS = [
    ("plus_times", "f2", None), ("plus_times", BFLOAT16, None), ("plus_times", "f4", "tf32"),
    ("plus_times", "f4", "float32_emulated"), ("lor_land", "?", None), ("xor_land", "?", None),
    ("plus_times", "f8", None),
]  # fmt: skip


@pytest.fixture
def tensor_cores(monkeypatch):
    """Small products take them, too."""
    monkeypatch.setattr(tensor, "_WORTH", dict.fromkeys(tensor._WORTH, 0))
    monkeypatch.setattr(tensor, "_WORTH_PARTS", 0)
    monkeypatch.setattr(products, "_WORTH_A_SCAN", 0)


def whole(rng, shape, dtype, precision, right=False):
    """Entries whose products and sums are exact in the precision."""
    if dtype == BOOL:
        return rng.random(shape) < 0.05
    most = {"tf32": 9, "float32_emulated": 1 if right else 8000}.get(precision, 2)
    return rng.integers(-most, most + 1, shape).astype(dtype)


#: Of Hopper's instructions, and of a warp's for chips before and after it: their name in the
#: source, and (m, k, n) for row-major operands, for column-major ones and for others.
BY_ARCH = {
    90: ("sr::TensorProduct<", (136, 70, 264), (72, 136, 264), (65, 67, 259)),
    80: ("sr::Matrix", (40, 64, 72), (32, 136, 64), (33, 67, 35)),
}


@pytest.mark.parametrize(
    ("arch", "name", "dtype", "precision"),
    [(90, *case) for case in PRECISIONS] + [(80, *case) for case in PRECISIONS[:3]],
    ids=str,
)
@pytest.mark.usefixtures("tensor_cores", "small_tiles")
def test_tensor_cores(arch, name, dtype, precision, monkeypatch):
    """Tiles and their edges, more of them than blocks, in every layout."""
    monkeypatch.setattr(HOST, "arch", arch)
    monkeypatch.setattr(HOST, "sms", 2)
    dtype = np.dtype(dtype)
    used, rows, columns, odd = BY_ARCH[arch]
    # to row-major ones, whatever they were
    copied = arch == 90 and dtype.itemsize != 2 and precision != "tf32"
    layouts = {"CCC": rows, "ops": odd} | ({} if copied else {"FFF": columns})
    if dtype == np.float64:  # they are not copied
        layouts = dict.fromkeys(("CCC", "FCC", "CFC", "FFC"), rows)

    def run(how):
        rng = np.random.default_rng(21)
        m, k, n = layouts[how]
        k = 17 * k if dtype == BOOL else k  # more than a tile of bits
        a = whole(rng, (m, k), dtype, precision)
        b = whole(rng, (k, n), dtype, precision, right=True)
        result = multiply(name, a, b, how=how, known=None, precision=precision)
        check(name, result, reference.product(name, a, b))

    HOST.launched.clear()
    on_all_cores(run, layouts)
    products = [x for x in HOST.launched if "using Product =" in x and "Certificate" not in x]
    plan = sm.plan.make_plan(sm.semirings[name], dtype, None, None, 1)
    each = len(tensor.kinds_of(plan, precision, arch)) or 1  # of which one runs
    assert sum(used in text for text in products) == each * len(layouts)


@pytest.fixture
def bulk_products(monkeypatch):
    """Small products are made of large tiles, by the copy engine."""
    monkeypatch.setitem(bulk._GAINS, "fma", dict.fromkeys(bulk._GAINS["fma"], 1e9))
    monkeypatch.setitem(bulk._LEAST, "fma", 1)
    monkeypatch.setitem(tiles.TILES, "fma", {tiles.Tile(128, 256, 8, 8, 16, 8, stages=4): 1.0})
    tiles.choose.cache_clear()
    yield
    tiles.choose.cache_clear()


@pytest.mark.usefixtures("bulk_products")
def test_bulk_products(monkeypatch):
    """Operands that lie along k are transposed first; k ends within a tile, and is shared."""
    monkeypatch.setattr(tiles, "_PART", 0)
    monkeypatch.setattr(tiles, "_JOIN", 0)
    rng = np.random.default_rng(31)
    a, b = whole(rng, (132, 164), "f4", None), whole(rng, (164, 260), "f4", None)
    monkeypatch.setattr(HOST, "sms", 3)  # for four tiles
    for how, copied, short in (("CCC", 1, 512), ("FCC", 0, 0), ("CFC", 2, 0), ("FFC", 1, 0)):
        monkeypatch.setattr(bulk, "_SHORT", short)
        HOST.launched.clear()
        check("plus_times", multiply("plus_times", a, b, how=how, known=None), a @ b)
        for kernel, count in (
            ("Convert", copied), ("BulkProduct", 1), ("ReduceSplits", int(not short)),
        ):  # fmt: skip
            assert sum(f"sr::{kernel}<" in text for text in HOST.launched) == count
    # a stack, α and β, one B for all, columns of C that are not aligned
    a, b = whole(rng, (2, 40, 36), "f4", None), whole(rng, (36, 72), "f4", None)[:, :70]
    c = whole(rng, (2, 40, 70), "f4", None)
    wanted, every = 2 * (a @ b) - c, np.broadcast_to(b, (2, *b.shape))
    engine.product(sm.semirings["plus_times"], a, every, c, Scaling(True, 2.0, -1.0))
    check("plus_times", c, wanted)
    assert any("sr::BulkProduct<" in text for text in HOST.launched[-2:])


@pytest.mark.usefixtures("bulk_products", "tensor_cores")
def test_bulk_products_beside_tensor_cores():
    """Which leave infinities to them: one of the two has nothing to do, and must not join C."""
    rng = np.random.default_rng(32)
    a, b = whole(rng, (66, 36), "f4", None), whole(rng, (36, 72), "f4", None)
    for entry in (1, inf):
        a[3, 5], b[5] = entry, 1
        c = whole(rng, (66, 72), "f4", None)
        wanted = a @ b - c
        HOST.launched.clear()
        engine.product(
            sm.semirings["plus_times"], a, b, c, Scaling(True, 1.0, -1.0),
            precision="float32_emulated",
        )  # fmt: skip
        assert_array_equal(c, wanted)
        for kernel in ("sr::TensorProduct<", "sr::BulkProduct<"):
            assert any(kernel in text for text in HOST.launched)


@pytest.mark.parametrize("columns", [128, 64])
@pytest.mark.usefixtures("tensor_cores")
def test_tiles_of_doubles_are_shared(columns, monkeypatch):
    """The last wave's k is computed in parts."""
    monkeypatch.setattr(tensor, "_DOUBLES", {columns: 1.0})
    tensor.choose.cache_clear()
    monkeypatch.setattr(HOST, "sms", 4)
    monkeypatch.setattr(tiles, "_PART", 0)
    monkeypatch.setattr(tiles, "_JOIN", 0)
    rng = np.random.default_rng(29)
    m, k, n = (250, 132, 300) if columns == 128 else (130, 84, 140)
    a, b = whole(rng, (m, k), "f8", None), whole(rng, (k, n), "f8", None)
    for how in ("CCC", "CFC") if columns == 128 else ("CCC", "FCC", "CFC", "FFC"):
        HOST.launched.clear()
        check("plus_times", multiply("plus_times", a, b, how=how, known=None), a @ b)
        for kernel in ("TensorProduct", "ReduceSplits"):
            assert sum(f"sr::{kernel}<" in text for text in HOST.launched) == 1
        assert any(f", {columns}>;" in text for text in HOST.launched)
    tensor.choose.cache_clear()


@pytest.mark.parametrize(("name", "dtype", "precision"), PRECISIONS, ids=str)
@pytest.mark.usefixtures("tensor_cores")
def test_tensor_cores_scale_join_and_share(name, dtype, precision, monkeypatch):
    """α and β, C, stacks, an operand that all have in common; and k in parts."""
    dtype, rng = np.dtype(dtype), np.random.default_rng(22)
    a = whole(rng, (3, 65, 40), dtype, precision)
    b = whole(rng, (40, 66), dtype, precision, right=True)
    c = whole(rng, (3, 65, 66), dtype, precision)
    both = np.stack([reference.product(name, x, b) for x in a])
    shared = np.empty(c.shape, dtype)
    fixed = np.broadcast_to(b, (3, *b.shape))  # one matrix in memory
    for how in ("C", "apart"):
        left = lay(a, how, poison(name, dtype))
        engine.product(sm.semirings[name], left, fixed, shared, precision=precision)
        check(name, shared, both)
    two = {} if dtype == BOOL else {"alpha": 2.0, "beta": -1.0}
    result = multiply(name, a[0], b, c[0], known=None, precision=precision, **two)
    check(name, result, reference.general(name, two.get("alpha"), a[0], b, two.get("beta"), c[0]))
    monkeypatch.setattr(tensor, "_LEAST_DEPTH", 1)
    monkeypatch.setattr(tensor, "_TIMES", {tensor.LARGEST: (1, 0)})
    k = 2500 if dtype == BOOL else 300
    a = whole(rng, (65, k), dtype, precision)
    b = whole(rng, (k, 80), dtype, precision, right=True)
    HOST.launched.clear()
    check(
        name, multiply(name, a, b, known=None, precision=precision), reference.product(name, a, b)
    )
    assert any("sr::ReduceSplits<" in x for x in HOST.launched)


@pytest.mark.parametrize("shape", tensor._TIMES, ids=lambda x: f"{x.rows} x {x.columns}")
@pytest.mark.usefixtures("tensor_cores")
def test_tiles_of_tensor_cores(shape, monkeypatch):
    """Edges, more tiles than blocks, α and β, stacks, k in parts."""
    monkeypatch.setattr(HOST, "sms", 2)

    def always(kind, m, n, k, *_, **__):
        depth = -(-k // (kind.bk * splits)) * kind.bk
        return tensor.Choice(shape, splits, depth)

    monkeypatch.setattr(products, "choose_shape", always)
    for dtype, precision, k in (("f2", None, 88), ("f4", "tf32", 56)):
        splits, rng = 1, np.random.default_rng(k)
        a = whole(rng, (2, 130, k), dtype, precision)
        b = whole(rng, (k, 136), dtype, precision, right=True)
        c = whole(rng, (130, 136), dtype, precision)
        expected = reference.general("plus_times", 2.0, a[0], b, -1.0, c)
        result = multiply(
            "plus_times", a[0], b, c, known=None, precision=precision, alpha=2.0, beta=-1.0
        )
        check("plus_times", result, expected)
        stack = np.empty((2, 130, 136), dtype)
        engine.product(
            sm.semirings["plus_times"], a, np.broadcast_to(b, (len(a), *b.shape)), stack,
            precision=precision,
        )  # fmt: skip
        both = [reference.product("plus_times", x, b) for x in a]
        check("plus_times", stack, np.stack(both))
        text = next(x for x in reversed(HOST.launched) if "using Product =" in x)
        assert f"sr::TensorTile<{shape.rows}, {shape.columns}," in text
        splits = 2
        products._plans.cache_clear()
        check(
            "plus_times", multiply("plus_times", a[0], b, known=None, precision=precision), both[0]
        )
        assert "sr::ReduceSplits<" in HOST.launched[-1]
    products._plans.cache_clear()


@pytest.mark.usefixtures("tensor_cores")
def test_tf32_is_copied_only_where_both_operands_lie_across_k():
    rng = np.random.default_rng(25)
    for how, copies in (("CCC", 0), ("CFF", 0), ("FFC", 0), ("FCC", 1)):
        for k in (24, 64, 104):
            a, b = whole(rng, (72, k), "f4", "tf32"), whole(rng, (k, 136), "f4", "tf32", right=True)
            HOST.launched.clear()
            result = multiply("plus_times", a, b, how=how, known=None, precision="tf32")
            check("plus_times", result, reference.product("plus_times", a, b))
            assert sum("sr::Convert<" in x for x in HOST.launched) == copies


def test_tiles_of_tensor_cores_by_size():
    """The tile that was measured to be the fastest on an H200, for each size."""

    def tiles(dtype, precision, *sizes):
        (kind,) = tensor._KINDS[dtype, precision]
        fine = dtype == "float16"
        return [
            tensor.choose(kind, n, n, n, 1, 132, split=True, fine=fine).shape[:2] for n in sizes
        ]

    assert tiles("float16", None, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192) == [
        *[(64, 32)] * 3, (64, 96), (64, 128), (192, 96), *[(128, 256)] * 3,
    ]  # fmt: skip
    assert tiles("float32", "tf32", 256, 512, 1024, 1536, 2048, 4096) == [
        *[(64, 64)] * 2, (64, 128), (128, 192), *[(128, 256)] * 2,
    ]  # fmt: skip


@pytest.mark.usefixtures("tensor_cores")
def test_a_launch_on_tensor_cores_is_prepared_once(monkeypatch):
    """Operands at other addresses need other tensor maps, and nothing else."""
    prepared, maps = [], []
    prepare, encode = products.prepare_operand, HOST.tensor_map

    def counted(here, kind, x, *lines, **left):
        prepared.append(x.shape)
        return prepare(here, kind, x, *lines, **left)

    def recorded(place, *rest):
        maps.append(place)
        return encode(place, *rest)

    monkeypatch.setattr(products, "prepare_operand", counted)
    monkeypatch.setattr(HOST, "tensor_map", recorded)
    a, b = whole(np.random.default_rng(24), (2, 3, 72, 72), "f2", None)
    c = np.empty((72, 72), "f2")
    for i, j in ((0, 0), (1, 0), (1, 2), (0, 2)):
        engine.product(sm.semirings["plus_times"], a[i], b[j], c)
        assert_array_equal(c, a[i] @ b[j])
    assert len(prepared) == 2
    assert maps == [x.ctypes.data for x in (a[0], b[0], c, a[1], b[2])]


@pytest.mark.parametrize("entry", [inf, nan, 1e-30, 2.0**127, -3e38])
@pytest.mark.usefixtures("tensor_cores")
def test_an_entry_that_has_no_two_parts(entry):
    """Then float32 is multiplied as such, to the last bit."""
    rng = np.random.default_rng(23)
    a, b = (rng.standard_normal(s).astype("f4") for s in ((70, 200), (200, 80)))
    emulated = multiply("plus_times", a, b, known=None, precision="float32_emulated")
    exact = a.astype("f8") @ b.astype("f8")
    single = multiply("plus_times", a, b, known=None, precision="ieee")
    assert (emulated != single).any()  # it is another sum
    assert np.linalg.norm(emulated - exact) <= np.linalg.norm(single - exact)
    a[3, 4] = entry
    emulated = multiply("plus_times", a, b, known=None, precision="float32_emulated")
    assert_array_equal(emulated, multiply("plus_times", a, b, known=None, precision="ieee"))


#: Operands of a float32 product, and whether 16-bit floats with scaled rows hold them: not where
#: large entries of a row meet small ones of a column.
RANGES = {
    "normal": (lambda rng, s, axis: rng.normal(size=s), True),
    "rows": (lambda rng, s, axis: rng.normal(size=s) * 2.0 ** scattered(s, axis), True),
    "wide": (lambda rng, s, axis: rng.normal(size=s) * 2 ** rng.uniform(-20, 20, s), True),
    "along k": (
        lambda rng, s, axis: rng.normal(size=s)
        * 2.0 ** (scattered(s, 1 - axis) * (1 - 2 * axis)),
        False,
    ),
}  # fmt: skip


def scattered(shape, axis):
    """Exponents from -20 to 20, the same ones along an axis."""
    return np.expand_dims(np.linspace(-20, 20, shape[axis]).round(), 1 - axis)


@pytest.mark.parametrize("data", RANGES)
@pytest.mark.usefixtures("tensor_cores")
def test_float32_is_emulated_by_the_shortest_floats_that_hold_it(data, monkeypatch):
    """By three products of float16, else of tf32; neither errs more than float32 itself."""
    draw, held = RANGES[data]
    rng = np.random.default_rng(26)
    k = 1200 if data == "wide" else 300  # few of whose terms make up a sum
    a = draw(rng, (66, k), 0).astype("f4")
    b = draw(rng, (k, 70), 1).astype("f4")
    exact, all_of = a.astype("f8") @ b.astype("f8"), abs(a).astype("f8") @ abs(b).astype("f8")

    def product(precision="float32_emulated", how="CCC"):
        return multiply("plus_times", a, b, how=how, known=None, precision=precision)

    def errors(c):  # of all entries alike: a norm of wide ones is that of a few
        return np.linalg.norm((c - exact) / all_of), (abs(c - exact) / all_of).max()

    found, single = product(), product("ieee")
    assert_array_equal(product(how="FFC"), found)
    if data in ("wide", "along k"):
        stack, fixed = np.stack([a, a]), np.broadcast_to(b, (2, *b.shape))
        both = np.full((2, *found.shape), nan, "f4")
        engine.product(sm.semirings["plus_times"], stack, fixed, both, precision="float32_emulated")
        assert_array_equal(both, [found, found])
    for mine, usual in zip(errors(found), errors(single), strict=True):
        assert mine <= usual
    monkeypatch.setitem(tensor._KINDS, ("float32", "float32_emulated"), (tensor._PAIRS_OF_TF32,))
    products._plans.cache_clear()
    assert (product() != found).any() == held
    products._plans.cache_clear()


@pytest.mark.parametrize("how", ["C", "odd"], ids=["in place", "copied"])
@pytest.mark.usefixtures("tensor_cores")
def test_tensor_cores_round_as_they_say(how):
    """tf32 takes the nearest number of 11 bits; a result of 16 bits is rounded once."""
    largest = (2 - 2.0**-10) * 2.0**127  # of 11 bits
    edge = np.nextafter(np.float32(largest + 2.0**116), np.float32(0))
    x = [1 + 2.0**-11, 1 + 3 * 2.0**-11, -1 - 3 * 2.0**-12, 2.0**-126, edge, 3.4028235e38, -inf]
    rounded = [1, 1 + 2.0**-9, -1 - 2.0**-10, 2.0**-126, largest, inf, -inf]
    column = np.zeros((64, 64), "f4")
    column[: len(x), 0] = x
    ones, found = np.ones((64, 64), "f4"), np.empty((64, 64), "f4")
    engine.product(sm.semirings["plus_times"], lay(column, how, 0), ones, found, precision="tf32")
    assert_array_equal(found[: len(x)], np.array(rounded, "f4")[:, None].repeat(64, 1))
    ones = np.ones((1, 64), "f2") * np.float16(2048)
    terms = np.ones((64, 64), "f2") * np.float16(2.0**-11)
    found = multiply("plus_times", ones.repeat(64, 0), terms, known=None)
    assert_array_equal(found, np.full((64, 64), 64, "f2"))


# --- one pass over an operand -------------------------------------------------------------------


def scanned(x):
    """The same entries in every layout, alone and in a stack."""
    poisoned = nan if x.dtype.kind not in "iu" else (-100 if x.dtype.kind == "i" else 222)
    for how in LAYOUTS:
        yield lay(x, how, poisoned)
        yield lay(np.stack([x, x[::-1]]), how, poisoned)
    yield np.broadcast_to(x, (4, *x.shape))


@pytest.mark.parametrize("dtype", sorted({d for _, d in EVERY if d != BOOL}, key=str), ids=str)
def test_facts(dtype):
    rng = np.random.default_rng(15)
    semiring = sm.semirings["min_plus"]
    for shape in [(1, 1), (5, 3), (16, 48), (3, 2100), (2100, 3)]:
        x = rng.integers(3, 90, shape).astype(dtype)
        variants = [x]
        for end in (2, 120):
            variants.append(x.copy())
            variants[-1][-1, -1] = end
        variants.append(x.copy())
        variants[-1][-1, -1] = (
            reference.stored("min_plus", inf, dtype) if dtype.kind in "iu" else nan
        )
        for variant in variants:
            expected = cpu.facts(semiring, variant)
            found = [
                scan.facts(semiring, y) for y in (scanned(variant) if shape[0] < 20 else [variant])
            ]
            assert all(facts == expected for facts in found), (shape, found, expected)


def test_facts_of_the_ends_and_of_nothing():
    semiring = sm.semirings["plus_times"]
    for dtype in ("i1", "u4", "i8", "u8"):
        info = np.iinfo(dtype)
        x = np.array([[info.min, info.max]], dtype)
        facts = scan.facts(semiring, x)
        assert (facts.lo, facts.hi, facts.special) == (info.min, info.max, False)
    for x in (np.zeros((0, 3), "f4"), np.full((3, 3), nan), np.full((2, 2), 2**31 - 1, "i4")):
        minimum = sm.semirings["min_plus"]
        assert scan.facts(minimum, x) == cpu.facts(minimum, x)


def kinds_of(*operands, **options):
    return int(np.bitwise_or.reduce(scan.flags_of(*operands, **options)))


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", BFLOAT16], ids=str)
def test_flags(dtype):
    values = {"nan": nan, "-inf": -inf, "-": -2.0, "0": -0.0, "+": 1e-3, "+inf": inf}
    assert values.keys() == KINDS.keys() - {"far", "spread", "lossy"}
    ones = np.ones((7, 9), dtype)
    semiring = sm.semirings["min_plus"]
    for kind, value in values.items():
        x = ones.copy()
        x[6, 8] = value
        expected = cpu.facts(semiring, x).kinds()  # that may lie between the least and the greatest
        assert expected >= {"+", kind}
        for operands in ((x, ones), (ones, x.T), (x, x)):
            assert kinds_of(*operands) == sum(KINDS[k] for k in expected)
    everything = np.array([list(values.values())], dtype)
    assert kinds_of(everything, ones) == sum(KINDS[k] for k in values)


def test_flags_of_what_has_no_two_parts():
    """0, and what is from 2^-50 to below 2^127, is at hand; the rest is far."""
    largest = np.finfo("f4").max
    for size, far in [
        (0, 0), (2.0**-50, 0), (np.nextafter(np.float32(2.0**-50), 0), 1), (1e-40, 1), (1, 0),
        (np.nextafter(np.float32(2.0**127), 0), 0), (2.0**127, 1), (largest, 1), (inf, 1), (nan, 1),
    ]:  # fmt: skip
        for sign in (1, -1):
            x = np.ones((9, 70), "f4")
            x[8, 69] = sign * np.float32(size)
            found = kinds_of(x, x.T, far=True)
            assert bool(found & KINDS["far"]) == bool(far), size
            assert not kinds_of(x, x) & KINDS["far"]


@pytest.mark.parametrize("how", LAYOUTS)
def test_packed_bits(how):
    rng = np.random.default_rng(16)
    for shape in [(1, 1), (3, 31), (5, 32), (7, 33), (2, 300), (300, 2), (64, 64), (3, 5, 70)]:
        x = rng.random(shape) < 0.5
        words = -(-shape[-1] // 32)
        whole = np.zeros((*shape[:-1], 32 * words), bool)
        whole[..., : shape[-1]] = x
        expected = np.packbits(whole, axis=-1).view("<u4")
        laid = lay(x, how, True)
        assert_array_equal(packing.packed_bits(laid), expected)
        assert_array_equal(packing.packed_bits((laid.view("u1") * 6).view(bool)), expected)


# --- matrix and vector --------------------------------------------------------------------------


def apply(name, a, x, y=None, step=1, **options):
    """A ⊗ x by the engine; vectors with gaps of poison for a `step` other than 1."""
    fill = poison(name, a.dtype)
    laid = []
    for vector in (x, np.full(a.shape[0], fill, a.dtype) if y is None else y):
        laid.append(guarded((abs(step) * vector.size,), a.dtype, fill)[::step])
        laid[-1][...] = vector
    gemv(sm.semirings[name], a, *laid, scaling_of(y, options), **options)
    result = laid[1].copy()
    laid[1][...] = fill
    return result


def test_gemv_of_every_semiring_and_every_dtype():
    """Each with some of the other: the algebras are those of the products above."""

    def run(case):
        name, dtype = case
        rng = np.random.default_rng(17)
        a, x = (reference.small(rng, name, s, dtype) for s in ((17, 39), (39,)))
        matrix = lay(a, "odd", poison(name, dtype))
        check(name, apply(name, matrix, x), reference.matmul(name, a, x))

    cases = [case for case in EVERY if case[0] == "min_plus" or case[1] == np.dtype("f4")]
    on_all_cores(run, [*cases, *(case for case in EVERY if case[1] == BOOL)])


@pytest.mark.parametrize("how", ["C", "F"])
@pytest.mark.parametrize(("name", "dtype"), [("plus_times", "f4"), ("max_plus", "f8")])
def test_gemv_in_parts(name, dtype, how, monkeypatch):
    """Of k; another kernel joins them."""
    monkeypatch.setattr(vectors, "_SMALL", 0)
    rng = np.random.default_rng(20)
    a, x, y = (rng.integers(-1, 2, s).astype(dtype) for s in ((3, 40_000), (40_000,), (3,)))
    matrix = lay(a, how, nan)
    HOST.launched.clear()
    check(name, apply(name, matrix, x), reference.matmul(name, a, x))
    result = apply(name, matrix, x, y, alpha=2.0, beta=3.0)
    assert sum("sr::ReduceVector<" in text for text in HOST.launched) == 2
    algebra = ALGEBRAS[name]
    terms = algebra.add.reduce(algebra.mul(a, x), 1)
    check(name, result, algebra.add(algebra.mul(2, terms), algebra.mul(3, y)).astype(dtype))


#: ⊗ leaves the right operand out: the rows of A are summed.
SUM = sm.Semiring("sum", "a + b", "a", 0, 1)


@pytest.mark.parametrize("how", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", BFLOAT16], ids=str)
def test_sums_are_compensated(dtype, how):
    """0.1 added up 40,000 times is off by hundreds of units in the last place otherwise."""
    a = lay(np.full((3, 40_000), 0.1, dtype), how, nan)
    a[2, 7], y = inf, np.empty(3, dtype)
    gemv(SUM, a, np.full(1, nan, dtype).repeat(40_000), y)
    exact = math.fsum(a[0].tolist())
    unit = {"float16": 2**-10, "float32": 2**-23, "float64": 2**-52}.get(a.dtype.name, 2**-7)
    assert_allclose(y[:2].astype("f8"), exact, rtol=2 * unit, atol=0)
    assert y[2] == inf


@pytest.mark.parametrize("gaps", [False, True])
def test_gemv_of_a_stack(gaps):
    rng = np.random.default_rng(21)
    a, x = (rng.integers(0, 9, s).astype("f4") for s in ((4, 70, 33), (33,)))
    y = np.full((4, 140), nan, "f4")[:, :: 2 if gaps else 1][:, :70]
    for stack in (a, a.transpose(0, 2, 1).copy().transpose(0, 2, 1)):
        out = y.copy() if not gaps else y
        gemv(sm.semirings["min_plus"], stack, x, out)
        assert_array_equal(out, (a + x).min(-1))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("min_plus", "f4"), ("plus_times", "f8"), ("max_plus", "i1"), ("xor_land", "?")],
)
def test_gemv_of_every_layout(name, dtype):
    def run(how):
        rng = np.random.default_rng(18)
        dtype_ = np.dtype(dtype)
        for m, k in [(1, 5000), (40, 48), (1031, 7), (64, 2000)]:
            a, x, y = (reference.small(rng, name, s, dtype_, -1, 1) for s in ((m, k), (k,), (m,)))
            if dtype_.kind == "i":
                a[:, : k // 2] = 0
            matrix = lay(a, how, poison(name, dtype_))
            check(name, apply(name, matrix, x), reference.matmul(name, a, x))
            expected = reference.general(name, None, a, x[:, None], None, y[:, None])[:, 0]
            check(name, apply(name, matrix, x, y, step=-2), expected)

    on_all_cores(run, ("C", "F", "odd", "strided"))


# --- functions of entries ------------------------------------------------------------------------


@pytest.mark.parametrize("how", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_functions_of_entries(dtype, how):
    """In place, of two matrices and of a number; nothing is read or written around them."""
    expr = sm.Semiring("scaled", "a + b", "a * b - a", 0, 1).mul_expr
    for shape in [(1, 1), (3, 8), (70, 40), (2, 1100), (0, 4)]:
        rng = np.random.default_rng(20)
        a, b = (rng.integers(-9, 9, shape).astype(dtype) for _ in range(2))
        x, y = (lay(v, how, nan) for v in (a, b))
        engine.apply(expr, x, y)
        assert_array_equal(x, a * b - a)
        assert_array_equal(y, b)
        engine.apply(expr, y, 3.0)
        assert_array_equal(y, 2 * b)


# --- closures -----------------------------------------------------------------------------------


def eliminated(name, a, marks):
    """Kleene's elimination, k after k; marks follow strict improvements."""
    algebra = ALGEBRAS[name]
    x, p = reference.widen(name, a), marks.copy()
    for k in range(a.shape[-1]):
        through = reference.times(name, x[..., :, k, None], x[..., k, None, :], a.dtype)
        joined = algebra.add(x, through)
        p = np.where((joined != x) & (through == joined), p[..., k, None, :], p)
        x = joined
    return reference.narrow(name, x, a.dtype), p


@pytest.mark.parametrize("with_marks", [False, True], ids=["values", "predecessors"])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("min_plus", "f4"), ("min_plus", "f8"), ("max_min", "f4"), ("min_plus", "i4"),
     ("min_plus", "i2"), ("max_times", "f2"), ("lor_land", "?")],
)  # fmt: skip
def test_closures_of_small_matrices(name, dtype, with_marks):
    """Each in one launch, alone and in stacks."""
    dtype, semiring = np.dtype(dtype), sm.semirings[name]

    def run(n):
        rng = np.random.default_rng(19)
        a = reference.small(rng, name, (3, n, n), dtype, 0, 9)
        if name == "max_times":
            a = (a / 16).astype(dtype)
        zero, one = semiring.identities(dtype)
        if dtype != BOOL:
            a[rng.random(a.shape) < 0.7] = zero
        loops = (slice(None), range(n), range(n))
        given = a.copy()  # whose diagonal counts for nothing
        given[loops] = zero
        a[loops] = one
        marks = np.broadcast_to(np.arange(n, dtype=np.int32)[:, None], a.shape).copy()
        expected, before = eliminated(name, a, marks)
        marks_of_edges = np.where(given == zero, np.int32(-9999), marks)
        trees = eliminated(name, a, marks_of_edges)[1]
        trees[loops] = -9999
        for how in ("C", "odd", "strided"):
            x, p = lay(given, how, poison(name, dtype)), lay(marks, how, -5)
            known = None
            if dtype.kind in "iu":
                known = (cpu.facts(semiring, expected).join(cpu.facts(semiring, a)),) * 3
            out = np.empty_like(x) if how == "C" else x
            done = engine.closure_batch(semiring, x, known, out, p if with_marks else None)
            assert done
            assert_array_equal(out, expected)
            if with_marks:
                assert_array_equal(p, trees)
            if out is not x:
                assert_array_equal(x, given)
            if n <= engine.BASE:
                y, q = lay(a[1], how, poison(name, dtype)), lay(marks[1], how, -5)
                engine.closure_block(semiring, y, known, q if with_marks else None)
                assert_array_equal(y, expected[1])
                if with_marks:
                    assert_array_equal(q, before[1])

    # squares of 32, 64, 96 and more, with edges and whole; types differ in the smaller ones
    plain = (name, dtype) == ("min_plus", np.dtype("f4"))
    on_all_cores(run, (1, 31, 32, 33, 64, 90, 128) if plain else (1, 5, 32, 63))


@pytest.mark.parametrize("where", [engine, cpu], ids=["gpu", "cpu"])
def test_nan_is_better_than_a_number_in_closures(where):
    rng = np.random.default_rng(40)
    for n in (20, where.BASE):  # k after k
        x = rng.integers(1, 9, (n, n)).astype("f4")
        x[rng.random(x.shape) < 0.7] = inf
        np.fill_diagonal(x, 0)
        x[n // 2, 3] = x[1, n - 2] = nan
        marks = np.broadcast_to(np.arange(n, dtype=np.int32)[:, None], x.shape).copy()
        found, p = x.copy(), marks.copy()
        where.closure_block(sm.semirings["min_plus"], found, None, p)
        for k in range(n):
            through = x[:, k, None] + x[k]
            wins = (through < x) | (np.isnan(through) & ~np.isnan(x))
            wins[k] = False
            x, marks = np.where(wins, through, x), np.where(wins, marks[k], marks)
        assert np.isnan(x).all()  # whose predecessors tell in which order it came
        assert_array_equal(found, x)
        assert_array_equal(p, marks)


def check_predecessors(name, w, d, p, *, trees=True):
    """Each is the last node of a best path before its end; rows are trees, unless ties closed one.

    `w` has zero on its diagonal.
    """
    n = len(w)
    there = d != sm.semirings[name].identities(d.dtype)[0]
    np.fill_diagonal(there, False)
    assert_array_equal(p[~there], -9999)
    row, end = np.nonzero(there)
    node = p[there]
    assert ((node >= 0) & (node < n)).all()
    far, last = (reference.widen(name, x) for x in (d[row, node], w[node, end]))
    found = reference.narrow(name, reference.times(name, far, last, d.dtype), d.dtype)
    found[node == row] = w[node, end][node == row]
    assert_array_equal(found, d[there])
    ends = np.where(p < 0, np.arange(n)[:, None], p)
    for _ in range(n.bit_length() if trees else 0):
        ends = np.take_along_axis(ends, ends, 1)
    assert not trees or (ends == np.arange(n)[:, None]).all()


#: Tiles of 32 x 32, by 64 threads: more of them in small matrices.
CLOSING = Tile(32, 32, 32, 4, 4, 8)


@pytest.mark.parametrize("with_marks", [False, True], ids=["values", "predecessors"])
@pytest.mark.parametrize(
    ("name", "dtype", "step"),
    [("min_plus", "f4", "General"), ("min_plus", "f4", "Nonnegative"),
     ("min_plus", "f8", "General"), ("max_min", "f4", "Ordered"), ("min_plus", "i4", "Sums"),
     ("min_plus", "i8", "General"), ("max_times", "f2", "General"), ("lor_land", "?", "General")],
)  # fmt: skip
def test_closures_by_tiles(monkeypatch, name, dtype, step, with_marks):
    """In one launch: tasks in order, whatever comes ahead; alone, in stacks and in place.

    Predecessors come from the closure, by kernels of their own.
    """
    monkeypatch.setattr(closing, "_TILES", (CLOSING, CLOSING))
    monkeypatch.setattr(closing, "shape", lambda *_, **__: None)
    monkeypatch.setattr(HOST, "sms", 8)  # blocks, some of which fall behind
    dtype, semiring = np.dtype(dtype), sm.semirings[name]

    def run(n, how, stacked, ahead):
        monkeypatch.setattr(trees, "_MANY", -1 if how == "odd" else n)
        rng = np.random.default_rng(n)
        given = reference.small(rng, name, (2, n, n), dtype, 0, 99)
        if name == "max_times":
            given = (0.5 ** (given % 10)).astype(dtype)  # products are not rounded
        zero, one = semiring.identities(dtype)
        if dtype != BOOL:
            given[rng.random(given.shape) < 0.7] = zero
        else:
            given &= rng.random(given.shape) < 3 / n
        loops = (slice(None), range(n), range(n))
        given[loops] = zero
        a = given.copy()
        a[loops] = one
        marks = np.broadcast_to(np.arange(n, dtype=np.int32)[:, None], a.shape).copy()
        marks[given == zero] = -9999
        expected = [eliminated(name, a[i], marks[i])[0] for i in range(2)]
        known = None
        if dtype.kind in "iu":
            known = (Facts(-(1 << 28), 1 << 28, True),) * 3
        elif step != "General":
            known = (Facts(0, inf, False),) * 3
        monkeypatch.setattr(closing, "_AHEAD", ahead)
        x, p = lay(given, how, poison(name, dtype)), lay(np.full_like(marks, 77), how, -5)
        out = np.empty_like(x) if how == "C" else x
        if stacked:
            engine.closure_batch(semiring, x, known, out, p if with_marks else None)
        else:
            engine.closure_batch(semiring, x[0], known, out[0], p[0] if with_marks else None)
            y, q = lay(a[1], how, poison(name, dtype)), lay(marks[1], how, -5)
            engine.closure_block(semiring, y, known, q if with_marks else None)
            out[1], p[1] = y, q
        for i in range(2):
            assert_array_equal(out[i], expected[i])
            if with_marks:
                check_predecessors(name, given[i], expected[i], p[i], trees=stacked or i == 0)
        assert any(f"sr::{step}<Algebra>" in x for x in HOST.launched[-5:])

    cases = [(70, "odd", True, 0), (100, "C", False, 1)]
    if (name, dtype, step) == ("min_plus", np.dtype("f4"), "Nonnegative"):
        cases += [(30, "C", False, 5), (64, "strided", False, 1), (132, "C", False, 2)]
        cases += [(200, "C", False, 1)]  # whose panels are in the memory of others, rounds before
    for case in cases:
        run(*case)


@pytest.mark.parametrize("kind", ["ring", "random"])
def test_columns_with_many_tight_edges_leave_no_row_to_be_searched(monkeypatch, kind):
    """Where all weights are positive: a search would mend a row that is wrong, and take long."""
    monkeypatch.setattr(closing, "_TILES", (CLOSING, CLOSING))
    monkeypatch.setattr(closing, "shape", lambda *_, **__: None)
    monkeypatch.setattr(trees, "_MANY", -1)
    kernel, none = HOST.kernel, SimpleNamespace(launch=lambda *_, **__: None)
    monkeypatch.setattr(HOST, "kernel", lambda x: none if "::attach(p)" in x else kernel(x))
    n, rng = 100, np.random.default_rng(3)
    w = np.where(rng.random((n, n)) < 0.3, rng.integers(1, 9, (n, n)), inf)
    if kind == "ring":
        w[...], order = inf, rng.permutation(n)
        w[order, np.roll(order, 1)] = 1
    w = w.astype("f4")[np.newaxis]
    d, p = np.empty_like(w), np.empty(w.shape, np.int32)
    known = (Facts(0, inf, False),) * 3
    assert not engine.closure_batch(sm.semirings["min_plus"], w, known, d, p).any()
    check_predecessors("min_plus", w[0], d[0], p[0], trees=True)


@pytest.mark.parametrize("kind", ["zeros", "ring", "metric", "layers", "large"])
@pytest.mark.parametrize(("name", "dtype"), [("min_plus", "f4"), ("max_min", "f4")])
def test_predecessors_among_ties(monkeypatch, name, dtype, kind):
    """Equally good edges close cycles, which are broken; strips of rows give the same.

    So do nodes on the way, which are found from the changes of the elimination.
    """
    monkeypatch.setattr(closing, "_TILES", (CLOSING, CLOSING))
    n = 150
    rng = np.random.default_rng(3)
    w = np.full((n, n), sm.semirings[name].zero, dtype)
    if kind == "zeros":  # many circles of weight zero
        some = rng.random((n, n)) < 0.05
        w[some] = rng.integers(0, 2, some.sum())
    elif kind == "ring":  # a long way, both ways for nothing
        order = rng.permutation(n)
        w[order, np.roll(order, 1)] = w[np.roll(order, 1), order] = 0
    elif kind == "metric":  # every edge is tight
        x = rng.integers(0, 99, n)
        w = np.abs(x[:, None] - x).astype(dtype)
    elif kind == "large":  # integers that differ by less than rounding does elsewhere
        w = rng.integers(1_000_000, 8_000_000, (n, n)).astype(dtype)
        w[:9, 9:50] = 7_000_000
        w[:9, :9], w[9:50, 9:50] = 1, 3
        w[3, 9:50] = 6_999_996
    else:  # many tight edges, of which few lead on
        w[:50, 50:100] = w[50:100, 100:] = 1
    np.fill_diagonal(w, sm.semirings[name].zero)
    found = []
    split = [(1, -1)] if name == "min_plus" and kind in ("zeros", "metric") else []
    for strip, many in [(1 << 28, n), (1, n), *split]:
        monkeypatch.setattr(trees, "_STRIP", strip)
        monkeypatch.setattr(trees, "_MANY", many)
        d, p = np.empty_like(w), np.full(w.shape, 77, np.int32)
        engine.closure_batch(sm.semirings[name], w, None, d, p)
        check_predecessors(name, w, d, p)
        found.append(p)
    assert_array_equal(*found[:2])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_predecessors_where_sums_are_rounded(monkeypatch, dtype):
    """Nodes in a plane: rounding finds ways around edges that are as short as any."""
    monkeypatch.setattr(closing, "_TILES", (CLOSING, CLOSING))
    n, s = 200, sm.semirings["min_plus"]
    x = np.random.default_rng(5).random((n, 2))
    w = np.abs(x[:, None] - x).sum(2).astype(dtype)
    for many in (n, -1):
        monkeypatch.setattr(trees, "_MANY", many)
        d, p = np.empty_like(w), np.full(w.shape, 77, np.int32)
        unknown = engine.closure_batch(s, w, None, d, p)
        assert not unknown.any()
        row, end = np.nonzero(~np.eye(n, dtype=bool))
        assert (d < w).sum() > 1000  # by rounding alone
        assert (p[row, end] == row).mean() > 0.999
        assert_allclose(d[row, p[row, end]] + w[p[row, end], end], d[row, end], rtol=8e-7)


def test_predecessors_of_large_matrices(monkeypatch):
    """In one memory they are found from the closure, whichever products have computed it."""
    monkeypatch.setattr(engine, "LEAF", engine.BASE)
    monkeypatch.setattr(engine, "free_memory", lambda: None)
    n, s = 300, sm.semirings["min_plus"]
    rng = np.random.default_rng(4)
    w = rng.integers(0, 9, (n, n)).astype("f4")
    w[rng.random(w.shape) > 0.05] = inf
    np.fill_diagonal(w, inf)
    expected = sm.apsp(w, directed=True, device="cpu")
    for array, original in ((w.copy(), None), (w.copy(), w)):  # overwritten, or kept
        problem = Problem.of(ArraySource(engine, s, array, original), None, True)
        d, p = memory.close(problem)
        assert_array_equal(d, expected)
        check_predecessors("min_plus", w, d, p)
        assert any("::attach(p)" in x for x in HOST.launched)
        HOST.launched.clear()


def test_large_matrices_with_many_tight_edges_are_closed_at_once(monkeypatch):
    monkeypatch.setattr(closing, "_TILES", (CLOSING, CLOSING))
    monkeypatch.setattr(engine, "LEAF", engine.BASE)
    monkeypatch.setattr(engine, "free_memory", lambda: None)
    monkeypatch.setattr(trees, "_MANY", 20)
    HOST.launched.clear()
    n, s = 140, sm.semirings["min_plus"]
    x = np.random.default_rng(6).random((n, 2))
    w = np.abs(x[:, None] - x).sum(2).astype("f4")
    for many, most in ((False, n), (True, n - 1), (True, n)):
        monkeypatch.setattr(trees, "_SPLITS", most)  # above, predecessors are carried
        edges = np.where(w < 0.4, w, inf) if many else w**4  # which makes ways around better
        array, original = edges.copy(), None if most == n else edges
        d, p = memory.close(Problem.of(ArraySource(engine, s, array, original), None, True))
        assert any("::split(p)" in x for x in HOST.launched) == (many and most == n)
        assert any("::attach(p)" in x for x in HOST.launched) == (not many or most == n)
        row, end = np.nonzero(p >= 0)
        assert_allclose(d[row, p[row, end]] + edges[p[row, end], end], d[row, end], rtol=2e-6)
        assert (p >= 0).sum() == n * n - n
        HOST.launched.clear()
    edges[4, 5], edges[5, 4] = -1, 0.5
    problem = Problem.of(ArraySource(engine, s, edges.copy(), edges), None, True)
    with pytest.raises(sm.NegativeCycleError):
        problem.solve(memory.close)


@pytest.mark.parametrize("dtype", ["i4", "i8"])
@pytest.mark.parametrize("name", ["min_plus", "max_plus"])
def test_integers_that_improve_themselves_stay_in_their_range(monkeypatch, name, dtype):
    """A cycle would double its gain at each step, to a multiple of 2^64 soon."""
    monkeypatch.setattr(closing, "_TILES", (CLOSING, CLOSING))
    known = (Facts(-(1 << 27), 1 << 27, True),) * 3
    better = -1 if name == "min_plus" else 1
    for first in (0, 100):  # nodes from which on each two make such a cycle
        x = np.full((140, 140), sm.semirings[name].identities(np.dtype(dtype))[0], dtype)
        x[first:, first:] = better
        np.fill_diagonal(x, 0)
        engine.closure_block(sm.semirings[name], x, known)
        assert (better * x.diagonal() > 0).any()
        assert (abs(x[abs(x.astype("f8")) < 1 << 29]) < 1000).all()


# --- strides that 32 bits do not hold -----------------------------------------------------------


NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # which Python has from 3.13 on


def far(x, axis):
    """An array equal to `x` that takes more than 2^34 elements along an axis; the rest of them is
    0, and memory that is never touched."""
    step = (1 << 34) // (x.shape[axis] - 1) // 16 * 16 + 16
    inside = np.moveaxis(x, axis, 0)[0].size
    memory = mmap.mmap(
        -1, (step * (x.shape[axis] - 1) + inside) * x.itemsize,
        flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE,
    )  # fmt: skip
    flat = np.frombuffer(memory, np.uint8).view(x.dtype)
    y = np.lib.stride_tricks.as_strided(
        flat, (x.shape[axis], inside), (step * x.itemsize, x.itemsize)
    )
    rest = [n for i, n in enumerate(x.shape) if i != axis]
    y = np.moveaxis(y.reshape(x.shape[axis], *rest), 0, axis)
    y[...] = x
    return y


def each_far(*operands):
    """The operands, far along their first axis, or their second, ..."""
    for axis in range(max(x.ndim for x in operands)):
        yield [far(x, axis) if x.ndim > axis and x.shape[axis] > 1 else x for x in operands]


@pytest.mark.usefixtures("small_tiles")
def test_products_over_more_elements_than_32_bits_count():
    rng = np.random.default_rng(30)
    shapes = [(3, 17, 11), (3, 11, 35), (3, 17, 35)]
    a, b, c = (rng.integers(5, 10, shape).astype("f4") for shape in shapes)
    known = known_of("min_plus", a, b, c)
    expected, arg = (a[..., None] + b[:, None]).min(2), (a[..., None] + b[:, None]).argmin(2)
    for x, y, out, k in each_far(a, b, np.zeros_like(c), np.zeros(c.shape, "i4")):
        engine.product(sm.semirings["min_plus"], x, y, out, known=known)
        assert_array_equal(out, expected)
        out[...] = 0
        engine.product(sm.semirings["min_plus"], x, y, out, arg=k, known=known)
        assert_array_equal(out, expected)
        assert_array_equal(k, arg)


@pytest.mark.usefixtures("tensor_cores")
@pytest.mark.parametrize(("dtype", "precision"), [("f2", None), ("f4", "tf32")])
def test_tensor_cores_over_more_elements_than_32_bits_count(dtype, precision):
    rng = np.random.default_rng(31)
    shapes = [(2, 65, 40), (2, 40, 66), (2, 65, 66)]
    a, b, c = (rng.integers(1, 3, shape).astype(dtype) for shape in shapes)
    for x, y, out in each_far(a, b, np.zeros_like(c)):
        engine.product(sm.semirings["plus_times"], x, y, out, precision=precision)
        assert_array_equal(out, a @ b)


def test_other_verbs_over_more_elements_than_32_bits_count():
    rng = np.random.default_rng(32)
    a, x, y, b = (rng.integers(5, 10, s).astype("f4") for s in ((17, 35), (35,), (17,), (35, 8)))
    semiring = sm.semirings["min_plus"]
    for k in (35, 5):
        for matrix, left, right in each_far(a[:, :k], x[:k], np.zeros_like(y)):
            gemv(semiring, matrix, left, right)
            assert_array_equal(right, (a[:, :k] + x[:k]).min(1))
    ends, columns = np.arange(0, 596, 35, dtype="i4"), np.tile(np.arange(35, dtype="i4"), 17)
    data, offsets = np.tile(b[:, 0], (3, 1)), np.array([0, 2, -3], "i4")
    band = np.full((17, 35), inf)
    for offset in offsets:
        for i in range(max(0, -offset), 17):
            band[i, i + offset] = b[i + offset, 0]
    for right, out in each_far(b, np.zeros((17, 8), "f4")):
        engine.csr_product(semiring, a.ravel(), columns, ends, right, out)
        assert_array_equal(out, (a[:, :, None] + b).min(1))
    for diagonals, right, out in each_far(data, b, np.zeros((17, 8), "f4")):
        engine.dia_product(semiring, diagonals, offsets, right, out)
        assert_array_equal(out, (band[:, :, None] + b).min(1))
    stack = np.stack([a, a + 20])
    for spread, truth in each_far(stack, stack > 20):
        for part in (slice(None), slice(34)):  # rows in one piece, or not
            assert scan.facts(semiring, spread[..., part]) == cpu.facts(semiring, stack[..., part])
        assert_array_equal(packing.packed_bits(truth), packing.packed_bits(stack > 20))
    for left, right in each_far(a, a + 1):
        engine.apply(sm.semirings["plus_times"].add_expr, left, right)
        assert_array_equal(left, 2 * a + 1)
    w = rng.integers(5, 99, (3, 20, 20)).astype("f4")
    closed, tree = np.empty_like(w), np.empty(w.shape, "i4")
    engine.closure_batch(semiring, w, None, closed, tree)
    for given, out, marks in each_far(w, np.zeros_like(w), np.zeros_like(tree)):
        engine.closure_batch(semiring, given, None, out, marks)
        assert_array_equal(out, closed)
        assert_array_equal(marks, tree)
    square = np.triu(w[0])
    for (x,) in each_far(square):
        engine.mirror(x)
        assert_array_equal(x, square + np.triu(square, 1).T)


@pytest.mark.parametrize("shape", tensor.FINE, ids=lambda x: f"{x.rows} x {x.columns}")
@pytest.mark.usefixtures("tensor_cores")
def test_fine_tiles_of_tensor_cores(shape, monkeypatch):
    """Of a right operand along k: α and β, edges, stacks; C by rows and by columns."""
    monkeypatch.setattr(HOST, "sms", 2)
    monkeypatch.setattr(products, "choose_shape", lambda *_, **__: tensor.Choice(shape, 1, 88))
    monkeypatch.setattr(tensor, "choose", lambda *_, **__: tensor.Choice(shape, 1, 88))
    rng = np.random.default_rng(27)
    a, b = whole(rng, (2, 136, 88), "f2", None), whole(rng, (88, 200), "f2", None, right=True)
    c = whole(rng, (136, 200), "f2", None)
    for how in ("CCC", "FFF"):
        result = multiply("plus_times", a[0], b, c, how=how, known=None, alpha=2.0, beta=-1.0)
        check("plus_times", result, reference.general("plus_times", 2.0, a[0], b, -1.0, c))
        assert f"sr::TensorTile<{shape.rows}, {shape.columns}, 2>" in HOST.launched[-1]
    stack = np.empty((2, 136, 200), "f2")
    engine.product(sm.semirings["plus_times"], a, np.broadcast_to(b, (len(a), *b.shape)), stack)
    check("plus_times", stack, np.stack([reference.product("plus_times", x, b) for x in a]))
