"""Count register-bank conflicts in the machine code of a product: `python -m bench.banks`.

Registers lie in two banks, of even and of odd numbers, each of which gives an instruction one
operand a cycle; an operand that the instruction before marked `.reuse`, in the same place, costs
nothing. The count needs no device, and the order of the outer product (kernels/multiplier.cuh) was
chosen by it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

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


def main(nvdisasm: str = "nvdisasm") -> None:
    """Print the count of every tile of float32 products that is large."""
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
            command = [nvdisasm, "-c", str(path)]
            code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        waits, count = conflicts(code)
        print(f"{tile.struct():34} {waits:5} of {count} ({waits / count:.1%})")


if __name__ == "__main__":
    main(*sys.argv[1:])
