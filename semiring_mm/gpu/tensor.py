"""Products over plus-times on Hopper's tensor cores: kernels, and operands in their layout."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..expressions import joins
from ..plan import Plan
from . import device
from .chips import has
from .launch import Launch, Struct, entry, struct_of
from .memory import copy
from .packing import Packing, pack_bytes, transpose_bits
from .source import KINDS as ENTRIES
from .source import PRODUCT, STORAGE, algebra, flags
from .tiles import Tile, divide
from .views import address, strides

__all__ = [
    "BINARY", "CERTIFICATE", "FINE", "REDUCING", "ROWS", "SCREENS", "Kind", "Operand", "Shape",
    "Split", "TensorKernel", "choose", "in_place", "kinds_of", "parts_source",
    "prepare_operand", "readable", "reads", "repays", "result_operand", "tensor_source",
    "together", "transposed_operand", "turns",
]  # fmt: skip

Array = Any


@dataclass(frozen=True)
class Kind:
    """The element type of a tensor-core product (``kernels/base.cuh``)."""

    name: str  # the struct's
    element: str  # NumPy's name of the dtype that operands are read in
    parts: int = 1  # matrices that an operand is split into; it is their sum

    @property
    def forbidden(self) -> int:
        """Kinds of entries it cannot multiply: a sum of two parts cannot represent them."""
        far = ("nan", "-inf", "+inf", "far") if self.parts == 2 else ()
        return sum(ENTRIES[kind] for kind in (*far, *("spread",) * self.scaled))

    @property
    def scaled(self) -> bool:
        """Whether rows of both operands are scaled by powers of two."""
        return self.parts == 2 and self.size == 2

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return {"float64": 8, "float32": 4, "uint8": 1}.get(self.element, 2)

    @property
    def loaded(self) -> str:
        """The element type of the tensor map of an operand in place."""
        return "tfloat32" if self.name == "Tf32" else self.element

    @property
    def bk(self) -> int:
        """Steps of k in a tile: a row of 128 bytes."""
        return 128 // self.size

    @property
    def bn(self) -> int:
        """Columns of the largest tile: half as many if accumulators take twice the registers."""
        return 128 if self.parts == 2 or self.size == 8 else 256


_PAIRS_OF_HALVES, _PAIRS_OF_TF32 = Kind("Halves", "float16", 2), Kind("Tf32", "float32", 2)
_KINDS = {
    ("float16", None): (Kind("Halves", "float16"),),
    ("bfloat16", None): (Kind("Bfloats", "bfloat16"),),
    ("float64", None): (Kind("Doubles", "float64"),),
    ("float32", "tf32"): (Kind("Tf32", "float32"),),
    ("float32", "float32_emulated"): (_PAIRS_OF_HALVES, _PAIRS_OF_TF32),
}
BINARY = Kind("Binary", "uint8")  # eight truth values each
# The least number of pairs (m n k) for which tensor cores are faster, measured on an H200.
_WORTH = {
    "Halves": 192**3, "Bfloats": 192**3, "Tf32": 192**3, "Binary": 800**3, "Doubles": 700**3,
    "narrow Doubles": 1500**3,
}  # fmt: skip
_WORTH_PARTS = 1300**3


CERTIFICATE = Kind("Halves", "float16")  # in which sr::Certificate multiplies samples
#: In which sr::Screened multiplies, by dtype.
SCREENS = {"float16": Kind("Halves", "float16"), "float32": Kind("Tf32", "float32")}


def kinds_of(plan: Plan, precision: str | None, arch: int) -> tuple[Kind, ...]:
    """The element types in which tensor cores can compute a plan, best first."""
    if not has(arch, "HGMMA"):
        return ()
    join = (joins(plan.add), joins(plan.mul))
    if plan.codec == "bits" and join in (("|", "&"), ("^", "&")):
        return (BINARY,)
    if plan.codec == "plain" and join == ("+", "*"):
        return _KINDS.get((plan.storage, precision), ())
    return ()


def repays(kind: Kind, m: int, n: int, k: int, batch: int) -> bool:
    """Whether tensor cores compute a product of these sizes, and faster than other kernels."""
    if min(m, n) < 64:
        return False
    narrow = "narrow " * (kind.size == 8 and min(m, n) < 4 * ROWS)  # tiles are not filled
    least = _WORTH_PARTS if kind.parts == 2 else _WORTH[narrow + kind.name]
    return m * n * k * batch >= least


def reads(kind: Kind, a: Array, b: Array) -> bool:
    """Whether the copy engine reads these operands, or copies of them that repay."""
    if kind.size < 8:
        return True
    return all(in_place(kind.element, 8, x, ROWS) for x in (a, b.swapaxes(-1, -2)))


class Shape(NamedTuple):
    """A tile of C."""

    rows: int = 128
    columns: int = 256
    cluster: int = 1  # blocks whose tiles lie below each other, and share columns of B


LARGEST = Shape()


@dataclass(frozen=True)
class TensorKernel:
    """What a kernel is compiled for."""

    plan: Plan
    kind: Kind
    a_rows: bool  # whether k is the contiguous direction of the operand
    b_rows: bool  # and of this one
    c_wide: bool  # whether neighbouring columns can be stored as one vector
    c_boxes: bool = False  # whether the copy engine stores C
    shape: Shape = LARGEST
    packed: bool = False  # whether C is packed bits
    # whether it multiplies samples (``sr::Certificate``) instead of operands
    certifies: bool = False
    screens: bool = False  # whether it screens the product (``sr::Screened``) instead of storing it
    across: bool = False  # whether the copy engine stores a C whose rows are contiguous

    @property
    def threads(self) -> int:
        """Threads of a block, of which the last ones copy."""
        large = self.shape.columns > 128 or self.shape.rows > 128
        hands = large or self.kind.size == 8 or self.kind.parts == 2  # TensorProduct::HANDS
        return 2 * self.shape.rows + (128 if hands else 32)

    @property
    def stages(self) -> int:
        """Tiles of k in the pipeline, loading or in use: as many as fit in shared memory."""
        room = _SHARED - 1024 - self._boxes
        return min(6 if self.kind.size == 8 else _STAGES, room // self._stage)

    @property
    def _stage(self) -> int:
        """Bytes of a stage, and of its barriers."""
        return self.kind.parts * (self.shape.rows + self.shape.columns) * _LINE + 32

    @property
    def boxes(self) -> int:
        """Boxes of C in shared memory of each warpgroup."""
        return 2 if self.c_boxes else 0

    @property
    def _boxes(self) -> int:
        """Bytes of all boxes of C."""
        if self.across:
            return self.shape.rows // 64 * self.shape.columns * _LINE
        return self.boxes * self.shape.rows * _LINE

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        numbers = 16 * self.shape.columns if self.screens else 0
        return 1024 + self.stages * self._stage + self._boxes + numbers

    @property
    def together(self) -> int:
        """Neighbouring columns of a thread."""
        return 2 if self.across or self.screens else together(self.plan, self.b_rows)

    def types(self) -> str:
        """The first lines of a source: its types."""
        shape = f"TensorTile<{self.shape.rows}, {self.shape.columns}, {self.together}>"
        if self.kind.size == 8:
            shape = f"DoublesTile<{flags(self.a_rows, self.b_rows)}, {self.shape.columns}>"
        step = f"Tensor<Algebra, sr::{self.kind.name}, {self.kind.parts}{', true' * self.packed}>"
        if self.certifies:
            step = "Certificate<Algebra>"
        if self.screens:
            step = f"Screened<Algebra, sr::{self.kind.name}>"
        return f"""
{algebra(self.plan)}
using Step = sr::{step};
using Shape = sr::{shape};
"""


#: Rows of the largest tile; threads of ReduceSplits.
ROWS, REDUCING = 128, 256
_SHARED, _STAGES = 232448, 8  # bytes that a block may have, stages at most
_LINE = 128  # bytes of a row of a tile in shared memory
# sr::Convert's threads and tiles, steps of k of a block of sr::Measure
_CONVERT, _SIDE, _LOOK = 256, 64, 512
_BLOCKS = 8  # of sr::Convert and sr::Split for each multiprocessor
# Of k, each 2**_SAMPLE_STEP-th step is in a sample, but at least so many steps.
_SAMPLE_STEP, _SAMPLE = 4, 512


def together(plan: Plan, b_rows: bool) -> int:
    """Neighbouring columns that a thread stores.

    Two words of 4 bytes: the four lanes of a row fill a sector of memory. Those of doubles follow
    from the direction of B.
    """
    if plan.storage == "float64":
        return 1 if b_rows else 2
    return 2 if plan.storage == "float32" else 8


@functools.lru_cache(maxsize=1024)
def tensor_source(kernel: TensorKernel) -> str:
    """The text of a product kernel, for the architecture's own instructions."""
    given = flags(kernel.a_rows, kernel.b_rows, kernel.c_wide)
    shape = kernel.shape
    params, bounds = struct_of("TensorParams"), f"{kernel.threads}, 1"
    return entry("tensor.cuh", params, "Product::run", bounds, f"""
{kernel.types()}
using Product =
    sr::TensorProduct<Step, Shape, {kernel.stages}, {shape.cluster}, {given}, {kernel.boxes},
                      {flags(kernel.across)}>;
static_assert(Product::BYTES == {kernel.shared} && Product::THREADS == {kernel.threads});
""", cluster=shape.cluster)  # fmt: skip


@functools.lru_cache(maxsize=1024)
def parts_source(kernel: TensorKernel) -> str:
    """The text of the kernel that reduces partial results, where k was split."""
    run = f"sr::ReduceSplits<Step, Shape, {flags(kernel.c_wide)}>::run"
    return entry("tensor.cuh", PRODUCT(), run, REDUCING, kernel.types())


@dataclass(frozen=True, kw_only=True)
class _Copy(Launch):
    """The launch that lays an operand out in rows of k."""

    bytes: int  # of the copy, with what follows it


@dataclass(frozen=True, kw_only=True)
class Split(_Copy):
    """That which splits an operand with scaled rows into two parts."""

    rows: int  # of all matrices
    look: Launch  # measures rows
    sample: Operand  # follows the copy, ...
    sample_at: int  # ... from this byte on


def _converting(
    here: device.Device, body: str, blocks: int, shared: int, fields: dict[str, int]
) -> tuple[device.Kernel, int, int, int, Struct, dict[str, int]]:
    """The launch of a kernel that copies an operand into rows of k, or looks at it before."""
    params = struct_of("ConvertParams")
    kernel = here.kernel(entry("tensor.cuh", params, f"sr::{body}::run", _CONVERT))
    return kernel, blocks, _CONVERT, shared, params, fields


@dataclass(frozen=True)
class Operand:
    """A stack of [rows][k] (of C: [m][n]) for the copy engine: in place, or as a copy."""

    element: str  # these three of its tensor map (:meth:`Device.tensor_map`)
    sizes: tuple[int, int, int]
    pitch: tuple[int, int]
    rows: bool  # whether k is the contiguous direction
    batched: bool  # whether there is a matrix for each one of the batch, not one for all
    lines: int  # of a box
    copy: _Copy | Packing | None = None  # the launch that copies it; None if it is read in place
    width: int = 0  # elements of a line of a box; 0: 128 bytes, whose pieces are swizzled
    maps: dict[int, bytes] = field(default_factory=dict)  # tensor maps by address

    def measure(self, here: device.Device, place: int, flags: Array | None) -> Array | None:
        """Sizes of rows, if they are scaled; what else is found is joined to `flags`."""
        copy = self.copy
        if not isinstance(copy, Split):
            return None
        found = device.scratch(2 * copy.rows, np.uint32, zero=True)
        copy.look.send({"from": place, "sizes": found, "flags": flags, "flag_words": 1})
        return found

    def load(
        self, here: device.Device, place: int, sizes: Array | None = None,
        flags: Array | None = None, forbidden: int = 0, unless: int = 0,
    ) -> tuple[bytes, int, Array | None]:  # fmt: skip
        """The tensor map of an operand at this address, and the copy it describes, if any.

        Between them the address that the map describes. The copy must live until the product is
        launched. It is made if the product is selected.
        """
        memory, copy = None, self.copy
        if copy is not None:
            memory = device.scratch(copy.bytes)
            source, place = place, address(memory)
            if isinstance(copy, Packing):
                copy.send({"from": source, "to": place})
            else:
                copy.send(
                    {"from": source}, to=place, sizes=sizes, flags=flags,
                    sample=place + copy.sample_at if isinstance(copy, Split) else 0,
                    forbidden=forbidden, unless=unless,
                    flag_words=0 if flags is None else flags.size,
                )  # fmt: skip
        found = self.maps.get(place)
        if found is None:
            if len(self.maps) >= 256:
                self.maps.clear()
            found = here.tensor_map(
                place, self.element, self.sizes, self.pitch, self.lines, self.width
            )
            self.maps[place] = found
        return found, place, memory


def in_place(element: str, size: int, x: Array, lines: int) -> Operand | None:
    """An array as the copy engine reads and writes it where it is, or None if it cannot."""
    rows, k = x.shape[-2:]
    at, batched = strides(x), x.ndim == 3 and x.shape[0] > 1 and strides(x)[0] != 0
    if address(x) % 16 or at[0] < 0 or at[0] * size % 16:
        return None
    for by_rows, unit, other in ((True, 2, 1), (False, 1, 2)):
        if at[unit] == 1 and at[other] > 0 and at[other] * size % 16 == 0:
            sizes = (k, rows) if by_rows else (rows, k)
            pitch = (size * at[other], size * at[0] if batched else 16)
            batch = x.shape[0] if batched else 1
            high = lines if by_rows else _LINE // size
            return Operand(element, (*sizes, batch), pitch, by_rows, batched, high)
    return None


def turns(kind: Kind, a: Array, b: Array, c: Array, sms: int) -> bool:
    """Whether Cᵀ = Bᵀ Aᵀ is computed instead.

    That spares a copy, since only the left operand of tf32 may lie across k; tiles of 16-bit
    operands may have any number of columns if the right one lies along k.
    """
    if kind.size not in (2, 4) or kind.parts == 2:
        return False
    left, right = (in_place(kind.loaded, kind.size, x, ROWS) for x in (a, b.swapaxes(-1, -2)))
    if left is None or not left.rows or right is None or right.rows:
        return False
    if kind.size == 4:
        return True
    batch, shape = c.shape[0] if c.ndim == 3 else 1, (c.shape[-1], c.shape[-2], a.shape[-1])
    return choose(kind, *shape, batch, sms, split=True, fine=True).shape in FINE


def prepare_operand(
    here: device.Device,
    kind: Kind,
    x: Array,
    lines: int,
    sample_lines: int = ROWS,
    left: bool = False,
) -> Operand:
    """An operand in place if the copy engine can read it there; else as a copy.

    `lines` are those of a box, if it has k as its contiguous direction; `sample_lines` those of a
    box of the sample. `left`: whether it is the left one.
    """
    (rows, k), at = x.shape[-2:], strides(x)
    size, batched = kind.size, x.ndim == 3 and x.shape[0] > 1 and at[0] != 0
    batch = x.shape[0] if batched else 1
    if kind is BINARY:
        one = x if batched or x.ndim == 2 else x[0]
        return _from_packing(pack_bytes(here, one, 4), rows, k, batch, batched, lines)
    if not kind.scaled and kind.parts == 1:
        found = in_place(kind.loaded, size, x, lines)
        # those of 32 bits are not transposed, but by threads on their way to registers
        if found is not None and (size != 4 or left or found.rows):
            return found
    ld = math.ceil(k * size / 16) * 16 // size
    across = flags(at[1] == 1 and at[2] != 1)
    tiles = (-(-k // _SIDE), -(-rows // _SIDE))
    every = math.prod(tiles) * batch
    blocks, memory = min(every, _BLOCKS * here.sms), batch * kind.parts * rows * ld * size
    fields = {
        "row": at[1], "k_step": at[2], "batch_stride": at[0], "ld": ld, "k_tiles": tiles[0],
        "row_tiles": tiles[1], "tiles": every, "rows": rows, "k": k,
    }  # fmt: skip
    if kind.scaled:
        step = max(0, min(_SAMPLE_STEP, (k // _SAMPLE).bit_length() - 1))
        steps = -(-k // (1 << step))
        sample_ld = -(-steps // 8) * 8
        sample = Operand(
            kind.element, (steps, rows, batch), (2 * sample_ld, 2 * sample_ld * rows), True,
            batched, sample_lines,
        )  # fmt: skip
        fields |= {"sample_ld": sample_ld, "every": step}
        looks = -(-k // _LOOK) * tiles[1] * batch
        copy: _Copy = Split(
            *_converting(here, f"Split<{across}>", blocks, _SIDE * (_SIDE + 1) * 4, fields),
            bytes=memory + 2 * batch * rows * sample_ld, rows=batch * rows,
            look=Launch(*_converting(here, f"Measure<{across}>", looks, 0, fields)),
            sample=sample, sample_at=memory,
        )  # fmt: skip
    else:
        body = f"Convert<{STORAGE[x.dtype.name]}, sr::{kind.name}, {kind.parts}>"
        room = _SIDE * (_SIDE + 1) * x.itemsize
        copy = _Copy(*_converting(here, body, blocks, room, fields), bytes=memory)
    sizes, pitch = (k, rows, batch * kind.parts), (ld * size, rows * ld * size)
    return Operand(kind.element, sizes, pitch, True, batched, lines, copy)


def _from_packing(
    copy: Packing, rows: int, k: int, batch: int, batched: bool, lines: int
) -> Operand:
    """Rows of bits, as a launch packs them."""
    pitch = (4 * copy.pitch, 4 * copy.pitch * rows)
    sizes = (-(-k // 8), rows, batch)
    return Operand("uint8", sizes, pitch, True, batched, lines, copy)


def transposed_operand(here: device.Device, b: Array, n: int, lines: int) -> Operand:
    """Packed B, (..., k, bytes), as rows of packed columns."""
    batched = b.ndim == 3 and b.shape[0] > 1 and strides(b)[0] != 0
    one = b if batched or b.ndim == 2 else b[0]
    copy = transpose_bits(here, one, n, 4)
    return _from_packing(copy, n, b.shape[-2], b.shape[0] if batched else 1, batched, lines)


def readable(bits: Array) -> Array:
    """Packed rows where the copy engine can read them: in place, or as a copy."""
    found = in_place("uint8", 1, bits, ROWS)
    if found is not None and found.rows:
        return bits
    size = bits.shape[-1]
    room = device.scratch((*bits.shape[:-1], -(-size // 16) * 16))[..., :size]
    copy(bits, room)
    return room


def result_operand(plan: Plan, c: Array, across: int = 0) -> Operand | None:
    """C as the copy engine writes it, or None if other stores must.

    `across`: columns of a tile, where not these but the rows of C are contiguous.
    """
    if plan.storage not in ("float16", "bfloat16"):
        return None
    found = in_place(plan.storage, 2, c.swapaxes(-1, -2) if across else c, across or 64)
    return found if found is not None and found.rows else None


class Choice(NamedTuple):
    """A tile of C, and how k is divided."""

    shape: Shape
    splits: int  # parts of k
    depth: int  # and their steps
    whole: int = 0  # tiles of C, from the first on, whose k is not divided


_CLUSTER, _MANY = 2, 16  # rows of tiles, of which one that is empty does not count
_LEAST_DEPTH = 8  # tiles of k that repay a partial result in memory
_MANY_WAVES = 4  # of the largest tiles, whose last one, however empty, hardly counts
#: Nanoseconds of a tile of k and of all else of a tile of C of operands of one part, on an H200
#: (the nearest to what products of 256 to 2048 rows took).
_TIMES = {
    Shape(64, 64): (232, 330), Shape(64, 128): (248, 810), Shape(128, 128): (375, 600),
    Shape(128, 192): (500, 700), Shape(128, 256): (680, 1300),
}  # fmt: skip
#: The same of tiles of 16-bit operands of which the right one lies along k.
FINE = {Shape(64, 32): (252, 40), Shape(64, 96): (242, 570), Shape(192, 96): (400, 800)}
_REDUCED = 3000  # of a second launch, which joins parts of k


@functools.lru_cache(maxsize=1024)
def choose(
    kind: Kind, m: int, n: int, k: int, batch: int, sms: int, *, split: bool, fine: bool = False
) -> Choice:
    """The fastest tile by what each takes, where the largest ones are few.

    `split`: whether k may be split; `fine`: whether tiles may have any number of columns.
    """
    if kind.size == 8:
        return _doubles(m, n, k, batch, sms)
    large = _large(kind, m, n, k, batch, sms, split)
    tiles = -(-m // ROWS) * -(-n // kind.bn) * batch
    if kind.parts == 2 or kind is BINARY or not split or tiles >= _MANY_WAVES * sms:
        return large
    choices = {}
    for shape, (step, last) in (*_TIMES.items(), *(FINE.items() if fine else ())):
        one = large if shape[:2] == large.shape[:2] else Choice(shape, 1, k)
        tiles = -(-m // shape.rows) * -(-n // shape.columns) * batch
        rounds = -(-tiles * one.splits // sms)
        depth = -(-one.depth // kind.bk)
        choices[one] = rounds * (depth * step + last) + (one.splits > 1) * _REDUCED
    return min(choices, key=choices.__getitem__)


#: Columns of a tile of doubles, with its share of the peak speed (measured on an H200).
_DOUBLES = {128: 1.0, 64: 0.95}


def _doubles(m: int, n: int, k: int, batch: int, sms: int) -> Choice:
    """Tiles of 128 rows, of which the last wave is shared: products of doubles take longest."""
    choices = []
    for columns, speed in _DOUBLES.items():
        tiles = -(-m // ROWS) * -(-n // columns) * batch
        tile = Tile(ROWS, columns, _LINE // 8, 4, 16, 8)
        choices.append((*divide(tile, tiles, k, sms, speed), columns))
    _, launch, columns = min(choices, key=lambda one: one[0])
    return Choice(Shape(ROWS, columns), launch.splits, launch.k_split or k, launch.whole)


def _large(kind: Kind, m: int, n: int, k: int, batch: int, sms: int, split: bool) -> Choice:
    """Tiles of 128 x 256 (of parts: 128); k is split where they are fewer than multiprocessors."""
    tiles_m, tiles = -(-m // ROWS), -(-m // ROWS) * -(-n // kind.bn) * batch
    steps = -(-k // kind.bk)
    splits = max(1, min(sms // tiles, steps // _LEAST_DEPTH)) if split else 1
    depth = -(-steps // splits) * kind.bk
    splits = -(-k // depth)
    cluster = 1
    if kind is BINARY or kind.parts == 2:  # others are not faster so
        cluster = _CLUSTER if splits == 1 and (tiles_m % _CLUSTER == 0 or tiles_m > _MANY) else 1
    return Choice(Shape(ROWS, kind.bn, cluster), splits, depth)
