"""The rungs: what each one adds, and its template arguments."""

from __future__ import annotations

from dataclasses import dataclass

from semiring_mm.gpu.tiles import Tile

from .rungs import Grid, Loop, VectorLoop

__all__ = ["BLOCKS", "ELEMENTS", "LANES", "PRODUCT", "ROWS", "STAGES", "VECTOR", "Rung"]


@dataclass(frozen=True)
class Rung:
    """One step of the ladder.

    Parameters
    ----------
    number : str
        Its place, as the page numbers it.
    name : str
        What it adds to the rung before.
    why : str
        Why that should be faster, in a line.
    loop : Loop or VectorLoop, optional
        The template arguments; None for a step that is a call of the library's public functions.
    call : str
        Which public function that is: a key of :data:`.measure.CALLS`.
    after : str
        The number of the rung that it is compared with; the one before it if empty.
    """

    number: str
    name: str
    why: str
    loop: Loop | VectorLoop | None = None
    call: str = ""
    after: str = ""


_WARPS = Tile(128, 128, 16, 8, 8, 8, 2)


def _elements(tm: int, tn: int) -> Loop:
    return Loop(Grid(16, 16, 16, tm, tn, blocks=2 if tm * tn <= 64 else 1))


#: C = A ⊗ B, row-major.
PRODUCT = (
    Rung(
        "1", "naive", "one thread per element; neighbours lie one row apart",
        Loop(Tile(32, 32, 4, 1, 1, 32), stages=0),
    ),
    Rung(
        "2", "coalesced", "neighbours lie along a row: a warp's words come in four sectors, not 32",
        Loop(Tile(32, 32, 4, 1, 1, 1), stages=0),
    ),
    Rung(
        "3", "shared memory", "a block reads each word once for 32 threads",
        Loop(Grid(32, 32, 32, 1, 1, pad=1)),
    ),
    Rung(
        "4", "1-D thread tile", "a word of B, once in a register, serves 8 rows",
        Loop(Grid(8, 64, 16, 8, 1)),
    ),
    Rung(
        "5", "2-D thread tile", "16 words read for 64 pairs",
        _elements(8, 8),
    ),
    Rung(
        "6", "vectors, no bank conflicts", "16 bytes an instruction, neighbours on other banks",
        Loop(Grid(16, 16, 16, 8, 8, spread=True, pad=4, blocks=2), wide=True),
    ),
    Rung(
        "7", "warp tile, register buffers", "the next operands are on their way during arithmetic",
        Loop(Tile(128, 128, 8, 8, 8, 8, 2), ahead=True, wide=True),
    ),
    Rung(
        "8", "asynchronous stages", "three tiles in flight, past the registers",
        Loop(_WARPS, stages=3, ahead=True, wide=True, async_=True),
    ),
    Rung("9", "tuned tile", "what sm.matmul launches: tile, schedule and split of k by size",
         call="matmul"),
)  # fmt: skip

#: Rung 3 with blocks of other sides.
BLOCKS = {b: Loop(Grid(b, b, b, 1, 1, pad=1)) for b in (1, 2, 4, 8, 16, 32)}
#: Rung 5 with other numbers of elements per thread, at 256 threads a block.
ELEMENTS = {
    tm * tn: _elements(tm, tn)
    for tm, tn in ((1, 1), (2, 1), (2, 2), (4, 2), (4, 4), (8, 4), (8, 8), (16, 8), (16, 16))
}
#: Rung 8 with other numbers of stages.
STAGES = {
    count: Loop(_WARPS, stages=count, ahead=True, wide=True, async_=True) for count in (2, 3, 4)
}

#: y = A ⊗ x.
VECTOR = (
    Rung("1", "one thread per row, row-major", "neighbours lie one row apart",
         VectorLoop(True)),
    Rung("2", "one thread per row, column-major", "neighbours read neighbouring words",
         VectorLoop(False)),
    Rung("3", "several threads per row, row-major", "a warp goes along a row",
         VectorLoop(True, lanes=32), after="1"),
    Rung("4", "several threads per row, column-major", "as many warps as the chip has room for",
         VectorLoop(False, lanes=8), after="2"),
    Rung("5", "several rows per thread, row-major", "a word of x serves two rows",
         VectorLoop(True, rows=2), after="1"),
    Rung("6", "several rows per thread, column-major", "four rows a load",
         VectorLoop(False, rows=4, wide=True), after="2"),
    Rung("7", "both, row-major", "a warp along two rows, 16 bytes a load",
         VectorLoop(True, lanes=32, rows=2, wide=True), after="3"),
    Rung("8", "both, column-major", "four rows a load, eight threads a row",
         VectorLoop(False, lanes=8, rows=4, wide=True), after="4"),
    Rung("9", "tuned, row-major", "what sm.gemv launches: lanes and parts of k by size",
         call="gemv", after="7"),
    Rung("10", "tuned, column-major", "the same for a matrix that lies by columns",
         call="gemv columns", after="8"),
)  # fmt: skip

#: Rung 3 of the matrix-vector product with other numbers of threads per row, ...
LANES = {lanes: VectorLoop(True, lanes=lanes) for lanes in (1, 2, 4, 8, 16, 32, 64, 128, 256)}
#: ... and rung 7 with other numbers of rows per thread.
ROWS = {rows: VectorLoop(True, lanes=32, rows=rows, wide=True) for rows in (1, 2, 4, 8)}
