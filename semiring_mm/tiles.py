"""What is asked of work over tiles: devices, files and memory; known before any of it is loaded."""

from __future__ import annotations

import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from . import engine as engines
from .arrays import device_index
from .naming import integer, named

__all__ = ["TileOptions", "device_list", "parse_size"]

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15} | {
    f"{letter}I": 1 << 10 * power for power, letter in enumerate("KMGTP", 1)
}
_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([KMGTP]I?)?B?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class TileOptions:
    """The arguments of :func:`semiring_mm.apsp` about devices, files and memory.

    Parameters
    ----------
    device : {None, "cpu", "cuda", "cuda:N"}
    devices : {None, "all"} or sequence of int or "cuda:N"
    out : path or pair of paths, optional
    memory_limit : int or str, optional
    checkpoint : int
    resume : bool
    """

    device: str | None = None
    devices: Any = None
    out: Any = None
    memory_limit: int | str | None = None
    checkpoint: int = 1
    resume: bool = False

    def __post_init__(self) -> None:
        try:
            count = integer(self.checkpoint, "checkpoint")
        except TypeError:
            count = 0
        if count < 1:
            raise ValueError(f"checkpoint is a number of steps from 1 on, got {self.checkpoint!r}")
        if self.resume and self.out is None:
            raise ValueError("resume goes on with a run that had out=PATH: give the same path")

    @classmethod
    def of(
        cls, device: str | None, devices: Any, out: Any, memory_limit: int | str | None,
        checkpoint: int, resume: bool,
    ) -> TileOptions:  # fmt: skip
        """The same; a single device that is to hold the matrix needs no tiles."""
        options = cls(device, devices, out, memory_limit, checkpoint, resume)
        if devices is None or out is not None or memory_limit is not None:
            return options
        found = options.indices()
        assert found is not None
        return cls(f"cuda:{found[0]}") if len(found) == 1 else options

    def __bool__(self) -> bool:
        """Whether it asks for work over tiles at all."""
        return not (self.devices is self.out is self.memory_limit is None)

    def indices(self) -> list[int] | None:
        """CUDA devices, or None for the CPU."""
        if self.device is self.devices is None:
            return None
        if self.devices is not None:
            if self.device is not None:
                raise ValueError(
                    f"device={self.device!r} and devices={self.devices!r}: give one of them"
                )
            return device_list(self.devices)
        index = device_index(self.device)
        if index is None:
            return None
        if index < 0:
            device_list("all", "device")
            import cupy

            return [int(cupy.cuda.runtime.getDevice())]
        return device_list([index], "device")

    def limit(self) -> int | None:
        """Bytes."""
        if self.memory_limit is None:
            return None
        return parse_size(self.memory_limit)

    def paths(self, predecessors: bool) -> tuple[Path, Path | None] | None:
        """Where distances and predecessors go."""
        if self.out is None:
            return None
        given = self.out if isinstance(self.out, (tuple, list)) else (self.out,)
        if len(given) != 1 + predecessors or not all(isinstance(x, (str, PathLike)) for x in given):
            wanted = "two paths, out=(distances, predecessors)" if predecessors else "a path"
            raise ValueError(f"out is {wanted} ending in .npy or .zarr, got {self.out!r}")
        first, *rest = (Path(x) for x in given)
        return first, rest[0] if rest else None


def device_list(devices: Any, name: str = "devices") -> list[int]:
    """The numbers of CUDA devices that a user named: "all", or some, as 0 or "cuda:0".

    Raises
    ------
    ValueError, RuntimeError
        For a value that names no devices; where there are none.
    """
    everything = isinstance(devices, str) and devices == "all"
    try:
        given = [] if everything else [devices] if isinstance(devices, str) else [*devices]
        found = [device_index(x) if isinstance(x, str) else integer(x, "") for x in given]
    except (TypeError, ValueError):
        raise ValueError(
            f"devices is 'all' or a sequence of devices such as 0 or 'cuda:0', got {devices!r}"
        ) from None
    if why := engines.why_not("cuda"):
        raise RuntimeError(f"{named(name)}: {why}")
    count = engines.named("cuda").count()
    if everything:
        return list(range(count))
    chosen = [x for x in found if x is not None and 0 <= x < count]
    if not chosen or len(set(chosen)) < len(found):
        raise ValueError(f"{named(name)}: some of 0 to {count - 1}, each once, got {given!r}")
    return chosen


def parse_size(size: str | int) -> int:
    """Bytes of an amount of memory.

    Parameters
    ----------
    size : str or int
        Bytes, or a number and a unit: ``"16GB"`` is 16·10⁹ bytes, ``"16GiB"`` 16·2³⁰. Case and a
        space between the two do not matter, nor does a missing B.

    Returns
    -------
    int
        Whole bytes, rounded down.

    Raises
    ------
    ValueError
        Not such a word, or less than one byte.
    TypeError
        Neither a string nor an integer.

    Examples
    --------
    >>> parse_size("16GB"), parse_size("1.5 GiB"), parse_size(4096)
    (16000000000, 1610612736, 4096)
    """
    if isinstance(size, str):
        found = _SIZE.fullmatch(size.strip())
        count = 0
        if found:
            whole, _, part = found[1].partition(".")
            unit = _UNITS[(found[2] or "").upper()]
            count = int(f"{whole}{part}") * unit // 10 ** len(part)  # exact, as a float is not
    else:
        count = integer(size, "a size", " (bytes) or a word such as '16GB'")
    if count < 1:
        raise ValueError(f"expected a size such as '16GB', '500 MiB' or 4096 (bytes), got {size!r}")
    return count
