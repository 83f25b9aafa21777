"""What the chips of an architecture have, in one table: inner steps follow from it.

The names are those of the instructions in machine code. Compiled for a chip that lacks one, a step
still gives the same results, by two instructions or more.
"""

from __future__ import annotations

__all__ = ["ARCHITECTURES", "has"]

_80 = {
    "HMMA",  # matrix products by a warp: 16-bit floats, TF32
    "HMNMX2",  # minima of two pairs of 16-bit floats, NaN kept
}
_DPX = {
    "VIMNMX3",  # minima of three integers, which order non-negative floats too
    "VIADDMNMX",  # the minimum of an integer and a sum
    "VHMNMX",  # minima of three pairs of 16-bit floats
}
_16x2 = {"VIMNMX.S16x2"}  # minima of two pairs of 16-bit integers, and their sums
_PACKED = {"FFMA2"}  # two floats by one instruction: FFMA2, FADD2, FMUL2
_THREE = {"FMNMX3"}  # the minimum of three floats, NaN kept

#: Instructions by architecture; one that is not here has those of the next lower one that is.
ARCHITECTURES: dict[int, frozenset[str]] = {
    75: frozenset(),
    80: frozenset(_80),
    90: frozenset(_80 | _DPX | _16x2 | {"HGMMA"}),  # matrix products by four warps
    100: frozenset(_80 | _DPX | _16x2 | _PACKED | _THREE),
    103: frozenset(_80 | _DPX | _16x2 | _PACKED | _THREE),
    110: frozenset(_80 | _THREE),
    120: frozenset(_80 | _16x2),
}


def has(arch: int, instruction: str) -> bool:
    """Whether the chips of an architecture have an instruction.

    Examples
    --------
    >>> has(90, "VIMNMX3"), has(120, "VIMNMX3"), has(89, "HMMA")
    (True, False, True)
    """
    known = max((x for x in ARCHITECTURES if x <= arch), default=min(ARCHITECTURES))
    return instruction in ARCHITECTURES[known]
