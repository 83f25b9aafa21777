"""Count what holds the loop of a product up, in its machine code: `python -m bench.banks`.

Registers lie in two banks, of even and of odd numbers, each of which gives an instruction one
operand a cycle; an operand that the instruction before marked `.reuse`, in the same place, costs
nothing. A load from shared memory holds its warp for four cycles where the compiler puts it beside
another one. Nineteen loops of SGEMM on an H200 (1,111 to 1,170 instructions for eight steps of k)
took 1.05 cycles for each instruction, half a cycle for each conflict and 6.6 for each such load:
1.2 % off (root mean square), 3.6 % at most. So the counts, which need no device, tell a bad order
of the outer product (kernels/multiplier.cuh) from a good one; which of two good ones is faster is
to be measured.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

_LOAD = re.compile(r"\bLDS\.128\b[^;]*;\s*/\* 0x\w{16} \*/\s*/\* 0x(\w{16}) \*/")
_LINE = re.compile(r"^\s*/\*\w+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s+([^;]*);", re.MULTILINE)


def conflicts(code: str, operation: str = "FFMA") -> tuple[int, int]:
    """Cycles that instructions of a kind wait for operands, and how many of them there are.

    Parameters
    ----------
    code : str
        What ``nvdisasm -c`` prints.
    operation : str
        The instruction.

    Returns
    -------
    waits, count : int
    """
    waits = count = 0
    held: dict[int, str] = {}  # the operands that are at hand, by place
    for name, operands in _LINE.findall(code):
        sources = [x.strip() for x in operands.split(",")][1:]
        registers = {i: m[0] for i, x in enumerate(sources) if (m := re.match(r"R\d+", x))}
        if name == operation:
            count += 1
            read = {int(r[1:]) for i, r in registers.items() if held.get(i) != r}
            odd = sum(r % 2 for r in read)
            waits += max(odd, len(read) - odd, 1) - 1
        held = {i: r for i, r in registers.items() if ".reuse" in sources[i]}
    return waits, count


def crowded_loads(code: str) -> int:
    """The number of 16-byte loads from shared memory that hold their warp for four cycles or more.

    Parameters
    ----------
    code : str
        What ``nvdisasm -c -hex`` prints.

    Returns
    -------
    int
    """
    return sum(int(control, 16) >> 41 & 15 > 3 for control in _LOAD.findall(code))


def main(nvdisasm: str = "nvdisasm") -> None:
    """Print the counts of every tile of float32 products that is large."""
    from semiring_mm.gpu import device, source, tiles
    from semiring_mm.plan import make_plan
    from semiring_mm.semirings import semirings

    plan = make_plan(semirings["plus_times"], np.dtype("f4"), None, None, 1)
    for tile in tiles.TILES["fma"]:
        if tile.tn < 16:
            continue
        kernel = source.ProductKernel(plan, "General", tile, True, True, False, True, True)
        cubin, _ = device.compile_source(source.product_source(kernel), 90)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "kernel.cubin")
            path.write_bytes(cubin)
            command = [nvdisasm, "-c", "-hex", str(path)]
            code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        waits, count = conflicts(code)
        share = f"{waits:5} of {count} ({waits / count:.1%})"
        print(f"{tile.struct():34} {share}, {crowded_loads(code)} crowded loads")


if __name__ == "__main__":
    main(*sys.argv[1:])
