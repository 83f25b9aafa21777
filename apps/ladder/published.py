"""Published ladders, as printed: GFLOP/s, an FMA counting as two."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One table: our rung, their words, their GFLOP/s."""

    title: str
    source: str
    rows: tuple[tuple[str, str, float], ...]


PUBLISHED = (
    Published(
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
    ),
    Published(
        "NVIDIA_SGEMM_PRACTICE, RTX 3090, n = 5120",
        "https://github.com/lessw2020/NVIDIA_SGEMM_PRACTICE",
        (
            ("2", "naive, coalesced", 2262.168),
            ("3", "shared memory", 4216.536),
            ("4", "1-D thread tile", 7809.629),
            ("5", "2-D thread tile", 12251.3),
            ("6", "float4 access", 13161.49),
            ("7", "double buffering", 13634.98),
            ("cuBLAS", "cuBLAS", 14448.69),
        ),
    ),
)

#: Naive with neighbours along a row, and tiles of 32 × 32: n, naive in ms, then GFLOP/s of tiles
#: and of cuBLAS.
L4 = (
    "rtferraz/cuda-kernel-engineering, 04-tiled-gemm, NVIDIA L4",
    "https://huggingface.co/datasets/rtferraz/cuda-kernel-engineering",
)
L4_ROWS = (
    (512, 0.15, 2030, 7920),
    (1024, 1.28, 1890, 12172),
    (2048, 12.08, 2054, 15827),
    (4096, 141.39, 1624, 11977),
)
