"""Products over plus-times on Hopper's tensor cores: operands as they want them, and the launch."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..expressions import joins
from ..plan import Plan
from . import device
from .source import KINDS as ENTRIES
from .source import STORAGE, algebra, flags, pack, pack_fields
from .views import address, strides, wide_along

__all__ = [
    "Kind", "TensorKernel", "convert_source", "kind_of", "parts_source", "tensor_product",
    "tensor_source",
]  # fmt: skip

Array = Any


@dataclass(frozen=True)
class Kind:
    """What is multiplied (``kernels/base.cuh``).

    Parameters
    ----------
    name : str
        Of the struct.
    element : str
        NumPy's name of the dtype in which operands are laid out.
    parts : int
        Matrices whose sum an operand is.
    """

    name: str
    element: str
    parts: int = 1

    @property
    def forbidden(self) -> int:
        """Kinds of entries that it must not meet: what a sum of two parts cannot be."""
        far = ("nan", "-inf", "+inf", "far") if self.parts == 2 else ()
        return sum(ENTRIES[kind] for kind in far)

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return {"float32": 4, "uint8": 1}.get(self.element, 2)

    @property
    def bk(self) -> int:
        """Steps of k in a tile: a line of 128 bytes."""
        return 128 // self.size

    @property
    def bn(self) -> int:
        """Columns of a tile; sums of parts take two sets of registers."""
        return 128 if self.parts == 2 else 256


_KINDS = {
    ("float16", None): Kind("Halves", "float16"),
    ("bfloat16", None): Kind("Bfloats", "bfloat16"),
    ("float32", "tf32"): Kind("Tf32", "float32"),
    ("float32", "float32_emulated"): Kind("Tf32", "float32", 2),
}
_TRUTH = Kind("Bytes", "uint8")
# Where the tensor cores gain (measured on an H200): pairs in all, and the longest k whose sums fit.
_WORTH = {"Halves": 600**3, "Bfloats": 600**3, "Tf32": 700**3, "Bytes": 1200**3}
_WORTH_PARTS, _LONGEST_TRUTH = 1300**3, 1 << 16


def kind_of(
    plan: Plan, precision: str | None, arch: int, m: int, n: int, k: int, batch: int
) -> Kind | None:
    """What tensor cores multiply for a product, or None where it does not gain by them."""
    if arch != 90 or min(m, n) < 64:  # the instructions are Hopper's own
        return None
    kind, join = None, (joins(plan.add), joins(plan.mul))
    if plan.codec == "bits" and join == ("|", "&") and k <= _LONGEST_TRUTH:
        kind = _TRUTH
    elif plan.codec == "plain" and join == ("+", "*"):
        kind = _KINDS.get((plan.storage, precision))
    if kind is None or m * n * k * batch < (_WORTH_PARTS if kind.parts == 2 else _WORTH[kind.name]):
        return None
    return kind


@dataclass(frozen=True)
class TensorKernel:
    """All that a kernel is compiled for.

    Parameters
    ----------
    plan : Plan
    kind : Kind
    a_rows, b_rows : bool
        Whether k is the contiguous direction of the operand.
    c_wide : bool
        Whether neighbouring columns can be written at once.
    """

    plan: Plan
    kind: Kind
    a_rows: bool
    b_rows: bool
    c_wide: bool

    @property
    def stages(self) -> int:
        """Tiles of k on their way or computed with: as many as fit."""
        return 3 if self.kind.parts == 2 else 4

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        return 1024 + self.stages * (self.kind.parts * (_BM + self.kind.bn) * _LINE + 32)

    @property
    def together(self) -> int:
        """Columns that a thread has side by side."""
        return _together(self.plan)

    def types(self) -> str:
        """The lines that sources begin with."""
        return f"""#include "tensor.cuh"
{algebra(self.plan)}
using Step = sr::Tensor<Algebra, sr::{self.kind.name}, {self.kind.parts}>;
using Shape = sr::TensorTile<{self.kind.bn}, {self.together}>;
"""


_BM, _LINE, _THREADS, _COPYING = 128, 128, 256, 128  # sr::TensorTile's, sr::TensorProduct's
_CONVERT, _SIDE, _BYTES_SIDE = 256, 64, 128  # sr::Convert's threads and tiles, sr::TransposeBytes's


def _together(plan: Plan) -> int:
    """Words of 4 bytes are written by twos: the four lanes of a row fill what memory takes."""
    return 2 if plan.storage == "float32" else 8


@functools.lru_cache(maxsize=1024)
def tensor_source(kernel: TensorKernel) -> str:
    """The text of a product kernel, for the architecture's own instructions."""
    given = flags(kernel.a_rows, kernel.b_rows, kernel.c_wide)
    return f"""{kernel.types()}
using Product = sr::TensorProduct<Step, Shape, {kernel.stages}, {given}>;
static_assert(Product::BYTES == {kernel.shared}, "as the launch has it");
extern "C" __global__ void __launch_bounds__({_THREADS + _COPYING}, 1)
kernel(const __grid_constant__ sr::TensorParams p) {{
  Product::run(p);
}}
"""


@functools.lru_cache(maxsize=1024)
def parts_source(kernel: TensorKernel) -> str:
    """The text of the kernel that reduces partial results, where k was split."""
    return f"""{kernel.types()}
extern "C" __global__ void __launch_bounds__({_THREADS})
kernel(const __grid_constant__ sr::ProductParams p) {{
  sr::ReduceSplits<Step, Shape, {flags(kernel.c_wide)}>::run(p);
}}
"""


@functools.lru_cache(maxsize=64)
def convert_source(storage: str, kind: Kind, transposed: bool) -> str:
    """The text of the kernel that lays out an operand; `transposed`: bytes, four rows at once."""
    name = f"Convert<{STORAGE[storage]}, sr::{kind.name}, {kind.parts}>"
    return f"""#include "tensor.cuh"
extern "C" __global__ void __launch_bounds__({_CONVERT})
kernel(const __grid_constant__ sr::ConvertParams p) {{
  sr::{"TransposeBytes" if transposed else name}::run(p);
}}
"""


@dataclass(frozen=True)
class _Operand:
    """A stack of [rows][k] as the copy engine sees it."""

    map: bytes
    rows: bool  # whether k is the contiguous direction
    batched: bool
    memory: Array  # which must live until the launch


def _operand(here: device.Device, kind: Kind, x: Array) -> _Operand:
    """An operand where it lies, if the copy engine can take it; else a copy."""
    (rows, k), at = x.shape[-2:], strides(x)
    size, batched = kind.size, x.ndim == 3 and x.shape[0] > 1 and at[0] != 0
    batch = x.shape[0] if batched else 1
    if kind.size < 4 and address(x) % 16 == 0 and at[0] >= 0 and at[0] * size % 16 == 0:
        for by_rows, unit, other in ((True, 2, 1), (False, 1, 2)):
            if not by_rows and size == 1:  # only 16-bit floats may lie across k
                break
            if at[unit] == 1 and at[other] > 0 and at[other] * size % 16 == 0:
                sizes = (k, rows, batch) if by_rows else (rows, k, batch)
                pitch = (size * at[other], size * at[0] if batched else 16)
                place = here.tensor_map(address(x), kind.element, sizes, pitch)
                return _Operand(place, by_rows, batched, x)
    ld = math.ceil(k * size / 16) * 16 // size
    copy = here.xp.empty(batch * kind.parts * rows * ld * size, np.uint8)
    transposed = size == 1 and wide_along(x, -2)
    side = _BYTES_SIDE if transposed else _SIDE
    shared = side * (side // 4 + 1) * 4 if transposed else side * (side + 1) * x.itemsize
    tiles = (-(-k // side), -(-rows // side))
    params = pack((address(x), address(copy), at[1], at[2], at[0], ld, *tiles), (rows, k))
    source = convert_source(x.dtype.name, kind, transposed)
    here.kernel(source).launch(math.prod(tiles) * batch, _CONVERT, shared, params)
    sizes, pitch = (k, rows, batch * kind.parts), (ld * size, rows * ld * size)
    place = here.tensor_map(address(copy), kind.element, sizes, pitch)
    return _Operand(place, True, batched, copy)


def tensor_product(
    here: device.Device, plan: Plan, kind: Kind, *, a: Array, b: Array, c: Array, mode: int,
    alpha: int, beta: int, flags: Array | None = None, forbidden: int = 0, unless: int = 0,
) -> None:  # fmt: skip
    """Launch a product; `alpha` and `beta` are the bits of scalars, as in sr::ProductParams.

    A block for each multiprocessor goes from tile to tile. Where there are fewer tiles than blocks,
    k is split.
    """
    (m, n), k = c.shape[-2:], a.shape[-1]
    batch = c.shape[0] if c.ndim == 3 else 1
    c_at = strides(c)
    left, right = (_operand(here, kind, x) for x in (a, b.swapaxes(-1, -2)))
    group = min(_together(plan), 16 // c.itemsize)
    kernel = TensorKernel(plan, kind, left.rows, right.rows, wide_along(c, -1, group))
    tiles_m, tiles_n = -(-m // _BM), -(-n // kind.bn)
    tiles = tiles_m * tiles_n * batch
    splits, depth = _split(tiles, k, kind.bk, here.sms)
    parts = None
    if splits > 1:
        parts = here.xp.empty(tiles * splits * _BM * kind.bn * 4, np.uint8)
    params = pack_fields({
        "c": address(c), "partials": address(parts), "flags": address(flags),
        "a_batch": int(left.batched), "b_batch": int(right.batched),
        "c_m": c_at[1], "c_n": c_at[2], "c_batch": c_at[0], "alpha": alpha, "beta": beta,
        "m": m, "n": n, "k": k, "batch": batch, "tiles_m": tiles_m, "tiles_n": tiles_n,
        "whole": tiles if splits == 1 else 0, "splits": splits, "k_split": depth,
        "mode": mode, "forbidden": forbidden, "unless": unless, "unit": 1,
    })  # fmt: skip
    here.kernel(tensor_source(kernel), "a").launch(
        min(tiles * splits, here.sms), _THREADS + _COPYING, kernel.shared,
        left.map + right.map + params,
    )  # fmt: skip
    if parts is not None:
        runs = kind.bn // 2 // kernel.together  # sr::ReduceSplits's
        here.kernel(parts_source(kernel)).launch(tiles * runs, _THREADS, 0, params)


_LEAST_DEPTH = 8  # tiles of k that repay a part of a sum


def _split(tiles: int, k: int, bk: int, sms: int) -> tuple[int, int]:
    """Blocks that share each tile, and the steps of k of each."""
    steps = math.ceil(k / bk)
    splits = max(1, min(sms // tiles, steps // _LEAST_DEPTH))
    depth = math.ceil(steps / splits) * bk
    return math.ceil(k / depth), depth
