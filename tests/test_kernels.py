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
from reference import ALGEBRAS, BOOL, EVERY

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
