"""The tile size and split of k for a product: a pure function of the problem and the chip."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from ..cache import cache_directory
from ..storage import atomic_write

__all__ = [
    "TILES", "Launch", "Tile", "choose", "divide", "keep_shares", "measured_shares", "split_k",
]  # fmt: skip


@dataclass(frozen=True)
class Tile:
    """The template arguments of ``sr::Tile``, and sizes that follow from them."""

    bm: int  # rows of C that a block computes
    bn: int  # and columns, in words
    bk: int  # steps of k in a stage
    tm: int  # rows of a thread's accumulators
    tn: int  # and columns, in words
    lm: int  # lanes of a warp along m; 32 / lm are along n
    blocks: int = 1  # resident on a multiprocessor; registers are limited accordingly
    # bytes of a word where lanes are in the layout of matrix instructions (``sr::MatrixTile``);
    # else 0
    matrix: int = 0
    stages: int = 2  # tiles of k in shared memory, loading or in use
    # whether two steps of k lie side by side in shared memory, in opposite order in A and B
    pairs: bool = False

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * (self.bm // (self.tm * self.lm)) * (self.bn // (self.tn * (32 // self.lm)))

    def shared(self, word: int) -> int:
        """Bytes of shared memory: stages of a tile of A and one of B, in padded rows."""
        padding = 64 // self.matrix if self.matrix else 8
        return self.stages * self.bk * (self.bm + self.bn + padding) * word

    @property
    def together(self) -> int:
        """Neighbouring columns of a thread: ``VN``."""
        return 32 // self.matrix if self.matrix else math.gcd(self.tn, 4)

    def struct(self) -> str:
        """The type's name in C++."""
        sizes = [self.bm, self.bn, self.bk, self.tm, self.tn, self.lm]
        if self.matrix:
            sizes += [self.stages, self.matrix]
        rest = f", {str(self.pairs).lower()}" if self.pairs or self.stages != 2 else ""
        rest += f", {self.stages}" if self.stages != 2 else ""
        name, rest = ("MatrixTile", "") if self.matrix else ("Tile", rest)
        return f"{name}<{', '.join(map(str, sizes))}{rest}>"


# For small matrices, and for those of few rows or columns.
_SMALL: dict[Tile, float] = {
    Tile(64, 128, 16, 8, 8, 8, 4): 0.765,
    Tile(64, 64, 32, 8, 4, 8, 4): 0.77,
    Tile(32, 64, 32, 4, 4, 8, 6): 0.67,
    Tile(32, 32, 32, 4, 2, 8, 4): 0.50,
    Tile(16, 256, 32, 4, 8, 4, 3): 0.63,
    Tile(64, 256, 16, 8, 16, 8, 2): 0.80,
    Tile(256, 16, 32, 8, 4, 8, 3): 0.44,
    Tile(256, 32, 32, 8, 8, 8, 2): 0.69,
    Tile(256, 64, 16, 8, 16, 8, 2): 0.80,
}
#: Tiles by kind of product, with the share of peak speed that each reaches when it fills the chip
#: (measured on an H200): "fma": one multiply-add a pair; "sum": other sums; "word": other
#: operations on 32-bit words; "nonnegative": minima of float sums or products that are all >= 0;
#: "coded": words that are converted when they are read; "slow": functions of many instructions;
#: "pair": two integers in a word; "halves": two 16-bit floats; "joined halves": the same by minima
#: of three; "bits": 32 truth values; "wide": 64-bit words; "arg": the k of each result is kept;
#: "matrix": matrix instructions, on floats; "matrix wide": on doubles.
TILES: dict[str, dict[Tile, float]] = {
    "fma": {
        Tile(128, 256, 8, 8, 16, 8, stages=4): 0.84,
        Tile(128, 128, 8, 8, 16, 8, 2, stages=4): 0.815,
        Tile(64, 128, 16, 8, 8, 8, 4): 0.80,
        Tile(64, 64, 32, 8, 4, 8, 4): 0.71,
        Tile(32, 64, 32, 4, 4, 8, 6): 0.64,
        Tile(32, 32, 32, 4, 2, 8, 4): 0.43,
        Tile(16, 256, 32, 4, 8, 4, 3): 0.56,
        Tile(64, 256, 8, 8, 16, 8, 2, stages=4): 0.82,
        **{tile: share for tile, share in _SMALL.items() if tile.bm == 256},
    },
    "word": {
        Tile(128, 256, 16, 8, 16, 8): 0.80,
        Tile(128, 128, 16, 8, 16, 8, 2): 0.82,
        **_SMALL,
        Tile(64, 256, 16, 8, 16, 8, 2): 0.816,
    },
    "sum": {
        Tile(128, 128, 4, 8, 16, 8, 2, stages=4): 0.84,
        Tile(128, 256, 16, 8, 16, 8): 0.82,
        **_SMALL,
    },
    "bits": {
        Tile(128, 256, 16, 8, 16, 8): 0.82,
        Tile(128, 128, 16, 8, 16, 8, 2): 0.79,
        **_SMALL,
    },
    "nonnegative": {
        Tile(128, 256, 16, 8, 16, 8, pairs=True): 0.82,
        Tile(128, 128, 16, 8, 16, 8, 2, pairs=True): 0.80,
        **_SMALL,
    },
    "coded": {
        Tile(128, 256, 16, 8, 16, 8): 0.82,
        Tile(128, 128, 8, 8, 16, 8, 2): 0.81,
        **_SMALL,
    },
    "pair": {Tile(128, 128, 16, 8, 16, 8, 2): 0.82, **_SMALL},
    "halves": {Tile(128, 128, 16, 8, 16, 8, 2): 0.82, **_SMALL},
    "joined halves": {
        Tile(128, 256, 16, 8, 16, 8, pairs=True): 0.83,
        Tile(128, 128, 16, 8, 16, 8, 2): 0.81,
        **_SMALL,
    },
    # A word of B is made of two columns, whose steps of k wait in registers: tiles of fewer steps,
    # or of fewer blocks, where the others spill.
    "joined halves, B along k": {
        Tile(128, 256, 8, 8, 16, 8, pairs=True): 0.82,
        Tile(128, 128, 8, 8, 16, 8, 2, pairs=True): 0.805,
        Tile(64, 128, 16, 8, 8, 8, 3): 0.75,
        **{tile: share for tile, share in _SMALL.items() if tile.tm * tile.tn < 64},
        Tile(256, 32, 32, 8, 8, 8, 2): 0.69,
        Tile(256, 64, 8, 8, 16, 8, 2): 0.77,
    },
    "slow": {Tile(32, 32, 32, 4, 2, 8, 4): 0.80},
    "wide": {Tile(128, 64, 16, 8, 4, 8, 2): 0.80, Tile(32, 32, 32, 4, 2, 8, 4): 0.45},
    "arg": {
        Tile(64, 128, 32, 8, 8, 8, 2): 0.62,
        Tile(64, 64, 16, 4, 4, 8, 2): 0.45,
        Tile(32, 32, 32, 4, 2, 8, 4): 0.30,
    },
    "matrix": {
        Tile(128, 128, 32, 8, 8, 8, 1, 4): 0.80,
        Tile(64, 64, 32, 8, 8, 8, 4, 4): 0.40,
    },
    "matrix wide": {
        Tile(128, 128, 16, 4, 16, 8, 1, 8, 4): 0.88,
        Tile(64, 64, 16, 4, 8, 8, 2, 8, 3): 0.80,
        Tile(32, 32, 16, 2, 4, 8, 4, 8, 3): 0.60,
    },
    "arg wide": {Tile(32, 32, 32, 4, 2, 8, 4): 0.30},
}


#: Blocks of a cluster, at most.
CLUSTER = 2


@dataclass(frozen=True)
class Launch:
    """A tile, and how tiles of C are divided among blocks."""

    tile: Tile
    whole: int  # the number of tiles of C, from the first on, that one block each computes
    splits: int = 1  # blocks that share each other tile of C
    k_split: int = 0  # and the steps of k of each such block
    cluster: bool = False  # whether these blocks are a cluster (all tiles are shared then)


def split_k(tile: Tile, whole: int, k: int, splits: int, *, clusters: bool = False) -> Launch:
    """The launch in which at most `splits` blocks share each tile of C after the first `whole`.

    `clusters`: whether the chip has clusters of blocks.
    """
    k_split = math.ceil(k / (splits * tile.bk)) * tile.bk
    splits = math.ceil(k / k_split)
    return Launch(tile, whole, splits, k_split, clusters and not whole and 1 < splits <= CLUSTER)


def _file_of(device: str) -> Path:
    name = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return cache_directory() / f"tiles-{name}.json"


@functools.cache
def measured_shares(device: str) -> Mapping[tuple[str, Tile], float]:
    """Shares of peak, by kind and tile, measured on this device by ``python -m bench tune``."""
    try:
        kept = json.loads(_file_of(device).read_text())
        return {(str(kind), Tile(*row)): float(share) for kind, row, share in kept}
    except (OSError, ValueError, TypeError):
        return {}


def keep_shares(device: str, shares: Mapping[tuple[str, Tile], float]) -> Path:
    """Save measured shares, which override the table on devices of this name."""
    path = _file_of(device)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [[kind, astuple(tile), share] for (kind, tile), share in shares.items()]
    with atomic_write(path) as part:
        part.write_text(json.dumps(rows))
    measured_shares.cache_clear()
    choose.cache_clear()
    return path


# Constants of the model, fitted to measured times of products from 256³ to 4096³ and of products
# with few rows or columns. The unit of time is a pair computed by one multiprocessor.
_START = 8.0  # start and end of a block, in steps of k
_ALONE = 0.76  # speed of one block on a multiprocessor that has room for several
_PART = 38.0  # storing a word of a partial result and reading it again
_JOIN = 5e5  # launching the kernel that reduces partial results
_CLUSTER = 2.4e5  # the barriers of a cluster that joins its results
_MOST_ROUNDS = 8  # of second parts of k: more of them save less than they cost
_SPLITS = (2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 20, 24, 32, 48, 64)


@functools.lru_cache(maxsize=4096)
def choose(
    kind: str,
    m: int,
    words: int,
    k: int,
    batch: int,
    sms: int,
    *,
    split: bool = True,
    clusters: bool = False,
    device: str = "",
) -> Launch:
    """The tile and the split of k of least time by a simple model of the chip.

    Blocks run in waves that fill the chip. Where the last tiles of C would not fill a wave, their k
    is split, so that they take less time than a full wave. `kind` is a key of :data:`TILES`, `m`
    and `words` are the rows and columns (in words) of C, `sms` the multiprocessors. Blocks may
    share a tile of C (`split`), and the chip may have clusters of them; shares that were measured
    on the device of that name are taken.
    """
    best: tuple[float, Launch] | None = None
    measured = measured_shares(device)
    for tile, usual in TILES[kind].items():
        speed = measured.get((kind, tile), usual)
        tiles = math.ceil(m / tile.bm) * math.ceil(words / tile.bn) * batch
        for launch in _launches(tile, tiles, k, sms * tile.blocks, split, clusters):
            time = _time(launch, tiles, k, sms, speed)
            if best is None or time < best[0]:
                best = (time, launch)
    assert best is not None
    return best[1]


def divide(tile: Tile, tiles: int, k: int, sms: int, speed: float = 1.0) -> tuple[float, Launch]:
    """How `tiles` tiles of C are best divided among blocks, and the time that takes.

    By the model of :func:`choose`; `speed` is the tile's share of peak.
    """
    launches = _launches(tile, tiles, k, sms * tile.blocks, True, False)
    timed = [(_time(launch, tiles, k, sms, speed), launch) for launch in launches]
    return min(timed, key=lambda one: one[0])


def _time(launch: Launch, tiles: int, k: int, sms: int, speed: float) -> float:
    """The time of a launch, in pairs that a multiprocessor computes at its peak speed."""
    tile = launch.tile
    size = tile.bm * tile.bn
    time = _waves(tile, launch.whole, sms) * (k + _START) * size / speed
    if parts := (tiles - launch.whole) * launch.splits:
        if 2 * launch.k_split > k:  # of parts of two lengths
            time += tile.blocks * (launch.k_split + _START) * size / speed
        else:
            time += _waves(tile, parts, sms) * (launch.k_split + _START) * size / speed
        time += _PART * parts * size / sms + (_CLUSTER if launch.cluster else _JOIN)
    return time


def _launches(
    tile: Tile, tiles: int, k: int, room: int, split: bool, clusters: bool
) -> Iterator[Launch]:
    """Possible launches for the tiles of C on a chip that runs `room` blocks at once."""
    yield Launch(tile, tiles)
    whole = tiles - tiles % room
    if split and whole < tiles:
        # each tile gives the same part of its k to the places where there is no tile
        rounds = math.ceil((tiles - whole) / (room - (tiles - whole)))
        launch = _two_parts(tile, whole, k, rounds)
        if rounds <= _MOST_ROUNDS and k - launch.k_split >= 2 * tile.bk:
            yield launch
    for splits in _SPLITS if split and whole < tiles else ():
        if k < 2 * tile.bk * splits or (tiles - whole) * splits > 8 * room:
            break
        yield split_k(tile, whole, k, splits, clusters=clusters)


def _two_parts(tile: Tile, whole: int, k: int, rounds: int) -> Launch:
    """A first part of k, and a second one, of which `rounds` take about as long as the first."""
    return Launch(tile, whole, 2, math.ceil(rounds * k / (rounds + 1) / tile.bk) * tile.bk)


def _waves(tile: Tile, blocks: int, sms: int) -> float:
    """Time of `blocks` blocks, in units of one block alone on a multiprocessor at full speed."""
    waves, rest = divmod(blocks, sms * tile.blocks)
    busiest = math.ceil(rest / sms)
    return waves * tile.blocks + busiest / (_ALONE + (1 - _ALONE) * busiest / tile.blocks)
