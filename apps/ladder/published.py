"""A published ladder, as printed: GFLOP/s, an FMA counting as two."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One table: our rung, their words, their GFLOP/s."""

    title: str
    source: str
    rows: tuple[tuple[str, str, float], ...]


PUBLISHED = Published(
    "S. Boehm, RTX A6000, n = 4092",
    "https://github.com/siboehm/SGEMM_CUDA",
    (
        ("1", "naive", 309.0),
        ("2", "coalesced global memory", 1986.5),
        ("3", "shared memory", 2980.3),
        ("4", "1-D block tile", 8474.7),
        ("5", "2-D block tile", 15971.7),
        ("6", "vectorised memory access", 18237.3),
        ("", "autotuning", 19721.0),
        ("7", "warp tile", 21779.3),
        ("cuBLAS", "cuBLAS", 23249.6),
    ),
)
