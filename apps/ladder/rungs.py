"""Matrix and matrix-vector products step by step as in the textbooks, from the library's kernels.

A loop is a set of template arguments of ``rungs.cuh`` (or of the library's own
``kernels/vector.cuh``), no code of its own. Everything except the two launches is a pure function
of values.
"""

from __future__ import annotations

import functools
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from semiring_mm.gpu import device, vector
from semiring_mm.gpu.source import PRODUCT, Step, algebra, kind_of, steps
from semiring_mm.gpu.tiles import Tile, choose
from semiring_mm.gpu.views import address, aligned, strides, wide_along
from semiring_mm.plan import Plan, make_plan
from semiring_mm.semirings import Semiring

__all__ = [
    "Grid", "Loop", "Traffic", "VectorLoop", "chosen", "gemv", "plan_of", "product",
    "product_source", "reach", "reach_of", "traffic", "vector_traffic",
]  # fmt: skip

Array = Any
_KERNELS = Path(__file__).with_name("rungs.cuh").read_text(encoding="utf-8")
_SECTOR = 32  # bytes: what a warp's request for a word of global memory fetches at least
_THREADS = 256  # sr::Vector's


@dataclass(frozen=True)
class Grid:
    """The template arguments of ``sr::Grid``: threads in a grid over the tile, without warps.

    Parameters
    ----------
    ty, tx : int
        Threads of a block along the rows and the columns of C.
    bk : int
        Steps of k that a block takes at a time.
    tm, tn : int
        Elements of a thread along the rows and the columns.
    spread : bool
        Whether groups of four rows and columns are interleaved among the threads, so that
        neighbours read neighbouring words of shared memory; else a thread's are adjacent.
    pad : int
        Words between rows of shared memory.
    blocks : int
        Blocks that share a multiprocessor (the registers are limited to make it so).
    """

    ty: int
    tx: int
    bk: int
    tm: int
    tn: int
    spread: bool = False
    pad: int = 0
    blocks: int = 1

    @property
    def bm(self) -> int:
        return self.ty * self.tm

    @property
    def bn(self) -> int:
        return self.tx * self.tn

    @property
    def threads(self) -> int:
        return self.ty * self.tx


@dataclass(frozen=True)
class Loop:
    """The template arguments of ``sr::Rung``.

    Parameters
    ----------
    tile : Grid or Tile
        Who of a block computes what.
    stages : int
        Tiles of A and B in shared memory; 0: every thread reads what it needs from the caches.
    ahead : bool
        Whether fragments and tiles are asked for before the arithmetic that precedes them.
    wide : bool
        Whether global memory is read and written 16 bytes at a time, where shapes allow it.
    async_ : bool
        Whether tiles are copied to shared memory without passing through registers.
    """

    tile: Grid | Tile
    stages: int = 1
    ahead: bool = False
    wide: bool = False
    async_: bool = False

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block, in 32-bit words."""
        pad = 4 if isinstance(self.tile, Tile) else self.tile.pad
        return 4 * self.stages * self.tile.bk * (self.tile.bm + self.tile.bn + 2 * pad)

    def arguments(self) -> str:
        """The tile as C++."""
        tile = self.tile
        if isinstance(tile, Tile):
            return f"sr::{tile.struct()}"
        values = (str(x).lower() for x in astuple(tile)[:-1])
        return f"sr::Grid<{', '.join(values)}>"


def plan_of(semiring: Semiring) -> Plan:
    """How a semiring is computed in float32, whatever the operands hold.

    Raises
    ------
    TypeError
        If it makes no sense in float32.
    """
    return make_plan(semiring, np.dtype(np.float32), None, None, 1)


class Reach(NamedTuple):
    """What may be read four words at a time: A along k, B and C along n."""

    a: bool
    b: bool
    c: bool


def reach(loop: Loop, a: Array, b: Array, c: Array) -> Reach:
    """What a loop reads and writes 16 bytes at a time of these row-major matrices."""
    return reach_of(loop, *(wide_along(x, -1) for x in (a, b, c)))


def reach_of(loop: Loop, a: bool, b: bool = True, c: bool = True) -> Reach:
    """The same, where four words of A, of B, of C can be read at a time."""
    spread = isinstance(loop.tile, Tile) or loop.tile.spread
    # asynchronous copies cannot transpose words four at a time
    return Reach(
        loop.wide and a and not loop.async_, loop.wide and b,
        loop.wide and c and spread and loop.tile.tn % 4 == 0,
    )  # fmt: skip


@functools.lru_cache(maxsize=256)
def product_source(plan: Plan, loop: Loop, wide: Reach) -> str:
    """The text of a loop's kernel, for row-major operands."""
    step = "sr::General<Algebra>" if loop.async_ else "sr::Staged<sr::General<Algebra>>"
    flags = (loop.ahead, True, wide.a, False, wide.b, wide.c)
    # a copy of a long function for every element in every k step takes minutes to compile
    slow = kind_of(plan, Step("General"), arg=False) == "slow"
    most = 4 if not slow else 2 if loop.ahead else 1
    return f"""{_KERNELS}
{algebra(plan)}
using Step = {step};
using Shape = {loop.arguments()};
using Rung = sr::Rung<Step, Shape, {loop.stages}, {", ".join(str(x).lower() for x in flags)},
                      {most}>;
static_assert(Rung::BYTES == {loop.shared}, "as the launch has it");
extern "C" __global__ void __launch_bounds__({loop.tile.threads}, {loop.tile.blocks})
kernel(const __grid_constant__ sr::ProductParams p) {{
  Rung::run(p);
}}
"""


def product(semiring: Semiring, loop: Loop, a: Array, b: Array, c: Array) -> device.Kernel:
    """C ← A ⊗ B by a loop, on row-major float32 matrices of the current device.

    Returns
    -------
    Kernel
        The kernel that was launched.
    """
    (m, k), n = a.shape, b.shape[1]
    tile = loop.tile
    tiles_m, tiles_n = -(-m // tile.bm), -(-n // tile.bn)
    kernel = device.current().kernel(product_source(plan_of(semiring), loop, reach(loop, a, b, c)))
    params = PRODUCT().pack({
        "a": address(a), "b": address(b), "c": address(c), "a_m": strides(a)[1], "a_k": 1,
        "b_k": strides(b)[1], "b_n": 1, "c_m": strides(c)[1], "c_n": 1, "m": m, "n": n, "k": k,
        "batch": 1, "tiles_m": tiles_m, "tiles_n": tiles_n, "whole": tiles_m * tiles_n,
        "splits": 1, "unit": 1,
    })  # fmt: skip
    kernel.launch(tiles_m * tiles_n, tile.threads, loop.shared, params)
    return kernel


def chosen(semiring: Semiring, n: int, sms: int, arch: int, device_name: str = "") -> Tile:
    """The tile that the library chooses for an n × n × n product in float32."""
    plan, step = steps(plan_of(semiring), None, arch, arg=False)[-1]
    kind = kind_of(plan, step, arg=False)
    return choose(kind, n, n, n, 1, sms, device=device_name).tile


# --- the model ----------------------------------------------------------------------------------


class Traffic(NamedTuple):
    """What a loop moves for a product, in bytes, by counting: no cache but shared memory.

    Parameters
    ----------
    read : float
        Asked of global memory, in whole sectors of 32 bytes.
    written : float
        C.
    shared : float
        Words that threads ask of shared memory; words that a warp shares count for each thread.
    """

    read: float
    written: float
    shared: float


def traffic(tile: Grid | Tile, stages: int, m: int, n: int, k: int) -> Traffic:
    """Count what the blocks of a loop ask for.

    A block reads BM rows of A in pieces of BK words and BK rows of B in pieces of BN words. Without
    shared memory each warp reads for itself, one step of k at a time.
    """

    def sectors(words: int) -> int:
        return -(-4 * words // _SECTOR) * _SECTOR

    tiles = -(-m // tile.bm) * -(-n // tile.bn)
    written = 4.0 * m * n
    if stages == 0:
        assert isinstance(tile, Tile), "a warp is known by its lanes"
        warps = float(tiles * tile.threads // 32)
        lm, ln = tile.lm, 32 // tile.lm
        a_bytes = lm * tile.tm * _SECTOR  # each row lies in a sector of its own
        return Traffic(warps * k * (a_bytes + sectors(ln * tile.tn)), written, 0.0)
    k_tiles = -(-k // tile.bk)
    read = tiles * k_tiles * (tile.bm * sectors(tile.bk) + tile.bk * sectors(tile.bn))
    return Traffic(float(read), written, 4.0 * tiles * k * tile.threads * (tile.tm + tile.tn))


# --- matrix-vector products ---------------------------------------------------------------------


@dataclass(frozen=True)
class VectorLoop:
    """The template arguments of ``sr::Vector``.

    Parameters
    ----------
    by_rows : bool
        Whether A is row-major.
    lanes : int
        Threads that share a row's k.
    rows : int
        Rows of a thread; along columns, the rows that one load takes.
    wide : bool
        Whether A is read 16 bytes at a time, where its shape allows it.
    """

    by_rows: bool
    lanes: int = 1
    rows: int = 1
    wide: bool = False


def vector_traffic(loop: VectorLoop, m: int, k: int) -> Traffic:
    """Count what the warps of a loop ask for, of A and of x."""
    chunk = 4 if loop.wide else 1  # words of a load
    requests = m * k / (32 * chunk)
    if not loop.by_rows:
        return Traffic(4.0 * m * k + requests * _SECTOR, 4.0 * m, 0.0)
    lanes = min(loop.lanes, 32)
    piece = -(-4 * lanes * chunk // _SECTOR) * _SECTOR  # of one row
    return Traffic(requests * piece * (32 // lanes + 1 / loop.rows), 4.0 * m, 0.0)


def gemv(semiring: Semiring, loop: VectorLoop, a: Array, x: Array, y: Array) -> device.Kernel:
    """y ← A ⊗ x by a loop, on a float32 matrix that lies as the loop says.

    Returns
    -------
    Kernel
        The kernel that was launched.
    """
    (m, k), size = a.shape, a.itemsize
    a_m, a_k = (s // size for s in a.strides)
    other, extent = (a_m, m) if loop.by_rows else (a_k, k)
    wide = loop.wide and aligned(address(a), size, (other,) if extent > 1 else (), 16 // size)
    wide = wide and (not loop.by_rows or aligned(address(x), size, (), 16 // size))
    rows = loop.rows if loop.by_rows or wide else 1  # along columns, one load's
    text = vector.vector_source(plan_of(semiring), loop.by_rows, wide, loop.lanes, rows)
    blocks = -(-m // (_THREADS // loop.lanes * rows))
    kernel = device.current().kernel(text)
    params = PRODUCT().pack({
        "a": address(a), "b": address(x), "c": address(y), "a_m": a_m, "a_k": a_k,
        "b_k": x.strides[0] // size, "c_m": y.strides[0] // size, "m": m, "n": 1, "k": k,
        "batch": 1, "tiles_m": blocks, "splits": 1, "k_split": k,
    })  # fmt: skip
    kernel.launch(blocks, _THREADS, 4 * rows * _THREADS if loop.lanes > 1 else 0, params)
    return kernel
