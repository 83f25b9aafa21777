"""The CUDA kernels on the host: every verb of the GPU engine against the plain reference.

The device is :class:`host_device.HostDevice`, which compiles ``kernels/*.cuh`` with g++ and refuses
what a device would refuse. Operands lie within poison, so that a read beyond one shows.
"""

import shutil
import struct

import host_device
import ml_dtypes
import numpy as np
import pytest
import reference
from host_device import HostDevice, guarded
from numpy.testing import assert_allclose, assert_array_equal
from reference import ALGEBRAS, BFLOAT16, BOOL, EVERY

import semiring_mm as sm
from semiring_mm.cpu import engine as cpu
from semiring_mm.gpu import device, engine, tiles
from semiring_mm.gpu.tiles import Tile

inf, nan = np.inf, np.nan
pytestmark = pytest.mark.skipif(
    shutil.which(host_device.compiler()) is None, reason="no g++ to compile the kernels with"
)
HOST = HostDevice()
SMALL = Tile(16, 16, 8, 2, 4, 8)


@pytest.fixture(autouse=True)
def _host(monkeypatch):
    monkeypatch.setattr(device, "current", lambda: HOST)


@pytest.fixture
def small_tiles(monkeypatch):
    """One tile of 16 x 16 x 8, so that small matrices have edges, several blocks and parts."""
    use_tile(monkeypatch, SMALL)
    yield
    tiles.choose.cache_clear()


def use_tile(monkeypatch, tile):
    monkeypatch.setattr(tiles, "TILES", {kind: {tile: 1.0} for kind in tiles.TILES})
    tiles.choose.cache_clear()


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
        ("if (t == 5) shared[p.n << 20] = 1;", "block 0, thread 5: access to 0x"),
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


LAYOUTS = ("C", "F", "odd", "padded", "strided", "reversed")


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
    y[...] = x
    return y


def known_of(name, *arrays):
    return tuple(cpu.facts(sm.semirings[name], x) for x in arrays)


def multiply(name, a, b, c=None, how="CCC", known=True, **options):
    """A ⊗ B by the engine, with each operand laid out as `how` says by its initial."""
    full = {layout[0]: layout for layout in LAYOUTS}
    fill = poison(name, a.dtype)
    start = np.full((*a.shape[:-1], b.shape[-1]), fill, a.dtype) if c is None else c
    a, b, out = (lay(x, full[w], fill) for x, w in zip((a, b, start), how, strict=True))
    root = out
    while isinstance(root.base, np.ndarray):
        root = root.base
    if known:
        options["known"] = known_of(name, a, b, start)
    engine.product(sm.semirings[name], a, b, out, accumulate=c is not None, **options)
    result = out.copy()
    out[...] = fill  # nothing is written around the result
    around = np.ndarray((root.size // out.itemsize,), out.dtype, root)
    assert_array_equal(reference.comparable(around), np.full(around.shape, fill, "f4"))
    return result


def check(name, result, expected):
    """Exactly equal, but for the semiring that rounds."""
    assert result.dtype == expected.dtype
    eps = float(ml_dtypes.finfo(result.dtype).eps) if name == "log_plus" else 0
    result, expected = reference.comparable(result), reference.comparable(expected)
    if eps:
        assert_allclose(result, expected, rtol=8 * eps, atol=8 * eps)
    else:
        assert_array_equal(result, expected)


# --- the product --------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "dtype"), EVERY, ids=str)
@pytest.mark.usefixtures("small_tiles")
def test_every_semiring_and_dtype(name, dtype):
    rng = np.random.default_rng(1)
    for m, k, n in [(1, 1, 3), (5, 3, 7), (15, 9, 17), (17, 17, 33)]:
        a, b = (reference.small(rng, name, s, dtype) for s in ((m, k), (k, n)))
        check(name, multiply(name, a, b), reference.product(name, a, b))


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
    ("NonnegativePaired", "min_plus", "f2", (0, 1, 2.5, 1e-3, TINY, HUGE, inf)),
    ("NonnegativePaired", "max_times", BFLOAT16, (0, 1, 2.5, 1e-3, TINY, HUGE)),
    ("FloatsPaired", "min_plus", BFLOAT16, (nan, inf, -inf, 0, 1, -2.5, 1e-3, TINY, HUGE)),
    ("FloatsPaired", "max_plus", "f2", (inf, -2.5, -1e-3, TINY, HUGE)),
    ("FloatsPaired", "min_times", "f2", (-inf, 0, 3, -2.5, 1e-3, TINY, HUGE)),
    ("Ordered", "max_min", "f4", (inf, -inf, 0, 1, -2.5, TINY, HUGE)),
    ("Ordered", "min_max", BFLOAT16, (inf, -inf, 0, 1, -2.5, TINY, HUGE)),
    ("Ordered", "max_min", "i1", (-128, 127, 0, 5)),
    ("Ordered", "min_max", "u2", (65535, 0, 5, 32768)),
    ("Ordered", "min_max", "i4", (-(2**31), 2**31 - 1, 0, 5)),
    ("Sums", "min_plus", "i4", (2**31 - 1, 2**26, -(2**26), 0, 1, -7)),
    ("Sums", "max_plus", "i4", (-(2**31), 2**26, -(2**26), 0, 1, -7)),
    ("SumsPaired", "min_plus", "i2", (2**15 - 1, 2**11, -(2**11), 0, 1, -7)),
    ("SumsPaired", "max_plus", "i2", (-(2**15), 2**11, -(2**11), 0, 1, -7)),
]


def entries(rng, values, shape, dtype):
    """Each row and column of its own range, so that every value wins somewhere."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "iu":
        info = ml_dtypes.finfo(dtype)
        ends = {TINY: float(info.smallest_subnormal), HUGE: float(info.max)}
        values = [ends.get(x, x) for x in values]
    return rng.choice(np.array(values).astype(dtype), shape)


@pytest.mark.parametrize(("step", "name", "dtype", "values"), FUSED, ids=str)
@pytest.mark.usefixtures("small_tiles")
def test_fused_steps_equal_the_general_one(step, name, dtype, values, monkeypatch):
    """Bit for bit, with the operands for which they are chosen, and with α, β and C."""
    rng = np.random.default_rng(3)
    for depth in (1, 2, 7):  # fewer values in a column leave something to win for the others
        for picked in (values, values[depth % 3 :: 2]):
            a, b, c = (entries(rng, picked, s, dtype) for s in ((17, depth), (depth, 35), (17, 35)))
            for options in ({}, {"c": c}, {"c": c, "beta": 1}, {"alpha": 1}):
                scaled = "alpha" in options or "beta" in options
                if scaled and step == "Ordered":
                    continue
                if scaled and name.endswith("times") and nan in reference.product(name, a, b):
                    continue
                monkeypatch.setattr(HOST, "arch", 75)  # where only the general step is used
                general = multiply(name, a, b, **options)
                monkeypatch.setattr(HOST, "arch", 90)
                HOST.asked.clear()
                check(name, multiply(name, a, b, **options), general)
                if picked is values and not (scaled and "Paired" in step):
                    assert f"sr::{step}<" in HOST.asked[0]
                if "c" not in options and "alpha" not in options:
                    check(name, general, reference.product(name, a, b))


@pytest.mark.parametrize(
    "how", ["CCC", "CFF", "FCs", "FFr", "ooo", "opp", "ppC", "srF", "rso", "FpC", "pFC"]
)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("min_plus", "f4"), ("min_plus", "i2"), ("lor_land", "?"), ("plus_times", "f8"),
     ("min_times", "u1")],
)  # fmt: skip
@pytest.mark.usefixtures("small_tiles")
def test_every_layout(name, dtype, how):
    rng = np.random.default_rng(4)
    for m, k, n in [(32, 24, 48), (36, 20, 20), (31, 21, 17)]:
        a, b = (reference.small(rng, name, s, np.dtype(dtype)) for s in ((m, k), (k, n)))
        check(name, multiply(name, a, b, how=how), reference.product(name, a, b))
