"""Which tile computes a product: a pure function of the problem and the chip."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

__all__ = ["TILES", "Launch", "Tile", "choose"]


@dataclass(frozen=True)
class Tile:
    """The template arguments of ``sr::Tile``, and what they imply.

    Parameters
    ----------
    bm, bn, bk : int
        Words of C that a block computes, and the steps of k that it takes at a time.
    tm, tn : int
        Accumulators of a thread.
    lm : int
        Lanes of a warp along m; 32 / lm lie along n.
    blocks : int
        Blocks that share a multiprocessor (the registers are limited to make it so).
    """

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    lm: int
    blocks: int = 1

    @property
    def threads(self) -> int:
        return 32 * (self.bm // (self.tm * self.lm)) * (self.bn // (self.tn * (32 // self.lm)))

    def shared(self, word: int) -> int:
        """Bytes of shared memory: two stages of a tile of A and one of B, in rows padded by 4."""
        return 2 * self.bk * (self.bm + self.bn + 8) * word

    def arguments(self) -> str:
        return f"{self.bm}, {self.bn}, {self.bk}, {self.tm}, {self.tn}, {self.lm}"


#: Tiles by kind of product, with the share of the inner loop's ceiling that each reaches when it
#: fills the chip: "fma" takes one instruction a pair, "word" several, "coded" reads values that it
#: must convert, "slow" calls long functions, "pair" has two columns to a word, "bits" 32; "wide"
#: are 64-bit words; "arg" keeps the k that won.
TILES: dict[str, dict[Tile, float]] = {
    "fma": {
        Tile(128, 256, 32, 8, 16, 8): 0.95,
        Tile(128, 128, 16, 8, 16, 8, 2): 0.91,
        Tile(64, 64, 16, 4, 4, 8, 3): 0.55,
        Tile(32, 32, 32, 4, 2, 8, 4): 0.35,
    },
    "word": {
        Tile(128, 256, 16, 8, 16, 8): 0.95,
        Tile(128, 128, 16, 8, 16, 8, 2): 0.93,
        Tile(64, 64, 16, 4, 4, 8, 3): 0.65,
        Tile(32, 32, 32, 4, 2, 8, 4): 0.40,
    },
    "coded": {
        Tile(128, 256, 8, 8, 16, 8): 0.92,
        Tile(128, 128, 8, 8, 16, 8, 2): 0.90,
        Tile(64, 64, 16, 4, 4, 8, 3): 0.65,
        Tile(32, 32, 32, 4, 2, 8, 4): 0.40,
    },
    "slow": {Tile(32, 32, 32, 4, 2, 8, 4): 0.90},
    "pair": {
        Tile(128, 128, 32, 8, 16, 8, 2): 0.95,
        Tile(64, 64, 16, 4, 4, 8, 3): 0.65,
        Tile(32, 32, 32, 4, 2, 8, 4): 0.40,
    },
    "wide": {
        Tile(128, 64, 16, 8, 4, 8, 2): 0.90,
        Tile(32, 32, 32, 4, 2, 8, 4): 0.45,
    },
    "arg": {
        Tile(128, 128, 16, 8, 8, 8): 0.60,
        Tile(64, 64, 16, 4, 4, 8, 2): 0.45,
        Tile(32, 32, 32, 4, 2, 8, 4): 0.30,
    },
    "arg wide": {Tile(32, 32, 32, 4, 2, 8, 4): 0.30},
}
TILES["bits"] = TILES["word"]


@dataclass(frozen=True)
class Launch:
    """A tile, and into how many parts k is split."""

    tile: Tile
    splits: int
    k_split: int


_START = 12.0  # what a block costs beside its steps, in steps of k of a full tile
_PARTS = 64 * 1024  # words of a partial result that a multiprocessor stores and reads in that time


@functools.lru_cache(maxsize=4096)
def choose(
    kind: str, m: int, words: int, k: int, batch: int, sms: int, *, split: bool = True
) -> Launch:
    """The tile and the split of k that a simple model of the chip expects to be fastest.

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
        Whether k may be split.
    """
    best: tuple[float, Launch] | None = None
    for tile, share in TILES[kind].items():
        blocks = math.ceil(m / tile.bm) * math.ceil(words / tile.bn) * batch
        room = sms * tile.blocks
        most = max(1, min(64, k // (8 * tile.bk))) if split else 1
        counts = {1, most, *(max(1, min(most, w * room // blocks)) for w in (1, 2, 3))}
        for splits in sorted(counts):
            k_split = math.ceil(k / (splits * tile.bk)) * tile.bk if splits > 1 else k
            parts = math.ceil(k / k_split)
            waves = math.ceil(blocks * parts / room)
            # a lone block on a multiprocessor does not hide its waits
            alone = min(1.0, blocks * parts / room) if waves == 1 else 1.0
            speed = share * (0.6 + 0.4 * alone if tile.blocks > 1 else 1.0)
            area = tile.bm * tile.bn * tile.blocks
            time = waves * area * (k_split / speed + _START)
            if parts > 1:
                time += _PARTS * parts * m * words * batch / (_PARTS * sms) * 4
            launch = Launch(tile, parts, k_split)
            if best is None or time < best[0]:
                best = (time, launch)
    assert best is not None
    return best[1]
