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

__all__ = ["TILES", "Launch", "Tile", "choose", "keep_shares", "measured_shares", "split_k"]


@dataclass(frozen=True)
class Tile:
    """The template arguments of ``sr::Tile``, and sizes that follow from them.

    Parameters
    ----------
    bm, bn, bk : int
        Rows and columns (in words) of C that a block computes, and the steps of k in a stage.
    tm, tn : int
        Rows and columns (in words) of a thread's accumulators.
    lm : int
        Lanes of a warp along m; 32 / lm are along n.
    blocks : int
        Blocks resident on a multiprocessor; registers are limited accordingly.
    matrix : bool
        Whether lanes are in the layout of matrix instructions (``sr::MatrixTile``).
    pairs : bool
        Whether two steps of k lie side by side in shared memory, in opposite order in A and B.
    """

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    lm: int
    blocks: int = 1
    matrix: bool = False
    pairs: bool = False

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * (self.bm // (self.tm * self.lm)) * (self.bn // (self.tn * (32 // self.lm)))

    def shared(self, word: int) -> int:
        """Bytes of shared memory: two stages of a tile of A and one of B, in padded rows."""
        return 2 * self.bk * (self.bm + self.bn + (16 if self.matrix else 8)) * word

    @property
    def together(self) -> int:
        """Neighbouring columns of a thread: ``VN``."""
        return 8 if self.matrix else math.gcd(self.tn, 4)

    def struct(self) -> str:
        """The type's name in C++."""
        name = "MatrixTile" if self.matrix else "Tile"
        pairs = ", true" if self.pairs else ""
        return f"{name}<{self.bm}, {self.bn}, {self.bk}, {self.tm}, {self.tn}, {self.lm}{pairs}>"


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
#: "matrix": matrix instructions.
TILES: dict[str, dict[Tile, float]] = {
    "fma": {
        Tile(128, 256, 16, 8, 16, 8): 0.82,
        Tile(128, 128, 16, 8, 16, 8, 2): 0.76,
        **_SMALL,
    },
    "word": {
        Tile(128, 256, 16, 8, 16, 8): 0.80,
        Tile(128, 128, 16, 8, 16, 8, 2): 0.82,
        **_SMALL,
        Tile(64, 256, 16, 8, 16, 8, 2): 0.816,
    },
    "sum": {
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
    "slow": {Tile(32, 32, 32, 4, 2, 8, 4): 0.80},
    "wide": {Tile(128, 64, 16, 8, 4, 8, 2): 0.80, Tile(32, 32, 32, 4, 2, 8, 4): 0.45},
    "arg": {
        Tile(64, 128, 32, 8, 8, 8, 2): 0.62,
        Tile(64, 64, 16, 4, 4, 8, 2): 0.45,
        Tile(32, 32, 32, 4, 2, 8, 4): 0.30,
    },
    "matrix": {
        Tile(128, 128, 32, 8, 8, 8, 1, True): 0.80,
        Tile(64, 64, 32, 8, 8, 8, 4, True): 0.40,
    },
    "arg wide": {Tile(32, 32, 32, 4, 2, 8, 4): 0.30},
}
TILES["bits"] = TILES["sum"]


@dataclass(frozen=True)
class Launch:
    """A tile, and how tiles of C are divided among blocks.

    Parameters
    ----------
    tile : Tile
    whole : int
        The number of tiles of C, from the first on, that one block each computes.
    splits, k_split : int
        Blocks that share each other tile of C, and the steps of k of each such block.
    """

    tile: Tile
    whole: int
    splits: int = 1
    k_split: int = 0


def split_k(tile: Tile, whole: int, k: int, splits: int) -> Launch:
    """The launch in which at most `splits` blocks share each tile of C after the first `whole`."""
    k_split = math.ceil(k / (splits * tile.bk)) * tile.bk
    return Launch(tile, whole, math.ceil(k / k_split), k_split)


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
_START = 21.0  # start and end of a block, in steps of k
_ALONE = 0.73  # speed of one block on a multiprocessor that has room for several
_PART = 52.0  # storing a word of a partial result and reading it again
_JOIN = 7e5  # launching the kernel that reduces partial results
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
    device: str = "",
) -> Launch:
    """The tile and the split of k of least time by a simple model of the chip.

    Blocks run in waves that fill the chip. Where the last tiles of C would not fill a wave, their
    k is split, so that they take less time than a full wave.

    Parameters
    ----------
    kind : str
        A key of :data:`TILES`.
    m, words, k : int
        Rows and columns (in words) of C, and the steps of k.
    batch : int
        Matrices.
    sms : int
        Multiprocessors.
    split : bool
        Whether several blocks may share a tile of C.
    device : str
        The device's name, for shares that were measured on it.
    """
    best: tuple[float, Launch] | None = None
    measured = measured_shares(device)
    for tile, usual in TILES[kind].items():
        size = tile.bm * tile.bn
        speed = measured.get((kind, tile), usual)
        tiles = math.ceil(m / tile.bm) * math.ceil(words / tile.bn) * batch
        for launch in _launches(tile, tiles, k, sms * tile.blocks, split):
            time = _waves(tile, launch.whole, sms) * (k + _START) * size / speed
            if parts := (tiles - launch.whole) * launch.splits:
                time += _waves(tile, parts, sms) * (launch.k_split + _START) * size / speed
                time += _PART * parts * size / sms + _JOIN
            if best is None or time < best[0]:
                best = (time, launch)
    assert best is not None
    return best[1]


def _launches(tile: Tile, tiles: int, k: int, room: int, split: bool) -> Iterator[Launch]:
    """Possible launches for the tiles of C on a chip that runs `room` blocks at once."""
    yield Launch(tile, tiles)
    whole = tiles - tiles % room
    for splits in _SPLITS if split and whole < tiles else ():
        if k < 2 * tile.bk * splits or (tiles - whole) * splits > 8 * room:
            break
        yield split_k(tile, whole, k, splits)


def _waves(tile: Tile, blocks: int, sms: int) -> float:
    """Time of `blocks` blocks, in units of one block alone on a multiprocessor at full speed."""
    waves, rest = divmod(blocks, sms * tile.blocks)
    busiest = math.ceil(rest / sms)
    return waves * tile.blocks + busiest / (_ALONE + (1 - _ALONE) * busiest / tile.blocks)
