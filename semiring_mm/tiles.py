"""What is asked of work over tiles: devices, files and memory; known before any of it is loaded."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

from . import engine as engines
from .arrays import device_index
from .naming import integer, named

__all__ = ["TileOptions", "Tiles", "device_list", "parse_size"]

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15} | {
    f"{letter}I": 1 << 10 * power for power, letter in enumerate("KMGTP", 1)
}
_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([KMGTP]I?)?B?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Tiles:
    """Devices, files and memory for work in tiles: several GPUs, or more than fits in memory.

    Parameters
    ----------
    devices : {None, "all"} or sequence of int or "cuda:N", optional
        CUDA devices of this machine to share the work. A matrix that all of them together cannot
        hold stays on the host and streams through them.
    out : path or (path, path), optional
        Where the result goes, and the state of a run until it is finished: a file for the matrix
        (and one for the predecessors, if they are wanted) that ends in ``.npy``, or a directory
        that ends in ``.zarr``. The matrix is never whole in memory then. It has another name until
        it is finished. What is there already is not overwritten. For :func:`statistics`, an
        ``.npz`` file, removed when they are returned; on a Dask cluster, a folder that all workers
        and the client see.
    memory : int or str, optional
        Bytes, or a word such as ``"16GB"``, that the work may take on the host, in addition to a
        result in memory; default half of what is free. The smaller tiles are, the more is read and
        written.
    checkpoint : int, optional
        With `out`: steps from one state on the disk, from which `resume` goes on, to the next. A
        step is a strip of rows, as many as there are tiles in a row, or for :func:`statistics` a
        batch of sources. Default 1; of statistics what takes ten seconds, on a Dask cluster an
        eighth of the run.
    resume : bool, default False
        With `out`: go on with a run that was stopped or killed, begin where there is nothing yet,
        and only open the result where the same call has finished.

    Examples
    --------
    >>> import semiring_mm as sm
    >>> sm.Tiles(devices="all", out="dist.zarr", resume=True)
    Tiles(devices='all', out='dist.zarr', resume=True)
    """

    __module__ = "semiring_mm"  # where users import it from

    devices: Any = None
    out: Any = None
    memory: int | str | None = None
    checkpoint: int | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        if self.checkpoint is not None:
            try:
                count = integer(self.checkpoint, "checkpoint")
            except TypeError:
                count = 0
            if count < 1:
                raise ValueError(
                    f"checkpoint is a number of steps from 1 on, got {self.checkpoint!r}"
                )
            if self.out is None:
                raise ValueError("checkpoint counts the steps between states in out=PATH: give it")
        if self.resume and self.out is None:
            raise ValueError("resume goes on with a run that had out=PATH: give the same path")

    def __repr__(self) -> str:
        given = ((x.name, getattr(self, x.name), x.default) for x in fields(self))
        words = (f"{name}={value!r}" for name, value, default in given if value is not default)
        return f"{type(self).__name__}({', '.join(words)})"

    def __bool__(self) -> bool:
        """Whether it asks for work over tiles at all."""
        return not (self.devices is self.out is self.memory is None)


@dataclass(frozen=True, repr=False)
class TileOptions(Tiles):
    """The same, with the device of the call: what verbs hand on.

    Parameters
    ----------
    device : {None, "cpu", "cuda", "cuda:N"}
    """

    __module__ = __name__

    device: str | None = None

    @classmethod
    def of(cls, device: str | None, tiles: Tiles | None, *refused: str) -> TileOptions:
        """Options of a call whose verb takes all arguments of `tiles` except the `refused` ones."""
        if tiles is None:
            return _NONE if device is None else cls(device=device)
        if not isinstance(tiles, Tiles):
            raise TypeError(f"tiles is sm.Tiles(devices=, out=, memory=, ...), got {tiles!r}")
        for name in refused:
            if getattr(tiles, name) is not None:
                raise ValueError(f"tiles has no {name} here: leave it out")
        return cls(**{x.name: getattr(tiles, x.name) for x in fields(Tiles)}, device=device)

    def alone(self) -> TileOptions:
        """The same; a single device that is to hold the matrix needs no tiles."""
        if self.devices is None or self.out is not None or self.memory is not None:
            return self
        found = self.indices()
        assert found is not None
        return TileOptions(device=f"cuda:{found[0]}") if len(found) == 1 else self

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
        return None if self.memory is None else parse_size(self.memory)

    def paths(
        self, predecessors: bool, kind: str = "ending in .npy or .zarr"
    ) -> tuple[Path, Path | None] | None:
        """Where distances and predecessors go."""
        if self.out is None:
            return None
        given = self.out if isinstance(self.out, (tuple, list)) else (self.out,)
        if len(given) != 1 + predecessors or not all(isinstance(x, (str, PathLike)) for x in given):
            wanted = "two paths, out=(distances, predecessors)," if predecessors else "a path"
            raise ValueError(f"out is {wanted} {kind}, got {self.out!r}")
        first, *rest = (Path(x) for x in given)
        return first, rest[0] if rest else None


_NONE = TileOptions()


def device_list(devices: Any, name: str = "devices") -> list[int]:
    """The numbers of CUDA devices that a user named: "all", or some, as 0 or "cuda:0".

    Raises
    ------
    ValueError
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
    count = engines.named("cuda", "" if name == "device" else name).count()
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
