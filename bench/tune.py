"""Measure the rate of each tile on this device: `python -m bench tune`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from semiring_mm.engine import PLAIN
from semiring_mm.gpu import device, launch, product
from semiring_mm.gpu.tiles import TILES, Launch, Tile, keep_shares
from semiring_mm.semirings import semirings

#: Steps of k and rounds of blocks: enough that starting and ending do not count.
_DEPTH, _ROUNDS = 2048, 3
_KINDS = {"fma": "plus_times", "word": "min_plus"}


def tune() -> int:
    """Time the large tiles of 32-bit words where they fill the chip, and keep their shares.

    The shares of small tiles were fitted to small products and stay as they are in the table.
    """
    here = device.current()
    shares = {}
    for kind, name in _KINDS.items():
        tiles = [tile for tile in TILES[kind] if tile.bm * tile.bn >= 64 * 256]
        rates = {tile: _rate(here, tile, name) for tile in tiles}
        most, best = max(TILES[kind].values()), max(rates.values())
        for tile, rate in rates.items():
            shares[kind, tile] = most * rate / best
            print(
                f"{name:10} {tile.struct():34} {rate / 1e12:6.2f} T/s  "
                f"share {most * rate / best:.3f}, in the table {TILES[kind][tile]:.3f}"
            )
    print(f"kept in {keep_shares(here.name, shares)}")
    return 0


def _rate(here: Any, tile: Tile, name: str) -> float:
    """Pairs a second of a product whose blocks are all resident at once."""
    xp = here.xp
    across = max(1, round((here.sms * tile.blocks) ** 0.5))
    down = here.sms * tile.blocks * _ROUNDS // across
    m, n = down * tile.bm, across * tile.bn
    random = xp.random.default_rng(0)
    a, b = (random.random(s, dtype=np.float32) - 0.5 for s in ((m, _DEPTH), (_DEPTH, n)))
    c = xp.empty((m, n), np.float32)
    plain = None, None, None, 1, PLAIN, False
    way = product._plans(semirings[name], a.dtype, *plain, here.arch)[-1]
    chosen, product.choose = product.choose, lambda *_, **__: Launch(tile, down * across)
    try:
        launch.forget()
        run = functools.partial(
            product._run, here, way, a=a, b=b, c=c, arg=None, gather=None, errors=None,
            transposed=None,
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
        product.choose = chosen
        launch.forget()
    return m * n * _DEPTH / sorted(times)[2]
