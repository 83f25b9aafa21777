"""How fast each tile is on this device: `python -m bench tune`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from semiring_mm.gpu import device, engine
from semiring_mm.gpu.tiles import TILES, Launch, Tile, keep_shares
from semiring_mm.semirings import semirings

#: Steps of k and rounds of blocks: enough that starting and ending do not count.
_DEPTH, _ROUNDS = 2048, 3


def tune() -> int:
    """Time every tile of 32-bit words where it fills the chip, and keep the shares."""
    here = device.current()
    most = max(TILES["word"].values())
    rates = {tile: _rate(here, tile) for tile in TILES["word"]}
    best = max(rates.values())
    shares = {tile: most * rate / best for tile, rate in rates.items()}
    for tile, share in shares.items():
        print(f"{tile.arguments():24} {rates[tile] / 1e12:6.2f} T/s  share {share:.3f}, "
              f"in the table {TILES['word'][tile]:.3f}")  # fmt: skip
    print(f"kept in {keep_shares(here.name, shares)}")
    return 0


def _rate(here: Any, tile: Tile) -> float:
    """Pairs a second of a min-plus product of which every block has a place at once."""
    xp = here.xp
    across = max(1, round((here.sms * tile.blocks) ** 0.5))
    down = here.sms * tile.blocks * _ROUNDS // across
    m, n = down * tile.bm, across * tile.bn
    random = xp.random.default_rng(0)
    a, b = (random.random(s, dtype=np.float32) - 0.5 for s in ((m, _DEPTH), (_DEPTH, n)))
    c = xp.empty((m, n), np.float32)
    plain = None, None, None, 1, None, None, False
    way = engine._plans(semirings["min_plus"], a.dtype, *plain, here.arch)[-1]
    chosen, engine.choose = engine.choose, lambda *_, **__: Launch(tile, 1, _DEPTH)
    try:
        way.launches.clear()
        run = functools.partial(
            engine._run, here, way, a=a, b=b, c=c, arg=None, gather=None, bad=None, mode=0,
            alpha=None, beta=None, triangle=False,
        )  # fmt: skip
        run()
        times = []
        for _ in range(5):
            start, end = (xp.cuda.Event() for _ in range(2))
            start.record()
            run()
            end.record()
            end.synchronize()
            times.append(xp.cuda.get_elapsed_time(start, end) / 1e3)
    finally:
        engine.choose = chosen
        way.launches.clear()
    return m * n * _DEPTH / sorted(times)[2]
